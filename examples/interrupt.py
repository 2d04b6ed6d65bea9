"""Interrupt a turn whose tool refuses to stop: it ends within its window, with a receipt, and the next one runs."""

import asyncio

import trio

from callboard.actors import Call, Reply, tool
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime


@tool
async def stubborn() -> str:
    """Swallow every cancellation."""
    while True:
        try:
            await trio.sleep(5)
        except trio.Cancelled:  # a tool must not do this; some do
            continue


async def main() -> None:
    """Start the tool, interrupt it, look at the receipt, go on."""
    model = ScriptedModel([Reply("On it.", [Call("stubborn")]), Reply("What else?")])
    async with open_runtime(model=model, tools=[stubborn]) as rt:
        session = await rt.create()
        turn = asyncio.create_task(session.run("Do something endless."))
        await asyncio.sleep(0.2)
        print(await session.interrupt())
        ended = await turn
        print(f"turn {ended.turn} {ended.reason} by {ended.cause}, {ended.abort_s or 0:.3f} s after the request")
        for receipt in ended.receipts:
            print(f"{receipt.tool}: {receipt.receipt}")
        print((await session.run("Never mind.")).last_message)


if __name__ == "__main__":
    asyncio.run(main())

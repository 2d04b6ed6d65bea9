"""One half of a story over a wire, as a program of its own: `begin` it, or `resume` it in a new process.

It prints what a person could ask for afterwards, as JSON.
"""

import asyncio
import json
import sys
from typing import Any

from callboard.actors import Delta, tool
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.config import config_of

STALLS = {"north": "five", "east": "four", "south": "three"}


@tool(effect="none", parallel=True)
async def look(where: str) -> str:
    """Look how many stalls there are."""
    return STALLS[where]


async def begin(rt: Any) -> list[Any]:
    """A turn of tools and an agent, and one that is interrupted in the middle of its answer."""
    session = await rt.create("fair")
    first = await session.run("Plan the fair.")
    reading = asyncio.create_task(letter(session))
    await asyncio.sleep(0.1)  # it has read all that is in the log by then
    await session.submit("Write to everybody.")
    await reading
    await session.interrupt()
    return [first, await session.wait(2)]


async def letter(session: Any) -> None:
    """Read along until all of the letter that will ever come is there."""
    said = ""
    async for item in session.events(deltas=True):
        said += item.text if isinstance(item, Delta) else ""
        if said.endswith("this year"):
            return


async def resume(rt: Any) -> list[Any]:
    """The turn behind them."""
    session = await rt.open("fair")
    return [await session.run("Shorter, please.")]


def told(ended: Any) -> Any:
    """The end of a turn, without its seconds."""
    receipts = [[one.tool, one.receipt] for one in ended.receipts]
    return [ended.reason, ended.cause, ended.last_message, ended.error, ended.usage, ended.steps, receipts]


async def main(part: str, table: str) -> None:
    """Play a part and print everything."""
    config: RuntimeConfig = config_of(json.loads(table))
    async with open_runtime(config, tools=[look]) as rt:
        ends = await (begin if part == "begin" else resume)(rt)
        for name in ("fair", "fair.stalls"):
            await rt.open(name)
        states = {one.id: {key: value for key, value in one.state().items() if key != "seq"} for one in rt.sessions()}
        print(json.dumps([states, [told(ended) for ended in ends]], default=vars_of))


def vars_of(value: Any) -> Any:
    """What an object holds."""
    return {name: getattr(value, name) for name in value.__struct_fields__}


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))

"""The smallest program: one session, one tool, one turn, and the receipt of its call."""

import asyncio

from callboard.actors import Call, Reply, tool
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime


@tool(effect="none", parallel=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    """Ask for a sum; the model here is a script, any object with a `reply` method will do."""
    model = ScriptedModel([Reply("Let me add.", [Call("add", {"a": 2, "b": 3})]), Reply("It is 5.")])
    async with open_runtime(model=model, tools=[add]) as rt:
        session = await rt.create()
        ended = await session.run("What is 2 + 3?")
        print(ended.last_message)
        for receipt in ended.receipts:
            print(f"{receipt.tool}: {receipt.receipt}")


if __name__ == "__main__":
    asyncio.run(main())

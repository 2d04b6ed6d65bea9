"""A session that survives its program: the log lies in one SQLite file, and opening it again goes on from there."""

import asyncio
import tempfile
from pathlib import Path

from callboard.actors import Call, Reply
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime

PLAN = {"plan": [{"step": "buy flour", "status": "completed"}, {"step": "bake", "status": "pending"}]}


async def first(url: str) -> str:
    """Make a plan, then end the program."""
    model = ScriptedModel([Reply("", [Call("update_plan", PLAN)]), Reply("Flour is there.")])
    async with open_runtime(model=model, store=url) as rt:
        session = await rt.create(title="bread")
        await session.run("Bake a bread.")
        return session.id


async def second(url: str, session_id: str) -> None:
    """Open the session in what might be another program."""
    async with open_runtime(model=ScriptedModel([Reply("Baking now.")]), store=url) as rt:
        session = await rt.open(session_id)
        for step in session.state()["plan"]["plan"]:
            print(f"{step['status']}: {step['step']}")
        print((await session.run("Go on.")).last_message)


async def main() -> None:
    """Both lives of the session."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'sessions.db'}"
        await second(url, await first(url))


if __name__ == "__main__":
    asyncio.run(main())

"""A program whose one call stops at a point of its life and is killed there: `effective.py URL FILE EFFECT POINT`."""

import asyncio
import os
import sys
from pathlib import Path

import msgspec
import trio

from callboard.actors import Call, Prompt, Reply, View, tool
from callboard.actors.events import Effect
from callboard.actors.model import Say
from callboard.actors.testing import ScriptedModel
from callboard.actors.tool import Tool
from callboard.runtime import RuntimeConfig, open_runtime

POINTS = ("called", "done", "returned")


def tools(file: Path, effect: Effect, stop: str = "") -> list[Tool]:
    """A tool that appends its key to a file; one that is idempotent looks first."""

    @tool(effect=effect)
    async def act(view: View) -> str:
        """Does something to the world."""
        await at("called", stop)
        if effect != "idempotent" or view.key not in lines(file):
            with file.open("a") as world:
                world.write(f"{view.key}\n")
        await at("done", stop)
        return "did it"

    return [act]


def lines(file: Path) -> list[str]:
    """What was done to the world."""
    return file.read_text().split() if file.exists() else []


async def at(point: str, stop: str) -> None:
    """Say that it is there, and stay, where it is to be killed."""
    if point == stop:
        os.write(1, b"here\n")
        await trio.sleep_forever()


def model(stop: str = "") -> ScriptedModel:
    """One call, then the last word."""

    async def reply(prompt: Prompt, say: Say = print) -> Reply:
        if prompt.step == 1:
            return Reply("", [Call("act")])
        if stop == "returned":
            os.write(1, b"here\n")
            await trio.sleep_forever()
        return Reply("all done")

    return ScriptedModel(reply)


async def main(url: str, file: Path, effect: Effect, point: str) -> None:
    """The first life."""
    async with open_runtime(RuntimeConfig(), model=model(point), tools=tools(file, effect, point), store=url) as rt:
        s = await rt.create("s")
        await s.submit("go")
        await asyncio.sleep(0.1)
        await s.inject("by the way")  # durable, and with it all that came before
        os.write(1, b"durable\n")
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), msgspec.convert(sys.argv[3], Effect), sys.argv[4]))

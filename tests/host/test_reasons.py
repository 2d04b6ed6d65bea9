"""A turn that was cut off says by whom: its user, the program that closed, or a crash of the program."""

import asyncio
import contextlib
import shutil
import sqlite3

import trio

from callboard.actors import Call, Reply, tool
from callboard.actors.events import ToolReturned, TurnEnded
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime


@tool(effect="idempotent")
async def stuck():
    """Never return."""
    await trio.sleep_forever()


def opened(path):
    """A runtime whose model asks for the tool that never returns."""
    return open_runtime(model=ScriptedModel([Reply("", [Call("stuck", id="c")])]), tools=[stuck], store=path)


async def began(rt):
    """A session whose call runs, on the disk."""
    session = await rt.create("s")
    await session.submit("go")
    while "tool_called" not in str([record.body for record in rt.actor("s").stage.store.read("s", -1, 100)]):
        await asyncio.sleep(0.01)
    while not rt.actor("s").scene.window.asked:
        await asyncio.sleep(0.01)
    return session


async def ending(rt):
    """The end of its turn, and what the model reads of its call."""
    await (await rt.open("s")).wait(1)
    stage = rt.actor("s").stage
    events = [stage.codec.decode(record.body) for record in stage.store.read("s", -1, 100)]
    (ended,) = (event for event in events if isinstance(event, TurnEnded))
    (returned,) = (event for event in events if isinstance(event, ToolReturned))
    return ended.reason, ended.cause, ended.error, returned.receipt, returned.text.split(":")[0].split(" after")[0]


async def test_the_three_reasons_are_told_apart(tmp_path):
    """Interrupted, closed in mid-turn, and gone without a word: each has its reason, its cause and its words."""
    url = {name: f"sqlite:///{tmp_path / name}.db" for name in ("user", "shutdown", "crash")}
    async with opened(url["user"]) as rt:
        session = await began(rt)
        await session.interrupt()
        await session.wait(1)
    async with opened(url["shutdown"]) as rt:
        await began(rt)
        for one in tmp_path.glob("shutdown.db*"):  # what a program that is gone at this moment leaves
            shutil.copy(one, tmp_path / one.name.replace("shutdown", "crash"))
    with contextlib.closing(sqlite3.connect(tmp_path / "crash.db", isolation_level=None)) as db:
        db.execute("DELETE FROM owners")  # its lease is over by then
    told = {}
    for name, one in url.items():
        async with opened(one) as rt:
            told[name] = await ending(rt)
    assert {
        "user": ("aborted", "interrupted", None, "interrupted", "aborted by user"),
        "shutdown": ("aborted", "shutdown", None, "interrupted", "aborted because the runtime is shutting down"),
        "crash": ("interrupted", None, None, "interrupted", "interrupted"),
    } == told

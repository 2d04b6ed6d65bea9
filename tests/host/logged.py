"""What the tests of `callboard log` share: the command in this process, and a store with a tree of sessions in it."""

from typing import Any

import attrs

from callboard.actors import Reply
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime
from callboard.runtime.doors.cli import main

from .parents import Parent, spawn, wait


@attrs.frozen
class Said:
    """What a command came to."""

    code: int
    out: str
    err: str


@attrs.frozen
class Commands:
    """`callboard log ...` on one store, in this process."""

    capsys: Any
    url: str

    def __call__(self, *arguments, store=True):
        """Run it; its exit code and what it wrote."""
        self.capsys.readouterr()
        code = main(["log", *map(str, arguments), *(["--store", self.url] if store else [])])
        said = self.capsys.readouterr()
        return Said(code, said.out, said.err)


async def make_tree(url, session="s"):
    """A session with two agents, one of which has run, and a turn behind it."""
    play = Parent(spawn("a"), wait(), Reply("one"), spawn("b"), wait(), Reply("two"))
    async with open_runtime(model=ScriptedModel(play), store=url) as rt:
        s = await rt.create(session, title="A title")
        await s.run("go")
        await s.run("on")


def records_of(store, session):
    """All records of a session."""
    return store.read(session, -1, 10**9)

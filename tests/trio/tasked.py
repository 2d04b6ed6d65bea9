"""What the tests of tasks share: a model that is busy for a while, and short ways to ask and to look."""

from typing import Any

import trio

from callboard.actors.books import HISTORY
from callboard.actors.events import Call, TurnEnded
from callboard.actors.model import Reply, User
from callboard.actors.testing import LabSession, ScriptedModel
from callboard.actors.tool import tool

from .strict import of_kind


@tool
async def nap(seconds: float) -> str:
    """Sleeps, and takes its time to end."""
    try:
        await trio.sleep(seconds)
    finally:
        with trio.move_on_after(0.05, shield=True):
            await trio.sleep_forever()
    return "slept"


def napping(seconds: float = 5.0) -> ScriptedModel:
    """A model that lets the first step of each turn sleep, and then says that it is done."""
    calls = [Call("nap", {"seconds": seconds})]
    return ScriptedModel(lambda prompt: Reply(calls=calls) if prompt.step == 1 else Reply("done"))


def said(session: LabSession) -> list[str]:
    """What entered history from outside, in order."""
    return [m.text for m in session.state(HISTORY).messages if isinstance(m, User) and m.source != "marker"]


def ends(session: LabSession, lab: Any) -> list[tuple[int, str, str | None]]:
    """How the turns ended."""
    return [(e.turn, e.reason, e.cause) for e in of_kind(lab.records(), TurnEnded)]


async def ask(session: LabSession, letter: type[Any], *args: Any, **given: Any) -> Any:
    """Tell a message and wait for its answer."""
    return await session.ask(lambda reply: letter(*args, **given, reply=reply))

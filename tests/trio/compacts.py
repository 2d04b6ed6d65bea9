"""Compacting sessions in a lab: a model that answers both kinds of request, and the turn of kind compact."""

from collections.abc import Callable
from typing import Any

from callboard.actors.abort import AbortWindow
from callboard.actors.books import TURN
from callboard.actors.compact import Compacting
from callboard.actors.compaction import PREFIX, REQUEST
from callboard.actors.errors import ModelError
from callboard.actors.events import TurnEnded, TurnStarted, Usage
from callboard.actors.model import Prompt, Reply, User
from callboard.actors.phase import Phase
from callboard.actors.testing import LabSession, ScriptedModel

SUMMARY = User(f"{PREFIX}so far", "notice")


def asks_for_summary(prompt: Prompt) -> bool:
    """Whether this is the request of a compaction."""
    return prompt.messages[-1] == User(REQUEST, "notice")


def model(
    answer: Callable[[Prompt], Any] = lambda prompt: Reply("ok"),
    *,
    window: int | None = None,
    usage: Usage | None = None,
    summary: Callable[[Prompt], Any] = lambda prompt: Reply("so far", usage=Usage(50, output=5)),
) -> ScriptedModel:
    """Answers by `answer`, and requests of compactions by `summary`."""

    def reply(prompt: Prompt) -> Any:
        return summary(prompt) if asks_for_summary(prompt) else answer(prompt)

    return ScriptedModel(reply, usage=usage, context_window=window)


async def compact(session: LabSession) -> TurnEnded:
    """Start a turn of kind compact, and wait for its end."""
    number = start(session)
    ended = await session.wait(number)
    assert ended is not None
    return ended


def start(session: LabSession) -> int:
    """Start a turn of kind compact in an idle session, as a session does; its number."""
    actor, stage = session.actor, session.actor.stage
    assert actor.phase is Phase.IDLE
    number = actor.log[TURN].number + 1
    actor.log.append(TurnStarted(number, "compact", started_ms=stage.now_ms()))
    actor.scene.window = AbortWindow(stage.timers, stage.limits.abort_window_s)
    actor.phase = Phase.RUNNING
    actor._slot.take(Compacting(actor.scene, "user", actor.mailbox.nudge))
    return number


def overflow(_: Prompt) -> Reply:
    """Refuse the prompt."""
    raise ModelError("prompt is too long", kind="overflow")

"""Recovery: how a turn that a crash left open goes on, where a runtime is told to: the decision, and what it writes."""

from typing import Final, Literal, TypeAlias

from callboard.actors.books import Turn
from callboard.actors.events import ControlCallEnded, Event, TurnRecovered
from callboard.actors.receipts import CONTROL_TOOLS, repaired

Recover: TypeAlias = Literal["close", "continue"]

AGAIN_MAX: Final = 2
"""So often a turn is taken up in one step: what brought the program down twice more would do so again."""


def recovery(turn: Turn, at_ms: int) -> tuple[Event, ...]:
    """The events after which an open turn may go on under its number; none when it has to be closed instead.

    Its open calls are owed a result still, those inside of a call are not. A turn that was asked to end, or is a task
    of another kind, is closed; so is one that was taken up AGAIN_MAX times without completing its step.
    """
    if not turn.open or turn.cause is not None or turn.kind != "regular" or turn.task not in ("", "replace"):
        return ()
    if turn.recovered >= AGAIN_MAX:
        return ()
    events: list[Event] = []
    for one in turn.nested:
        events.append(repaired(one))
        if one.started and one.call.name in CONTROL_TOOLS:
            events.append(ControlCallEnded(one.call.id, one.cell, one.call.name, at_ms, at_ms, "interrupted"))
    return (*events, TurnRecovered(turn.number, turn.step, turn.recovered + 1))


def lost_calls(turn: Turn) -> frozenset[str]:
    """Of the open calls of a turn that goes on, those that must not run again: `outcome_unknown`.

    All others run, under their keys, whether or not they ran before.
    """
    return frozenset(one.call.id for one in turn.calls.open() if one.started and not one.repeatable)

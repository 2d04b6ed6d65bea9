"""Recovery: how a turn that a crash left open goes on, where a runtime is told to: the decision, and what it writes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from callboard.actors.books import Turn
from callboard.actors.calls import OpenCall
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
    if turn.recoveries >= AGAIN_MAX:
        return ()
    events: list[Event] = []
    for one in turn.nested:
        events.append(repaired(one))
        if one.started and one.call.name in CONTROL_TOOLS:
            events.append(ControlCallEnded(one.call.id, one.cell, one.call.name, at_ms, at_ms, "interrupted"))
    return (*events, TurnRecovered(turn.number, turn.step, turn.recoveries + 1))


Fate: TypeAlias = Literal["begin", "again", "closed"]

FATES: Mapping[tuple[bool, bool, bool], Fate] = MappingProxyType(
    {
        # dispatched, may be repeated, its body made calls of its own
        (False, False, False): "begin",
        (True, True, False): "again",
        (True, True, True): "closed",  # what it made is on the log, and none of that is made twice
        (True, False, False): "closed",
        (True, False, True): "closed",
    }
)
"""What a turn that goes on does about an open call: begin it, run it again under the same key, or give it the result
that the repair gives it. One that was never dispatched has done nothing: it begins now, whatever its effect."""


def fate(one: OpenCall) -> Fate:
    """What a turn that goes on does about a call that has no result yet."""
    return FATES[one.started, one.repeatable, one.nesting]

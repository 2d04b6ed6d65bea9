"""What may follow what on a log: one table from event type to the promise it must keep."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from callboard.actors.books import Queue, Turn
from callboard.actors.errors import CallboardError
from callboard.actors.events import (
    AbortRequested,
    CellCalled,
    Compacted,
    Event,
    MessageEdited,
    MessageQueued,
    MessagesClaimed,
    MessageWithdrawn,
    ModelFailed,
    ModelSaid,
    StepEnded,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnRecovered,
    TurnStarted,
)
from callboard.actors.line import is_queued


class InvariantBroken(CallboardError, AssertionError):
    """An event that must not follow this log; nothing was written."""


Check: TypeAlias = Callable[[Turn, Queue, Any], str | None]


def _turn_started(turn: Turn, queue: Queue, event: TurnStarted) -> str | None:
    if turn.open:
        return f"turn {turn.number} is still open"
    return None if event.turn == turn.number + 1 else f"the next turn is {turn.number + 1}"


def _turn_ended(turn: Turn, queue: Queue, event: TurnEnded) -> str | None:
    if not turn.open or event.turn != turn.number:
        return f"turn {event.turn} is not open"
    if turn.in_step:
        return f"step {turn.step} is still open"
    return _open_call(turn)


def _turn_recovered(turn: Turn, queue: Queue, event: TurnRecovered) -> str | None:
    if not turn.open or (event.turn, event.step) != (turn.number, turn.step):
        return f"step {event.step} of turn {event.turn} is not open"
    return None if event.times == turn.recoveries + 1 else f"it was taken up {turn.recoveries} times before"


def _open_call(turn: Turn) -> str | None:
    return f"call {turn.calls.open()[0].call.id!r} has no result" if turn.calls else None


def _abort(turn: Turn, queue: Queue, event: AbortRequested) -> str | None:
    return None if turn.open and event.turn == turn.number else f"turn {event.turn} is not open"


def _step_started(turn: Turn, queue: Queue, event: StepStarted) -> str | None:
    if not turn.open or event.turn != turn.number:
        return f"turn {event.turn} is not open"
    if turn.in_step:
        return f"step {turn.step} is still open"
    return None if event.step == turn.step + 1 else f"the next step is {turn.step + 1}"


def _step_ended(turn: Turn, queue: Queue, event: StepEnded) -> str | None:
    if not turn.in_step or event.turn != turn.number or event.step != turn.step:
        return f"step {event.step} of turn {event.turn} is not open"
    return _open_call(turn)


def _model_said(turn: Turn, queue: Queue, event: ModelSaid) -> str | None:
    if not turn.in_step:
        return "no step is open"
    if event.calls:
        ids = [call.id for call in event.calls]
        if not all(ids) or len(set(ids)) != len(ids) or not turn.calls.places.keys().isdisjoint(ids):
            return "each call needs an id of its own"
    return None


def _cell_called(turn: Turn, queue: Queue, event: CellCalled) -> str | None:
    if not turn.calls.is_open(event.cell) or not turn.calls.is_started(event.cell):
        return f"call {event.cell!r} does not run"
    id_ = event.call.id
    if not id_ or id_ in turn.calls.places or turn.find_nested(id_) is not None:
        return "each call needs an id of its own"
    return None


def _in_cell(turn: Turn, event: ToolCalled | ToolReturned) -> str | None:
    one = turn.find_nested(event.call)
    if one is None or one.cell != event.cell:
        return f"call {event.call!r} is not open in call {event.cell!r}"
    if type(event) is ToolCalled and one.started:
        return f"call {event.call!r} was started before"
    return None


def _model_failed(turn: Turn, queue: Queue, event: ModelFailed) -> str | None:
    return None if turn.open else "no turn is open"  # between steps it is the request for a summary that fails


def _compacted(turn: Turn, queue: Queue, event: Compacted) -> str | None:
    return _open_call(turn) if turn.open else "no turn is open"


def _tool_called(turn: Turn, queue: Queue, event: ToolCalled) -> str | None:
    if event.cell is not None:
        return _in_cell(turn, event)
    if not turn.calls.is_open(event.call):
        return f"call {event.call!r} is not open"
    return f"call {event.call!r} was started before" if turn.calls.is_started(event.call) else None


def _tool_returned(turn: Turn, queue: Queue, event: ToolReturned) -> str | None:
    if event.cell is not None:
        return _in_cell(turn, event)
    if turn.nested and any(one.cell == event.call for one in turn.nested):
        return f"call {turn.nested[0].call.id!r} inside it has no result"
    return None if turn.calls.is_open(event.call) else f"call {event.call!r} is not open"


def _queued(turn: Turn, queue: Queue, event: MessageQueued) -> str | None:
    return f"message {event.id!r} is queued already" if is_queued(queue, event.id) else None


def _claimed(turn: Turn, queue: Queue, event: MessagesClaimed) -> str | None:
    left = {message.id for message in queue}
    for id_ in event.ids:
        if id_ not in left:
            return f"message {id_!r} is not queued, or claimed twice"
        left.remove(id_)
    return None


def _waits(turn: Turn, queue: Queue, event: MessageWithdrawn | MessageEdited) -> str | None:
    return None if is_queued(queue, event.id) else f"message {event.id!r} is not queued"


PROMISES: Mapping[type[Event], Check] = MappingProxyType(
    {
        TurnStarted: _turn_started,
        TurnRecovered: _turn_recovered,
        TurnEnded: _turn_ended,
        AbortRequested: _abort,
        StepStarted: _step_started,
        StepEnded: _step_ended,
        ModelSaid: _model_said,
        ModelFailed: _model_failed,
        CellCalled: _cell_called,
        Compacted: _compacted,
        ToolCalled: _tool_called,
        ToolReturned: _tool_returned,
        MessageQueued: _queued,
        MessagesClaimed: _claimed,
        MessageWithdrawn: _waits,
        MessageEdited: _waits,
    }
)


def check(turn: Turn, queue: Queue, event: Event) -> None:
    """Raise `InvariantBroken` when this event must not follow."""
    promise = PROMISES.get(type(event))
    if promise is not None:
        broken = promise(turn, queue, event)
        if broken is not None:
            raise broken_by(event, broken)


def broken_by(event: Event, why: str) -> InvariantBroken:
    """The error for an event that must not follow."""
    return InvariantBroken(f"{type(event).__name__} refused: {why}.")

"""What must hold of every log and every history, whatever happened: checked the way a strict provider would."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from callboard.actors.events import (
    CellCalled,
    ControlCallEnded,
    Event,
    MessageQueued,
    MessagesClaimed,
    MessageWithdrawn,
    ModelSaid,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from callboard.actors.model import Assistant, PromptMessage, Result


def of_kind(events: Iterable[Event], *kinds: type[Event]) -> list[Any]:
    """The events of these kinds, in order."""
    return [event for event in events if isinstance(event, kinds)]


def check_history(messages: Iterable[PromptMessage]) -> None:
    """Each call of an answer has exactly one result, right behind it and in order, before anything else is said."""
    owed: list[str] = []
    answered: set[str] = set()
    for message in messages:
        if isinstance(message, Result):
            assert owed, f"a result that nobody asked for: {message}"
            assert message.call == owed.pop(0), f"a result out of order: {message}"
            assert message.call not in answered
            continue
        assert not owed, f"{owed} have no result before {message}"
        if isinstance(message, Assistant):
            answered = set()
            owed = [call.id for call in message.calls]
            assert len(set(owed)) == len(owed)
    assert not owed, f"{owed} have no result"


def check_log(events: Sequence[Event]) -> None:
    """Turns end once, calls return once, control facts are single, and every message has at most one fate."""
    started = [e.turn for e in of_kind(events, TurnStarted)]
    ended = [e.turn for e in of_kind(events, TurnEnded)]
    assert started == ended == list(range(1, len(started) + 1))
    asked = Counter((i, call.id) for i, e in _by_turn(events) if isinstance(e, ModelSaid) for call in e.calls)
    asked.update((i, e.call.id) for i, e in _by_turn(events) if isinstance(e, CellCalled))
    returned = Counter((i, e.call) for i, e in _by_turn(events) if isinstance(e, ToolReturned))
    assert asked == returned
    facts = Counter((i, e.call) for i, e in _by_turn(events) if isinstance(e, ControlCallEnded))
    assert all(count == 1 for count in facts.values())
    fates = Counter(id_ for e in events if isinstance(e, MessagesClaimed) for id_ in e.ids)
    fates.update(e.id for e in events if isinstance(e, MessageWithdrawn))
    queued = Counter(e.id for e in events if isinstance(e, MessageQueued))
    assert not fates - queued, "a message left the queue twice, or was never in it"


def _by_turn(events: Sequence[Event]) -> Iterable[tuple[int, Event]]:
    turn = 0
    for event in events:
        if isinstance(event, TurnStarted):
            turn = event.turn
        yield turn, event


def check_messages(events: Iterable[Event], waiting: Iterable[str]) -> None:
    """Every message was queued once, and has one fate: claimed, withdrawn, or among those that wait."""
    events = tuple(events)
    fates = Counter(id_ for e in of_kind(events, MessagesClaimed) for id_ in e.ids)
    fates.update(e.id for e in of_kind(events, MessageWithdrawn))
    fates.update(waiting)
    queued = Counter(e.id for e in of_kind(events, MessageQueued))
    assert set(queued.values()) <= {1}, f"queued twice: {[id_ for id_, count in queued.items() if count > 1]}"
    assert fates == queued, f"lost or doubled: {sorted((fates - queued) + (queued - fates))}"

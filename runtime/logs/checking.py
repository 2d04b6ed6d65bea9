"""Checking: whether records are one whole log, one record after the other."""

from typing import Any

from callboard.actors.books import OPENED, QUEUE, TURN
from callboard.actors.children import CHILDREN
from callboard.actors.codec import Codec
from callboard.actors.errors import CallboardError, LogError
from callboard.actors.events import Event, SessionOpened
from callboard.actors.fold import Folds
from callboard.actors.invariants import InvariantBroken, check
from callboard.actors.store import Record

TIME_END_MS = 1 << 63


class Damaged(CallboardError):
    """What was read is not whole; one sentence says where, why, and what to do."""


class Checker:
    """Takes the records of one session in order; each has to follow the ones before."""

    def __init__(self, codec: Codec, folds: Folds) -> None:
        self._codec, self._folds = codec, folds
        self._states: list[Any] = list(folds.zeros)
        self.seq = 0
        """The number of the record that comes next."""
        self.at_ms = 0
        self.opened: SessionOpened | None = None

    def take(self, record: Record, *, turn: bool = False) -> Event:
        """The event of a record that follows; `LogError` says why it cannot. With `turn` its turn has to be right.

        After an error nothing of this record counts.
        """
        if record.seq != self.seq:
            what = "is missing" if record.seq > self.seq else "is next"
            raise LogError(f"event {self.seq} {what}, and event {record.seq} comes instead.")
        if not -TIME_END_MS <= record.at_ms < TIME_END_MS:
            raise LogError(f"event {record.seq} is of a time that no store can hold, {record.at_ms!r:.40} ms.")
        event = self._codec.decode(record.body)
        if (self.opened is None) != isinstance(event, SessionOpened):
            name = type(event).__name__
            raise LogError(f"a log begins with SessionOpened, and only with it: event {self.seq} is {name}.")
        states, place = self._states.copy(), self._folds.place
        before = states[place[TURN]]
        try:
            check(before, states[place[QUEUE]], event)
            self._folds.apply(states, event)
        except InvariantBroken as error:
            raise LogError(str(error)) from None
        except Exception as error:
            raise LogError(f"{type(event).__name__} cannot be folded: {type(error).__name__}: {error}.") from None
        after = states[place[TURN]]
        number = after.number if after.open or before.open else None
        if turn and record.turn != number:
            raise LogError(f"{type(event).__name__} is marked with turn {record.turn}, and it fell in turn {number}.")
        self._states = states
        self.seq, self.at_ms, self.opened = self.seq + 1, record.at_ms, states[place[OPENED]]
        self.turn = number
        return event

    turn: int | None = None
    """The turn in which the last record fell."""

    @property
    def is_open(self) -> bool:
        """Whether a turn is open: it is closed when the session is opened."""
        found: bool = self._states[self._folds.place[TURN]].open
        return found

    @property
    def due_ms(self) -> int | None:
        """When something is due next."""
        return self._folds.due_ms(self._states)

    def children(self) -> tuple[str, ...]:
        """The ids of the agents it started."""
        return tuple(child.id for child in self._states[self._folds.place[CHILDREN]])

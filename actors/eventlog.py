"""EventLog: the only writer of a session. Append encodes, checks, folds and tells; flush waits for the disk.

Append is the commit point: nobody sees half of it. Durability follows by `flush`, and readers outside are told only of
what is flushed.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import trio

from callboard.actors.books import QUEUE, TURN
from callboard.actors.codec import Codec
from callboard.actors.envelope import CORE_EVENTS, Envelope
from callboard.actors.errors import LogError, UsageError
from callboard.actors.events import Event, TurnEnded
from callboard.actors.fold import Folds, Projection
from callboard.actors.invariants import PROMISES, broken_by
from callboard.actors.store import Done, Due, Header, Record, Store

S = TypeVar("S")
Listener: TypeAlias = Callable[[Event, str, int | None], None]  # the event, its session and its turn

LOGGER = logging.getLogger("callboard")
_CORE = frozenset(CORE_EVENTS)


class Reader(Protocol):
    """Somebody outside who follows the log; told of flushed events, in order."""

    def take(self, envelopes: Sequence[Envelope]) -> None:
        """Take what became durable; must not raise and must not append."""
        ...


class EventLog:
    """One session's events, folded as they come.

    `append` and everything else here is synchronous, so nothing runs in between; only `flush` waits.
    """

    __slots__ = (
        "_codec",
        "_folds",
        "_listener",
        "_now_ms",
        "_nudged",
        "_queue_at",
        "_store",
        "_sync_to",
        "_syncing",
        "_telling",
        "_turn_at",
        "_unread",
        "_waiting",
        "_watchers",
        "at_ms",
        "due_ms",
        "durable",
        "last_end",
        "readers",
        "seq",
        "session",
        "states",
    )

    def __init__(
        self, session: str, store: Store, codec: Codec, folds: Folds, now_ms: Callable[[], int], listener: Listener
    ) -> None:
        self.session = session
        self.states: list[Any] = list(folds.zeros)
        self.seq = 0  # the number of the next event
        self.durable = -1  # the number of the last durable event
        self.at_ms = 0  # wall time of the last event
        self.due_ms: int | None = None  # when something of a plugin's is due next, as the store knows it too
        self.readers: tuple[Reader, ...] = ()
        self.last_end: TurnEnded | None = None  # of the newest turn that ended
        self._watchers: list[Callable[[], None]] | None = None
        self._store, self._codec, self._folds, self._now_ms, self._listener = store, codec, folds, now_ms, listener
        self._turn_at, self._queue_at = folds.place[TURN], folds.place[QUEUE]
        self._unread: list[Envelope] = []  # appended, not durable, wanted by readers
        self._waiting: list[tuple[int, Done]] = []
        self._syncing = self._nudged = False
        self._sync_to = -1  # what the sync that runs will make durable; there is one at a time
        self._telling = False

    def __getitem__(self, projection: Projection[S]) -> S:
        state: S = self.states[self._folds.place[projection]]
        return state

    def load(self, records: Iterable[Record]) -> None:
        """Fold what the store holds; raises `LogError` when a record is missing, out of order or not ours."""
        for record in records:
            if record.seq != self.seq:
                raise LogError(f"session {self.session!r}: event {self.seq} is missing before {record.seq}.")
            event = self._codec.decode(record.body)
            self._folds.apply(self.states, event)
            self.seq, self.at_ms = record.seq + 1, record.at_ms
            if type(event) is TurnEnded:
                self.last_end = event
        self.durable, self.due_ms = self.seq - 1, self._folds.due_ms(self.states)

    def adopt(self, loaded: "EventLog") -> None:
        """Stand where `loaded` stands, which was read from the store; readers and watchers stay."""
        self.states[:] = loaded.states
        self.seq, self.at_ms, self.last_end = loaded.seq, loaded.at_ms, loaded.last_end
        self.durable, self.due_ms = self.seq - 1, loaded.due_ms
        self._deliver()

    def empty_copy(self) -> "EventLog":
        """A log of the same session with nothing on it, to be loaded."""
        folds = self._folds
        return EventLog(self.session, self._store, self._codec, folds, self._now_ms, self._listener)

    def append(self, *events: Event, at_ms: int | None = None, header: Header | None = None) -> int:
        """Put events on the log in one write, and return the number of the last; all of them or none.

        Raises `InvariantBroken` when one must not follow, `LogError` when the store takes nothing, and whatever the
        encoder raises for a value that cannot be written; then nothing has changed.
        """
        assert not self._telling, "append from inside a listener: react at the next boundary instead"
        if not events and header is None:
            return self.seq - 1
        now = self._now_ms() if at_ms is None else at_ms
        states, records = self._fold(events, now)
        due_ms, before = self.due_ms, self.states
        for at, _ in self._folds.dues:  # most events change nothing that is due
            if states[at] is not before[at]:
                due_ms = self._folds.due_ms(states)
                break
        if due_ms != self.due_ms or (header is not None and due_ms is not None):
            self._store.append(self.session, records, header, Due(due_ms))
        else:
            self._store.append(self.session, records, header)
        self.states[:] = states
        self.seq, self.at_ms, self.due_ms = self.seq + len(records), now, due_ms
        self._tell(events, records)
        return self.seq - 1

    def rehearse(self, events: Sequence[Event]) -> None:
        """Raise what appending these now would raise before it reaches the store."""
        self._fold(events, 0)

    def _fold(self, events: Sequence[Event], now: int) -> tuple[list[Any], list[Record]]:
        """Check, encode and fold, without touching anything: the states after and the records."""
        states, folds, encode = self.states.copy(), self._folds, self._codec.encode
        turn_at, queue_at, readers, seq = self._turn_at, self._queue_at, folds.readers, self.seq
        records: list[Record] = []
        for event in events:  # what `check` and `Folds.apply` do, in place: this runs for every event there is
            kind, before = type(event), states[turn_at]
            promise = PROMISES.get(kind)
            if promise is not None and (broken := promise(before, states[queue_at], event)) is not None:
                raise broken_by(event, broken)
            body = encode(event)
            for at, apply in readers[kind]:
                states[at] = apply(states[at], event)
            after = states[turn_at]
            turn = after.number if after.open or before.open else None
            records.append(Record(seq, now, turn, body))
            seq += 1
        return states, records

    def _tell(self, events: Sequence[Event], records: Sequence[Record]) -> None:
        self._telling, listener = True, self._listener
        try:
            for event, record in zip(events, records, strict=True):
                if type(event) is TurnEnded:
                    self.last_end = event
                listener(event, self.session, record.turn)
        except Exception:
            LOGGER.exception("session %s: a listener failed and is told nothing more", self.session)
            self._listener = _nobody
        finally:
            self._telling = False
        if self.readers:
            for event, record in zip(events, records, strict=True):
                self._unread.append(Envelope(self.session, record.seq, record.at_ms, record.turn, event))
        if self._watchers is not None:
            for watcher in tuple(self._watchers):
                watcher()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` after each append; it must not raise."""
        if self._watchers is None:
            self._watchers = []
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Stop calling it; harmless when repeated."""
        if self._watchers is not None and watcher in self._watchers:
            self._watchers.remove(watcher)
            self._watchers = self._watchers or None

    def when_durable(self, done: Done) -> None:
        """Call `done(None)` when all that is on the log now is durable, or `done(error)`; maybe before returning."""
        if self.durable >= self.seq - 1:
            done(None)
            return
        self._waiting.append((self.seq - 1, done))
        if not self._syncing:
            self._sync()

    async def flush(self) -> None:
        """(Trio) Return when all that is on the log now is durable; cancelling stops the wait, never the write."""
        if self.durable >= self.seq - 1:
            return
        waiting = _Flush()
        self.when_durable(waiting.done)
        if not waiting.over:
            waiting.task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(waiting.give_up)
        if waiting.error is not None:
            raise waiting.error

    async def synced(self) -> None:
        """(Trio) Return when the store has committed all it was given, by this log or by another of the session."""
        committed: list[Exception | None] = []
        event = trio.Event()

        def done(error: Exception | None) -> None:
            committed.append(error)
            event.set()

        self._store.sync(done, self.session)
        await event.wait()
        if committed[0] is not None:
            raise committed[0]

    def nudge(self) -> None:
        """Make what is appended durable soon, when readers outside wait for it; nobody waits here."""
        if self.readers and self.durable < self.seq - 1:
            self._nudged = self._syncing  # a commit that runs may have begun before: one more follows it
            if not self._syncing:
                self._sync()

    def _sync(self) -> None:
        self._syncing, self._nudged, self._sync_to = True, False, self.seq - 1
        self._store.sync(self._synced, self.session)

    def _synced(self, error: Exception | None) -> None:
        target, waiting = self._sync_to, self._waiting
        self._syncing = False
        if error is None:
            self.durable = max(self.durable, target)
            self._deliver()
        later = next((place for place, (at, _) in enumerate(waiting) if at > target), len(waiting))
        self._waiting = waiting[later:]
        for _, done in waiting[:later]:
            done(error)
        if (self._waiting or (self._nudged and error is None)) and not self._syncing:
            self._sync()

    def _deliver(self) -> None:
        unread = self._unread
        if not unread or unread[0].seq > self.durable:
            return
        upto = next((at for at, envelope in enumerate(unread) if envelope.seq > self.durable), len(unread))
        ready, self._unread = unread[:upto], unread[upto:]
        for reader in self.readers:
            reader.take(ready)

    def follow(self, reader: Reader) -> int:
        """Tell `reader` of events from here on; returns the number of the last one it will not be told of."""
        self.readers = (*self.readers, reader)
        return self.seq - 1 if not self._unread else self._unread[0].seq - 1

    def unfollow(self, reader: Reader) -> None:
        """Stop telling `reader`; harmless when repeated."""
        self.readers = tuple(one for one in self.readers if one is not reader)
        if not self.readers:
            self._unread = []


class _Flush:
    """One wait for the disk: one object and no closures, because with 1,000 of them the collector was half the cost."""

    __slots__ = ("error", "over", "task")

    def __init__(self) -> None:
        self.over = False
        self.error: Exception | None = None
        self.task: trio.lowlevel.Task | None = None

    def done(self, error: Exception | None) -> None:
        """(the log) It is durable, or will not be."""
        self.over, self.error = True, error
        task, self.task = self.task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def give_up(self, _: Any) -> trio.lowlevel.Abort:
        """(Trio) The wait is cancelled."""
        self.task = None
        return trio.lowlevel.Abort.SUCCEEDED


def check_plugin_events(events: Sequence[Event]) -> None:
    """Refuse core events from plugins: only the actor writes those."""
    for event in events:
        if not isinstance(event, Event):
            raise UsageError(f"append takes events, got {event!r}.")
        if type(event) in _CORE:
            name = type(event).__name__
            raise UsageError(f"{name} is written by the session alone; append an event of the plugin.")


def _nobody(event: Event, session: str, turn: int | None) -> None:
    """Stands where a listener was that failed."""

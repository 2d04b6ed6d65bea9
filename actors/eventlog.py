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
from callboard.actors.errors import Fenced, LogError, UsageError
from callboard.actors.events import Event, TurnEnded
from callboard.actors.fold import Folds, Projection
from callboard.actors.invariants import PROMISES, broken_by
from callboard.actors.snapping import Mark, Start, dump, start
from callboard.actors.store import Done, Due, Header, Record, Snapshot, Store

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
        "_grown_bytes",
        "_listener",
        "_now_ms",
        "_nudged",
        "_queue_at",
        "_snapped_bytes",
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
        "fenced",
        "last_end",
        "on_fenced",
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
        self.fenced: Fenced | None = None  # set once another owner has the session: nothing here is true any more
        self.on_fenced: Callable[[], None] | None = None
        self._watchers: list[Callable[[], None]] | None = None
        self._store, self._codec, self._folds, self._now_ms, self._listener = store, codec, folds, now_ms, listener
        self._turn_at, self._queue_at = folds.place[TURN], folds.place[QUEUE]
        self._unread: list[Envelope] = []  # appended, not durable, wanted by readers
        self._waiting: list[tuple[int, Done]] = []
        self._syncing = self._nudged = False
        self._sync_to = -1  # what the sync that runs will make durable; there is one at a time
        self._telling = False
        self._grown_bytes = self._snapped_bytes = 0  # of events since the last snapshot, and of that

    def __getitem__(self, projection: Projection[S]) -> S:
        state: S = self.states[self._folds.place[projection]]
        return state

    def start_of(self, kept: Sequence[Snapshot]) -> Start | None:
        """(any thread) Where these snapshots were taken, if they can be used; reading large ones takes a while."""
        return start(self._folds, kept)

    def resume(self, found: Start | None) -> None:
        """Stand there; the records behind are to be loaded."""
        if found is not None:
            self.states[:] = found.states
            self.seq, self.at_ms, self.last_end = found.seq + 1, found.mark.at_ms, found.mark.last_end
            self._snapped_bytes = found.size_bytes

    def snap(self, least_bytes: int) -> None:
        """Have the store keep the states as they are between two turns, if so much has come since the last time."""
        if self._grown_bytes < max(least_bytes, self._snapped_bytes) or self.states[self._turn_at].open:
            return
        taken = dump(self._folds, self.states, self.seq - 1, Mark(self.at_ms, self.last_end))
        self._grown_bytes, self._snapped_bytes = 0, sum(len(one.body) for one in taken)
        if taken:
            self._store.snap(self.session, taken)

    def load(self, records: Iterable[Record]) -> None:
        """Fold what the store holds; raises `LogError` when a record is missing, out of order or not ours."""
        for record in records:
            if record.seq != self.seq:
                raise LogError(f"session {self.session!r}: event {self.seq} is missing before {record.seq}.")
            event = self._codec.decode(record.body)
            self._folds.apply(self.states, event)
            self.seq, self.at_ms = record.seq + 1, record.at_ms
            self._grown_bytes += len(record.body)
            if type(event) is TurnEnded:
                self.last_end = event
        self.durable, self.due_ms = self.seq - 1, self._folds.due_ms(self.states)

    def adopt(self, loaded: "EventLog") -> None:
        """Stand where `loaded` stands, which was read from the store; readers and watchers stay."""
        self.states[:] = loaded.states
        self.seq, self.at_ms, self.last_end = loaded.seq, loaded.at_ms, loaded.last_end
        self.durable, self.due_ms = self.seq - 1, loaded.due_ms
        self._grown_bytes, self._snapped_bytes = loaded._grown_bytes, loaded._snapped_bytes
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
        states, records, size_bytes = self._fold(events, now)
        due_ms, before = self.due_ms, self.states
        for at, _ in self._folds.dues:  # most events change nothing that is due
            if states[at] is not before[at]:
                due_ms = self._folds.due_ms(states)
                break
        try:
            if due_ms != self.due_ms or (header is not None and due_ms is not None):
                self._store.append(self.session, records, header, Due(due_ms))
            else:
                self._store.append(self.session, records, header)
        except Fenced as error:
            self._lost(error)
            raise
        self.states[:] = states
        self.seq, self.at_ms, self.due_ms = self.seq + len(records), now, due_ms
        self._grown_bytes += size_bytes
        self._tell(events, records)
        return self.seq - 1

    def rehearse(self, events: Sequence[Event]) -> None:
        """Raise what appending these now would raise before it reaches the store."""
        self._fold(events, 0)

    def _fold(self, events: Sequence[Event], now: int) -> tuple[list[Any], list[Record], int]:
        """Check, encode and fold, without touching anything: the states after, the records, their size in bytes."""
        states, folds, encode = self.states.copy(), self._folds, self._codec.encode
        turn_at, queue_at, readers, seq = self._turn_at, self._queue_at, folds.readers, self.seq
        records: list[Record] = []
        size_bytes = 0
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
            size_bytes += len(body)
        return states, records, size_bytes

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
        await _answered(self.when_durable)

    async def claimed(self) -> None:
        """(Trio) Return when the session is ours, and the store has committed all it was given of it, by whomever here.

        Raises `Fenced` when another owner has it.
        """
        try:
            await _answered(lambda done: self._store.claim(self.session, done))
        except Fenced as error:
            self.fenced = error
            raise
        await self.synced()

    async def synced(self) -> None:
        """(Trio) Return when the store has committed all it was given, by this log or by another of the session."""
        await _answered(lambda done: self._store.sync(done, self.session))

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
        if isinstance(error, Fenced):
            self._lost(error)
        if error is None:
            self.durable = max(self.durable, target)
            self._deliver()
        later = next((place for place, (at, _) in enumerate(waiting) if at > target), len(waiting))
        self._waiting = waiting[later:]
        for _, done in waiting[:later]:
            done(error)
        if (self._waiting or (self._nudged and error is None)) and not self._syncing:
            self._sync()

    def _lost(self, error: Fenced) -> None:
        """Another owner has the session: its actor ends."""
        if self.fenced is None:
            self.fenced = error
            if self.on_fenced is not None:
                self.on_fenced()

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


async def _answered(ask: Callable[[Done], None]) -> None:
    """(Trio) Return when the store has answered, and raise what it says is wrong; cancelled, it is not waited for."""
    waiting = _Flush()
    ask(waiting.done)
    if not waiting.over:
        waiting.task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(waiting.give_up)
    if waiting.error is not None:
        raise waiting.error


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

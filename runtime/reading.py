"""Reading a session from outside: first the log from a cursor, then live, without gap or repeat, for many readers."""

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias

import attrs

from callboard.actors.codec import Codec
from callboard.actors.envelope import Envelope
from callboard.actors.errors import UsageError
from callboard.actors.notices import (
    Delta,
    DurabilityDelayed,
    Lagged,
    ModelRetrying,
    Notice,
    Resync,
    StoreFailed,
    SubscriberLagged,
)
from callboard.actors.session import Session
from callboard.actors.store import Store
from callboard.runtime.waiting import Latch, in_thread

QUEUE_MAX = 1_024  # events a reader may be behind before it is sent back to the log
PAGE_MAX = 500

Transient: TypeAlias = Delta | ModelRetrying | DurabilityDelayed | StoreFailed
Item: TypeAlias = Envelope | Transient | Lagged | Resync


@attrs.define(eq=False)
class Source:
    """Where a reader reads: the store, and the live actor when there is one.

    `last` is the number of the last event of a session that is not in memory, and comes back when it is wanted.
    """

    store: Store
    codec: Codec
    session: str
    actor: Session | None
    last: int | None = None
    left: Callable[["Reading"], None] = lambda reading: None
    on_lag: Callable[[SubscriberLagged], None] = lambda notice: None


class Reading:
    """One reader of one session: an async iterator for one task, on asyncio or Trio, that ends with the session.

    A reader that falls `queue_max` events behind gets one `Lagged(first, last)`, and those events from the log. A
    cursor beyond the log gets `Resync`. Leave it with `aclose()`, with `async with`, or by dropping it: the session
    keeps no reader alive.
    """

    def __init__(self, source: Source, after: int, *, deltas: bool, queue_max: int = QUEUE_MAX) -> None:
        self._source, self._queue_max = source, queue_max
        self._cursor = after  # the last event handed out
        self._queue: deque[Envelope | Transient] = deque()
        self._until = -1  # the log is read up to here before the queue is
        self._next_live = 0
        self._lagged_to: int | None = None  # events up to here were left out of the queue
        self._page: deque[Envelope] = deque()
        self._wake = Latch()
        # Nobody will tell more: the log is all there is.
        self._cold = self._over = source.actor is None and source.last is None
        self._left = self._asked = False
        self._unsure = self._cold  # whether there is such a log, and the cursor is on it
        self._resync: Resync | None = None
        self._tap = _Tap(self, deltas=deltas)
        if not self._cold:
            self._follow(source.actor, source.last, after)

    def _follow(self, actor: Session | None, last: int | None, after: int) -> None:
        weakref.finalize(self, self._tap.leave).atexit = False
        told = None if actor is None else self._tap.join(actor)
        self._until = last if last is not None else -1 if told is None else told
        self._next_live = self._until + 1
        beyond = after > self._until
        if actor is not None:
            wake = self._wake
            actor.log.when_durable(lambda error: wake.set())
            if last is None:  # else its log is being read, and has no number yet
                beyond = after >= actor.log.seq  # what `state()` is true for may not be durable, and is there as well
        if beyond:
            self._resync, self._cursor = Resync(self._until), self._until

    def join(self, actor: Session) -> None:
        """(the runtime) The session is back in memory: what follows comes from this actor."""
        self._tap.join(actor)

    def part(self) -> None:
        """(the runtime) The session leaves memory; all of its events were told."""
        self._tap.leave()

    @property
    def session(self) -> str:
        """The id of the session it reads."""
        return self._source.session

    # -- the session's side ----------------------------------------------------------------------------------------

    def take(self, envelopes: Sequence[Envelope]) -> None:
        """(the session's log) These are durable now, one after the other."""
        fits = self._lagged_to is None and len(self._queue) + len(envelopes) <= self._queue_max
        if fits and envelopes[0].seq == self._next_live:  # in one piece: 20 readers were a third of a step's cost
            self._queue.extend(envelopes)
            self._next_live = envelopes[-1].seq + 1
            self._wake.set()
            return
        for envelope in envelopes:
            if envelope.seq < self._next_live:
                continue
            behind = self._lagged_to is not None
            if behind or envelope.seq > self._next_live or len(self._queue) >= self._queue_max:
                self._lagged_to = envelope.seq
            else:
                self._queue.append(envelope)
            self._next_live = envelope.seq + 1
        self._wake.set()

    def take_delta(self, delta: Delta | ModelRetrying) -> None:
        """(the session) A piece of something; left out when this reader is behind."""
        if self._lagged_to is None and len(self._queue) < self._queue_max:
            self._queue.append(delta)
            self._wake.set()

    def take_notice(self, notice: DurabilityDelayed | StoreFailed) -> None:
        """(the runtime) Something about the disk; left out like a delta when this reader is behind."""
        if self._lagged_to is None and len(self._queue) < self._queue_max:
            self._queue.append(notice)
            self._wake.set()

    def end(self) -> None:
        """(the runtime) The session is over: hand out what is there, then stop."""
        self._over = True
        self._wake.set()

    # -- the reader's side -----------------------------------------------------------------------------------------

    def __aiter__(self) -> "Reading":
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def __anext__(self) -> Item:
        """The next event, delta or notice; `LogError` when the log cannot be read."""
        if self._asked:
            raise UsageError("another task waits for this reader already: give each its own with events(after=...).")
        if not self._left and (ready := self._ready()) is not None:
            return ready
        self._asked = True
        try:
            item = await self._next()
        finally:
            self._asked = False
        if item is not None:
            return item
        await self.aclose()
        raise StopAsyncIteration

    async def _next(self) -> Item | None:
        """What comes after everything that was ready."""
        while True:
            catching_up = self._cold or self._cursor < self._until
            if not (catching_up and await self._read_page()):
                if self._over or self._left:  # whatever the store has not confirmed by now will not come
                    return None
                await self._wake.wait()
            if self._left:
                return None
            item = self._ready()
            if item is not None:
                return item

    def _ready(self) -> Item | None:
        if self._resync is not None:
            resync, self._resync = self._resync, None
            return resync
        if self._page:
            return self._hand_out(self._page.popleft())
        if self._cold or self._cursor < self._until:
            return None
        while self._queue:
            item = self._queue.popleft()
            if not isinstance(item, Envelope):
                return item
            if item.seq > self._cursor:
                self._cursor = item.seq
                return item
        if self._lagged_to is not None:
            lagged = Lagged(self._cursor + 1, self._lagged_to)
            self._until, self._lagged_to = self._lagged_to, None
            self._source.on_lag(SubscriberLagged())
            return lagged
        return None

    def _hand_out(self, envelope: Envelope) -> Envelope:
        self._cursor = envelope.seq
        return envelope

    async def _read_page(self) -> bool:
        """Read on from the log; whether there was more."""
        source, store = self._source, self._source.store
        records: Any = await self._ask(store.read, self._cursor, PAGE_MAX)
        if self._unsure:
            header = await self._ask(store.header)
            last = -1 if header is None or header.unfinished else header.events - 1
            records = records if last >= 0 else ()
            if self._cursor > last:
                self._resync, self._cursor = Resync(last), last
            self._unsure = last < 0
        for record in records:
            if self._cold or record.seq <= self._until:
                event = source.codec.decode(record.body)
                self._page.append(Envelope(source.session, record.seq, record.at_ms, record.turn, event))
        return bool(self._page) or self._resync is not None

    async def _ask(self, read: Callable[..., Any], *args: Any) -> Any:
        session = self._source.session
        return await in_thread(read, session, *args) if self._source.store.blocking else read(session, *args)

    async def aclose(self) -> None:
        """Leave: the session tells this reader nothing more; harmless when repeated."""
        self._tap.leave()
        self._source.left(self)
        self._left = True
        self._queue.clear()
        self._page.clear()
        self._wake.set()


class _Tap:
    """What the session holds of a reader: too little to keep it alive; and a reader of a session: only a live one."""

    def __init__(self, reading: Reading, *, deltas: bool) -> None:
        self._reading, self._deltas = weakref.ref(reading), deltas
        self._actor: Session | None = None

    def join(self, actor: Session) -> int:
        """Follow this actor; the number of the last event it will not be told of."""
        self._actor = actor
        if self._deltas:
            actor.deltas = (*actor.deltas, self.take_delta)
        return actor.log.follow(self)

    def take(self, envelopes: Sequence[Envelope]) -> None:
        reading = self._reading()
        if reading is not None:
            reading.take(envelopes)

    def take_delta(self, delta: Delta | ModelRetrying) -> None:
        reading = self._reading()
        if reading is not None:
            reading.take_delta(delta)

    def leave(self) -> None:
        """Follow nobody; harmless when repeated."""
        actor, self._actor = self._actor, None
        if actor is not None:
            actor.log.unfollow(self)
            actor.deltas = tuple(take for take in actor.deltas if take != self.take_delta)


class Audience:
    """All readers of all sessions that may still say something, by session; it keeps none of them alive."""

    def __init__(self) -> None:
        self._readings: dict[str, weakref.WeakSet[Reading]] = {}

    def __len__(self) -> int:
        return sum(len(some) for some in tuple(self._readings.values()))

    def of(self, session: str) -> tuple[Reading, ...]:
        """The readers of one session."""
        return tuple(self._readings.get(session, ()))

    def add(self, reading: Reading) -> None:
        """Somebody reads."""
        self._readings.setdefault(reading.session, weakref.WeakSet()).add(reading)

    def discard(self, reading: Reading) -> None:
        """A reader left; harmless when repeated."""
        readings = self._readings.get(reading.session)
        if readings is not None:
            readings.discard(reading)
            if not readings:
                del self._readings[reading.session]

    def part(self, session: str) -> None:
        """The session leaves memory, its readers stay."""
        readings = self.of(session)
        for reading in readings:
            reading.part()
        if not readings:
            self._readings.pop(session, None)

    def join(self, actor: Session) -> None:
        """The session is back: its readers follow this actor."""
        for reading in self.of(actor.id):
            reading.join(actor)

    def end(self, session: str) -> None:
        """The session is over."""
        for reading in tuple(self._readings.pop(session, ())):
            reading.end()

    def hear(self, notice: Notice) -> None:
        """Tell readers of the disk: of a late end those of its session, of a write that failed all."""
        if isinstance(notice, DurabilityDelayed):
            for reading in self.of(notice.session):
                reading.take_notice(notice)
        elif isinstance(notice, StoreFailed):
            for session in tuple(self._readings):
                for reading in self.of(session):
                    reading.take_notice(notice)


def check_reading(after: Any, queue_max: Any) -> None:
    """Refuse what is no cursor and no bound: raises `UsageError`."""
    if not isinstance(after, int) or isinstance(after, bool) or after < -1:
        raise UsageError(f"events(after=...) takes the number of an event, or -1 for all, got {after!r:.80}.")
    if not isinstance(queue_max, int) or isinstance(queue_max, bool) or queue_max < 1:
        raise UsageError(f"events(queue_max=...) takes a number from 1, got {queue_max!r:.80}.")

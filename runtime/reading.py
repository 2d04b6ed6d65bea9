"""Reading a session from outside: first the log from a cursor, then live, without gap or repeat, for many readers."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import attrs

from callboard.actors.codec import Codec
from callboard.actors.events import Envelope
from callboard.actors.notices import Delta, Lagged, Resync, SubscriberLagged
from callboard.actors.session import Session
from callboard.actors.store import Store
from callboard.runtime.waiting import Latch, in_thread

QUEUE_MAX = 1_024  # events a reader may be behind before it is sent back to the log
PAGE_MAX = 500

Item: TypeAlias = Envelope | Delta | Lagged | Resync


@attrs.define(eq=False)
class Source:
    """Where a reader reads: the store, and the live actor when there is one."""

    store: Store
    codec: Codec
    session: str
    actor: Session | None
    left: Callable[["Reading"], None] = lambda reading: None
    on_lag: Callable[[SubscriberLagged], None] = lambda notice: None


class Reading:
    """One reader of one session: an async iterator, on asyncio or Trio, that ends with the session.

    A reader that falls `QUEUE_MAX` events behind gets one `Lagged(first, last)`, and those events from the log. A cursor
    beyond the log gets `Resync`. Leave it with `aclose()`, or by dropping the loop that uses it.
    """

    def __init__(self, source: Source, after: int, *, deltas: bool, queue_max: int = QUEUE_MAX) -> None:
        self._source, self._queue_max = source, queue_max
        self._cursor = after  # the last event handed out
        self._queue: deque[Envelope | Delta] = deque()
        self._behind = False  # events were left out of the queue, up to `_lagged_to`
        self._until = -1  # the log is read up to here before the queue is
        self._next_live = 0
        self._lagged_to: int | None = None
        self._page: deque[Envelope] = deque()
        self._wake = Latch()
        self._cold = self._over = source.actor is None  # nobody will tell more: the log is all there is
        self._resync: Resync | None = None
        self._takes_deltas = deltas
        self._follow(after)

    def _follow(self, after: int) -> None:
        actor = self._source.actor
        if actor is None:
            return
        self._until = actor.log.follow(self)
        self._next_live = self._until + 1
        if self._takes_deltas:
            actor.deltas = (*actor.deltas, self.take_delta)
        actor.log.when_durable(lambda error: self._wake.set())
        if after > self._until:
            self._resync, self._cursor = Resync(self._until), self._until

    # -- the session's side ----------------------------------------------------------------------------------------

    def take(self, envelopes: Sequence[Envelope]) -> None:
        """(the session's log) These are durable now."""
        for envelope in envelopes:
            if envelope.seq < self._next_live:
                continue
            if self._behind or envelope.seq > self._next_live or len(self._queue) >= self._queue_max:
                self._behind, self._lagged_to = True, envelope.seq
            else:
                self._queue.append(envelope)
            self._next_live = envelope.seq + 1
        self._wake.set()

    def take_delta(self, delta: Delta) -> None:
        """(the session) A piece of something; left out when this reader is behind."""
        if not self._behind and len(self._queue) < self._queue_max:
            self._queue.append(delta)
            self._wake.set()

    def end(self) -> None:
        """(the runtime) The session is over: hand out what is there, then stop."""
        self._over = True
        self._wake.set()

    # -- the reader's side -----------------------------------------------------------------------------------------

    def __aiter__(self) -> "Reading":
        return self

    async def __anext__(self) -> Item:
        """The next event, delta or notice."""
        while True:
            item = self._ready()
            if item is not None:
                return item
            if (self._cold or self._cursor < self._until) and await self._read_page():
                continue
            if self._over and (self._cold or self._cursor >= self._until):
                await self.aclose()
                raise StopAsyncIteration
            await self._wake.wait()

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
            if isinstance(item, Delta):
                return item
            if item.seq > self._cursor:
                return self._hand_out(item)
        if self._behind and self._lagged_to is not None:
            lagged = Lagged(self._cursor + 1, self._lagged_to)
            self._until, self._behind, self._lagged_to = self._lagged_to, False, None
            self._source.on_lag(SubscriberLagged())
            return lagged
        return None

    def _hand_out(self, envelope: Envelope) -> Envelope:
        self._cursor = envelope.seq
        return envelope

    async def _read_page(self) -> bool:
        """Read on from the log; False when nothing more is committed yet."""
        source = self._source
        read = (source.store.read, source.session, self._cursor, PAGE_MAX)
        records: Any = await in_thread(*read) if source.store.blocking else source.store.read(*read[1:])
        for record in records:
            if self._cold or record.seq <= self._until:
                event = source.codec.decode(record.body)
                self._page.append(Envelope(source.session, record.seq, record.at_ms, record.turn, event))
        return bool(self._page)

    async def aclose(self) -> None:
        """Leave: the session tells this reader nothing more; harmless when repeated."""
        actor = self._source.actor
        if actor is not None:
            actor.log.unfollow(self)
            actor.deltas = tuple(take for take in actor.deltas if take != self.take_delta)
        self._source.left(self)
        self._over = True
        self._wake.set()

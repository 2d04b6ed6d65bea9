"""Group commit: who commits, when, who is told, and what happens while the disk refuses."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

import attrs

from callboard.actors.errors import LogError
from callboard.actors.notices import Flushed, Notice, StoreFailed
from callboard.actors.store import Done, RunSoon
from callboard.runtime.clock import steady_s
from callboard.runtime.stores.writing import ANSWERED, Claim, Entry, Release, Trouble, Wish, Writing

INLINE_S_MAX = 0.002
"""A commit on the loop may take this long; after a longer one the thread commits until it is fast again."""

INLINE_EVENTS_MAX = 64
INLINE_BYTES_MAX = 64 << 10
INLINE_QUIET_S = 0.01
"""So long after the last commit any session may commit inline; sooner only the same one, or groups never form."""

UNSYNCED_MAX = 1_000
"""So many events are written though nobody waits for them."""

PAUSE_S_MIN, PAUSE_S_MAX = 0.001, 0.25
SILENT_S_MAX = 0.1
"""What is silent is no news before."""

LOOKS_MIN = 6
"""So often in the length of a lease the thread looks whether it is to be renewed."""


@attrs.frozen
class Limits:
    """How long a refused commit is tried again, and how much may wait in memory while the disk refuses."""

    retry_s: float = 5.0
    pending_max: int = 100_000
    pending_bytes_max: int = 256 << 20
    lease_s: float = 10.0


Waiter: TypeAlias = tuple[Done, str | None]
"""Who waits for all that was appended before, and the session when only its records matter."""


class Commits:
    """Takes appends and makes them durable, one group at a time; `append`, `sync` and `deliver` on the loops' thread.

    Whoever commits holds `_disk`: the thread, or with `inline` the loop itself when it has it for the asking.
    """

    def __init__(
        self,
        rows: Writing,
        run_soon: RunSoon,
        notify: Callable[[Notice], None],
        limits: Limits,
        *,
        inline: bool,
    ) -> None:
        self.failing: LogError | None = None
        """Why the disk refuses, None while it takes what it gets."""
        self.ended: LogError | None = None
        """Set when the thread is gone: nothing is taken any more."""
        self._rows, self._run_soon, self._notify = rows, run_soon, notify
        self._limits, self._inline = limits, inline
        self._entries: deque[Entry] = deque()
        self._waiters: deque[Waiter] = deque()
        self._wishes: deque[Wish] = deque()
        # What was taken in, and how much of it is settled: durable or refused. Each number has one writer.
        self._taken, self._taken_events, self._taken_bytes = 0, 0, 0
        self._settled, self._settled_events, self._settled_bytes = 0, 0, 0
        self._wished, self._granted = 0, 0
        # The next three belong to whoever holds `_disk`.
        self._disk = threading.Lock()
        self._group: list[Entry] = []
        self._group_waiters: deque[Waiter] = deque()
        self._group_wishes: list[Wish] = []
        self._outbox: deque[tuple[Callable[[Any], None], Any]] = deque()  # to be called on the loops' thread
        self._took_s, self._ended_s, self._only_session = 0.0, 0.0, ""
        # A SimpleQueue woke a thread as fast as a bare lock (15 us round trip; Event 21, Semaphore 21, Condition 19),
        # and ringing it twice does no harm.
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._rung = False
        self._closing = False
        self._home = 0  # the loops' thread
        self._thread = threading.Thread(target=self._run, name=f"callboard store {rows.name}", daemon=True)
        self._thread.start()

    # On the loops' thread.

    def append(self, entry: Entry) -> None:
        """Take one append; raises `LogError` when its session is refused, or memory is full while the disk refuses."""
        if self.ended is not None:
            raise self.ended
        refused = self._rows.refused.get(entry.session)
        if refused is not None:
            raise refused
        if self.failing is not None:
            self._check_room(entry)
        self._taken_events += len(entry.records)
        self._taken_bytes += entry.size_bytes
        self._taken += 1
        self._entries.append(entry)
        if self._taken_events - self._settled_events > UNSYNCED_MAX and self.failing is None:
            self._ring()

    def _check_room(self, entry: Entry) -> None:
        limits = self._limits
        events = self._taken_events - self._settled_events + len(entry.records)
        size_bytes = self._taken_bytes - self._settled_bytes + entry.size_bytes
        if events > limits.pending_max or size_bytes > limits.pending_bytes_max:
            raise LogError(
                f"{self.failing} {events:,} events ({size_bytes:,} bytes) would wait in memory, more than "
                f"{limits.pending_max:,} ({limits.pending_bytes_max:,} bytes) may: nothing more is taken until then."
            )

    def sync(self, done: Done, session: str | None) -> None:
        """Call `done` once what was appended is durable: at once, inline, or from the thread's commit."""
        if self._settled == self._taken:
            done(None if session is None else self._rows.refused.get(session))
            return
        if self.ended is not None:
            done(self.ended)
            return
        waiter = (done, session)
        if self._inline and self._commit_inline(waiter):
            return
        self._home = threading.get_ident()
        self._waiters.append(waiter)
        self._ring()

    def _commit_inline(self, waiter: Waiter) -> bool:
        """Commit here if it is surely short and nobody else waits; false when the thread shall do it."""
        entries = self._entries
        if not entries or self._waiters or self._took_s > INLINE_S_MAX:
            return False
        if self._taken_events - self._settled_events > INLINE_EVENTS_MAX:
            return False
        if self._taken_bytes - self._settled_bytes > INLINE_BYTES_MAX:
            return False
        if entries[-1].session != self._only_session and steady_s() - self._ended_s < INLINE_QUIET_S:
            return False
        # While answers are being delivered their notice is still to come: a sync from inside one is never inline.
        if self._outbox or self.failing is not None or not self._disk.acquire(blocking=False):
            return False
        try:
            if self._group:
                return False
            self._take()
            self._group_waiters.append(waiter)
            error = self._commit()
        finally:
            self._disk.release()
        if error is not None or self._rows.wants_rest():
            self._ring()
        self.deliver()
        return True

    def wish(self, wish: Wish) -> bool:
        """Claim, release or rename, once all that was appended before is durable; only a release is not answered.

        Whether that was done at once: it is ours already, or the thread is gone.
        """
        claim = isinstance(wish, Claim)
        if self.ended is not None or (claim and self._granted == self._wished and self._rows.is_ours(wish.session)):
            if isinstance(wish, ANSWERED):
                wish.done(self.ended)
            return True
        self._wished += 1
        self._home = threading.get_ident()
        self._wishes.append(wish)
        self._ring()
        return False

    def deliver(self) -> None:
        """Tell everybody whose turn it is; each is told once, also when one of them raises."""
        try:
            while self._outbox:
                call, argument = self._outbox.popleft()
                call(argument)
        finally:
            if self._outbox:
                self._run_soon(self.deliver)

    def _ring(self) -> None:
        if not self._rung:
            self._rung = True
            self._bell.put(None)

    def close(self) -> None:
        """Commit what is left, checkpoint, close the connection and tell who waits; from any thread."""
        self._closing = True
        self._bell.put(None)
        self._thread.join()
        if threading.get_ident() == self._home:
            self.deliver()
        else:
            self._deliver_soon()

    # On the store's thread.

    def _run(self) -> None:
        try:
            while not self._closing:
                rung = self._woken()
                with self._disk:
                    if rung:
                        self._persist()
                    self._renew()
                    if self._rows.wants_rest():
                        self._rows.rest(waiting=bool(self._waiters))
            with self._disk:
                self._persist()
        finally:
            self._rows.close()
            self.ended = self.failing or LogError(f"the store {self._rows.name} has ended: open it again.")
            self._take()
            self._give_up(self.ended)
            self._deliver_soon()

    def _woken(self) -> bool:
        """Wait until there is something to do; false when only the lease is to be looked at."""
        try:
            self._bell.get(timeout=self._limits.lease_s / LOOKS_MIN)
        except Empty:
            return False
        self._rung = False
        return True

    def _renew(self) -> None:
        """Keep what is owned; a disk that refuses says so at a commit, and is asked again soon."""
        began_s = steady_s()
        while True:
            try:
                self._rows.renew()
            except Trouble as trouble:
                if not trouble.passing or steady_s() - began_s > SILENT_S_MAX:
                    return
            else:
                return
            threading.Event().wait(10 * PAUSE_S_MIN)

    def _persist(self) -> None:
        """Commit, with what joins meanwhile, and grant what is wished, until it is done or `retry_s` is over."""
        began_s, pause_s = steady_s(), PAUSE_S_MIN
        while True:
            self._take()
            trouble = self._commit() or self._grant()
            if trouble is None:
                break
            age_s = steady_s() - began_s
            over = age_s >= self._limits.retry_s or not trouble.passing
            if over or not trouble.silent or age_s > SILENT_S_MAX:
                self._fail(trouble, retrying=not over)
            if over:
                break
            threading.Event().wait(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
        self._deliver_soon()

    def _fail(self, trouble: Trouble, *, retrying: bool) -> None:
        """Say so once when it begins, and tell those who wait when it is given up."""
        news = self.failing is None
        self.failing = trouble.why
        if not retrying:
            self._give_up(self.failing)
        if news or not retrying:
            self._outbox.append((self._notify, StoreFailed(str(self.failing), retrying)))
            self._deliver_soon()

    def _give_up(self, error: LogError) -> None:
        """The entries stay where they are, first in line for the next commit."""
        waiters = self._group_waiters
        while waiters:
            self._outbox.append((waiters.popleft()[0], error))
        wishes = self._group_wishes
        self._group_wishes = [wish for wish in wishes if isinstance(wish, Release)]
        self._granted += len(wishes) - len(self._group_wishes)
        self._outbox.extend((wish.done, error) for wish in wishes if isinstance(wish, ANSWERED))

    def _deliver_soon(self) -> None:
        if self._outbox:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it all that waited
                self._run_soon(self.deliver)

    # By whoever holds `_disk`.

    def _take(self) -> None:
        """Move what was appended into the group; who waits and wishes first, so that what was before them is in it."""
        waiters, wishes, entries = self._waiters, self._wishes, self._entries
        for _ in range(len(waiters)):
            self._group_waiters.append(waiters.popleft())
        for _ in range(len(wishes)):
            self._group_wishes.append(wishes.popleft())
        for _ in range(len(entries)):
            self._group.append(entries.popleft())

    def _commit(self) -> Trouble | None:
        """One attempt at the group; puts into the outbox what is to be told."""
        group, rows = self._group, self._rows
        began_s, refused_before = steady_s(), len(rows.refused)
        try:
            if group:
                rows.write(group)
        except Trouble as trouble:
            return trouble
        self._ended_s = steady_s()
        self._took_s = self._ended_s - began_s
        self._only_session = group[0].session if len({entry.session for entry in group}) == 1 else ""
        events, size_bytes = sum(len(entry.records) for entry in group), sum(entry.size_bytes for entry in group)
        self._settled_events += events
        self._settled_bytes += size_bytes
        self._settled += len(group)
        self.failing = None
        self._answer(refused_before)
        if group:
            self._outbox.append((self._notify, Flushed(self._took_s, events)))
        self._group = []
        return None

    def _grant(self) -> Trouble | None:
        """(the thread) One attempt at what is wished, after all that was appended before."""
        wishes = self._group_wishes
        if not wishes:
            return None
        try:
            denied = self._rows.grant(wishes)
        except Trouble as trouble:
            return trouble
        self.failing, self._group_wishes = None, []
        self._granted += len(wishes)
        self._outbox.extend((wish.done, denied.get(wish.session)) for wish in wishes if isinstance(wish, ANSWERED))
        return None

    def _answer(self, refused_before: int) -> None:
        """A waiter for everything also waited for what is refused now; one for a session only for its own."""
        waiters, outbox, refused = self._group_waiters, self._outbox, self._rows.refused
        anything = next(reversed(refused.values())) if len(refused) > refused_before else None
        while waiters:
            done, session = waiters.popleft()
            outbox.append((done, anything if session is None else refused.get(session)))

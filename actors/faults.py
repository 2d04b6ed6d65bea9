"""FaultyStore: stands before another store, and fails, stalls or dies at the appends that a test chooses."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, TypeAlias

import attrs
import msgspec
import trio

from callboard.actors.errors import LogError, UsageError
from callboard.actors.memory import next_seq
from callboard.actors.notices import Notice
from callboard.actors.store import Change, Done, Due, Header, Place, Record, RunSoon, Snapshot, Store

FAILS = "append {n} fails, as its test asked for: nothing of it was taken."
DEAD = "the store died at append {n}, as its test asked for: open it again."

Kept: TypeAlias = Literal["synced", "before", "after"]
KEPT: tuple[Kept, ...] = ("synced", "before", "after")


@attrs.frozen
class Write:
    """One append, as a test chooses it: `n` counts the appends of all sessions from 1, the refused ones too."""

    n: int
    session: str
    records: tuple[Record, ...]
    header: Header | None = None
    due: Due | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its events, as their lines name them."""
        return tuple(str(msgspec.json.decode(record.body)["type"]) for record in self.records)

    def __str__(self) -> str:
        return f"append {self.n} ({', '.join(self.kinds) or 'a header'} of session {self.session!r})"


At: TypeAlias = int | Collection[int] | Callable[[Write], bool] | None  # which appends; numbers count from 1


def _check_at(at: At) -> None:
    """Refuse what no append ever is: a fault that never comes makes a test that cannot fail."""
    numbers = (at,) if isinstance(at, int | str) or not isinstance(at, Collection) else tuple(at)
    if at is not None and not callable(at) and not all(isinstance(n, int) and n >= 1 for n in numbers):
        raise UsageError(f"appends are chosen by their numbers, from 1, or by a function, got {at!r:.80}.")


def _chosen(at: At, write: Write) -> bool:
    if at is None:
        return False
    if callable(at):
        return at(write)
    return write.n == at if isinstance(at, int) else write.n in at


class FaultyStore:
    """A store that breaks on purpose, in a lab or in `open_runtime(store=...)`; what it keeps is in `inner`.

    `fail_at`: these appends raise `LogError`, and nothing of them is taken. `stall_at`: whoever syncs after one of
    these waits until `release()`, or `stall_s` seconds of Trio's clock. `tear_at`: the program dies at such an append:
    it raises, and so does everything after it until the store is opened again, which then holds what the disk had. That
    is what was synced, and of the appends since then none (`kept="synced"`), all but the last ("before") or all
    ("after"): an append is whole on the disk, or not there. With a `tear_at`, what is not synced cannot be read.
    """

    def __init__(
        self,
        inner: Store,
        fail_at: At = None,
        stall_at: At = None,
        tear_at: At = None,
        *,
        kept: Kept = "before",
        stall_s: float | None = None,
    ) -> None:
        for at in (fail_at, stall_at, tear_at):
            _check_at(at)
        self.inner = inner
        self.fail_at, self.stall_at, self.tear_at, self.kept = fail_at, stall_at, tear_at, kept
        self.appends = self.syncs = 0
        self.on_tear: Callable[[Write], object] = lambda write: None
        self.torn_at: Write | None = None  # the newest append at which it died
        self.stalled = False
        self._stall_s = stall_s
        self._dead = False
        self._run_soon: RunSoon = lambda fn: fn()
        self._group: list[Write | tuple[str, Sequence[Snapshot]]] = []  # not given to `inner` yet
        self._next: dict[str, int | None] = {}
        self._waiting: list[tuple[Done, str | None]] = []

    # -- faults by hand --------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """How many syncs wait for `release()`."""
        return len(self._waiting)

    @property
    def unsynced(self) -> int:
        """How many appends a death would find that no sync was asked about; known with a `tear_at`."""
        return sum(isinstance(one, Write) for one in self._group)

    def stall(self) -> None:
        """Confirm nothing from here on."""
        self.stalled = True

    def release(self, session: str | None = None) -> None:
        """Confirm what waits, and what follows. (the runtime) With a `session`: let any owner have it."""
        if session is not None:
            if not self._dead:
                self._pass_on()
                self.inner.release(session)
            return
        self.stalled = False
        waiting, self._waiting = self._waiting, []
        for done, whose in waiting:
            self._confirm(done, whose)

    # -- writing ---------------------------------------------------------------------------------------------------

    def append(
        self, session: str, records: Sequence[Record], header: Header | None = None, due: Due | None = None
    ) -> None:
        """Take records, unless this append is one that fails or tears."""
        self._check()
        self.appends += 1
        write = Write(self.appends, session, tuple(records), header, due)
        if _chosen(self.fail_at, write):
            raise LogError(FAILS.format(n=write.n))
        if self.tear_at is None:
            self.inner.append(session, records, header, due)
        else:
            self._next[session] = next_seq(session, records, self._next.get(session))
            self._group.append(write)
            if _chosen(self.tear_at, write):
                self._die(write)
                self._check()
        self.stalled = self.stalled or _chosen(self.stall_at, write)

    def sync(self, done: Done, session: str | None = None) -> None:
        """Confirm what was taken, or wait until a stall is over."""
        self.syncs += 1
        if not self.stalled:
            self._confirm(done, session)
            return
        self._waiting.append((done, session))
        if self._stall_s is not None and len(self._waiting) == 1:
            trio.lowlevel.spawn_system_task(self._release_later, self._stall_s)

    async def _release_later(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.release()

    def _confirm(self, done: Done, session: str | None) -> None:
        try:
            self._check()
            self._pass_on()
        except LogError as error:
            done(error)
        else:
            self.inner.sync(done, session)

    def _pass_on(self) -> None:
        """Give `inner` what was held back; what it does not take stays."""
        while self._group:
            first = self._group[0]
            if isinstance(first, Write):
                self.inner.append(first.session, first.records, first.header, first.due)
            else:
                self.inner.snap(*first)
            del self._group[0]

    def _die(self, write: Write) -> None:
        match self.kept:
            case "synced":
                self._group.clear()
            case "before":
                self._group.pop()
        try:
            self._pass_on()
        except LogError:  # the disk under it is broken as well: then so much was there
            self._group.clear()
        self.inner.sync(lambda error: None)
        self._dead, self.torn_at = True, write
        waiting, self._waiting = self._waiting, []
        for done, _ in waiting:
            self._run_soon(lambda done=done: done(self._death()))  # type: ignore[misc]  # bound as it is now
        self.on_tear(write)

    def _death(self) -> LogError:
        return LogError(DEAD.format(n=self.torn_at.n if self.torn_at else self.appends))

    def _check(self) -> None:
        if self._dead:
            raise self._death()

    # -- everything else -------------------------------------------------------------------------------------------

    @property
    def on_notice(self) -> Callable[[Notice], None] | None:
        """Who hears of what `inner` has to tell."""
        found: Callable[[Notice], None] | None = getattr(self.inner, "on_notice", None)
        return found

    @on_notice.setter
    def on_notice(self, hear: Callable[[Notice], None] | None) -> None:
        if hasattr(self.inner, "on_notice"):
            self.inner.on_notice = hear

    @property
    def blocking(self) -> bool:
        """Whether reading may wait for a disk."""
        return self.inner.blocking

    def open(self, run_soon: RunSoon) -> None:
        """Get ready; a dead store lives again, and counts on."""
        if self._dead:
            self._group.clear()
        self._dead = self.stalled = False
        self._run_soon = run_soon
        self._next.clear()
        self.inner.open(run_soon)

    def claim(self, session: str, done: Done) -> None:
        """Become the one owner who may write to a session."""
        try:
            self._check()
        except LogError as error:
            done(error)
        else:
            self._next.pop(session, None)
            self.inner.claim(session, done)

    def rename(self, changes: Sequence[Change], done: Done) -> None:
        """Change ids and headers, where `inner` can; whoever is told of it knows that all before it is durable."""
        try:
            self._check()
            self._pass_on()
        except LogError as error:
            done(error)
        else:
            self._next.clear()
            renaming: Any = self.inner  # a Renaming, or the call says what is missing
            renaming.rename(changes, done)

    def snap(self, session: str, snapshots: Sequence[Snapshot]) -> None:
        """Keep these, in the order of the appends around them."""
        if self.tear_at is not None:
            self._group.append((session, snapshots))
        elif not self._dead:
            self.inner.snap(session, snapshots)

    def snapshots(self, session: str) -> list[Snapshot]:
        """What was kept of a session's projections."""
        self._check()
        return self.inner.snapshots(session)

    def read(self, session: str, after: int, limit: int) -> list[Record]:
        """Committed records with seq > after."""
        self._check()
        return self.inner.read(session, after, limit)

    def header(self, session: str) -> Header | None:
        """The header of one session, None for an unknown one."""
        self._check()
        return self.inner.header(session)

    def headers(self) -> list[Header]:
        """All sessions, newest first."""
        self._check()
        return self.inner.headers()

    def last(self, session: str, kinds: Sequence[str], before: int, limit: int) -> list[Record]:
        """Committed records with seq < before, newest first."""
        self._check()
        return self.inner.last(session, kinds, before, limit)

    def due(self, upto_ms: int, after: Place, limit: int) -> list[Place]:
        """The sessions that come due up to `upto_ms`."""
        self._check()
        return self.inner.due(upto_ms, after, limit)

    def close(self) -> None:
        """Let go of the disk; a store that lives commits first what it was given."""
        if not self._dead:
            try:
                self._pass_on()
            finally:
                self.inner.close()
        else:
            self.inner.close()

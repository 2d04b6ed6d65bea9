"""What stores on a disk share: records are taken in order, committed in groups, and read beside that."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from callboard.actors.errors import LogError, UsageError
from callboard.actors.memory import CLOSED, check_id, next_seq
from callboard.actors.notices import Notice
from callboard.actors.store import Change, Done, Due, Header, Place, Record, Snapshot
from callboard.runtime.stores.commits import Commits, Limits
from callboard.runtime.stores.owners import LEASE_S_MAX, LEASE_S_MIN
from callboard.runtime.stores.snaps import Snaps
from callboard.runtime.stores.writing import Claim, Entry, Release, Rename

ENDS_MAX: Final = 100_000  # sessions whose next event is known without a look; more are looked up again


class ReadSide(Protocol):
    """The reading half of a store, of any thread."""

    def records(self, session: str, after: int, limit: int) -> list[Record]:
        """As `Store.read`."""
        ...

    def last(self, session: str, kinds: Sequence[str], before: int, limit: int) -> list[Record]:
        """As `Store.last`."""
        ...

    def header(self, session: str) -> Header | None:
        """As `Store.header`."""
        ...

    def headers(self) -> list[Header]:
        """As `Store.headers`."""
        ...

    def due(self, upto_ms: int, after: Place, limit: int) -> list[Place]:
        """As `Store.due`."""
        ...

    def snapshots(self, session: str) -> list[Snapshot]:
        """As `Store.snapshots`."""
        ...

    def close(self) -> None:
        """Close its connections."""
        ...


class DurableStore:
    """The verbs of a store; whoever derives from it opens what they work on, and hands it to `_opened`.

    `on_notice` hears, on the loops' thread, `Flushed` for each commit and `StoreFailed`.
    """

    blocking = True

    def __init__(self, durability: str, limits: Limits) -> None:
        """`UsageError` for a durability that there is not, and for a lease that is too short or too long."""
        if durability not in ("full", "normal"):
            raise UsageError(f'durability is "full" or "normal", got {durability!r}.')
        if not LEASE_S_MIN <= limits.lease_s <= LEASE_S_MAX:
            raise UsageError(f"a lease lasts {LEASE_S_MIN:g} to {LEASE_S_MAX:g} seconds, got {limits.lease_s!r:.80}.")
        self.on_notice: Callable[[Notice], None] | None = None
        self._full = durability == "full"
        self._limits = limits
        self._ends: dict[str, int] = {}  # the next seq of each session that was appended to
        self._commits: Commits | None = None
        self._reading: ReadSide | None = None
        self._snaps: Snaps | None = None

    def _check_closed(self, shown: object) -> None:
        if self._commits is not None:
            raise UsageError(f"the store {shown} is open already: close it first.")

    def _opened(self, commits: Commits, reading: ReadSide, snaps: Snaps) -> None:
        self._ends.clear()
        self._commits, self._reading, self._snaps = commits, reading, snaps

    def append(
        self, session: str, records: Sequence[Record], header: Header | None = None, due: Due | None = None
    ) -> None:
        """Take records in order, the session's changed header and its changed due time; never waits.

        Raises `LogError` when closed, full or out of order, `Fenced` when another owner has the session.
        """
        if self._commits is None:
            raise LogError(CLOSED)
        known = self._ends.get(session)
        if known is None:
            check_id(session)
        end = next_seq(session, records, known)
        if not records and header is None:
            return
        size_bytes = 0
        for record in records:
            size_bytes += len(record.body)
        self._commits.append(Entry(session, tuple(records), header, size_bytes, known is None, due))
        if end is not None:
            if len(self._ends) > ENDS_MAX:
                self._ends.clear()
            self._ends[session] = end

    def sync(self, done: Done, session: str | None = None) -> None:
        """Call `done(None)` once all that was appended before is durable, or `done(error)`; maybe before returning.

        With `session`, only its records matter: that another session is fenced is not this waiter's error.
        """
        if self._commits is None:
            done(LogError(CLOSED))
        else:
            self._commits.sync(done, session)

    def claim(self, session: str, done: Done) -> None:
        """Become the one who may write to a session: `done(None)`, or `done(Fenced)` while another holds it.

        At once when it is ours already; `done(LogError)` when the store is closed, or the disk refuses.
        """
        if self._commits is None:
            done(LogError(CLOSED))
            return
        check_id(session)
        if not self._commits.wish(Claim(session, done)):
            self._ends.pop(session, None)  # others may have written since

    def release(self, session: str) -> None:
        """Let anybody have it, once all that was appended before is durable; harmless when it is not ours."""
        if self._commits is not None:
            self._commits.wish(Release(session))

    def rename(self, changes: Sequence[Change], done: Done) -> None:
        """Change ids and headers once all that was appended before is durable: all at one moment, or none."""
        if self._commits is None:
            done(LogError(CLOSED))
        elif not changes:
            done(None)
        else:
            wish = Rename(changes[0].session, tuple(changes), done)
            for name in wish.names:
                check_id(name)
                self._ends.pop(name, None)
            self._commits.wish(wish)

    def snap(self, session: str, snapshots: Sequence[Snapshot]) -> None:
        """Keep these in place of older ones of the same keys, some time soon; may be lost, and never raises."""
        if self._snaps is not None:
            self._snaps.add(session, snapshots)

    def snapshots(self, session: str) -> list[Snapshot]:
        """What was kept of a session's projections, of any thread; those ahead of the stored records left out."""
        return self._read_side().snapshots(session)

    def read(self, session: str, after: int, limit: int) -> list[Record]:
        """Committed records with seq > after, in order, at most `limit`."""
        return self._read_side().records(session, after, limit)

    def header(self, session: str) -> Header | None:
        """The header of one session, None for an unknown one."""
        return self._read_side().header(session)

    def headers(self) -> list[Header]:
        """All sessions, newest first."""
        return self._read_side().headers()

    def last(self, session: str, kinds: Sequence[str], before: int, limit: int) -> list[Record]:
        """Committed records with seq < before, newest first, at most `limit`, that may be of one of these kinds."""
        return self._read_side().last(session, kinds, before, limit)

    def due(self, upto_ms: int, after: Place, limit: int) -> list[Place]:
        """The sessions that come due up to `upto_ms` and stand behind `after`, earliest first, at most `limit`."""
        return self._read_side().due(upto_ms, after, limit)

    def close(self) -> None:
        """Commit what was taken and let go of disk or server; waits for it, at most twice `retry_s` beyond that.

        What is still refused then is lost; those who wait for it get `LogError`.
        """
        commits, reading, self._commits, self._reading, self._snaps = self._commits, self._reading, None, None, None
        if reading is not None:
            reading.close()
        if commits is not None:
            commits.close()

    def _read_side(self) -> ReadSide:
        if self._reading is None:
            raise LogError(CLOSED)
        return self._reading

    def _notify(self, notice: Notice) -> None:
        if self.on_notice is not None:
            self.on_notice(notice)

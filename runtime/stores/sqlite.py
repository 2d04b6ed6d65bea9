"""SqliteStore: one file for all sessions, with a write-ahead log and group commit."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from callboard.actors.errors import LogError, UsageError
from callboard.actors.memory import CLOSED, check_id, next_seq
from callboard.actors.notices import Notice
from callboard.actors.store import Change, Done, Due, Header, Place, Record, RunSoon, Snapshot
from callboard.runtime.clock import WallClock
from callboard.runtime.stores.commits import Commits, Limits
from callboard.runtime.stores.owners import LEASE_S, LEASE_S_MAX, LEASE_S_MIN
from callboard.runtime.stores.sqlite_file import check_place, open_writer
from callboard.runtime.stores.sqlite_own import KNOWN_MAX, Owning
from callboard.runtime.stores.sqlite_read import Reading
from callboard.runtime.stores.sqlite_write import Rows
from callboard.runtime.stores.writing import Claim, Entry, Release, Rename


class SqliteStore:
    """Records of all sessions in one SQLite file.

    `durability="full"` survives a power cut; `"normal"` survives the end of the program, may lose the last moments at
    a power cut, and commits on the loop itself when only one session writes. `retry_s` bounds how long a refused
    commit is tried again before those who wait hear of it; what was appended stays in memory then, in order, and the
    next `sync` tries again. While the disk refuses, `append` takes up to `pending_max` events and `pending_bytes_max`.

    `on_notice` hears, on the loops' thread, `Flushed` for each commit and `StoreFailed`. Several programs may use
    one file, each for other sessions: each opening of a store is an owner, and a session belongs to whoever made it or
    claimed it last. Another one may take it when its owner has released it, closed, is a process of this machine that
    is no more, or was not heard of for `lease_s`; who still writes after that is `Fenced`, with nothing written, until
    it claims the session again. (SQLite before 3.51.3 can, rarely, damage a file that two programs checkpoint at the
    same moment.)

    Raises `UsageError` for a path where no file can be, and for a lease under LEASE_S_MIN.
    """

    blocking = True

    def __init__(
        self,
        path: Path | str,
        *,
        durability: Literal["full", "normal"] = "full",
        retry_s: float = 5.0,
        pending_max: int = 100_000,
        pending_bytes_max: int = 256 << 20,
        lease_s: float = LEASE_S,
    ) -> None:
        if durability not in ("full", "normal"):
            raise UsageError(f'durability is "full" or "normal", got {durability!r}.')
        if not LEASE_S_MIN <= lease_s <= LEASE_S_MAX:
            raise UsageError(f"a lease lasts {LEASE_S_MIN:g} to {LEASE_S_MAX:g} seconds, got {lease_s!r:.80}.")
        self.path = Path(path)
        self.on_notice: Callable[[Notice], None] | None = None
        self._full = durability == "full"
        self._limits = Limits(retry_s, pending_max, pending_bytes_max, lease_s)
        self._ends: dict[str, int] = {}  # the next seq of each session that was appended to
        self._rows: Rows | None = None
        self._commits: Commits | None = None
        self._reading: Reading | None = None
        self._place = self.path.absolute()  # wherever the program goes meanwhile
        check_place(self.path)

    def open(self, run_soon: RunSoon) -> None:
        """Open or make the file; waits for the disk, and up to `retry_s` for another program's lock.

        Raises `UsageError` when there can be no file, `LogError` when it is foreign, newer, damaged or locked.
        """
        if self._commits is not None:
            raise UsageError(f"the store {self.path} is open already: close it first.")
        db = open_writer(self._place, full=self._full, busy_s=self._limits.retry_s)
        self._ends.clear()
        self._reading = Reading(self._place, self._limits.retry_s)
        own = Owning(db, str(self._place), self._limits.lease_s, WallClock().now_ms)
        rows = self._rows = Rows(db, self._place, own, full=self._full)
        self._commits = Commits(rows, run_soon, self._notify, self._limits, inline=not self._full)

    def append(
        self, session: str, records: Sequence[Record], header: Header | None = None, due: Due | None = None
    ) -> None:
        """Take records in order, the session's changed header and its changed due time; never waits.

        Raises `LogError` when closed, full or out of order, `Fenced` when another owner wrote to the session.
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
            if len(self._ends) > KNOWN_MAX:
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
        if self._rows is not None:
            self._rows.snaps.add(session, snapshots)

    def snapshots(self, session: str) -> list[Snapshot]:
        """What was kept of a session's projections, of any thread; those ahead of the records left out."""
        return self._read_side().snapshots(session)

    def look(self) -> Reading:
        """The reading half alone, for who changes nothing; the store need not be open."""
        return Reading(self._place, self._limits.retry_s)

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
        """Commit what was taken, checkpoint and close the file; waits for the disk, at most twice `retry_s` beyond it.

        What the disk still refuses then is lost; those who wait for it get `LogError`.
        """
        commits, reading, self._commits, self._reading, self._rows = self._commits, self._reading, None, None, None
        if reading is not None:
            reading.close()
        if commits is not None:
            commits.close()

    def _read_side(self) -> Reading:
        if self._reading is None:
            raise LogError(CLOSED)
        return self._reading

    def _notify(self, notice: Notice) -> None:
        if self.on_notice is not None:
            self.on_notice(notice)

"""SqliteStore: one file for all sessions, with a write-ahead log and group commit."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from callboard.actors.errors import LogError, UsageError
from callboard.actors.memory import CLOSED, check_id, next_seq
from callboard.actors.notices import Notice
from callboard.actors.store import Done, Due, Header, Place, Record, RunSoon
from callboard.runtime.stores.commits import Commits, Limits
from callboard.runtime.stores.sqlite_file import check_place, open_writer
from callboard.runtime.stores.sqlite_read import Reading
from callboard.runtime.stores.sqlite_write import KNOWN_MAX, Entry, Rows


class SqliteStore:
    """Records of all sessions in one SQLite file.

    `durability="full"` survives a power cut; `"normal"` survives the end of the program, may lose the last moments at
    a power cut, and commits on the loop itself when only one session writes. `retry_s` bounds how long a refused
    commit is tried again before those who wait hear of it; what was appended stays in memory then, in order, and the
    next `sync` tries again. While the disk refuses, `append` takes up to `pending_max` events and `pending_bytes_max`.

    `on_notice` hears, on the loops' thread, `Flushed` for each commit and `StoreFailed`. Several programs may use
    one file, each for other sessions: who writes to a session that another program wrote to is `Fenced`, and stays so
    until this store is opened anew. (SQLite before 3.51.3 can, rarely, damage a file that two programs checkpoint at
    the same moment.)

    Raises `UsageError` for a path where no file can be.
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
    ) -> None:
        if durability not in ("full", "normal"):
            raise UsageError(f'durability is "full" or "normal", got {durability!r}.')
        self.path = Path(path)
        self.on_notice: Callable[[Notice], None] | None = None
        self._full = durability == "full"
        self._limits = Limits(retry_s, pending_max, pending_bytes_max)
        self._ends: dict[str, int] = {}  # the next seq of each session that was appended to
        self._commits: Commits | None = None
        self._reading: Reading | None = None
        check_place(self.path)

    def open(self, run_soon: RunSoon) -> None:
        """Open or make the file; waits for the disk, and up to `retry_s` for another program's lock.

        Raises `UsageError` when there can be no file, `LogError` when it is foreign, newer, damaged or locked.
        """
        if self._commits is not None:
            raise UsageError(f"the store {self.path} is open already: close it first.")
        db = open_writer(self.path, full=self._full, busy_s=self._limits.retry_s)
        self._ends.clear()
        self._reading = Reading(self.path, self._limits.retry_s)
        self._commits = Commits(
            Rows(db, self.path), self.path, run_soon, self._notify, self._limits, inline=not self._full
        )

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
        commits, reading, self._commits, self._reading = self._commits, self._reading, None, None
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

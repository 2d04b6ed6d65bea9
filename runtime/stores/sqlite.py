"""SqliteStore: one file for all sessions, with a write-ahead log and group commit."""

from pathlib import Path
from typing import Literal

from callboard.actors.store import RunSoon
from callboard.runtime.clock import WallClock
from callboard.runtime.stores.commits import Commits, Limits
from callboard.runtime.stores.durable import DurableStore
from callboard.runtime.stores.owners import LEASE_S
from callboard.runtime.stores.sqlite_file import check_place, open_writer
from callboard.runtime.stores.sqlite_own import Owning
from callboard.runtime.stores.sqlite_read import Reading
from callboard.runtime.stores.sqlite_write import Rows


class SqliteStore(DurableStore):
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
        super().__init__(durability, Limits(retry_s, pending_max, pending_bytes_max, lease_s))
        self.path = Path(path)
        self._rows: Rows | None = None
        self._place = self.path.absolute()  # wherever the program goes meanwhile
        check_place(self.path)

    def open(self, run_soon: RunSoon) -> None:
        """Open or make the file; waits for the disk, and up to `retry_s` for another program's lock.

        Raises `UsageError` when there can be no file, `LogError` when it is foreign, newer, damaged or locked.
        """
        self._check_closed(self.path)
        db = open_writer(self._place, full=self._full, busy_s=self._limits.retry_s)
        own = Owning(db, str(self._place), self._limits.lease_s, WallClock().now_ms)
        rows = self._rows = Rows(db, self._place, own, full=self._full)
        commits = Commits(rows, run_soon, self._notify, self._limits, inline=not self._full)
        self._opened(commits, self.look(), rows.snaps)

    def look(self) -> Reading:
        """The reading half alone, for who changes nothing; the store need not be open."""
        return Reading(self._place, self._limits.retry_s)

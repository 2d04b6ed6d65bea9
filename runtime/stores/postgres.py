"""PostgresStore: all sessions in one PostgreSQL database, for programs on many machines."""

from collections.abc import Callable, Sequence

from callboard.actors.errors import LogError, UsageError
from callboard.actors.memory import CLOSED, check_id, next_seq
from callboard.actors.notices import Notice
from callboard.actors.store import Change, Done, Due, Header, Place, Record, RunSoon, Snapshot
from callboard.runtime.stores.commits import Commits, Limits
from callboard.runtime.stores.owners import LEASE_S, LEASE_S_MAX, LEASE_S_MIN
from callboard.runtime.stores.postgres_own import KNOWN_MAX, Owning
from callboard.runtime.stores.postgres_place import Durability, address_of
from callboard.runtime.stores.postgres_read import PostgresReading
from callboard.runtime.stores.postgres_write import PostgresRows
from callboard.runtime.stores.writing import Claim, Entry, Release, Rename


class PostgresStore:
    """Records of all sessions in one schema of a PostgreSQL database.

    `url` is `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`, with `?schema=NAME` (by default `callboard`),
    `?durability=` and `?lease=SECONDS`, which count before the arguments, beside PostgreSQL's own options. `"full"`
    survives a power cut of the server; after `"normal"` a server that crashes may lack the last moments, and a session
    that lost records is told so. No commit is made on the loop.

    `retry_s` bounds each wait for the server, and how long a refused commit is tried again, over new connections where
    that helps, before those who wait hear of it; what was appended stays in memory then, in order, and the next `sync`
    tries again. While the server refuses, `append` takes up to `pending_max` events and `pending_bytes_max`.

    A session belongs to the opening of a store that made it or claimed it last, until that releases it, closes, is a
    process of this machine that is no more, or was not heard of for `lease_s` by the server's clock; who still writes
    after that is `Fenced`, with nothing written.

    `on_notice` hears, on the loops' thread, `Flushed` for each commit and `StoreFailed`.

    Raises `UsageError` for a url that cannot be read; no error tells the url or the password.
    """

    blocking = True

    def __init__(
        self,
        url: str,
        *,
        durability: Durability = "full",
        retry_s: float = 5.0,
        pending_max: int = 100_000,
        pending_bytes_max: int = 256 << 20,
        lease_s: float = LEASE_S,
    ) -> None:
        if durability not in ("full", "normal"):
            raise UsageError(f'durability is "full" or "normal", got {durability!r}.')
        self.address = address_of(url)
        self.on_notice: Callable[[Notice], None] | None = None
        self._full = (self.address.durability or durability) == "full"
        if self.address.lease_s is not None:
            lease_s = self.address.lease_s
        if not LEASE_S_MIN <= lease_s <= LEASE_S_MAX:
            raise UsageError(f"a lease lasts {LEASE_S_MIN:g} to {LEASE_S_MAX:g} seconds, got {lease_s!r:.80}.")
        self._limits = Limits(retry_s, pending_max, pending_bytes_max, lease_s)
        self._ends: dict[str, int] = {}  # the next seq of each session that was appended to
        self._rows: PostgresRows | None = None
        self._commits: Commits | None = None
        self._reading: PostgresReading | None = None

    def open(self, run_soon: RunSoon) -> None:
        """Connect and make or migrate the tables; waits for the server.

        Raises `LogError` when it cannot be reached or refuses, or when the schema is foreign or newer.
        """
        if self._commits is not None:
            raise UsageError(f"the store in {self.address.shown} is open already: close it first.")
        limits = self._limits
        own = Owning(self.address.shown, limits.lease_s)
        rows = PostgresRows(self.address, own, full=self._full, limit_s=limits.retry_s)
        rows.open()
        self._ends.clear()
        self._rows = rows
        self._reading = PostgresReading(self.address, limits.retry_s)
        self._commits = Commits(rows, run_soon, self._notify, limits, inline=False)

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
        """Become the one owner who may write to a session that is stored: `done(None)`, or `done(Fenced)`."""
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
        """What was kept of a session's projections; those whose records are not all stored left out."""
        return self._read_side().snapshots(session)

    def look(self) -> PostgresReading:
        """The reading half alone, for who changes nothing; the store need not be open."""
        return PostgresReading(self.address, self._limits.retry_s)

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
        """Commit what was taken and end the connections; waits for the server, at most twice `retry_s` beyond it.

        What the server still refuses then is lost; those who wait for it get `LogError`.
        """
        commits, reading, self._commits, self._reading = self._commits, self._reading, None, None
        self._rows = None
        if reading is not None:
            reading.close()
        if commits is not None:
            commits.close()

    def _read_side(self) -> PostgresReading:
        if self._reading is None:
            raise LogError(CLOSED)
        return self._reading

    def _notify(self, notice: Notice) -> None:
        if self.on_notice is not None:
            self.on_notice(notice)

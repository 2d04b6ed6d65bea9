"""PostgresStore: all sessions in one PostgreSQL database, for programs on many machines."""

from callboard.actors.store import RunSoon
from callboard.runtime.stores.commits import Commits, Limits
from callboard.runtime.stores.durable import DurableStore
from callboard.runtime.stores.owners import LEASE_S
from callboard.runtime.stores.postgres_own import Owning
from callboard.runtime.stores.postgres_place import Durability, address_of
from callboard.runtime.stores.postgres_read import PostgresReading
from callboard.runtime.stores.postgres_write import PostgresRows


class PostgresStore(DurableStore):
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
        self.address = address_of(url)
        lease_s = lease_s if self.address.lease_s is None else self.address.lease_s
        super().__init__(
            self.address.durability or durability, Limits(retry_s, pending_max, pending_bytes_max, lease_s)
        )
        self._rows: PostgresRows | None = None

    def open(self, run_soon: RunSoon) -> None:
        """Connect and make or migrate the tables; waits for the server.

        Raises `LogError` when it cannot be reached or refuses, or when the schema is foreign or newer.
        """
        self._check_closed(f"in {self.address.shown}")
        limits = self._limits
        own = Owning(self.address.shown, limits.lease_s)
        rows = PostgresRows(self.address, own, full=self._full, limit_s=limits.retry_s)
        rows.open()
        self._rows = rows
        self._opened(Commits(rows, run_soon, self._notify, limits, inline=False), self.look(), rows.snaps)

    def look(self) -> PostgresReading:
        """The reading half alone, for who changes nothing; the store need not be open."""
        return PostgresReading(self.address, self._limits.retry_s)

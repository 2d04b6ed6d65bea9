"""Stores: where records become durable. The memory store is `callboard.actors.memory`.

Read in this order:

writing       what group commit is given, and what it asks of whatever it writes to
commits       group commit: who commits, when, and what happens when the disk refuses
owners        which program holds a session, and whether another may take it now
snaps         snapshots of projections on their way to the disk
durable       what stores on a disk share
sqlite_file   the SQLite file: where it may lie, whose it is, its tables and version
sqlite_wide   one SQL statement over many rows
sqlite_own    which sessions of the file are ours, and the lease that keeps them
sqlite_names  other ids and headers for sessions of the file
sqlite_write  how a group of appends becomes rows, and which session of it is refused
sqlite_read   rows become records again, on connections that only read
sqlite        SqliteStore: the default store
postgres_place   where a PostgreSQL store is, without its secrets; connections to it, its errors in words
postgres_tables  whose a schema is, its tables and version
postgres_rows    the statements that write rows
postgres_own     which sessions are ours there, and the lease that keeps them
postgres_names   other ids and headers for sessions there
postgres_write   how a group of appends becomes rows there, whoever else writes meanwhile
postgres_read    rows become records again, on a few connections that only read
postgres         PostgresStore: one database for programs on many machines

`open_store(url)` makes one from its url, and `look_into(url)` its reading half alone.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias
from urllib.parse import parse_qsl, unquote

from callboard.actors.errors import MissingExtra, UsageError
from callboard.actors.memory import MemoryStore
from callboard.actors.store import Header, Record, Store
from callboard.runtime.stores.owners import LEASE_S
from callboard.runtime.stores.sqlite import SqliteStore

__all__ = ["Looking", "MemoryStore", "SqliteStore", "look_into", "open_store"]

Durability: TypeAlias = Literal["full", "normal"]

FORMS: Final = (
    '"memory", "sqlite:///file", "sqlite:////absolute/file", "sqlite:///file?durability=normal" or '
    '"postgresql://user:password@host:port/database"'
)


class Looking(Protocol):
    """The reading half of a store: it changes nothing, makes nothing, and claims nothing."""

    @property
    def name(self) -> str:
        """What the store is called in a sentence; no secrets."""
        ...

    def is_nothing(self) -> bool:
        """Whether nothing was ever written there."""
        ...

    def records(self, session: str, after: int, limit: int) -> list[Record]:
        """Committed records with seq > after, in order, at most `limit`."""
        ...

    def header(self, session: str) -> Header | None:
        """The header of one session, None for an unknown one."""
        ...

    def headers(self) -> list[Header]:
        """All sessions, newest first."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


def look_into(url: str) -> Looking:
    """The reading half of a store that is kept between programs. Raises `UsageError` for any other url."""
    look: Callable[[], Looking] | None = getattr(open_store(url), "look", None)
    if look is None:
        raise UsageError(f"store {url!r} keeps nothing between programs: name a sqlite:///FILE or postgresql:// store.")
    return look()


def open_store(url: str, durability: Durability = "full") -> Store:
    """The store a url names, not opened yet: one of FORMS. In a path, `%23` is `#` and `~` the home folder.

    `durability` counts where the url says nothing. Raises `UsageError` for any other url, and for a file that cannot
    be: a folder, or one in an unwritable folder; `MissingExtra` when PostgreSQL's client is not installed.
    """
    if url == "memory":
        return MemoryStore()
    scheme, colon, rest = url.partition(":")
    if scheme in ("postgresql", "postgres"):
        return _postgres(url, durability)
    shown = f"{scheme}:..." if "@" in rest and not rest.startswith("///") else url  # there may be a password before it
    if scheme != "sqlite" or not colon:
        raise UsageError(f"store {shown!r} is not known: use {FORMS}.")
    where, _, query = rest.partition("?")
    name = unquote(where.removeprefix("///"))
    if not where.startswith("///") or not name or "\0" in name or name == ":memory:":
        raise UsageError(f"store {shown!r} names no file: use {FORMS}.")
    durability, lease_s = _options(url, query, durability)
    return SqliteStore(Path(name).expanduser(), durability=durability, lease_s=lease_s)


def _postgres(url: str, durability: Durability) -> Store:
    try:
        from callboard.runtime.stores.postgres import PostgresStore
    except ImportError:
        raise MissingExtra("a PostgreSQL store", "postgres") from None
    return PostgresStore(url, durability=durability)


def _options(url: str, query: str, default: Durability) -> tuple[Durability, float]:
    """What stands behind the question mark: the durability, and the length of the lease in seconds."""
    options = parse_qsl(query, keep_blank_values=True)
    given = dict(options)
    durability, lease = given.pop("durability", default), given.pop("lease", str(LEASE_S))
    if given or len(options) != len(dict(options)) or (query and not options) or durability not in ("full", "normal"):
        raise UsageError(f"store {url!r}: the options are durability=full, durability=normal and lease=SECONDS.")
    try:
        return "full" if durability == "full" else "normal", float(lease)
    except ValueError:
        raise UsageError(f"store {url!r}: lease={lease} is no number of seconds, such as lease=10.") from None

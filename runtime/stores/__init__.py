"""Stores: where records become durable. The memory store is `callboard.actors.memory`.

Read in this order:

sqlite_file   the SQLite file: where it may lie, whose it is, its tables and version
sqlite_write  how a group of appends becomes rows, and which session of it is refused
sqlite_read   rows become records again, on connections that only read
commits       group commit: who commits, when, and what happens when the disk refuses
sqlite        SqliteStore: the default store

`open_store(url)` makes one from its url.
"""

from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qsl, unquote

from callboard.actors.errors import UsageError
from callboard.actors.memory import MemoryStore
from callboard.actors.store import Store
from callboard.runtime.stores.sqlite import SqliteStore

__all__ = ["MemoryStore", "SqliteStore", "open_store"]

FORMS: Final = '"memory", "sqlite:///file", "sqlite:////absolute/file" or "sqlite:///file?durability=normal"'


def open_store(url: str) -> Store:
    """The store a url names, not opened yet: one of FORMS. In a path, `%23` is `#` and `~` the home folder.

    Raises `UsageError` for any other url, and for a file that cannot be: a folder, or one in an unwritable folder.
    """
    if url == "memory":
        return MemoryStore()
    scheme, colon, rest = url.partition(":")
    if scheme.partition("+")[0] in ("postgresql", "postgres"):
        raise UsageError(f"this build has no PostgreSQL store yet: use {FORMS}.")
    if scheme != "sqlite" or not colon:
        raise UsageError(f"store {url!r} is not known: use {FORMS}.")
    where, _, query = rest.partition("?")
    name = unquote(where.removeprefix("///"))
    if not where.startswith("///") or not name or "\0" in name or name == ":memory:":
        raise UsageError(f"store {url!r} names no file: use {FORMS}.")
    return SqliteStore(Path(name).expanduser(), durability=_durability(url, query))


def _durability(url: str, query: str) -> Literal["full", "normal"]:
    options = parse_qsl(query, keep_blank_values=True)
    if not options and not query:
        return "full"
    if options == [("durability", "normal")]:
        return "normal"
    if options == [("durability", "full")]:
        return "full"
    raise UsageError(f"store {url!r}: the one option is durability=full or durability=normal, got {query!r}.")

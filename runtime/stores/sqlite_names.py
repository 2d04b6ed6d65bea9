"""Other ids and headers for sessions of the file, in the transaction of the caller."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from callboard.actors.errors import LogError
from callboard.actors.memory import unfit
from callboard.actors.store import Change, Header
from callboard.runtime.stores.sqlite_own import Owning
from callboard.runtime.stores.writing import Rename

STATUS = "SELECT status FROM sessions WHERE id = ?"
CHANGE = (
    "UPDATE sessions SET id=?, parent=?, root=?, path=?, title=?, status=?, due_ms=?, created_ms=?, updated_ms=?,"
    " owner=NULL, epoch=epoch+1 WHERE number=?"
)


def rename(
    db: sqlite3.Connection, own: Owning, wish: Rename, row: Callable[[str, Header], tuple[Any, ...]]
) -> LogError | None:
    """Make the changes of a wish, or say why they cannot be; `row` are the columns of a header, its id first."""
    changes = wish.changes
    if wish.numbers and _is_done(db, wish):
        return None
    numbers: dict[str, int] = {}
    for session, number, _, _, why in own.standings(change.session for change in changes):
        if why is not None:
            return why
        numbers[session] = number
    names = wish.names
    statuses = {name: found[0] for name in names if (found := db.execute(STATUS, (name,)).fetchone()) is not None}
    why = unfit(changes, statuses)
    if why is None:
        wish.numbers.update(numbers)
        _change(db, changes, numbers, row)
        own.forget(names)
    return why


def _is_done(db: sqlite3.Connection, wish: Rename) -> bool:
    """Whether a commit that reported an error was made nevertheless."""
    for change in wish.changes:
        row = db.execute("SELECT id FROM sessions WHERE number = ?", (wish.numbers[change.session],)).fetchone()
        if (None if row is None else row[0]) != (None if change.header is None else change.header.id):
            return False
    return True


def _change(
    db: sqlite3.Connection,
    changes: Sequence[Change],
    numbers: dict[str, int],
    row: Callable[[str, Header], tuple[Any, ...]],
) -> None:
    """First out of the way, because one may take the id of another."""
    db.executemany("UPDATE sessions SET id = char(0) || number WHERE number = ?", [(one,) for one in numbers.values()])
    for change in changes:
        number = numbers[change.session]
        if change.header is not None:
            db.execute(CHANGE, (*row(change.header.id, change.header), number))
        else:
            for table, column in (("events", "session"), ("snapshots", "session"), ("sessions", "number")):
                db.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))  # noqa: S608 - names of ours

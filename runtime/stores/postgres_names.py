"""Other ids and headers for sessions of a PostgreSQL store, in the transaction of the caller."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from callboard.actors.errors import LogError
from callboard.actors.memory import unfit
from callboard.actors.store import Change, Header
from callboard.runtime.stores.postgres_own import Owning
from callboard.runtime.stores.postgres_place import Bounded
from callboard.runtime.stores.writing import Rename

STATUSES: Final = "SELECT id, status FROM sessions WHERE id = ANY(%b::bytea[])"
IDS: Final = "SELECT number, id FROM sessions WHERE number = ANY(%b::bigint[])"
ASIDE: Final = "UPDATE sessions SET id = (chr(1) || number)::bytea WHERE number = ANY(%b::bigint[])"
CHANGE: Final = (
    "UPDATE sessions SET id=%b, parent=%b, root=%b, path=%b, title=%b, status=%b, due_ms=%b::bigint,"
    " created_ms=%b::bigint, updated_ms=%b::bigint, owner=NULL, epoch=epoch+1 WHERE number=%b::bigint"
)


def rename(
    db: Bounded, own: Owning, wish: Rename, row: Callable[[int, Header, int | None], tuple[Any, ...]]
) -> LogError | None:
    """Make the changes of a wish, or say why they cannot be; `row` are the columns of a header, its number first."""
    changes = wish.changes
    if wish.numbers and _is_done(db, wish):
        return None
    numbers, others = own.lock(db, [change.session for change in changes])
    for why in others.values():
        return why
    names = wish.names
    found = db.cursor(binary=True).execute(STATUSES, ([name.encode() for name in names],)).fetchall()
    refusal = unfit(changes, {bytes(id_).decode(): bytes(status).decode() for id_, status in found})
    if refusal is None:
        wish.numbers.update(numbers)
        _change(db, changes, numbers, row)
        own.forget(names)
    return refusal


def _is_done(db: Bounded, wish: Rename) -> bool:
    """Whether it was made, though the connection broke before the server said so."""
    found = db.cursor(binary=True).execute(IDS, (list(wish.numbers.values()),)).fetchall()
    ids = {number: bytes(id_).decode() for number, id_ in found}
    wanted = ((wish.numbers[one.session], None if one.header is None else one.header.id) for one in wish.changes)
    return all(ids.get(number) == id_ for number, id_ in wanted)


def _change(
    db: Bounded,
    changes: Sequence[Change],
    numbers: dict[str, int],
    row: Callable[[int, Header, int | None], tuple[Any, ...]],
) -> None:
    """First out of the way, because one may take the id of another."""
    db.execute(ASIDE, (list(numbers.values()),))
    for change in changes:
        number, header = numbers[change.session], change.header
        if header is not None:
            _, *columns = row(number, header, header.due_ms)
            db.execute(CHANGE, (header.id.encode(), *columns, number))
        else:
            for table, column in (("events", "session"), ("snapshots", "session"), ("sessions", "number")):
                db.execute(f"DELETE FROM {table} WHERE {column} = %b::bigint".encode(), (number,))  # noqa: S608 - names of ours

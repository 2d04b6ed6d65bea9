"""All rows, and which of them a name means."""

from collections.abc import Sequence

from . import (
    rows_abort,
    rows_ask,
    rows_events,
    rows_growth,
    rows_memory,
    rows_scrape,
    rows_step,
    rows_stored,
    rows_timers,
    rows_wire,
)
from .row import Row

ROWS: tuple[Row, ...] = (
    *rows_step.ROWS,
    *rows_growth.ROWS,
    *rows_abort.ROWS,
    *rows_ask.ROWS,
    *rows_memory.ROWS,
    *rows_events.ROWS,
    *rows_stored.ROWS,
    *rows_timers.ROWS,
    *rows_scrape.ROWS,
    *rows_wire.ROWS,
)


def named(names: Sequence[str], rows: Sequence[Row] = ROWS) -> tuple[Row, ...]:
    """The rows of these names, in the order of the table; `step` means every `step.…`, no name means all.

    Raises `LookupError` with what there is.
    """
    for name in names:
        if not any(_means(name, row) for row in rows):
            groups = ", ".join(dict.fromkeys(row.name.partition(".")[0] for row in rows))
            raise LookupError(f"there is no benchmark {name!r}: name a group ({groups}) or a row (--list)")
    return tuple(row for row in rows if not names or any(_means(name, row) for name in names))


def _means(name: str, row: Row) -> bool:
    return row.name == name or row.name.startswith(f"{name}.")

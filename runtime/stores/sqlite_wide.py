"""Wide: one SQL statement over many rows."""

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

ROWS_MAX: Final = 512


class Wide:
    """A statement over many rows at once.

    Each statement a thread executes costs it the interpreter lock once, and under a busy loop that is 5 ms or more; so
    a group of rows is one statement, not one for each. Its text is kept for few row counts: a group is filled up with
    NULL rows, which the statement leaves out.
    """

    def __init__(self, before: str, columns: int, after: str, *fixed: str) -> None:
        """`fixed` are the values of question marks in `before`, the same for all rows."""
        self._before, self._after, self._columns, self._fixed = before, after, columns, fixed
        self._texts: dict[int, str] = {}

    def run(self, db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Execute over all rows, at most ROWS_MAX a statement; returns what the statements answer."""
        answers: list[tuple[Any, ...]] = []
        for start in range(0, len(rows), ROWS_MAX):
            some = rows[start : start + ROWS_MAX] if len(rows) > ROWS_MAX else rows
            count = len(some)
            # Three significant bits: 1 to 8, 10, 12, 14, 16, 20 ...
            step = 1 << max(count.bit_length() - 3, 0)
            size = -(-count // step) * step
            values = [*self._fixed, *chain.from_iterable(some)]
            if size > count:
                values += [None] * (self._columns * (size - count))
            cursor = db.execute(self._texts.get(size) or self._text(size), values)
            if cursor.description is not None:
                answers += cursor.fetchall()
        return answers

    def _text(self, size: int) -> str:
        row = "(" + ",".join("?" * self._columns) + ")"
        self._texts[size] = f"{self._before}(VALUES {','.join([row] * size)}){self._after}"
        return self._texts[size]

"""How a group of appends becomes rows in one transaction, and which session of it is refused."""

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from callboard.actors.errors import Fenced, LogError
from callboard.actors.memory import misplaced
from callboard.actors.store import Due, Header, Record

ROWS_MAX: Final = 512
KNOWN_MAX: Final = 100_000
"""So many sessions are known by heart; beyond it all are looked up again."""

# The rows themselves are at fault, and no other disk would take them: a number that is taken or too large, a wrong
# type, a body over SQLite's limit.
ROW_ERRORS: Final = (
    *(sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, sqlite3.InterfaceError),
    *(OverflowError, UnicodeError),
)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One append, as it was taken; `size_bytes` is that of the bodies.

    `first` when nobody has checked yet that it follows what is stored.
    """

    session: str
    records: tuple[Record, ...]
    header: Header | None
    size_bytes: int
    first: bool
    due: Due | None = None


class Refused(Exception):
    """Inside this module: one session of the group may not write."""

    def __init__(self, why: LogError) -> None:
        super().__init__(str(why))
        self.why = why


class Wide:
    """A statement over many rows at once.

    Each statement a thread executes costs it the interpreter lock once, and under a busy loop that is 5 ms or more; so
    a group of rows is one statement, not one for each. Its text is kept for few row counts: a group is filled up with
    NULL rows, which the statement leaves out.
    """

    def __init__(self, before: str, columns: int, after: str) -> None:
        self._before, self._after, self._columns = before, after, columns
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
            values = list(chain.from_iterable(some))
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


class Rows:
    """Writes groups of appends through the one writing connection, a transaction each."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self.db, self._path = db, path
        self.refused: dict[str, LogError] = {}
        """Sessions that write no more through this store, and why."""
        self._numbers: dict[str, int] = {}  # sessions whose next record is known to follow the last one stored
        self._met: list[str] = []  # those that came to be known in the running transaction
        self._events = Wide("INSERT INTO events SELECT * FROM ", 5, " WHERE column1 NOTNULL")
        self._headers = Wide(
            "INSERT INTO sessions(id,parent,root,path,title,status,due_ms,created_ms,updated_ms) SELECT * FROM ",
            9,
            " WHERE column1 NOTNULL ON CONFLICT(id) DO UPDATE SET parent=excluded.parent, root=excluded.root,"
            " path=excluded.path, title=excluded.title, status=excluded.status, due_ms=excluded.due_ms,"
            " created_ms=excluded.created_ms, updated_ms=excluded.updated_ms",
        )
        self._bare = Wide(
            "INSERT INTO sessions(id,created_ms) SELECT * FROM ", 2, " WHERE column1 NOTNULL ON CONFLICT(id) DO NOTHING"
        )
        self._dues = Wide("UPDATE sessions SET due_ms = column2 FROM ", 2, " WHERE id = column1")
        self._known = Wide(
            "SELECT id, number, (SELECT max(seq) FROM events WHERE session = number) FROM sessions"
            " WHERE id IN (SELECT column1 FROM ",
            1,
            ")",
        )

    def write(self, entries: Sequence[Entry]) -> None:
        """Make all entries durable but those of sessions in `refused`, which may grow by this.

        Raises `sqlite3.Error` when the disk does not take them; then nothing was written.
        """
        if len(self._numbers) > KNOWN_MAX:
            self._numbers.clear()
        try:
            try:
                self._together(entries)
            except (Refused, *ROW_ERRORS):
                self._roll_back()
                self._apart(entries)
        except sqlite3.Error:
            self._roll_back()
            raise
        self._met.clear()

    def _together(self, entries: Sequence[Entry]) -> None:
        """The common group is one statement, which is a transaction by itself."""
        numbers = self._numbers
        plain = all(
            entry.header is None and entry.due is None and not entry.first and entry.session in numbers
            for entry in entries
        )
        if plain and sum(len(entry.records) for entry in entries) <= ROWS_MAX:
            self._put(entries)
            return
        self.db.execute("BEGIN IMMEDIATE")
        self._put(entries)
        self.db.execute("COMMIT")

    def _apart(self, entries: Sequence[Entry]) -> None:
        """Session by session, each under a savepoint: one that is refused takes no other with it."""
        by_session: dict[str, list[Entry]] = {}
        for entry in entries:
            by_session.setdefault(entry.session, []).append(entry)
        refused: dict[str, LogError] = {}
        self.db.execute("BEGIN IMMEDIATE")
        for session, own in by_session.items():
            self.db.execute("SAVEPOINT one")
            try:
                self._put(own)
            except (Refused, *ROW_ERRORS) as error:
                self.db.execute("ROLLBACK TO one")
                refused[session] = self._sentence(session, error)
            self.db.execute("RELEASE one")
        self.db.execute("COMMIT")
        self.refused.update(refused)
        for session in refused:
            self._numbers.pop(session, None)

    def _put(self, entries: Sequence[Entry]) -> None:
        """The statements of a group."""
        numbers = self._numbers
        headers = {entry.session: entry.header for entry in entries if entry.header is not None}
        unknown: dict[str, Record] = {}
        for entry in entries:
            if entry.records and (entry.first or entry.session not in numbers):
                unknown.setdefault(entry.session, entry.records[0])
        for session in chain(headers, unknown):
            if session in self.refused:
                raise Refused(self.refused[session])
        if headers:
            self._headers.run(self.db, [_header_row(session, header) for session, header in headers.items()])
        if unknown:
            bare = [(session, first.at_ms) for session, first in unknown.items() if session not in headers]
            self._bare.run(self.db, bare)
            self._meet(unknown)
        dues = _last_dues(entries)
        if dues:
            self._dues.run(self.db, [(session, due.at_ms) for session, due in dues.items()])
        self._events.run(
            self.db,
            [
                (numbers[entry.session], record.seq, record.at_ms, record.turn, record.body)
                for entry in entries
                for record in entry.records
            ],
        )

    def _meet(self, unknown: Mapping[str, Record]) -> None:
        """Learn the numbers of sessions, and that their first record follows the last one stored."""
        found = self._known.run(self.db, [(session,) for session in unknown])
        own = {session: session for session in unknown}  # not the copy that SQLite answers: 60 bytes a session
        for copy, number, last in found:
            session = own[copy]
            expected = 0 if last is None else last + 1
            if unknown[session].seq != expected:
                raise Refused(misplaced(session, unknown[session].seq, expected))
            self._numbers[session] = number
            self._met.append(session)

    def _sentence(self, session: str, error: Exception) -> LogError:
        if isinstance(error, Refused):
            return error.why
        if isinstance(error, sqlite3.IntegrityError):
            return Fenced(f"session {session!r} was written to by another owner of {self._path}: end this one.")
        return LogError(f"session {session!r} has a record that {self._path} cannot hold: {error}.")

    def _roll_back(self) -> None:
        for session in self._met:
            self._numbers.pop(session, None)
        self._met.clear()
        if self.db.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # the error that led here is the one to report
                self.db.execute("ROLLBACK")


def _last_dues(entries: Sequence[Entry]) -> Mapping[str, Due]:
    """The due times that are said apart from a header, the last of each session; a later header says its own."""
    dues: dict[str, Due] = {}
    for entry in entries:
        if entry.due is not None:
            dues[entry.session] = entry.due
        elif entry.header is not None:
            dues.pop(entry.session, None)
    return dues


def _header_row(session: str, header: Header) -> tuple[Any, ...]:
    """The columns of a header; half a surrogate pair has no written form and becomes a question mark."""
    texts = (session, header.parent, header.root, header.path, header.title, header.status)
    written = (text if text is None else text.encode("utf-8", "replace").decode() for text in texts)
    return (*written, header.due_ms, header.created_ms, header.updated_ms)

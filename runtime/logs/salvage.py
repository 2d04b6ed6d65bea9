"""Salvage: what can be read of a damaged SQLite file goes to a new one; the damaged one stays as it is."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from callboard.actors.codec import Codec
from callboard.actors.errors import CallboardError, LogError
from callboard.actors.fold import Folds
from callboard.actors.store import Record
from callboard.runtime.logs.checking import Checker
from callboard.runtime.logs.survey import Finding
from callboard.runtime.stores.sqlite_file import check_version, explained, open_reader, open_writer

BUSY_S: Final = 5.0
ROWS_MAX: Final = 256
"""Rows that are read at once; where that fails, halves, down to one."""
BEFORE: Final = "it is left out"
EVENTS: Final = "SELECT rowid, session, seq, at_ms, turn, body FROM events NOT INDEXED WHERE rowid >= ? AND rowid < ?"
COLUMNS: Final = "number, id, parent, root, path, title, status, due_ms, created_ms, updated_ms"
SESSIONS: Final = f"SELECT number AS rowid, {COLUMNS} FROM sessions NOT INDEXED WHERE number >= ? AND number < ?"  # noqa: S608
PUT_EVENT: Final = "INSERT OR IGNORE INTO events(session, seq, at_ms, turn, body) VALUES(?, ?, ?, ?, ?)"
PUT_SESSION: Final = f"INSERT OR IGNORE INTO sessions({COLUMNS}) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
LOST_ID: Final = "lost-{number}"


@attrs.define
class Saved:
    """What came of it: sessions and events in the new file, and what was lost."""

    sessions: int = 0
    events: int = 0
    lost: list[Finding] = attrs.field(factory=list)


def salvage(path: Path, to: Path, codec: Codec, folds: Folds, told: Callable[[int], None]) -> Saved:
    """Read all rows that can be read, and keep of each session what is a whole log from its beginning.

    Raises `LogError` when nothing can be read at all; then there is no new file.
    """
    saved = Saved()
    try:
        with contextlib.closing(open_reader(path, BUSY_S)) as old:
            old.text_factory = lambda raw: raw.decode("utf-8", "replace")
            check_version(old, path)
            old.execute("BEGIN")  # one moment of a file that somebody may be writing to
            old.execute("SELECT count(*) FROM sqlite_master").fetchone()
            with contextlib.closing(open_writer(to, full=True, busy_s=BUSY_S)) as new:
                new.execute("BEGIN IMMEDIATE")
                _copy(old, new, saved, told)
                _judge(new, codec, folds, saved)
                new.execute("COMMIT")
                new.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        raise explained(path, "read", error) from None
    return saved


def _copy(old: sqlite3.Connection, new: sqlite3.Connection, saved: Saved, told: Callable[[int], None]) -> None:
    for row in _rows(old, SESSIONS, "sessions", "number", saved):
        if all(isinstance(one, int) for one in (row[1], row[8 + 1])) and isinstance(row[2], str):
            new.execute(PUT_SESSION, row[1:])
    for done, row in enumerate(_rows(old, EVENTS, "events", "rowid", saved), 1):
        if all(isinstance(one, int) for one in row[1:4]) and isinstance(row[5], bytes):
            new.execute(PUT_EVENT, row[1:])
        told(done)


def _rows(old: sqlite3.Connection, query: str, table: str, key: str, saved: Saved) -> Iterator[tuple[Any, ...]]:
    """The rows that can be read, in the order of their keys."""
    last = _last(old, table, key)
    lost = 0
    for low in range(0, last + 1, ROWS_MAX):
        waiting = [(low, low + ROWS_MAX)]
        while waiting:
            begin, end = waiting.pop()
            try:
                rows = old.execute(query, (begin, end)).fetchall()
            except sqlite3.Error:
                if end - begin > 1:
                    middle = (begin + end) // 2
                    waiting += [(middle, end), (begin, middle)]
                else:
                    lost += 1
                continue
            yield from rows
    if lost:
        saved.lost.append(Finding(None, None, f"up to {lost} rows of the table {table} cannot be read", BEFORE))


def _last(old: sqlite3.Connection, table: str, key: str) -> int:
    """The greatest key; where its page is damaged as many as the file could hold."""
    try:
        (last,) = old.execute(f"SELECT coalesce(max({key}), -1) FROM {table} NOT INDEXED").fetchone()  # noqa: S608
        return int(last)
    except sqlite3.Error:
        (pages,) = old.execute("PRAGMA page_count").fetchone()
        (page_bytes,) = old.execute("PRAGMA page_size").fetchone()
        return int(pages * page_bytes) // 24


def _judge(new: sqlite3.Connection, codec: Codec, folds: Folds, saved: Saved) -> None:
    """Keep the beginning of each session up to its first gap or unreadable event, and make its header fit."""
    numbers = {number for (number,) in new.execute("SELECT DISTINCT session FROM events")}
    known = dict(new.execute("SELECT number, id FROM sessions"))
    for number in sorted(numbers | known.keys()):
        id_ = known.get(number)
        checker, why = _whole(new, number, codec, folds)
        if checker.opened is None:
            new.execute("DELETE FROM events WHERE session = ?", (number,))
            new.execute("DELETE FROM sessions WHERE number = ?", (number,))
            saved.lost.append(Finding(id_ or f"number {number}", 0, why or "it has no events", "all of it is lost"))
            continue
        cut = new.execute("DELETE FROM events WHERE session = ? AND seq >= ?", (number, checker.seq)).rowcount
        if why is not None:
            kept = f"{checker.seq} events before it are saved, {cut} behind it are not"
            saved.lost.append(Finding(id_, checker.seq, why, kept))
        if id_ is None:
            id_ = _named(new, number, checker, set(known.values()))
            known[number] = id_
            saved.lost.append(Finding(id_, None, "its header is lost", "it was made anew from its log"))
        new.execute(
            "UPDATE sessions SET due_ms = CASE status WHEN 'idle' THEN ? END WHERE number = ?", (checker.due_ms, number)
        )
        saved.sessions, saved.events = saved.sessions + 1, saved.events + checker.seq


def _whole(new: sqlite3.Connection, number: int, codec: Codec, folds: Folds) -> tuple[Checker, str | None]:
    checker = Checker(codec, folds)
    rows = new.execute("SELECT seq, at_ms, turn, body FROM events WHERE session = ? ORDER BY seq", (number,))
    for row in rows:
        try:
            checker.take(Record(*row))
        except CallboardError as error:
            return checker, str(error)
    return checker, None


def _named(new: sqlite3.Connection, number: int, checker: Checker, taken: set[str]) -> str:
    """A header from the log: a root's id stands there, an agent's does not."""
    opened = checker.opened
    if opened is None:
        raise LogError(f"session number {number} has no opening.")
    id_ = opened.root if opened.parent is None and opened.root else LOST_ID.format(number=number)
    while id_ in taken:
        id_ += "~"
    row = (number, id_, opened.parent, opened.root or id_, opened.path, opened.title, "idle", None)
    new.execute(PUT_SESSION, (*row, checker.at_ms, checker.at_ms))
    return id_

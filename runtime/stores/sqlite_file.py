"""The SQLite file: where it may lie, whose it is, its tables and version; and connections to it."""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from callboard.actors.errors import LogError, UsageError
from callboard.runtime.clock import steady_s

APPLICATION_CODE = 0x43414C4C
"""SQLite's application_id of our files: "CALL"."""

STEPS: tuple[tuple[str, ...], ...] = (
    (
        # `lease_ms` is not used: the lease is the owner's, in the table of owners.
        """CREATE TABLE sessions(
            number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, parent TEXT, root TEXT NOT NULL DEFAULT '',
            path TEXT NOT NULL DEFAULT '/root', title TEXT, status TEXT NOT NULL DEFAULT 'idle', due_ms INTEGER,
            created_ms INTEGER NOT NULL DEFAULT 0, updated_ms INTEGER NOT NULL DEFAULT 0,
            owner TEXT, epoch INTEGER NOT NULL DEFAULT 0, lease_ms INTEGER)""",
        # Rows lie in the order they were written, which is what makes commits small. A session's number stands for
        # its id: 15 percent smaller and a fifth faster than the id itself.
        """CREATE TABLE events(session INTEGER NOT NULL, seq INTEGER NOT NULL, at_ms INTEGER NOT NULL, turn INTEGER,
            body BLOB NOT NULL)""",
        "CREATE UNIQUE INDEX events_place ON events(session, seq)",
    ),
    # Few sessions have something that comes due, and the alarm looks for them every minute.
    ("CREATE INDEX sessions_due ON sessions(due_ms, id) WHERE due_ms NOTNULL",),
    (
        # One lease for each program and not for each session: renewing is one row, whatever it owns.
        "CREATE TABLE owners(owner TEXT PRIMARY KEY, lease_ms INTEGER NOT NULL, about TEXT NOT NULL) WITHOUT ROWID",
        """CREATE TABLE snapshots(session INTEGER NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL,
            seq INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY(session, key))""",
    ),
)
"""The statements that lead from each version of the file to the next, from the empty file on."""

SCHEMA_VERSION = len(STEPS)
BUSY_PAUSE_S = 0.01
CACHE_BYTES = 16 << 20
STATEMENTS_MAX = 64

ADVICE: Mapping[int, str] = MappingProxyType(
    {
        sqlite3.SQLITE_BUSY: "another program holds the file; end it, or use another file",
        sqlite3.SQLITE_LOCKED: "another program holds the file; end it, or use another file",
        sqlite3.SQLITE_FULL: "the disk is full; free some space",
        sqlite3.SQLITE_READONLY: "the file cannot be written; make it and its folder writable",
        sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; make it and its folder writable",
        sqlite3.SQLITE_IOERR: "the disk reports an error; check it",
        sqlite3.SQLITE_CORRUPT: "the file is damaged; restore a copy of it",
        sqlite3.SQLITE_NOTADB: "it is not a SQLite database; use another file",
    }
)


def code_of(error: Exception) -> int:
    """SQLite's primary result code, 0 for an error of the Python module itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def explained(path: Path, doing: str, error: sqlite3.Error | UnicodeDecodeError) -> LogError:
    """One sentence: what failed, on which file, why, and what to do.

    A UnicodeDecodeError is one of SQLite's, whose message quotes a damaged file.
    """
    damaged = isinstance(error, UnicodeDecodeError)
    advice = ADVICE.get(sqlite3.SQLITE_CORRUPT if damaged else code_of(error), "check the file")
    return LogError(f"cannot {doing} {path}: {error}: {advice}.")


def check_place(path: Path) -> None:
    """Refuse a path that cannot become a store's file; changes nothing. Raises `UsageError`."""
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder: name a file in it, such as {path / 'callboard.db'}.")
        folder = next(up for up in path.absolute().parents if up.exists())
        if not folder.is_dir():
            raise UsageError(f"{folder} is no folder, so {path} cannot be a file in it: use another path.")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UsageError(f"folder {folder} cannot be written, and the store keeps three files there: use another.")
        if path.exists() and not os.access(path, os.R_OK | os.W_OK):
            raise UsageError(f"{path} cannot be read and written: change its mode, or use another file.")
    except OSError as error:
        raise UsageError(f"{path} cannot be reached: {error.strerror}: use another path.") from None


def make_place(path: Path) -> None:
    """Create the file, 0600, and the folders that miss, 0700. Raises `UsageError`."""
    check_place(path)
    try:
        for folder in reversed([up for up in path.absolute().parents if not up.exists()]):
            folder.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.touch(mode=0o600, exist_ok=False)
    except OSError as error:
        raise UsageError(f"{path} cannot be created: {error.strerror}: use another path.") from None


Lying: TypeAlias = tuple[tuple[int, int] | None, tuple[int, int] | None]


def lying_at(place: str) -> Lying:
    """Which file lies there and which write-ahead log, by device and number; None for one that is not there.

    An `OSError` where nobody may look.
    """
    return _number_of(place), _number_of(f"{place}-wal")


def _number_of(place: str) -> tuple[int, int] | None:
    try:
        seen = os.stat(place)  # noqa: PTH116 - half the time of a Path, at each commit
    except (FileNotFoundError, NotADirectoryError):
        return None
    return seen.st_dev, seen.st_ino


def open_writer(path: Path, *, full: bool, busy_s: float) -> sqlite3.Connection:
    """The one connection that writes and checkpoints; makes or migrates the file, and waits `busy_s` for a lock.

    It never waits for a lock afterwards. Raises `LogError` for a file that is foreign, newer or locked.
    """
    make_place(path)
    with contextlib.ExitStack() as undo:
        try:
            db = _connect(path, "rw", busy_s)
            undo.callback(db.close)
            _settle(db, path, busy_s)
            _tune(db, full=full)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise explained(path, "open", error) from None
        undo.pop_all()
        return db


def _tune(db: sqlite3.Connection, *, full: bool) -> None:
    db.execute(f"PRAGMA synchronous={'FULL' if full else 'NORMAL'}")
    db.execute(f"PRAGMA fullfsync={'ON' if full else 'OFF'}")  # macOS: its fsync leaves data in the drive's cache
    db.execute("PRAGMA wal_autocheckpoint=0")
    db.execute(f"PRAGMA cache_size={-CACHE_BYTES // 1024}")
    db.execute("PRAGMA busy_timeout=0")


def open_reader(path: Path, busy_s: float) -> sqlite3.Connection:
    """A connection that cannot write."""
    db = _connect(path, "ro", busy_s)
    db.execute("PRAGMA query_only=ON")
    return db


def _connect(path: Path, mode: str, busy_s: float) -> sqlite3.Connection:
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=busy_s,
        cached_statements=STATEMENTS_MAX,
    )
    db.execute("PRAGMA mmap_size=0")  # a mapped file turns a disk error into a crash
    return db


def _settle(db: sqlite3.Connection, path: Path, busy_s: float) -> None:
    """Migrate; SQLite does not wait for every lock by itself, as when two programs make the file at once."""
    until_s = steady_s() + busy_s
    while True:
        try:
            _migrate(db, path)
            return
        except sqlite3.OperationalError as error:
            if code_of(error) != sqlite3.SQLITE_BUSY or steady_s() > until_s:
                raise
        threading.Event().wait(BUSY_PAUSE_S)


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    check_version(db, path)  # before anything is changed: the file may be foreign
    (mode,) = db.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise LogError(f"{path} cannot have a write-ahead log, its journal mode stays {mode}: use a local disk.")
    if check_version(db, path) == SCHEMA_VERSION:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for statements in STEPS[check_version(db, path) :]:
            for statement in statements:
                db.execute(statement)
        db.execute(f"PRAGMA application_id={APPLICATION_CODE}")
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _whose(db: sqlite3.Connection) -> tuple[int, int, int]:
    """Application id, version and number of tables, as they were at one moment: another program may be making them."""
    alone = not db.in_transaction
    if alone:
        db.execute("BEGIN")
    try:
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    finally:
        if alone:
            db.execute("ROLLBACK")
    return application, version, tables


def check_version(db: sqlite3.Connection, path: Path) -> int:
    """The version of the file, 0 when it is empty; raises `LogError` when it is foreign or newer."""
    application, version, tables = _whose(db)
    if application != APPLICATION_CODE and (application or version or tables):
        raise LogError(f"{path} belongs to another program (application id {application}): use another file.")
    if version > SCHEMA_VERSION:
        raise LogError(
            f"{path} has version {version} and this build knows up to {SCHEMA_VERSION}: install a newer callboard."
        )
    return int(version)

"""How a group of appends becomes rows in one transaction, and which session of it is refused."""

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final

from callboard.actors.errors import LogError
from callboard.actors.store import Due, Header, Record, Snapshot
from callboard.runtime.clock import steady_s
from callboard.runtime.stores.owners import taken_over
from callboard.runtime.stores.snaps import Snaps
from callboard.runtime.stores.sqlite_file import code_of, explained, lying_at
from callboard.runtime.stores.sqlite_names import rename
from callboard.runtime.stores.sqlite_own import Owning, Refused
from callboard.runtime.stores.sqlite_wide import ROWS_MAX, Wide
from callboard.runtime.stores.writing import Claim, Entry, Release, Rename, Trouble, Wish

SNAP: Final = (
    "INSERT INTO snapshots SELECT ?, ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM sessions WHERE number = ? AND owner = ?"
    " AND epoch = ?) AND EXISTS (SELECT 1 FROM events WHERE session = ? AND seq = ?) ON CONFLICT(session, key)"
    " DO UPDATE SET version = excluded.version, seq = excluded.seq, body = excluded.body"
)
"""With the epoch being ours, the records up to a stored one are those that the snapshot was made of."""

WAL_PAGES_MAX: Final = 1_000
"""The log is checkpointed when it is about so long and nobody waits, or four times so long."""
PAGE_BYTES: Final = 3_500
"""What of a page holds bodies."""

LOOK_S: Final = 0.05
"""So often it is looked whether the file is still where it was, when no commit waits for the disk."""
MOVED: Final = (
    "{path} was removed, moved or replaced while this program writes to it, and what it wrote now nobody would find: "
    "put the file and its -wal back, or end this program."
)

# The rows themselves are at fault, and no other disk would take them: a number that is taken or too large, a wrong
# type, a body over SQLite's limit.
ROW_ERRORS: Final = (
    *(sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, sqlite3.InterfaceError),
    *(OverflowError, UnicodeError),
)


class Rows:
    """Writes groups of appends through the one writing connection, a transaction each."""

    def __init__(self, db: sqlite3.Connection, path: Path, own: Owning, *, full: bool) -> None:
        self.db, self._path, self.name, self._own, self._full = db, path, str(path), own, full
        self.refused: dict[str, LogError] = {}
        """Sessions that write no more through this store until they are claimed again, and why."""
        self.snaps = Snaps()
        self._wal_pages = 0
        self._real = os.path.realpath(path)
        self._lies, self._looked_s = lying_at(self._real), 0.0
        # Who owns the session is asked with each row: a stale epoch finds no number, no row may have none, and so
        # nothing of the statement is written.
        self._events = Wide(
            "INSERT INTO events SELECT number, column3, column4, column5, column6 FROM ",
            6,
            " LEFT JOIN sessions ON number = column1 AND epoch = column2 WHERE column1 NOTNULL",
        )
        self._headers = Wide(
            "INSERT INTO sessions(id,parent,root,path,title,status,due_ms,created_ms,updated_ms,owner,epoch)"
            " SELECT *, ?, 1 FROM ",
            9,
            " WHERE column1 NOTNULL ON CONFLICT(id) DO UPDATE SET parent=excluded.parent, root=excluded.root,"
            " path=excluded.path, title=excluded.title, status=excluded.status, due_ms=excluded.due_ms,"
            " created_ms=excluded.created_ms, updated_ms=excluded.updated_ms",
            own.owner,
        )
        self._bare = Wide(
            "INSERT INTO sessions(id,created_ms,owner,epoch) SELECT *, ?, 1 FROM ",
            2,
            " WHERE column1 NOTNULL ON CONFLICT(id) DO NOTHING",
            own.owner,
        )
        self._dues = Wide("UPDATE sessions SET due_ms = column2 FROM ", 2, " WHERE id = column1")

    def write(self, entries: Sequence[Entry]) -> None:
        """Make all entries durable but those of sessions in `refused`, which may grow by this.

        Raises `Trouble` when the disk does not take them; then nothing was written.
        """
        self._own.trim()
        self._check_place()
        try:
            try:
                self._together(entries)
            except (Refused, *ROW_ERRORS):
                self._roll_back()
                self._apart(entries)
        except sqlite3.Error as error:
            self._roll_back()
            raise self._trouble(error) from None
        self._own.settled()
        self._wal_pages += 2 + len(entries) + sum(entry.size_bytes for entry in entries) // PAGE_BYTES

    def _check_place(self) -> None:
        """Raise `Trouble` when the path leads to another file by now: SQLite would write to one without a name."""
        now_s = steady_s()
        if not self._full and now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        try:
            lies = lying_at(self._real)
        except OSError:  # nobody may look there, which says nothing
            return
        if self._lies[1] is None:  # the log is made at the first write
            self._lies = (self._lies[0], lies[1])
        if lies != self._lies:
            self._looked_s = 0.0  # the next try looks again
            raise Trouble(LogError(MOVED.format(path=self._path)), passing=True, silent=False)

    def _trouble(self, error: sqlite3.Error) -> Trouble:
        busy = code_of(error) == sqlite3.SQLITE_BUSY
        passing = isinstance(error, sqlite3.OperationalError)
        return Trouble(explained(self._path, "write to", error), passing=passing, silent=passing and busy)

    def is_ours(self, session: str) -> bool:
        """Whether nothing has to be asked to know that we own it."""
        return session in self._own.numbers and self._own.is_sure()

    def grant(self, wishes: Sequence[Wish]) -> Mapping[str, LogError]:
        """Claim, release and rename in order; the sessions of wishes that cannot be, and why. Raises `Trouble`."""
        denied: dict[str, LogError] = {}
        self._check_place()
        if self.snaps.wait_for({wish.session for wish in wishes if isinstance(wish, Release)}):
            self._keep()  # who is released is nobody's then
        try:
            self.db.execute("BEGIN IMMEDIATE")
            self._own.enter()
            for names, some in groupby(wishes, lambda wish: isinstance(wish, Rename)):
                few = list(some)
                denied |= self._rename(few) if names else self._own.grant(few)
            self.db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise self._trouble(error) from None
        self._own.settled()
        self._wal_pages += 2 + len(wishes) // 8
        for wish in wishes:
            if not isinstance(wish, Release) and wish.session not in denied:
                for name in (wish.session,) if isinstance(wish, Claim) else wish.names:
                    self.refused.pop(name, None)
        return denied

    def _rename(self, wishes: Iterable[Wish]) -> dict[str, LogError]:
        denied: dict[str, LogError] = {}
        for wish in wishes:
            if isinstance(wish, Rename):
                self.snaps.forget(wish.names)
            if isinstance(wish, Rename) and (why := rename(self.db, self._own, wish, _header_row)) is not None:
                denied[wish.session] = why
        return denied

    def renew(self) -> None:
        """Make the lease last again if that is due. It need not survive a power cut: nothing waits for the disk."""
        try:
            with self._unsynced():
                self._wal_pages += self._own.renew_if_due()
        except sqlite3.Error as error:
            raise self._trouble(error) from None

    def wants_rest(self) -> bool:
        """Whether the write-ahead log is long, or snapshots wait to be kept."""
        return self._wal_pages >= WAL_PAGES_MAX or self.snaps.are_due(busy=False)

    def rest(self, *, waiting: bool) -> None:
        """Keep snapshots, and checkpoint, unless somebody waits and neither has waited for long."""
        if self.snaps.are_due(busy=waiting):
            self._keep()
        if self._wal_pages >= WAL_PAGES_MAX * (4 if waiting else 1):
            self._checkpoint("PASSIVE")

    def _checkpoint(self, kind: str) -> None:
        self._wal_pages = 0
        with contextlib.suppress(sqlite3.Error):  # the log stays as it is, and a disk that fails says so at a commit
            self.db.execute(f"PRAGMA wal_checkpoint({kind})")

    def _keep(self) -> bool:
        """Write some snapshots of ours whose records are stored, and say whether there were any.

        No power cut needs to spare them.
        """
        own, kept = self._own, dict[tuple[str, str], Snapshot]()
        some = self.snaps.some(own.numbers)
        try:
            with self._unsynced():
                self.db.execute("BEGIN IMMEDIATE")
                for key, one in some.items():
                    number, epoch = own.numbers[key[0]], own.epochs.get(key[0], 1)
                    name = one.key.encode("utf-8", "replace").decode()
                    row = (number, name, one.version, one.seq, one.body, number, own.owner, epoch, number, one.seq)
                    if self.db.execute(SNAP, row).rowcount:
                        kept[key] = one
                        self._wal_pages += 1 + len(one.body) // PAGE_BYTES
                self.db.execute("COMMIT")
            self.snaps.wrote(kept)
        except (sqlite3.Error, OverflowError):  # a cache, and one of them may be what no file can hold
            self._roll_back()
            self.snaps.clear()
        return bool(kept)

    @contextlib.contextmanager
    def _unsynced(self) -> Iterator[None]:
        """What is committed here survives this program, and waits for no disk."""
        if self._full:
            self.db.execute("PRAGMA synchronous=NORMAL")
        try:
            yield
        finally:
            if self._full:
                self.db.execute("PRAGMA synchronous=FULL")

    def close(self) -> None:
        """Own nothing any more, checkpoint, and close the connection."""
        while self._keep():
            pass
        with contextlib.suppress(sqlite3.Error):  # then others see that this program is gone, or wait for the lease
            self._own.leave()
        self._checkpoint("TRUNCATE")
        self.db.close()

    def _together(self, entries: Sequence[Entry]) -> None:
        """The common group is one statement, which is a transaction by itself."""
        numbers = self._own.numbers
        plain = all(
            entry.header is None and entry.due is None and not entry.first and entry.session in numbers
            for entry in entries
        )
        if plain and sum(len(entry.records) for entry in entries) <= ROWS_MAX:
            self._put(entries)
            return
        self.db.execute("BEGIN IMMEDIATE")
        self._own.enter()
        self._put(entries)
        self.db.execute("COMMIT")

    def _apart(self, entries: Sequence[Entry]) -> None:
        """Session by session, each under a savepoint: one that is refused takes no other with it."""
        by_session: dict[str, list[Entry]] = {}
        for entry in entries:
            by_session.setdefault(entry.session, []).append(entry)
        refused: dict[str, LogError] = {}
        self.db.execute("BEGIN IMMEDIATE")
        self._own.enter()
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
        self._own.forget(refused)

    def _put(self, entries: Sequence[Entry]) -> None:
        """The statements of a group."""
        own, numbers, epochs = self._own, self._own.numbers, self._own.epochs
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
        if headers or unknown:  # the records of any other session are asked for its epoch
            firsts: dict[str, int | None] = dict.fromkeys(headers)
            firsts.update((session, first.seq) for session, first in unknown.items())
            own.meet(firsts)
        dues = _last_dues(entries)
        if dues:
            self._dues.run(self.db, [(session, due.at_ms) for session, due in dues.items()])
        self._events.run(
            self.db,
            [
                (
                    numbers[entry.session],
                    epochs.get(entry.session, 1),
                    record.seq,
                    record.at_ms,
                    record.turn,
                    record.body,
                )
                for entry in entries
                for record in entry.records
            ],
        )

    def _sentence(self, session: str, error: Exception) -> LogError:
        if isinstance(error, Refused):
            return error.why
        if isinstance(error, sqlite3.IntegrityError):
            return taken_over(session, self.name)
        return LogError(f"session {session!r} has a record that {self._path} cannot hold: {error}.")

    def _roll_back(self) -> None:
        self._own.undone()
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

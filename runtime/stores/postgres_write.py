"""How a group of appends becomes rows of PostgreSQL in one transaction, whoever else writes, or breaks, meanwhile."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from callboard.actors.errors import LogError
from callboard.actors.store import Due, Header, Record
from callboard.runtime.stores.owners import taken_over
from callboard.runtime.stores.postgres_names import rename
from callboard.runtime.stores.postgres_own import Owning, Refused
from callboard.runtime.stores.postgres_place import Address, Bounded, code_of, connect_writer, explained, is_passing
from callboard.runtime.stores.postgres_rows import PLAIN, SNAP, WHOLE
from callboard.runtime.stores.postgres_tables import settle
from callboard.runtime.stores.snaps import Snaps
from callboard.runtime.stores.writing import Claim, Entry, Release, Rename, Trouble, Wish

# The rows themselves are at fault, and no other server would take them.
ROW_ERRORS: Final = (Refused, psycopg.DataError, psycopg.IntegrityError, OverflowError, UnicodeError, TypeError)
TOO_LARGE_CODE: Final = "54"
ROWS_PER_S_MIN: Final = 2_000
BYTES_PER_S_MIN: Final = 1 << 20
"""A server that is slower with a large group, as after it was gone for a while, is taken for one that is gone."""

LOCKED_CODES: Final = ("55P03", "40")
"""Another program was in the way, and may be gone."""


class PostgresRows:
    """Writes groups of appends through the one writing connection, and makes a new one when that breaks."""

    def __init__(self, address: Address, own: Owning, *, full: bool, limit_s: float) -> None:
        self.name = f"the {address.shown}"
        self.refused: dict[str, LogError] = {}
        """Sessions that write no more through this store until they are claimed again, and why."""
        self._address, self._own, self._full, self._limit_s = address, own, full, limit_s
        self.snaps = Snaps()
        self._db: Bounded | None = None
        self._backend: tuple[int, str] | None = None  # at the server's end of the last connection

    def open(self) -> None:
        """Connect, make or migrate the tables, take out a lease. Raises `LogError`."""
        try:
            db = self._connected()
            settle(db, self._address)
            self._own.renew(db)
        except psycopg.Error as error:
            self._drop()
            raise explained(self._address, "open", error) from None
        except LogError:
            self._drop()
            raise

    # -- what group commit asks for ------------------------------------------------------------------------------------

    def is_ours(self, session: str) -> bool:
        """Whether nothing has to be asked to know that we own it."""
        return self._own.is_known(session) and self._own.is_sure() and session not in self.refused

    def write(self, entries: Sequence[Entry]) -> None:
        """Make all entries durable but those of sessions in `refused`, which may grow by this.

        Raises `Trouble` when the server does not take them. Then nothing was written, or the connection broke in the
        middle: what is stored is looked at before it is written again.
        """
        self._own.trim()
        try:
            db = self._connected()
            try:
                self._together(db, entries)
            except (*ROW_ERRORS, psycopg.Error) as error:
                self._own.undone()
                if not _is_of_rows(error):
                    raise
                self._apart(db, entries)
        except psycopg.Error as error:
            raise self._trouble(error, entries) from None
        self._own.settled(entry.session for entry in entries)

    def grant(self, wishes: Sequence[Wish]) -> Mapping[str, LogError]:
        """Claim, release and rename in order; the sessions of wishes that cannot be, and why. Raises `Trouble`."""
        denied: dict[str, LogError] = {}
        if self.snaps.wait_for({wish.session for wish in wishes if isinstance(wish, Release)}):
            self.rest(waiting=False)  # who is released is nobody's then
        try:
            db = self._connected()
            with db.transaction():
                for names, some in groupby(wishes, lambda wish: isinstance(wish, Rename)):
                    few = list(some)
                    denied |= self._rename(db, few) if names else self._own.grant(db, few)
        except psycopg.Error as error:
            raise self._trouble(error) from None
        self._own.settled(())
        for wish in wishes:
            if not isinstance(wish, Release) and wish.session not in denied:
                for name in (wish.session,) if isinstance(wish, Claim) else wish.names:
                    self.refused.pop(name, None)
        return denied

    def _rename(self, db: Bounded, wishes: Iterable[Wish]) -> dict[str, LogError]:
        denied: dict[str, LogError] = {}
        for wish in wishes:
            if isinstance(wish, Rename):
                why = rename(db, self._own, wish, _header_row)
                denied |= {} if why is None else {wish.session: why}
                self.snaps.forget(wish.names)
        return denied

    def renew(self) -> None:
        """Make the lease last again if that is due. Raises `Trouble`."""
        if self._own.is_due():
            try:
                self._own.renew(self._connected())
            except psycopg.Error as error:
                raise self._trouble(error) from None

    def wants_rest(self) -> bool:
        """Whether snapshots wait to be kept."""
        return self.snaps.are_due(busy=False)

    def rest(self, *, waiting: bool) -> None:
        """Keep snapshots, once they wait for long or nobody waits for a commit."""
        if self.snaps.are_due(busy=waiting):
            try:
                self._snap(self._connected())
            except (psycopg.Error, OverflowError, TypeError) as error:
                self.snaps.clear()  # a cache, and one of them may be what the server cannot hold
                if isinstance(error, psycopg.Error):
                    self._trouble(error)

    def _snap(self, db: Bounded) -> None:
        """Write some of those whose session is ours and whose records are stored."""
        held = self._own.held
        some = self.snaps.some(held)
        if not some:
            return
        owns = [held[session] for session, _ in some]
        columns = (
            [own.number for own in owns],
            [own.epoch for own in owns],
            [name.encode("utf-8", "replace") for _, name in some],
            [one.version for one in some.values()],
            [one.seq for one in some.values()],
            [one.body for one in some.values()],
        )
        kept = set(db.cursor(binary=True).execute(SNAP, columns).fetchall())
        names = {key: (held[key[0]].number, key[1].encode("utf-8", "replace")) for key in some}
        self.snaps.wrote({key: one for key, one in some.items() if names[key] in kept})

    def close(self) -> None:
        """Own nothing any more, so that others have our sessions at once, and end the connection."""
        if self._db is not None:
            self.rest(waiting=False)
        if self._db is not None:
            with contextlib.suppress(psycopg.Error):  # then others see that this program is gone, or wait for the lease
                self._own.leave(self._db)
        self._drop()

    # -- the connection ------------------------------------------------------------------------------------------------

    def _connected(self) -> Bounded:
        if self._db is None:
            db = connect_writer(self._address, self._limit_s, full=self._full)
            with contextlib.ExitStack() as undo:
                undo.callback(db.close)
                self._end_last(db)
                undo.pop_all()
            self._db = db
        return self._db

    def _end_last(self, db: Bounded) -> None:
        """End what is left at the server of the connection that broke: nothing of it may come after what comes now."""
        if self._backend is not None:
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
                db.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE pid = %b::bigint::int AND backend_start::text = %b",
                    self._backend,
                )
        rows = db.execute("SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()")
        self._backend = rows.fetchone()

    def _drop(self, doubtful: Iterable[str] = ()) -> None:
        db, self._db = self._db, None
        self._own.lost(doubtful)
        if db is not None:
            db.close()

    def _trouble(self, error: psycopg.Error, entries: Sequence[Entry] = ()) -> Trouble:
        """In words; a connection in the middle of anything is of no use, and leaves the group in doubt."""
        self._own.undone()
        if self._db is not None and self._db.info.transaction_status != TransactionStatus.IDLE:
            self._drop(entry.session for entry in entries)
        passing, locked = is_passing(error), code_of(error).startswith(LOCKED_CODES)
        return Trouble(explained(self._address, "write to", error), passing=passing, silent=passing and locked)

    # -- a group -------------------------------------------------------------------------------------------------------

    def _together(self, db: Bounded, entries: Sequence[Entry]) -> None:
        """The common group is one statement, which is a transaction by itself."""
        for entry in entries if self.refused else ():
            if entry.session in self.refused:
                raise Refused(self.refused[entry.session])
        unknown: dict[str, Record | None] = {}
        for entry in entries:
            if (entry.first or not self._own.is_known(entry.session)) and unknown.get(entry.session) is None:
                unknown[entry.session] = entry.records[0] if entry.records else None
        if unknown:
            with db.transaction():
                self._put(db, entries, self._own.meet(db, unknown))
        else:
            self._put(db, entries, {})

    def _apart(self, db: Bounded, entries: Sequence[Entry]) -> None:
        """Session by session, each under a savepoint: one that is refused takes no other with it."""
        by_session: dict[str, list[Entry]] = {}
        for entry in entries:
            by_session.setdefault(entry.session, []).append(entry)
        refused: dict[str, LogError] = {}
        with db.transaction():
            for session, own in by_session.items():
                try:
                    with db.transaction():
                        self._together(db, own)
                except (*ROW_ERRORS, psycopg.Error) as error:
                    if not _is_of_rows(error):
                        raise
                    refused[session] = self._sentence(session, error)
        for session, why in refused.items():
            self.refused.setdefault(session, why)
        self._own.forget(refused)

    def _put(self, db: Bounded, entries: Sequence[Entry], stored: Mapping[str, int]) -> None:
        """The one statement of a group; it writes nothing when one of the sessions is not ours any more.

        Up to its record in `stored` a session has what is to be written.
        """
        held = {entry.session: self._own.held[entry.session] for entry in entries}
        rows = [
            (held[entry.session].number, record.seq, record.at_ms, record.turn, record.body)
            for entry in entries
            for record in entry.records
            if entry.session not in stored or record.seq > stored[entry.session]
        ]
        size_bytes = sum(len(row[4]) for row in rows)
        db.limit_s = self._limit_s + len(rows) / ROWS_PER_S_MIN + size_bytes / BYTES_PER_S_MIN
        mine = [one.number for one in held.values()], [one.epoch for one in held.values()], len(held)
        events = _columns(rows, 5)
        headers, dues = _changes(entries)
        if headers or dues:
            heads = _columns([_header_row(held[session].number, *pair) for session, pair in headers.items()], 9)
            times = _columns([(held[session].number, due.at_ms) for session, due in dues.items()], 2)
            found = db.execute(WHOLE, (*mine, *events, *heads, *times)).fetchone()
        else:
            found = db.execute(PLAIN, (*mine, *events)).fetchone()
        db.limit_s = self._limit_s
        if found is None or found[0] != len(held):
            raise Refused(taken_over(next(iter(held)), self.name))

    def _sentence(self, session: str, error: Exception) -> LogError:
        if isinstance(error, Refused):
            return error.why
        if isinstance(error, psycopg.IntegrityError):
            return taken_over(session, self.name)
        what = (str(error).splitlines() or [type(error).__name__])[0]
        return LogError(f"session {session!r} has a record that {self.name} cannot hold: {what:.200}.")


def _is_of_rows(error: Exception) -> bool:
    """Whether the rows themselves are at fault."""
    if isinstance(error, psycopg.ProgrammingError | psycopg.InterfaceError):
        return error.sqlstate is None  # psycopg has no written form for a value
    if isinstance(error, psycopg.OperationalError):
        return bool(error.sqlstate) and str(error.sqlstate).startswith(TOO_LARGE_CODE)
    return isinstance(error, ROW_ERRORS)


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> Sequence[list[Any]]:
    """Rows as one array for each column."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(count)]


def _changes(entries: Sequence[Entry]) -> tuple[dict[str, tuple[Header, int | None]], dict[str, Due]]:
    """The last header of each session with its due time, and the due times of sessions without a header."""
    headers: dict[str, tuple[Header, int | None]] = {}
    dues: dict[str, Due] = {}
    for entry in entries:
        if entry.header is not None:
            headers[entry.session] = (entry.header, entry.header.due_ms if entry.due is None else entry.due.at_ms)
        elif entry.due is not None and entry.session in headers:
            headers[entry.session] = (headers[entry.session][0], entry.due.at_ms)
        elif entry.due is not None:
            dues[entry.session] = entry.due
    return headers, {session: due for session, due in dues.items() if session not in headers}


def _header_row(number: int, header: Header, due_ms: int | None) -> tuple[Any, ...]:
    """The columns of a header; half a surrogate pair has no written form and becomes a question mark."""
    texts = (header.parent, header.root, header.path, header.title, header.status)
    written = (text if text is None else text.encode("utf-8", "replace") for text in texts)
    return (number, *written, due_ms, header.created_ms, header.updated_ms)

"""Rows of PostgreSQL become records and headers again, on a few connections that only read; from any thread."""

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import psycopg

from callboard.actors.errors import LogError
from callboard.actors.memory import CLOSED, check_id
from callboard.actors.store import Header, Place, Record, Snapshot
from callboard.runtime.stores.postgres_place import Address, Bounded, connect_reader, explained, is_passing
from callboard.runtime.stores.postgres_tables import version_of

READERS_MAX: Final = 4
"""Reading connections of one store; beyond it readers wait for each other."""

NUMBER: Final = "(SELECT number FROM sessions WHERE id = %b)"
RECORDS: Final = f"SELECT seq, at_ms, turn, body FROM events WHERE session = {NUMBER}"  # noqa: S608 - no value in it
# The last event says how many there are and when the session changed last: no commit has to write that down.
HEADERS: Final = (
    "SELECT id, parent, root, path, title, status, due_ms, created_ms,"
    " greatest(updated_ms, e.at_ms) AS changed_ms, coalesce(e.seq + 1, 0) FROM sessions LEFT JOIN LATERAL"
    " (SELECT seq, at_ms FROM events WHERE session = number ORDER BY seq DESC LIMIT 1) e ON true"
)
DUES: Final = (
    "SELECT due_ms, id FROM sessions WHERE due_ms IS NOT NULL AND due_ms <= %b AND (due_ms, id) > (%b, %b)"
    " ORDER BY due_ms, id LIMIT %b"
)
SNAPSHOTS: Final = (
    f"SELECT key, version, seq, body FROM snapshots s WHERE session = {NUMBER} AND EXISTS"  # noqa: S608 - no value in it
    " (SELECT 1 FROM events e WHERE e.session = s.session AND e.seq = s.seq)"
)
OPENING: Final = b'{"type":'
BIG_MAX = 2**63 - 1


class PostgresReading:
    """The reading half of the store: a connection for each reader at a time, at most READERS_MAX."""

    def __init__(self, address: Address, limit_s: float) -> None:
        self.name = address.shown
        self._address, self._limit_s = address, limit_s
        self._free = threading.BoundedSemaphore(READERS_MAX)
        self._idle: deque[Bounded] = deque()
        self._closed = threading.Event()

    def is_nothing(self) -> bool:
        """Whether nothing was ever written there."""
        try:
            with connect_reader(self._address, self._limit_s) as db:
                return not version_of(db, self._address)
        except psycopg.Error as error:
            raise explained(self._address, "read", error) from None

    def records(self, session: str, after: int, limit: int) -> list[Record]:
        """Records with seq > after, in order, at most `limit`."""
        check_id(session)
        rows = self._ask(f"{RECORDS} AND seq > %b ORDER BY seq LIMIT %b", session.encode(), after, max(limit, 0))
        return [Record(*row) for row in rows]

    def last(self, session: str, kinds: Sequence[str], before: int, limit: int) -> list[Record]:
        """Records with seq < before, newest first, that begin like one of these kinds or do not begin with a kind."""
        check_id(session)
        begins = [OPENING + msgspec.json.encode(kind) for kind in kinds]
        unlike = OPENING + b'"'
        tests = " OR ".join([*["substr(body, 1, %b::int) = %b"] * len(begins), "substr(body, 1, %b::int) <> %b"])
        values = [value for begin in (*begins, unlike) for value in (len(begin), begin)]
        query = f"{RECORDS} AND seq < %b AND ({tests}) ORDER BY seq DESC LIMIT %b"
        return [Record(*row) for row in self._ask(query, session.encode(), before, *values, max(limit, 0))]

    def header(self, session: str) -> Header | None:
        """The header of one session, None for an unknown one."""
        check_id(session)
        rows = self._ask(f"{HEADERS} WHERE id = %b", session.encode())
        return _header(rows[0]) if rows else None

    def headers(self) -> list[Header]:
        """All sessions, newest first: by their last change, then by who came last."""
        return [_header(row) for row in self._ask(f"{HEADERS} ORDER BY changed_ms DESC, number DESC")]

    def due(self, upto_ms: int, after: Place, limit: int) -> list[Place]:
        """The sessions that come due up to `upto_ms` and stand behind `after`, earliest first, at most `limit`."""
        at_ms, session = after
        rows = self._ask(DUES, upto_ms, at_ms, session.encode(), max(limit, 0))
        return [(due_ms, bytes(found).decode()) for due_ms, found in rows]

    def snapshots(self, session: str) -> list[Snapshot]:
        """What was kept of a session's projections and is not ahead of its records."""
        check_id(session)
        rows = self._ask(SNAPSHOTS, session.encode())
        return [Snapshot(bytes(key).decode(), *others) for key, *others in rows]

    def close(self) -> None:
        """Close what is idle; what is in use closes when its reader is done."""
        self._closed.set()
        while self._idle:
            self._idle.popleft().close()

    def _ask(self, query: str, *values: Any) -> list[Any]:
        """One query; asked again on a fresh connection when an idle one turns out to be broken."""
        if self._closed.is_set():
            raise LogError(CLOSED)
        if not self._free.acquire(timeout=2 * self._limit_s):
            raise LogError(f"cannot read the {self._address.shown}: all {READERS_MAX} readers are busy: try again.")
        try:
            values = tuple(min(max(value, -BIG_MAX), BIG_MAX) if isinstance(value, int) else value for value in values)
            return self._answer(query, values)
        finally:
            self._free.release()

    def _answer(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        while True:
            db, kept = None, bool(self._idle)
            try:
                db = self._idle.pop() if kept else connect_reader(self._address, self._limit_s)
                rows = db.cursor(binary=True).execute(query, values).fetchall()
            except psycopg.Error as error:
                if db is not None:
                    db.close()
                if not (kept and db is not None and is_passing(error)):
                    raise explained(self._address, "read", error) from None
                continue
            self._idle.append(db)
            if self._closed.is_set():  # in between
                self.close()
            return rows


def _header(row: Sequence[Any]) -> Header:
    texts: list[Any] = [text if text is None else bytes(text).decode() for text in row[:6]]
    return Header(*texts, *row[6:])

"""Rows become records and headers again, on connections that only read; from any thread."""

import sqlite3
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from callboard.actors.errors import LogError
from callboard.actors.memory import CLOSED, check_id
from callboard.actors.store import Header, Place, Record, Snapshot
from callboard.runtime.stores.sqlite_file import explained, open_reader

IDLE_MAX: Final = 4
"""Reading connections that are kept for the next reader."""

RECORDS: Final = "SELECT seq, at_ms, turn, body FROM events WHERE session = (SELECT number FROM sessions WHERE id = ?)"
# The last event says how many there are and when the session changed last: no commit has to write that down.
HEADERS: Final = (
    "SELECT id, parent, root, path, title, status, due_ms, created_ms,"
    " max(updated_ms, coalesce(e.at_ms, updated_ms)) AS changed_ms, coalesce(e.seq + 1, 0)"
    " FROM sessions LEFT JOIN events e ON e.rowid ="
    " (SELECT rowid FROM events WHERE session = number ORDER BY seq DESC LIMIT 1)"
)
DUES: Final = (
    "SELECT due_ms, id FROM sessions WHERE due_ms NOTNULL AND due_ms <= ? AND (due_ms, id) > (?, ?)"
    " ORDER BY due_ms, id LIMIT ?"
)
SNAPSHOTS: Final = (
    "SELECT key, version, s.seq, s.body FROM snapshots s JOIN events e ON e.session = s.session AND e.seq = s.seq"
    " WHERE s.session = (SELECT number FROM sessions WHERE id = ?)"
)
OPENING: Final = b'{"type":'


class Reading:
    """The reading half of the store: a connection for each reader at a time, IDLE_MAX kept in between."""

    def __init__(self, path: Path, busy_s: float) -> None:
        self.name = str(path)
        self._path, self._busy_s = path, busy_s
        self._idle: deque[sqlite3.Connection] = deque()
        self._closed = threading.Event()

    def is_nothing(self) -> bool:
        """Whether nothing was ever written there; no file is made by asking."""
        path = self._path
        return not path.exists() or (path.stat().st_size == 0 and not path.with_name(f"{path.name}-wal").exists())

    def records(self, session: str, after: int, limit: int) -> list[Record]:
        """Records with seq > after, in order, at most `limit`."""
        check_id(session)
        rows = self._ask(f"{RECORDS} AND seq > ? ORDER BY seq LIMIT ?", session, after, max(limit, 0))
        return [Record(*row) for row in rows]

    def snapshots(self, session: str) -> list[Snapshot]:
        """What was kept of a session's projections and is not ahead of its records."""
        check_id(session)
        return [Snapshot(*row) for row in self._ask(SNAPSHOTS, session)]

    def last(self, session: str, kinds: Sequence[str], before: int, limit: int) -> list[Record]:
        """Records with seq < before, newest first, that begin like one of these kinds or do not begin with a kind."""
        check_id(session)
        begins = [OPENING + msgspec.json.encode(kind) for kind in kinds]
        unlike = OPENING + b'"'
        tests = " OR ".join(["substr(body, 1, ?) = ?"] * len(begins) + ["substr(body, 1, ?) <> ?"])
        values = [value for begin in (*begins, unlike) for value in (len(begin), begin)]
        query = f"{RECORDS} AND seq < ? AND ({tests}) ORDER BY seq DESC LIMIT ?"
        return [Record(*row) for row in self._ask(query, session, before, *values, max(limit, 0))]

    def header(self, session: str) -> Header | None:
        """The header of one session, None for an unknown one."""
        check_id(session)
        rows = self._ask(f"{HEADERS} WHERE id = ?", session)
        return Header(*rows[0]) if rows else None

    def headers(self) -> list[Header]:
        """All sessions, newest first: by their last change, then by who came last."""
        return [Header(*row) for row in self._ask(f"{HEADERS} ORDER BY changed_ms DESC, number DESC")]

    def due(self, upto_ms: int, after: Place, limit: int) -> list[Place]:
        """The sessions that come due up to `upto_ms` and stand behind `after`, earliest first, at most `limit`."""
        return [(due_ms, session) for due_ms, session in self._ask(DUES, upto_ms, *after, max(limit, 0))]

    def close(self) -> None:
        """Close what is idle; what is in use closes when its reader is done."""
        self._closed.set()
        while self._idle:
            self._idle.popleft().close()

    def _ask(self, query: str, *values: Any) -> list[Any]:
        if self._closed.is_set():
            raise LogError(CLOSED)
        db = None
        try:
            db = self._idle.pop() if self._idle else open_reader(self._path, self._busy_s)
            rows = db.execute(query, values).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if db is not None:
                db.close()
            raise explained(self._path, "read", error) from None
        if len(self._idle) < IDLE_MAX:
            self._idle.append(db)
        else:
            db.close()
        if self._closed.is_set():  # in between
            self.close()
        return rows

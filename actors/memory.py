"""MemoryStore: the store that keeps nothing beyond the program; and the rules of `append` that all stores share."""

import heapq
from collections.abc import Callable, Mapping, Sequence

import msgspec

from callboard.actors.errors import Fenced, LogError, UsageError
from callboard.actors.notices import Flushed, Notice
from callboard.actors.store import FORKING, Change, Done, Due, Header, Place, Record, RunSoon, Snapshot

CLOSED = "the store is closed: open it before you use it."


def check_id(session: object) -> None:
    """Refuse an id that has no written form: raises `UsageError` for what is no text, or holds a lone surrogate."""
    if not isinstance(session, str):
        raise UsageError(f"a session id is text, got {type(session).__name__}.")
    try:
        session.encode()
    except UnicodeEncodeError:
        raise UsageError(f"session id {session!r} holds half a surrogate pair: use whole characters.") from None


def next_seq(session: str, records: Sequence[Record], expected: int | None) -> int | None:
    """The seq that follows `records`, given the one `expected` first (None: not known yet).

    Raises `LogError` on a gap, and `Fenced` when records of these numbers were taken before.
    """
    if not records:
        return expected
    first, last = records[0].seq, records[-1].seq
    if expected is not None and first != expected:
        raise misplaced(session, first, expected)
    if last - first + 1 != len(records):
        raise LogError(
            f"session {session!r}: {len(records)} records are numbered {first} to {last}: number one by one."
        )
    return last + 1


def misplaced(session: str, first: int, expected: int) -> LogError:
    """What to say about a record that is not the next one."""
    if first < expected:
        return Fenced(
            f"session {session!r}: record {first} is already taken, {expected} is next: another owner wrote to the "
            "session; end this one."
        )
    return LogError(f"session {session!r}: record {first} leaves a gap, {expected} is next: append in order.")


def may_be(kinds: Sequence[str]) -> Callable[[bytes], bool]:
    """Whether a body may be an event of one of these kinds, by its first bytes; one that hides its kind may be any."""
    begin = b'{"type":"'
    wanted = tuple(b'{"type":' + msgspec.json.encode(kind) for kind in kinds)
    return lambda body: body.startswith(wanted) or not body.startswith(begin)


def unfit(changes: Sequence[Change], statuses: Mapping[str, str]) -> LogError | None:
    """Why these changes cannot be; `statuses` of the sessions that are stored, those under a new id among them."""
    gone, wanted = {change.session for change in changes}, set[str]()
    for session, header in ((change.session, change.header) for change in changes):
        if session not in statuses:
            return LogError(f"there is no session {session!r} in this store: nothing was renamed.")
        if header is None:
            if statuses[session] != FORKING:
                return LogError(f"session {session!r} is whole: only what was left half made can be removed.")
        elif header.id in wanted or (header.id in statuses and header.id not in gone):
            return LogError(f"session {header.id!r} exists already: {session!r} cannot take its name.")
        else:
            check_id(header.id)
            wanted.add(header.id)
    return None if len(gone) == len(changes) else LogError("a session is to be renamed twice at once.")


class MemoryStore:
    """Records in lists: what is appended is committed, and every `sync` is answered at once.

    It needs no `open`. Closed, it takes nothing but can still be read, and `open` goes on from there: a restart without
    a disk.
    """

    blocking = False

    def __init__(self) -> None:
        self.on_notice: Callable[[Notice], None] | None = None
        self._logs: dict[str, list[Record]] = {}
        self._headers: dict[str, Header] = {}
        self._dues: dict[str, int] = {}
        self._snapshots: dict[str, dict[str, Snapshot]] = {}
        self._unsynced = 0
        self._closed = False

    def open(self, run_soon: RunSoon) -> None:
        """Take records again after `close`; `run_soon` is not needed."""
        del run_soon
        self._closed = False

    def append(
        self, session: str, records: Sequence[Record], header: Header | None = None, due: Due | None = None
    ) -> None:
        """Take records, the changed header and due time; raises `LogError` when closed or not in order."""
        if self._closed:
            raise LogError(CLOSED)
        if session not in self._headers:
            check_id(session)
        log = self._logs.get(session, [])
        next_seq(session, records, len(log))
        if header is not None:
            self._headers[session] = msgspec.structs.replace(header, id=session)
            due = due or Due(header.due_ms)
        elif not records:
            return
        elif session not in self._headers:
            self._headers[session] = Header(session, created_ms=records[0].at_ms)
        if due is not None:
            self._set_due(session, due.at_ms)
        self._logs.setdefault(session, log).extend(records)
        self._unsynced += len(records)

    def _set_due(self, session: str, due_ms: int | None) -> None:
        self._headers[session] = msgspec.structs.replace(self._headers[session], due_ms=due_ms)
        if due_ms is None:
            self._dues.pop(session, None)
        else:
            self._dues[session] = due_ms

    def sync(self, done: Done, session: str | None = None) -> None:
        """Answer at once; there is nothing to wait for."""
        del session
        if self._closed:
            done(LogError(CLOSED))
            return
        events, self._unsynced = self._unsynced, 0
        done(None)
        if events and self.on_notice is not None:
            self.on_notice(Flushed(0.0, events))

    def claim(self, session: str, done: Done) -> None:
        """It is ours: nobody else can reach this store."""
        del session
        done(LogError(CLOSED) if self._closed else None)

    def release(self, session: str) -> None:
        """Nothing to do: nobody else waits for it."""

    def rename(self, changes: Sequence[Change], done: Done) -> None:
        """Change ids and headers, all of them or none."""
        statuses = {session: header.status for session, header in self._headers.items()}
        why = LogError(CLOSED) if self._closed else unfit(changes, statuses)
        if why is not None:
            done(why)
            return
        moved = [(change, self._logs.pop(change.session, []), self._remove(change.session)) for change in changes]
        for change, log, snapshots in moved:
            if change.header is not None:
                session = change.header.id
                self._headers[session], self._logs[session] = change.header, log
                self._set_due(session, change.header.due_ms)
                if snapshots is not None:
                    self._snapshots[session] = snapshots
        done(None)

    def _remove(self, session: str) -> dict[str, Snapshot] | None:
        del self._headers[session]
        self._dues.pop(session, None)
        return self._snapshots.pop(session, None)

    def snap(self, session: str, snapshots: Sequence[Snapshot]) -> None:
        """Keep these in place of older ones of the same keys."""
        if not self._closed and session in self._headers:
            self._snapshots.setdefault(session, {}).update((one.key, one) for one in snapshots)

    def snapshots(self, session: str) -> list[Snapshot]:
        """What was kept of a session's projections."""
        end = len(self._log(session))
        return [one for one in self._snapshots.get(session, {}).values() if one.seq < end]

    def read(self, session: str, after: int, limit: int) -> list[Record]:
        """Records with seq > after, in order, at most `limit`."""
        first = max(after + 1, 0)
        return self._log(session)[first : first + max(limit, 0)]

    def header(self, session: str) -> Header | None:
        """The header of one session, None for an unknown one."""
        log, header = self._log(session), self._headers.get(session)
        if header is None:
            return None
        updated_ms = max(header.updated_ms, log[-1].at_ms) if log else header.updated_ms
        return msgspec.structs.replace(header, updated_ms=updated_ms, events=len(log))

    def headers(self) -> list[Header]:
        """All sessions, newest first: by their last change, then by who came last."""
        found = [self.header(session) for session in reversed(tuple(self._headers))]
        return sorted((one for one in found if one is not None), key=lambda one: one.updated_ms, reverse=True)

    def last(self, session: str, kinds: Sequence[str], before: int, limit: int) -> list[Record]:
        """Records with seq < before, newest first, at most `limit`, that may be of one of these kinds."""
        log, wanted, found = self._log(session), may_be(kinds), list[Record]()
        for at in range(min(before, len(log)) - 1, -1, -1):
            if len(found) >= limit:
                break
            if wanted(log[at].body):
                found.append(log[at])
        return found

    def due(self, upto_ms: int, after: Place, limit: int) -> list[Place]:
        """The sessions that come due up to `upto_ms` and stand behind `after`, earliest first, at most `limit`."""
        places = ((due_ms, session) for session, due_ms in self._dues.items() if due_ms <= upto_ms)
        return heapq.nsmallest(max(limit, 0), (place for place in places if place > after))

    def close(self) -> None:
        """Take nothing more; harmless when repeated."""
        self._closed = True

    def _log(self, session: str) -> list[Record]:
        check_id(session)
        return self._logs.get(session, [])

"""MemoryStore: a store that keeps everything in lists; whatever it took is durable at once."""

from collections.abc import Sequence

import msgspec

from callboard.actors.errors import LogError
from callboard.actors.store import Done, Header, Record, RunSoon


class MemoryStore:
    """Implements `store.Store` without a disk: `sync` answers before it returns."""

    blocking = False

    def __init__(self) -> None:
        self._records: dict[str, list[Record]] = {}
        self._headers: dict[str, Header] = {}
        self._closed = False

    def open(self, run_soon: RunSoon) -> None:
        """Nothing to get ready."""
        self._closed = False

    def append(self, session: str, records: Sequence[Record], header: Header | None = None) -> None:
        """Take records; `LogError` when the store is closed or the first one is not the next."""
        if self._closed:
            raise LogError("the memory store is closed: open a runtime again to go on.")
        kept = self._records.setdefault(session, [])
        if records and records[0].seq != len(kept):
            raise LogError(f"session {session!r}: event {records[0].seq} cannot follow {len(kept) - 1}.")
        kept.extend(records)
        if header is not None:
            self._headers[session] = header

    def sync(self, done: Done) -> None:
        """All that was taken is durable, as far as memory is."""
        done(LogError("the memory store is closed.") if self._closed else None)

    def read(self, session: str, after: int, limit: int) -> list[Record]:
        """Records with seq > after, at most `limit`."""
        return self._records.get(session, [])[after + 1 : after + 1 + limit]

    def header(self, session: str) -> Header | None:
        """The header with the number of events as it is now."""
        header = self._headers.get(session)
        if header is None:
            return None
        records = self._records[session]
        return msgspec.structs.replace(header, events=len(records), updated_ms=records[-1].at_ms)

    def headers(self) -> list[Header]:
        """All sessions, newest first."""
        found = [self.header(session) for session in self._headers]
        return sorted((one for one in found if one is not None), key=lambda one: one.updated_ms, reverse=True)

    def last(self, session: str, kinds: Sequence[str], before: int, limit: int) -> list[Record]:
        """Records of these kinds with seq < before, newest first, at most `limit`."""
        heads = tuple(f'{{"type":"{kind}"'.encode() for kind in kinds)
        found: list[Record] = []
        for record in reversed(self._records.get(session, [])[: max(0, before)]):
            if record.body.startswith(heads):
                found.append(record)
                if len(found) == limit:
                    break
        return found

    def close(self) -> None:
        """Take nothing more; what was taken can still be read."""
        self._closed = True

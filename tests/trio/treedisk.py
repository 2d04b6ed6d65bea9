"""A disk for whole trees: each append is whole or not there after a kill, and the kill may come at any append."""

import random
from collections.abc import Callable, Sequence

from callboard.actors.memory import MemoryStore
from callboard.actors.store import Done, Due, Header, Record, Snapshot

from .roughdisk import RoughDisk


class TreeDisk(RoughDisk):
    """A rough disk that tears between appends only, as the stores promise, and that knows the order of all records."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self._writes: list[tuple[str, tuple[Record, ...], Header | None, Due | None]] = []
        self._committed: dict[str, int] = {}  # so many records of each session can be read
        self._kill_in = 0
        self.found: TreeDisk | None = None  # what the next life of a killed program finds
        self.on_kill: Callable[[], object] = lambda: None

    def is_dead(self) -> bool:
        """Whether the program was killed."""
        return self.found is not None

    def kill_in(self, appends: int) -> None:
        """The program dies at the append after so many; 0: it does not."""
        self._kill_in = appends

    def append(
        self, session: str, records: Sequence[Record], header: Header | None = None, due: Due | None = None
    ) -> None:
        """Take records, unless the disk is full; and maybe be the last that the program wrote."""
        super().append(session, records, header, due)
        self._journal.clear()  # this disk keeps whole writes instead
        self._writes.append((session, tuple(records), header, due))
        if self._kill_in:
            self._kill_in -= 1
            if not self._kill_in:
                self.kill()

    def kill(self) -> None:
        """The program is dead from here on: what is written or confirmed later is nobody's."""
        if self.found is None:
            self.found = self.after_crash()
            self.on_kill()

    def sync(self, done: Done, session: str | None = None) -> None:
        """Confirm what is there now, sooner or later or never."""
        length = len(self._writes)

        def confirmed(error: Exception | None) -> None:
            if error is None:
                for session, records, _, _ in self._writes[self._safe : length]:
                    self._committed[session] = self._committed.get(session, 0) + len(records)
                self._safe = max(self._safe, length)
            done(error)

        super().sync(confirmed, session)

    def after_crash(self) -> "TreeDisk":
        """All that was confirmed, and some of what was not."""
        found = TreeDisk(self._draw)
        last = len(self._writes)
        kept = self._draw.choice([self._safe, self._draw.randint(self._safe, last), last])
        for session, records, header, due in self._writes[:kept]:
            MemoryStore.append(found, session, records, header, due)
            found._writes.append((session, records, header, due))
            found._committed[session] = found._committed.get(session, 0) + len(records)
        for session, kept_states in self._snapshots.items():
            found.snap(session, tuple(kept_states.values()))
        found._safe = kept
        return found

    def snapshots(self, session: str) -> list[Snapshot]:
        """Those of confirmed records."""
        return [one for one in super().snapshots(session) if one.seq < self._committed.get(session, 0)]

    def records(self) -> list[tuple[str, Record]]:
        """All records of all sessions, in the order in which they were written."""
        return [(session, record) for session, records, _, _ in self._writes for record in records]

    def of(self, session: str) -> Sequence[Record]:
        """The records of a session, also those that are not confirmed."""
        return super().read(session, -1, 1_000_000)

    def read(self, session: str, after: int, limit: int) -> list[Record]:
        """Confirmed records with seq > after."""
        return super().read(session, after, min(limit, self._committed.get(session, 0) - max(0, after + 1)))

    def last(self, session: str, kinds: Sequence[str], before: int, limit: int) -> list[Record]:
        """Confirmed records with seq < before, newest first."""
        return super().last(session, kinds, min(before, self._committed.get(session, 0)), limit)

    def header(self, session: str) -> Header | None:
        """What is known of a session of which anything is confirmed."""
        return super().header(session) if self._committed.get(session) else None

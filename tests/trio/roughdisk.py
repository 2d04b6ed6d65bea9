"""A disk in all moods, whose program may be killed: what it had confirmed is there afterwards, the rest maybe."""

import random
from collections.abc import Sequence

from callboard.actors.errors import LogError
from callboard.actors.memory import MemoryStore
from callboard.actors.store import Done, Due, Header, Record

from .disks import Disk


class RoughDisk(Disk):
    """Stalls, fails to confirm, and refuses what is appended, as it is told; remembers the order of all writes."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self._draw = draw
        self._journal: list[tuple[str, Record, Due | None]] = []
        self._safe = 0  # so many of the journal are confirmed
        self._full = self._broken = 0  # so many appends, and so many syncs, are refused

    def append(
        self, session: str, records: Sequence[Record], header: Header | None = None, due: Due | None = None
    ) -> None:
        """Take records, unless the disk is full."""
        if self._full > 0:
            self._full -= 1
            raise LogError("the disk is full")
        super().append(session, records, header, due)
        last = len(records) - 1
        self._journal.extend((session, one, due if at == last else None) for at, one in enumerate(records))

    def sync(self, done: Done, session: str | None = None) -> None:
        """Confirm what is there now, sooner or later or never."""
        if self._broken > 0 and not self.stalled:
            self._broken -= 1
            done(LogError("the disk is broken"))
            return
        length = len(self._journal)

        def confirmed(error: Exception | None) -> None:
            if error is None:
                self._safe = max(self._safe, length)
            done(error)

        super().sync(confirmed, session)

    def change_mood(self) -> None:
        """Another mood."""
        self.calm()
        match self._draw.randrange(5):
            case 0:
                self.stall()
            case 1:
                self._broken = self._draw.randint(1, 8)
            case 2:
                self._full = self._draw.randint(1, 2)

    def calm(self) -> None:
        """Well again."""
        self._broken = self._full = 0
        self.go()

    def of(self, session: str) -> Sequence[Record]:
        """The records of a session."""
        return self.read(session, -1, 1_000_000)

    def after_crash(self) -> "RoughDisk":
        """The disk as the next life of the program finds it: all that was confirmed, and some of what was not."""
        found = RoughDisk(self._draw)
        kept = self._draw.choice([self._safe, self._draw.randint(self._safe, len(self._journal)), len(self._journal)])
        for session, record, due in self._journal[:kept]:
            MemoryStore.append(found, session, [record], None, due)
            found._journal.append((session, record, due))
        for session, kept_states in self._snapshots.items():
            found.snap(session, tuple(kept_states.values()))
        found._safe = kept
        return found

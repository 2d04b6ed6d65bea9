"""A memory store whose disk the test plays: it counts what it is asked, stalls, fails, and confirms when told."""

from callboard.actors.errors import LogError
from callboard.actors.memory import MemoryStore
from callboard.actors.store import Done


class Disk(MemoryStore):
    """`stall` keeps every sync waiting until `go`; `failing` syncs answer with an error."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs = 0
        self.stalled = self.failing = False
        self._waiting: list[Done] = []

    def sync(self, done: Done, session: str | None = None) -> None:
        """Count, then stall, fail, or answer at once."""
        self.syncs += 1
        if self.stalled:
            self._waiting.append(done)
        elif self.failing:
            done(LogError("the disk is full"))
        else:
            super().sync(done, session)

    @property
    def waiting(self) -> int:
        """How many syncs wait."""
        return len(self._waiting)

    def stall(self) -> None:
        """Confirm nothing from here on."""
        self.stalled = True

    def go(self) -> None:
        """Confirm what waits and all that follows."""
        self.stalled = False
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            super().sync(done)

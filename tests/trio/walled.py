"""A lab whose wall clock goes with Trio's, and may be set; its sessions are woken by one alarm."""

import trio

from callboard.actors.alarm import AlarmClock
from callboard.actors.messages import Wake
from callboard.actors.testing import FakeWall, Lab


class Walled:
    """A lab whose wall clock goes with Trio's, plus jumps, and whose sessions are woken by an alarm."""

    def __init__(self) -> None:
        self.wall = FakeWall()
        self._start_s: float | None = None
        self._jumped_ms = 0
        self.rang: list[tuple[str, int]] = []

    def now_ms(self) -> int:
        """Wall time."""
        if self._start_s is None:
            self._start_s = trio.current_time()
        return self.wall.now_ms() + round((trio.current_time() - self._start_s) * 1000) + self._jumped_ms

    def jump(self, seconds: float) -> None:
        """Somebody sets the clock."""
        self._jumped_ms += round(seconds * 1000)

    def install(self, lab: Lab) -> AlarmClock:
        """Give the lab an alarm."""
        lab.stage.now_ms = self.now_ms

        def ring(id_: str) -> None:
            self.rang.append((id_, self.now_ms()))
            lab.sessions[id_].actor.tell(Wake())

        clock = AlarmClock(self.now_ms, ring)
        lab.stage.on_due = clock.set
        lab.stage.nursery.start_soon(clock.run)
        return clock

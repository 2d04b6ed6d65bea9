"""Seconds in which a test could run: those that its thread spent in the queue for a core are not its own."""

import time
from pathlib import Path

import attrs

QUEUED = Path("/proc/thread-self/schedstat")  # its second number: nanoseconds in the queue; not on every system


def queued_s() -> float:
    """How long this thread has waited for a core since it began; 0 where the system does not tell."""
    try:
        return int(QUEUED.read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


@attrs.frozen
class Since:
    """A moment, for one thread. On a quiet machine both ways to measure from it agree."""

    _began_s: float = attrs.field(factory=time.perf_counter)
    _queued_s: float = attrs.field(factory=queued_s)

    def real_s(self) -> float:
        """Seconds on the clock: what a wait lasts at least is compared with these."""
        return time.perf_counter() - self._began_s

    def own_s(self) -> float:
        """Seconds without the queue: what code takes at most is compared with these, so that a busy machine is none."""
        return self.real_s() - (queued_s() - self._queued_s)

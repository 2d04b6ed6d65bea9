"""Seconds in which a test could run: those that its thread spent in the queue for a core are not its own."""

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


class Late(AssertionError):
    """Something took longer than it may."""


def in_time(seconds: float, limit_s: float) -> None:
    """Raise `Late` beyond the limit: the host of a virtual machine can take its cores away, and nothing here tells."""
    if seconds > limit_s:
        raise Late(f"it took {seconds:.3f} s, and may take {limit_s:g} s")


def timely(test: Callable[..., None]) -> Callable[..., None]:
    """A test that must be in time once in three goes, and right in all else each time."""

    @functools.wraps(test)
    def three_goes(*args: Any, **options: Any) -> None:
        for _ in range(2):
            try:
                return test(*args, **options)
            except* Late:
                pass
        return test(*args, **options)

    return three_goes

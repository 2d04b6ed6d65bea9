"""Garbage collection for a process with many sessions: what lives long is kept out of it, all is collected when idle.

With 10,000 idle sessions a full collection stops both loops for 100 to 400 ms: longer than an abort window. Under
"manage" whatever survived two collections is frozen, so that no collection sees more than what is young. What dies by
reference count is freed all the same; a frozen cycle waits until everything is thawed and collected once. That happens
when there is half as much again as after the last time, in a moment without a turn and without allocations; when there
is four times as much and no such moment came, it happens at once.

It is the whole process that is managed, counted over all its runtimes; the last one to leave puts everything back.
"""

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Literal

import attrs

Verdict = Literal["nothing", "when idle", "now"]

YOUNG_MAX = 5_000  # objects between two collections; a collection of so many takes about 1 ms
YOUNGEST_PER_OLDER_MAX = 3  # a collection sees 20,000 objects at most: 5 to 15 ms
NEVER_MAX = 2**31 - 1  # collections of the middle generation before Python itself collects everything
IDLE_BLOCKS_MIN = 300_000  # of memory; an empty runtime has half as many
IDLE_FACTOR = 1.5
NOW_BLOCKS_MIN = 3_000_000  # some 250 MB
NOW_FACTOR = 4.0
LOOK_S = 5.0  # without an allocation to speak of: the process is idle


def verdict(blocks: int, kept: int) -> Verdict:
    """Whether to collect everything, from the blocks of memory in use now and after the last time."""
    if blocks >= max(NOW_BLOCKS_MIN, NOW_FACTOR * kept):
        return "now"
    return "when idle" if blocks >= max(IDLE_BLOCKS_MIN, IDLE_FACTOR * kept) else "nothing"


@attrs.frozen
class Before:
    """How the process collected garbage before it was managed."""

    thresholds: tuple[int, int, int]
    frozen: bool


class Garbage:
    """The collector of the process, managed while anybody is in; `enter` is paid with one `leave`, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._count = 0
        self._before: Before | None = None
        self._kept = 0

    def enter(self) -> None:
        """Manage from here on."""
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._before = Before(gc.get_threshold(), gc.get_freeze_count() > 0)
                gc.set_threshold(YOUNG_MAX, YOUNGEST_PER_OLDER_MAX, NEVER_MAX)
                gc.callbacks.append(self._collected)
                self._kept = sys.getallocatedblocks()
                gc.freeze()

    def leave(self) -> None:
        """Manage no longer, when nobody else is in."""
        with self._lock:
            self._count -= 1
            if not self._count and self._before is not None:
                gc.callbacks.remove(self._collected)
                gc.set_threshold(*self._before.thresholds)
                if not self._before.frozen:
                    gc.unfreeze()
                self._before = None

    def _collected(self, phase: str, info: Mapping[str, int]) -> None:
        """(the collector) What survived two collections grows no younger."""
        if phase == "stop" and info["generation"] > 0:
            gc.freeze()

    def look(self, *, idle: bool) -> bool:
        """Collect everything if it is time; whether it was."""
        with self._lock:
            found = verdict(sys.getallocatedblocks(), self._kept)
            if not (self._count and gc.isenabled()) or found == "nothing" or (found == "when idle" and not idle):
                return False
            gc.unfreeze()
            gc.collect()  # the callback freezes what is left
            self._kept = sys.getallocatedblocks()
            return True


PROCESS = Garbage()


class GarbageKeeper:
    """One runtime's part in it: looks now and then whether the process is idle. `busy` says whether a turn runs."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, busy: Callable[[], bool], *, garbage: Garbage = PROCESS
    ) -> None:
        self._loop, self._busy, self._garbage = loop, busy, garbage
        self._timer: asyncio.TimerHandle | None = None
        self._seen = -1

    def start(self) -> None:
        """Begin; a second start changes nothing."""
        if self._timer is None:
            self._garbage.enter()
            self._arm()

    def stop(self) -> None:
        """End; any number of times."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._garbage.leave()

    def _arm(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._arm()
        seen, self._seen = self._seen, gc.get_stats()[0]["collections"]
        self._garbage.look(idle=seen == self._seen and not self._busy())

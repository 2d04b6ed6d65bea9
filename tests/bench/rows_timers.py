"""10,000 alarms: arm, cancel, and all due at once."""

import heapq
import itertools
import random
import time
from collections.abc import Callable
from typing import Any, Protocol

import trio

from callboard.actors.alarm import AlarmClock

from .guest import run_guest
from .measure import Span, late, now_s, resident_bytes, settle
from .row import Figures, Goal, Row

HOUR_MS = 3_600_000
SOON_MS = 300


class Alarms(Protocol):
    """What is measured: `arm` by id, `disarm`, and a task."""

    def arm(self, id_: str, due_ms: int) -> object:
        """Ring at that wall time."""
        ...

    def disarm(self, id_: str) -> None:
        """Do not."""
        ...

    async def run(self) -> None:
        """(Trio) Ring until cancelled."""
        ...


class Clock:
    """Callboard's alarm clock."""

    def __init__(self, ring: Callable[[str], None]) -> None:
        self._clock = AlarmClock(wall_ms, ring)
        self.arm, self.run = self._clock.set, self._clock.run

    def disarm(self, id_: str) -> None:
        """Take one back."""
        self._clock.set(id_, None)


class Heap:
    """By hand: one heap, and one task that sleeps until the earliest."""

    def __init__(self, ring: Callable[[str], None]) -> None:
        self._ring, self._numbers = ring, itertools.count()
        self._heap: list[list[Any]] = []
        self._entries: dict[str, list[Any]] = {}
        self._scope: trio.CancelScope | None = None

    def arm(self, id_: str, due_ms: int) -> None:
        """One entry; a new earliest moves the sleeper's deadline."""
        entry = self._entries[id_] = [due_ms, next(self._numbers), id_]
        heapq.heappush(self._heap, entry)
        if self._scope is not None and self._heap[0] is entry:
            self._scope.deadline = trio.current_time() + (due_ms - wall_ms()) / 1000

    def disarm(self, id_: str) -> None:
        """The entry stays until it surfaces."""
        self._entries.pop(id_)[2] = None

    async def run(self) -> None:
        """(Trio) Until cancelled."""
        heap = self._heap
        while True:
            now_ms = wall_ms()
            while heap and heap[0][0] <= now_ms:
                id_ = heapq.heappop(heap)[2]
                if id_ is not None:
                    self._ring(id_)
            with trio.CancelScope() as self._scope:
                if heap:
                    self._scope.deadline = trio.current_time() + (heap[0][0] - now_ms) / 1000
                await trio.sleep_forever()


def wall_ms() -> int:
    """Wall milliseconds."""
    return time.time_ns() // 1_000_000


def ours(alarms: int) -> Figures:
    """AlarmClock."""
    return _run(Clock, alarms)


def floor(alarms: int) -> Figures:
    """A heap by hand."""
    return _run(Heap, alarms)


def _run(make: Callable[[Callable[[str], None]], Alarms], count: int) -> Figures:
    figures: Figures = run_guest(_measured, make, count)
    return figures


async def _measured(make: Callable[[Callable[[str], None]], Alarms], count: int) -> Figures:
    lates, done, due_ms = list[float](), trio.Event(), 0

    def ring(_: str) -> None:
        lates.append(time.time_ns() / 1e9 - due_ms / 1000)
        if len(lates) == count:
            done.set()

    alarms, ids, order = make(ring), [f"s{number}" for number in range(count)], random.Random(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarms.run)
        await trio.lowlevel.checkpoint()
        far_ms = [wall_ms() + HOUR_MS + order.randrange(100_000) for _ in ids]
        settle()
        before = resident_bytes()
        with Span() as arming:
            for id_, at_ms in zip(ids, far_ms, strict=True):
                alarms.arm(id_, at_ms)
            await trio.lowlevel.checkpoint()
        held = resident_bytes() - before
        with Span() as cancelling:
            for id_ in ids:
                alarms.disarm(id_)
            await trio.lowlevel.checkpoint()
        settle()
        due_ms = wall_ms() + SOON_MS
        for id_ in ids:
            alarms.arm(id_, due_ms)
        await _until_ms(due_ms - 50)
        with Span() as firing:
            await done.wait()
        nursery.cancel_scope.cancel()
    assert len(lates) == count
    assert min(lates) >= 0, f"rang {-min(lates):.3f} s early"
    return {
        "arm_us": arming.wall_s / count * 1e6,
        "cancel_us": cancelling.wall_s / count * 1e6,
        "bytes_each": held / count,
        "fire_cpu_us": firing.cpu_s / count * 1e6,
        **late(lates, "ms", "late_"),
    }


async def _until_ms(at_ms: int) -> None:
    begun_s = now_s()
    await trio.sleep(max(0.0, (at_ms - wall_ms()) / 1000))
    assert now_s() >= begun_s


ROWS = (
    Row(
        "timers.10000",
        "10,000 alarms: arm, cancel, all due at once",
        ours,
        floor,
        ("arm_us", "cancel_us", "late_max_ms", "late_p50_ms", "fire_cpu_us", "bytes_each"),
        {"alarms": 10_000},
        {"alarms": 500},
        {
            "arm_us": Goal(12, 4),
            "cancel_us": Goal(33, 1),
            "late_max_ms": Goal(6, 60),
            "bytes_each": Goal(value=600),
        },
    ),
)

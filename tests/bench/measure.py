"""Clocks, percentiles, memory, and how fast the machine is right now."""

import gc
import resource
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

CALIBRATION_STEPS = 50_000
PAGE_BYTES = resource.getpagesize()

now_s = time.perf_counter


class Span:
    """Wall and CPU seconds of a block; entered again, it adds up. CPU is user and system time of all threads."""

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = 0.0
        self._wall_s = self._cpu_s = 0.0

    def __enter__(self) -> Self:
        self._cpu_s, self._wall_s = time.process_time(), now_s()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s += now_s() - self._wall_s
        self.cpu_s += time.process_time() - self._cpu_s

    @property
    def running_s(self) -> float:
        """Wall seconds since it was entered last."""
        return now_s() - self._wall_s

    def us_each(self, count: int, name: str) -> dict[str, float]:
        """Microseconds of wall and CPU for each of `count` things."""
        return {f"us_{name}": self.wall_s / count * 1e6, f"cpu_us_{name}": self.cpu_s / count * 1e6}


class Pauses:
    """The longest garbage collection within a block, in milliseconds: a pause of both loops."""

    def __init__(self) -> None:
        self.max_ms = self._begun_s = 0.0

    def __enter__(self) -> Self:
        gc.callbacks.append(self._told)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._told)

    def _told(self, phase: str, _: object) -> None:
        if phase == "start":
            self._begun_s = now_s()
        else:
            self.max_ms = max(self.max_ms, (now_s() - self._begun_s) * 1e3)


def at(values: Sequence[float], percent: float) -> float:
    """A percentile of values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(percent / 100 * len(ordered)))]


def late(values: Sequence[float], unit: str = "ms", prefix: str = "") -> dict[str, float]:
    """p50, p99 and max of seconds, in `ms` or `us`; nothing when there are none."""
    if not values:
        return {}
    factor = {"ms": 1e3, "us": 1e6}[unit]
    points = {"p50": at(values, 50), "p99": at(values, 99), "max": max(values)}
    return {f"{prefix}{name}_{unit}": value * factor for name, value in points.items()}


def spread(values: Iterable[float]) -> list[float]:
    """Min, median, max."""
    ordered = sorted(values)
    return [ordered[0], statistics.median(ordered), ordered[-1]]


def calibration_ns() -> float:
    """Nanoseconds of one step of a fixed loop: two runs can be compared where this is alike."""
    takes = []
    for _ in range(5):
        begun_s, x = now_s(), 0
        for i in range(CALIBRATION_STEPS):
            x = (x * 31 + i) & 0xFFFF
        takes.append((now_s() - begun_s) / CALIBRATION_STEPS * 1e9)
    return statistics.median(takes)


def settle() -> None:
    """Collect what earlier work left, so that nobody pays for somebody else."""
    gc.collect()
    gc.collect()


def resident_bytes() -> int:
    """Resident memory of this program now; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
    except OSError:
        return 0


def collection_ms() -> float:
    """CPU of one full collection with all that is alive: a pause of both loops."""
    takes = []
    for _ in range(3):
        begun_s = time.process_time()
        gc.collect()
        takes.append(time.process_time() - begun_s)
    return statistics.median(takes) * 1e3

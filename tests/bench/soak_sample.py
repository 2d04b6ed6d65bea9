"""What a program holds now, and whether it holds more and more: tasks, threads, files, processes, memory."""

import asyncio
import statistics
import threading
from collections.abc import Sequence, Sized
from pathlib import Path

import attrs
import trio

from callboard.runtime.guest import Guest

from .measure import resident_bytes

# The first part of a run is not looked at: 200 sessions fill caches for 45 s; at most half of a short run.
WARM_UP, WARM_UP_S = 0.2, 45.0
RISE_MAX = 0.15  # how much more of anything countable the last quarter may hold than the first
COUNTED = ("trio_tasks", "asyncio_tasks", "threads", "files", "processes")
SLACK = 12  # so many more are chance: a few calls, readers and worker threads more or less
MEMORY_RISE_MAX = 0.06
MEMORY_SLACK_BYTES = 6 << 20  # what an allocator keeps more or less
# Idle connections of readers; and SQLite closes no file of a connection while another of the program holds a lock.
FILES_KEPT_MAX = 24
SESSION_MAX_BYTES = 1_000  # what may be left of a session that ended: a store knows 100,000 by heart


@attrs.frozen
class Sample:
    """One look; `ended` is how many sessions have ended so far. Hosts that idle until the next call are not counted."""

    at_s: float
    ended: int
    trio_tasks: int
    asyncio_tasks: int
    threads: int
    files: int
    processes: int
    memory_bytes: int

    def __str__(self) -> str:
        counts = ", ".join(f"{getattr(self, name)} {name.replace('_', ' ')}" for name in COUNTED)
        return f"{self.at_s:6.0f} s: {self.ended} sessions ended, {counts}, {self.memory_bytes / 2**20:.1f} MB"


async def look(guest: Guest, at_s: float, ended: int, idle: Sized) -> Sample:
    """(asyncio) Count everything; `idle` are the hosts that wait for their next call, a bounded number."""
    tasks = await guest.start(_trio_tasks) - len(idle)
    files, processes = await asyncio.to_thread(_files), await asyncio.to_thread(_processes)
    return Sample(
        at_s, ended, tasks, len(asyncio.all_tasks()), threading.active_count(), files, processes, resident_bytes()
    )


async def _trio_tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


def _files() -> int:
    opened = Path("/proc/self/fd")
    return len(list(opened.iterdir())) if opened.exists() else 0


def _processes() -> int:
    """Children of any thread, dead ones that nobody waited for included."""
    tasks = Path("/proc/self/task")
    found = 0
    for task in tasks.iterdir() if tasks.exists() else ():
        try:
            found += len((task / "children").read_text().split())
        except OSError:  # the thread has ended meanwhile, or this system does not tell
            continue
    return found


def grown(samples: Sequence[Sample]) -> list[str]:
    """What the last quarter holds more of than the first, by their medians and after the warm-up; empty if nothing.

    Countable things may be `RISE_MAX` and `SLACK` more; memory `MEMORY_RISE_MAX`, `MEMORY_SLACK_BYTES`, and
    `SESSION_MAX_BYTES` for each session that ended between the two.
    """
    whole_s = samples[-1].at_s
    from_s = max(WARM_UP * whole_s, min(WARM_UP_S, whole_s / 2))
    seen = [sample for sample in samples if sample.at_s >= from_s]
    quarter = max(1, len(seen) // 4)
    first, last = seen[:quarter], seen[-quarter:]
    found = []
    for name in COUNTED:
        before, after = _median(first, name), _median(last, name)
        if after > before * (1 + RISE_MAX) + SLACK:
            found.append(f"{name} grew from {before:g} to {after:g}")
    before, after = _median(first, "memory_bytes"), _median(last, "memory_bytes")
    ended = _median(last, "ended") - _median(first, "ended")
    if after > before * (1 + MEMORY_RISE_MAX) + MEMORY_SLACK_BYTES + SESSION_MAX_BYTES * ended:
        found.append(f"memory grew from {before / 2**20:.1f} to {after / 2**20:.1f} MB over {ended:g} sessions")
    return found


def left(before: Sample, after: Sample) -> list[str]:
    """What is still there though every session has ended."""
    found = []
    for name, kept_max in {"trio_tasks": 0, "asyncio_tasks": 0, "files": FILES_KEPT_MAX, "processes": 0}.items():
        more = getattr(after, name) - getattr(before, name)
        if more > kept_max:
            found.append(f"{more} {name} more than before the first session")
    return found


def _median(samples: Sequence[Sample], name: str) -> float:
    return float(statistics.median(getattr(sample, name) for sample in samples))

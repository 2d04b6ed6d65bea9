"""What time it is: the wall clock, the steady clock, and a virtual clock that knows when the host is still busy."""

import math
import time
from collections.abc import Callable
from typing import Protocol

import trio

# Host turns without a step of any Trio task before virtual time jumps: longer than the longest reaction of the host
# that opens no crossing (a future, the task awaiting it, what that task starts ...).
SETTLE_TURNS_MAX = 40


class Wall(Protocol):
    """Whoever can be asked for wall time."""

    def now_ms(self) -> int:
        """Milliseconds UTC since 1970."""
        ...


class WallClock:
    """The machine's wall clock; it may jump, so durations are never measured with it."""

    def now_ms(self) -> int:
        """Milliseconds UTC since 1970."""
        return time.time_ns() // 1_000_000


def nanoseconds(wall: Wall) -> Callable[[], int]:
    """The same clock in nanoseconds, as fine as it has them."""
    return time.time_ns if isinstance(wall, WallClock) else lambda: wall.now_ms() * 1_000_000


def steady_s() -> float:
    """Seconds on a clock that only goes forward, for measuring; its zero means nothing."""
    return time.perf_counter()


def local_text(at_ms: int) -> str:
    """Wall milliseconds as people read them, in local time: `2026-11-30 14:02:05`."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))
    except (OverflowError, ValueError, OSError):  # no year that a calendar has
        return f"{at_ms} ms"


class SimClock(trio.abc.Clock, trio.abc.Instrument):
    """Virtual time for a Trio run, guest or not: it stands still while anything happens and jumps when nothing does.

    It jumps to the next deadline once no Trio task has made a step for SETTLE_TURNS_MAX turns of the host loop, but
    never while a crossing is open: work of the host that Trio waits for, or an outcome on its way back. The guest opens
    and closes crossings; whoever starts other work elsewhere (a thread, a database) does so around it. Host timers
    (`asyncio.sleep`) are not seen. `trio.to_thread` is seen when it uses Trio's default limiter. To
    `trio.testing.wait_all_tasks_blocked` a clock about to jump looks busy, so that returns after the jumps.

    `start_ms` is the wall time at virtual zero. With `autojump` False only `jump` moves time. Serves one run.
    """

    def __init__(self, *, start_ms: int = 0, autojump: bool = True) -> None:
        self.autojump = autojump
        self._start_ms = start_ms
        self._now_s = 0.0
        self._open = 0
        self._quiet_turns = 0
        self._token: trio.lowlevel.TrioToken | None = None

    def now_ms(self) -> int:
        """Virtual wall time in milliseconds UTC."""
        return self._start_ms + round(self._now_s * 1000)

    def jump(self, seconds: float) -> None:
        """Move time forward by hand, from the loop's thread."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s")
        self._now_s += seconds
        self._wake()

    def crossing_opened(self) -> None:
        """Something goes on outside Trio that Trio will hear of: time stands still until it is closed."""
        self._open += 1

    def crossing_closed(self) -> None:
        """One opened crossing has ended and told Trio what it had to tell."""
        assert self._open, "crossing_closed() without crossing_opened()"
        self._open -= 1
        self._quiet_turns = 0
        if not self._open:
            self._wake()

    def start_clock(self) -> None:
        """(Trio) The run begins."""
        self._token = trio.lowlevel.current_trio_token()
        trio.lowlevel.add_instrument(self)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """(Trio) A task makes a step, so nothing is quiet."""
        del task
        self._quiet_turns = 0

    def current_time(self) -> float:
        """(Trio) Virtual seconds since the run began."""
        return self._now_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """(Trio) Asked once a turn when no task can run: wait one more turn, jump, or sleep until woken."""
        if deadline <= self._now_s:
            return 0.0
        if not self.autojump or deadline == math.inf or self._busy():
            return math.inf
        self._quiet_turns += 1
        if self._quiet_turns > SETTLE_TURNS_MAX:
            self._quiet_turns = 0
            self._now_s = deadline
        return 0.0

    def _busy(self) -> bool:
        return bool(self._open or trio.to_thread.current_default_thread_limiter().borrowed_tokens)

    def _wake(self) -> None:
        """Let the run look at its deadlines again; a run that has ended needs nothing."""
        if self._token is not None:
            try:
                self._token.run_sync_soon(self._woken, idempotent=True)
            except trio.RunFinishedError:
                self._token = None

    def _woken(self) -> None:
        """Being called was all."""

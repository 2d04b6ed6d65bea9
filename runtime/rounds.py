"""Rounds: who calls Trio's rounds, and where a guest sleeps. Knows private names of trio's guest mode; see `usable`.

Trio as it comes hands each sleep to a thread, and takes a turn of the host loop and looks at its selector for each
round. Here the host loop watches Trio's selector, so that a sleep costs no thread (there and back: 69 us, then 27), and
short rounds share a turn of the loop and a look (12 us less for each). Where trio looks different, or the loop cannot
watch, all is as it comes.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

import outcome
import sniffio
import trio

from callboard.runtime.clock import steady_s

Tick: TypeAlias = Callable[[], object]

ROUNDS_S_MAX = 0.0002  # real seconds of rounds in one turn of the host loop: asyncio waits no longer for its own
SLEEP_S_MAX = 3_600.0  # a sleep is looked at again after this long, also when nothing is due
_OVER = float("inf")  # no sleep of trio's is so long
_FIELDS = ("runner", "unrolled_run_gen", "unrolled_run_next_send", "done_callback")
_RUNNER_FIELDS = ("io_manager", "guest_tick_scheduled", "main_task_outcome")


class Rounds:
    """Calls the rounds of one guest run in its host loop; everything here is called on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, plain: bool) -> None:
        """`plain` leaves all as it comes: a virtual clock jumps when both loops are idle, and counts their turns."""
        self._loop, self._plain = loop, plain
        self._state: Any = None  # trio's GuestState; referenced so that a stranded run is found, not collected
        self._selector: int | None = None  # the file descriptor that the loop watches
        self._known = False
        self._busy = False  # a turn is under way or scheduled
        self._timer: asyncio.TimerHandle | None = None

    def soon(self, tick: Tick) -> None:
        """What trio wants to be called soon is its next round."""
        if not self._known:
            self._begin(tick)
        if self._selector is None:
            self._loop.call_soon(tick)
        elif not self._busy:
            self._busy = True
            self._loop.call_soon(self._turn)

    def _begin(self, tick: Tick) -> None:
        self._known, self._state = True, getattr(tick, "__self__", None)
        selector = None if self._plain else usable(self._state)
        if selector is not None:
            try:
                self._loop.add_reader(selector, self._wake)
            except (NotImplementedError, OSError, ValueError):
                return
            self._selector = selector

    def _turn(self) -> None:
        """Rounds, as long as Trio has something to do and they are short."""
        state, until_s = self._state, steady_s() + ROUNDS_S_MAX
        library = sniffio.thread_local
        before, library.name = library.name, "trio"
        try:
            while (sleep_s := self._round(state)) <= 0 and steady_s() < until_s:
                state.unrolled_run_next_send = outcome.Value([])  # nothing of its selector; an outcome serves once
        finally:
            library.name = before
        if sleep_s < _OVER:
            self._rest(state, sleep_s)

    def _round(self, state: Any) -> float:
        """One round; how long Trio may sleep after it."""
        try:
            sleep_s: float = state.unrolled_run_next_send.send(state.unrolled_run_gen)
        except StopIteration:
            self._end()
            state.done_callback(state.runner.main_task_outcome)
        except trio.TrioInternalError as error:
            self._end()
            state.done_callback(outcome.Error(error))
        else:
            return sleep_s
        return _OVER

    def _rest(self, state: Any, sleep_s: float) -> None:
        """Let the host loop do what it has, or sleep."""
        runner = state.runner
        events = state.unrolled_run_next_send = outcome.capture(runner.io_manager.get_events, 0)
        if sleep_s <= 0 or isinstance(events, outcome.Error) or events.value:
            self._loop.call_soon(self._turn)
            return
        self._busy = runner.guest_tick_scheduled = False
        if sleep_s < SLEEP_S_MAX:
            self._timer = self._loop.call_later(sleep_s, self._wake)

    def _wake(self) -> None:
        """Trio's selector has something, or the sleep is over."""
        if self._busy:
            return
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        self._busy = True
        runner = self._state.runner
        runner.guest_tick_scheduled = True
        self._state.unrolled_run_next_send = outcome.capture(runner.io_manager.get_events, 0)
        self._turn()

    def _end(self) -> None:
        if self._selector is not None:
            self._loop.remove_reader(self._selector)
            self._selector = None
        if self._timer is not None:
            self._timer.cancel()


def usable(state: Any) -> int | None:
    """The file descriptor of the guest's selector, None when trio does not look as this module expects."""
    runner = getattr(state, "runner", None)
    if not all(hasattr(state, name) for name in _FIELDS) or not all(hasattr(runner, name) for name in _RUNNER_FIELDS):
        return None
    try:
        selector: int = runner.io_manager._epoll.fileno()  # type: ignore[union-attr]
    except AttributeError:
        return None
    return selector

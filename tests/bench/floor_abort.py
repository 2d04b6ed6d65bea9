"""An abort window by hand: cancel every turn, and after 100 ms end what swallowed it, by an error it cannot stay in.

The tool's coroutine is driven one await at a time, so that a tool that spins on its cancellation can be met there.
"""

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import outcome
import trio
import trio.testing

from .measure import Span, now_s, settle

WINDOW_S = 0.1
NAP_S = 0.02
TOOL_S_MAX = 20.0


class Dropped(BaseException):
    """The window is over."""


async def willing() -> None:
    """Ends at the first cancellation."""
    await trio.sleep(TOOL_S_MAX)


async def cleaning() -> None:
    """Takes 20 ms to clean up."""
    try:
        await trio.sleep(TOOL_S_MAX)
    finally:
        with trio.move_on_after(1, shield=True):
            await trio.sleep(NAP_S)


async def stubborn() -> None:
    """Shields itself from every cancellation."""
    until_s = now_s() + TOOL_S_MAX
    while now_s() < until_s:
        try:
            with trio.move_on_after(TOOL_S_MAX, shield=True):
                await trio.sleep(TOOL_S_MAX)
        except trio.Cancelled:
            continue


async def spinning() -> None:
    """Swallows every cancellation at once, again and again."""
    until_s = now_s() + TOOL_S_MAX
    while now_s() < until_s:
        try:
            await trio.sleep(TOOL_S_MAX)
        except trio.Cancelled:
            continue


TOOLS = types.MappingProxyType({tool.__name__: tool for tool in (willing, cleaning, stubborn, spinning)})


@types.coroutine
def driven(coro: Coroutine[Any, Any, Any], over: Callable[[], bool]) -> Generator[Any, Any, Any]:
    """Drive a coroutine; once `over()`, it gets `Dropped` in place of whatever it waited for."""
    value, error = None, None
    while True:
        try:
            trap = coro.throw(error) if error is not None else coro.send(value)
        except StopIteration as end:
            return end.value
        try:
            value, error = (yield trap), None
        except BaseException as raised:
            error = raised
        if over() and not isinstance(error, Dropped):
            error = Dropped()


class Turn:
    """A turn that is blocked in its tool."""

    def __init__(self, kind: str, ended: Callable[[], None]) -> None:
        self._tool, self._ended = TOOLS[kind], ended
        self.messages = ["user", "call"]
        self.scope = trio.CancelScope()
        self.over = False
        self.ended_s: float | None = None
        self._task: Any = None

    async def run(self) -> None:
        """(Trio) Until its tool ends, or is ended."""
        self._task = trio.lowlevel.current_task()
        with self.scope:
            try:
                await driven(self._tool(), lambda: self.over)
            except Dropped:
                self.messages.append("abandoned")
        if len(self.messages) == 2:
            self.messages.append("interrupted")
        self.ended_s = now_s()
        self._ended()

    def drop(self) -> None:
        """The window is over: wake it where it waits; one that runs meets the end at its next await."""
        self.over = True
        task = self._task
        if task._abort_func is not None and task._abort_func(_dropped) is trio.lowlevel.Abort.SUCCEEDED:
            task._abort_func = None
            trio.lowlevel.reschedule(task, outcome.Error(Dropped()))


def _dropped() -> None:
    raise Dropped


async def interrupted(kind: str, count: int, span: Span) -> tuple[list[float], int]:
    """(Trio) Cancel `count` blocked turns at once: seconds until each ended, and how many have a result."""
    left, done = count, trio.Event()

    def ended() -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    turns = [Turn(kind, ended) for _ in range(count)]
    async with trio.open_nursery() as nursery:
        for turn in turns:
            nursery.start_soon(turn.run)
        await trio.testing.wait_all_tasks_blocked()
        settle()
        begun_s = now_s()
        with span:
            for turn in turns:
                turn.scope.cancel()
            with trio.move_on_after(WINDOW_S):
                await done.wait()
            for turn in turns:
                if turn.ended_s is None:
                    turn.drop()
            await done.wait()
    takes = [turn.ended_s - begun_s for turn in turns if turn.ended_s is not None]
    return takes, sum(len(turn.messages) == 3 for turn in turns)

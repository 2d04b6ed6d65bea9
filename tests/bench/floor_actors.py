"""Actors by hand: a deque each and one sleeping Trio task; a live session by hand: a task, a nursery, a scope."""

from collections import deque
from collections.abc import Callable
from typing import Any

import trio
from trio.lowlevel import Abort, current_task, reschedule, wait_task_rescheduled


class Actor:
    """Answers every message by calling it."""

    __slots__ = ("_letters", "_sleeper")

    def __init__(self) -> None:
        self._letters: deque[Callable[[], None]] = deque()
        self._sleeper: trio.lowlevel.Task | None = None

    def tell(self, letter: Callable[[], None]) -> None:
        """Put a message; from either loop."""
        self._letters.append(letter)
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None:
            reschedule(sleeper)

    async def run(self) -> None:
        """(Trio) Until cancelled."""
        letters, me = self._letters, current_task()
        while True:
            while letters:
                letters.popleft()()
            self._sleeper = me
            await wait_task_rescheduled(self._give_up)

    def _give_up(self, _: Any) -> Abort:
        self._sleeper = None
        return Abort.SUCCEEDED


class Answer:
    """One answer, waited for inside Trio."""

    __slots__ = ("_done", "_task")

    def __init__(self) -> None:
        self._done = False
        self._task: trio.lowlevel.Task | None = None

    def give(self, _: object = None) -> None:
        """Answer."""
        self._done = True
        if self._task is not None:
            task, self._task = self._task, None
            reschedule(task)

    async def wait(self) -> None:
        """(Trio) Until answered."""
        if not self._done:
            self._task = current_task()
            await wait_task_rescheduled(self._give_up)

    def _give_up(self, _: Any) -> Abort:
        self._task = None
        return Abort.SUCCEEDED


async def idle(until: trio.Event) -> None:
    """(Trio) A live session that does nothing."""
    async with trio.open_nursery():
        with trio.CancelScope():
            await until.wait()


async def waiting(until: trio.Event) -> None:
    """(Trio) A live session whose turn waits for its model: the session's task, and the turn's under it."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(idle, until)
        await until.wait()

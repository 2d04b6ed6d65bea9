"""Pit: a task with a nursery, where bodies run one at a time and whatever they throw stays.

A body is the only child of the nursery. A pit that stayed clean serves the next body: that saves two task switches and
a nursery a call.
"""

import math
from collections.abc import Iterator
from typing import Any, Protocol

import outcome
import trio

from callboard.actors.errors import Dropped
from callboard.actors.stage import Stage

PITS_MAX = 256  # idle ones that are kept
USES_MAX = 1_000  # bodies that one pit serves


class Body(Protocol):
    """What runs in a pit."""

    name: str
    deadline_s: float

    async def body(self) -> None:
        """Run; may throw anything."""
        ...

    def failed(self, error: BaseException) -> None:
        """It threw this, or left it behind."""
        ...

    def over(self) -> None:
        """It has ended; told once more when the pit ends."""
        ...


class Pit:
    """Where bodies run, one at a time: a task with one nursery, in the runtime's nursery.

    It is clean while nothing was cancelled in it and nothing left behind; `fill` ends it, and the body in it. While a
    body runs, its own task sleeps through the cancellation, and leaves when the body has ended: an interrupt then
    throws into one task and not into two, and no group of errors is made.
    """

    __slots__ = ("_full", "_host", "_nursery", "_runs", "_stage", "_task", "_uses")

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._nursery: trio.Nursery | None = None
        self._host: Body | None = None
        self._task: trio.lowlevel.Task | None = None  # while it sleeps
        self._runs = self._full = False
        self._uses = 0

    async def run(self, first: Body) -> None:
        """(Trio) Run the first body, and whatever is begun here later, until filled."""
        self._host = first
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self.begin(first)
                self._task = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._give_up)
        except BaseException as error:  # whatever it is, it is a body's, and must not reach the runtime's nursery
            if not only_cancels(error):
                self._host.failed(error)
        finally:
            self._host.over()

    def _give_up(self, _: Any) -> trio.lowlevel.Abort:
        self._full = True
        if self._runs:
            return trio.lowlevel.Abort.FAILED
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def release(self) -> None:
        """Let it end as soon as nothing is left in it."""
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task, outcome.Value(None))

    def begin(self, host: Body) -> None:
        """Start a body."""
        assert self._nursery is not None
        self._host, self._runs = host, True
        self._uses += 1
        self._nursery.cancel_scope.deadline = host.deadline_s
        self._nursery.start_soon(self._body, host, name=host.name)

    async def _body(self, host: Body) -> None:
        assert self._nursery is not None
        scope = self._nursery.cancel_scope
        try:
            await host.body()
        except trio.Cancelled:
            pass  # the outermost frame: nobody is left to miss it
        finally:
            self._runs = False
        if self._full or scope.cancel_called:
            self.release()
            return
        if host.deadline_s != math.inf:
            scope.deadline = math.inf
        self._stage.pits.append(self)

    @property
    def fresh(self) -> bool:
        """Whether it served few enough bodies: what a body may have left open in it does not pile up."""
        return self._uses < USES_MAX

    @property
    def clean(self) -> bool:
        """Whether the next body may run here."""
        nursery = self._nursery
        if nursery is None or self._task is None or self._full:
            return False
        return not nursery.cancel_scope.cancel_called and not nursery.child_tasks

    def fill(self) -> None:
        """End it: nothing is begun here any more."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()


def clean_pit(stage: Stage) -> "Pit | None":
    """A pit that served before and may serve again; those that may not are filled."""
    while stage.pits:
        pit: Pit = stage.pits.pop()
        if pit.clean and len(stage.pits) < PITS_MAX and pit.fresh:
            return pit
        pit.fill()
    return None


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The error itself, or all that is in a group, however deep."""
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(reversed(one.exceptions))
        else:
            yield one


def only_cancels(error: BaseException) -> bool:
    """Whether it says nothing but that somebody cancelled."""
    return all(isinstance(leaf, trio.Cancelled | Dropped) for leaf in leaves(error))

"""Ends tasks that swallow their cancellation. Touches private names of trio, as only `runtime/rounds.py` does besides.

A drop calls the task's abort function and, where that succeeds, reschedules the task with `Dropped`; the leaves of its
nurseries first. What survives every drop is parked: its coroutine is detached from its task, which then counts as
ended, and is kept for ever. Nobody closes a suspended coroutine: that kills the whole run. `usable` finds out at start
whether trio still looks as this module expects; without it dropping is off and abandonment remains.
"""

import ctypes
from typing import Any, NoReturn

import attrs
import outcome
import trio
from trio._core import _traps

from callboard.actors.errors import Dropped

TRY_S = 60.0  # for the self-test, which waits for nothing; met only where trio is not as expected
DROPS_AT_S = (0.0, 0.01, 0.02, 0.05, 0.1)  # after the window; repeated because a `finally` may wait once more


def _raise_dropped() -> NoReturn:
    raise Dropped


def _wake(task: Any, send: outcome.Outcome[Any]) -> bool:
    """Abort the task's wait and make it runnable with `send`; False when the wait cannot be aborted."""
    if task._abort_func is None or task._abort_func(_raise_dropped) is not trio.lowlevel.Abort.SUCCEEDED:
        return False
    task._abort_func = None
    trio.lowlevel.reschedule(task, send)
    return True


def drop(task: trio.lowlevel.Task) -> None:
    """Throw `Dropped` into a task and all tasks of its nurseries, wherever they can be woken."""
    for nursery in list(task.child_nurseries):
        for child in list(nursery.child_tasks):
            drop(child)
    fields: Any = task
    pending = fields._next_send
    if fields._next_send_fn is None:
        _wake(fields, outcome.Error(Dropped()))
    elif isinstance(pending, outcome.Error) and isinstance(pending.error, trio.Cancelled):
        fields._next_send = outcome.Error(Dropped())  # it spins on a cancellation that it swallows


def park(task: trio.lowlevel.Task, *, last: bool = False) -> None:
    """Detach the leaves of a task that survives every drop; called again until the task itself has ended.

    A wait that cannot be aborted (a thread) is left to end by itself. A task with an emptied nursery may still leave it
    and end; it is detached in the `last` passes only, and then ends with trio's error about that nursery.
    """
    children = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    for child in children:
        park(child, last=last)
    fields: Any = task
    if (
        children
        or (task.child_nurseries and not last)
        or (fields._next_send_fn is None and not _wake(fields, outcome.Value(None)))
    ):
        return
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(task.coro))  # for ever: collecting it would run its code once more
    fields._next_send_fn = _detach


def _detach(_: object) -> object:
    return _traps.PermanentlyDetachCoroutineObject(outcome.Value(None))


def is_blocked(task: trio.lowlevel.Task) -> bool:
    """Whether the task waits for something, so that a cancellation reaches it at once; true when trio does not tell."""
    return getattr(task, "_next_send_fn", None) is None


async def usable() -> bool:
    """(Trio) Whether dropping and parking work here, tried on two tasks that swallow what they get.

    Counted in rounds of the loop, so that a machine that stands still for a while is not taken for another trio.
    """
    task: Any = trio.lowlevel.current_task()
    fields = ("_abort_func", "_next_send", "_next_send_fn")
    if not all(hasattr(task, field) for field in fields) or not hasattr(_traps, "PermanentlyDetachCoroutineObject"):
        return False
    with trio.move_on_after(TRY_S, shield=True):  # cancelled half way, it would not know
        return await _try_out()
    return False


@attrs.define
class Trial:
    """Two tasks that are to be dropped: what the first one met, how both can be let go, and whether they are."""

    ended: list[str] = attrs.field(factory=list)
    scopes: list[trio.CancelScope] = attrs.field(factory=list)
    over: bool = False

    async def stubborn(self) -> None:
        """Ends by a drop."""
        try:
            await self._wait()
        except Dropped:
            self.ended.append("dropped")

    async def deaf(self) -> None:
        """Does not."""
        for _ in range(2):
            try:
                await self._wait()
            except Dropped:
                continue

    async def _wait(self) -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + TRY_S) as scope:
            self.scopes.append(scope)
            if not self.over:
                await trio.sleep_forever()

    def let_go(self) -> None:
        """Whoever still waits ends."""
        self.over = True
        for scope in self.scopes:
            scope.cancel()


async def _try_out() -> bool:
    trial = Trial()
    async with trio.open_nursery() as nursery:
        try:
            nursery.start_soon(trial.stubborn)
            nursery.start_soon(trial.deaf)
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            for child in list(nursery.child_tasks):
                drop(child)
            for _ in range(20):
                await trio.lowlevel.checkpoint()
            for child in list(nursery.child_tasks):
                park(child)
            for _ in range(20):
                await trio.lowlevel.checkpoint()
            return trial.ended == ["dropped"] and not nursery.child_tasks
        finally:
            trial.let_go()

"""What crosses the border between asyncio and Trio: outcomes, started functions, and asyncio tasks that Trio waits for.

Cancellation is translated in both directions and passed through in none: an `asyncio.CancelledError` inside Trio would
kill the run, and a `trio.Cancelled` means nothing to asyncio.
"""

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeVar

import attrs
import trio

from callboard.actors.errors import SessionClosed

T = TypeVar("T")

ASKED: Final[ContextVar["weakref.ref[asyncio.Task[Any]] | None"]] = ContextVar("ASKED", default=None)


@attrs.frozen
class Outcome:
    """How a Trio function ended: a value, an error, or cancelled."""

    value: Any = None
    error: Exception | None = None
    cancelled: bool = False


CANCELLED = Outcome(cancelled=True)


class Spawned:
    """A Trio function that the host started; `cancel()` asks it to end, `ended` says whether it has."""

    __slots__ = ("ended", "name", "on_end", "scope")

    def __init__(self, on_end: Callable[[Outcome], object], name: str) -> None:
        self.on_end = on_end
        self.scope = trio.CancelScope()
        self.name = name
        self.ended = False

    def cancel(self) -> None:
        """Cancel its scope; the end still arrives through `on_end`. Any number of times, from the loop's thread."""
        if not self.ended:
            self.scope.cancel()


class Starts(Protocol):
    """Where Trio functions are started: a guest of the host's loop, or a whole run on Trio alone."""

    @property
    def ending(self) -> bool:
        """Whether the run is ending or over: nothing starts any more."""
        ...

    def now_s(self) -> float:
        """Trio's clock, in seconds; while the run lives."""
        ...

    def spawn(
        self, fn: Callable[[], Awaitable[Any]], on_end: Callable[[Outcome], object], *, name: str | None = None
    ) -> Spawned:
        """Run an async Trio function; `on_end(outcome)` is called exactly once, whatever happens."""
        ...

    async def wait(self) -> None:
        """Return when the run has ended; raise a RuntimeError when it died."""
        ...


class Started(asyncio.Future[T]):
    """The future of a started Trio function: cancelling it cancels the function, and it is done when that has ended.

    So a task that waits for it never goes on while the function still cleans up.
    """

    spawned: Spawned
    _asked = False

    def cancel(self, msg: Any = None) -> bool:
        """Ask the Trio function to end; the future becomes cancelled then, whatever value it still returned."""
        del msg
        if self.done():
            return False
        self._asked = True
        self.spawned.cancel()
        return True

    def end(self, outcome: Outcome) -> None:
        """Resolve; with `SessionClosed` when the guest ended under the function."""
        if self.done():
            return
        if outcome.error is not None:
            self.set_exception(outcome.error)
        elif self._asked:
            super().cancel()
        elif outcome.cancelled:
            self.set_exception(SessionClosed(f"The runtime closed while {self.spawned.name} was running."))
            self.exception()  # read here, because nobody has to: closing is no surprise
        else:
            self.set_result(outcome.value)


class Wait:
    """A Trio task waiting for an asyncio task: the wait can be aborted and another begun, by drop.py too."""

    __slots__ = ("_over", "_waiter")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._over = False
        self._waiter: trio.lowlevel.Task | None = None
        task.add_done_callback(self._ended)

    async def done(self) -> None:
        """(Trio) Return when the asyncio task has ended."""
        if not self._over:
            self._waiter = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _ended(self, _: asyncio.Future[Any]) -> None:
        """(asyncio) The task is done; in a run that has died nobody can be told."""
        self._over = True
        waiter, self._waiter = self._waiter, None
        if waiter is not None and trio.lowlevel.in_trio_run():
            trio.lowlevel.reschedule(waiter)

    def _abort(self, _: Callable[[], Any]) -> trio.lowlevel.Abort:
        self._waiter = None
        return trio.lowlevel.Abort.SUCCEEDED


async def awaited(coro_fn: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> T:
    """A coroutine that calls, so that an error in the call itself is the task's error."""
    task = asyncio.current_task()
    ASKED.set(None if task is None else weakref.ref(task))
    return await coro_fn(*args)


def is_waited_for() -> bool:
    """Whether Trio waits for the code that runs now: it is Trio's, or the asyncio task that was asked itself.

    Of what such a task starts beside itself, which carries its context too, nobody knows.
    """
    if trio.lowlevel.in_trio_task():
        return True
    asked = ASKED.get()
    return asked is not None and asked() is asyncio.current_task()


def answer(task: asyncio.Task[T]) -> T:
    """The task's value or error, where an error that only asyncio knows becomes one that Trio can bear."""
    if task.cancelled():
        raise RuntimeError("The asyncio task was cancelled by somebody else.")
    error = task.exception()
    if error is None:
        return task.result()
    if isinstance(error, Exception):
        raise error
    raise escaped("The asyncio task", error)


def own_error(error: BaseException) -> BaseException | None:
    """The error without Trio's cancellations; None when it was nothing else."""
    if isinstance(error, BaseExceptionGroup):
        cancelled, rest = error.split(trio.Cancelled)
        return error if cancelled is None else rest
    return None if isinstance(error, trio.Cancelled) else error


def program_end(error: BaseException) -> BaseException | None:
    """The KeyboardInterrupt or SystemExit in an error, alone or in a group."""
    ends = (KeyboardInterrupt, SystemExit)
    found: BaseException | None = error if isinstance(error, ends) else None
    if isinstance(error, BaseExceptionGroup):
        found = error.subgroup(ends)
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
    return found


def escaped(name: str, error: BaseException) -> RuntimeError:
    """An error for what is no `Exception`, with the original as its cause."""
    wrapped = RuntimeError(f"{name} raised {error!r}.")
    wrapped.__cause__ = error
    return wrapped

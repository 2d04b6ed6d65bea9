"""Waiting from either loop: one answer, one latch, one blocking call, the same on asyncio and inside Trio."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import trio

T = TypeVar("T")


class Pending:
    """One answer that a mailbox will give: `reply` takes it, `get` waits for it and raises it if it is an error.

    Made where it is waited for. A waiter that is cancelled leaves the answer to nobody.
    """

    __slots__ = ("_answer", "_event", "_future")

    def __init__(self) -> None:
        self._answer: list[Any] = []
        self._future: asyncio.Future[None] | None = None
        self._event: trio.Event | None = None

    def reply(self, answer: Any) -> None:
        """Take the answer; on the loops' thread."""
        if self._answer:
            return
        self._answer.append(answer)
        if self._event is not None:
            self._event.set()
        elif self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def get(self) -> Any:
        """The answer, once it is there."""
        if not self._answer:
            if trio.lowlevel.in_trio_task():
                self._event = trio.Event()
                await self._event.wait()
            else:
                self._future = asyncio.get_running_loop().create_future()
                await self._future
        answer = self._answer[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Gate:
    """Opened once, on the loops' thread; any number may wait for that, from either loop."""

    __slots__ = ("_waiting", "opened")

    def __init__(self) -> None:
        self.opened = False
        self._waiting: list[Pending] = []

    def open(self) -> None:
        """Let all through who wait, and all who come."""
        self.opened = True
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.reply(None)

    async def wait(self) -> None:
        """Return once it is open."""
        if not self.opened:
            one = Pending()
            self._waiting.append(one)
            try:
                await one.get()
            finally:
                if one in self._waiting:
                    self._waiting.remove(one)


class Latch:
    """Set by anyone on the loops' thread; `wait` returns once it was set since the last wait."""

    __slots__ = ("_event", "_future", "_up")

    def __init__(self) -> None:
        self._up = False
        self._future: asyncio.Future[None] | None = None
        self._event: trio.Event | None = None

    def set(self) -> None:
        """Wake the waiter, or let the next wait return at once."""
        if self._up:
            return
        self._up = True
        if self._future is not None:
            if not self._future.done():
                self._future.set_result(None)
        elif self._event is not None:
            self._event.set()

    async def wait(self) -> None:
        """Return once set; one waiter at a time."""
        if not self._up:
            try:
                if trio.lowlevel.in_trio_task():
                    self._event = trio.Event()
                    await self._event.wait()
                else:
                    self._future = asyncio.get_running_loop().create_future()
                    await self._future
            finally:
                self._future = self._event = None
        self._up = False


async def checkpoint() -> None:
    """Let others run."""
    if trio.lowlevel.in_trio_task():
        await trio.lowlevel.checkpoint()
    else:
        await asyncio.sleep(0)


async def until_done(task: "asyncio.Future[None]") -> None:
    """(asyncio) Wait for what must not be left half done; a cancellation is raised once it is over."""
    try:
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        if not task.done():
            await until_done(task)
        raise


async def in_thread(fn: Callable[..., T], *args: Any) -> T:
    """Run a blocking function in a thread of the loop that asks."""
    if trio.lowlevel.in_trio_task():
        return await trio.to_thread.run_sync(_whole, fn, args, abandon_on_cancel=True)
    return await asyncio.to_thread(_whole, fn, args)


def _whole(fn: Callable[..., T], args: tuple[Any, ...]) -> T:
    """Call it; a StopIteration, which no future can carry (asyncio would wait for ever), becomes a RuntimeError."""
    try:
        return fn(*args)
    except StopIteration as error:
        raise RuntimeError(f"{fn!r} raised StopIteration") from error

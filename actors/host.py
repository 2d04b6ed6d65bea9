"""Host: one tool body in a task of its own, under the runtime's nursery, so that a turn can end without it.

The host task opens one nursery whose only child is the body. Whatever the body throws, or trio raises after it ended,
stays here; the result is always set.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import outcome
import trio

from callboard.actors.abort import AbortWindow
from callboard.actors.drop import DROPS_AT_S, drop, is_blocked, park
from callboard.actors.errors import ToolError
from callboard.actors.stage import Stage
from callboard.actors.tool import Tool

LOGGER = logging.getLogger("callboard")
PARK_TRIES_MAX = 50


class Host:
    """Runs `fn` the way `tool` says: on Trio, in a thread, or on asyncio.

    After `ended`: `value` when `has_value`, else `error`, else it was cancelled. `late` marks a value that came after
    the abort reached the body.
    """

    __slots__ = (
        "_asked_blocked",
        "_body_task",
        "_cut",
        "_deadline_s",
        "_fn",
        "_nursery",
        "_outside",
        "_stage",
        "_waiter",
        "abandoned",
        "ended",
        "ended_s",
        "error",
        "has_value",
        "late",
        "name",
        "started",
        "started_s",
        "tool",
        "value",
        "window",
    )

    def __init__(self, stage: Stage, window: AbortWindow, tool: Tool, fn: Callable[[], Any], name: str) -> None:
        self._stage, self.window, self.tool, self._fn, self.name = stage, window, tool, fn, name
        self.value: Any = None
        self.error: BaseException | None = None
        self.has_value = self.started = self.ended = self.late = self.abandoned = False
        self.started_s = self.ended_s = trio.current_time()
        self._deadline_s = float("inf") if tool.timeout_s is None else self.started_s + tool.timeout_s
        self._nursery: trio.Nursery | None = None
        self._body_task: trio.lowlevel.Task | None = None
        self._waiter: trio.lowlevel.Task | None = None
        self._cut = self._outside = self._asked_blocked = False

    def start(self) -> None:
        """Begin; the body inherits nothing of the turn's scopes, and a copy of its context variables."""
        self.window.asked[self] = None
        self._stage.nursery.start_soon(self._run, name=f"host of {self.name}")

    def ask(self) -> None:
        """The abort window opened: cancel, or leave a graceful body and a thread until its end."""
        self._asked_blocked = self._body_task is not None and is_blocked(self._body_task)
        if not (self.tool.graceful or self.tool.runs_on == "thread"):
            self.cut()

    def cut(self) -> None:
        """Cancel the body; harmless when repeated."""
        self._cut = True
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    async def wait(self) -> None:
        """(Trio) Return when the body has ended; only one task may wait."""
        if self.ended:
            return
        self._waiter = trio.lowlevel.current_task()

        def give_up(_: Any) -> trio.lowlevel.Abort:
            self._waiter = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(give_up)

    def abandon(self) -> None:
        """Go on without it: list it until it ends, cancel it, and drop it where that is possible."""
        if self.ended or self.abandoned:
            return
        self.abandoned = True
        self._stage.abandoned.add(self, self.tool.runs_on, self.name)
        self.cut()
        if self.tool.runs_on != "thread" and self._stage.can_drop:
            self._stage.nursery.start_soon(self._drops, name=f"drop of {self.name}")

    async def _run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.cancel_scope.deadline = self._deadline_s
                if not self._cut:
                    nursery.start_soon(self._body, name=self.name)
        except BaseException as error:  # whatever it is, it is the tool's, and must not reach the runtime's nursery
            self._failed(error)
        finally:
            self._over()

    async def _body(self) -> None:
        self._body_task = trio.lowlevel.current_task()
        self.started = True
        try:
            value = await self._call()
        except trio.Cancelled:
            raise
        except BaseException as error:  # kept here, so that the nursery ends quietly and a sibling never sees it
            self._failed(error)
        else:
            self.value, self.has_value = value, True
            self.late = self.window.cause is not None and (self._asked_blocked or self.tool.graceful)

    async def _call(self) -> Any:
        match self.tool.runs_on:
            case "trio":
                return await self._fn()
            case "asyncio":
                return await self._stage.ask_host(self._on_asyncio)
            case "thread":
                threads = self._stage.limits.threads_abandoned_max
                if self._stage.abandoned.count("thread") >= threads:
                    raise ToolError(f"no thread free: {threads} abandoned tools still hold theirs")
                token = trio.lowlevel.current_trio_token()
                call = partial(self._in_thread, token)
                return await trio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._stage.threads)

    def _in_thread(self, token: trio.lowlevel.TrioToken) -> Any:
        self._outside = True
        try:
            return self._fn()
        finally:
            self._outside = False
            try:
                token.run_sync_soon(self._outside_over)
            except trio.RunFinishedError:
                LOGGER.debug("%s ended after the runtime", self.name)

    async def _on_asyncio(self) -> Any:
        self._outside = True
        try:
            return await self._fn()
        finally:
            self._outside = False
            self._outside_over()

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._stage.on_interrupt(error)
        if self.has_value or self.error is not None:
            LOGGER.warning("%s left something behind: %r", self.name, error)
        else:
            self.error = error

    def _over(self) -> None:
        self.ended, self.ended_s = True, trio.current_time()
        self.window.asked.pop(self, None)
        if self._outside and not self.abandoned:  # cancelled here, but its thread or asyncio task goes on
            self.abandoned = True
            self._stage.abandoned.add(self, self.tool.runs_on, self.name)
        if not self._outside:
            self._stage.abandoned.discard(self)
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            trio.lowlevel.reschedule(waiter, outcome.Value(None))

    def _outside_over(self) -> None:
        if self.ended:
            self._stage.abandoned.discard(self)

    async def _drops(self) -> None:
        task, begun_s = self._body_task, trio.current_time()
        if task is None:
            return
        for at_s in DROPS_AT_S:
            await trio.sleep_until(begun_s + at_s)
            if self.ended:
                return
            drop(task)
        await trio.sleep(DROPS_AT_S[-1])
        for tries in range(PARK_TRIES_MAX):
            if self.ended:
                LOGGER.warning("%s survived every drop and is parked: its code will not run again", self.name)
                self._stage.abandoned.parked.append(self.name)
                return
            park(task, last=tries > PARK_TRIES_MAX // 2)
            await trio.lowlevel.checkpoint()

"""Host: foreign code in a task of its own, under the runtime's nursery, so that a turn can end without it.

A body runs in a pit, whatever it throws stays there, and the result is always set.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import outcome
import trio

from callboard.actors.abort import AbortWindow
from callboard.actors.drop import DROPS_AT_S, drop, is_blocked, park
from callboard.actors.errors import ToolError
from callboard.actors.inside import INSIDE
from callboard.actors.pit import Pit, clean_pit, leaves, only_cancels
from callboard.actors.stage import Stage
from callboard.actors.tool import RunsOn

LOGGER = logging.getLogger("callboard")
PARK_TRIES_MAX = 50


class Host:
    """Runs `fn` on Trio, in a thread, or on asyncio, until it ends, is cut, or `timeout_s` is over.

    After `ended`: `value` when `has_value`, else `error`, else it was cancelled. `late` marks a value or an error that
    came after the abort reached the body.
    """

    __slots__ = (
        "_asked_blocked",
        "_body_task",
        "_cut",
        "_fn",
        "_outside",
        "_pit",
        "_stage",
        "_waiter",
        "abandoned",
        "deadline_s",
        "ended",
        "ended_s",
        "error",
        "graceful",
        "has_value",
        "late",
        "name",
        "runs_on",
        "started",
        "started_s",
        "timeout_s",
        "value",
        "window",
    )

    def __init__(
        self,
        stage: Stage,
        window: AbortWindow,
        fn: Callable[[], Any],
        name: str,
        *,
        runs_on: RunsOn = "trio",
        graceful: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        self._stage, self.window, self._fn, self.name = stage, window, fn, name
        self.runs_on, self.graceful, self.timeout_s = runs_on, graceful, timeout_s
        self.value: Any = None
        self.error: BaseException | None = None
        self.has_value = self.started = self.ended = self.late = self.abandoned = False
        self.started_s = self.ended_s = stage.now_s()
        self.deadline_s = math.inf if timeout_s is None else self.started_s + timeout_s
        self._pit: Pit | None = None
        self._body_task: trio.lowlevel.Task | None = None
        self._waiter: trio.lowlevel.Task | None = None
        self._cut = self._outside = self._asked_blocked = False

    def start(self) -> None:
        """Begin; the body inherits nothing of the turn's scopes, and a copy of its context variables."""
        pit = self._pit = clean_pit(self._stage)
        if pit is None:
            pit = self._pit = Pit(self._stage)
            self._stage.nursery.start_soon(pit.run, self, name=f"host of {self.name}")
        else:
            pit.begin(self)

    def ask(self) -> None:
        """The abort window opened: cancel, or leave a graceful body and a running thread until its end."""
        self._asked_blocked = self._body_task is not None and is_blocked(self._body_task)
        lingers = self._outside if self.runs_on == "thread" else self.graceful
        if lingers:
            self.window.told = True
        else:
            self.cut()

    def cut(self) -> None:
        """Cancel the body; harmless when repeated."""
        self._cut = True
        if self._pit is not None and not self.ended:
            self._pit.fill()

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
        self._stage.abandoned.add(self, self.runs_on, self.name)
        self.window.asked.pop(self, None)
        self.cut()
        if self._pit is not None:
            self._pit.release()
        if self.runs_on != "thread" and self._stage.can_drop:
            now_s = trio.current_time()
            self._stage.timers.at(now_s + DROPS_AT_S[0], partial(self._drop, now_s))

    def desert(self) -> None:
        """Its turn is gone and waits for nothing: cancel it, and abandon it when it outlives the length of a window."""
        if not self.ended and not self.abandoned:
            self.cut()
            self._stage.timers.at(trio.current_time() + self.window.window_s, self.abandon)

    async def body(self) -> None:
        """(the pit) Run the code and say that it is over."""
        try:
            if not self._cut:
                await self._run()
        finally:
            self.over()

    async def _run(self) -> None:
        self._body_task = trio.lowlevel.current_task()
        self.started = self.runs_on != "thread"  # a thread may have to wait for its place
        try:
            value = await self._call()
        except trio.Cancelled:
            raise
        except BaseException as error:  # kept here, so that the pit stays clean
            self.failed(error)
        else:
            self.value, self.has_value = value, True
        self.late = self.window.cause is not None and (self._asked_blocked or self.graceful)

    async def _call(self) -> Any:
        match self.runs_on:
            case "trio":
                return await self._fn()
            case "asyncio":
                value = await self._stage.ask_host(self._on_asyncio)
                if type(value) is _Exited:
                    raise value.error
                return value
            case "thread":
                threads_max = self._stage.limits.threads_abandoned_max
                if self._stage.abandoned.count("thread") >= threads_max:
                    raise ToolError(f"no thread free: {threads_max} abandoned tools still hold theirs")
                token = trio.lowlevel.current_trio_token()
                threads = self._stage.threads
                return await trio.to_thread.run_sync(self._in_thread, token, abandon_on_cancel=True, limiter=threads)

    def _in_thread(self, token: trio.lowlevel.TrioToken) -> Any:
        self._outside = True  # first this, then the look at `ended`; `over` does both the other way round
        try:
            if self.ended:
                return None
            self.started = True
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
        except SystemExit as error:  # asyncio would raise it out of its loop and end the program
            return _Exited(error)
        finally:
            self._outside = False
            self._outside_over()

    def failed(self, error: BaseException) -> None:
        """(the pit) The body threw this, or left it behind."""
        report_interrupts(self._stage, error)
        if self.has_value or self.error is not None:
            LOGGER.warning("%s left something behind: %r", self.name, error)
        else:
            self.error = error

    def over(self) -> None:
        """(the pit) The body has ended; its waiter goes on."""
        if self.ended:
            return
        self.ended, self.ended_s = True, self._stage.now_s()
        self.window.asked.pop(self, None)
        if self._outside and not self.abandoned:  # cancelled here, but its thread or asyncio task goes on
            self.abandoned = True
            self._stage.abandoned.add(self, self.runs_on, self.name)
        if not self._outside:
            self._stage.abandoned.discard(self)
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            trio.lowlevel.reschedule(waiter, outcome.Value(None))
        elif self.window.look is not None:
            self.window.look()

    def _outside_over(self) -> None:
        if self.ended:
            self._stage.abandoned.discard(self)

    def _drop(self, begun_s: float, tries: int = 0) -> None:
        task = self._body_task
        if self.ended or task is None:
            return
        drop(task)
        if tries + 1 < len(DROPS_AT_S):
            self._stage.timers.at(begun_s + DROPS_AT_S[tries + 1], partial(self._drop, begun_s, tries + 1))
        else:
            self._stage.timers.at(begun_s + 2 * DROPS_AT_S[-1], self._park)

    def _park(self, tries: int = 0) -> None:
        task = self._body_task
        assert task is not None
        if not self.ended and tries < PARK_TRIES_MAX:
            park(task, last=tries > PARK_TRIES_MAX // 2)
            self._stage.timers.at(trio.current_time(), partial(self._park, tries + 1))
        elif self.ended and tries:
            LOGGER.warning("%s survived every drop and is parked: its code will not run again", self.name)
            self._stage.abandoned.parked.append(self.name)


class _Exited:
    """How a SystemExit passes through asyncio."""

    __slots__ = ("error",)

    def __init__(self, error: SystemExit) -> None:
        self.error = error


class Beside:
    """A task of a plugin beside the session: `close` cancels it, and nothing it throws goes further than the log."""

    __slots__ = ("_scope",)

    def __init__(self) -> None:
        self._scope = trio.CancelScope()

    def close(self) -> None:
        """Cancel it; harmless when repeated."""
        self._scope.cancel()

    async def run(
        self, stage: Stage, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...], over: Callable[[], None]
    ) -> None:
        """(Trio) Run `fn`, then say `over()`."""
        INSIDE.set(None)  # no turn waits for it
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(fn, *args)
        except BaseException as error:  # foreign code again: it must not reach the runtime's nursery
            report_interrupts(stage, error)
            if not only_cancels(error):
                LOGGER.exception("a task beside the session failed")
        finally:
            over()


def report_interrupts(stage: Stage, error: BaseException) -> None:
    """Hand a KeyboardInterrupt to the runtime, also one inside a group."""
    for leaf in leaves(error):
        if isinstance(leaf, KeyboardInterrupt):
            stage.on_interrupt(leaf)

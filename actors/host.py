"""Host: foreign code in a task of its own, under the runtime's nursery, so that a turn can end without it.

A body runs as the only child of a pit's nursery. Whatever it throws, or trio raises after it ended, stays there; the
result is always set. A pit that stayed clean serves the next body: that saves two task switches and a nursery a call.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import outcome
import trio

from callboard.actors.abort import AbortWindow
from callboard.actors.drop import DROPS_AT_S, drop, is_blocked, park
from callboard.actors.errors import Dropped, ToolError
from callboard.actors.stage import Stage
from callboard.actors.tool import RunsOn

LOGGER = logging.getLogger("callboard")
PARK_TRIES_MAX = 50
PITS_MAX = 256  # idle ones that are kept
USES_MAX = 1_000  # bodies that one pit serves


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
        if not lingers:
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
        self.cut()
        if self.runs_on != "thread" and self._stage.can_drop:
            self._stage.nursery.start_soon(self._drops, name=f"drop of {self.name}")

    def desert(self) -> None:
        """Its turn is gone and waits for nothing: cancel it, and abandon it when it outlives the length of a window."""
        if not self.ended and not self.abandoned:
            self.cut()
            self._stage.nursery.start_soon(self._abandon_later, name=f"end of {self.name}")

    async def _abandon_later(self) -> None:
        await trio.sleep(self.window.window_s)
        self.abandon()

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


class _Exited:
    """How a SystemExit passes through asyncio."""

    __slots__ = ("error",)

    def __init__(self, error: SystemExit) -> None:
        self.error = error


class Pit:
    """Where bodies run, one at a time: a task with one nursery, in the runtime's nursery.

    It is clean while nothing was cancelled in it and nothing left behind; `fill` ends it, and the body in it.
    """

    __slots__ = ("_host", "_nursery", "_stage", "_uses")

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._nursery: trio.Nursery | None = None
        self._host: Host | None = None
        self._uses = 0

    async def run(self, first: Host) -> None:
        """(Trio) Run the first body, and whatever is begun here later, until filled."""
        self._host = first
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self.begin(first)
                await trio.sleep_forever()
        except BaseException as error:  # whatever it is, it is a body's, and must not reach the runtime's nursery
            if not only_cancels(error):
                self._host.failed(error)
        finally:
            self._host.over()

    def begin(self, host: Host) -> None:
        """Start a body."""
        assert self._nursery is not None
        self._host = host
        self._uses += 1
        self._nursery.cancel_scope.deadline = host.deadline_s
        self._nursery.start_soon(self._body, host, name=host.name)

    async def _body(self, host: Host) -> None:
        await host.body()
        if host.deadline_s != math.inf and self._nursery is not None:
            self._nursery.cancel_scope.deadline = math.inf
        self._stage.pits.append(self)

    @property
    def fresh(self) -> bool:
        """Whether it served few enough bodies: what a body may have left open in it does not pile up."""
        return self._uses < USES_MAX

    @property
    def clean(self) -> bool:
        """Whether the next body may run here."""
        nursery = self._nursery
        return nursery is not None and not nursery.cancel_scope.cancel_called and not nursery.child_tasks

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


def report_interrupts(stage: Stage, error: BaseException) -> None:
    """Hand a KeyboardInterrupt to the runtime, also one inside a group."""
    for leaf in leaves(error):
        if isinstance(leaf, KeyboardInterrupt):
            stage.on_interrupt(leaf)

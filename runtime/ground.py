"""Ground: what a runtime stands on: the Trio run, the store, the metrics, and the nursery of what outlives a turn."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import attrs
import trio
from prometheus_client import CollectorRegistry

from callboard.actors.drop import usable
from callboard.actors.errors import LogError
from callboard.actors.eventlog import Listener
from callboard.actors.events import Event, SessionOpened
from callboard.actors.notices import AbandonedChanged, Notice, ToolSkipped
from callboard.actors.stage import Stage
from callboard.actors.store import Store
from callboard.metrics.collector import Collector, Snapshot
from callboard.metrics.recorder import Recorder
from callboard.metrics.render import Exposition
from callboard.plugins.usershell import user_shell
from callboard.runtime.assembly import Assembly, limits_of, prices_of
from callboard.runtime.clock import Wall, nanoseconds, steady_s
from callboard.runtime.config import RuntimeConfig
from callboard.runtime.crossing import Outcome
from callboard.runtime.guest import Guest
from callboard.runtime.models import ModelNames
from callboard.runtime.stores import open_store
from callboard.runtime.tracing import Tracing
from callboard.runtime.vitals import Vitals
from callboard.runtime.waiting import Pending, in_thread, until_done

LOGGER = logging.getLogger("callboard")
DROPS_S_MAX = 1.0  # all attempts to drop a tool and to park it take a third of that
LEAVE_S_MIN = 0.2  # what ends at the end may take so long at least: two abort windows


@attrs.frozen
class Parts:
    """What one runtime is made of, checked; nothing of it runs yet."""

    config: RuntimeConfig
    models: ModelNames
    assembly: Assembly
    store: Store | str
    registry: CollectorRegistry
    wall: Wall
    folder: str


class Ground:
    """Opened step by step, closed in reverse order, whatever fails on the way."""

    guest: Guest
    store: Store
    stage: Stage
    exposition: Exposition

    def __init__(
        self, parts: Parts, on_due: Callable[[str, int | None], None], snapshot: Callable[[], Snapshot]
    ) -> None:
        self._parts, self._on_due, self._snapshot = parts, on_due, snapshot
        self._fewer: asyncio.Future[None] | None = None
        self.commands = {one.name: one for plugin in parts.assembly.plugins for one in plugin.commands}
        self.vitals = Vitals()
        self.tracing: Tracing | None = None
        self.listener: Callable[[Notice], None] | None = None  # who hears every notice besides the metrics

    async def open(self) -> None:
        """Enter the Trio run, open the store, register the metrics, and make the nursery."""
        async with AsyncExitStack() as undo:
            self.guest = await Guest.enter()
            undo.push_async_callback(self.guest.leave)
            await self._open_store()
            undo.push_async_callback(self._close_store)
            self._count()
            await self._trace()
            if self.tracing is not None:
                undo.push_async_callback(self.tracing.close)
            await self._spread()
            undo.pop_all()

    async def _open_store(self) -> None:
        url = self._parts.store
        durability = self._parts.config.store.durability
        self.store = await in_thread(open_store, url, durability) if isinstance(url, str) else url
        if hasattr(self.store, "on_notice"):
            self.store.on_notice = self.notice
        opening = asyncio.ensure_future(self._at_disk(self.store.open, self.guest.run_soon))
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            try:  # a thread ends when it ends, and what it opened is closed behind it
                await until_done(opening)
            finally:
                if opening.exception() is None:
                    await self._close_store()
            raise

    async def _at_disk(self, ask: Callable[..., None], *args: Any) -> None:
        """In a thread when it may wait for a disk, else here: a store that knows no threads answers on the loop."""
        if self.store.blocking:
            await in_thread(ask, *args)
        else:
            ask(*args)

    def _count(self) -> None:
        """Metrics go to the registry, which keeps them after the end so that they can still be read."""
        parts = self._parts
        hooks = [hook.name for hook in parts.assembly.hooks]
        self._recorder = Recorder(parts.registry, tuple(parts.assembly.tools), hooks, now_s=steady_s)
        Collector(parts.registry, self._snapshot)
        self.exposition = Exposition(parts.registry, steady_s)
        for tool in parts.assembly.skipped:
            self.notice(ToolSkipped(tool.name, str(tool.external)))

    async def _trace(self) -> None:
        """Spans go where the configuration says, and events are heard by one more."""
        config = self._parts.config.otel
        if config.endpoint is not None:
            tracing = Tracing(config, self._parts.models.default_name, nanoseconds(self._parts.wall))
            await tracing.open()
            self.tracing = tracing

    def _heard(self) -> Listener:
        count, tracing = self._recorder.event, self.tracing
        if tracing is None:
            return count
        trace = tracing.event

        def both(event: Event, session: str, turn: int | None) -> None:
            count(event, session, turn)
            trace(event, session, turn)

        return both

    async def _spread(self) -> None:
        ready = Pending()
        self._over: asyncio.Future[None] = self.guest.loop.create_future()
        self._held = self.guest.spawn(lambda: self._hold(ready), self._ended, name="ground of a runtime")
        self.stage = await ready.get()

    async def _hold(self, ready: Pending) -> None:
        """(Trio) The nursery of tool bodies and of all that outlives a turn."""
        parts, assembly = self._parts, self._parts.assembly
        await parts.models.warm()
        async with trio.open_nursery() as nursery:
            stage = Stage(
                store=self.store,
                codec=assembly.codec,
                folds=assembly.folds,
                now_ms=parts.wall.now_ms,
                nursery=nursery,
                ask_host=self.guest.ask_host,
                resolve=parts.models.answering,
                tools=assembly.tools,
                plugins=assembly.plugins,
                hooks=assembly.hooks,
                limits=limits_of(parts.config, steps_max=parts.models.steps_max),
                on_event=self._heard(),
                on_notice=self.notice,
                on_due=self._on_due,
                on_interrupt=self._keyboard_interrupt,
                price_of=prices_of(parts.config, parts.models),
                folder=parts.folder,
                can_drop=await usable(),
                shell=user_shell(),
            )
            ready.reply(stage)
            try:
                await trio.sleep_forever()
            finally:
                await parts.models.aclose()

    def _ended(self, outcome: Outcome) -> None:
        if outcome.error is not None:
            LOGGER.error("the ground of a runtime failed: %r", outcome.error)
        self._over.set_result(None)

    async def close(self, ends_s: float, *first: asyncio.Future[None]) -> tuple[str, ...]:
        """End what is left, together with `first`, until `ends_s` on the loop's clock; what still lives then.

        Each step is taken whatever became of the one before: a cancellation skips the waiting, never a step.
        """
        left: list[str] = []
        async with AsyncExitStack() as steps:
            if self.tracing is not None:
                steps.push_async_callback(self.tracing.close)
            steps.push_async_callback(self._close_store)
            steps.push_async_callback(self._leave, ends_s, left)
            steps.push_async_callback(self._cut, ends_s, left, first)
            await self._dropped(min(ends_s, self.guest.loop.time() + DROPS_S_MAX))
        return (*left, *self.stage.abandoned.names())

    async def _dropped(self, ends_s: float) -> None:
        """What was abandoned on Trio is being dropped by tasks on this ground: let them finish before it is cut."""
        loop = self.guest.loop
        while self.stage.abandoned.count("trio") and loop.time() < ends_s:
            self._fewer = loop.create_future()
            await asyncio.wait((self._fewer,), timeout=ends_s - loop.time())

    async def _cut(self, ends_s: float, left: list[str], first: tuple[asyncio.Future[None], ...]) -> None:
        self._held.cancel()
        await asyncio.wait((self._over, *first), timeout=max(LEAVE_S_MIN, ends_s - self.guest.loop.time()))
        if not self._over.done():
            left += sorted(task.name for task in self.stage.nursery.child_tasks)

    async def _leave(self, ends_s: float, left: list[str]) -> None:
        left += await self.guest.leave(bound_s=max(LEAVE_S_MIN, ends_s - self.guest.loop.time()))

    async def _close_store(self) -> None:
        try:
            await self._at_disk(self.store.close)
        except LogError as error:
            LOGGER.error("the store did not close cleanly: %s", error)  # noqa: TRY400 - a disk is no bug of ours

    def known_by(self, listener: Callable[[Notice], None], opened: Callable[[str], SessionOpened | None]) -> None:
        """From now on there are sessions: who hears of notices, and how a session was opened."""
        self.listener = listener
        if self.tracing is not None:
            self.tracing.opened = opened

    def notice(self, notice: Notice) -> None:
        """Count what no log keeps, and tell whoever listens."""
        self._recorder.notice(notice)
        self.vitals.take(notice)
        if self.listener is not None:
            self.listener(notice)
        if isinstance(notice, AbandonedChanged) and self._fewer is not None and not self._fewer.done():
            self._fewer.set_result(None)

    def _keyboard_interrupt(self, error: BaseException) -> None:
        """A tool met Ctrl-C: that is for the whole program, so it leaves by the host's loop."""
        self.guest.loop.call_soon(_raise, KeyboardInterrupt())


def _raise(error: BaseException) -> None:
    raise error

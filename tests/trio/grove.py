"""A whole runtime inside one Trio run: its sessions, spawner, supervisors, calendar and post, without a host's loop."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from callboard.actors.alarm import AlarmClock
from callboard.actors.childspec import ChildSpec, Intensity
from callboard.actors.errors import UsageError
from callboard.actors.events import Event, SessionOpened
from callboard.actors.model import Model
from callboard.actors.plugin import Plugin
from callboard.actors.snapping import SNAP_BYTES
from callboard.actors.stage import Stage
from callboard.actors.store import Store
from callboard.actors.tool import Tool
from callboard.runtime.assembly import assemble, limits_of, tree_limits_of
from callboard.runtime.calendar import Calendar
from callboard.runtime.config import RuntimeConfig
from callboard.runtime.crossing import CANCELLED, Outcome, Spawned, own_error
from callboard.runtime.handle import SessionHandle
from callboard.runtime.handover import HandOvers
from callboard.runtime.models import ModelNames
from callboard.runtime.post import Post
from callboard.runtime.sessions import Sessions
from callboard.runtime.supervisor import Supervisor
from callboard.runtime.sweep import Sweep

POLITE_S = 6.0
START_MS = 1_800_000_000_000


class Alone:
    """Starts Trio functions as a guest does, where there is no host: their ends are told in a turn of their own."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery, self._token = nursery, trio.lowlevel.current_trio_token()
        self._over = trio.Event()
        self.ending = False

    def now_s(self) -> float:
        """Trio's clock."""
        return trio.current_time()

    def spawn(
        self, fn: Callable[[], Awaitable[Any]], on_end: Callable[[Outcome], object], *, name: str | None = None
    ) -> Spawned:
        """Run an async function; `on_end(outcome)` is called exactly once."""
        spawned = Spawned(on_end, name or type(fn).__name__)
        if self.ending:
            self._settle(spawned, CANCELLED)
        else:
            self._nursery.start_soon(self._run, spawned, fn, name=spawned.name)
        return spawned

    async def _run(self, spawned: Spawned, fn: Callable[[], Awaitable[Any]]) -> None:
        outcome = CANCELLED
        try:
            with spawned.scope:
                outcome = Outcome(await fn())
        except BaseException as raised:
            error = own_error(raised)
            if error is not None and not isinstance(error, Exception):
                raise
            outcome = CANCELLED if error is None else Outcome(error=error)
        self._settle(spawned, outcome)

    def _settle(self, spawned: Spawned, outcome: Outcome) -> None:
        spawned.ended = True
        self._token.run_sync_soon(spawned.on_end, outcome)

    def end(self) -> None:
        """Nothing starts any more."""
        self.ending = True
        self._over.set()

    async def wait(self) -> None:
        """Return when it has ended."""
        await self._over.wait()


class Grove:
    """What `open_runtime` makes, on Trio alone; the same parts, put together the same way."""

    def __init__(self, host: Alone, stage: Stage, config: RuntimeConfig, models: ModelNames) -> None:
        self.host, self.stage, self.config = host, stage, config
        self.gave_up = trio.Event()
        self._alarm = AlarmClock(stage.now_ms, self._ring)
        stage.on_due = self._alarm.set
        limits = tree_limits_of(config)
        self.sessions = Sessions(host, stage, config, models, limits, self._alarm, self._hear, polite_s=POLITE_S)
        registry, open_session = self.sessions.registry, self.sessions.open
        known, lookup = registry.__contains__, self.sessions.lookup
        self._calendar = Calendar(self._alarm, lookup, stage.now_ms, known, open_session, wanted=bool(stage.alarms))
        stage.spawner = self.sessions.spawner
        stage.post = Post(self.sessions, stage.limits.text_max_chars)
        stage.above = registry.above
        stage.hand_over = HandOvers(self.sessions, host.spawn).begin
        stage.on_notice = self._hear
        sweep = Sweep(registry, config.runtime.idle_evict_s or 300.0)
        below = (
            ChildSpec("alarm", self._calendar.run),
            ChildSpec("sweep", sweep.run),
            self.sessions.supervisor.as_child(restart="transient", significant=True),
        )
        intensity = Intensity(config.supervisor.restarts_max, config.supervisor.period_s)
        self.root = Supervisor(host, id="root", children=below, intensity=intensity, on_notice=self._hear)
        self._rooted = host.spawn(self.root.run, self._root_ended, name="root")

    def _root_ended(self, outcome: Outcome) -> None:
        if outcome.error is not None:
            self.gave_up.set()

    def _hear(self, notice: Any) -> None:
        self.sessions.registry.audience.hear(notice)

    def _ring(self, session: str) -> None:
        if not self.sessions.ring(session):
            self._calendar.rang(session)

    async def create(self, session_id: str) -> SessionHandle:
        """A new root session."""
        return await self.sessions.create(session_id, SessionOpened(root=session_id), chosen=True)

    async def close(self) -> tuple[str, ...]:
        """Stop everything as the end of a runtime does; the names of what does not end."""
        await self.sessions.endings.stop_children()
        left = await self.sessions.supervisor.shutdown()
        self._rooted.cancel()
        self.host.end()
        self.sessions.endings.closed()
        return left


@asynccontextmanager
async def open_grove(
    model: Model,
    *,
    config: RuntimeConfig,
    store: Store,
    plugins: Sequence[Plugin],
    tools: Iterable[Tool] = (),
    jumped_ms: Callable[[], int] = lambda: 0,
    snap_bytes: int = SNAP_BYTES,
    on_event: Callable[[Event, str, int | None], None] = lambda event, session, turn: None,
) -> AsyncIterator[Grove]:
    """A grove for the length of the block. Left by an error it is killed: nobody says goodbye."""
    names, assembly = ModelNames(model), assemble(config, plugins, tools, ())
    async with trio.open_nursery() as nursery:
        host = Alone(nursery)
        stage = Stage(
            store=store,
            codec=assembly.codec,
            folds=assembly.folds,
            now_ms=lambda: START_MS + round(trio.current_time() * 1000) + jumped_ms(),
            nursery=nursery,
            ask_host=_no_host,
            resolve=names.answering,
            tools=assembly.tools,
            plugins=assembly.plugins,
            hooks=assembly.hooks,
            limits=attrs.evolve(limits_of(config), snap_bytes=snap_bytes),
            on_event=on_event,
        )
        store.open(trio.lowlevel.current_trio_token().run_sync_soon)
        yield Grove(host, stage, config, names)
        nursery.cancel_scope.cancel()


async def _no_host(fn: Callable[..., Any], *args: Any) -> Any:
    raise UsageError("a grove has no asyncio.")

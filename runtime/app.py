"""open_runtime: the composition root. Everything that is made once is made here, and ends here in reverse order."""

import asyncio
import logging
import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import trio
from prometheus_client import CollectorRegistry

from callboard.actors.alarm import AlarmClock
from callboard.actors.childspec import ChildSpec, Intensity
from callboard.actors.errors import IntensityReached, SessionClosed, UsageError
from callboard.actors.events import SessionOpened
from callboard.actors.messages import Refused
from callboard.actors.model import Model
from callboard.actors.notices import RuntimeLeft
from callboard.actors.plugin import Command, Hook, Plugin
from callboard.actors.session import Session
from callboard.actors.store import Header, Store
from callboard.actors.tool import Tool
from callboard.metrics.collector import Snapshot
from callboard.metrics.render import Exposition
from callboard.metrics.serve import Server
from callboard.metrics.serve import serve_metrics as serve_text
from callboard.plugins import DEFAULT
from callboard.plugins.model import model_plugin
from callboard.runtime.arguments import (
    checked_clock,
    checked_folder,
    checked_registry,
    checked_store,
    checked_text,
    checked_title,
    new_session_id,
    settings_of,
    with_peek,
)
from callboard.runtime.assembly import assemble, tree_limits_of
from callboard.runtime.calendar import Calendar
from callboard.runtime.clock import Wall
from callboard.runtime.config import RuntimeConfig
from callboard.runtime.connections import Connections, servers_of
from callboard.runtime.garbage import GarbageKeeper
from callboard.runtime.ground import Ground, Parts
from callboard.runtime.handle import SessionHandle
from callboard.runtime.handover import HandOvers
from callboard.runtime.lag import LagProbes
from callboard.runtime.looks import Looks
from callboard.runtime.models import ModelNames
from callboard.runtime.nodes import Shown
from callboard.runtime.peek import Peek
from callboard.runtime.post import Post
from callboard.runtime.reading import QUEUE_MAX, Reading
from callboard.runtime.sessions import Sessions
from callboard.runtime.supervisor import Supervisor
from callboard.runtime.sweep import Sweep
from callboard.runtime.vitals import Vitals, health_of
from callboard.runtime.waiting import until_done

LOGGER = logging.getLogger("callboard")
NOT_YET = ("new", "opening")
RESTING = ("idle", "passivated", "stopped")
POLITE_FACTOR = 0.6  # of `shutdown_s`: so long a session may take to end by itself when the runtime closes


def open_runtime(
    config: RuntimeConfig | str | Path | None = None,
    *,
    model: Model | str | None = None,
    plugins: Sequence[Plugin] = DEFAULT,
    tools: Iterable[Tool] = (),
    hooks: Iterable[Hook] = (),
    store: Store | str | None = None,
    registry: CollectorRegistry | None = None,
    clock: Wall | None = None,
    folder: str | Path = ".",
    peek: bool | None = None,
) -> "Runtime":
    """A runtime for the length of an `async with`, or from `await ....start()` to `await ....close()`.

    `config` is a RuntimeConfig or the path of a TOML file; arguments beat it. `store` is `memory`, `sqlite:///FILE` or
    a Store; `model` a Model, `scripted:demo` or `replay:FILE`. `folder` is the working directory of tools. `peek` lets
    `callboard tree` look at this program over a local socket; None leaves that to the configuration. Mistakes are
    raised here as `UsageError`, before anything runs.
    """
    settings = with_peek(settings_of(config), peek)
    names = ModelNames(model if model is not None else settings.model.name, settings.model)
    parts = Parts(
        settings,
        names,
        assemble(settings, plugins, tools, hooks, names.tools, (model_plugin(names.checked, names.default_name),)),
        checked_store(store, settings),
        checked_registry(registry),
        checked_clock(clock),
        checked_folder(folder),
    )
    return Runtime(parts)


class Runtime:
    """A running Callboard: sessions by id, under supervisors, on one store. Made by `open_runtime`."""

    def __init__(self, parts: Parts) -> None:
        self.config, self.models, self.registry = parts.config, parts.models, parts.registry
        self._servers = servers_of(parts.config, parts.folder)
        self._connections: Connections | None = None
        self._ground = Ground(parts, self._set_alarm, self._snapshot)
        self._phase: Literal["new", "opening", "open", "closing", "closed"] = "new"
        self._closing: asyncio.Task[None] | None = None
        self._garbage: GarbageKeeper | None = None
        self._left: tuple[str, ...] = ()
        self._peek = Peek(self._shown)

    @property
    def store(self) -> Store:
        """Where the logs are."""
        return self._ground.store

    @property
    def exposition(self) -> Exposition:
        """The metrics, ready to be served."""
        return self._ground.exposition

    # -- opening and closing -----------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> Self:
        """Open everything; returns the runtime itself, so that `rt = await open_runtime(...).start()` works."""
        if self._phase != "new":
            raise UsageError("this runtime was opened before; call open_runtime() again.")
        self._phase = "opening"
        try:
            await self._ground.open()
            self._supervise()
            self._phase = "open"
            await self._settle()
        finally:
            if self._phase == "opening":
                self._phase = "closed"
        if self.config.runtime.tree_socket:
            async with AsyncExitStack() as undo:
                undo.push_async_callback(self.close)
                await self._peek.open()
                undo.pop_all()
        return self

    def _supervise(self) -> None:
        """The tree: the alarm and the sessions under one root."""
        ground, supervision = self._ground, self.config.supervisor
        self._alarm = AlarmClock(ground.stage.now_ms, self._ring)
        self._sessions = Sessions(
            ground.guest,
            ground.stage,
            self.config,
            self.models,
            tree_limits_of(self.config, agents_max=self.models.agents_max),
            self._alarm,
            ground.notice,
            polite_s=self.config.runtime.shutdown_s * POLITE_FACTOR,
        )
        known, wanted = self._sessions.registry.__contains__, bool(ground.stage.alarms)
        lookup, now_ms = self._sessions.lookup, ground.stage.now_ms
        self._calendar = Calendar(self._alarm, lookup, now_ms, known, self._sessions.open_due, wanted=wanted)
        ground.stage.spawner = self._sessions.spawner
        ground.stage.post = Post(self._sessions, ground.stage.limits.text_max_chars)
        ground.stage.above = self._sessions.registry.above
        ground.stage.hand_over = HandOvers(self._sessions, ground.guest.spawn).begin
        ground.known_by(self._sessions.registry.audience.hear, self._sessions.registry.opened)
        sessions = self._sessions.supervisor.as_child(
            restart="transient", shutdown_s=self.config.runtime.shutdown_s, significant=True
        )
        self._root = Supervisor(
            ground.guest,
            id="root",
            children=(ChildSpec("alarm", self._calendar.run), *self._sweeps(), *self._connecting(), sessions),
            intensity=Intensity(supervision.restarts_max, supervision.period_s),
            on_notice=ground.notice,
        )
        self._rooted = ground.guest.start(self._root.run)
        registry, trees = self._sessions.registry, self._sessions.spawner.trees
        self._looks = Looks(ground, registry, trees, self._root, self._rooted.done)
        self._probes = LagProbes(ground.guest, ground.notice)
        self._probes.start()
        if self.config.runtime.gc_policy == "manage":
            self._garbage = GarbageKeeper(ground.guest.loop, self._busy)
            self._garbage.start()

    def _sweeps(self) -> tuple[ChildSpec, ...]:
        """The sweep, unless every session stays in memory."""
        evict_s = self.config.runtime.idle_evict_s
        if evict_s is None or evict_s == math.inf:
            return ()
        return (ChildSpec("sweep", Sweep(self._sessions.registry, evict_s).run),)

    def _connecting(self) -> tuple[ChildSpec, ...]:
        """The connections to servers of tools, if there are any."""
        if not self._servers:
            return ()
        self._connections = Connections(self._ground, self.config, self._servers)
        return (self._connections.supervisor.as_child(),)

    async def _settle(self) -> None:
        """Wait for the tools of servers, so that the first turn has them; a cancelled start closes all again."""
        if self._connections is not None:
            async with AsyncExitStack() as undo:
                undo.push_async_callback(self.close)
                await self._connections.settle()
                undo.pop_all()

    async def close(self) -> None:
        """Stop every session, flush, end; bounded by `shutdown_s`. What still lives is named in `left` and the log.

        Harmless when repeated. Whoever waits and is cancelled still waits until it is closed.
        """
        _not_inside("close")
        if self._phase == "open":
            self._phase = "closing"
            self._closing = asyncio.ensure_future(self._close())
        if self._closing is not None:
            await until_done(self._closing)
            self._closing.result()

    async def _close(self) -> None:
        ends_s = self._ground.guest.loop.time() + self.config.runtime.shutdown_s
        await self._peek.close()
        self._probes.stop()
        if self._garbage is not None:
            self._garbage.stop()
        left: tuple[str, ...] = ()
        try:
            left = await self._sessions.endings.end(ends_s)
        finally:
            self._rooted.cancel()
            left += await self._ground.close(ends_s, self._rooted)
            self._sessions.endings.closed()
            if not self._rooted.cancelled() and self._rooted.done():
                self._rooted.exception()  # read, because nobody has to wait() for it
            self._phase, self._left = "closed", tuple(dict.fromkeys(left))
            if self._left:
                LOGGER.warning("the runtime closed while these were still alive: %s", ", ".join(self._left))
                self._ground.notice(RuntimeLeft(self._left))

    @property
    def left(self) -> tuple[str, ...]:
        """What was still alive when the runtime closed."""
        return self._left

    @property
    def parked(self) -> tuple[str, ...]:
        """Tools that survived every attempt to end them; their code never runs again."""
        return () if self._phase in NOT_YET else tuple(self._ground.stage.abandoned.parked)

    async def wait(self) -> None:
        """Return when the runtime was closed; raises `IntensityReached` when its supervisors gave up."""
        _not_inside("wait")
        self._check_begun()
        await asyncio.wait((self._rooted,))
        error = None if self._rooted.cancelled() else self._rooted.exception()
        if isinstance(error, IntensityReached):
            raise error
        if self._closing is not None:
            await asyncio.wait((self._closing,))

    def _check_open(self) -> None:
        if self._phase != "open":
            raise SessionClosed(f"the runtime is {self._phase}: open one with open_runtime().")

    def _check_begun(self) -> None:
        if self._phase in NOT_YET or not hasattr(self, "_sessions"):
            raise SessionClosed(f"the runtime is {self._phase}: open one with open_runtime().")

    # -- sessions ----------------------------------------------------------------------------------------------------

    async def create(
        self,
        session_id: str | None = None,
        system: str | None = None,
        model: str | None = None,
        title: str | None = None,
    ) -> SessionHandle:
        """A new session; without an id it gets one. An id that exists is a `UsageError`: use `open`."""
        self._check_open()
        chosen, id_ = session_id is not None, new_session_id(session_id)
        system = checked_text("system", system, self._ground.stage.limits.text_max_chars)
        opening = SessionOpened(root=id_, system=system, model=self.models.checked(model), title=checked_title(title))
        return await self._sessions.create(id_, opening, chosen=chosen)

    async def open(self, session_id: str) -> SessionHandle:
        """A session that exists, live or in the store; its log is read and repaired. `SessionNotFound` otherwise.

        A model it names that is not known any more fails its turns, not this.
        """
        self._check_open()
        if not isinstance(session_id, str):
            raise UsageError(f"open takes the id of a session, got {session_id!r:.80}.")
        return await self._sessions.open(session_id)

    async def spawn(self, session_id: str, name: str, task: str, **how: Any) -> str | Refused:
        """Start a subagent of a session that is open; its id, or the limit of its tree that refuses it.

        `how` is what `SessionHandle.spawn` takes by name; a `UsageError` says what else is in the way.
        """
        self._check_open()
        child = await self._sessions.handle(session_id).spawn(name, task, **how)
        return child if isinstance(child, Refused) else child.id

    def actor(self, session_id: str) -> Session:
        """The actor of a session that is in memory; `SessionClosed` when there is none, or it left memory."""
        self._check_open()
        return self._sessions.registry.actor(session_id)

    def read(self, session_id: str, after: int = -1, *, deltas: bool = False, queue_max: int = QUEUE_MAX) -> Reading:
        """A reader of a session by its id; of one that is not live it reads what the store has, and ends."""
        self._check_begun()
        return self._sessions.registry.read(session_id, after, deltas=deltas, queue_max=queue_max)

    @property
    def commands(self) -> Mapping[str, Command]:
        """What plugins let people type as `/NAME`."""
        return self._ground.commands

    def sessions(self) -> tuple[SessionHandle, ...]:
        """All sessions that are open, in memory or passivated."""
        self._check_open()
        return self._sessions.handles()

    async def stored(self) -> list[Header]:
        """All sessions of the store, newest first."""
        self._check_open()
        return await self._sessions.lookup.headers()

    # -- looking at it -----------------------------------------------------------------------------------------------

    def statistics(self) -> dict[str, Any]:
        """The supervision tree, sessions by phase, and what was left behind, as plain data; after the end too."""
        self._check_begun()
        return self._looks.statistics(self._snapshot())

    def health(self) -> dict[str, Any]:
        """Whether this runtime can serve, and what is in the way: plain data, at any time, durations in seconds.

        `ok`, `problems` (sentences), `phase`, `lag_p99_s` of both loops in the last minute, `store` (`state`, `error`),
        `stuck` (sessions that have been aborting for over a second), `given_up` (how many sessions were), `abandoned`,
        `parked` (how many tools), `left` (who outlived the runtime).
        """
        looks = None if self._phase in NOT_YET else getattr(self, "_looks", None)
        return looks.health(self._phase, self._left) if looks is not None else health_of(Vitals(), self._phase)

    def _shown(self) -> Generator[None, None, Shown]:
        return self._looks.shown(self._phase, self._snapshot())

    def _snapshot(self) -> Snapshot:
        return self._sessions.snapshot() if self._phase in ("open", "closing") else Snapshot()

    def _busy(self) -> bool:
        """Whether a turn runs, or a session is being read: not all of them rest."""
        return any(count for phase, count in self._snapshot().phases.items() if phase not in RESTING)

    def metrics_text(self, accept: str = "") -> str:
        """The exposition as text: Prometheus text, or OpenMetrics when `accept` asks for it; after the end too."""
        self._check_begun()
        steps = self.exposition.steps(accept)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                text: str = done.value.body.decode()
                return text

    # -- what the stage tells ----------------------------------------------------------------------------------------

    def _set_alarm(self, session: str, due_ms: int | None) -> None:
        self._alarm.set(session, due_ms)

    def _ring(self, session: str) -> None:
        if not self._sessions.ring(session):
            self._calendar.rang(session)


def serve_metrics(rt: Runtime, host: str = "127.0.0.1", port: int = 0) -> Server:
    """Serve a runtime's metrics at http://host:port/metrics; port 0 takes a free one, `.port` tells which."""
    return serve_text(rt.exposition.page, host, port)


def _not_inside(verb: str) -> None:
    """Closing waits for every actor, so an actor that waits for it would wait for itself."""
    if trio.lowlevel.in_trio_task():
        raise UsageError(f"{verb}() is called from asyncio, not from inside a tool or an actor.")

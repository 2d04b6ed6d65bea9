"""open_runtime: the composition root. Everything that is made once is made here, and ends here in reverse order."""

import asyncio
import logging
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs
import trio
from prometheus_client import CollectorRegistry

from callboard.actors.alarm import AlarmClock
from callboard.actors.books import CHILDREN, OPENED, QUEUE, TURN
from callboard.actors.childspec import ChildSpec, Intensity
from callboard.actors.drop import usable
from callboard.actors.errors import IntensityReached, LogError, SessionClosed, SessionNotFound, UsageError
from callboard.actors.events import SessionOpened, TurnEnded
from callboard.actors.messages import Await, Stop, Wake
from callboard.actors.model import Model
from callboard.actors.notices import ChildRestarted, Notice, RuntimeLeft
from callboard.actors.phase import Phase
from callboard.actors.plugin import Hook, Plugin
from callboard.actors.session import Session
from callboard.actors.stage import Stage
from callboard.actors.store import Header, Store
from callboard.actors.tool import Tool
from callboard.metrics.collector import Collector, Snapshot
from callboard.metrics.recorder import Recorder
from callboard.metrics.render import Exposition
from callboard.metrics.serve import Server
from callboard.metrics.serve import serve_metrics as serve_text
from callboard.runtime.assembly import DEFAULT, Default, assemble, limits_of, tree_limits_of
from callboard.runtime.clock import Wall, WallClock, steady_s
from callboard.runtime.config import RuntimeConfig, load_config
from callboard.runtime.crossing import Outcome
from callboard.runtime.guest import Guest
from callboard.runtime.handle import SessionHandle, handle_of
from callboard.runtime.lag import LagProbes
from callboard.runtime.models import ModelNames
from callboard.runtime.reading import Reading, Source
from callboard.runtime.spawn import Spawner
from callboard.runtime.stores import open_store
from callboard.runtime.supervisor import Supervisor
from callboard.runtime.waiting import Pending, in_thread

LOGGER = logging.getLogger("callboard")
ENDS_AT_ONCE_MAX = 256  # sessions that are ended side by side: fast, and no loop stalls for long
SESSION_ID_MAX_CHARS = 200
FOUND_PAGE_MAX = 200


def open_runtime(
    config: RuntimeConfig | str | Path | None = None,
    *,
    model: Model | str | None = None,
    plugins: Sequence[Plugin] | Default = DEFAULT,
    tools: Iterable[Tool] = (),
    hooks: Iterable[Hook] = (),
    store: Store | str | None = None,
    registry: CollectorRegistry | None = None,
    clock: Wall | None = None,
    folder: str | Path = ".",
) -> "Runtime":
    """A runtime for the length of an `async with`, or from `await ....start()` to `await ....close()`.

    `config` is a RuntimeConfig or the path of a TOML file; arguments beat it. `store` is `memory`, `sqlite:///FILE` or a
    Store; `model` a Model, `scripted:demo` or `replay:FILE`. `folder` is the working directory of tools. Mistakes are
    raised here as `UsageError`, before anything runs.
    """
    settings = config if isinstance(config, RuntimeConfig) else load_config(config) if config else RuntimeConfig()
    names = ModelNames(model if model is not None else settings.model.name)
    return Runtime(
        settings,
        names,
        assemble(settings, plugins, tools, hooks, instead=names.tools),
        store if store is not None else settings.store.url or "memory",
        registry or CollectorRegistry(),
        clock or WallClock(),
        str(Path(folder).resolve()),
    )


class Runtime:
    """A running Callboard: sessions by id, under supervisors, on one store. Made by `open_runtime`."""

    def __init__(
        self,
        config: RuntimeConfig,
        models: ModelNames,
        assembly: Any,
        store: Store | str,
        registry: CollectorRegistry,
        wall: Wall,
        folder: str,
    ) -> None:
        self.config, self.models, self._assembly, self.registry = config, models, assembly, registry
        self._store_or_url, self._wall, self._folder = store, wall, folder
        self._actors: dict[str, Session] = {}
        self._readings: dict[Reading, str] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._phase = "new"
        self._left: tuple[str, ...] = ()

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
        self._phase = "open"
        self._guest = await Guest.enter()
        try:
            await self._open()
        except BaseException:
            await self._guest.leave()
            raise
        return self

    async def _open(self) -> None:
        assembly = self._assembly
        known = tuple(assembly.tools)
        self._recorder = Recorder(self.registry, known, [hook.name for hook in assembly.hooks])
        Collector(self.registry, self._snapshot)
        self.exposition = Exposition(self.registry, steady_s)
        url = self._store_or_url
        self.store = await in_thread(self._open_store, url) if isinstance(url, str) else url
        self.store.open(self._guest.run_soon)
        if hasattr(self.store, "on_notice"):
            self.store.on_notice = self._notice
        ready = Pending()
        self._ground = self._guest.spawn(lambda: self._hold(ready), _ignore, name="ground of a runtime")
        self._stage: Stage = await ready.get()
        self._alarm = AlarmClock(self._wall.now_ms, self._ring)
        supervision = Intensity(self.config.supervisor.restarts_max, self.config.supervisor.period_s)
        self._sessions = Supervisor(
            self._guest,
            id="sessions",
            intensity=supervision,
            ends_at_once_max=ENDS_AT_ONCE_MAX,
            on_notice=self._child_ended,
        )
        self._root = Supervisor(
            self._guest,
            id="root",
            children=(ChildSpec("alarm", self._alarm.run), self._sessions.as_child(shutdown_s=self._shutdown_s)),
            intensity=supervision,
            on_notice=self._notice,
        )
        self._rooted = self._guest.start(self._root.run)
        self._probes = LagProbes(self._guest, self._notice)
        self._probes.start()

    def _open_store(self, url: str) -> Store:
        option = f"?durability={self.config.store.durability}"
        return open_store(url + option if url.startswith("sqlite:") and "?" not in url else url)

    @property
    def _shutdown_s(self) -> float:
        return self.config.runtime.shutdown_s

    async def _hold(self, ready: Pending) -> None:
        """(Trio) The nursery of this runtime's tool bodies and of all that outlives a turn."""
        assembly = self._assembly
        async with trio.open_nursery() as nursery:
            stage = Stage(
                store=self.store,
                codec=assembly.codec,
                folds=assembly.folds,
                now_ms=self._wall.now_ms,
                nursery=nursery,
                ask_host=self._guest.ask_host,
                resolve=self.models.resolve,
                tools=assembly.tools,
                plugins=assembly.plugins,
                hooks=assembly.hooks,
                limits=limits_of(self.config, steps_max=self.models.steps_max),
                on_event=self._recorder.event,
                on_notice=self._notice,
                on_due=lambda session, due_ms: self._alarm.set(session, due_ms),
                on_interrupt=self._keyboard_interrupt,
                folder=self._folder,
                can_drop=await usable(),
            )
            agents = self.config.agents
            self._spawner = Spawner(
                stage,
                tree_limits_of(self.config, agents_max=self.models.agents_max),
                self._actors.get,
                self._supervise,
                cascade=agents.cascade,
                wake=agents.notify == "wake",
            )
            stage.spawner = self._spawner
            ready.reply(stage)
            await trio.sleep_forever()

    async def close(self) -> None:
        """Stop every session, flush, end; bounded by `shutdown_s`. What still lives is named in the log."""
        if self._phase != "open":
            return
        self._phase = "closing"
        await asyncio.shield(asyncio.ensure_future(self._close()))

    async def _close(self) -> None:
        self._probes.stop()
        left = list(await self._root_end())
        self._ground.cancel()
        left += await self._guest.leave(bound_s=self._shutdown_s)
        left += self._stage.abandoned.names()
        try:
            await in_thread(self.store.close)
        except LogError as error:
            LOGGER.error("the store did not close cleanly: %s", error)
        for reading in tuple(self._readings):
            reading.end()
        self._phase, self._left = "closed", tuple(left)
        if left:
            LOGGER.warning("the runtime closed while these were still alive: %s", ", ".join(left))
            self._notice(RuntimeLeft(self._left))

    async def _root_end(self) -> tuple[str, ...]:
        left = await self._sessions.shutdown()
        self._rooted.cancel()
        await asyncio.wait((self._rooted,), timeout=self._shutdown_s)
        if self._rooted.done() and not self._rooted.cancelled():
            self._rooted.exception()
        return left

    @property
    def left(self) -> tuple[str, ...]:
        """What was still alive when the runtime closed."""
        return self._left

    @property
    def parked(self) -> tuple[str, ...]:
        """Tools that survived every attempt to end them; their code never runs again."""
        return tuple(self._stage.abandoned.parked)

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
        id_ = _session_id(session_id)
        if model is not None:
            self.models.resolve(model)
        if id_ in self._actors or await self._header(id_) is not None:
            raise UsageError(f"session {id_!r} exists already: open it, or choose another id.")
        actor = Session(self._stage, id_, SessionOpened(root=id_, system=system, model=model, title=title))
        self._supervise(actor)
        await self._loaded(actor)
        flushed = Pending()
        actor.log.when_durable(flushed.reply)
        error = await flushed.get()
        if error is not None:
            raise error
        return handle_of(self, actor)

    async def open(self, session_id: str) -> SessionHandle:
        """A session that exists, live or in the store; its log is read and repaired. `SessionNotFound` otherwise."""
        self._check_open()
        async with self._lock(session_id):
            live = self._actors.get(session_id)
            if live is not None:
                return handle_of(self, live)
            if await self._header(session_id) is None:
                raise SessionNotFound(f"there is no session {session_id!r} in this store.")
            actor = Session(self._stage, session_id, None)
            await self._load(actor)
            self._supervise(actor)
            await self._loaded(actor)
            await self._revive_children(actor)
            return handle_of(self, actor)

    def _lock(self, session_id: str) -> asyncio.Lock:
        return self._opening.setdefault(session_id, asyncio.Lock())

    async def _load(self, actor: Session) -> None:
        """Read the log before a supervisor sees the actor: a damaged log is the caller's news, not a crash."""
        await self._guest.start(actor.load)

    async def _loaded(self, actor: Session) -> None:
        pending = Pending()
        actor.tell(Await(0, reply=pending.reply))
        await pending.get()

    async def _header(self, session_id: str) -> Header | None:
        if self.store.blocking:
            return await in_thread(self.store.header, session_id)
        return self.store.header(session_id)

    def _supervise(self, actor: Session) -> None:
        if self._phase != "open":
            raise SessionClosed("the runtime is closing: no session starts any more.")
        opened = actor.log[OPENED] or actor.opening
        root = opened is None or opened.parent is None
        self._actors[actor.id] = actor
        actor.on_abort = lambda: self._spawner.interrupt_children(actor)
        spec = ChildSpec(
            actor.id,
            actor.run,
            restart="transient" if root else "temporary",
            shutdown_s=self._shutdown_s,
            stop=lambda: actor.tell(Stop()),
            about=lambda: actor.phase.value,
        )
        self._sessions.start_child(spec)

    async def _revive_children(self, actor: Session) -> None:
        """Children whose end the parent has not recorded: read their logs, and let it know."""
        for known in actor.log[CHILDREN]:
            if known.status not in ("pending", "running") or known.id in self._actors:
                continue
            header = await self._header(known.id)
            child = Session(self._stage, known.id, None)
            if header is not None:
                await self._load(child)
            opened = child.log[OPENED]
            if opened is None:
                self._spawner.lost(actor, known)
                continue
            self._spawner.adopt(child, opened, notify=False)
            ended = child.last_ended or await self.find_ended(child.id, child.log[TURN].number)
            self._supervise(child)
            if ended is not None and child.on_ended is not None:
                child.on_ended(ended)

    def _child_ended(self, notice: ChildRestarted) -> None:
        """(the supervisor) A session's actor ended: what follows for those who wait for it."""
        self._notice(notice)
        actor = self._actors.get(notice.child)
        if actor is None or notice.decision == "restart":
            return
        if actor.phase is not Phase.STOPPED:
            actor.close()
            self._spawner.crashed(actor)
        self._forget(actor)

    def _forget(self, actor: Session) -> None:
        if self._actors.get(actor.id) is actor:
            del self._actors[actor.id]
            self._opening.pop(actor.id, None)
            self._alarm.set(actor.id, None)
            for reading in [one for one, id_ in self._readings.items() if id_ == actor.id]:
                reading.end()

    async def stop_session(self, session_id: str) -> None:
        """Stop a session, its children first; harmless when it is not live."""
        actor = self._actors.get(session_id)
        if actor is None:
            return
        for child in actor.log[CHILDREN]:
            await self.stop_session(child.id)
        pending = Pending()
        actor.tell(Stop(reply=pending.reply))
        await pending.get()
        self._forget(actor)

    def actor(self, session_id: str) -> Session:
        """The live actor of a session; `SessionClosed` when there is none."""
        self._check_open()
        actor = self._actors.get(session_id)
        if actor is None:
            raise SessionClosed(f"session {session_id!r} has ended: open it again to go on.")
        return actor

    def _check_open(self) -> None:
        if self._phase != "open":
            raise SessionClosed(f"the runtime is {self._phase}: open one with open_runtime().")

    def read(self, session_id: str, after: int, *, deltas: bool, queue_max: int) -> Reading:
        """A reader of a session, live or from the store."""
        if self._phase == "new":
            self._check_open()
        source = Source(
            self.store,
            self._assembly.codec,
            session_id,
            self._actors.get(session_id),
            self._unread,
            self._notice,
        )
        reading = Reading(source, after, deltas=deltas, queue_max=queue_max)
        self._readings[reading] = session_id
        return reading

    def _unread(self, reading: Reading) -> None:
        self._readings.pop(reading, None)

    async def find_ended(self, session_id: str, turn: int) -> TurnEnded | None:
        """The end of a turn, looked up in the store."""
        before = 2**62
        while True:
            args = (session_id, ("turn_ended",), before, FOUND_PAGE_MAX)
            records = await in_thread(self.store.last, *args) if self.store.blocking else self.store.last(*args)
            for record in records:
                event = self._assembly.codec.decode(record.body)
                if isinstance(event, TurnEnded) and event.turn == turn:
                    return event
            if len(records) < FOUND_PAGE_MAX:
                return None
            before = records[-1].seq

    def sessions(self) -> tuple[SessionHandle, ...]:
        """The live sessions."""
        return tuple(handle_of(self, actor) for actor in self._actors.values() if actor.log[OPENED] is not None)

    async def stored(self) -> list[Header]:
        """All sessions of the store, newest first."""
        return await in_thread(self.store.headers)

    # -- looking at it -----------------------------------------------------------------------------------------------

    def statistics(self) -> dict[str, Any]:
        """The supervision tree, sessions by phase, and what was left behind, as plain data."""
        snapshot = self._snapshot()
        return {
            "tree": attrs.asdict(self._root.statistics()),
            "sessions": {phase: count for phase, count in snapshot.phases.items() if count},
            "mailbox_messages": sum(snapshot.mailbox.values()),
            "queued_messages": sum(snapshot.queued.values()),
            "subscribers": snapshot.subscribers,
            "abandoned": list(self._stage.abandoned.names()),
            "parked": list(self._stage.abandoned.parked),
            "can_drop": self._stage.can_drop,
        }

    def _snapshot(self) -> Snapshot:
        phases: dict[str, int] = {}
        mailbox: dict[str, int] = {}
        queued: dict[str, int] = {}
        for actor in tuple(self._actors.values()):
            phase = actor.phase.value
            phases[phase] = phases.get(phase, 0) + 1
            mailbox[phase] = mailbox.get(phase, 0) + len(actor.mailbox)
            queued[phase] = queued.get(phase, 0) + len(actor.log[QUEUE])
        return Snapshot(phases, mailbox, queued, len(self._readings))

    def metrics_text(self, accept: str = "") -> str:
        """The exposition as text: Prometheus text, or OpenMetrics when `accept` asks for it."""
        steps = self.exposition.steps(accept)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                text: str = done.value.body.decode()
                return text

    async def wait(self) -> None:
        """Return when the runtime was closed; raises `IntensityReached` when its supervisors gave up."""
        try:
            await asyncio.shield(self._rooted)
        except asyncio.CancelledError:
            if not self._rooted.done():
                raise
        except IntensityReached:
            raise

    # -- what the stage tells ----------------------------------------------------------------------------------------

    def _notice(self, notice: Notice) -> None:
        self._recorder.notice(notice)

    def _ring(self, session_id: str) -> None:
        actor = self._actors.get(session_id)
        if actor is not None and actor.phase is not Phase.STOPPED:
            actor.tell(Wake())

    def _keyboard_interrupt(self, error: BaseException) -> None:
        """A tool met Ctrl-C: that is for the whole program, so it leaves by the host's loop."""
        self._guest.loop.call_soon(_raise, KeyboardInterrupt())


def serve_metrics(rt: Runtime, host: str = "127.0.0.1", port: int = 0) -> Server:
    """Serve a runtime's metrics at http://host:port/metrics; port 0 takes a free one, `.port` tells which."""
    return serve_text(rt.exposition.page, host, port)


def _session_id(session_id: str | None) -> str:
    if session_id is None:
        return f"s-{uuid.uuid4().hex[:12]}"
    if (
        not isinstance(session_id, str)
        or not 0 < len(session_id) <= SESSION_ID_MAX_CHARS
        or not session_id.isprintable()
    ):
        raise UsageError(f"a session id is 1 to {SESSION_ID_MAX_CHARS} printable characters, got {session_id!r:.80}.")
    return session_id


def _ignore(outcome: Outcome) -> None:
    if outcome.error is not None:
        LOGGER.error("the ground of a runtime failed: %r", outcome.error)


def _raise(error: BaseException) -> None:
    raise error

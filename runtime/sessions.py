"""Sessions: the sessions of one runtime; each is created, opened and revived here."""

import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import trio

from callboard.actors.alarm import AlarmClock
from callboard.actors.children import CHILDREN, UNSETTLED
from callboard.actors.childspec import Exit, Intensity
from callboard.actors.errors import CallboardError, LogError, SessionClosed, SessionNotFound, UsageError
from callboard.actors.events import SessionOpened
from callboard.actors.messages import Wake
from callboard.actors.phase import Phase
from callboard.actors.session import Session
from callboard.actors.stage import SpawnRequest, Stage
from callboard.metrics.collector import Snapshot
from callboard.runtime.admission import TreeLimits
from callboard.runtime.config import RuntimeConfig
from callboard.runtime.crossing import Starts
from callboard.runtime.endings import Endings
from callboard.runtime.fork import Forks
from callboard.runtime.handle import SessionHandle
from callboard.runtime.lookup import Lookup
from callboard.runtime.models import ModelNames
from callboard.runtime.onebyone import OneByOne
from callboard.runtime.place import Place
from callboard.runtime.registry import Registry, at_once, opened_of, root_of
from callboard.runtime.revival import Revival
from callboard.runtime.spawn import Spawner, close_unbegun
from callboard.runtime.supervisor import Supervisor
from callboard.runtime.waiting import Pending, checkpoint

LOGGER = logging.getLogger("callboard")


class Sessions:
    """Sessions by id, under their supervisors. Waiting works from asyncio and from Trio; what is begun goes on.

    What is done to one id (created, opened, stopped) is done one after the other; the work itself runs on Trio.
    """

    def __init__(
        self,
        guest: Starts,
        stage: Stage,
        config: RuntimeConfig,
        models: ModelNames,
        limits: TreeLimits,
        alarm: AlarmClock,
        on_notice: Callable[[Any], None],
        *,
        polite_s: float,
    ) -> None:
        self.stage, self.polite_s = stage, polite_s
        self.registry = Registry(stage, on_notice, begin=self.supervise, holds=self._holds, left=self._left)
        self._one = OneByOne(guest)
        self.lookup = Lookup(stage.store, stage.codec)
        agents, wake = config.agents, config.agents.notify == "wake"
        self.spawner = Spawner(
            *(stage, limits, self.registry, self, models.checked), roles=agents.roles, cascade=agents.cascade, wake=wake
        )
        self.revival = Revival(self.registry, self.lookup, self.spawner, self._one.alone, self._read)
        stage.trees = self.spawner.trees
        intensity = Intensity(config.supervisor.restarts_max, config.supervisor.period_s)
        self.endings = Endings(
            *(guest, self.registry, self.spawner, self._one, alarm, on_notice, intensity), polite_s=polite_s
        )
        self._troupes = self.endings.troupes
        begun, ends = (self._one.on_trio, self._one.alone, self._from_store), self.endings.end_tree
        self.forks = Forks(stage, self.registry, self.lookup, *begun, ends)

    @property
    def supervisor(self) -> Supervisor:
        """The one of all root sessions, with those of their agents below it."""
        return self._troupes.top

    # -- who is there ------------------------------------------------------------------------------------------------

    async def exists(self, session_id: str) -> bool:
        """Whether the id is taken, here or in the store."""
        return session_id in self.registry or await self.lookup.taken(session_id)

    def handles(self) -> tuple[SessionHandle, ...]:
        """All sessions that are open, in memory or not."""
        return tuple(self._handle(id_, opened) for id_, opened in self.registry.places())

    def handle(self, session_id: str) -> SessionHandle:
        """The handle of a session that is open; `SessionClosed` when there is none."""
        kept = self.registry.kept(session_id)
        opened = kept.opened(session_id) if kept is not None else opened_of(self.registry.actor(session_id))
        return self._handle(session_id, opened)

    def _handle(self, session_id: str, opened: SessionOpened) -> SessionHandle:
        return SessionHandle(self, session_id, opened.parent, opened.path, self.stage.limits.text_max_chars)

    def snapshot(self) -> Snapshot:
        """How many there are in each phase, and what waits for them."""
        return Snapshot(*self.registry.count(), len(self.registry.audience))

    # -- coming ------------------------------------------------------------------------------------------------------

    async def create(self, session_id: str, opening: SessionOpened, *, chosen: bool) -> SessionHandle:
        """A new session, durable; `UsageError` when the id is taken, `LogError` when the store does not take it.

        A random id, not `chosen` by anybody, is nobody else's: it is neither looked up nor guarded, and all that is
        done for it is done by callbacks, which saves a Trio task and two crossings, 40 us a session.
        """
        self.registry.check_thread()
        if chosen:
            return await self._one.on_trio(partial(self._create, session_id, opening))
        self._check_open()
        begun = Pending()
        self._begin(session_id, opening, begun.reply)
        await begun.get()
        await checkpoint()  # a store in memory answers at once, and many creations must not keep the loop for long
        return self._handle(session_id, opening)

    def _begin(self, session_id: str, opening: SessionOpened, reply: Callable[[Exception | None], None]) -> None:
        """Open the log and start the actor once that is durable, whether or not anybody still waits for it."""
        actor = Session(self.stage, session_id, opening)
        actor.begin()

        def durable(error: Exception | None) -> None:
            try:
                if error is None:
                    self.supervise(actor)
            except CallboardError as refused:
                error = refused
            reply(error)

        actor.log.when_durable(durable)

    async def open(self, session_id: str) -> SessionHandle:
        """The session of that id, read from the store unless it is live; `SessionNotFound` when there is none."""
        self.registry.check_thread()
        return await self._one.on_trio(partial(self._from_store, session_id))

    async def open_due(self, session_id: str) -> None:
        """Open a session for what is due; an agent that was ended for good is not woken."""
        if not await self.spawner.is_closed(session_id):
            await self.open(session_id)

    async def spawn(self, request: SpawnRequest) -> str:
        """Start a subagent from outside; its id. `ToolError` says what is in the way, `TreeFull` which limit."""
        self.registry.check_thread()
        child_id, _ = await self._one.on_trio(partial(self._spawn, request))
        return str(child_id)

    async def _spawn(self, request: SpawnRequest) -> tuple[str, str]:
        await self.registry.loaded(request.parent)
        return await self.spawner.spawn(request)

    async def _create(self, session_id: str, opening: SessionOpened) -> SessionHandle:
        async with self._one.alone(session_id):
            if await self.exists(session_id):
                raise UsageError(f"session {session_id!r} exists already: open it, or choose another id.")
            await self._troupes.stop(session_id, session_id)  # one that is just ending
            self._check_open()
            begun = Pending()
            self._begin(session_id, opening, begun.reply)
            await begun.get()
            return self._handle(session_id, opening)

    async def _from_store(self, session_id: str, below: tuple[str, ...] = ()) -> SessionHandle:
        while True:
            known = session_id in self.registry
            parent = None if known else await self._open_above(session_id, (*below, session_id))
            async with self._one.alone(session_id):
                if session_id not in self.registry and not known:
                    await self._read(session_id, parent)
                if session_id in self.registry:
                    return self.handle(session_id)
            # it was there, and ended while we waited for it: another is read, below its parent

    async def _open_above(self, session_id: str, below: tuple[str, ...]) -> str | None:
        """An agent lives below its parent, so that is opened first, or neither; its id, None without any."""
        header = await self.lookup.header(session_id)
        if header is None or header.parent is None:
            return None
        if header.parent in below:
            raise LogError(f"session {header.parent!r} is an agent below itself: callboard log check tells more.")
        try:
            await self._from_store(header.parent, below)
        except SessionNotFound as error:  # a crash lost it before it was durable
            LOGGER.warning("session %s is opened without its parent: %s", session_id, error)
            return None
        return header.parent

    async def _read(self, session_id: str, below: str | None = None) -> Session:
        """Read the log before a supervisor sees the actor: a damaged log is the caller's news, not a crash."""
        header = await self.lookup.header(session_id)
        if header is None:
            raise SessionNotFound(f"there is no session {session_id!r} in this store.")
        if header.rewound:
            raise UsageError(f"session {session_id!r} is the old log of one that was rewound: read it, or fork it.")
        await self._troupes.stop(session_id, root_of(header, session_id))  # one that is just ending
        actor = Session(self.stage, session_id, None)
        with self.registry.opening(session_id):
            await actor.load(closed=below is not None and await self.spawner.is_closed(session_id))
            close_unbegun(actor.log)
            await self.spawner.trees.recount(actor.log)
            if below is not None:
                await self.revival.of_agent(actor, below)
            if below is not None and (below not in self.registry or below in self.spawner.closing):
                raise SessionClosed(f"session {below!r} is ending: open it before you open its agents.")
            await self._start(actor)
        await self.revival.of_children(actor)
        return actor

    async def _start(self, actor: Session) -> None:
        """Start an actor, and return once it answers."""
        self.supervise(actor)
        answered = Pending()
        actor.tell(at_once(answered.reply))
        await answered.get()

    def supervise(self, actor: Session) -> None:
        """Start an actor; `SessionClosed` when none starts any more."""
        self._check_open()
        opened = opened_of(actor)
        place = Place(self, actor)
        self._troupes.start(place, root_of(opened, actor.id))
        self.registry.add(actor)
        actor.on_abort = place.aborted
        if opened.parent is not None:
            self.spawner.adopt(actor, opened)

    def _check_open(self) -> None:
        if not self.registry.open:
            raise SessionClosed("the runtime is closing: no session starts any more.")

    async def life(self, actor: Session) -> Exit:
        """(Trio) The actor's whole life. What the store refuses no restart would mend: it ends this one session."""
        try:
            return await actor.run()
        except LogError as error:
            LOGGER.error("session %s ends: %s", actor.id, error)  # noqa: TRY400 - a disk is no bug of ours
            self.endings.crashed(actor, str(error))
            return "normal"
        finally:
            killed = trio.current_effective_deadline() == -math.inf  # it did not end when it was asked, or nobody asked
            if killed:
                actor.close()
            if actor.phase is Phase.STOPPED and (not killed or self._troupes.expects(actor)):
                self.endings.forget(actor)  # else it is a crash, and its supervisor's to tell

    def _holds(self, actor: Session) -> bool:
        """(the registry) Whether its children, or what is being done to it, keep a resting session in memory."""
        if not self.registry.open or actor.id in self._one:
            return True
        children = actor.log[CHILDREN]
        return any(child.status in UNSETTLED or self.registry.get(child.id) is not None for child in children)

    def _left(self, actor: Session) -> None:
        """(the registry) It leaves memory: its alarm stays, and its id is free for the actor that comes back."""
        opened = opened_of(actor)
        self._troupes.let_go(actor.id, root_of(opened, actor.id))
        self.spawner.passivated(actor.id, opened)

    async def stop_session(self, session_id: str) -> None:
        """Stop a session, its children first; harmless when it is not live."""
        await self.endings.stop_session(session_id)

    def stop_soon(self, session_id: str) -> None:
        """(Trio) Stop a session, its children first, beside whatever comes next."""
        self.endings.stop_soon(session_id)

    # -- what the stage tells ----------------------------------------------------------------------------------------

    def ring(self, session_id: str) -> bool:
        """(the alarm) Something of this session's is due; False when it is not open."""
        actor = self.registry.awake(session_id)
        if actor is not None:
            actor.tell(Wake())
        return actor is not None

"""Sessions: the live sessions of one runtime; each is created, opened, revived, stopped and forgotten here."""

import asyncio
import logging
import math
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import trio

from callboard.actors.alarm import AlarmClock
from callboard.actors.books import CHILDREN, OPENED, QUEUE, Child
from callboard.actors.childspec import ChildSpec, Intensity, Restart
from callboard.actors.errors import LogError, SessionClosed, SessionNotFound, ToolError, UsageError
from callboard.actors.events import SessionOpened
from callboard.actors.messages import Await, Stop, Wake
from callboard.actors.notices import ChildRestarted
from callboard.actors.phase import Phase
from callboard.actors.session import Session
from callboard.actors.stage import SpawnRequest, Stage
from callboard.metrics.collector import Snapshot
from callboard.runtime.config import RuntimeConfig
from callboard.runtime.guest import Guest
from callboard.runtime.handle import SessionHandle, handle_of
from callboard.runtime.lookup import Lookup
from callboard.runtime.models import ModelNames
from callboard.runtime.reading import Reading, Source
from callboard.runtime.spawn import WORKING, Spawner, TreeLimits, close_unbegun
from callboard.runtime.supervisor import Supervisor
from callboard.runtime.waiting import Pending

T = TypeVar("T")

LOGGER = logging.getLogger("callboard")
OTHER_THREAD = (
    "sessions are used in the thread of their event loop; from another thread use "
    "asyncio.run_coroutine_threadsafe(session.run(...), loop).result()."
)
ENDS_AT_ONCE_MAX = 256  # sessions that are ended side by side: fast, and no loop stalls for long


class Sessions:
    """Sessions by id, under their supervisor. Waiting works from asyncio and from Trio; what is begun goes on.

    What is done to one id (created, opened, stopped) is done one after the other; the work itself runs on Trio.
    """

    def __init__(
        self,
        guest: Guest,
        stage: Stage,
        config: RuntimeConfig,
        models: ModelNames,
        limits: TreeLimits,
        alarm: AlarmClock,
        on_notice: Callable[[Any], None],
        *,
        polite_s: float,
    ) -> None:
        self._guest, self._stage, self._alarm, self._on_notice = guest, stage, alarm, on_notice
        self._polite_s = polite_s
        self._live: dict[str, Session] = {}
        self._busy: dict[str, trio.Event] = {}  # ids that something is being done to
        self.readings: dict[str, weakref.WeakSet[Reading]] = {}
        self._open = True
        self._thread = threading.get_ident()
        self.lookup = Lookup(stage.store, stage.codec)
        agents = config.agents
        wake = agents.notify == "wake"
        self.spawner = Spawner(stage, limits, self, models.checked, cascade=agents.cascade, wake=wake)
        self.supervisor = Supervisor(
            guest,
            id="sessions",
            intensity=Intensity(config.supervisor.restarts_max, config.supervisor.period_s),
            ends_at_once_max=ENDS_AT_ONCE_MAX,
            on_notice=self._child_ended,
        )

    # -- who is there ------------------------------------------------------------------------------------------------

    def get(self, session_id: str) -> Session | None:
        """The live actor, None without one."""
        actor = self._live.get(session_id)
        return None if actor is None or actor.phase is Phase.STOPPED else actor

    def actor(self, session_id: str) -> Session:
        """The live actor; `SessionClosed` when there is none."""
        actor = self.get(session_id)
        if actor is None:
            why = "has ended: open it again to go on." if self._open else "has ended: the runtime is closed."
            raise SessionClosed(f"session {session_id!r} {why}")
        return actor

    def check_thread(self) -> None:
        """A `UsageError` in a thread that is not the loops': it would wake the actor from outside, which loses it."""
        if threading.get_ident() != self._thread:
            raise UsageError(OTHER_THREAD)

    async def exists(self, session_id: str) -> bool:
        """Whether the id is taken, here or in the store."""
        return session_id in self._live or await self.lookup.header(session_id) is not None

    def handles(self) -> tuple[SessionHandle, ...]:
        """The live sessions."""
        return tuple(handle_of(self, actor) for actor in self._live.values() if actor.log[OPENED] is not None)

    def snapshot(self) -> Snapshot:
        """How many there are in each phase, and what waits for them."""
        phases: dict[str, int] = {}
        mailbox: dict[str, int] = {}
        queued: dict[str, int] = {}
        for actor in tuple(self._live.values()):
            phase = actor.phase.value
            phases[phase] = phases.get(phase, 0) + 1
            mailbox[phase] = mailbox.get(phase, 0) + len(actor.mailbox)
            queued[phase] = queued.get(phase, 0) + len(actor.log[QUEUE])
        return Snapshot(phases, mailbox, queued, sum(len(some) for some in tuple(self.readings.values())))

    # -- coming ------------------------------------------------------------------------------------------------------

    async def create(self, session_id: str, opening: SessionOpened) -> SessionHandle:
        """A new session, durable; `UsageError` when the id is taken, `LogError` when the store does not take it."""
        return await self._on_trio(partial(self._create, session_id, opening))

    async def open(self, session_id: str) -> SessionHandle:
        """The session of that id, read from the store unless it is live; `SessionNotFound` when there is none."""
        return await self._on_trio(partial(self._from_store, session_id))

    async def spawn(self, request: SpawnRequest) -> str:
        """Start a subagent from outside; its id. `UsageError` says what is in the way."""
        self.actor(request.parent)
        try:
            child_id, _ = await self._on_trio(partial(self.spawner.spawn, request))
        except ToolError as error:
            raise UsageError(str(error)) from None
        return child_id

    async def _create(self, session_id: str, opening: SessionOpened) -> SessionHandle:
        async with self._alone(session_id):
            if await self.exists(session_id):
                raise UsageError(f"session {session_id!r} exists already: open it, or choose another id.")
            await self.supervisor.stop_child(session_id)  # one that is just ending
            actor = Session(self._stage, session_id, opening)
            await actor.load()
            await actor.log.flush()
            await self._start(actor)
            return handle_of(self, actor)

    async def _from_store(self, session_id: str) -> SessionHandle:
        async with self._alone(session_id):
            live = self.get(session_id)
            if live is not None:
                return handle_of(self, live)
            if await self.lookup.header(session_id) is None:
                raise SessionNotFound(f"there is no session {session_id!r} in this store.")
            actor = await self._read(session_id)
            return handle_of(self, actor)

    async def _read(self, session_id: str) -> Session:
        """Read the log before a supervisor sees the actor: a damaged log is the caller's news, not a crash."""
        await self.supervisor.stop_child(session_id)  # one that is just ending
        actor = Session(self._stage, session_id, None)
        await actor.load()
        close_unbegun(actor.log)
        await self._start(actor)
        await self._revive_children(actor)
        return actor

    async def _start(self, actor: Session) -> None:
        """Start an actor, and return once it answers."""
        self.supervise(actor)
        answered = Pending()
        actor.tell(Await(0, reply=answered.reply))
        await answered.get()

    def supervise(self, actor: Session) -> None:
        """Start an actor; `SessionClosed` when none starts any more."""
        if not self._open:
            raise SessionClosed("the runtime is closing: no session starts any more.")
        opened = _opened(actor)
        place = _Place(self, actor)
        restart: Restart = "transient" if opened.parent is None else "temporary"
        spec = ChildSpec(actor.id, place.life, restart, self._polite_s, stop=place.stop, about=place.about)
        self.supervisor.start_child(spec)
        self._live[actor.id] = actor
        actor.on_abort = place.aborted
        if opened.parent is not None:
            self.spawner.adopt(actor, opened)

    async def _life(self, actor: Session) -> None:
        """(Trio) The actor's whole life. What the store refuses no restart would mend: it ends this one session."""
        try:
            await actor.run()
        except LogError as error:
            LOGGER.error("session %s ends: %s", actor.id, error)  # noqa: TRY400 - a disk is no bug of ours
            self._crashed(actor, str(error))
        finally:
            if trio.current_effective_deadline() == -math.inf:  # cancelled: it did not end when it was asked
                actor.close()
            if actor.phase is Phase.STOPPED:
                self._forget(actor)

    async def _revive_children(self, parent: Session) -> None:
        """Children whose end the parent has not recorded: read their logs, and let it know."""
        for known in parent.log[CHILDREN]:
            if known.status in WORKING:
                await self._revive(parent, known)

    async def _revive(self, parent: Session, known: Child) -> None:
        async with self._alone(known.id):
            child = self.get(known.id)
            if child is None:
                if await self.lookup.header(known.id) is None:
                    self.spawner.lost(parent, known, "the agent was lost before it began")
                    return
                try:
                    child = await self._read(known.id)
                except LogError as error:
                    self.spawner.lost(parent, known, f"the agent's log cannot be read: {error}")
                    return
            last = child.log.last_end
            if last is not None:
                await child.log.flush()
                self.spawner.report_end(child.id, _opened(child), last, notify=False)

    # -- going -------------------------------------------------------------------------------------------------------

    async def stop_session(self, session_id: str) -> None:
        """Stop a session, its children first; harmless when it is not live."""
        if self.get(session_id) is not None:
            await self._on_trio(partial(self._stop, session_id))

    async def end(self, ends_s: float) -> tuple[str, ...]:
        """(asyncio) End all, the subagents first, until `ends_s` on the loop's clock; who still lives then."""
        loop = self._guest.loop
        children = self._guest.start(self._stop_children)
        await asyncio.wait((children,), timeout=max(0.0, ends_s - loop.time()))
        children.cancel()
        ending = asyncio.ensure_future(self.supervisor.shutdown())
        await asyncio.wait((ending,), timeout=max(0.0, ends_s - loop.time()))
        if ending.done() and not ending.cancelled():
            return ending.result()
        ending.cancel()
        return tuple(child.id for child in self.supervisor.children())

    async def _stop_children(self) -> None:
        """(Trio) Start nothing more, and stop all subagents, the deepest first, so that their parents record it."""
        self._open = False
        by_depth: dict[int, list[Session]] = {}
        for actor in self._live.values():
            by_depth.setdefault(_opened(actor).depth, []).append(actor)
        for depth in sorted(by_depth, reverse=True):
            if depth > 0:
                await self._end_all(by_depth[depth])

    async def _stop(self, session_id: str) -> None:
        async with self._alone(session_id):
            actor = self.get(session_id)
            levels: list[list[Session]] = [] if actor is None else [[actor]]
            while levels and levels[-1]:
                levels.append([child for one in levels[-1] for child in self.spawner.live_children(one)])
            closing = {one.id for level in levels for one in level}
            self.spawner.closing |= closing
            try:
                for level in reversed(levels):
                    await self._end_all(level)
            finally:
                self.spawner.closing -= closing

    async def _end_all(self, actors: Iterable[Session]) -> None:
        waiting = list(actors)

        async def end() -> None:
            while waiting:
                actor = waiting.pop()
                if not await self.supervisor.stop_child(actor.id):
                    LOGGER.error("session %s did not end within %g s and was left", actor.id, self._polite_s)
                    actor.close()
                    self._forget(actor)

        async with trio.open_nursery() as nursery:
            for _ in range(min(ENDS_AT_ONCE_MAX, len(waiting))):
                nursery.start_soon(end)

    def _child_ended(self, notice: ChildRestarted) -> None:
        """(the supervisor) A session's actor ended, and it is decided what follows."""
        self._on_notice(notice)
        actor = self._live.get(notice.child)
        if actor is not None and notice.decision != "restart":
            self._crashed(actor, "the agent crashed")
            self._forget(actor)

    def _crashed(self, actor: Session, error: str) -> None:
        """Nobody will run this actor again: tell all who wait, its parent, and its children."""
        children = list(self.spawner.live_children(actor))
        actor.close()
        if (opened := _opened(actor)).parent is not None:
            self.spawner.crashed(actor, opened, error)
        for child in children:
            child.tell(Stop())

    def _forget(self, actor: Session) -> None:
        if self._live.get(actor.id) is actor:
            del self._live[actor.id]
            self._alarm.set(actor.id, None)
            self.spawner.forget(actor, _opened(actor))
            for reading in tuple(self.readings.pop(actor.id, ())):
                reading.end()

    def closed(self) -> None:
        """The runtime is closed: whoever still waits for a session is told, and reads what the store has."""
        self._open = False
        for actor in tuple(self._live.values()):
            actor.close()
            self._forget(actor)

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(self, session_id: str, after: int, *, deltas: bool, queue_max: int) -> Reading:
        """A reader of a session, live or from the store."""
        self.check_thread()
        stage, actor = self._stage, self.get(session_id)
        source = Source(stage.store, stage.codec, session_id, actor, self._unread, self._on_notice)
        reading = Reading(source, after, deltas=deltas, queue_max=queue_max)
        if actor is not None:
            self.readings.setdefault(session_id, weakref.WeakSet()).add(reading)
        return reading

    def _unread(self, reading: Reading) -> None:
        readings = self.readings.get(reading.session)
        if readings is not None:
            readings.discard(reading)
            if not readings:
                del self.readings[reading.session]

    # -- what the stage tells ----------------------------------------------------------------------------------------

    def ring(self, session_id: str) -> None:
        """(the alarm) Something of this session's is due."""
        actor = self.get(session_id)
        if actor is not None:
            actor.tell(Wake())

    # -- one after the other -----------------------------------------------------------------------------------------

    async def _on_trio(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work` on Trio, asked from either loop; it goes on when the asker is cancelled."""
        self.check_thread()
        ended = Pending()
        self._guest.spawn(work, ended.reply, name="sessions")
        outcome = await ended.get()
        if outcome.error is not None:
            raise outcome.error
        if outcome.cancelled:
            raise SessionClosed("the runtime closed meanwhile.")
        value: T = outcome.value
        return value

    @asynccontextmanager
    async def _alone(self, session_id: str) -> AsyncIterator[None]:
        """(Trio) Nobody else creates, opens or stops this id meanwhile."""
        while (busy := self._busy.get(session_id)) is not None:
            await busy.wait()
        done = self._busy[session_id] = trio.Event()
        try:
            yield
        finally:
            del self._busy[session_id]
            done.set()


class _Place:
    """What a supervisor and an actor call here for one live session: one small object instead of a closure for each."""

    __slots__ = ("_actor", "_home")

    def __init__(self, home: Sessions, actor: Session) -> None:
        self._home, self._actor = home, actor

    def life(self) -> Awaitable[None]:
        return self._home._life(self._actor)

    def stop(self) -> None:
        self._actor.tell(Stop())

    def about(self) -> str:
        return self._actor.phase.value

    def aborted(self) -> None:
        self._home.spawner.interrupt_children(self._actor)


def _opened(actor: Session) -> SessionOpened:
    opened = actor.log[OPENED] or actor.opening
    assert opened is not None, "an actor is live only once its log is open"
    return opened

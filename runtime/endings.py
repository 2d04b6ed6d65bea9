"""Endings: how sessions leave: stopped level by level, crashed and buried, forgotten."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from callboard.actors.alarm import AlarmClock
from callboard.actors.children import CHILDREN
from callboard.actors.childspec import Intensity
from callboard.actors.errors import LogError, SessionClosed
from callboard.actors.events import SessionOpened
from callboard.actors.notices import ChildRestarted, SessionFenced
from callboard.actors.opening import mend
from callboard.actors.session import Session
from callboard.runtime.crossing import Starts
from callboard.runtime.onebyone import OneByOne
from callboard.runtime.registry import Registry, opened_of
from callboard.runtime.spawn import Spawner
from callboard.runtime.troupe import Troupes
from callboard.runtime.waiting import Pending

LOGGER = logging.getLogger("callboard")
GIVEN_UP = "session {id!r} crashed and was given up, as the log of the program tells; open it again to go on."


class Endings:
    """Ends sessions, their children first, and says what becomes of one that ended by itself.

    The supervisors stand here, since they tell of each end; `troupes` says under which of them each session lives.
    """

    def __init__(
        self,
        guest: Starts,
        registry: Registry,
        spawner: Spawner,
        one: OneByOne,
        alarm: AlarmClock,
        on_notice: Callable[[Any], None],
        intensity: Intensity,
        *,
        polite_s: float,
    ) -> None:
        self._guest, self._registry, self._spawner = guest, registry, spawner
        self._one, self._alarm, self._on_notice = one, alarm, on_notice
        self.troupes = Troupes(guest, intensity, self._child_ended, polite_s=polite_s)

    async def stop_session(self, session_id: str) -> None:
        """Stop a session, its children first; harmless when it is not live."""
        if session_id in self._registry:
            self._registry.check_thread()
            await self._one.on_trio(partial(self._stop, session_id))

    async def end(self, ends_s: float) -> tuple[str, ...]:
        """(asyncio) End all, the subagents first, until `ends_s` on the loop's clock; who still lives then."""
        loop, ended = asyncio.get_running_loop(), Pending()
        stopping = self._guest.spawn(self.stop_children, ended.reply, name="sessions stop subagents")
        children = asyncio.ensure_future(ended.get())
        await asyncio.wait((children,), timeout=max(0.0, ends_s - loop.time()))
        stopping.cancel()
        children.cancel()
        ending = asyncio.ensure_future(self.troupes.top.shutdown())
        await asyncio.wait((ending,), timeout=max(0.0, ends_s - loop.time()))
        if ending.done() and not ending.cancelled():
            return ending.result()
        ending.cancel()
        return self.troupes.living()

    async def stop_children(self) -> None:
        """(Trio) Start nothing more, and stop all subagents, the deepest first, so that their parents record it."""
        self._registry.open = False
        by_depth: dict[int, list[Session]] = {}
        for actor in self._registry.live.values():
            by_depth.setdefault(opened_of(actor).depth, []).append(actor)
        for depth in sorted(by_depth, reverse=True):
            if depth > 0:
                await self._end_all(by_depth[depth])

    async def _stop(self, session_id: str) -> None:
        async with self._one.alone(session_id):
            await self.end_tree(session_id)

    async def end_tree(self, session_id: str) -> None:
        """(Trio) End a session and all below it, the deepest first; nobody else does anything to it meanwhile."""
        await self._end_levels(self._levels(session_id))

    def stop_soon(self, session_id: str) -> None:
        """(Trio) Stop a session, its children first, beside whatever comes next."""
        ending = partial(self._end_levels, self._levels(session_id))
        self._guest.spawn(ending, lambda outcome: None, name=f"stop of {session_id}")

    def _levels(self, session_id: str) -> list[list[str]]:
        """What is open of a session and all below it, level by level; none of it starts anybody from here on."""
        levels = [[session_id] if session_id in self._registry else []]
        while levels[-1]:
            levels.append([child for one in levels[-1] for child in self._children(one)])
        self._spawner.closing.update(one for level in levels for one in level)
        return levels

    async def _end_levels(self, levels: list[list[str]]) -> None:
        try:
            for level in reversed(levels):
                ending = [actor for one in level if (actor := self._registry.get(one)) is not None]
                for one in level:  # before anybody is waited for: a message would bring it back meanwhile
                    self._forget_passivated(one)
                await self._end_all(ending)
        finally:
            self._spawner.closing.difference_update(one for level in levels for one in level)

    def _children(self, session_id: str) -> list[str]:
        """The children of a session that are open, in memory or not; the log is read only for one that has any."""
        kept = self._registry.kept(session_id)
        if kept is not None and not kept.has_children:
            return []
        log, _ = self._registry.log(session_id)
        return [child.id for child in log[CHILDREN] if child.id in self._registry]

    async def _end_all(self, actors: Iterable[Session]) -> None:
        ending = list(actors)
        for actor in await self.troupes.end_all(ending):
            actor.close()
            self.forget(actor)
        for actor in ending:
            if self._registry.live.get(actor.id) is actor:  # it crashed, and who was asked to end is not told of
                self._lost(actor)

    def _child_ended(self, notice: ChildRestarted) -> None:
        """(a supervisor) A session's actor ended, and it is decided what follows."""
        self._on_notice(notice)
        if (actor := self._registry.live.get(notice.child)) is not None and notice.decision != "restart":
            self._lost(actor)

    def _lost(self, actor: Session) -> None:
        if actor.waiters is not None:
            actor.waiters.stopped(SessionClosed(GIVEN_UP.format(id=actor.id)))
        self.crashed(actor, "the agent crashed")
        self._bury(actor)

    def _bury(self, actor: Session) -> None:
        """It is open no more; its log gets the end of the turn that the last crash left open, and its readers see it.

        An append is whole or nothing, so the log in memory is true whatever crashed; what else could be in the way, a
        store that takes nothing, leaves the repair to whoever opens the session.
        """
        there = self._registry.drop(actor)
        if there:
            self._alarm.set(actor.id, None)
            self._spawner.forget(actor.id, opened_of(actor))

        def durable(error: Exception | None) -> None:
            if there and actor.id not in self._registry:  # nobody opened it meanwhile
                self._let_go(actor.id)

        try:
            mend(actor.log, cold=True)
        except LogError as error:
            LOGGER.error("session %s: the end of its last turn is not on its log: %s", actor.id, error)  # noqa: TRY400
        actor.log.when_durable(durable)

    def crashed(self, actor: Session, error: str) -> None:
        """Nobody will run this actor again: tell all who wait, its parent, and its children."""
        places = self._registry.places()  # its log may lag behind
        children = [id_ for id_, opened in places if opened.parent == actor.id]
        if actor.log.fenced is not None:
            self._on_notice(SessionFenced(actor.id))
        actor.close()
        if (opened := opened_of(actor)).parent is not None:
            self._spawner.crashed(actor, opened, error)
        for child in children:
            self.stop_soon(child)

    def forget(self, actor: Session) -> None:
        """It has ended as it was to, or was given up: its id is free, and its readers end."""
        if self._registry.drop(actor):
            self._gone(actor.id, opened_of(actor))
            self._tell_late(actor)

    def _tell_late(self, actor: Session) -> None:
        """Its last turn may have ended without being durable as it was given up: then the parent knows nothing of it.

        Of what ends as the runtime closes the parent hears when it is opened again.
        """
        ended, told = actor.log.last_end, actor.last_ended
        if ended is None or (told is not None and told.turn >= ended.turn):
            return
        if self._registry.open and opened_of(actor).parent is not None:
            self._spawner.report_late(actor, ended)

    def _forget_passivated(self, session_id: str) -> None:
        kept = self._registry.cold.pop(session_id, None)
        if kept is not None:
            self._gone(session_id, kept.opened(session_id))

    def _gone(self, session_id: str, opened: SessionOpened) -> None:
        self._alarm.set(session_id, None)
        self._spawner.forget(session_id, opened)
        self._let_go(session_id)

    def _let_go(self, session_id: str) -> None:
        self._registry.release(session_id)
        self._registry.audience.end(session_id)

    def closed(self) -> None:
        """The runtime is closed: whoever still waits for a session is told, and reads what the store has."""
        self._registry.open = False
        for actor in tuple(self._registry.live.values()):
            actor.close()
            self.forget(actor)
        for session_id in tuple(self._registry.cold):
            self._forget_passivated(session_id)

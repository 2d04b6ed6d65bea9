"""Revival: what a session that comes from the store hears of its agents: each end that it has not recorded."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from callboard.actors.children import CHILDREN, UNSETTLED, Child
from callboard.actors.errors import Fenced, LogError
from callboard.actors.eventlog import LOGGER
from callboard.actors.session import Session
from callboard.runtime.company import LOST
from callboard.runtime.lookup import Lookup
from callboard.runtime.registry import Registry, opened_of
from callboard.runtime.spawn import Spawner


class Revival:
    """Opens the agents of a session whose ends it has not heard; those it has heard of stay where they are."""

    def __init__(
        self,
        registry: Registry,
        lookup: Lookup,
        spawner: Spawner,
        alone: Callable[[str], AbstractAsyncContextManager[None]],
        read: Callable[[str, str], Awaitable[Session]],
    ) -> None:
        """`alone(id)` keeps others from the id meanwhile, `read(id, parent)` opens one of the store."""
        self._registry, self._lookup, self._spawner = registry, lookup, spawner
        self._alone, self._read = alone, read

    async def of_children(self, parent: Session) -> None:
        """(Trio) Let a session know what became of its agents; one that was closed is not opened for that."""
        for known in parent.log[CHILDREN]:
            if known.closed:
                await self._tell_of_closed(parent, known)
            elif known.status in UNSETTLED or await self._newest_turn(known) > known.turn:
                await self._revive(parent, known)

    async def _newest_turn(self, known: Child) -> int:
        """The turn that it has come to; a log that cannot be read says nothing about that."""
        try:
            return await self._lookup.newest_turn(known.id)
        except LogError as error:
            LOGGER.warning("session %s: it is not known whether it has had another turn: %s", known.id, error)
            return known.turn

    async def _tell_of_closed(self, parent: Session, known: Child) -> None:
        """Of the turns that its end cut off: what its log says of them, if anything."""
        newest = max(await self._newest_turn(known), known.turn + (known.status in UNSETTLED))
        for turn in range(known.turn + 1, newest + 1):
            try:
                ended = await self._lookup.find_ended(known.id, turn)
            except LogError:  # that is how it stays: nobody opens it
                ended = None
            self._spawner.stopped(parent, known, turn, ended)

    async def _revive(self, parent: Session, known: Child) -> None:
        async with self._alone(known.id):
            try:
                child = await self._child(known.id, parent.id)
            except Fenced as error:  # it is not lost: another program has it
                LOGGER.warning("session %s: its parent is not told of it: %s", known.id, error)
                return
            except LogError as error:
                self._spawner.lost(parent, known, f"the agent's log cannot be read: {error}")
                return
            if child is None:
                self._spawner.lost(parent, known, LOST)
                return
            await self._tell(child, known)

    async def of_agent(self, child: Session, parent: str) -> None:
        """(Trio) Before an agent that was read starts: its parent hears what it missed, ahead of any turn to come."""
        above = self._registry.get(parent)
        known = () if above is None else above.log[CHILDREN]
        for one in known:
            if one.id == child.id:
                await self._tell(child, one)

    async def _tell(self, child: Session, known: Child) -> None:
        last = child.log.last_end
        if last is None or last.turn <= known.turn:
            return
        await child.log.flush()
        for turn in range(known.turn + 1, last.turn):
            ended = await self._lookup.find_ended(known.id, turn)
            if ended is not None:
                self._spawner.report_end(child.id, opened_of(child), ended, notify=False)
        self._spawner.report_end(child.id, opened_of(child), last, notify=False)

    async def _child(self, session_id: str, parent: str) -> Session | None:
        """The agent in memory, brought there if need be; None when no store knows it."""
        child = self._registry.get(session_id)
        if self._registry.kept(session_id) is not None:
            return await self._registry.loaded(session_id)
        if child is not None:
            return child
        return None if await self._lookup.header(session_id) is None else await self._read(session_id, parent)

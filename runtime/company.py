"""Company: how the agents of a tree stand, seen by one of them, and what it may have done to those below it."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import chain

import attrs

from callboard.actors.asked import APPROVALS, QUESTIONS
from callboard.actors.awaited import until
from callboard.actors.books import OPENED, PARKED, QUEUE, TURN
from callboard.actors.children import CHILDREN, WORKING, Child, Children, Status, status_of
from callboard.actors.eventlog import EventLog
from callboard.actors.events import SessionOpened
from callboard.actors.lent import Agent
from callboard.actors.session import Session
from callboard.runtime.registry import Registry, opened_of


def log_in_memory(registry: Registry, session_id: str) -> EventLog | None:
    """The log of a session that is live."""
    actor = registry.get(session_id)
    return None if actor is None or actor.kept is not None else actor.log


def standing(registry: Registry, known: Child) -> Status:
    """How a child stands now."""
    log = log_in_memory(registry, known.id)
    if log is None:
        return status_of(known, live=False, turn=0, works=False, asks=False, queued=False, below=False)
    turn = log[TURN]
    return status_of(
        known,
        live=True,
        turn=turn.number,
        works=turn.open,
        asks=asks(log),
        queued=not log[PARKED] and any(message.wake for message in log[QUEUE]),
        below=works_below(registry, log),
    )


def asks(log: EventLog) -> bool:
    """Whether the session waits for its user."""
    return bool(log[QUESTIONS]) or bool(log[APPROVALS])


def _children(log: EventLog | None) -> Children:
    return () if log is None else log[CHILDREN]


def works_below(registry: Registry, log: EventLog) -> bool:
    """Whether any agent below this session works."""
    return any(standing(registry, child) in WORKING for child in log[CHILDREN])


class Company:
    """The agents of one tree, as the session `viewer` sees them."""

    def __init__(
        self,
        registry: Registry,
        viewer: Session,
        read: Callable[[str], Awaitable[EventLog | None]],
        interrupt: Callable[[Session, Session, int | None], None],
        close: Callable[[str], Awaitable[None]],
    ) -> None:
        """`read(id)` gives the log of a session that is not in memory, None where there is none."""
        self._registry, self._viewer, self._read = registry, viewer, read
        self._interrupt, self._close = interrupt, close

    async def all(self) -> tuple[Agent, ...]:
        """Every agent of the tree; below one that is not open none is listed."""
        root_id = self._root_id()
        log = await self._log(root_id)
        if log is None:
            return ()
        found = [self._root(root_id, log)]
        below = [(child, False) for child in log[CHILDREN][::-1]]
        while below:
            known, closed = below.pop()
            agent = self._agent(known, above_closed=closed)
            found.append(agent)
            log = await self._log(known.id) if self._may_have_children(known.id) else None
            below.extend((child, agent.closed) for child in _children(log)[::-1])
        return tuple(found)

    async def find(self, path: str) -> Agent | None:
        """The agent at a path."""
        names = path.split("/")[2:]
        root_id = id_ = self._root_id()
        log = await self._log(id_)
        agent = None if log is None else self._root(root_id, log)
        for name in names:
            known = next((one for one in _children(log) if one.id == f"{id_}.{name}"), None)
            if known is None:
                return None
            agent = self._agent(known, above_closed=agent is not None and agent.closed)
            id_, log = known.id, await self._log(known.id)
        return agent

    def now(self, agents: Sequence[Agent]) -> tuple[Agent, ...]:
        """The same agents as they stand at this moment; one that is not below a session in memory stays as it was."""
        return tuple(self._again(agent) for agent in agents)

    async def until(self, met: Callable[[], bool], whom: Callable[[], Iterable[str]]) -> None:
        """Return once `met()` is true."""
        await until(self._viewer.log, met, lambda: chain.from_iterable(map(self._logs, whom())))

    def interrupt(self, id: str, *, turn: int | None = None) -> None:
        """Interrupt an agent below this session; one that is not in memory rests, and so do all below it."""
        agent = self._registry.get(id)
        if agent is not None:
            self._interrupt(self._viewer, agent, turn)

    async def close(self, id: str) -> None:
        """End an agent for good."""
        await self._close(id)

    # ----------------------------------------------------------------------------------------------------------------

    def _root_id(self) -> str:
        return opened_of(self._viewer).root or self._viewer.id

    def _root(self, root_id: str, log: EventLog) -> Agent:
        status: Status = "idle"
        if log[TURN].open:
            status = "waiting" if asks(log) else "running"
        elif works_below(self._registry, log):
            status = "waiting"
        opened = log[OPENED] or SessionOpened()
        return Agent(root_id, opened.path, status, turn=log[TURN].number)

    def _agent(self, known: Child, *, above_closed: bool = False) -> Agent:
        status = standing(self._registry, known)
        text = known.text if status not in ("pending", "running") else ""
        closed = known.closed or above_closed
        return Agent(
            known.id,
            known.path,
            status,
            text,
            known.task,
            known.role,
            known.turn,
            closed=closed,
            detached=known.detached,
        )

    def _again(self, agent: Agent) -> Agent:
        log = log_in_memory(self._registry, agent.id.rpartition(".")[0])
        known = next((one for one in _children(log) if one.id == agent.id), None)
        return agent if known is None else attrs.evolve(self._agent(known), closed=agent.closed or known.closed)

    def _logs(self, id: str) -> Iterator[EventLog]:
        """Where it shows how an agent stands: its own log, its parent's, and those below it."""
        above = log_in_memory(self._registry, id.rpartition(".")[0])
        if above is not None:
            yield above
        yield from self._logs_below(id)

    def _logs_below(self, id: str) -> Iterator[EventLog]:
        log = log_in_memory(self._registry, id)
        if log is not None:
            yield log
            for child in log[CHILDREN]:
                yield from self._logs_below(child.id)

    def _may_have_children(self, session_id: str) -> bool:
        kept = self._registry.kept(session_id)
        return session_id in self._registry and (kept is None or kept.has_children)

    async def _log(self, session_id: str) -> EventLog | None:
        log = log_in_memory(self._registry, session_id)
        return log if log is not None else await self._read(session_id)

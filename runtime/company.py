"""Company: how the agents of a tree stand, seen by one of them, and what it may have done to those below it."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice

import attrs
from msgspec.structs import replace

from callboard.actors.asked import APPROVALS, QUESTIONS
from callboard.actors.awaited import until
from callboard.actors.books import OPENED, PARKED, QUEUE, TURN
from callboard.actors.children import CHILDREN, UNSETTLED, WORKING, Child, Children, Status, child_of, status_of
from callboard.actors.errors import LogError, ToolError
from callboard.actors.eventlog import LOGGER, EventLog
from callboard.actors.events import SessionOpened, TurnEnded
from callboard.actors.facts import ChildStatus
from callboard.actors.lent import Agent
from callboard.actors.session import Session
from callboard.runtime.registry import Registry, opened_of

LOST = "the agent was lost before it began"


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


def child_status(ended: TurnEnded) -> tuple[ChildStatus, str]:
    """How a child's turn reads at its parent: status, and its last words or its error."""
    if ended.cause == "shutdown":
        return "stopped", ended.last_message or ""
    if ended.reason in ("aborted", "interrupted"):
        return "interrupted", ended.error or ended.last_message or ""  # the error says which budget is used up
    if ended.error is not None:
        return "failed", ended.error
    return "completed", ended.last_message or ""


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
        has_agents: Callable[[str], Awaitable[bool]],
        interrupt: Callable[[Session, Session, int | None], None],
        close: Callable[[str], Awaitable[None]],
    ) -> None:
        """`read(id)` gives the log of a session that is not in memory, None where there is none.

        `has_agents(id)` answers for less whether that log may name agents of its own.
        """
        self._registry, self._viewer, self._read, self._has_agents = registry, viewer, read, has_agents
        self._interrupt, self._close = interrupt, close

    async def all(self) -> tuple[Agent, ...]:
        """Every agent of the tree, whether or not it is open; below one whose log cannot be read none is listed."""
        root_id = self._root_id()
        log = await self._log(root_id)
        if log is None:
            return ()
        found = [self._root(root_id, log)]
        below = [(child, False) for child in log[CHILDREN][::-1]]
        while below:
            known, closed = below.pop()
            try:
                agent, children = await self._agent_and_below(known, above_closed=closed)
            except LogError as error:
                LOGGER.warning("session %s is listed without those below it: %s", known.id, error)
                agent, children = self._agent(known, above_closed=closed), ()
            found.append(agent)
            below.extend((child, agent.closed) for child in children[::-1])
        return tuple(found)

    def own(self) -> tuple[Agent, ...]:
        """The agents that this session started."""
        return tuple(self._agent(known) for known in self._viewer.log[CHILDREN])

    async def find(self, path: str) -> Agent | None:
        """The agent at a path."""
        names = path.split("/")[2:]
        root_id = id_ = self._root_id()
        log = await self._log(id_)
        agent = None if log is None else self._root(root_id, log)
        for name in names:
            known = child_of(_children(log), f"{id_}.{name}")
            if known is None:
                return None
            id_, log = known.id, await self._log(known.id)
            agent = self._agent(self._caught_up(known, log), above_closed=agent is not None and agent.closed)
        return agent

    def now(self, agents: Sequence[Agent]) -> tuple[Agent, ...]:
        """The same agents as they stand at this moment; one that is not below a session in memory stays as it was."""
        return tuple(self._again(agent) for agent in agents)

    async def until(self, met: Callable[[], bool], whom: Callable[[], Iterable[str]]) -> None:
        """Return once `met()` is true."""
        await until(self._viewer.log, met, lambda: chain.from_iterable(map(self._logs, whom())))

    def interrupt(self, id: str, *, turn: int | None = None) -> None:
        """Interrupt an agent below this session; one that is not in memory rests, and so do all below it."""
        above = self._viewer.id
        for below in self._levels(id):
            log = log_in_memory(self._registry, above)
            if log is None:
                return
            self._check_known(id, child_of(log[CHILDREN], below))
            above = below
        agent = self._registry.get(id)
        if agent is not None:
            self._interrupt(self._viewer, agent, turn)

    async def close(self, id: str) -> None:
        """End an agent for good."""
        above = self._viewer.id
        for below in self._levels(id):
            self._check_known(id, child_of(_children(await self._log(above)), below))
            above = below
        await self._close(id)

    # ----------------------------------------------------------------------------------------------------------------

    def _levels(self, id: object) -> Iterator[str]:
        """The ids on the way down to this one, without the viewer's: an agent's id is its parent's and its name."""
        own = f"{self._viewer.id}."
        if not isinstance(id, str) or not id.startswith(own):
            self._check_known(id, None)
        else:
            yield from islice(accumulate(id.removeprefix(own).split("."), "{}.{}".format, initial=own[:-1]), 1, None)

    def _check_known(self, id: object, known: Child | None) -> None:
        """Each on the way has to be on the log above it: a session that a program made may have any id."""
        if known is None:
            raise ToolError(f"{id!r:.200} is no agent below session {self._viewer.id!r}: view.agents finds those.")

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
        known = child_of(_children(log), agent.id)
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

    async def _agent_and_below(self, known: Child, *, above_closed: bool) -> tuple[Agent, Children]:
        """An agent and those below it; a log that is not in memory is read only where that tells something."""
        log = log_in_memory(self._registry, known.id)
        if log is None and (self._is_behind(known) or await self._may_have_children(known.id)):
            log = await self._read(known.id)
            known = self._caught_up(known, log)
        return self._agent(known, above_closed=above_closed), _children(log)

    def _is_behind(self, known: Child) -> bool:
        """Whether a program's end kept its parent, which is not open since, from hearing how its turn ended."""
        parent = known.id.rpartition(".")[0]
        return (
            known.status in UNSETTLED
            and not known.closed
            and not any(one in self._registry for one in (known.id, parent))
        )

    def _caught_up(self, known: Child, log: EventLog | None) -> Child:
        """What its parent will hear of it when that is opened; the same where it has heard."""
        if not self._is_behind(known):
            return known
        if log is None:
            return replace(known, status="failed", text=LOST)
        last = log.last_end
        if last is None or last.turn <= known.turn:
            return replace(known, status="interrupted")
        status, text = child_status(last)
        return replace(known, status=status, text=text, turn=last.turn)

    async def _may_have_children(self, session_id: str) -> bool:
        if session_id not in self._registry:
            return await self._has_agents(session_id)
        kept = self._registry.kept(session_id)
        return kept is None or kept.has_children

    async def _log(self, session_id: str) -> EventLog | None:
        log = log_in_memory(self._registry, session_id)
        return log if log is not None else await self._read(session_id)

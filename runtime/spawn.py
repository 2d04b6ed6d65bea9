"""Subagents: the Spawner starts them, within the limits of their tree, and carries their ends to their parents."""

import re
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import attrs

from callboard.actors.books import OPENED, QUEUE, TURN, USAGE
from callboard.actors.children import CHILDREN, WORKING, Child, child_of, with_below
from callboard.actors.errors import CallboardError, LogError, ToolError, UsageError
from callboard.actors.eventlog import EventLog
from callboard.actors.events import MessagesClaimed, SessionOpened, TurnEnded, TurnStarted, Usage
from callboard.actors.facts import ChildClosed, ChildSpawned, ChildStatus
from callboard.actors.messages import ChildDone, Interrupt, Stop, Submit
from callboard.actors.phase import Phase
from callboard.actors.receipts import clean_text
from callboard.actors.session import Session
from callboard.actors.stage import SpawnRequest, Stage
from callboard.actors.values import NOTHING_USED
from callboard.runtime.admission import Refusal, TreeLimits
from callboard.runtime.below import Below
from callboard.runtime.birth import NO_ROLES, Roles, copied, opening_of, role_of
from callboard.runtime.company import Company, child_status, log_in_memory, standing
from callboard.runtime.lookup import Lookup
from callboard.runtime.registry import Registry, opened_of
from callboard.runtime.trees import Trees

NAME = re.compile(r"[a-z0-9_]{1,64}")
RESERVED = frozenset({"root"})
TASK_MAX_CHARS = 1_000_000
ENDING = (Phase.STOPPING, Phase.STOPPED)
AT_REST = (Phase.IDLE, Phase.STOPPED)
TELL_AGAIN_S = 1.0  # until a parent that could not take the end of a child is told of it again
TELLS_MAX = 300


class TreeFull(ToolError):
    """A limit of the tree is in the way of another agent."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class Sessions(Protocol):
    """The sessions of the runtime, as the Spawner needs them."""

    def supervise(self, actor: Session) -> None:
        """Start an actor; `SessionClosed` when none starts any more."""
        ...

    async def exists(self, session_id: str) -> bool:
        """(Trio) Whether the id is taken, here or in the store."""
        ...

    async def open(self, session_id: str) -> object:
        """The session of that id, read from the store unless it is live; `SessionNotFound` when there is none."""
        ...

    def stop_soon(self, session_id: str) -> None:
        """(Trio) Stop a session, those below it first, beside whatever comes next."""
        ...

    async def stop_session(self, session_id: str) -> None:
        """Stop a session, those below it first; it goes on when nobody waits; harmless when it is not live."""
        ...


class Spawner:
    """Starts subagents, and settles at each end of a turn; every end is told to the parent once."""

    def __init__(
        self,
        stage: Stage,
        limits: TreeLimits,
        registry: Registry,
        sessions: Sessions,
        check_model: Callable[[str], object],
        *,
        roles: Roles = NO_ROLES,
        cascade: bool,
        wake: bool,
    ) -> None:
        """`check_model` raises a `UsageError` for the name of no model."""
        self._roles, self._lookup = roles, Lookup(stage.store, stage.codec)
        self._stage, self._registry, self._sessions = stage, registry, sessions
        self._check_model = check_model
        self._cascade, self._wake = cascade, wake
        self.trees = stage.trees = Trees(stage, limits, registry)  # where each turn asks
        self._quiet: set[str] = set()  # children whose ends wake nobody
        self._owed: dict[tuple[str, str], deque[ChildDone]] = {}  # ends on their way, by parent and child
        self.closing: set[str] = set()  # sessions that are being stopped: they start nobody, and ask no model
        stage.leaving = lambda session: not registry.open or session in self.closing

    # -- starting ----------------------------------------------------------------------------------------------------

    async def spawn(self, request: SpawnRequest) -> tuple[str, str]:
        """(Trio) Admit and start a child; its session id and path. A `ToolError` names what is in the way."""
        self._check(request)
        child_id = f"{request.parent}.{request.name}"
        taken = await self._sessions.exists(child_id)
        parent = self._registry.get(request.parent)
        opened = None if parent is None else parent.log[OPENED]
        if parent is None or opened is None or parent.phase in ENDING or parent.id in self.closing:
            raise ToolError(f"session {request.parent!r} is ending: it starts no agents.")
        path = f"{opened.path}/{request.name}"
        if child_of(parent.log[CHILDREN], child_id) is not None:
            raise ToolError(f"an agent {path} exists already: choose another task_name.")
        if taken or self._registry.get(child_id) is not None:
            raise ToolError(f"a session {child_id!r} exists already: choose another task_name.")
        self._open_child(request, parent, opening_of(request, opened, role_of(request, self._roles)), child_id)
        return child_id, path

    def _check(self, request: SpawnRequest) -> None:
        """What can be told without looking at the tree."""
        given: tuple[object, ...] = (request.name, request.task)
        if not all(isinstance(one, str) for one in given):
            raise ToolError("task_name and the message for the agent have to be text.")
        if not NAME.fullmatch(request.name) or request.name in RESERVED:
            raise ToolError(f"task_name must be 1 to 64 of a-z, 0-9 and _, got {clean_text(request.name)!r:.80}.")
        if not request.task.strip():
            raise ToolError("the message for the agent is empty: write what it should do.")
        if len(request.task) > TASK_MAX_CHARS:
            raise ToolError(
                f"the message for the agent has {len(request.task):,} characters: at most {TASK_MAX_CHARS:,}."
            )
        model = request.model or role_of(request, self._roles).model
        if model is not None:
            try:
                self._check_model(model)
            except UsageError as error:
                raise ToolError(clean_text(str(error))) from None

    def _open_child(self, request: SpawnRequest, parent: Session, opening: SessionOpened, child_id: str) -> None:
        """In one piece: the child on its parent's log, its own log with what is copied for it, its task."""
        task, turn = clean_text(request.task), parent.log[TURN].number if request.call else 0
        call, detached, role = request.call, request.detached, request.role or ""
        spawned = ChildSpawned(child_id, opening.path, task, request.mail, call, turn, detached, role)
        copies = copied(request, parent.log)
        self._reserve(child_id, parent, opening, spawned)
        child = Session(self._stage, child_id, opening)
        try:
            if copies:
                child.begin()
                child.log.append(*copies)
            self._sessions.supervise(child)
            self.adopt(child, opening, notify=request.notify)
            taken, sender = partial(self._task_taken, child, opening), opening.path.rpartition("/")[0]
            child.tell(Submit(task, id=f"task:{child_id}", source=f"agent:{sender}", reply=taken))
        except CallboardError as error:
            self.trees.settle(child_id, opening)
            self._fail(opening, child_id, 1, f"the agent did not start: {error}")
            raise ToolError(f"the agent did not start: {error}") from None

    def _reserve(self, child_id: str, parent: Session, opening: SessionOpened, spawned: ChildSpawned) -> None:
        """Take a slot and say so on the parent's log; a `ToolError` names the limit in the way.

        Nothing waits between this and the start.
        """
        refusal = self.trees.reserve(child_id, parent.id, opening)
        if refusal is not None:
            raise TreeFull(refusal)
        try:
            parent.log.append(spawned)
        except LogError:
            self.trees.cancel(child_id, opening)
            raise

    def _task_taken(self, child: Session, opening: SessionOpened, answer: Any) -> None:
        self.trees.unused(child.id)
        if isinstance(answer, Exception):
            self._fail(opening, child.id, 1, f"the agent did not start: {answer}")

    # -- what the runtime tells --------------------------------------------------------------------------------------

    def adopt(self, child: Session, opened: SessionOpened, *, notify: bool = True) -> None:
        """Count a live child, and carry the ends of its turns to its parent; without `notify` they wake nobody."""
        if not notify:
            self._quiet.add(child.id)
        self.trees.join(child.id, opened)
        child.on_ended = partial(self.report_end, child.id, opened, notify=child.id not in self._quiet)

    def passivated(self, session_id: str, opened: SessionOpened) -> None:
        """This session left memory: it does not work, and what its tree used up is still used up."""
        self.trees.rest(session_id, opened)

    def forget(self, session_id: str, opened: SessionOpened) -> None:
        """This session is open no more; with the root goes all that is known of its tree."""
        self._quiet.discard(session_id)
        self.trees.part(session_id, opened)

    def report_end(self, child_id: str, opened: SessionOpened, ended: TurnEnded, *, notify: bool) -> None:
        """A turn of a child ended: its parent is told, and woken unless nobody is meant to go on by that."""
        on_purpose = ended.cause in ("parent", "shutdown") or ended.reason == "interrupted"
        wake, used = notify and not on_purpose, ended.tree_usage
        self._report(opened, child_id, *child_status(ended), ended.turn, wake=wake, used=used)

    def report_late(self, child: Session, ended: TurnEnded, tries: int = 0) -> None:
        """This agent was given up while its disk stalled: its parent is told of the end once that is durable."""

        def durable(error: Exception | None) -> None:
            if error is None:
                self.report_end(child.id, opened_of(child), ended, notify=False)
            elif tries < TELLS_MAX and self._registry.open:
                again = partial(self.report_late, child, ended, tries + 1)
                self._stage.timers.at(self._stage.now_s() + TELL_AGAIN_S, again)

        child.log.when_durable(durable)

    def crashed(self, child: Session, opened: SessionOpened, error: str) -> None:
        """This child's actor is gone for good: that is a failure at its parent, never silence."""
        turn, used = max(1, child.log[TURN].number), with_below(child.log[USAGE], child.log[CHILDREN])
        self._report(opened, child.id, "failed", clean_text(error), turn, wake=True, used=used)

    def lost(self, parent: Session, known: Child, why: str) -> None:
        """The log of this child cannot be read: nobody will ever know more."""
        self._tell(parent, ChildDone(known.id, known.path, "failed", why, known.turn + 1, wake=False))

    def stopped(self, parent: Session, known: Child, turn: int, ended: TurnEnded | None) -> None:
        """This child was closed while it worked, and the program ended before this turn's end was told, or came."""
        status: ChildStatus = "stopped"
        text, used = "", known.used
        if ended is not None:
            (status, text), used = child_status(ended), ended.tree_usage
        self._tell(parent, ChildDone(known.id, known.path, status, text, turn, wake=False, used=used))

    def interrupt_children(self, parent: Session) -> int:
        """A parent is being aborted: so is all below it, before it looks at its own work, each in a window of its own.

        All but the detached ones; without `cascade` only the one that the turn itself waits for. Its turn ends behind
        theirs. One that rests has no turn of its own, and those below it end as they do: how many work there.
        """
        window = parent.scene.window if parent.log[TURN].open else None
        working = sum(child.log[TURN].open for child in self._below(parent, deep=True)) if window is None else 0
        for child in self._below(parent):
            child.abort("parent")
            if window is None:
                child.tell(Interrupt(None, "parent"))
            else:
                child.tell(Interrupt(None, "parent", reply=Below(child, window).answered))
        return working

    def _below(self, parent: Session, *, deep: bool = False) -> Iterator[Session]:
        """Whom an interrupt of this one reaches: of those that rest also who is below them, `deep` of all of them."""
        turn = parent.log[TURN].number
        for known in parent.log[CHILDREN]:
            awaited = known.call != "" and known.called == turn
            child = self._registry.get(known.id)
            if child is not None and (awaited or (self._cascade and not known.detached)):
                if deep or child.phase in AT_REST:  # those below one that works hear of it from that one
                    yield from self._below(child, deep=deep)
                yield child

    def interrupt(self, viewer: Session, child: Session, turn: int | None) -> None:
        """(an agent) Interrupt another one; who waits for that without having asked for the interrupt goes on by it."""
        child.tell(Interrupt(turn, "parent" if opened_of(child).parent == viewer.id else "interrupted"))

    def working(self, session_id: str) -> int:
        """How many of the agents that a session started are working; not one whose turn has ended, heard of or not."""
        log = log_in_memory(self._registry, session_id)
        return 0 if log is None else sum(self._works(child) for child in log[CHILDREN])

    def _works(self, known: Child) -> bool:
        log = log_in_memory(self._registry, known.id)
        over = log is not None and not log[TURN].open and log[TURN].number > known.turn
        return not over and standing(self._registry, known) in WORKING

    def seen_by(self, session_id: str) -> Company:
        """The agents of its tree, for a session."""
        viewer = self._registry.actor(session_id)
        read, has_agents = partial(self._lookup.log, self._stage), self._lookup.has_agents
        return Company(self._registry, viewer, read, has_agents, self.interrupt, self.close)

    async def close(self, session_id: str) -> None:
        """(Trio) End an agent and all below it for good; that it is closed is durable before anything ends."""
        parent_id = session_id.rpartition(".")[0]
        if parent_id not in self._registry:
            await self._sessions.open(parent_id)
        parent = await self._registry.loaded(parent_id)
        known = child_of(parent.log[CHILDREN], session_id)
        if known is not None and not known.closed:
            parent.log.append(ChildClosed(session_id))
            await parent.log.flush()
        await self._sessions.stop_session(session_id)

    async def is_closed(self, session_id: str) -> bool:
        """Whether this agent or one above it was ended for good; what is not in memory is read for that."""
        header = await self._lookup.header(session_id)
        while header is not None and header.parent is not None:
            above = log_in_memory(self._registry, header.parent)
            log = above if above is not None else await self._lookup.log(self._stage, header.parent)
            if log is not None and any(child.id == header.id and child.closed for child in log[CHILDREN]):
                return True
            header = await self._lookup.header(header.parent)
        return False

    def dismiss(self, session_id: str) -> None:
        """End an agent for good, with cause `parent` if it works; harmless when it has ended."""
        child = self._registry.get(session_id)
        if child is not None:
            self._sessions.stop_soon(session_id)  # asked first, while its log still names those below it
            child.tell(Stop("parent"))

    # -- telling a parent --------------------------------------------------------------------------------------------

    def _fail(self, opened: SessionOpened, child_id: str, turn: int, why: str) -> None:
        self._report(opened, child_id, "failed", clean_text(why), turn, wake=False)

    def _report(
        self,
        opened: SessionOpened,
        child_id: str,
        status: ChildStatus,
        text: str,
        turn: int,
        *,
        wake: bool,
        used: Usage = NOTHING_USED,
    ) -> None:
        """Tell the parent if it is open; else the child's own log tells it when it is opened again."""
        parent = None if opened.parent is None else self._registry.awake(opened.parent)
        if parent is not None:
            self._tell(parent, ChildDone(child_id, opened.path, status, text, turn, wake and self._wake, used))

    def _tell(self, parent: Session, letter: ChildDone) -> None:
        """One after the other for each child: an end that was refused once must not come behind a later one."""
        owed = self._owed.setdefault((parent.id, letter.child), deque())
        owed.append(letter)
        if len(owed) == 1:
            self._send(parent.id, owed, 0)

    def _send(self, parent_id: str, owed: deque[ChildDone], tries: int) -> None:
        """Put the first of them into the parent's mailbox; without a parent they are told when it is opened again."""
        parent = self._registry.awake(parent_id)
        if parent is None or parent.phase is Phase.STOPPED or tries > TELLS_MAX:
            self._owed.pop((parent_id, owed[0].child), None)
            return
        letter = attrs.evolve(owed[0], reply=partial(self._told, parent_id, owed, tries))
        parent.mailbox.put(letter, urgent=True)  # a full mailbox must not lose it: there is one for each turn

    def _told(self, parent_id: str, owed: deque[ChildDone], tries: int, answer: Any) -> None:
        """The parent has it on its disk; or its disk refused it or it crashed, then it is told again, for minutes."""
        if isinstance(answer, Exception):
            self._stage.timers.at(self._stage.now_s() + TELL_AGAIN_S, partial(self._send, parent_id, owed, tries + 1))
            return
        child = owed.popleft().child
        if owed:
            self._send(parent_id, owed, 0)
        else:
            self._owed.pop((parent_id, child), None)


def close_unbegun(log: EventLog) -> None:
    """A subagent that the program's end kept from its first turn: the turn it was to have is closed as interrupted.

    Nothing resumes by itself, and its parent, which waits for an end, hears of one.
    """
    opened = log[OPENED]
    if opened is None or opened.parent is None or log[TURN].number > 0:
        return
    at_ms, ids = log.at_ms, tuple(message.id for message in log[QUEUE])
    claimed = (MessagesClaimed(ids),) if ids else ()
    ended = TurnEnded(1, "interrupted", started_ms=at_ms, ended_ms=at_ms)
    log.append(TurnStarted(1, start="automatic", started_ms=at_ms), *claimed, ended, at_ms=at_ms)

"""Subagents: who may start one (`admit`, pure), and the Spawner that starts it and carries its ends to its parent."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import attrs

from callboard.actors.books import CHILDREN, OPENED, QUEUE, TURN, Child
from callboard.actors.errors import CallboardError, ToolError, UsageError
from callboard.actors.eventlog import EventLog
from callboard.actors.events import MessagesClaimed, SessionOpened, TurnEnded, TurnStarted
from callboard.actors.facts import ChildSpawned, ChildStatus
from callboard.actors.messages import ChildDone, Interrupt, Stop, Submit
from callboard.actors.phase import Phase
from callboard.actors.receipts import clean_text
from callboard.actors.session import Session
from callboard.actors.stage import SpawnRequest, Stage
from callboard.runtime.registry import Registry

NAME = re.compile(r"[a-z0-9_]{1,64}")
RESERVED = frozenset({"root"})
TASK_MAX_CHARS = 1_000_000
AT_REST = (Phase.IDLE, Phase.STOPPED)
ENDING = (Phase.STOPPING, Phase.STOPPED)
WORKING = ("pending", "running")


@attrs.frozen
class TreeLimits:
    """What one tree of agents may hold.

    Levels below the root, agents that work at once in the tree and below one parent, and how many the agents below the
    root may ever start. The root is exempt from the last: it lives for as long as its user speaks to it.
    """

    depth_max: int = 3
    running_max: int = 8
    breadth_max: int = 16
    spawned_max: int = 256


@attrs.frozen
class Place:
    """Where a subagent is asked for: the depth it would have, and what its tree and its parent hold already."""

    depth: int
    running: int
    siblings: int
    spawned: int


@attrs.frozen
class Refusal:
    """The limit that refuses, its value, and what the model may do instead."""

    limit: str
    value: int
    advice: str

    def __str__(self) -> str:
        return f"spawn refused: {self.limit} is {self.value}. {self.advice}"


def admit(place: Place, limits: TreeLimits) -> Refusal | None:
    """None when a subagent may start at this place, else the first limit in its way."""
    if place.depth > limits.depth_max:
        return Refusal("depth_max", limits.depth_max, "Solve the task yourself.")
    if place.depth > 1 and place.spawned >= limits.spawned_max:
        return Refusal("spawned_max", limits.spawned_max, "This tree has used up its agents; solve the task yourself.")
    if place.siblings >= limits.breadth_max:
        return Refusal("breadth_max", limits.breadth_max, "Wait until one of your agents has finished, then try again.")
    if place.running >= limits.running_max:
        return Refusal("running_max", limits.running_max, "Wait until an agent has finished, then try again.")
    return None


@attrs.define
class Tree:
    """The live agents below one root, and how many of its agents were ever started by other agents than the root."""

    members: dict[str, Session] = attrs.field(factory=dict)
    spawned: int = 0

    def running(self) -> int:
        """How many have the slot taken, or are about to: one that is done costs nothing."""
        return sum(child.phase not in AT_REST for child in self.members.values())


class Sessions(Protocol):
    """The sessions of the runtime, as the Spawner needs them."""

    def supervise(self, actor: Session) -> None:
        """Start an actor; `SessionClosed` when none starts any more."""
        ...

    async def exists(self, session_id: str) -> bool:
        """(Trio) Whether the id is taken, here or in the store."""
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
        cascade: bool,
        wake: bool,
    ) -> None:
        """`check_model` raises a `UsageError` for the name of no model."""
        self._stage, self._limits, self._registry, self._sessions = stage, limits, registry, sessions
        self._check_model = check_model
        self._cascade, self._wake = cascade, wake
        self._trees: dict[str, Tree] = {}
        self._quiet: set[str] = set()  # children whose ends wake nobody
        self.closing: set[str] = set()  # sessions that are being stopped: they start nobody

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
        if any(child.path == path for child in parent.log[CHILDREN]):
            raise ToolError(f"an agent {path} exists already: choose another task_name.")
        if taken or self._registry.get(child_id) is not None:
            raise ToolError(f"a session {child_id!r} exists already: choose another task_name.")
        self._admit(parent, opened)
        self._open_child(request, parent, opened, child_id, path)
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
        if request.model is not None:
            try:
                self._check_model(request.model)
            except UsageError as error:
                raise ToolError(clean_text(str(error))) from None

    def _admit(self, parent: Session, opened: SessionOpened) -> None:
        """Raise a `ToolError` that names the limit in the way; nothing waits between this and the start."""
        tree = self._tree(opened.root)
        working = sum(child.phase not in AT_REST for child in self.live_children(parent))
        refusal = admit(Place(opened.depth + 1, tree.running(), working, tree.spawned), self._limits)
        if refusal is not None:
            raise ToolError(str(refusal))

    def _open_child(
        self, request: SpawnRequest, parent: Session, opened: SessionOpened, child_id: str, path: str
    ) -> None:
        model, task = request.model or opened.model, clean_text(request.task)
        system = opened.system if request.system is None else request.system
        withheld = tuple(dict.fromkeys((*opened.withheld, *request.withheld)))
        opening = SessionOpened(
            parent.id, opened.root, opened.depth + 1, path, opened.policy, system, model, request.name, withheld
        )
        child = Session(self._stage, child_id, opening)
        parent.log.append(ChildSpawned(child_id, path, task, request.mail))
        self._tree(opened.root).spawned += opened.depth > 0
        try:
            self._sessions.supervise(child)
            self.adopt(child, opening, notify=request.notify)
            taken = partial(self._task_taken, child, opening)
            child.tell(Submit(task, id=f"task:{child_id}", source=f"agent:{opened.path}", reply=taken))
        except CallboardError as error:
            self._fail(opening, child_id, 1, f"the agent did not start: {error}")
            raise ToolError(f"the agent did not start: {error}") from None

    def _task_taken(self, child: Session, opening: SessionOpened, answer: Any) -> None:
        if isinstance(answer, Exception):
            self._fail(opening, child.id, 1, f"the agent did not start: {answer}")

    # -- what the runtime tells --------------------------------------------------------------------------------------

    def adopt(self, child: Session, opened: SessionOpened, *, notify: bool = True) -> None:
        """Count a live child, and carry the ends of its turns to its parent; without `notify` they wake nobody."""
        if not notify:
            self._quiet.add(child.id)
        self._tree(opened.root).members[child.id] = child
        child.on_ended = partial(self.report_end, child.id, opened, notify=child.id not in self._quiet)

    def passivated(self, session_id: str, opened: SessionOpened) -> None:
        """This session left memory: it does not work, and what its tree used up is still used up."""
        tree = self._trees.get(opened.root or session_id)
        if tree is not None:
            tree.members.pop(session_id, None)
            if not tree.members and not tree.spawned:
                del self._trees[opened.root or session_id]

    def forget(self, session_id: str, opened: SessionOpened) -> None:
        """This session is open no more; with the root goes all that is known of its tree."""
        self._quiet.discard(session_id)
        if opened.parent is None:
            self._trees.pop(session_id, None)
        elif opened.root in self._trees:
            self._trees[opened.root].members.pop(session_id, None)

    def report_end(self, child_id: str, opened: SessionOpened, ended: TurnEnded, *, notify: bool) -> None:
        """A turn of a child ended: its parent is told, and woken unless nobody is meant to go on by that."""
        on_purpose = ended.cause in ("parent", "shutdown") or ended.reason == "interrupted"
        self._report(opened, child_id, *child_status(ended), ended.turn, wake=notify and not on_purpose)

    def crashed(self, child: Session, opened: SessionOpened, error: str) -> None:
        """This child's actor is gone for good: that is a failure at its parent, never silence."""
        self._fail(opened, child.id, max(1, child.log[TURN].number), error, wake=True)

    def lost(self, parent: Session, known: Child, why: str) -> None:
        """The log of this child cannot be read: nobody will ever know more."""
        self._tell(parent, ChildDone(known.id, known.path, "failed", why, known.turn + 1, wake=False))

    def interrupt_children(self, parent: Session) -> None:
        """A parent is being aborted: its running children are too, each with a window of its own."""
        if not self._cascade:
            return
        for child in self.live_children(parent):
            child.tell(Interrupt(cause="parent"))

    def dismiss(self, session_id: str) -> None:
        """End an agent for good, with cause `parent` if it works; harmless when it has ended."""
        child = self._registry.get(session_id)
        if child is not None:
            child.tell(Stop("parent"))

    def live_children(self, parent: Session) -> Iterator[Session]:
        """The children of a session that are live."""
        for known in parent.log[CHILDREN]:
            child = self._registry.get(known.id)
            if child is not None:
                yield child

    # -- telling a parent --------------------------------------------------------------------------------------------

    def _fail(self, opened: SessionOpened, child_id: str, turn: int, why: str, *, wake: bool = False) -> None:
        self._report(opened, child_id, "failed", clean_text(why), turn, wake=wake)

    def _report(
        self, opened: SessionOpened, child_id: str, status: ChildStatus, text: str, turn: int, *, wake: bool
    ) -> None:
        """Tell the parent if it is open; else the child's own log tells it when it is opened again."""
        parent = None if opened.parent is None else self._registry.awake(opened.parent)
        if parent is not None:
            self._tell(parent, ChildDone(child_id, opened.path, status, text, turn, wake and self._wake))

    def _tell(self, parent: Session, letter: ChildDone) -> None:
        if parent.phase is not Phase.STOPPED:
            parent.mailbox.put(letter, urgent=True)  # a full mailbox must not lose it: there is one for each turn

    def _tree(self, root_id: str) -> Tree:
        """The books of a tree; of one that was opened from the store, as far as its live agents know."""
        tree = self._trees.get(root_id)
        if tree is None:
            tree = self._trees[root_id] = Tree()
            root = self._registry.get(root_id)
            below = [] if root is None else list(self.live_children(root))
            while below:
                child = below.pop()
                tree.members[child.id] = child
                tree.spawned += len(child.log[CHILDREN])
                below.extend(self.live_children(child))
        return tree


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


def child_status(ended: TurnEnded) -> tuple[ChildStatus, str]:
    """How a child's turn reads at its parent: status, and its last words or its error."""
    if ended.cause == "shutdown":
        return "stopped", ended.last_message or ""
    if ended.reason in ("aborted", "interrupted"):
        return "interrupted", ended.error or ended.last_message or ""  # the error says which budget is used up
    if ended.error is not None:
        return "failed", ended.error
    return "completed", ended.last_message or ""

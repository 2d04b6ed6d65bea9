"""Subagents: who may start one (`admit`, pure), and the Spawner that starts it and carries its ends to its parent."""

import re
from collections.abc import Callable

import attrs
import trio

from callboard.actors.books import CHILDREN, OPENED, Child
from callboard.actors.errors import CallboardError, ToolError
from callboard.actors.events import SessionOpened, TurnEnded
from callboard.actors.facts import ChildSpawned, ChildStatus
from callboard.actors.messages import ChildDone, Interrupt, Submit
from callboard.actors.session import Session
from callboard.actors.stage import SpawnRequest, Stage

NAME = re.compile(r"[a-z0-9_]{1,64}")
RESERVED = frozenset({"root"})
TASK_MAX_CHARS = 1_000_000


@attrs.frozen
class TreeLimits:
    """What one tree of agents may hold: levels below the root, running at once, children of one parent, ever spawned."""

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
    if place.spawned >= limits.spawned_max:
        return Refusal("spawned_max", limits.spawned_max, "This tree has used up its agents; solve the task yourself.")
    if place.siblings >= limits.breadth_max:
        return Refusal("breadth_max", limits.breadth_max, "Give the task to an agent you have, or solve it yourself.")
    if place.running >= limits.running_max:
        return Refusal("running_max", limits.running_max, "Wait until an agent has finished, then try again.")
    return None


@attrs.define
class Tree:
    """The live count of one tree: who runs, and how many were ever spawned."""

    running: set[str] = attrs.field(factory=set)
    spawned: int = 0


class Spawner:
    """Starts subagents under the runtime's supervisor. Reserves before it starts, and settles at each end of a turn."""

    def __init__(
        self,
        stage: Stage,
        limits: TreeLimits,
        live: Callable[[str], Session | None],
        start: Callable[[Session], None],
        *,
        cascade: bool,
        wake: bool,
    ) -> None:
        self._stage, self._limits, self._live, self._start = stage, limits, live, start
        self._cascade, self._wake = cascade, wake
        self._trees: dict[str, Tree] = {}

    async def spawn(self, request: SpawnRequest) -> tuple[str, str]:
        """(Trio) Admit and start a child; its session id and path. A `ToolError` names what is in the way."""
        parent = self._live(request.parent)
        opened = None if parent is None else parent.log[OPENED]
        if parent is None or opened is None:
            raise ToolError(f"session {request.parent!r} is not running here.")
        path = f"{opened.path}/{request.name}"
        self._check(request, parent, path)
        tree = self._tree(opened.root, parent)
        place = Place(opened.depth + 1, len(tree.running), len(parent.log[CHILDREN]), tree.spawned)
        refusal = admit(place, self._limits)
        if refusal is not None:
            raise ToolError(str(refusal))
        child_id = f"{parent.id}.{request.name}"
        tree.running.add(child_id)
        tree.spawned += 1
        try:
            self._open_child(request, parent, opened, child_id, path)
        except CallboardError:
            tree.running.discard(child_id)
            raise
        await trio.lowlevel.checkpoint()
        return child_id, path

    def _check(self, request: SpawnRequest, parent: Session, path: str) -> None:
        if not NAME.fullmatch(request.name) or request.name in RESERVED:
            raise ToolError(f"task_name must be 1 to 64 of a-z, 0-9 and _, got {request.name!r:.80}.")
        if any(child.path == path for child in parent.log[CHILDREN]):
            raise ToolError(f"an agent {path} exists already: choose another task_name.")
        if not request.task.strip():
            raise ToolError("the message for the agent is empty: write what it should do.")
        if len(request.task) > TASK_MAX_CHARS:
            raise ToolError(
                f"the message for the agent has {len(request.task):,} characters: at most {TASK_MAX_CHARS:,}."
            )

    def _tree(self, root: str, parent: Session) -> Tree:
        tree = self._trees.get(root)
        if tree is None:
            tree = self._trees[root] = Tree(spawned=len(parent.log[CHILDREN]))
        return tree

    def _open_child(
        self, request: SpawnRequest, parent: Session, opened: SessionOpened, child_id: str, path: str
    ) -> None:
        model = request.model or opened.model
        opening = SessionOpened(
            parent.id, opened.root, opened.depth + 1, path, opened.policy, opened.system, model, request.name
        )
        child = Session(self._stage, child_id, opening)
        parent.log.append(ChildSpawned(child_id, path, request.task[:TASK_MAX_CHARS]))
        self.adopt(child, opening, notify=request.notify and self._wake)
        child.tell(Submit(request.task, id=f"task:{child_id}", source=f"agent:{opened.path}"))
        self._start(child)

    def adopt(self, child: Session, opened: SessionOpened, *, notify: bool) -> None:
        """Carry the ends of this child's turns to its parent."""
        child.on_ended = lambda ended: self._ended(child, opened, ended, notify=notify)
        child.on_abort = lambda: self.interrupt_children(child)

    def _ended(self, child: Session, opened: SessionOpened, ended: TurnEnded, *, notify: bool) -> None:
        self.settle(opened.root, child.id)
        self.report(opened, child.id, *child_status(ended), ended.turn, notify=notify)

    def settle(self, root: str, child_id: str) -> None:
        """A turn of this child is over: its place is free."""
        tree = self._trees.get(root)
        if tree is not None:
            tree.running.discard(child_id)

    def report(
        self, opened: SessionOpened, child_id: str, status: ChildStatus, text: str, turn: int, *, notify: bool
    ) -> None:
        """Tell the parent, if it lives, how a turn of its child ended; it records that once."""
        parent = None if opened.parent is None else self._live(opened.parent)
        if parent is not None:
            try:
                parent.tell(ChildDone(child_id, opened.path, status, text, turn, notify))
            except CallboardError:
                return  # it is ending; the child's own log tells it when it is opened again

    def crashed(self, child: Session) -> None:
        """This child's actor is gone for good: that is a failure at its parent, never silence."""
        opened = child.log[OPENED]
        if opened is not None and opened.parent is not None:
            self.settle(opened.root, child.id)
            known = self._known(opened.parent, child.id)
            turn = 1 if known is None else known.turn + 1
            self.report(opened, child.id, "failed", "the agent crashed", turn, notify=self._wake)

    def lost(self, parent: Session, known: Child) -> None:
        """The log of this child was never written: it ended before it began."""
        parent.tell(ChildDone(known.id, known.path, "failed", "the agent was lost before it began", 1, wake=False))

    def _known(self, parent_id: str, child_id: str) -> Child | None:
        parent = self._live(parent_id)
        children = () if parent is None else parent.log[CHILDREN]
        return next((child for child in children if child.id == child_id), None)

    def interrupt_children(self, parent: Session) -> None:
        """A parent is being aborted: its running children are too, each with a window of its own."""
        if not self._cascade:
            return
        for known in parent.log[CHILDREN]:
            child = self._live(known.id)
            if child is not None:
                child.tell(Interrupt(cause="parent"))


def child_status(ended: TurnEnded) -> tuple[ChildStatus, str]:
    """How a child's turn reads at its parent: status, and its last words or its error."""
    if ended.reason in ("aborted", "interrupted"):
        return "interrupted", ended.last_message or ""
    if ended.error is not None:
        return "failed", ended.error
    return "completed", ended.last_message or ""

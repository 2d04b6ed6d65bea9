"""Nodes: the supervision tree of a runtime as plain data, made in slices, so that 10,000 sessions stall no loop."""

from collections.abc import Generator
from typing import Any

import attrs
import msgspec

from callboard.plugins.mcp import ServerRecord
from callboard.runtime.children import Child
from callboard.runtime.place import Place, SessionRecord
from callboard.runtime.supervisor import Supervisor

SLICE_MAX = 200  # children that are looked at in one piece
SHOWN_MAX = 200  # children of one supervisor that are shown; of the others it says how many there are
NAMES_MAX = 100
DEPTH_MAX = 8
RESTING = "idle"


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """One child and what stands below it; `more` counts the children that are not shown: idle sessions, others."""

    id: str
    kind: str = "actor"
    restart: str = ""
    strategy: str = ""
    restarts: int = 0
    alive: bool = True
    phase: str = ""
    path: str = ""
    mailbox: int = 0
    queued: int = 0
    aborting_s: float | None = None
    left: tuple[str, ...] = ()
    children: "tuple[Node, ...]" = ()
    more: dict[str, int] = {}


class Shown(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a program shows of one runtime: who it is, how it is, and its tree."""

    pid: int
    program: str
    up_s: float
    health: dict[str, Any]
    sessions: dict[str, int]
    tree: Node
    abandoned: tuple[str, ...] = ()
    parked: tuple[str, ...] = ()


def tree_of(root: Supervisor) -> Generator[None, None, Node]:
    """The tree below a supervisor; a `yield` after each slice is the moment to let others run."""
    record = Node(root.id, "supervisor", alive=root.is_up)
    return (yield from _below(root, record, 1))


def _below(supervisor: Supervisor, node: Node, depth: int) -> Generator[None, None, Node]:
    """The node with its children: those that do something are shown first, all in start order."""
    busy: dict[int, Node] = {}
    quiet: dict[int, Node] = {}
    more: dict[str, int] = {}
    for number, child in enumerate(supervisor.books()):
        if number and number % SLICE_MAX == 0:
            yield
        rests, below = _rests(child), child.spec.below
        kept = quiet if rests else busy
        if len(kept) >= SHOWN_MAX:
            _count(more, RESTING if rests else child.spec.kind)
            continue
        seen = _node(child)
        if isinstance(below, Supervisor) and depth < DEPTH_MAX:
            seen = yield from _below(below, seen, depth + 1)
        kept[number] = seen
    for number in list(quiet)[max(0, SHOWN_MAX - len(busy)) :]:
        del quiet[number]
        _count(more, RESTING)
    shown = tuple(one for _, one in sorted({**busy, **quiet}.items()))
    left = supervisor.left()[:NAMES_MAX]
    return msgspec.structs.replace(node, strategy=supervisor.strategy, left=left, children=shown, more=more)


def _rests(child: Child) -> bool:
    """Whether there is nothing to say of it: a session that waits for its user."""
    spec = child.spec
    return isinstance(spec, Place) and spec.rests and child.phase == "alive" and not child.restarts


def _node(child: Child) -> Node:
    spec = child.spec
    about = spec.about() if spec.about is not None and spec.below is None else None
    fields = attrs.asdict(about) if isinstance(about, SessionRecord) else {}
    if isinstance(about, ServerRecord):
        fields = {"phase": about.phase}
    return Node(spec.id, spec.kind, spec.restart, restarts=child.restarts, alive=child.phase == "alive", **fields)


def _count(more: dict[str, int], name: str) -> None:
    more[name] = more.get(name, 0) + 1

"""What a log says of the agents its session started, and how such an agent stands: one fold, one decision."""

from typing import Any, Literal, TypeAlias

from msgspec.structs import replace

from callboard.actors.events import SessionForked, TurnStarted, Usage, Value
from callboard.actors.facts import ChildClosed, ChildEnded, ChildReleased, ChildSpawned, ChildStatus
from callboard.actors.fold import Index, Projection, table

SILENT = "It gave no answer: ask it again, or do that part yourself."

TASK_CHARS = 200
TEXT_CHARS = 4_000
OLD_TEXT_CHARS = 200
RECENT_MAX = 64
"""How much is known of each agent, whatever their number: what the list of them shows at most, and 64 of them fill that
with 1,000 characters each. The agent's own log has all of it."""

Status: TypeAlias = Literal[
    "pending", "running", "waiting", "idle", "interrupted", "completed", "failed", "stopped", "not_found"
]

WORKING: frozenset[str] = frozenset({"pending", "running", "waiting"})
"""Of an agent that has more to say by itself."""

UNSETTLED: frozenset[str] = frozenset({"pending", "running"})
"""On a parent's log: no turn of the agent has ended."""


class Child(Value, frozen=True, omit_defaults=False):
    """A subagent as its parent knows it: the beginning of its `task`, and `text`, its last message or its error.

    The text is whole until the next turn of the parent begins, and then only its beginning, less of older agents.

    `call` is the call of turn `called` that waits for its first turn; empty once nobody does. A `detached` one outlives
    an interrupt of its parent, a `closed` one was ended for good. `used` is what it used, with all below it.
    """

    id: str
    path: str
    task: str
    status: ChildStatus = "running"
    text: str = ""
    turn: int = 0
    mail: bool = True
    call: str = ""
    called: int = 0
    detached: bool = False
    closed: bool = False
    role: str = ""
    used: Usage = Usage()


Children: TypeAlias = tuple[Child, ...]


class _Roster(tuple[Child, ...]):  # noqa: SLOT001 - a tuple of any length has none
    """The agents in the order of their start, with the place of each by its id: none of thousands is looked for."""

    places: Index[int]

    @classmethod
    def of(cls, children: Children, places: Index[int]) -> "_Roster":
        """These agents, standing at these places."""
        roster = cls(children)
        roster.places = places
        return roster


def _roster(children: Children) -> _Roster:
    if isinstance(children, _Roster):
        return children
    places = Index[int]()
    for place, child in enumerate(children):
        places = places.plus(child.id, place)
    return _Roster.of(children, places)


def child_of(children: Children, id_: str) -> Child | None:
    """The agent of that id among those that a session started."""
    roster = _roster(children)
    place = roster.places.get(id_)
    return None if place is None else roster[place]


def with_below(own: Usage, children: Children) -> Usage:
    """What a session used, with all below it as far as their ends were told."""
    for child in children:
        own = own.plus(child.used)
    return own


def _spawned(state: Children, event: ChildSpawned) -> Children:
    child = Child(
        event.child,
        event.path,
        event.task[:TASK_CHARS],
        mail=event.mail,
        call=event.call,
        called=event.turn,
        detached=event.detached,
        role=event.role,
    )
    return _Roster.of((*state, child), _roster(state).places.plus(event.child, len(state)))


def _changed(state: Children, id_: str, **news: Any) -> Children:
    places = _roster(state).places
    place = places.get(id_)
    if place is None:
        return state
    return _Roster.of((*state[:place], replace(state[place], **news), *state[place + 1 :]), places)


def _ended(state: Children, event: ChildEnded) -> Children:
    """The first end that was told of a turn stands: nothing that is said of the same turn later takes its place."""
    known = child_of(state, event.child)
    if known is None or event.turn <= known.turn:
        return state
    used = event.used if event.used.total >= known.used.total else known.used
    return _changed(state, event.child, status=event.status, text=event.text, turn=event.turn, call="", used=used)


def _released(state: Children, event: ChildReleased) -> Children:
    return _changed(state, event.child, call="")


def _closed(state: Children, event: ChildClosed) -> Children:
    return _changed(state, event.child, closed=True)


def _text_chars(place: int, count: int) -> int:
    return TEXT_CHARS if place >= count - RECENT_MAX else OLD_TEXT_CHARS


def _shortened(state: Children, _: TurnStarted) -> Children:
    """The calls that waited for these texts have read them, or they went by mail."""
    count = len(state)
    if all(len(one.text) <= _text_chars(place, count) for place, one in enumerate(state)):
        return state
    shorter = (replace(one, text=one.text[: _text_chars(place, count)]) for place, one in enumerate(state))
    return _Roster.of(tuple(shorter), _roster(state).places)


CHILDREN: Projection[Children] = table(
    "children",
    (),
    {
        ChildSpawned: _spawned,
        ChildEnded: _ended,
        ChildReleased: _released,
        ChildClosed: _closed,
        TurnStarted: _shortened,
        SessionForked: lambda _, event: (),
    },
    version=2,
    state=Children,
)


def news_of(path: str, status: str, text: str) -> str:
    """How the end of a subagent's turn reads, as mail and as the answer of a call that waited for it."""
    words = {"completed": "finished", "failed": "failed", "interrupted": "was interrupted"}
    head = f"Agent {path} {words.get(status, 'ended')}."
    if not text and status == "completed":
        return f"{head} {SILENT}"
    return f"{head}\n{text}" if text else head


def status_of(known: Child, *, live: bool, turn: int, works: bool, asks: bool, queued: bool, below: bool) -> Status:
    """How an agent stands, from what its parent `known`s and from its own log while that is `live` in memory.

    `turn` is the number of its newest turn, which `works` until its end is durable, `asks` while it waits for the user;
    `queued`: input waits that starts a turn; `below`: agents of its own work. An end that its parent has not heard of
    is not one yet, and one that it has heard of stays what it was.
    """
    if known.status in UNSETTLED and known.closed and not live:
        return "stopped"
    if not live:
        return known.status
    if works:
        return "waiting" if asks else "running"
    if turn > known.turn:
        return "running"
    if queued or known.turn == 0:
        return "pending"
    return "waiting" if below else known.status

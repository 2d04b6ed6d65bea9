"""goalbook: what a log says of its goal: the fold GOAL, and which change may follow which."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from callboard.actors.claim import USERS
from callboard.actors.events import (
    AbortRequested,
    CellCalled,
    Compacted,
    ControlCallEnded,
    Event,
    HookFailed,
    HookWarned,
    MessageEdited,
    MessageQueued,
    MessagesClaimed,
    MessageWithdrawn,
    ModelFailed,
    ModelSaid,
    NoteAdded,
    QueueParked,
    SessionForked,
    StepEnded,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    Value,
    VerbAnswered,
)
from callboard.actors.facts import Goal, GoalChanged, GoalOperation, GoalPhase
from callboard.actors.fold import Projection

OUT_OF_DATE = "this round of the goal is out of date: nothing was asked of the model."
USER_FIRST = "the user spoke first: the round of the goal comes after that."
PLAN_FIRST = "Plan mode is on: the round of the goal waits until it ends."
OWN_REFUSALS = frozenset({OUT_OF_DATE, USER_FIRST, PLAN_FIRST})  # of rounds, by this plugin; any other is a hook's

SOURCE = "goal"
READS, CHANGES = "get_goal", "update_goal"  # a call that moves nothing; the one that completes
PAUSING = ("interrupted", "replaced", "parent")  # causes that stop the goal with its turn

ALL: tuple[GoalPhase, ...] = ("active", "paused", "blocked", "complete")
FROM: Mapping[GoalOperation, tuple[GoalPhase, ...]] = MappingProxyType(
    {
        "edit": ALL,
        "pause": ("active",),
        "resume": ("active", "paused", "blocked"),
        "complete": ("active", "paused", "blocked"),
        "block": ("active",),
        "clear": ALL,
    }
)
"""In which phases a goal can be changed so; `create` needs that there is none, or a complete one."""

TO: Mapping[GoalOperation, GoalPhase] = MappingProxyType(
    {"create": "active", "pause": "paused", "resume": "active", "complete": "complete", "block": "blocked"}
)
"""The phase after it; `edit` and `clear` keep it."""


class InTurn(Value, frozen=True, omit_defaults=False):
    """What counts of the open turn.

    `human`: it took something the user said. `offered`: it was started for a round. `claimed`: the id of the round it
    took, `entered` if its text goes to the model. `counts`: that round began, `number` says which it is where its text
    is what the model reads. `moved`: it did something.
    `report`: the goal has ended in it, and its model has not been told what is left to do. `completing`: open calls
    that would complete the goal.
    """

    human: bool = False
    offered: bool = False
    claimed: str = ""
    entered: bool = False
    counts: bool = False
    number: int = 0
    moved: bool = False
    report: bool = False
    completing: tuple[str, ...] = ()


class GoalBook(Value, frozen=True, omit_defaults=False):
    """The goal of a session and how far it is; `corrupt` says why nothing on its log counts any more.

    `rounds`, `tokens` and `spent_ms` are of its rounds since it was created. `stops` grows with each event after which
    nothing goes on by itself: being armed is knowing the newest count. `stopped`: its turn was stopped, so it is to be
    paused. `quiet`: rounds on end that moved nothing. `offers`: how often the next round was queued, `tries` how
    often on end, and `refused`: a hook let it not begin. `waiting` are ids and sources of queued messages.
    """

    goal: Goal | None = None
    rounds: int = 0
    tokens: int = 0
    spent_ms: int = 0
    created_ms: int = 0
    updated_ms: int = 0
    made: int = 0  # goals that were ever created: the number of the newest
    revision: int = 0  # of the newest change, also of one that cleared
    stops: int = 0
    stopped: bool = False
    quiet: int = 0
    offers: int = 0
    tries: int = 0
    refused: bool = False
    corrupt: str | None = None
    waiting: tuple[tuple[str, str], ...] = ()
    turn: InTurn = InTurn()

    def spent_s(self, now_ms: int, started_ms: int) -> float:
        """Seconds of its rounds, with those of the turn that runs since `started_ms` when it is one."""
        running_ms = max(0, now_ms - started_ms) if self.turn.counts else 0
        return (self.spent_ms + running_ms) / 1000


_ZERO, _NO_TURN = GoalBook(), InTurn()


def id_of(number: int) -> str:
    """The id of a session's goal; they are counted and never used again."""
    return f"goal-{number}"


def round_id(goal: Goal, number: int, offer: int = 1) -> str:
    """The id of the message that is a round; offered again it has another, or it would be dropped as a repeat."""
    again = "" if offer == 1 else f":{offer}"
    return f"goal:{goal.id}:{goal.revision}:{number}{again}"


def is_round(id_: str, goal: Goal, number: int) -> bool:
    """Whether a message of this id is round `number` of the goal as it is now."""
    own = round_id(goal, number)
    return id_ == own or (id_.startswith(f"{own}:") and id_[len(own) + 1 :].isdecimal())


# -- which change may follow which -------------------------------------------------------------------------------------


def after(before: Goal, operation: GoalOperation, reason: str | None = None) -> Goal:
    """The goal after an operation that says nothing else; an edit changes more."""
    kept = operation in ("edit", "clear")
    return replace(
        before,
        revision=before.revision + 1,
        phase=before.phase if kept else TO[operation],
        blocked_reason=before.blocked_reason if kept else reason,
    )


def flaw_of(book: GoalBook, event: GoalChanged) -> str | None:
    """Why this change cannot follow, None when it can."""
    operation, goal, before = event.operation, event.goal, book.goal
    if operation == "create":
        if before is not None and before.phase != "complete":
            return f"{goal.id!r:.80} is created while {before.id} is {before.phase}"
        expected = replace(goal, id=id_of(book.made + 1), revision=1, phase="active", blocked_reason=None)
    elif before is None:
        return f"{operation} of {goal.id!r:.80} without a goal"
    elif before.phase not in FROM[operation]:
        return f"{operation} of {before.id} while it is {before.phase}"
    elif operation == "resume" and book.rounds >= before.rounds_max:
        return f"resume of {before.id} after all of its {before.rounds_max} rounds"
    elif operation == "edit" and goal.rounds_max < book.rounds:
        return f"edit of {before.id} to {goal.rounds_max} rounds after {book.rounds}"
    elif operation == "edit":
        expected = replace(goal, **{name: getattr(after(before, "edit"), name) for name in UNEDITED})
    else:
        expected = after(before, operation, goal.blocked_reason if operation == "block" else None)
    if goal != expected:
        return f"{operation} to revision {goal.revision} of {goal.id!r:.80} says what it cannot say"
    if operation == "block" and not (goal.blocked_reason or "").strip():
        return f"block of {goal.id} without a reason"
    return None if sound(goal) else f"{operation} of {goal.id} with values that no goal has"


UNEDITED = ("id", "revision", "phase", "blocked_reason")


def sound(goal: Goal) -> bool:
    """Whether its objective says something and its limits are above 0."""
    limits = (goal.rounds_max, *(one for one in (goal.token_budget, goal.seconds_budget) if one is not None))
    return bool(goal.objective.strip()) and all(0 < one < float("inf") for one in limits)


# -- the fold ----------------------------------------------------------------------------------------------------------


def _changed(book: GoalBook, event: GoalChanged) -> GoalBook:
    goal = event.goal
    if book.corrupt is not None or (goal.id == id_of(book.made) and goal.revision == book.revision):
        return book  # of two changes to one revision the first counts: both were decided before either was written
    flaw = flaw_of(book, event)
    if flaw is not None:
        return replace(book, corrupt=flaw, stops=book.stops + 1)
    operation, at_ms = event.operation, max(event.at_ms, book.updated_ms)
    if operation == "create":
        fresh = GoalBook(goal, created_ms=at_ms, updated_ms=at_ms, made=book.made + 1, revision=1, stops=book.stops)
        turn = replace(book.turn, counts=False, number=0, report=False)
        return replace(fresh, waiting=book.waiting, turn=turn)
    kept = None if operation == "clear" else goal
    changed = replace(book, goal=kept, revision=goal.revision, updated_ms=at_ms, offers=0, tries=0, quiet=0)
    if operation == "edit":
        return changed
    ends = operation in ("complete", "block") and book.turn.counts
    turn = replace(book.turn, report=True) if ends else book.turn
    stops = book.stops + (operation != "resume")
    return replace(changed, stops=stops, stopped=False, refused=False, turn=turn)


def _queued(book: GoalBook, event: MessageQueued) -> GoalBook:
    source = event.source
    if source not in USERS and source != SOURCE:
        return book
    book = replace(book, waiting=(*book.waiting, (event.id, source)))
    if source == SOURCE:
        own = book.goal is not None and is_round(event.id, book.goal, book.rounds + 1)
        return replace(book, offers=book.offers + 1, tries=book.tries + 1) if own else book
    return _moved(book)


def _withdrawn(book: GoalBook, event: MessageWithdrawn) -> GoalBook:
    left = tuple(one for one in book.waiting if one[0] != event.id)
    return book if len(left) == len(book.waiting) else replace(book, waiting=left)


def _claimed(book: GoalBook, event: MessagesClaimed) -> GoalBook:
    ids = frozenset(event.ids)
    taken = {id_: source for id_, source in book.waiting if id_ in ids}
    entering = taken if event.messages is None else {one.id: one.source for one in event.messages}
    turn, goal = book.turn, book.goal
    human = turn.human or any(source in USERS for source in entering.values())
    rounds = [id_ for id_, source in taken.items() if source == SOURCE]
    if not rounds and human == turn.human:
        return book if not taken else replace(book, waiting=_left(book, ids))
    number = book.rounds + 1
    claimed = next((id_ for id_ in rounds if goal is not None and is_round(id_, goal, number)), turn.claimed)
    entered = turn.entered or (claimed != "" and claimed in entering)
    turn = replace(turn, human=human, offered=turn.offered or bool(rounds), claimed=claimed, entered=entered)
    return replace(book, waiting=_left(book, ids), turn=turn)


def _left(book: GoalBook, ids: frozenset[str]) -> tuple[tuple[str, str], ...]:
    return tuple(one for one in book.waiting if one[0] not in ids)


def _turn_started(book: GoalBook, event: TurnStarted) -> GoalBook:
    """A turn that begins by itself while a round waits was started for it; any other forgives what was refused."""
    offered = event.start == "automatic" and any(source == SOURCE for _, source in book.waiting)
    if offered:
        return replace(book, turn=InTurn(offered=True))
    if not book.tries and book.turn == _NO_TURN:
        return book
    return replace(book, turn=_NO_TURN, tries=0)


def _step_started(book: GoalBook, _: StepStarted) -> GoalBook:
    turn, goal = book.turn, book.goal
    if turn.report:
        turn = replace(turn, report=False)
    if turn.claimed and not turn.counts and goal is not None and goal.phase == "active":
        number = book.rounds + 1
        if is_round(turn.claimed, goal, number) and number <= goal.rounds_max:
            turn = replace(turn, counts=True, number=number if turn.entered else 0)
            return replace(book, turn=turn, rounds=number, offers=0, tries=0)
    return book if turn is book.turn else replace(book, turn=turn)


def _said(book: GoalBook, event: ModelSaid | Compacted) -> GoalBook:
    tokens = event.usage.total if book.turn.counts else 0
    return replace(book, tokens=book.tokens + tokens) if tokens else book


def _called(book: GoalBook, event: ToolCalled) -> GoalBook:
    if event.name == READS:
        return book
    book = _moved(book)
    if event.name == CHANGES and book.goal is not None and completes(event.arguments):
        return replace(book, turn=replace(book.turn, completing=(*book.turn.completing, event.call)))
    return book


def completes(arguments: Any) -> bool:
    """Whether a call of update_goal means to complete; also one that cannot be read, because it may have."""
    try:
        said = msgspec.json.decode(arguments) if isinstance(arguments, str) else arguments
    except (msgspec.MsgspecError, RecursionError, UnicodeError, ValueError):
        return True
    action = said.get("action") if isinstance(said, dict) else None
    return action not in ("edit", "pause", "resume", "blocked")


def _returned(book: GoalBook, event: ToolReturned) -> GoalBook:
    """A goal that its model could not complete would go on for ever: after such a call nothing goes on by itself."""
    if event.call not in book.turn.completing:
        return book
    left = tuple(call for call in book.turn.completing if call != event.call)
    stops = book.stops + (event.receipt != "completed")
    return replace(book, stops=stops, turn=replace(book.turn, completing=left))


def _moved(book: GoalBook) -> GoalBook:
    turn = book.turn
    return replace(book, turn=replace(turn, moved=True)) if turn.counts and not turn.moved else book


def _ended(book: GoalBook, event: TurnEnded) -> GoalBook:
    """The goal's time, whether anything moved, and whether nothing may go on by itself after this."""
    turn, goal = book.turn, book.goal
    if goal is None:
        return replace(book, turn=_NO_TURN) if book.made or book.waiting or book.corrupt else _ZERO
    blocked = event.reason == "blocked"
    stops = event.reason in ("aborted", "interrupted") or event.truncated or (event.error is not None and not blocked)
    if not stops and turn == _NO_TURN:
        return book
    if turn.counts:
        spent_ms = max(0, event.ended_ms - event.started_ms)
        book = replace(book, spent_ms=book.spent_ms + spent_ms, quiet=0 if turn.moved else book.quiet + 1)
    if turn.human:
        book = replace(book, quiet=0)
    return replace(
        book,
        stops=book.stops + stops,
        stopped=book.stopped or (turn.offered and event.cause in PAUSING and goal.phase == "active"),
        refused=book.refused or (blocked and bool(turn.claimed) and event.error not in OWN_REFUSALS),
        turn=_NO_TURN,
    )


def _forked(book: GoalBook, _: SessionForked) -> GoalBook:
    return replace(book, waiting=(), turn=_NO_TURN, offers=0, tries=0, stopped=False, refused=False)


CASES: Mapping[type[Event], Callable[[GoalBook, Any], GoalBook]] = MappingProxyType(
    {
        GoalChanged: _changed,
        MessageQueued: _queued,
        MessageWithdrawn: _withdrawn,
        MessagesClaimed: _claimed,
        TurnStarted: _turn_started,
        StepStarted: _step_started,
        ModelSaid: _said,
        Compacted: _said,
        ToolCalled: _called,
        ToolReturned: _returned,
        TurnEnded: _ended,
        SessionForked: _forked,
    }
)
BOOKKEEPING = frozenset(
    {
        *(StepEnded, AbortRequested, ModelFailed, NoteAdded, HookFailed, HookWarned),
        *(QueueParked, MessageEdited, VerbAnswered, ControlCallEnded, CellCalled),
    }
)
"""With what `CASES` has, all that a turn writes by itself; any other event in a round is something that it moved."""


def _apply(book: GoalBook, event: Event) -> GoalBook:
    case = CASES.get(type(event))
    if case is not None:
        return case(book, event)
    return book if type(event) in BOOKKEEPING else _moved(book)


GOAL: Projection[GoalBook] = Projection("goal", _ZERO, _apply)
"""The goal of the session; reads every event, because a round that changes no fold has done nothing."""

"""handovers: approved plans on their way to whoever carries them out: this session, or a new one; each exactly once."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from callboard.actors.books import TURN
from callboard.actors.events import Event, MessageQueued, MessagesClaimed, QueueParked, SessionForked, TurnEnded, Value
from callboard.actors.facts import (
    Execution,
    PlanApproved,
    PlanHandedOver,
    PlanModeRequested,
    PlanModeSet,
    PlanProposed,
)
from callboard.actors.fold import Projection, table
from callboard.actors.messages import Accepted, Refused, Told
from callboard.actors.mode import MODE, Mode
from callboard.actors.plugin import Did, View
from callboard.actors.seen import SEEN

HAND_OVER = """\
The user approved the plan below and Plan mode is over. Carry it out now, all of it, and check the result as it says.

{plan}\
"""
HAND_OVER_FRESH = """\
The user approved the plan below, which was made in another session. Nothing else of that session is known here: where \
the plan leaves something open, look for yourself. Carry it out now, all of it, and check the result as it says.

{plan}\
"""
IMPLEMENT = "Implement the plan."
HANDED_OVER = "Session {session} carries the plan out."
NO_PLAN = "no plan {id!r:.80} was proposed in this session: {known}"
NO_PLANS = "no plan was proposed in this session"
NO_ARGUMENT = "it takes a plan's id and whether to begin in a new session, got {given!r:.80}"
NO_LINE = "it takes the id of a plan or none, and 'clear' for a new session, got {given!r:.80}"
CLEAR = "clear"
PROPOSALS_MAX = 8  # that can still be taken up; older ones are history


class Proposal(Value, frozen=True, omit_defaults=False):
    """A plan that the model wrote in a block of its own, and how it is carried out (None: nobody decided)."""

    id: str
    text: str
    execution: Execution | None = None


Proposed: TypeAlias = tuple[Proposal, ...]


def _proposed(state: Proposed, event: PlanProposed) -> Proposed:
    others = tuple(one for one in state if one.id != event.id)
    return (*others, Proposal(event.id, event.text))[-PROPOSALS_MAX:]


def _taken_up(state: Proposed, event: PlanApproved) -> Proposed:
    if all(one.id != event.id for one in state):
        return state
    return tuple(Proposal(one.id, one.text, event.execution) if one.id == event.id else one for one in state)


def _forked(state: Proposed, _: SessionForked) -> Proposed:
    """The plans can be taken up here as well: what became of them elsewhere is another session's."""
    return tuple(Proposal(one.id, one.text) for one in state)


PROPOSED: Projection[Proposed] = table(
    "proposed",
    (),
    {PlanProposed: _proposed, PlanApproved: _taken_up, SessionForked: _forked},
    state=Proposed,
)
"""The last plans that were proposed, oldest first."""


class HandOver(Value, frozen=True, omit_defaults=False):
    """An approved plan that waits for its hand-over.

    `state`: a new session is to be opened (`due`), could not be (`refused`), or the plan waits for a compaction that is
    queued (`queued`), runs (`compacting`) or has failed (`failed`).
    """

    id: str
    plan: str
    state: Literal["due", "refused", "queued", "compacting", "failed"]


HandOvers: TypeAlias = tuple[HandOver, ...]


def message_id(plan: str) -> str:
    """The id of the one message that carries out a plan, whichever session it is in."""
    return f"handover:{plan}"


def compact_id(plan: str) -> str:
    """The id of the message that asks for a compaction before that."""
    return f"handover:{plan}:compact"


def _approved(state: HandOvers, event: PlanApproved) -> HandOvers:
    if event.execution == "keep" or any(one.id == event.id for one in state):
        return state
    first = HandOver(event.id, event.plan, "due") if event.execution == "clear" else HandOver(event.id, "", "queued")
    return (*state, first)


def _handed_over(state: HandOvers, event: PlanHandedOver) -> HandOvers:
    left = tuple(one for one in state if one.id != event.id)
    if event.session:
        return left
    return (*left, *(HandOver(one.id, one.plan, "refused") for one in state if one.id == event.id))


def _kept(state: HandOvers, event: MessageQueued) -> HandOvers:
    """A plan that could not be handed over is this session's own again."""
    return tuple(one for one in state if one.state != "refused" or message_id(one.id) != event.id) if state else state


def _compacts(state: HandOvers, event: MessagesClaimed) -> HandOvers:
    if not state:
        return state
    ids = frozenset(event.ids)
    return tuple(
        HandOver(one.id, one.plan, "compacting") if compact_id(one.id) in ids else one
        for one in state
        if one.state == "due" or message_id(one.id) not in ids
    )


def _compacted(state: HandOvers, event: TurnEnded) -> HandOvers:
    """A compaction that failed leaves the plan to be carried out without it; one that was cut off, to the user."""
    failed = event.reason == "completed" and event.error is not None
    return tuple(
        HandOver(one.id, one.plan, "failed") if one.state == "compacting" else one
        for one in state
        if failed or one.state != "compacting"
    )


def _released(state: HandOvers, event: QueueParked) -> HandOvers:
    return state if event.parked else tuple(one for one in state if one.state != "failed")


HANDOVERS: Projection[HandOvers] = table(
    "handovers",
    (),
    {
        PlanApproved: _approved,
        PlanHandedOver: _handed_over,
        MessageQueued: _kept,
        MessagesClaimed: _compacts,
        TurnEnded: _compacted,
        QueueParked: _released,
        SessionForked: lambda _, event: (),
    },
    state=HandOvers,
)


def next_ms(state: HandOvers) -> int | None:
    """At once while something is to be done about a hand-over; it is done when no turn is open."""
    return 0 if any(one.state in ("due", "refused", "failed") for one in state) else None


def hand_over(view: View) -> Sequence[Event]:
    """Between turns: have plans handed over, and keep those for which there was no other session."""
    events: list[Event] = []
    for one in view[HANDOVERS]:
        match one.state:
            case "due":
                view.hand_over(one.id, HAND_OVER_FRESH.format(plan=one.plan))
            case "refused":
                events.append(MessageQueued(message_id(one.id), HAND_OVER.format(plan=one.plan), "plan"))
            case "failed":
                events.append(QueueParked(parked=False))
    mode = view[MODE]
    if mode.active and mode.pending is False and any(one.state == "due" for one in view[HANDOVERS]):
        events.append(PlanModeSet(active=False))  # no step of this session need come
    return events


def session_of(source: str, plan: str) -> str:
    """The id of the session that carries out a plan of session `source`: always the same."""
    return f"plan-{hashlib.sha256(f'{source}/{plan}'.encode()).hexdigest()[:24]}"


# -- deciding


def leave(mode: Mode, *, turn_open: bool, narrate: bool) -> tuple[Event, ...]:
    """What ends Plan mode: at once between turns, else with the next step."""
    if turn_open:
        chosen = mode.active or mode.pending is not None
        return (PlanModeRequested(active=False, narrate=narrate),) if chosen else ()
    if not mode.active:
        return () if mode.pending is None else (PlanModeRequested(None),)
    silent = () if narrate else (PlanModeRequested(active=False, narrate=False),)
    return (*silent, PlanModeSet(active=False))


def carry_out(id_: str, plan: str, execution: Execution) -> tuple[Event, ...]:
    """What carries out an approved plan, exactly once: its message, if need be behind a compaction.

    Another session's is not queued here.
    """
    approved = PlanApproved(id_, execution, plan)
    if execution == "clear":
        return (approved,)
    message = MessageQueued(message_id(id_), HAND_OVER.format(plan=plan), "plan")
    if execution == "compact":
        return (approved, MessageQueued(compact_id(id_), "", "plan", task="compact"), message)
    return (approved, message)


def wanted(given: Any) -> tuple[str | None, bool] | Refused:
    """Which plan is meant, None: the last, and whether it is for a new session; of `[PLAN] [clear]` or a mapping."""
    if isinstance(given, str):
        words = given.split()
        clear = words[-1:] == [CLEAR]
        ids = words[:-1] if clear else words
        return (
            (ids[0] if ids else None, clear)
            if len(ids) <= 1
            else Refused("invalid_command", NO_LINE.format(given=given))
        )
    wrong = Refused("invalid_command", NO_ARGUMENT.format(given=given))
    if not isinstance(given, Mapping) or given.keys() - {"plan", "clear"}:
        return wrong
    plan, clear = given.get("plan"), given.get("clear", False)
    return (plan, clear) if isinstance(plan, str) and isinstance(clear, bool) else wrong


def _found(proposed: Proposed, plan: str | None) -> Proposal | Refused:
    if plan is None:
        return proposed[-1] if proposed else Refused("not_pending", NO_PLANS)
    found = next((one for one in proposed if one.id == plan), None)
    if found is not None:
        return found
    known = ", ".join(one.id for one in proposed)
    return Refused("not_pending", NO_PLAN.format(id=plan, known=f"there are {known}" if known else "there is none"))


def implement(view: View, given: Any) -> Did | Refused:
    """Carry out a plan that was proposed, here or in a new session; once, however often it is said.

    People give `[PLAN] [clear]`, where the last plan is meant without one, programs `{plan, clear}`.
    """
    meant = wanted(given)
    if isinstance(meant, Refused):
        return meant
    plan, clear = meant
    found = _found(view[PROPOSED], plan)
    if isinstance(found, Refused):
        return found
    handed = Told(HANDED_OVER.format(session=session_of(view.session, found.id)))
    if found.execution is not None:
        queued = view[SEEN].ids.get(message_id(found.id))
        return Did((), handed if found.execution == "clear" or queued is None else Accepted(queued[0]))
    left = leave(view[MODE], turn_open=view[TURN].open, narrate=True)
    if clear:
        return Did((PlanApproved(found.id, "clear", found.text), *left), handed)
    message = MessageQueued(message_id(found.id), IMPLEMENT)
    return Did((PlanApproved(found.id, "keep", found.text), *left, message))

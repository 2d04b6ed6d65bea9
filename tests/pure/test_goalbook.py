"""The goal on the log: which change may follow which, and what any log says of its goal."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from callboard.actors.events import (
    Event,
    MessageQueued,
    MessagesClaimed,
    ModelFailed,
    NoteAdded,
    QueueParked,
    SessionForked,
    StepEnded,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from callboard.actors.facts import (
    ChildSpawned,
    Goal,
    GoalChanged,
    GoalOperation,
    GoalPhase,
    PlanModeSet,
    PlanUpdated,
)
from callboard.actors.fold import replay
from callboard.plugins.goalbook import (
    FROM,
    GOAL,
    GoalBook,
    InTurn,
    after,
    round_id,
)

from .event_samples import EVENTS, events_of
from .goal_samples import CREATED, FIRST, PHASES, SAID, a_round, book, goal_of


@pytest.mark.parametrize("phase", get_args(GoalPhase))
@pytest.mark.parametrize("operation", get_args(GoalOperation))
def test_the_table_of_operations(operation, phase):
    """Each operation is taken in its phases, to the next revision; in any other the log is corrupt and says so."""
    state = book(*PHASES[phase])
    before = goal_of(state)
    if operation == "create":
        changed, allowed = replace(FIRST, id="goal-2"), phase == "complete"
    else:
        changed = after(before, operation, "why" if operation == "block" else None)
        allowed = phase in FROM[operation]
    then = GOAL.apply(state, GoalChanged(operation, changed, 2_000))
    assert (allowed, allowed) == (then.corrupt is None, then != state and then.goal != before)
    if allowed:
        assert (changed if operation != "clear" else None, changed.revision) == (then.goal, then.revision)
    else:
        assert (before, True) == (then.goal, operation in str(then.corrupt))


@pytest.mark.parametrize("operation", get_args(GoalOperation)[1:])
def test_nothing_but_a_create_comes_first(operation):
    """Without a goal every other operation is a contradiction."""
    reason = "why" if operation == "block" else None
    state = book(GoalChanged(operation, after(FIRST, operation, reason)))
    assert (None, f"{operation} of 'goal-1' without a goal") == (state.goal, state.corrupt)


WRONG: dict[str, tuple[tuple[GoalChanged, ...], GoalChanged]] = {
    "a gap in the revisions": ((CREATED,), GoalChanged("pause", replace(after(FIRST, "pause"), revision=3))),
    "an old revision": (PHASES["paused"], GoalChanged("edit", replace(FIRST, revision=1, phase="paused"))),
    "another id": ((CREATED,), GoalChanged("pause", replace(after(FIRST, "pause"), id="goal-2"))),
    "an id that was used": (PHASES["complete"], GoalChanged("create", replace(FIRST, revision=1))),
    "an id that is left out": ((), GoalChanged("create", replace(FIRST, id="goal-2"))),
    "a first revision above 1": ((), GoalChanged("create", replace(FIRST, revision=2))),
    "created paused": ((), GoalChanged("create", replace(FIRST, phase="paused"))),
    "created with a reason": ((), GoalChanged("create", replace(FIRST, blocked_reason="x"))),
    "paused with another objective": ((CREATED,), GoalChanged("pause", replace(after(FIRST, "pause"), objective="x"))),
    "an edit that pauses": ((CREATED,), GoalChanged("edit", replace(after(FIRST, "edit"), phase="paused"))),
    "blocked without a reason": ((CREATED,), GoalChanged("block", after(FIRST, "block", " "))),
    "completed with a reason": ((CREATED,), GoalChanged("complete", after(FIRST, "complete", "why"))),
    "an empty objective": ((CREATED,), GoalChanged("edit", replace(after(FIRST, "edit"), objective=" \n"))),
    "no rounds": ((), GoalChanged("create", replace(FIRST, rounds_max=0))),
    "a budget below 0": ((), GoalChanged("create", replace(FIRST, token_budget=-1))),
    "endless seconds": ((), GoalChanged("create", replace(FIRST, seconds_budget=float("inf")))),
    "a tombstone that pauses": ((CREATED,), GoalChanged("clear", replace(after(FIRST, "clear"), phase="paused"))),
}


@pytest.mark.parametrize(("before", "wrong"), WRONG.values(), ids=WRONG)
def test_a_contradiction_is_corrupt_and_stays_so(before, wrong):
    """What cannot follow is not taken; the goal stays as it was, for good, and nothing goes on by itself."""
    state = book(*before)
    then = GOAL.apply(state, wrong)
    assert (state.goal, True, state.stops + 1) == (then.goal, bool(then.corrupt), then.stops)
    assert then == replay(GOAL, (GoalChanged("clear", after(FIRST, "clear")), CREATED), then)


def test_of_two_changes_to_one_revision_the_first_counts():
    """Two that were decided before either was written: the second is void and nothing is corrupt."""
    paused, completed = after(FIRST, "pause"), after(FIRST, "complete")
    state = book(CREATED, GoalChanged("pause", paused))
    assert state is GOAL.apply(state, GoalChanged("complete", completed))
    cleared = book(CREATED, GoalChanged("clear", after(FIRST, "clear")))
    assert cleared is GOAL.apply(cleared, GoalChanged("pause", paused))
    created = book(CREATED)
    assert created is GOAL.apply(created, GoalChanged("create", replace(FIRST, objective="another")))


def test_a_resume_needs_rounds():
    """After its last round a goal cannot be resumed before it was edited."""
    one = replace(FIRST, rounds_max=1)
    blocked = GoalChanged("block", after(one, "block", "round_limit"))
    state = book(GoalChanged("create", one), *a_round(one, 1), blocked)
    assert "after all of its 1 rounds" in str(
        GOAL.apply(state, GoalChanged("resume", after(blocked.goal, "resume"))).corrupt
    )
    more = replace(after(blocked.goal, "edit"), rounds_max=2)
    then = replay(GOAL, (GoalChanged("edit", more), GoalChanged("resume", after(more, "resume"))), state)
    assert (None, "active", None) == (then.corrupt, goal_of(then).phase, goal_of(then).blocked_reason)


def test_times_never_go_back():
    """A change says its wall time; one before the last is as late as that."""
    state = book(CREATED, GoalChanged("pause", after(FIRST, "pause"), 500))
    assert (1_000, 1_000) == (state.created_ms, state.updated_ms)


# -- as any fold


def test_a_fork_has_the_goal_and_nothing_that_waits():
    """Goal, rounds and use come along; queued messages and what was offered stay in the source."""
    whole = book(
        CREATED, *a_round(FIRST, 1, SAID), MessageQueued("m", "x"), MessageQueued(round_id(FIRST, 2), "x", "goal")
    )
    forked = GOAL.apply(whole, SessionForked("s", 20))
    assert replace(whole, waiting=(), offers=0, tries=0, turn=InTurn()) == forked


def test_a_session_without_a_goal_keeps_nothing():
    """After each turn the fold is its zero again, so that it costs a session without a goal no memory."""
    turn = (MessageQueued("m", "x"), TurnStarted(1), MessagesClaimed(("m",)), StepStarted(1, 1), SAID, StepEnded(1, 1))
    assert GOAL.zero is book(*turn, TurnEnded(1, "completed"))


GOALS = st.builds(
    Goal,
    st.sampled_from(["goal-1", "goal-2", "x"]),
    st.integers(0, 4),
    st.sampled_from(["a", "b", " "]),
    st.sampled_from(get_args(GoalPhase)),
    st.integers(0, 3),
    st.sampled_from([None, "why"]),
)
CHANGES = st.builds(GoalChanged, st.sampled_from(get_args(GoalOperation)), GOALS, st.integers(0, 9))
ANY = st.one_of(CHANGES, *(events_of(kind) for kind in EVENTS))


def right_or_wrong(draw: st.DrawFn, state: GoalBook) -> Event:
    """An event that mostly may follow."""
    goal = state.goal
    if goal is None or not draw(st.integers(0, 5)):
        number = state.made + 1
        return draw(st.one_of(ANY, st.just(GoalChanged("create", replace(FIRST, id=f"goal-{number}", rounds_max=2)))))
    id_ = round_id(goal, state.rounds + 1, state.offers + 1)
    operation: Any = draw(st.sampled_from(get_args(GoalOperation)[1:]))
    return draw(
        st.sampled_from(
            [
                GoalChanged(operation, after(goal, operation, "why" if operation == "block" else None)),
                MessageQueued(id_, "x", "goal"),
                MessageQueued("m", "x"),
                TurnStarted(1, start="automatic"),
                MessagesClaimed((id_, "m")),
                MessagesClaimed(("m",)),
                StepStarted(1, 1),
                SAID,
                ToolCalled("c", "update_goal", "{"),
                ToolReturned("c", "failed", None, ""),
                TurnEnded(1, "completed"),
                TurnEnded(1, "aborted", "interrupted"),
                SessionForked("s", 3),
            ]
        )
    )


@st.composite
def stories(draw: st.DrawFn) -> list[Event]:
    """Events of which most may follow."""
    told: list[Event] = []
    state = GOAL.zero
    for _ in range(draw(st.integers(0, 25))):
        told.append(right_or_wrong(draw, state))
        state = GOAL.apply(state, told[-1])
    return told


@given(st.one_of(stories(), st.lists(ANY, max_size=20)))
def test_any_log_gives_a_goal_that_can_be_or_says_why_not(events):
    """Whatever is on the log: the goal is sound and in a known phase, or the fold names what contradicts itself."""
    state = GOAL.zero
    for event in events:
        before, state = state, GOAL.apply(state, event)
        goal = state.goal
        assert goal is None or (goal.objective.strip() and goal.phase in get_args(GoalPhase))
        assert goal is None or (goal.phase == "blocked") == (goal.blocked_reason is not None)
        assert goal is None or (goal.id, goal.revision) == (f"goal-{state.made}", state.revision)
        assert goal is None or 0 <= state.rounds <= goal.rounds_max
        assert (before.corrupt is None or before.corrupt == state.corrupt, state.stops >= 0) == (True, True)
        if before.corrupt is not None:
            assert before.goal == goal


@given(stories(), st.data())
def test_a_fold_of_a_prefix_goes_on(events, data):
    """Folding in two parts gives what folding at once does."""
    at = data.draw(st.integers(0, len(events)))
    assert book(*events) == replay(GOAL, events[at:], book(*events[:at]))


@given(stories(), events_of(NoteAdded) | events_of(QueueParked) | events_of(StepEnded) | events_of(ModelFailed))
def test_the_books_of_a_turn_leave_it_alone(events, foreign):
    """What a turn writes by itself gives the same object back."""
    state = book(*events)
    assert state is GOAL.apply(state, foreign)


@given(stories(), st.one_of(*(events_of(kind) for kind in (PlanUpdated, PlanModeSet, ChildSpawned))))
def test_other_folds_move_only_a_round(events, foreign):
    """An event of another plugin is noticed in a round, once; outside one the same object comes back."""
    state = book(*events)
    then = GOAL.apply(state, foreign)
    assert (then is state) == (not state.turn.counts or state.turn.moved)
    assert then is GOAL.apply(then, foreign)


def test_the_state_can_be_shown():
    """The fold is plain values all through."""
    shown = msgspec.to_builtins(book(CREATED, *a_round(FIRST, 1, SAID)))
    assert ("make it work", 1, 15) == (shown["goal"]["objective"], shown["rounds"], shown["tokens"])

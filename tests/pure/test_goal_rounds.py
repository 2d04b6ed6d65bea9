"""Rounds of a goal on the log: what is one, what it used, what moves a goal, and what ends going on by itself."""

import pytest
from msgspec.structs import replace

from callboard.actors.events import (
    Event,
    HookFailed,
    Message,
    MessageEdited,
    MessageQueued,
    MessagesClaimed,
    MessageWithdrawn,
    ModelFailed,
    NoteAdded,
    QueueParked,
    StepEnded,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from callboard.actors.facts import (
    ChildSpawned,
    GoalChanged,
    PlanModeSet,
    PlanUpdated,
    ReminderDeleted,
)
from callboard.actors.fold import replay
from callboard.plugins.goalbook import (
    GOAL,
    OUT_OF_DATE,
    OWN_REFUSALS,
    InTurn,
    after,
    completes,
    is_round,
    round_id,
)

from .goal_samples import CALLED, CREATED, FIRST, SAID, a_round, book


def test_a_round_is_counted_once_it_begins():
    """A round counts with its first step; its tokens and its time are the goal's, those of other turns are not."""
    other = (TurnStarted(1), StepStarted(1, 1), SAID, StepEnded(1, 1), TurnEnded(1, "completed", ended_ms=9_000))
    state = book(CREATED, *other, *a_round(FIRST, 1, SAID, turn=2), *a_round(FIRST, 2, SAID, SAID, turn=3))
    assert (2, 45, 5_000, 2, InTurn()) == (state.rounds, state.tokens, state.spent_ms, state.quiet, state.turn)
    inside = replay(GOAL, a_round(FIRST, 3)[:4], state)
    assert (True, 3) == (inside.turn.counts, inside.turn.number)
    assert 7.0 == inside.spent_s(4_000, 2_000)


def test_a_round_that_never_began_is_not_counted():
    """One that was refused, or cut before its first step, leaves the number for the next; which has another id."""
    queued, started, claimed, *_ = a_round(FIRST, 1)
    refused = (queued, started, claimed, TurnEnded(1, "blocked", error=OUT_OF_DATE))
    state = book(CREATED, *refused)
    assert (0, 1, False, ()) == (state.rounds, state.offers, state.refused, state.waiting)
    assert ("goal:goal-1:1:1", "goal:goal-1:1:1:2") == (round_id(FIRST, 1), round_id(FIRST, 1, 2))
    again = a_round(FIRST, 1, id=round_id(FIRST, 1, 2), turn=2)
    assert (1, 0) == (replay(GOAL, again, state).rounds, replay(GOAL, again, state).offers)
    users = replay(GOAL, (TurnStarted(2),), state)
    assert (1, 1, 1, 0) == (state.offers, state.tries, users.offers, users.tries)


FORGED = ("goal:goal-1:1:2", "goal:goal-2:1:1", "goal:goal-1:2:1", "goal:goal-1:1:0", "goal:goal-1:1:1:x", "goal:", "x")


@pytest.mark.parametrize("id", FORGED)
def test_any_other_message_is_no_round(id):
    """A message that names another goal, revision or round counts as nothing, though it says it is a round."""
    state = book(CREATED, *a_round(FIRST, 1, id=id, turn=1))
    assert (0, 0, 0, None, False) == (state.rounds, state.tokens, state.offers, state.corrupt, is_round(id, FIRST, 1))


def test_no_round_beyond_the_last():
    """Rounds are never more than the goal may have."""
    one = replace(FIRST, rounds_max=1)
    state = book(GoalChanged("create", one), *a_round(one, 1), *a_round(one, 2))
    assert 1 == state.rounds


def test_a_round_whose_text_was_taken_away_counts_but_gives_no_authority():
    """Where another plugin keeps the text from entering, the round is used up all the same."""
    queued, started, _, step, *_ = a_round(FIRST, 1)
    state = book(CREATED, queued, started, MessagesClaimed((round_id(FIRST, 1),), ()), step)
    assert (1, True, 0) == (state.rounds, state.turn.counts, state.turn.number)


def test_edits_keep_the_rounds_and_a_new_goal_has_none():
    """An edit and a resume leave what was used; what a goal has used is its own."""
    edited = replace(after(FIRST, "edit"), objective="more")
    state = book(CREATED, *a_round(FIRST, 1, SAID), GoalChanged("edit", edited))
    assert (1, 15, 2_500) == (state.rounds, state.tokens, state.spent_ms)
    second = replace(FIRST, id="goal-2")
    done = GoalChanged("complete", after(edited, "complete"))
    then = replay(GOAL, (done, GoalChanged("create", second, 9_000)), state)
    assert (0, 0, 0, 2, 9_000) == (then.rounds, then.tokens, then.spent_ms, then.made, then.created_ms)


MOVES: dict[str, tuple[Event, ...]] = {
    "a call": CALLED,
    "a plan": (PlanUpdated(None, ()),),
    "a subagent": (ChildSpawned("s.a", "/root/a", "work"),),
    "a mode": (PlanModeSet(active=True),),
    "a reminder": (ReminderDeleted("schedule-1"),),
    "what the user says": (MessageQueued("m", "and?"),),
}
RESTS: dict[str, tuple[Event, ...]] = {
    "nothing": (),
    "words": (SAID,),
    "reading the goal": (ToolCalled("c", "get_goal", {}), ToolReturned("c", "completed", None, "")),
    "errors of the model": (ModelFailed("no", retryable=True),),
    "notes and hooks": (NoteAdded("x"), HookFailed("h", "x"), MessageEdited("m", "x"), QueueParked(parked=False)),
}


@pytest.mark.parametrize(
    ("inside", "quiet"), [(e, 0) for e in MOVES.values()] + [(e, 3) for e in RESTS.values()], ids=[*MOVES, *RESTS]
)
def test_what_moves_a_goal(inside, quiet):
    """A call of any tool but get_goal moves it, and any event that is not the turn's own; words and notes do not."""
    rounds = (event for number in (1, 2, 3) for event in a_round(FIRST, number, *inside))
    assert quiet == book(CREATED, *rounds).quiet


def test_quiet_rounds_are_counted_on_end():
    """One that moves something, a change of the goal, or the user in between begins the count anew."""
    two = (CREATED, *a_round(FIRST, 1), *a_round(FIRST, 2))
    assert 2 == book(*two).quiet
    assert 0 == book(*two, *a_round(FIRST, 3, *CALLED)).quiet
    assert 0 == book(*two, GoalChanged("edit", replace(after(FIRST, "edit"), objective="x"))).quiet
    spoken = (MessageQueued("m", "hi"), TurnStarted(3), MessagesClaimed(("m",)), TurnEnded(3, "completed"))
    assert 0 == book(*two, *spoken).quiet


# -- the user, and what stops


@pytest.mark.parametrize(
    ("source", "human"), [("user", True), ("steer", True), ("agent:/root", False), ("schedule", False)]
)
def test_who_is_the_user(source, human):
    """Only what the user submitted or steered into the turn makes it the user's."""
    message = MessageQueued("m", "hi", source)
    taking = (message, TurnStarted(1), MessagesClaimed(("m",)))
    assert human == book(CREATED, *taking).turn.human
    rewritten = MessagesClaimed(("m",), (Message("m", "changed", source),))
    assert human == book(CREATED, message, TurnStarted(1), rewritten).turn.human
    dropped = (message, TurnStarted(1), MessagesClaimed(("m",), (Message("note", "x", "notice"),)))
    assert not book(CREATED, *dropped).turn.human
    assert not book(CREATED, *taking, TurnEnded(1, "completed"), TurnStarted(2)).turn.human


def test_what_is_withdrawn_is_never_taken():
    """The fold forgets a message that was taken back."""
    assert () == book(CREATED, MessageQueued("m", "x"), MessageWithdrawn("m"), MessageWithdrawn("n")).waiting


ENDS: dict[str, tuple[TurnEnded, bool, bool]] = {
    "completed": (TurnEnded(1, "completed"), False, False),
    "an error": (TurnEnded(1, "completed", error="the model failed"), True, False),
    "cut off": (TurnEnded(1, "completed", truncated=True), True, False),
    "blocked": (TurnEnded(1, "blocked", error="no"), False, False),
    "a budget": (TurnEnded(1, "aborted", "budget", error="out of budget"), True, False),
    "interrupted": (TurnEnded(1, "aborted", "interrupted"), True, True),
    "replaced": (TurnEnded(1, "aborted", "replaced"), True, True),
    "the parent": (TurnEnded(1, "aborted", "parent"), True, True),
    "a shutdown": (TurnEnded(1, "aborted", "shutdown"), True, False),
    "a crash": (TurnEnded(1, "interrupted"), True, False),
}


@pytest.mark.parametrize(("end", "stops", "stopped"), ENDS.values(), ids=ENDS)
def test_which_ends_stop_a_goal(end, stops, stopped):
    """After an error, a cut answer or any abort nothing goes on by itself; a goal's turn that was stopped pauses it."""
    state = book(CREATED, *a_round(FIRST, 1, end=end))
    assert (stops, stopped) == (state.stops == 1, state.stopped)
    users = book(CREATED, TurnStarted(1), end)
    assert (stops, False) == (users.stops == 1, users.stopped)
    assert 0 == book(TurnStarted(1), end).stops


def test_a_stop_before_the_round_was_taken_stops_the_goal_too():
    """A turn that was started for a round is the goal's from its first event."""
    queued, started, *_ = a_round(FIRST, 1)
    end = TurnEnded(1, "aborted", "interrupted")
    assert book(CREATED, queued, started, end).stopped
    resumed = after(after(FIRST, "pause"), "resume")
    paused = GoalChanged("pause", after(FIRST, "pause"))
    assert not book(CREATED, queued, started, end, paused, GoalChanged("resume", resumed)).stopped


def test_a_hook_that_refuses_a_round_is_remembered():
    """A blocked turn of a round is a refusal unless it is this plugin's own."""
    queued, started, claimed, *_ = a_round(FIRST, 1)
    for error in (*OWN_REFUSALS, "a hook says no"):
        state = book(CREATED, queued, started, claimed, TurnEnded(1, "blocked", error=error))
        assert (error not in OWN_REFUSALS) == state.refused


READS = {
    '{"action":"complete"}': True,
    '{"action":"blocked"}': False,
    '{"action":"edit","x":': True,
    '{"action":"finish"}': True,
    '{"action":"pause"}': False,
    "[]": True,
    "": True,
    "\udc80": True,
    "[" * 100_000: True,
}


@pytest.mark.parametrize(("arguments", "expected"), READS.items(), ids=lambda value: f"{value!r:.30}")
def test_which_calls_mean_to_complete(arguments, expected):
    """A call of update_goal that readably wants something else does not complete; any other may."""
    assert expected == completes(arguments)


@pytest.mark.parametrize("receipt", ["completed", "failed", "rejected", "interrupted", "outcome_unknown"])
def test_a_completion_that_failed_stops_going_on(receipt):
    """A call that was to complete the goal and did not is counted as a stop, once; a failed edit is not."""
    calls = (ToolCalled("c", "update_goal", '{"action":"complete"'), ToolReturned("c", receipt, None, ""))
    state = book(CREATED, *a_round(FIRST, 1, *calls))
    assert (receipt != "completed", ()) == (state.stops == 1, state.turn.completing)
    edit = (ToolCalled("c", "update_goal", {"action": "edit"}), ToolReturned("c", receipt, None, ""))
    assert 0 == book(CREATED, *a_round(FIRST, 1, *edit)).stops


@pytest.mark.parametrize("operation", ["pause", "complete", "block", "clear"])
def test_every_end_of_being_active_is_a_stop(operation):
    """Whoever writes such a change, what was armed before it is not any more; an edit keeps it, a resume arms none."""
    reason = "why" if operation == "block" else None
    assert 1 == book(CREATED, GoalChanged(operation, after(FIRST, operation, reason))).stops
    assert 0 == book(CREATED, GoalChanged("edit", replace(after(FIRST, "edit"), rounds_max=9))).stops


@pytest.mark.parametrize(("operation", "told"), [("complete", True), ("block", True), ("pause", False)])
def test_the_last_report_is_asked_for_once(operation, told):
    """A goal that ends inside its round owes a last report until the next step has begun."""
    changed = GoalChanged(operation, after(FIRST, operation, "why" if operation == "block" else None))
    state = book(CREATED, *a_round(FIRST, 1)[:4], SAID, changed)
    assert told == state.turn.report
    assert not replay(GOAL, (StepEnded(1, 1), StepStarted(1, 2)), state).turn.report
    assert not book(CREATED, TurnStarted(1), StepStarted(1, 1), changed).turn.report

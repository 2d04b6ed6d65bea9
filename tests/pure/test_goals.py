"""What may be done to a goal: every change as a value that the log takes, every refusal with its code."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from callboard.actors.errors import UsageError
from callboard.actors.events import MessageQueued, MessagesClaimed, ModelSaid, TurnStarted, Usage
from callboard.actors.facts import Goal, GoalChanged, GoalOperation, GoalPhase
from callboard.plugins.goal import goal_plugin
from callboard.plugins.goalbook import FROM, GOAL, GoalBook, InTurn, round_id
from callboard.plugins.goals import (
    BLOCKED_ROUNDS_MIN,
    OBJECTIVE_MAX_CHARS,
    QUIET_MAX,
    REASON_MAX_CHARS,
    ROUNDS_MAX,
    TRIES_MAX,
    Armed,
    Refusal,
    Wanted,
    arming,
    at_rest,
    block_of,
    change,
    create,
    is_armed,
    refusal_of,
    round_text,
)

from .goal_samples import CREATED, FIRST, PHASES, a_round, book, goal_of

ARMED = Armed("goal-1", 1, 0)
CORRUPT = book(GoalChanged("pause", FIRST))


def code(found: object) -> str:
    """The code of a refusal."""
    assert isinstance(found, Refusal), found
    return found.code


def changed(found: object) -> GoalChanged:
    """A change that was decided."""
    assert isinstance(found, GoalChanged), found
    return found


@pytest.mark.parametrize("phase", get_args(GoalPhase))
@pytest.mark.parametrize("operation", [one for one in get_args(GoalOperation) if one != "create"])
def test_what_is_decided_is_what_the_log_takes(operation, phase):
    """A change that is decided folds; what the table forbids is refused as a transition, before anything is written."""
    state = book(*PHASES[phase])
    found = change(state, operation, 5, wanted=Wanted(rounds_max=9), reason="why")
    if phase not in FROM[operation]:
        assert "invalid_transition" == code(found)
    else:
        then = GOAL.apply(state, changed(found))
        assert (None, state.revision + 1) == (then.corrupt, then.revision)


@pytest.mark.parametrize("phase", [None, *get_args(GoalPhase)])
def test_creating_over_an_unfinished_goal_is_refused(phase):
    """Only where there is none, or a complete one, a goal is created; with the next id, at revision 1."""
    state = GOAL.zero if phase is None else book(*PHASES[phase])
    found = create(state, Wanted(" do it "), 5, 12)
    if phase in (None, "complete"):
        expected = Goal(f"goal-{state.made + 1}", 1, "do it", "active", 12)
        assert (expected, None) == (changed(found).goal, GOAL.apply(state, changed(found)).corrupt)
    else:
        assert "goal_already_exists" == code(found)


WRONG: dict[str, tuple[Wanted, str]] = {
    "no objective": (Wanted(), "invalid_objective"),
    "an empty one": (Wanted(" \n\t"), "invalid_objective"),
    "a long one": (Wanted("x" * (OBJECTIVE_MAX_CHARS + 1)), "invalid_objective"),
    "no rounds": (Wanted("x", 0), "invalid_max_rounds"),
    "rounds below 0": (Wanted("x", -1), "invalid_max_rounds"),
    "endless rounds": (Wanted("x", ROUNDS_MAX + 1), "invalid_max_rounds"),
    "rounds beyond all numbers": (Wanted("x", 10**5_000), "invalid_max_rounds"),
    "no tokens": (Wanted("x", None, 0), "invalid_budget"),
    "endless tokens": (Wanted("x", None, 10**400), "invalid_budget"),
    "no seconds": (Wanted("x", None, None, 0.0), "invalid_budget"),
    "seconds that are none": (Wanted("x", None, None, float("nan")), "invalid_budget"),
    "endless seconds": (Wanted("x", None, None, float("inf")), "invalid_budget"),
}


@pytest.mark.parametrize(("wanted", "expected"), WRONG.values(), ids=WRONG)
def test_values_that_no_goal_has(wanted, expected):
    """Each is refused by its code, in one short sentence that shows the value; an edit refuses the same."""
    found = create(GOAL.zero, wanted, 5)
    assert (expected, True) == (code(found), len(str(found)) < 200)
    if not wanted.empty:
        assert expected == code(change(book(CREATED), "edit", 5, wanted=wanted))


def test_an_objective_is_kept_as_it_can_be_written():
    """Half characters are replaced, blanks around it are not kept, and the rest is."""
    found = changed(create(GOAL.zero, Wanted("  a\udc80b\nc "), 5))
    assert "a\ufffdb\nc" == found.goal.objective


@pytest.mark.parametrize("rounds_max", [0, -1, 10_001, True, 1.5, "5", None])
def test_a_plugin_with_other_rounds_is_a_mistake(rounds_max):
    """The number of rounds is checked when the plugin is made."""
    with pytest.raises(UsageError, match="goal_plugin takes rounds_max from 1 to 10,000"):
        goal_plugin(rounds_max)


LONG = "x" * (REASON_MAX_CHARS + 1)
REFUSED: dict[str, tuple[GoalBook, dict[str, Any], str]] = {
    "no goal": (GOAL.zero, {"operation": "pause"}, "goal_not_found"),
    "another goal": (book(CREATED), {"operation": "pause", "named": ("goal-2", 1)}, "goal_not_found"),
    "an old revision": (book(*PHASES["paused"]), {"operation": "resume", "named": ("goal-1", 1)}, "stale_revision"),
    "a huge revision": (book(CREATED), {"operation": "pause", "named": ("goal-1", 10**5_000)}, "stale_revision"),
    "an edit of nothing": (book(CREATED), {"operation": "edit", "wanted": Wanted()}, "invalid_edit"),
    "a block without a reason": (book(CREATED), {"operation": "block", "reason": " "}, "invalid_block_reason"),
    "a long reason": (
        book(CREATED),
        {"operation": "block", "reason": LONG},
        "invalid_block_reason",
    ),
    "a resume while it goes on": (book(CREATED), {"operation": "resume", "armed": True}, "invalid_transition"),
    "a corrupt log": (CORRUPT, {"operation": "clear"}, "corrupt_goal_log"),
}


@pytest.mark.parametrize(("state", "wanted", "expected"), REFUSED.values(), ids=REFUSED)
def test_refusals(state, wanted, expected):
    """Each refusal has its code and says what to do."""
    assert expected == code(change(state, now_ms=5, **wanted))


def test_a_corrupt_log_takes_no_goal():
    """Creating one names the contradiction."""
    found = create(CORRUPT, Wanted("x"), 5)
    assert ("corrupt_goal_log", True) == (code(found), "pause of 'goal-1' without a goal" in str(found))


def test_an_active_goal_that_does_not_go_on_can_be_resumed():
    """After a restart nothing is armed: a resume is a change, and arms."""
    state = book(CREATED, *a_round(FIRST, 1))
    found = changed(change(state, "resume", 5))
    assert (2, True) == (found.goal.revision, is_armed(GOAL.apply(state, found), arming(found, state)))


def test_limits_that_are_used_up_are_edited_first():
    """A resume without rounds or budget says what to edit; an edit below what was used is refused."""
    said = ModelSaid("x", usage=Usage(100))
    bounded = replace(FIRST, rounds_max=2, token_budget=150, seconds_budget=5.0)
    state = book(GoalChanged("create", bounded), *a_round(bounded, 1, said), *a_round(bounded, 2, said))
    assert "edit rounds_max first" in str(change(state, "resume", 5))
    assert "invalid_max_rounds" == code(change(state, "edit", 5, wanted=Wanted(rounds_max=1)))
    for wanted, missing in ((Wanted(rounds_max=3), "token_budget"), (Wanted(token_budget=999), "seconds_budget")):
        state = GOAL.apply(state, changed(change(state, "edit", 5, wanted=wanted)))
        assert f"{missing} of goal-1 is used up" in str(change(state, "resume", 5))
    state = GOAL.apply(state, changed(change(state, "edit", 5, wanted=Wanted(seconds_budget=9.0))))
    assert "active" == changed(change(state, "resume", 5)).goal.phase


def test_the_clock_going_back_is_no_contradiction():
    """A change is never before the last one."""
    state = book(CREATED)
    assert 1_000 == changed(change(state, "pause", 5)).at_ms


# -- being armed


def test_what_disarms():
    """Armed is who knows the newest count of stops of this goal, from the change that armed it, while it is active."""
    state = book(CREATED)
    assert is_armed(state, ARMED)
    assert is_armed(GOAL.apply(state, changed(change(state, "edit", 5, wanted=Wanted("x")))), ARMED)
    for state_, armed in (
        (state, None),
        (state, Armed("goal-2", 1, 0)),
        (state, Armed("goal-1", 2, 0)),
        (state, Armed("goal-1", 1, 1)),
        (book(*PHASES["paused"]), Armed("goal-1", 1, 1)),
        (replace(state, corrupt="x"), ARMED),
        (GOAL.zero, ARMED),
    ):
        assert not is_armed(state_, armed)
    ARMED.close()


# -- who may


WHO = {
    ("create", 0, "user"): None,
    ("create", 0, "round"): "authority_required",
    ("create", 0, "nobody"): "authority_required",
    ("edit", 0, "user"): None,
    ("edit", 0, "round"): "authority_required",
    ("pause", 0, "user"): None,
    ("pause", 0, "round"): "authority_required",
    ("resume", 0, "user"): None,
    ("resume", 0, "round"): "authority_required",
    ("complete", 0, "user"): None,
    ("complete", 0, "round"): None,
    ("complete", 0, "nobody"): "authority_required",
    ("block", 0, "user"): None,
    ("block", 0, "round"): "block_threshold",
    ("block", 0, "third round"): None,
    ("block", 0, "nobody"): "authority_required",
    ("create", 1, "user"): "authority_required",
    ("complete", 1, "round"): "authority_required",
}


@pytest.mark.parametrize(("case", "expected"), WHO.items(), ids=str)
def test_who_may_do_what(case, expected):
    """Create, edit, pause and resume need the user in the turn; complete and block also do in the current round."""
    operation, depth, who = case
    user = (MessageQueued("m", "x"), TurnStarted(9), MessagesClaimed(("m",)))
    before = [a_round(FIRST, number, turn=number) for number in range(1, BLOCKED_ROUNDS_MIN)]
    told = {
        "user": (CREATED, *user),
        "nobody": (CREATED, *a_round(FIRST, 1), TurnStarted(2)),
        "round": (CREATED, *a_round(FIRST, 1)[:4]),
        "third round": (CREATED, *sum(before, ()), *a_round(FIRST, BLOCKED_ROUNDS_MIN)[:4]),
    }[who]
    refusal = refusal_of(book(*told), operation, depth=depth)
    assert expected == (None if refusal is None else refusal.code)


def test_the_user_in_a_round_waives_the_threshold():
    """Input steered into a round makes it the user's."""
    steered = (MessageQueued("m", "stop it", "steer"), MessagesClaimed(("m",)))
    assert None is refusal_of(book(CREATED, *a_round(FIRST, 1)[:4], *steered), "block", depth=0)


def test_a_round_whose_text_the_model_does_not_read_has_no_authority():
    """Only a turn that shows the round may complete its goal."""
    queued, started, _, step, *_ = a_round(FIRST, 1)
    state = book(CREATED, queued, started, MessagesClaimed((round_id(FIRST, 1),), ()), step)
    refusal = refusal_of(state, "complete", depth=0)
    assert "authority_required" == (refusal and refusal.code)


# -- at rest


TIMED = GoalChanged("create", replace(FIRST, seconds_budget=9.0))
REST: dict[str, tuple[GoalBook, object, object]] = {
    "no goal": (GOAL.zero, ARMED, None),
    "not armed": (book(CREATED), None, None),
    "the first round": (book(CREATED), ARMED, (round_id(FIRST, 1), round_text(FIRST, 1))),
    "the next": (book(CREATED, *a_round(FIRST, 1)), ARMED, (round_id(FIRST, 2), round_text(FIRST, 2))),
    "offered again": (replace(book(CREATED), offers=1), ARMED, (round_id(FIRST, 1, 2), round_text(FIRST, 1))),
    "one that waits": (book(CREATED, MessageQueued("goal:x", "x", "goal")), ARMED, None),
    "stopped": (replace(book(CREATED), stopped=True), ARMED, "pause"),
    "stopped and not armed": (replace(book(CREATED), stopped=True), None, "pause"),
    "stopped and paused": (replace(book(*PHASES["paused"]), stopped=True), ARMED, None),
    "refused": (replace(book(CREATED), refused=True), ARMED, "prompt_rejected"),
    "tried too often": (replace(book(CREATED), tries=TRIES_MAX), ARMED, "prompt_rejected"),
    "all rounds": (replace(book(CREATED), rounds=5), ARMED, "round_limit"),
    "all tokens": (replace(book(GoalChanged("create", replace(FIRST, token_budget=9))), tokens=9), ARMED, "budget"),
    "all seconds": (
        replace(book(GoalChanged("create", replace(FIRST, seconds_budget=9.0))), spent_ms=9_000),
        ARMED,
        "budget",
    ),
    "nothing moves": (replace(book(CREATED), quiet=QUIET_MAX), ARMED, "no_progress"),
    "corrupt": (replace(book(CREATED), corrupt="x"), ARMED, None),
}


@pytest.mark.parametrize(("state", "armed", "expected"), REST.values(), ids=REST)
def test_what_an_idle_session_does(state, armed, expected):
    """Pause what was stopped, block what must not go on, else the next round; nothing unless it is active and armed."""
    found = at_rest(state, armed, 5)
    if isinstance(found, GoalChanged):
        assert expected in (found.operation, found.goal.blocked_reason)
        assert None is GOAL.apply(state, found).corrupt
    else:
        assert expected == found


def test_the_text_of_a_round():
    """It quotes the objective as JSON, and says which round of how many it is, and how to end it."""
    text = round_text(replace(FIRST, objective='say "hi"\nnow {id}'), 3)
    assert '"say \\"hi\\"\\nnow {id}"' in text
    assert "Round 3 of at most 5" in text
    assert "goal_id goal-1, revision 1 and action complete" in text


@given(
    st.builds(
        GoalBook,
        st.just(FIRST),
        rounds=st.integers(0, 5),
        tokens=st.integers(0, 99),
        quiet=st.integers(0, 4),
        tries=st.integers(0, 4),
        refused=st.booleans(),
        stopped=st.booleans(),
        made=st.just(1),
        revision=st.just(1),
        turn=st.just(InTurn()),
    )
)
def test_what_is_done_at_rest_always_folds(state):
    """Whatever the books say, what an idle session writes is taken, and a round is within the limit."""
    found = at_rest(state, ARMED, 5)
    assert found is not None
    if isinstance(found, GoalChanged):
        assert None is GOAL.apply(state, found).corrupt
    else:
        assert (None, True) == (block_of(state, goal_of(state)), state.rounds < FIRST.rounds_max)


@given(st.text(max_size=50), st.text(max_size=50), st.integers(-5, 20), st.integers(-5, 20))
def test_any_text_and_number_folds_or_is_refused(objective, reason, rounds, tokens):
    """Whatever is said, a decided change is one that the log takes."""
    active, complete, wanted = book(CREATED), book(*PHASES["complete"]), Wanted(objective, rounds, tokens)
    for state, found in (
        (active, change(active, "edit", 5, wanted=wanted)),
        (active, change(active, "block", 5, reason=reason)),
        (complete, create(complete, wanted, 5)),
    ):
        assert isinstance(found, Refusal) or None is GOAL.apply(state, found).corrupt

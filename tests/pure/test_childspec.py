"""The restart arithmetic: the whole table, the intensity as a property, strategies, back-off."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.childspec import (
    BACKOFF_FIRST_S,
    BACKOFF_MAX_S,
    RESTARTS,
    ChildSpec,
    Decision,
    Exit,
    Intensity,
    Restart,
    affected,
    backoff_s,
    on_exit,
    on_exit_of_many,
)

AGAIN = {
    "permanent": {"normal", "crashed", "shutdown"},
    "transient": {"crashed"},
    "temporary": set(),
}
IDS = ("a", "b", "c", "d")
NONE: tuple[float, ...] = ()

gaps_s = st.lists(st.floats(0, 10, allow_nan=False), max_size=60)
intensities = st.builds(Intensity, st.integers(0, 6), st.floats(0.1, 20))


@pytest.mark.parametrize("restart", get_args(Restart))
@pytest.mark.parametrize("how", get_args(Exit))
def test_every_restart_type_answers_every_exit(restart, how):
    """A child starts again exactly when its restart type says so for the way it ended."""
    decision, past = on_exit(restart, how, (), 7.0, Intensity())
    expected = (Decision.RESTART, (7.0,)) if how in AGAIN[restart] else (Decision.FORGET, ())
    assert expected == (decision, past)


def test_the_table_is_whole():
    """The table has each pair of restart type and exit once."""
    pairs = [(restart, how) for restart, how, _ in RESTARTS]
    assert sorted(pairs) == sorted((r, e) for r in get_args(Restart) for e in get_args(Exit))


@given(gaps_s, intensities)
def test_restarts_never_exceed_the_intensity_in_any_window(gaps, intensity):
    """Whatever the times of the crashes, no period holds more restarts than allowed before the supervisor gives up."""
    now_s, past = 0.0, NONE
    restarts: list[float] = []
    for gap in gaps:
        now_s += gap
        decision, past = on_exit("permanent", "crashed", past, now_s, intensity)
        if decision is Decision.ESCALATE:
            recent = [at for at in restarts if now_s - at < intensity.period_s]
            assert len(recent) == intensity.restarts_max
            break
        restarts.append(now_s)
    for end in restarts:
        window = [at for at in restarts if at <= end and end - at < intensity.period_s]
        assert len(window) <= intensity.restarts_max


@given(gaps_s, intensities)
def test_what_is_remembered_stays_small(gaps, intensity):
    """At most `restarts_max` restarts are remembered, in order, none older than the period."""
    now_s, past = 0.0, NONE
    for gap in gaps:
        now_s += gap
        _, past = on_exit("permanent", "crashed", past, now_s, intensity)
        assert len(past) <= intensity.restarts_max
        assert list(past) == sorted(past)
        assert all(now_s - at < intensity.period_s for at in past)


@given(gaps_s, st.sampled_from(["shutdown", "passivated", "normal"]))
def test_ends_on_purpose_are_never_counted(gaps, how):
    """A transient child that ends without a crash leaves no trace, however often."""
    now_s, past = 0.0, NONE
    for gap in gaps:
        now_s += gap
        assert (Decision.FORGET, ()) == on_exit("transient", how, past, now_s, Intensity())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 3)), max_size=60), intensities, intensities)
def test_of_many_each_is_judged_alone(crashes, each, all_):
    """Each child is judged as by a supervisor of its own; only those given up are counted together, and escalate."""
    own, alone = dict.fromkeys("abc", NONE), dict.fromkeys("abc", NONE)
    given_up, expected_up, now_s = NONE, NONE, 0.0
    for id, gap_s in crashes:
        now_s += gap_s
        decision, own[id], given_up = on_exit_of_many("transient", "crashed", own[id], given_up, now_s, each, all_)
        by_itself, alone[id] = on_exit("transient", "crashed", alone[id], now_s, each)
        if by_itself is Decision.ESCALATE:
            by_all, expected_up = on_exit("permanent", "crashed", expected_up, now_s, all_)
            by_itself = Decision.ESCALATE if by_all is Decision.ESCALATE else Decision.GIVE_UP
        expected_up = tuple(at for at in expected_up if now_s - at < all_.period_s)
        assert (by_itself, alone[id], expected_up) == (decision, own[id], given_up)


def test_one_bad_child_never_escalates():
    """However long one child goes on crashing, and is started anew after each time, it is given up and no more."""
    given_up, said = NONE, []
    for round_ in range(5):
        own = NONE
        for crash in range(4):
            decision, own, given_up = on_exit_of_many(
                "transient", "crashed", own, given_up, round_ * 6.0 + crash * 0.1, Intensity(), Intensity()
            )
            said.append(decision)
    assert [*[Decision.RESTART] * 3, Decision.GIVE_UP] * 5 == said


def test_many_bad_children_escalate():
    """The fourth that is given up within the period is one too many."""
    given_up, said = NONE, []
    for number in range(4):
        own = (number - 0.3, number - 0.2, number - 0.1)
        decision, _, given_up = on_exit_of_many(
            "transient", "crashed", own, given_up, float(number), Intensity(), Intensity()
        )
        said.append(decision)
    assert [*[Decision.GIVE_UP] * 3, Decision.ESCALATE] == said


@pytest.mark.parametrize("how", ["normal", "shutdown", "passivated"])
def test_of_many_an_end_on_purpose_is_never_counted(how):
    """A transient child that ended on purpose is forgotten, whatever was before."""
    past = (1.0, 2.0, 3.0)
    answer = on_exit_of_many("transient", how, past, past, 3.5, Intensity(), Intensity())
    assert (Decision.FORGET, past, past) == answer


@pytest.mark.parametrize(
    ("strategy", "ended", "expected"),
    [
        ("one_for_one", "b", ("b",)),
        ("rest_for_one", "a", IDS),
        ("rest_for_one", "b", ("b", "c", "d")),
        ("rest_for_one", "d", ("d",)),
        ("one_for_all", "a", IDS),
        ("one_for_all", "d", IDS),
    ],
)
def test_each_strategy_names_its_children(strategy, ended, expected):
    """One for one takes the ended child, rest for one those after it too, one for all everyone, in start order."""
    assert expected == affected(strategy, IDS, ended)


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_backoff_stays_in_its_bounds(restarts, jitter):
    """The first restart waits nothing; later ones between half and the whole of a doubling, bounded wait."""
    wait_s = backoff_s(restarts, jitter)
    if restarts <= 1:
        assert wait_s == 0
    else:
        full_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(restarts - 2, 30))
        assert full_s / 2 <= wait_s <= full_s <= BACKOFF_MAX_S


@given(st.integers(1, 100), st.floats(0, 1))
def test_backoff_never_shrinks(restarts, jitter):
    """With the same jitter the next wait is at least as long."""
    assert backoff_s(restarts, jitter) <= backoff_s(restarts + 1, jitter)


async def asleep():
    """Never called."""


def test_a_spec_has_the_defaults_of_otp():
    """A spec is permanent, an actor, and gets five seconds to end; the intensity is Elixir's."""
    spec = ChildSpec("a", start=asleep)
    assert ("permanent", "actor", 5.0) == (spec.restart, spec.kind, spec.shutdown_s)
    assert Intensity(3, 5.0) == Intensity()

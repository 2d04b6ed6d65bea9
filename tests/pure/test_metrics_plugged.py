"""What is counted over several events of a session: rounds of goals, and time in Plan mode."""

from collections.abc import Iterable
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from callboard.actors import events as core
from callboard.actors import facts
from callboard.metrics.labels import ROUND
from callboard.metrics.plugged import SESSIONS_MAX
from callboard.metrics.recorder import Recorder

from .metrics_samples import samples

ROUND_CLAIMED = core.MessagesClaimed(("goal:goal-1:1:1",))
OTHER_CLAIMED = core.MessagesClaimed(("m1", "schedule:schedule-1:5"))
ON, OFF = facts.PlanModeSet(active=True), facts.PlanModeSet(active=False)


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def rounds(events: Iterable[tuple[str, core.Event]]) -> dict[str, float]:
    """The rounds that a fresh recorder counts for events of sessions."""
    registry = CollectorRegistry()
    recorder = Recorder(registry, ())
    for session, event in events:
        recorder.event(event, session, 1)
    prefix = "goal_rounds_total{result="
    return {k.removeprefix(prefix).rstrip("}"): v for k, v in samples(registry).items() if k.startswith(prefix)}


@pytest.mark.parametrize(
    ("ended", "result"),
    [
        (core.TurnEnded(1, "completed"), "completed"),
        (core.TurnEnded(1, "completed", error="no model"), "failed"),
        (core.TurnEnded(1, "blocked", error="stale"), "blocked"),
        (core.TurnEnded(1, "aborted", "interrupted"), "interrupted"),
        (core.TurnEnded(1, "aborted", "replaced"), "replaced"),
        (core.TurnEnded(1, "aborted", "budget", error="used up"), "budget"),
        (core.TurnEnded(1, "aborted"), "aborted"),
        (core.TurnEnded(1, "interrupted", "shutdown"), "interrupted"),
    ],
)
def test_a_round_is_counted_at_the_end_of_its_turn(ended, result):
    """A turn that claimed a round of a goal counts by how it ended: the cause of an abort, failed with an error."""
    assert {} == rounds([("s", ROUND_CLAIMED)])
    assert {result: 1} == rounds([("s", ROUND_CLAIMED), ("s", ended)])


def test_a_turn_without_a_round_is_none():
    """Turns of the user, of reminders and of other sessions are no rounds, nor is the turn after one."""
    ended = core.TurnEnded(1, "completed")
    assert {} == rounds([("s", OTHER_CLAIMED), ("s", ended)])
    assert {} == rounds([("s", ROUND_CLAIMED), ("t", ended)])
    assert {"completed": 1} == rounds([("s", ROUND_CLAIMED), ("s", ended), ("s", OTHER_CLAIMED), ("s", ended)])


def test_a_round_beside_other_input_is_one():
    """A round that is claimed together with mail, or in two steps of one turn, counts once."""
    both = core.MessagesClaimed(("m1", "goal:goal-1:1:2"))
    assert {"completed": 1} == rounds([("s", both), ("s", ROUND_CLAIMED), ("s", core.TurnEnded(1, "completed"))])


STEPS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from([ROUND_CLAIMED, OTHER_CLAIMED])
        | st.builds(
            core.TurnEnded,
            *(st.just(1), st.sampled_from(get_args(core.TurnReason))),
            cause=st.none() | st.sampled_from(get_args(core.Cause)),
            error=st.none() | st.just("broke"),
        ),
    ),
    max_size=40,
)


@given(STEPS)
def test_no_round_is_counted_twice_or_lost(steps):
    """Whatever the order of events, each turn with a round counts once, under a result of the closed set."""
    open_, expected = set(), 0
    for session, event in steps:
        if event is ROUND_CLAIMED:
            open_.add(session)
        elif isinstance(event, core.TurnEnded) and session in open_:
            open_.remove(session)
            expected += 1
    counted = rounds(steps)
    assert expected == sum(counted.values())
    assert set(counted) <= ROUND.values


def plan_mode(*steps: tuple[float, str, core.Event]) -> dict[str, float]:
    """What is observed of Plan mode when events come at these seconds."""
    registry, clock = CollectorRegistry(), Clock()
    recorder = Recorder(registry, (), now_s=clock)
    for at_s, session, event in steps:
        clock.now_s = at_s
        recorder.event(event, session)
    return {k: v for k, v in samples(registry).items() if k.startswith("plan_mode_seconds")}


def test_time_in_plan_mode_is_from_on_to_off():
    """Each session's time counts at its end, from the first of several switches on, also between turns."""
    seen = plan_mode((10.0, "a", ON), (20.0, "b", ON), (30.0, "a", ON), (40.0, "a", OFF), (100.5, "b", OFF))
    assert {"plan_mode_seconds_count": 2, "plan_mode_seconds_sum": 30.0 + 80.5} == seen


def test_plan_mode_whose_begin_nobody_saw_is_not_observed():
    """A mode that began in another program, or has not ended, has no time; a clock set back gives none below zero."""
    assert {} == plan_mode((10.0, "a", OFF), (11.0, "b", ON), (12.0, "c", OFF))
    assert {} == plan_mode((10.0, "a", ON), (15.0, "b", OFF))
    assert {"plan_mode_seconds_count": 1} == plan_mode((10.0, "a", ON), (5.0, "a", OFF))


def test_what_is_remembered_of_sessions_is_bounded():
    """Of very many sessions in Plan mode the oldest are forgotten, and the others are still observed."""
    names = [f"s{n}" for n in range(2 * SESSIONS_MAX)]
    seen = plan_mode(*((0.0, name, ON) for name in names), *((1.0, name, OFF) for name in names))
    assert {"plan_mode_seconds_count": SESSIONS_MAX, "plan_mode_seconds_sum": SESSIONS_MAX} == seen


def test_without_a_clock_no_time_is_observed():
    """A recorder without a clock counts the events and leaves the times out."""
    registry = CollectorRegistry()
    recorder = Recorder(registry, ())
    for event in (ON, OFF):
        recorder.event(event, "s")
    assert {"events_total{kind=plan_mode_set}": 2} == samples(registry)

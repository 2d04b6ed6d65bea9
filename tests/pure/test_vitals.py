"""A runtime's health from what it notices: problems in sentences, the last minute alone, bounded."""

import math

from callboard.actors.notices import ChildRestarted, DurabilityDelayed, Flushed, LoopLagged, StoreFailed
from callboard.runtime.vitals import DELAYED_MAX, LATELY_MAX, Vitals, health_of, percentile

WELL = {
    "ok": True,
    "problems": [],
    "phase": "open",
    "lag_p99_s": {"asyncio": 0.0, "trio": 0.0},
    "store": {"state": "ok", "error": None},
    "stuck": [],
    "given_up": 0,
    "abandoned": 0,
    "parked": 0,
    "left": [],
}


def fed(*notices):
    """Vitals that heard these."""
    vitals = Vitals()
    for notice in notices:
        vitals.take(notice)
    return vitals


def test_all_is_well():
    """A runtime that is open and noticed nothing has no problem."""
    assert WELL == health_of(Vitals(), "open")


def test_a_runtime_that_is_not_open_is_not_well():
    """Before and after, and while it closes, it cannot serve; what is left is named."""
    health = health_of(Vitals(), "closed", left=("deaf (trio)",))
    expected = {**WELL, "ok": False, "phase": "closed", "problems": ["the runtime is closed"], "left": ["deaf (trio)"]}
    assert expected == health


def test_the_store_fails_and_comes_back():
    """A refused write is a problem until something became durable again."""
    failing = fed(StoreFailed("the disk is full", retrying=True))
    assert ["the store is failing: the disk is full"] == health_of(failing, "open")["problems"]
    failing.take(Flushed(0.1, 3))
    assert WELL == health_of(failing, "open")


def test_a_store_that_takes_long_is_a_problem_while_somebody_waits():
    """An end of a turn that waits for the disk is told until its session waits no more."""
    vitals = fed(DurabilityDelayed("a", 1), DurabilityDelayed("b", 1))
    vitals.delayed_are(["b", "c"])
    assert ["the store is delayed"] == health_of(vitals, "open")["problems"]
    vitals.delayed_are([])
    assert WELL == health_of(vitals, "open")


def test_what_is_kept_is_bounded():
    """However much happens, a minute of lags and so many sessions are kept."""
    vitals = fed(*(DurabilityDelayed(str(number), 1) for number in range(DELAYED_MAX + 5)))
    assert (DELAYED_MAX, "5") == (len(vitals.delayed), next(iter(vitals.delayed)))
    late = fed(LoopLagged("trio", 9.0), *(LoopLagged("trio", 0.25) for _ in range(LATELY_MAX)))
    assert {"asyncio": 0.0, "trio": 0.25} == late.lag_p99_s()


def test_a_loop_that_is_late_is_named():
    """More than a second at the 99th of 100 is a problem; one bad moment in the minute is in the number alone."""
    vitals = fed(*(LoopLagged("asyncio", 1.5) for _ in range(3)))
    assert ["the asyncio loop is late by 1.5 s"] == health_of(vitals, "open")["problems"]


def test_stuck_sessions_are_named_the_first_of_them():
    """Those that do not come out of an abort are counted, and five are named."""
    health = health_of(Vitals(), "open", stuck=[f"s{n}" for n in range(7)], abandoned=2, parked=1)
    assert ["7 sessions do not come out of an abort: s0, s1, s2, s3, s4"] == health["problems"]
    assert ([f"s{n}" for n in range(7)], 2, 1) == (health["stuck"], health["abandoned"], health["parked"])


def test_one_stuck_session_is_one():
    """A single one reads as one."""
    assert ["1 session does not come out of an abort: a"] == health_of(Vitals(), "open", stuck=["a"])["problems"]


def test_supervisors_that_gave_up():
    """Nothing starts any more: that is a problem, with how many sessions were given up."""
    vitals = fed(*(ChildRestarted("s", decision) for decision in ("restart", "give_up", "forget", "escalate")))
    health = health_of(vitals, "open", gave_up=True)
    assert (False, 2) == (health["ok"], health["given_up"])
    assert ["the supervisors gave up: no session starts any more"] == health["problems"]


def test_percentile_is_the_nearest_rank():
    """The smallest value that so many of a hundred do not exceed."""
    hundred = [float(number) for number in range(1, 101)]
    assert [99.0, 1.0, 100.0] == [percentile(hundred, percent) for percent in (99, 1, 100)]
    assert (0.0, 7.0) == (percentile([], 99), percentile([7.0], 99))
    assert not math.isnan(percentile([0.0, 0.0], 99))

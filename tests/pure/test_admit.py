"""Who may start a subagent: the table of limits, and what holds for all numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.runtime.admission import Place, Refusal, TreeLimits, admit

LIMITS = TreeLimits(depth_max=3, running_max=8, breadth_max=16, spawned_max=256)
ROOM = {"depth": 2, "running": 0, "siblings": 0, "spawned": 0}

counts = st.integers(0, 40)
places = st.builds(Place, depth=st.integers(1, 6), running=counts, siblings=counts, spawned=counts)
limits = st.builds(TreeLimits, depth_max=counts, running_max=counts, breadth_max=counts, spawned_max=counts)


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        ({}, None),
        ({"depth": 1}, None),
        ({"depth": 3}, None),
        ({"depth": 4}, "depth_max"),
        ({"running": 7}, None),
        ({"running": 8}, "running_max"),
        ({"running": 9}, "running_max"),
        ({"siblings": 15}, None),
        ({"siblings": 16}, "breadth_max"),
        ({"spawned": 255}, None),
        ({"spawned": 256}, "spawned_max"),
        ({"depth": 1, "spawned": 10_000}, None),
        ({"depth": 1, "spawned": 10_000, "running": 8}, "running_max"),
        ({"depth": 4, "running": 8, "siblings": 16, "spawned": 256}, "depth_max"),
        ({"running": 8, "siblings": 16, "spawned": 256}, "spawned_max"),
        ({"running": 8, "siblings": 16}, "breadth_max"),
    ],
    ids=str,
)
def test_table(change, limit):
    """Each limit refuses at its number and not below, the hardest to mend first, and the root may start for ever."""
    refusal = admit(Place(**{**ROOM, **change}), LIMITS)
    assert limit == (None if refusal is None else refusal.limit)


def test_refusal_reads_well():
    """A refusal names the limit, its value, and what to do instead."""
    assert "spawn refused: depth_max is 3. Solve the task yourself." == str(admit(Place(4, 0, 0, 0), LIMITS))


@pytest.mark.parametrize("limit", ["running_max", "breadth_max"])
def test_no_agent_at_all(limit):
    """Where no agent may ever work nobody is told to wait for one to finish."""
    refusal = admit(Place(1, 0, 0, 0), TreeLimits(**{limit: 0}))
    assert f"spawn refused: {limit} is 0. Solve the task yourself." == str(refusal)


@given(places, limits)
def test_admitted_places_keep_every_limit(place, limits):
    """After an admitted start no limit is exceeded, and a refusal names one that would have been."""
    refusal = admit(place, limits)
    exceeded = {
        "depth_max": place.depth > limits.depth_max,
        "running_max": place.running + 1 > limits.running_max,
        "breadth_max": place.siblings + 1 > limits.breadth_max,
        "spawned_max": place.depth > 1 and place.spawned + 1 > limits.spawned_max,
    }
    assert any(exceeded.values()) == (refusal is not None)
    assert refusal is None or (exceeded[refusal.limit] and refusal.value == getattr(limits, refusal.limit))


@given(places, limits, st.sampled_from(["running", "siblings", "spawned"]))
def test_more_of_anything_never_helps(place, limits, what):
    """What is refused stays refused when the tree holds more."""
    more = {name: getattr(place, name) for name in ("depth", "running", "siblings", "spawned")}
    more[what] += 1
    if isinstance(admit(place, limits), Refusal):
        assert isinstance(admit(Place(**more), limits), Refusal)

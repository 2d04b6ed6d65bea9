"""The kit, used wrongly: a mistake is a sentence, and never a test that proves nothing."""

from itertools import count
from typing import Any

import pytest

from callboard.actors import Call, Plugin, Reply
from callboard.actors.errors import UsageError
from callboard.actors.testing import (
    Choices,
    FaultyStore,
    Lab,
    MemoryStore,
    ScriptedModel,
    crash_at_each_append,
    open_lab,
    replay_choices,
    seeded_run,
)


async def sound() -> None:
    """A scenario that leaves nothing to chance."""


async def chosen(choices: Choices) -> None:
    """A scenario that chooses."""
    assert choices.integer(0, 99) < 50, "large"


def no_coroutine(choices: Choices) -> None:
    """Not async, which somebody forgot."""
    choices.integer(0, 9)


async def two(choices: Choices, more: Any) -> None:
    """Wants more than there is."""


@pytest.mark.parametrize(
    ("scenario", "seeds", "faults", "says"),
    [
        (sound, 0, (), "seeds are a number from 1"),
        (sound, -3, (), "seeds are a number from 1"),
        (sound, [], (), "seeds are a number from 1"),
        (sound, "5", (), "seeds are a number from 1"),
        (sound, 2.5, (), "seeds are a number from 1"),
        (None, 1, (), "a scenario is an async function, got None"),
        (no_coroutine, 1, (), "write `async def no_coroutine`"),
        (two, 1, (), "two wants choices, more"),
        (chosen, 1, ("stal",), "faults are some of fail, stall, tear"),
        (chosen, 1, "stall", "faults are some of fail, stall, tear"),
        (sound, 1, ("stall",), "sound takes no Choices"),
    ],
)
def test_a_run_that_would_prove_nothing_is_refused(scenario, seeds, faults, says):
    """No seeds, no scenario, and faults that never come are the caller's mistake."""
    with pytest.raises(UsageError, match=says):
        seeded_run(scenario, seeds, faults=faults)


def test_seeds_may_have_no_end():
    """They are taken one by one, so that a search may go on until something fails."""
    with pytest.raises(AssertionError, match="large"):
        seeded_run(chosen, count())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda choices: choices.chance(2),
        lambda choices: choices.chance(float("nan")),
        lambda choices: choices.chance("often"),
        lambda choices: choices.integer("1", 2),
        lambda choices: choices.integer(0, 1.5),
        lambda choices: choices.pick({1, 2}),
        lambda choices: choices.pick(iter([1])),
    ],
)
def test_what_cannot_be_chosen_is_refused(wrong):
    """A probability beyond 1, numbers that are none, and things without an order."""
    with pytest.raises(UsageError):
        wrong(Choices())


@pytest.mark.parametrize(
    ("scenario", "choices", "says"),
    [(chosen, ["50"], "whole numbers of a failure's note"), (sound, [50], "sound takes no Choices")],
)
def test_what_cannot_be_replayed_is_refused(scenario, choices, says):
    """What a note does not say cannot be played again."""
    with pytest.raises(UsageError, match=says):
        replay_choices(scenario, choices)


def test_a_failure_that_does_not_come_back_says_so():
    """When the same seed and choices pass the second time, the note says that they do not decide alone."""
    runs = []

    async def once(choices: Choices) -> None:
        """Fails the first time."""
        runs.append(choices.integer(0, 9))
        assert len(runs) > 1

    with pytest.raises(AssertionError) as raised:
        seeded_run(once, 1)
    assert "did not fail again: once depends on something else" in raised.value.__notes__[0]


@pytest.mark.parametrize("at", [0, -1, "3", 2.5, [0, 1], ["a"]])
def test_a_fault_that_never_comes_is_refused(at):
    """Appends are counted from 1, so nothing else can be meant."""
    with pytest.raises(UsageError, match="by their numbers, from 1"):
        FaultyStore(MemoryStore(), fail_at=at)


async def one_turn(lab: Lab) -> None:
    """A story."""
    await (await lab.session()).run("go")


async def no_turn(lab: Lab) -> None:
    """A story in which nothing happens."""


@pytest.mark.parametrize(
    ("story", "opens"),
    [
        (one_turn, lambda store: open_lab(ScriptedModel([Reply("Done.")]))),
        (no_turn, lambda store: open_lab(ScriptedModel([Reply("Done.")]), store=store)),
    ],
    ids=["another store", "no append"],
)
def test_a_story_that_cannot_die_is_refused(story, opens):
    """A lab on another store than the one that dies, and a story that appends nothing, survive without merit."""
    with pytest.raises(UsageError, match="appended nothing to the store"):
        crash_at_each_append(story, opens=opens)


def test_deaths_that_are_none_are_refused():
    """An empty `at` would play nothing and say that all is well."""
    with pytest.raises(UsageError, match="at names no death to play"):
        crash_at_each_append(
            one_turn, opens=lambda store: open_lab(ScriptedModel([Reply("Done.")]), store=store), at=[]
        )


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ({"model": "scripted:demo"}, "the model of a lab is a Model"),
        ({"model": [Reply("x")]}, "the model of a lab is a Model"),
        ({"store": "memory"}, "the store of a lab is a Store"),
        ({"tools": [one_turn]}, "a list of Tool values"),
        ({"plugins": Plugin("p")}, "a list of Plugin values, got Plugin"),
        ({"plugins": ["p"]}, "a list of Plugin values, got 'p'"),
        ({"hooks": [Call("x")]}, "a list of Hook values"),
    ],
)
async def test_a_lab_of_the_wrong_things_is_refused(what, says):
    """A mistake is told before anything runs."""
    with pytest.raises(UsageError, match=says):
        async with open_lab(**what):
            raise AssertionError("it opened")

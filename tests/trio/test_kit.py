"""The kit for tests, tried on itself: faults, choices that shrink, hangs, and deaths at every append."""

from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors import Call, Reply
from callboard.actors.choices import shrunk
from callboard.actors.errors import LogError, UsageError
from callboard.actors.events import TurnEnded
from callboard.actors.plugin import View
from callboard.actors.store import Record, Snapshot, Store
from callboard.actors.testing import (
    Choices,
    FaultyStore,
    Hung,
    Lab,
    MemoryStore,
    ScriptedModel,
    crash_at_each_append,
    of_kind,
    open_lab,
    replay_choices,
    seeded_run,
)
from callboard.actors.tool import tool


def record(seq: int) -> Record:
    """A record that any store takes."""
    return Record(seq, 0, None, b'{"type":"note_added","text":"x"}')


def given_to(store: Store, *seqs: int) -> list[str]:
    """Append these one after the other; what became of each."""
    told = []
    for seq in seqs:
        try:
            store.append("s", [record(seq)])
            told.append("taken")
        except LogError as error:
            told.append(str(error))
    return told


# -- faults ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [2, {2}, lambda write: write.n == 2], ids=["number", "set", "predicate"])
async def test_an_append_that_fails(at):
    """It raises, nothing of it is taken, and the next one is its own."""
    store = FaultyStore(MemoryStore(), fail_at=at)
    store.open(lambda fn: fn())
    assert ["taken", "append 2 fails, as its test asked for: nothing of it was taken.", "taken"] == given_to(
        store, 0, 1, 1
    )
    assert [0, 1] == [one.seq for one in store.read("s", -1, 10)]


async def test_a_sync_that_stalls():
    """Whoever waits behind the chosen append waits until it is released."""
    store = FaultyStore(MemoryStore(), stall_at=2)
    store.open(lambda fn: fn())
    told: list[Any] = []
    given_to(store, 0)
    store.sync(told.append)
    given_to(store, 1)
    store.sync(told.append)
    assert ([None], 1) == (told, store.waiting)
    store.release()
    assert ([None, None], 0) == (told, store.waiting)


@pytest.mark.parametrize(("kept", "seqs"), [("synced", [0]), ("before", [0, 1]), ("after", [0, 1, 2])])
async def test_a_death(kept, seqs):
    """Everything fails until it is opened again; then there is what was synced, and as much more as was asked for."""
    store = FaultyStore(MemoryStore(), tear_at=3, kept=kept)
    store.open(lambda fn: fn())
    told: list[Any] = []
    given_to(store, 0)
    store.sync(told.append)
    given_to(store, 1)
    store.snap("s", [Snapshot("x", 1, 1, b"")])
    died = "the store died at append 3, as its test asked for: open it again."
    assert [died, died] == given_to(store, 2, 3)
    store.sync(told.append)
    assert (None, died) == (told[0], str(told[1]))
    with pytest.raises(LogError):
        store.read("s", -1, 10)
    store.open(lambda fn: fn())
    assert seqs == [one.seq for one in store.read("s", -1, 10)]
    assert (kept != "synced") == bool(store.snapshots("s"))
    assert ["taken"] == given_to(store, len(seqs))


async def test_a_session_lives_through_faults():
    """In a lab: an append that fails turns its message away, and the session goes on."""
    store = FaultyStore(MemoryStore(), fail_at=lambda write: "message_queued" in write.kinds and write.n < 4)
    async with open_lab(ScriptedModel([Reply("done")]), store=store) as lab:
        session = await lab.session()
        with pytest.raises(LogError, match="fails, as its test asked for"):
            await session.run("one")
        store.fail_at = None
        assert "done" == (await session.run("two")).last_message


# -- choices -----------------------------------------------------------------------------------------------------------


def test_choices_are_drawn_by_their_seed():
    """The same seed gives the same, another another; and what was taken plays it again."""

    def draw(choices: Choices) -> list[Any]:
        return [choices.integer(3, 9), choices.pick("abc"), choices.chance(), choices.integer(-5, -5)]

    runs = [draw(Choices(seed)) for seed in range(50)]
    assert runs == [draw(Choices(seed)) for seed in range(50)]
    assert {3, 9} <= {run[0] for run in runs}
    assert {"a", "b", "c"} == {run[1] for run in runs}
    assert {True, False} == {run[2] for run in runs}
    first = Choices(7)
    drawn = draw(first)
    assert drawn == draw(Choices(99, given=first.taken))
    assert [3, "a", False, -5] == draw(Choices(given=[]))
    assert [9, "c", True, -5] == draw(Choices(given=[99, 99, 99, 99]))


@pytest.mark.parametrize("wrong", [lambda c: c.integer(2, 1), lambda c: c.pick([])])
def test_choices_among_nothing(wrong):
    """They are mistakes of whoever asks."""
    with pytest.raises(UsageError):
        wrong(Choices())


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(0, 20), st.integers(1, 4))
def test_shrinking_keeps_the_failure(values, least, count):
    """What is left still fails, is no larger than what was given, and is the smallest where one number decides."""

    def fails(given: list[int]) -> list[int] | None:
        return given if sum(value >= least for value in given) >= count else None

    if least == 0 or fails(values) is None:
        return
    small = shrunk(values, fails, 2_000)
    assert fails(small) is not None
    assert len(small) <= len(values)
    assert [least] * count == small


async def fails_on_large(choices: Choices) -> None:
    """A scenario with a bug: two large numbers on end."""
    numbers = [choices.integer(0, 100) for _ in range(choices.integer(2, 10))]
    await trio.sleep(1)
    assert not any(a > 50 and b > 50 for a, b in pairwise(numbers)), "two large ones"


def test_a_failing_seed_is_made_small():
    """Its note says the fewest and lowest choices, and they fail again when they are replayed."""
    with pytest.raises(AssertionError, match="two large ones") as caught:
        seeded_run(fails_on_large, 100)
    (note,) = caught.value.__notes__
    choices = note.partition("replay_choices(fails_on_large, [")[2].partition("]")[0]
    assert [0, 51, 51] == [int(one) for one in choices.split(",")]
    with pytest.raises(AssertionError, match="two large ones"):
        replay_choices(fails_on_large, [0, 51, 51])
    replay_choices(fails_on_large, [0, 51, 50])


@pytest.mark.parametrize(
    ("hangs", "words"),
    [(trio.sleep_forever, "seconds of virtual time"), (None, "steps of its tasks")],
)
def test_a_hang_is_a_failure(hangs, words):
    """A scenario that waits for ever, or never stops working, fails with its seed."""

    async def busy() -> None:
        while True:
            await trio.lowlevel.checkpoint()

    with pytest.raises(Hung, match=words) as caught:
        seeded_run(hangs or busy, [3], seconds_max=100, steps_max=5_000)
    assert any("with seed 3" in note for note in caught.value.__notes__)


# -- deaths ------------------------------------------------------------------------------------------------------------


def lab(store: Store, tools: Any = ()) -> AbstractAsyncContextManager[Lab]:
    """A lab whose model calls `act` once."""
    return open_lab(ScriptedModel([Reply("", [Call("act")]), Reply("done")]), tools=tools, store=store)


async def one_turn(world: Lab) -> None:
    """A turn."""
    await (await world.session()).run("go")


@tool(name="act", effect="idempotent")
async def act(view: View) -> str:
    """Acts."""
    await trio.sleep(0.1)
    return "acted"


def test_a_sound_story_survives():
    """Both sides of each append, none twice."""
    assert crash_at_each_append(one_turn, opens=partial(lab, tools=[act])) > 15


def test_a_check_that_fails_says_where():
    """The note names the append, its events, and how to repeat that death alone."""

    def check(world: Lab) -> None:
        assert all(event.reason == "completed" for event in of_kind(world.records("s"), TurnEnded)), (
            "a turn was cut off"
        )

    with pytest.raises(ExceptionGroup) as caught:
        crash_at_each_append(one_turn, check, opens=partial(lab, tools=[act]))
    (note,) = caught.value.__notes__
    assert "(turn_started of session 's')" in note
    again = note.partition("at=[(")[2].partition(",")[0]
    with pytest.raises(ExceptionGroup):
        crash_at_each_append(one_turn, check, opens=partial(lab, tools=[act]), at=[(int(again), "after")])


def test_a_story_that_differs_each_time_is_told():
    """It has to make the same appends each time, or none of its deaths means anything."""
    turns = iter([3, *[1] * 100])

    async def fickle(world: Lab) -> None:
        session = await world.session()
        for _ in range(next(turns)):
            await session.run("go")

    with pytest.raises(AssertionError, match="let it do the same each time"):
        crash_at_each_append(fickle, opens=partial(lab, tools=[act]))

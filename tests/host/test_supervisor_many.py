"""Supervisors whose children have nothing to do with each other: one that is bad goes alone, many that are escalate."""

import random
from typing import get_args

import pytest
import trio

from callboard.actors.childspec import ChildSpec, Decision, Exit, Intensity, Restart, on_exit_of_many
from callboard.actors.errors import IntensityReached
from callboard.actors.notices import ChildRestarted
from callboard.runtime.supervisor import Supervisor

from .staged import CRASH, ENDS, Stage, entered, quiet

EACH = Intensity(3, 5.0)
NONE: tuple[float, ...] = ()


async def crash(stage, id, times):
    """Let a child crash so often, each time once it lives again."""
    for _ in range(times):
        await stage.order(id, CRASH)
        await stage.guest.start(trio.sleep, 0.3)


async def test_one_bad_child_is_given_up_alone(caplog):
    """Four crashes within five seconds end that child, loudly, and touch no other; its id may be used again."""
    async with entered() as guest:
        stage = Stage(guest, each=EACH, intensity=EACH)
        for id in "abc":
            stage.add(id, restart="transient")
        await crash(stage, "b", 4)
        assert ["a", "c"] == stage.alive()
        assert [*["restart"] * 3, "give_up"] == [notice.decision for notice in stage.notices]
        assert "gave up a child: b ended (crashed), after 3 restarts within 5 s" in caplog.text
        stage.add("b", restart="transient")
        await crash(stage, "b", 3)
        assert ["a", "c", "b"] == stage.alive()
        assert await stage.supervisor.shutdown() == ()


async def test_each_child_has_its_own_back_off():
    """A child that crashes for the first time is started again at once, however often others crashed."""
    async with entered() as guest:
        stage = Stage(guest, each=Intensity(9, 60.0))
        stage.add("bad", restart="transient")
        stage.add("good", restart="transient")
        for _ in range(3):
            await stage.order("bad", CRASH)
            await guest.start(trio.sleep, 1)
        began_s = guest.now_s()
        await stage.order("good", CRASH)
        assert (["bad", "good"], began_s) == (stage.alive(), guest.now_s())


async def test_too_many_given_up_end_the_supervisor():
    """When one more is given up than the intensity allows, all are ended, and `wait` says so."""
    async with entered() as guest:
        stage = Stage(guest, each=Intensity(0, 5.0), intensity=Intensity(2, 60.0))
        for id in "abcd":
            stage.add(id, restart="transient")
        await stage.order("a", CRASH)
        await stage.order("b", CRASH)
        assert ["c", "d"] == stage.alive()
        await stage.order("c", CRASH)
        with pytest.raises(IntensityReached, match=r"c ended .crashed.*, and 2 others were given up"):
            await stage.supervisor.wait()
        assert [] == stage.alive()


async def test_a_significant_child_ends_its_supervisor():
    """What nothing can stand in for is not started again: its crash is the supervisor's own, its end on purpose not."""
    async with entered() as guest:
        stage = Stage(guest)
        stage.add("a")
        below = Supervisor(guest, id="below", children=[stage.spec("x")], intensity=Intensity(0, 5.0))
        other = Supervisor(guest, id="other")
        for one in (below, other):
            stage.supervisor.start_child(one.as_child(restart="transient", significant=True))
        await quiet(guest)
        other.end()
        await quiet(guest)
        assert ["a", "below"] == stage.alive()
        await stage.order("x", CRASH)
        with pytest.raises(IntensityReached, match="below ended"):
            await stage.supervisor.wait()
        assert ["+a", "+x", "-x", "-a"] == stage.told


async def test_the_last_child_is_told():
    """A supervisor tells when nobody is left in it: not before a child that was left has ended too."""
    empty: list[str] = []
    async with entered() as guest:
        stage = Stage(guest, on_empty=lambda: empty.append("empty"))
        stage.add("a", restart="temporary")
        stage.add("stuck", restart="temporary", clean_s=30.0, shutdown_s=1.0)
        await stage.order("a", None)
        assert [] == empty
        assert not await stage.supervisor.stop_child("stuck")
        assert [] == empty
        await guest.start(trio.sleep, 30)
        await quiet(guest)
        assert ["empty"] == empty


async def test_let_go_tells_of_the_last_child_too():
    """A child that is let go is gone at once."""
    empty: list[str] = []
    async with entered() as guest:
        stage = Stage(guest, on_empty=lambda: empty.append("empty"))
        stage.add("a", restart="temporary")
        await quiet(guest)
        stage.supervisor.let_go("a")
        stage.supervisor.let_go("a")
        assert ["empty"] == empty
        await stage.order("a", None)
        assert ["empty"] == empty


async def test_names_of_what_is_left_come_from_all_levels():
    """What did not end is named by its path, at once and without a shutdown."""
    async with entered() as guest:
        stage = Stage(guest)
        below = Supervisor(guest, id="below", children=[stage.spec("x", clean_s=60.0, shutdown_s=1.0)])
        stage.supervisor.start_child(below.as_child())
        await quiet(guest)
        assert not await below.stop_child("x")
        assert ("below/x",) == stage.supervisor.left()
        stage.supervisor.let_go("below")
        assert () == stage.supervisor.left()


@pytest.mark.parametrize("seed", range(24))
async def test_random_ends_of_many_follow_the_pure_decisions(seed):
    """Under any schedule of ends every decision is the one of `on_exit_of_many`, and who lives follows from them."""
    chance = random.Random(seed)
    each, all_ = Intensity(chance.randint(0, 3), chance.uniform(1, 5)), Intensity(chance.randint(0, 3), 5.0)
    restarts = {id: chance.choice(get_args(Restart)) for id in "abcdef"}
    async with entered() as guest:
        stage = Stage(guest, each=each, intensity=all_)
        for id, restart in restarts.items():
            stage.add(id, restart=restart)
        own, given_up = dict.fromkeys(restarts, NONE), NONE
        alive, expected = list(restarts), list[ChildRestarted]()
        while alive and len(expected) < 40:
            id, how = chance.choice(alive), chance.choice((*get_args(Exit), "crashed", "crashed"))
            await quiet(guest)
            decision, own[id], given_up = on_exit_of_many(
                restarts[id], how, own[id], given_up, guest.now_s(), each, all_
            )
            if how != "passivated":
                expected.append(ChildRestarted(id, decision.value))
            await stage.order(id, ENDS[how])
            assert expected == stage.notices, f"seed {seed}"
            if decision is Decision.ESCALATE:
                with pytest.raises(IntensityReached):
                    await stage.supervisor.wait()
                break
            if decision is not Decision.RESTART:
                alive.remove(id)
            await guest.start(trio.sleep, chance.uniform(0.4, 1.5))
            assert alive == stage.alive(), f"seed {seed}"
        await stage.supervisor.shutdown()
        assert () == stage.supervisor.children()


async def test_a_child_below_shows_in_the_books():
    """Who looks at many in slices finds each child, and the supervisor that it is."""
    async with entered() as guest:
        stage = Stage(guest)
        below = Supervisor(guest, id="below")
        stage.add("a")
        stage.supervisor.start_child(below.as_child())
        stage.supervisor.start_child(ChildSpec("c", trio.sleep_forever))
        await quiet(guest)
        assert [("a", None), ("below", below), ("c", None)] == [
            (child.spec.id, child.spec.below) for child in stage.supervisor.books()
        ]

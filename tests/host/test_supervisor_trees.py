"""Supervisors of many: group strategies, shutdown in order, what does not end, trees, random schedules."""

import asyncio
import functools
import random
from typing import get_args

import pytest
import trio

from callboard.actors.childspec import ChildSpec, Decision, Exit, Intensity, Restart, on_exit
from callboard.actors.errors import IntensityReached, UsageError
from callboard.actors.notices import ChildRestarted
from callboard.runtime.children import ChildRecord, SupervisorRecord
from callboard.runtime.clock import SimClock
from callboard.runtime.guest import Guest
from callboard.runtime.supervisor import Supervisor

from .staged import CRASH, ENDS, Stage, entered, quiet

NONE: tuple[float, ...] = ()

# -- groups --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("one_for_one", ["-b", "+b"]),
        ("rest_for_one", ["-b", "-d", "-c", "+b", "+c", "+d"]),
        ("one_for_all", ["-b", "-d", "-c", "-a", "+a", "+b", "+c", "+d"]),
    ],
)
async def test_strategies_end_in_reverse_and_start_in_order(strategy, expected):
    """What goes with the crashed child is ended in reverse order and started in order, one after another."""
    async with entered() as guest:
        stage = Stage(guest, strategy=strategy)
        for id in "abcd":
            stage.add(id)
            await quiet(guest)
        stage.told.clear()
        await stage.order("b", CRASH)
        await guest.start(trio.sleep, 1)
        starts = [said for said in expected if said[0] == "+"]
        assert (expected[: -len(starts)], starts) == (stage.told[: -len(starts)], sorted(stage.told[-len(starts) :]))
        assert list("abcd") == stage.alive()
        assert [notice.decision for notice in stage.notices] == ["restart"]


async def test_a_temporary_child_goes_with_its_group_for_good():
    """A temporary sibling is ended with the others and not started again."""
    async with entered() as guest:
        stage = Stage(guest, strategy="one_for_all")
        stage.add("a", restart="temporary")
        stage.add("b")
        await stage.order("b", CRASH)
        assert stage.alive() == ["b"]


async def test_a_crash_during_a_renewal_widens_it():
    """While a group is being ended, a crash further up takes its own group along, and all start once."""
    async with entered() as guest:
        stage = Stage(guest, strategy="rest_for_one", intensity=Intensity(9, 60.0))
        stage.add("a")
        stage.add("b")
        stage.add("c", clean_s=2.0)
        await stage.order("b", CRASH)
        assert stage.told == ["+a", "+b", "+c", "-b"] or sorted(stage.told) == ["+a", "+b", "+c", "-b"]
        await stage.order("a", CRASH)
        await guest.start(trio.sleep, 10)
        assert (list("abc"), 3) == (stage.alive(), stage.supervisor.statistics().restarts)
        assert sorted(stage.told) == ["+a", "+a", "+b", "+b", "+c", "+c", "-a", "-b", "-c"]


async def test_a_group_with_a_child_that_never_ends_gives_up():
    """What does not end cannot be started a second time, so the supervisor ends and says why."""
    async with entered() as guest:
        stage = Stage(guest, strategy="one_for_all")
        stage.add("a", clean_s=60.0, shutdown_s=1.0)
        stage.add("b")
        await stage.order("b", CRASH)
        with pytest.raises(IntensityReached, match="a did not end within 1 s"):
            await stage.supervisor.wait()
        assert stage.supervisor.statistics().left == ("a",)


# -- stopping and shutting down ------------------------------------------------------------------------------------


async def test_a_stopped_child_stays_away():
    """A permanent child that is stopped is ended, removed and not restarted; stopping it again changes nothing."""
    async with entered() as guest:
        stage = Stage(guest)
        stage.add("a")
        await quiet(guest)
        assert await stage.supervisor.stop_child("a")
        assert await stage.supervisor.stop_child("a")
        assert (["+a", "-a"], (), []) == (stage.told, stage.supervisor.children(), stage.notices)
        stage.add("a")
        await quiet(guest)
        assert stage.alive() == ["a"]


async def test_a_child_is_stopped_from_trio_too():
    """An actor may end a child of its supervisor."""
    async with entered() as guest:
        stage = Stage(guest)
        stage.add("a")
        await quiet(guest)
        assert await guest.start(stage.supervisor.stop_child, "a")
        assert stage.told == ["+a", "-a"]


async def test_a_polite_stop_comes_before_the_cancel():
    """A spec's `stop` is called once; a child that follows it ends by itself, and one that does not is cancelled."""
    async with entered() as guest:
        stage = Stage(guest)
        asked: list[str] = []

        def ask():
            asked.append("polite")
            stage.orders["polite"].send_nowait("bye")

        stage.add("polite", stop=ask)
        stage.add("deaf", shutdown_s=3.0, stop=lambda: asked.append("deaf"))
        stage.add("rude", stop=lambda: 1 / 0)
        await quiet(guest)
        assert await stage.supervisor.shutdown() == ()
        assert (["deaf", "polite"], ["-rude", "-deaf", "-polite"]) == (asked, stage.told[3:])
        assert guest.now_s() == pytest.approx(3.0)


async def test_shutdown_goes_in_reverse_order_one_by_one():
    """By default each child has ended before the one started before it is asked."""
    async with entered() as guest:
        stage = Stage(guest)
        for id in "abc":
            stage.add(id, clean_s=1.0)
        await quiet(guest)
        stage.told.clear()
        assert await stage.supervisor.shutdown() == ()
        assert ["-c", "-b", "-a"] == stage.told
        assert guest.now_s() == pytest.approx(3.0)
        await stage.supervisor.wait()


async def test_many_are_ended_some_at_a_time():
    """With `ends_at_once_max` so many end side by side, and never more are in their clean-up."""
    ending, most = set(), [0]

    async def child(id):
        try:
            await trio.sleep_forever()
        finally:
            ending.add(id)
            most.append(len(ending))
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await trio.sleep_forever()
            ending.discard(id)

    async with entered() as guest:
        supervisor = Supervisor(guest, id="top", ends_at_once_max=16)
        for number in range(100):
            supervisor.start_child(ChildSpec(str(number), functools.partial(child, number)))
        await quiet(guest)
        assert await supervisor.shutdown() == ()
        assert max(most) == 16
        assert guest.now_s() == pytest.approx(7.0)


async def test_what_does_not_end_is_left_and_named():
    """After `shutdown_s` and one window a child is given up, named, blocks its id, and is forgotten when it ends."""
    async with entered() as guest:
        stage = Stage(guest)
        stage.add("a")
        stage.add("stuck", clean_s=30.0, shutdown_s=2.0)
        await quiet(guest)
        assert not await stage.supervisor.stop_child("stuck")
        assert (["a"], ("stuck",)) == (stage.alive(), stage.supervisor.statistics().left)
        with pytest.raises(UsageError, match="still lives"):
            stage.add("stuck")
        assert await stage.supervisor.shutdown() == ("stuck",)
        assert guest.now_s() == pytest.approx(2.1)
        await guest.start(trio.sleep, 30)
        assert stage.supervisor.statistics().left == ()


async def test_nothing_restarts_during_a_shutdown():
    """A permanent child that crashes while others are being ended stays down."""
    async with entered() as guest:
        stage = Stage(guest)
        stage.add("a")
        stage.add("b", clean_s=5.0)
        await quiet(guest)
        ending = asyncio.ensure_future(stage.supervisor.shutdown())
        await quiet(guest)
        await stage.order("a", CRASH)
        assert await ending == ()
        assert (["+a", "+b", "-a", "-b"], []) == (sorted(stage.told), stage.notices)


async def test_shutdown_while_a_group_is_renewed():
    """Shutting down in the middle of a renewal starts nothing again."""
    async with entered() as guest:
        stage = Stage(guest, strategy="one_for_all")
        stage.add("a", clean_s=2.0)
        stage.add("b")
        await stage.order("b", CRASH)
        assert await stage.supervisor.shutdown() == ()
        assert stage.supervisor.children() == ()
        await quiet(guest)
        assert guest.living() == ()
        await guest.start(trio.sleep, 10)
        assert sorted(stage.told) == ["+a", "+b", "-a", "-b"]


async def test_shutdown_while_a_group_waits_to_start():
    """Shutting down during the back-off of a group ends the wait at once."""
    async with entered() as guest:
        stage = Stage(guest, strategy="one_for_all")
        stage.add("a")
        for _ in range(2):
            await stage.order("a", CRASH)
        assert ([], 0.0) == (stage.alive(), guest.now_s())
        assert await stage.supervisor.shutdown() == ()
        await quiet(guest)
        assert ((), (), 0.0) == (stage.supervisor.children(), guest.living(), guest.now_s())


async def test_a_group_waits_before_it_starts_again():
    """The back-off of a group is slept once, after its children have ended; each instance ends before the next."""
    async with entered() as guest:
        stage = Stage(guest, strategy="one_for_all", intensity=Intensity(9, 60.0))
        stage.add("a", clean_s=1.0)
        stage.add("b")
        for wait_s in (1.0, 1.05, 1.1):
            await quiet(guest)
            stage.told.clear()
            await stage.order("b", CRASH)
            await guest.start(trio.sleep, wait_s - 0.01)
            assert stage.alive() in ([], ["a"])
            await guest.start(trio.sleep, 0.02)
            assert stage.alive() == ["a", "b"]
            assert ["-b", "-a"] == stage.told[:2]


async def test_a_child_stopped_during_a_renewal_stays_away():
    """Stopping a child that is about to be started again keeps it away, and its siblings come back."""
    async with entered() as guest:
        stage = Stage(guest, strategy="one_for_all")
        stage.add("a", clean_s=1.0)
        stage.add("b")
        stage.add("c")
        await stage.order("c", CRASH)
        assert await stage.supervisor.stop_child("b")
        await guest.start(trio.sleep, 5)
        assert stage.alive() == ["a", "c"]


async def test_a_child_is_asked_to_stop_once():
    """A shutdown that meets a child already being stopped waits for it and does not ask again."""
    async with entered() as guest:
        stage = Stage(guest)
        asked: list[str] = []
        stage.add("a", shutdown_s=3.0, stop=lambda: asked.append("a"))
        await quiet(guest)
        stopping = asyncio.ensure_future(stage.supervisor.stop_child("a"))
        await quiet(guest)
        assert await stage.supervisor.shutdown() == ()
        assert (True, ["a"], ["+a", "-a"]) == (await stopping, asked, stage.told)


async def test_ids_are_taken_once():
    """A second child of the same id is a mistake of the caller."""
    async with entered() as guest:
        stage = Stage(guest)
        stage.add("a")
        with pytest.raises(UsageError, match="has a child 'a' already"):
            stage.add("a")


async def test_the_end_of_the_guest_ends_the_wait():
    """A supervisor whose guest ends without a shutdown restarts nothing, and `wait` returns."""
    guest = await Guest.enter(SimClock())
    stage = Stage(guest)
    stage.add("a")
    waiting = asyncio.ensure_future(stage.supervisor.wait())
    await quiet(guest)
    assert await guest.leave() == ()
    await waiting
    assert (["+a", "-a"], (), []) == (stage.told, stage.supervisor.children(), stage.notices)
    assert await stage.supervisor.shutdown() == ()


# -- trees ---------------------------------------------------------------------------------------------------------


async def test_a_supervisor_is_a_child_of_another():
    """A tree shows itself in the statistics and is shut down from the leaves."""
    async with entered() as guest:
        stage = Stage(guest)
        below = Supervisor(guest, id="below", children=[stage.spec("x"), stage.spec("y")])
        stage.add("a")
        await quiet(guest)
        stage.supervisor.start_child(below.as_child())
        await quiet(guest)
        below.start_child(stage.spec("z"))
        await quiet(guest)
        records = [ChildRecord(id, "actor", "permanent", restarts=0, alive=True) for id in "xyz"]
        inner = SupervisorRecord("below", "one_for_one", 0, tuple(records), ())
        outer = ChildRecord("below", "supervisor", "permanent", restarts=0, alive=True, about=inner)
        assert outer == stage.supervisor.children()[1]
        assert await stage.supervisor.shutdown() == ()
        assert ["-z", "-y", "-x", "-a"] == stage.told[4:]


async def test_failure_climbs_the_tree():
    """A supervisor that gives up is a crash for its parent, which starts it again with its first children."""
    async with entered() as guest:
        stage = Stage(guest)
        below = Supervisor(guest, id="below", children=[stage.spec("x"), stage.spec("y")], intensity=Intensity(0, 5.0))
        stage.supervisor.start_child(ChildSpec("below", below.run, kind="supervisor"))
        await quiet(guest)
        below.start_child(stage.spec("z"))
        await stage.order("y", CRASH)
        assert ["x", "y"] == [record.id for record in below.children() if record.alive]
        assert [ChildRestarted("below", "restart")] == stage.notices
        assert stage.told[3:6] == ["-y", "-z", "-x"]
        for _ in range(3):
            await stage.order("y", CRASH)
            await guest.start(trio.sleep, 0.3)
        with pytest.raises(IntensityReached, match=r"below ended .crashed., after 3 restarts"):
            await stage.supervisor.wait()


async def test_what_a_lower_supervisor_leaves_is_named_by_its_path():
    """A grandchild that does not end is in the tuple of the top's shutdown."""
    async with entered() as guest:
        stage = Stage(guest)
        below = Supervisor(guest, id="below", children=[stage.spec("x", clean_s=60.0, shutdown_s=1.0)])
        stage.supervisor.start_child(below.as_child())
        await quiet(guest)
        assert await stage.supervisor.shutdown() == ("below/x",)


# -- chance ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("strategy", ["one_for_one", "rest_for_one", "one_for_all"])
async def test_random_crashes_follow_the_pure_decisions(strategy, seed):
    """Under any schedule of ends every decision is the one `on_exit` gives, and who is alive follows from them."""
    chance, intensity = random.Random(seed), Intensity(3, 4.0)
    restarts = {id: chance.choice(get_args(Restart)) for id in "abcde"}
    async with entered() as guest:
        stage = Stage(guest, strategy=strategy, intensity=intensity)
        for id, restart in restarts.items():
            stage.add(id, restart=restart)
        await quiet(guest)
        alive, past = list("abcde"), NONE
        expected: list[ChildRestarted] = []
        while alive and len(expected) < 30:
            id, how = chance.choice(alive), chance.choice(get_args(Exit))
            now_s = guest.now_s()
            decision, past = on_exit(restarts[id], how, past, now_s, intensity)
            if how != "passivated":
                expected.append(ChildRestarted(id, decision.value))
            await stage.order(id, ENDS[how])
            assert expected == stage.notices, f"seed {seed}"
            if decision is Decision.ESCALATE:
                with pytest.raises(IntensityReached):
                    await stage.supervisor.wait()
                alive = []
                break
            if decision is Decision.FORGET:
                alive.remove(id)
            elif strategy != "one_for_one":
                first = 0 if strategy == "one_for_all" else alive.index(id)
                alive = [c for n, c in enumerate(alive) if n < first or restarts[c] != "temporary"]
            await guest.start(trio.sleep, chance.uniform(0.5, 3.0))
            assert alive == stage.alive(), f"seed {seed}"
        await stage.supervisor.shutdown()
        assert () == stage.supervisor.children()

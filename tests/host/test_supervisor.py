"""One supervisor: every restart type against every exit, intensity, back-off, what it says and costs."""

import asyncio
import logging
from typing import Any, get_args

import pytest
import trio

from callboard.actors.childspec import ChildSpec, Exit, Intensity, Restart
from callboard.actors.errors import IntensityReached, SessionClosed
from callboard.actors.notices import ChildRestarted
from callboard.runtime.children import ChildRecord
from callboard.runtime.clock import steady_s
from callboard.runtime.supervisor import Supervisor

from .staged import CRASH, ENDS, Stage, entered, quiet

AGAIN = {"permanent": {"normal", "crashed", "shutdown"}, "transient": {"crashed"}, "temporary": set()}


@pytest.mark.parametrize("restart", get_args(Restart))
@pytest.mark.parametrize("how", get_args(Exit))
async def test_every_restart_type_meets_every_exit(restart, how):
    """A child that ends starts again exactly when its restart type says so, and the decision is told."""
    async with entered() as guest:
        stage = Stage(guest)
        stage.add("a", restart=restart)
        await stage.order("a", ENDS[how])
        again = how in AGAIN[restart]
        assert (["+a", "-a", "+a"] if again else ["+a", "-a"]) == stage.told
        expected = [ChildRecord("a", "actor", restart, restarts=1, alive=True)] if again else []
        assert expected == list(stage.supervisor.children())
        said = [] if how == "passivated" else [ChildRestarted("a", "restart" if again else "forget")]
        assert said == stage.notices
        assert await stage.supervisor.shutdown() == ()


async def test_an_exit_by_name_can_be_a_crash():
    """A child may return any `Exit` to say how it ended, a crash included."""
    async with entered() as guest:
        stage = Stage(guest)
        stage.add("a", restart="transient")
        await stage.order("a", "crashed")
        assert stage.told == ["+a", "-a", "+a"]


async def test_a_crash_in_start_itself_counts():
    """A start that cannot even be called, or raises at once, is a crash like any other, up to the intensity."""

    async def broken():
        raise CRASH

    starts: tuple[Any, ...] = (broken, lambda: 3, lambda: 1 / 0)
    for start in starts:
        async with entered() as guest:
            stage = Stage(guest, intensity=Intensity(2, 60))
            stage.supervisor.start_child(ChildSpec("a", start))
            with pytest.raises(IntensityReached, match=r"a ended .crashed., after 2 restarts within 60 s"):
                await stage.supervisor.wait()
            assert ["restart", "restart", "escalate"] == [notice.decision for notice in stage.notices]


async def test_an_outside_cancellation_is_a_shutdown():
    """A permanent child whose scope somebody cancelled starts again; a transient one does not."""
    async with entered() as guest:
        stage = Stage(guest)
        stage.add("p", restart="permanent")
        stage.add("t", restart="transient")
        await quiet(guest)
        for child in list(stage.supervisor._children.values()):
            assert child.running is not None
            child.running.cancel()
        await quiet(guest)
        assert stage.alive() == ["p"]


# -- intensity and back-off ----------------------------------------------------------------------------------------


async def test_too_many_restarts_end_the_supervisor():
    """One restart too many in the period ends all children in reverse order, and `wait` raises IntensityReached."""
    async with entered() as guest:
        stage = Stage(guest, intensity=Intensity(1, 5.0))
        for id in ("a", "b", "c"):
            stage.add(id)
        await stage.order("b", CRASH)
        stage.told.clear()
        await stage.order("b", CRASH)
        with pytest.raises(IntensityReached, match="Supervisor top gave up: b ended"):
            await stage.supervisor.wait()
        assert ["-b", "-c", "-a"] == stage.told
        assert await stage.supervisor.shutdown() == ()
        with pytest.raises(SessionClosed):
            stage.add("d")


async def test_restarts_that_lie_apart_are_borne():
    """Restarts older than the period are forgotten, however many there are."""
    async with entered() as guest:
        stage = Stage(guest, intensity=Intensity(1, 5.0))
        stage.add("a")
        for _ in range(4):
            await stage.order("a", CRASH)
            await guest.start(trio.sleep, 5)
        assert (4, ["a"]) == (stage.supervisor.statistics().restarts, stage.alive())


async def test_back_off_is_slept_on_trios_clock():
    """The first restart waits nothing, later ones double, and none of it takes real time."""
    starts, began_s = [], steady_s()

    async def child():
        starts.append(trio.current_time())
        if len(starts) == 6:
            await trio.sleep_forever()
        raise CRASH

    async with entered() as guest:
        supervisor = Supervisor(guest, id="top", intensity=Intensity(9, 60.0), jitter=lambda: 1.0)
        supervisor.start_child(ChildSpec("a", child))
        await guest.start(trio.sleep, 30)
        assert await supervisor.shutdown() == ()
    assert [0.0, 0.0, 0.05, 0.15, 0.35, 0.75] == pytest.approx(starts)
    assert steady_s() - began_s < 10


async def test_a_waiting_child_is_shown_and_can_be_stopped():
    """During its back-off a child is listed as not alive, and stopping it ends the wait at once."""
    async with entered() as guest:
        stage = Stage(guest, jitter=lambda: 1.0)
        stage.add("a")
        await stage.order("a", CRASH)
        await stage.order("a", CRASH)
        assert [("a", False, 2)] == [(r.id, r.alive, r.restarts) for r in stage.supervisor.children()]
        now_s = guest.now_s()
        assert await stage.supervisor.stop_child("a")
        assert (now_s, ()) == (guest.now_s(), stage.supervisor.children())
        await guest.start(trio.sleep, 5)
        assert stage.told == ["+a", "-a", "+a", "-a"]


async def test_one_back_off_holds_nobody_else():
    """A child that waits for its restart does not delay the restart of another."""
    async with entered() as guest:
        stage = Stage(guest, intensity=Intensity(9, 60.0))
        stage.add("a")
        stage.add("b")
        for _ in range(2):
            await stage.order("a", CRASH)
        assert stage.alive() == ["b"]
        await stage.order("b", "crashed")
        await guest.start(trio.sleep, 1)
        assert stage.alive() == ["a", "b"]


# -- what it costs and says --------------------------------------------------------------------------------------


async def test_a_crash_is_one_line_in_the_log(caplog):
    """Each crash is one error line, of a group its leaves; the traceback is there at debug level."""
    caplog.set_level(logging.DEBUG, "callboard")
    async with entered() as guest:
        stage = Stage(guest)
        stage.add("a", restart="temporary")
        await stage.order("a", ExceptionGroup("many", [KeyError(n) for n in range(5)]))
    lines = [(r.levelname, r.getMessage(), bool(r.exc_info)) for r in caplog.records if r.name == "callboard"]
    text = "child a of top crashed: KeyError: 0; KeyError: 1; KeyError: 2; and 2 more"
    assert [("ERROR", text, False), ("DEBUG", "child a of top crashed", True)] == lines


async def test_idle_children_have_no_asyncio_task():
    """However many children idle, asyncio sees none of them."""
    async with entered() as guest:
        before = len(asyncio.all_tasks())
        stage = Stage(guest)
        for number in range(50):
            stage.add(str(number))
        await quiet(guest)
        assert before == len(asyncio.all_tasks())

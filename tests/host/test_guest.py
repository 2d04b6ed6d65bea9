"""The two crossings: resolved on every path, with cancellation translated both ways."""

import asyncio
import contextlib
import gc
import threading

import pytest
import trio

from callboard.actors import drop
from callboard.runtime.clock import SimClock
from callboard.runtime.crossing import CANCELLED, Outcome
from callboard.runtime.guest import Guest


@contextlib.asynccontextmanager
async def entered(clock=None):
    guest = await Guest.enter(clock)
    try:
        yield guest
    finally:
        assert await guest.leave() == ()


async def add(left, right):
    await trio.lowlevel.checkpoint()
    return left + right


async def fail(error):
    await trio.lowlevel.checkpoint()
    raise error


async def forever(told, clean_s=0.0):
    try:
        told.append("begun")
        await trio.sleep_forever()
    finally:
        with trio.move_on_after(5, shield=True):
            await trio.sleep(clean_s)
        told.append("finally")


async def until(met):
    for _ in range(2000):
        if met():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came")


# -- start and spawn -----------------------------------------------------------------------------------------------


async def test_start_answers_with_the_value():
    """A started Trio function gets its arguments and resolves the future with its value."""
    async with entered() as guest:
        assert await guest.start(add, 1, 2) == 3


async def test_an_error_is_the_outcome_of_the_future():
    """What a Trio function raises, groups included, is raised from its future, and the run goes on."""
    async with entered() as guest:
        with pytest.raises(KeyError):
            await guest.start(fail, KeyError("x"))
        with pytest.raises(ExceptionGroup) as caught:
            await guest.start(fail, ExceptionGroup("two", [KeyError("x"), ValueError("y")]))
        assert len(caught.value.exceptions) == 2
        assert await guest.start(add, 1, 2) == 3


async def test_a_function_that_is_not_async_is_an_error_of_its_own():
    """A mistake in the call itself is the outcome of that call alone."""
    async with entered() as guest:
        with pytest.raises(TypeError):
            await guest.start(lambda: 3)
        with pytest.raises(TypeError):
            await guest.start(add, 1)
        assert await guest.start(add, 1, 2) == 3


async def test_a_cancelled_future_is_done_when_the_function_has_ended():
    """Cancelling the future cancels the scope; the future is cancelled only after the clean-up."""
    told: list[object] = []
    async with entered() as guest:
        future = guest.start(forever, told, 0.02)
        await until(lambda: told)
        assert future.cancel()
        await asyncio.sleep(0)
        assert not future.done()
        with pytest.raises(asyncio.CancelledError):
            await future
        assert (["begun", "finally"], True, False) == (told, future.cancelled(), future.cancel())


async def test_a_timeout_on_the_host_waits_for_the_clean_up():
    """asyncio's own timeout around a started function returns after the function's `finally`."""
    told: list[object] = []
    async with entered() as guest:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await guest.start(forever, told, 0.02)
        assert told == ["begun", "finally"]


async def test_a_value_that_comes_after_the_cancel_is_dropped():
    """Once cancelled, a future never turns into a value, so no cancellation is lost."""

    async def stubborn():
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 0.01):
            await trio.sleep(5)
        return "late"

    async with entered() as guest:
        future = guest.start(stubborn)
        await asyncio.sleep(0.002)
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future


async def test_an_error_in_the_clean_up_is_the_outcome_of_a_cancelled_future():
    """An error while ending is not hidden behind the cancellation."""

    async def breaks():
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError("x")

    async with entered() as guest:
        future = guest.start(breaks)
        await asyncio.sleep(0.002)
        future.cancel()
        with pytest.raises(KeyError):
            await future


async def test_spawn_tells_each_end_once_on_the_loops_thread():
    """`on_end` gets the value, the error or the cancellation, once, outside of Trio, on the thread of the loop."""
    ends, error = [], KeyError("x")

    def on_end(outcome):
        ends.append((outcome, threading.get_ident(), trio.lowlevel.in_trio_task(), asyncio.get_running_loop()))

    async with entered() as guest:
        guest.spawn(lambda: add(1, 2), on_end)
        await until(lambda: len(ends) == 1)
        guest.spawn(lambda: fail(error), on_end)
        await until(lambda: len(ends) == 2)
        spawned = guest.spawn(trio.sleep_forever, on_end)
        spawned.cancel()
        spawned.cancel()
        await until(lambda: len(ends) == 3)
        spawned.cancel()
        assert spawned.ended
    assert [Outcome(3), Outcome(error=error), CANCELLED] == [end[0] for end in ends]
    assert {(threading.get_ident(), False, asyncio.get_running_loop())} == {end[1:] for end in ends}


async def test_what_is_no_exception_becomes_an_error_and_the_run_lives():
    """A stray asyncio cancellation inside an actor, alone or beside Trio's own, is a RuntimeError of that actor."""
    async with entered() as guest:
        for error in (asyncio.CancelledError(), BaseExceptionGroup("", [asyncio.CancelledError(), KeyError()])):
            with pytest.raises(RuntimeError, match="raised") as caught:
                await guest.start(fail, error)
            assert caught.value.__cause__ is error
        assert await guest.start(add, 1, 2) == 3


async def test_own_errors_are_kept_and_cancellations_are_not():
    """The outcome of a cancelled function has the errors of its parts that failed to clean up, and no cancellation."""

    async def breaks():
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError("x")

    async def parts():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(breaks)
            nursery.start_soon(trio.sleep_forever)

    guest = await Guest.enter()
    future = guest.start(parts)
    await asyncio.sleep(0.005)
    assert await guest.leave() == ()
    error = future.exception()
    assert isinstance(error, ExceptionGroup)
    assert [KeyError] == [type(inner) for inner in error.exceptions]


# -- ask_host ------------------------------------------------------------------------------------------------------


async def double(value):
    await asyncio.sleep(0)
    return value * 2


async def raise_on_host(error):
    await asyncio.sleep(0)
    raise error


async def test_trio_asks_the_host():
    """A coroutine function of asyncio gets its arguments and answers its value or its error."""

    async def actor(guest):
        with pytest.raises(KeyError):
            await guest.ask_host(raise_on_host, KeyError("x"))
        return await guest.ask_host(double, 21)

    async with entered() as guest:
        assert await guest.start(actor, guest) == 42


async def test_the_host_task_runs_in_a_turn_of_its_own():
    """Whatever makes the loop's tasks, a question to the host never runs inside Trio's turn."""
    loop = asyncio.get_running_loop()
    loop.set_task_factory(getattr(asyncio, "eager_task_factory", None))

    async def host():
        return trio.lowlevel.in_trio_task()

    async def actor(guest):
        return await guest.ask_host(host)

    async with entered() as guest:
        assert await guest.start(actor, guest) is False


async def cancel_current():
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)


async def test_a_host_task_cancelled_by_others_is_an_error_in_trio():
    """No `asyncio.CancelledError` enters Trio: not by somebody's cancel, not raised, not hidden in a group."""

    async def actor(guest):
        asks = (
            lambda: guest.ask_host(cancel_current),
            lambda: guest.ask_host(raise_on_host, asyncio.CancelledError()),
            lambda: guest.ask_host(raise_on_host, BaseExceptionGroup("", [asyncio.CancelledError()])),
        )
        for ask in asks:
            with pytest.raises(RuntimeError, match="asyncio task"):
                await ask()
        return "alive"

    async with entered() as guest:
        assert await guest.start(actor, guest) == "alive"


async def test_a_cancelled_ask_ends_its_task_first():
    """A cancelled Trio wait cancels the asyncio task and goes on as cancelled after the task has ended."""
    told: list[object] = []

    async def host():
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            told.append("host ended")

    async def actor(guest):
        with trio.move_on_after(0.01) as scope:
            await guest.ask_host(host)
        told.append(("trio goes on", scope.cancelled_caught))

    async with entered() as guest:
        await guest.start(actor, guest)
    assert ["host ended", ("trio goes on", True)] == told


async def test_a_task_that_ignores_its_cancel_is_left():
    """After the bound Trio goes on; the left task is told of, and its late error bothers nobody."""
    left: list[asyncio.Task] = []
    reports: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    release = asyncio.Event()

    async def stubborn():
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        raise KeyError("late")

    async def actor(guest):
        began_s = trio.current_time()
        with trio.move_on_after(1) as scope:
            await guest.ask_host(stubborn, bound_s=0.5, on_left=left.append)
        return scope.cancelled_caught, trio.current_time() - began_s

    async with entered(SimClock(autojump=False)) as guest:
        asking = guest.start(actor, guest)
        await asyncio.sleep(0.005)
        guest._sim.jump(1)
        await asyncio.sleep(0.005)
        assert (False, []) == (asking.done(), left)
        guest._sim.jump(0.5)
        assert (True, 1.5) == await asking
        (task,) = left
        release.set()
        await asyncio.wait((task,))
        del task
        left.clear()
        await asyncio.sleep(0)
        gc.collect()
    assert reports == []


async def test_a_left_task_does_not_hold_virtual_time():
    """With a virtual clock the bound passes too, because a cancelled ask is no open crossing."""
    release, scope = asyncio.Event(), trio.CancelScope()

    async def stubborn():
        scope.cancel()
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    async def actor(guest):
        with scope:
            await guest.ask_host(stubborn)
        return trio.current_time()

    async with entered(SimClock()) as guest:
        assert await guest.start(actor, guest) == pytest.approx(0.1)
        release.set()


async def test_a_stubborn_ask_can_be_dropped():
    """Dropping a shielded ask cancels its task first, and a second drop leaves it."""
    left: list[asyncio.Task] = []
    told: list[str] = []
    release, begun = asyncio.Event(), asyncio.Event()

    async def stubborn():
        begun.set()
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
                return
            told.append("cancelled")

    async def actor(guest, box):
        box.append(trio.lowlevel.current_task())
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 20):
            await guest.ask_host(stubborn, bound_s=20, on_left=left.append)

    async with entered() as guest:
        box: list[trio.lowlevel.Task] = []
        future = guest.start(actor, guest, box)
        await begun.wait()
        drop.drop(box[0])
        await asyncio.sleep(0.01)
        assert (["cancelled"], False) == (told, future.done())
        drop.drop(box[0])
        with pytest.raises(RuntimeError, match="Dropped"):
            await future
        assert len(left) == 1
        release.set()
        await asyncio.wait(left)

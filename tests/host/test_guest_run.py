"""The guest run: shared and counted, one per thread, ended by whoever ends the host, every `finally` run."""

import asyncio
import contextlib
import gc
import threading

import pytest
import trio
import uvloop

from callboard.actors.errors import SessionClosed, UsageError
from callboard.actors.notices import LoopLagged
from callboard.runtime.clock import SimClock
from callboard.runtime.crossing import CANCELLED
from callboard.runtime.guest import Guest
from callboard.runtime.lag import LagProbes

LOOPS = {"asyncio": asyncio.run, "uvloop": uvloop.run}


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


# -- how a guest ends ----------------------------------------------------------------------------------------------


async def test_leaving_runs_every_finally_and_resolves_everything():
    """The last to leave waits for the clean-up; futures get `SessionClosed`, callbacks the cancellation."""
    told: list[object] = []
    ends: list[object] = []
    guest = await Guest.enter()
    future = guest.start(forever, told, 0.01)
    guest.spawn(trio.sleep_forever, ends.append)
    await until(lambda: told)
    assert await guest.leave() == ()
    assert (["begun", "finally"], [CANCELLED], True) == (told, ends, guest.ending)
    with pytest.raises(SessionClosed):
        await future
    guest.spawn(trio.sleep_forever, ends.append)
    await asyncio.sleep(0)
    assert [CANCELLED, CANCELLED] == ends


async def test_closing_under_a_forgotten_future_is_no_report():
    """A started function that nobody waits for and that the closing cancels makes no noise in asyncio."""
    reports: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    guest = await Guest.enter()
    guest.start(trio.sleep_forever)
    assert await guest.leave() == ()
    await asyncio.sleep(0)
    gc.collect()
    assert reports == []


async def test_a_guest_that_does_not_end_is_named():
    """Leaving is bounded, names what is still alive, and the thread takes no new runtime meanwhile."""
    release: list[int] = []

    async def stubborn():
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 20):
            while not release:
                await trio.sleep(0.001)

    guest = await Guest.enter()
    future = guest.start(stubborn)
    await asyncio.sleep(0.005)
    (left,) = await guest.leave(0.01)
    assert left.endswith("stubborn")
    joining = asyncio.ensure_future(Guest.enter())
    await asyncio.sleep(0.01)
    assert not joining.done()
    release.append(1)
    second = await joining
    assert second is not guest
    assert future.done()
    assert await second.leave() == ()


# -- one run per thread --------------------------------------------------------------------------------------------


async def test_runtimes_of_a_loop_share_the_run():
    """Who enters while a guest runs gets the same one, and the last to leave ends it."""
    first = await Guest.enter()
    second = await Guest.enter()
    assert first is second
    assert await first.leave() == ()
    assert not second.ending
    assert await second.start(add, 1, 2) == 3
    assert await second.leave() == ()
    async with entered() as third:
        assert third is not first
        assert await third.start(add, 1, 2) == 3


async def test_many_enter_at_once():
    """Entering at the same moment starts one run."""
    guests = await asyncio.gather(*(Guest.enter() for _ in range(5)))
    assert len(set(guests)) == 1
    assert [(), (), (), (), ()] == [await guest.leave() for guest in guests]


async def test_who_enters_while_the_run_ends_gets_a_new_one():
    """Entering waits until the ending run is over."""
    told: list[object] = []
    first = await Guest.enter()
    future = first.start(forever, told, 0.02)
    await until(lambda: told)
    first.end()
    async with entered() as second:
        assert second is not first
        assert ["begun", "finally"] == told
    assert await first.leave() == ()
    assert isinstance(future.exception(), SessionClosed)


async def test_a_clock_of_ones_own_is_not_shared():
    """Whoever has a clock refuses to join, and nobody joins them."""
    async with entered():
        with pytest.raises(UsageError, match="clock of its own"):
            await Guest.enter(SimClock())
    async with entered(SimClock()):
        with pytest.raises(UsageError, match="clock of its own"):
            await Guest.enter()


async def test_an_actor_cannot_enter():
    """Opening a runtime inside Trio says to use the one that is there."""

    async def actor():
        with pytest.raises(UsageError, match="from asyncio"):
            await Guest.enter()

    async with entered() as guest:
        await guest.start(actor)


def test_another_loop_of_the_thread_is_refused():
    """While a guest lives in one loop, a second loop of the same thread is told so."""
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    guest = first.run_until_complete(Guest.enter())
    with pytest.raises(UsageError, match="another event loop"):
        second.run_until_complete(Guest.enter())
    assert first.run_until_complete(guest.leave()) == ()
    guest = second.run_until_complete(Guest.enter())
    assert second.run_until_complete(guest.leave()) == ()
    first.close()
    second.close()


async def test_a_foreign_trio_run_is_refused():
    """Where somebody else runs Trio already, the error says to use another thread."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    trio.lowlevel.start_guest_run(
        trio.sleep,
        0.01,
        run_sync_soon_threadsafe=loop.call_soon_threadsafe,
        done_callback=lambda _: over.set(),
        host_uses_signal_set_wakeup_fd=True,
    )
    with pytest.raises(UsageError, match="started by something else"):
        await Guest.enter()
    await over.wait()


# -- the small things ----------------------------------------------------------------------------------------------


async def test_run_soon_works_from_any_thread():
    """A call from another thread, or after the loop, reaches the loop's thread or nobody."""
    called: list[object] = []
    async with entered() as guest:
        await asyncio.to_thread(guest.run_soon, lambda: called.append(threading.get_ident()))
        guest.run_soon(lambda: called.append(threading.get_ident()))
        await until(lambda: len(called) == 2)
    assert {threading.get_ident()} == set(called)
    box = []

    def run():
        async def main():
            async with entered() as inner:
                box.append(inner)

        asyncio.run(main())
        box[0].run_soon(lambda: called.append("after the end"))

    await asyncio.to_thread(run)
    assert len(called) == 2


async def test_the_nursery_takes_tasks_from_the_host():
    """Tasks that nobody wants an outcome of start straight in the guest's nursery and end with it."""
    told: list[object] = []
    async with entered() as guest:
        guest.nursery.start_soon(forever, told)
        await until(lambda: told)
    assert told == ["begun", "finally"]


async def test_lag_is_told_for_both_loops():
    """The probes tell how late each loop woke, until they are stopped."""
    heard: list[LoopLagged] = []
    async with entered() as guest:
        probes = LagProbes(guest, heard.append, period_s=0.002)
        probes.start()
        probes.start()
        await until(lambda: {"asyncio", "trio"} == {notice.loop for notice in heard})
        probes.stop()
        probes.stop()
        await asyncio.sleep(0.01)
        count = len(heard)
        await asyncio.sleep(0.01)
        assert count == len(heard)
    assert all(notice.seconds >= 0 for notice in heard)


# -- loops and threads ---------------------------------------------------------------------------------------------


async def whole_life(told):
    async with entered() as guest:
        guest.spawn(lambda: forever(told), told.append)
        await until(lambda: told)
        return await guest.start(add, 1, 2)


def in_threads(count, run):
    """Run something in new threads at once; their results or errors."""
    results = []

    def body():
        try:
            results.append(run())
        except Exception as error:
            results.append(error)

    threads = [threading.Thread(target=body) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return results


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("threads", [1, 3])
def test_guests_live_in_any_thread_and_several_at_once(loop, threads):
    """Each thread has a guest of its own, on asyncio and on uvloop."""
    assert [3] * threads == in_threads(threads, lambda: LOOPS[loop](whole_life([])))


@pytest.mark.parametrize("loop", LOOPS)
def test_two_runs_after_one_another(loop):
    """A thread whose host ended in order takes the next one."""
    assert [3, 3] == [LOOPS[loop](whole_life([])) for _ in range(2)]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_host_that_never_leaves_is_cleaned_up(loop):
    """Main returns or crashes without leaving: the guard ends the guest, `finally` runs, and the thread is usable."""
    told: list[object] = []

    async def main():
        guest = await Guest.enter()
        guest.spawn(lambda: forever(told, 0.01), told.append)
        await until(lambda: told)
        raise KeyError("the caller crashed")

    def run():
        with contextlib.suppress(KeyError):
            LOOPS[loop](main())
        return LOOPS[loop](whole_life([]))

    assert in_threads(1, run) == [3]
    assert ["begun", "finally", CANCELLED] == told

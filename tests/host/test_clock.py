"""The virtual clock: it jumps when nothing happens, and stands still while the host is busy for Trio."""

import asyncio
import contextlib
import threading

import pytest
import trio

from callboard.runtime.clock import SimClock, WallClock, steady_s
from callboard.runtime.guest import Guest

HOUR_S = 3600.0


@contextlib.asynccontextmanager
async def entered(clock):
    guest = await Guest.enter(clock)
    try:
        yield guest
    finally:
        assert await guest.leave() == ()


async def test_an_hour_passes_at_once():
    """A long sleep takes its virtual time and no real time."""
    clock, began_s = SimClock(start_ms=1_000), steady_s()
    async with entered(clock) as guest:
        await guest.start(trio.sleep, HOUR_S)
        assert (HOUR_S, 3_601_000) == (guest.now_s(), clock.now_ms())
    assert steady_s() - began_s < HOUR_S


async def test_deadlines_come_in_order():
    """Time stops at every deadline on its way."""
    told = []

    async def sleeper(seconds):
        await trio.sleep(seconds)
        told.append((seconds, trio.current_time()))

    async with entered(SimClock()) as guest:
        await asyncio.gather(*(guest.start(sleeper, s) for s in (30.0, 10.0, 20.0)))
    assert [(10.0, 10.0), (20.0, 20.0), (30.0, 30.0)] == told


async def work_s(seconds):
    await asyncio.sleep(seconds)
    return "answer"


@pytest.mark.parametrize("seconds", [0.0, 0.002, 0.05])
async def test_time_stands_still_while_trio_asks_the_host(seconds):
    """However long the host works on a question in real time, the timeout beside it does not fire."""

    async def asker(guest):
        with trio.fail_after(30):
            return await guest.ask_host(work_s, seconds), trio.current_time()

    async with entered(SimClock()) as guest:
        assert ("answer", 0.0) == await guest.start(asker, guest)


@pytest.mark.parametrize("turns", [1, 3, 20])
async def test_the_host_has_turns_to_react(turns):
    """A reaction of the host that takes some turns and opens no crossing comes before the next deadline."""
    heard = []

    async def waiter(event):
        with trio.move_on_after(30):
            await event.wait()
        heard.append(trio.current_time())

    async def react(guest, event):
        await guest.start(trio.sleep, 1)
        for _ in range(turns):
            await asyncio.sleep(0)
        event.set()

    async with entered(SimClock()) as guest:
        event = trio.Event()
        await asyncio.gather(guest.start(waiter, event), react(guest, event))
    assert [1.0] == heard


async def test_time_stands_still_while_both_sides_talk():
    """A conversation of many short turns comes before the next deadline, however long it is."""
    events = [trio.Event() for _ in range(200)]

    async def listen():
        for event in events:
            await event.wait()

    async with entered(SimClock()) as guest:
        sleeping, listening = guest.start(trio.sleep, 30), guest.start(listen)
        for event in events:
            event.set()
            for _ in range(5):
                await asyncio.sleep(0)
        await listening
        assert guest.now_s() == 0
        await sleeping


async def test_an_open_crossing_holds_the_clock():
    """Work that somebody else reports by hand holds time still until it is reported over."""
    clock = SimClock()
    async with entered(clock) as guest:
        clock.crossing_opened()
        sleeping = guest.start(trio.sleep, 60)
        await asyncio.sleep(0.01)
        assert (False, 0.0) == (sleeping.done(), guest.now_s())
        clock.crossing_closed()
        await sleeping
        assert guest.now_s() == 60


async def test_a_thread_of_trio_holds_the_clock():
    """Time stands still while a thread of Trio's default pool works."""

    async def in_thread():
        with trio.fail_after(30):
            await trio.to_thread.run_sync(threading.Event().wait, 0.01, abandon_on_cancel=False)
        return trio.current_time()

    async with entered(SimClock()) as guest:
        assert await guest.start(in_thread) == 0


async def test_without_autojump_only_the_hand_moves_time():
    """A clock that does not jump by itself moves by `jump` alone, and never back."""
    clock = SimClock(autojump=False)
    async with entered(clock) as guest:
        sleeping = guest.start(trio.sleep, 60)
        await asyncio.sleep(0.01)
        clock.jump(59)
        await asyncio.sleep(0.01)
        assert not sleeping.done()
        clock.jump(1)
        await sleeping
    with pytest.raises(ValueError, match="back by 1 s"):
        clock.jump(-1)


def test_the_clock_serves_a_plain_trio_run():
    """Without a host it is an ordinary virtual clock."""

    async def main():
        await trio.sleep(HOUR_S)
        return trio.current_time()

    assert trio.run(main, clock=SimClock()) == HOUR_S


def test_wall_time_is_milliseconds():
    """The wall clock answers whole milliseconds UTC."""
    assert WallClock().now_ms() > 1_700_000_000_000

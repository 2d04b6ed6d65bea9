"""Where a guest sleeps, with trio as this version expects it and as it does not."""

import asyncio
import contextlib
import socket
import threading
import types
from pathlib import Path

import pytest
import trio

from callboard.runtime.guest import Guest
from callboard.runtime.rounds import ROUNDS_S_MAX, usable

OPEN = Path("/proc/self/fd")


def opened():
    """How many descriptors this program has."""
    return len(list(OPEN.iterdir()))


@contextlib.asynccontextmanager
async def entered():
    """A guest run, left at the end."""
    guest = await Guest.enter()
    try:
        yield guest
    finally:
        await guest.leave()


async def test_a_sleep_takes_no_thread():
    """The host's own selector wakes Trio: a guest that only sleeps has no thread of its own."""
    before = threading.active_count()
    async with entered() as guest:
        begun_s = trio.current_time()
        await guest.start(trio.sleep, 0.05)
        assert threading.active_count() == before
        assert 0.045 <= trio.current_time() - begun_s < 1


async def test_a_readable_socket_wakes_trio():
    """Whatever Trio waits for on its own selector reaches it through the host's."""
    async with entered() as guest:
        left, right = socket.socketpair()
        with left, right:
            left.settimeout(0)
            waited = guest.start(trio.lowlevel.wait_readable, left)
            await asyncio.sleep(0.01)
            right.send(b"x")
            await asyncio.wait_for(waited, 5)


async def test_a_nearer_deadline_wakes_trio():
    """A deadline set from the host while Trio sleeps longer is kept."""
    async with entered() as guest:
        scope = trio.CancelScope()

        async def sleeper():
            with scope:
                await trio.sleep(60)

        slept = guest.start(sleeper)
        await asyncio.sleep(0.01)
        scope.deadline = trio.current_time() + 0.02
        await asyncio.wait_for(slept, 5)


async def test_a_busy_trio_leaves_turns_to_asyncio():
    """A task that never rests does not hold asyncio up: it gets a turn after each short while of rounds."""
    async with entered() as guest:

        async def spin():
            while True:
                await trio.lowlevel.checkpoint()

        spinning = guest.start(spin)
        loop, turns = asyncio.get_running_loop(), 0
        until_s = loop.time() + 100 * ROUNDS_S_MAX
        while loop.time() < until_s:
            await asyncio.sleep(0)
            turns += 1
        spinning.cancel()
        await asyncio.wait((spinning,))
        assert turns > 10


@pytest.mark.skipif(not OPEN.is_dir(), reason="counts descriptors in /proc")
async def test_nothing_is_left_open():
    """Runs that began and ended leave no descriptor and no watcher behind."""
    async with entered():
        pass
    before = opened()
    for _ in range(20):
        async with entered() as guest:
            await guest.start(trio.sleep, 0.001)
    assert opened() == before


@pytest.mark.parametrize("state", [None, object(), types.SimpleNamespace(runner=None)])
def test_a_trio_that_looks_different_is_left_alone(state):
    """Without the expected private names nothing is touched, and rounds are called as trio means them to be."""
    assert usable(state) is None

"""Where a reader begins: at any number on the log, durable or not yet, and beyond its end."""

import asyncio

from callboard.actors import Resync
from callboard.runtime import open_runtime

from .hosted import StallingStore, echo, envelopes, read_to_end, slow, until


async def take(reading, some):
    """The next items."""
    return [await asyncio.wait_for(anext(reading), 5) for _ in range(some)]


async def test_the_number_of_a_state_is_a_cursor():
    """Reading after the number that a state is true for gives what comes next, also while the disk is behind."""
    store = StallingStore()
    async with open_runtime(model=slow(0.05, "ok"), store=store) as rt:
        s = await rt.create("x")
        store.stalled = True
        asked = asyncio.create_task(s.run("one"))
        await until(lambda: s.state()["seq"] > 1)
        last = s.state()["seq"]
        reading = s.events(after=last)
        store.resume()
        await asked
        assert [last + 1, last + 2] == [item.seq for item in await take(reading, 2)]


async def test_cursor_beyond_the_log():
    """A cursor beyond the log is told by Resync where reading goes on, live and from the store."""
    async with open_runtime(model=echo()) as rt:
        s = await rt.create("x")
        await s.run("one")
        last = s.state()["seq"]
        reading = s.events(after=last + 100)
        assert [Resync(last)] == await take(reading, 1)
        await s.run("two")
        assert last + 1 == (await take(reading, 1))[0].seq
        at_the_end = s.events(after=s.state()["seq"])
        last = s.state()["seq"]
        await s.stop()
        assert [] == await read_to_end(at_the_end)
        assert [Resync(last)] == await read_to_end(s.events(after=last + 5))
        assert [] == await read_to_end(s.events(after=last))
        assert [last] == envelopes(await read_to_end(s.events(after=last - 1)))
        assert [] == await read_to_end(rt.read("no such session"))

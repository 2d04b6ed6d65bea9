"""Readers of a session: first the log, then live, without gap or repeat, whatever happens meanwhile."""

import asyncio
import gc
import random
import weakref

import pytest
import trio

import callboard.actors
from callboard.actors import (
    Call,
    Delta,
    Envelope,
    Lagged,
    PlanUpdated,
    Plugin,
    Reply,
    SessionClosed,
    TurnEnded,
    UsageError,
)
from callboard.actors.notices import DurabilityDelayed, StoreFailed
from callboard.actors.testing import ScriptedModel
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.settings import Bounds

from .hosted import StallingStore, count, echo, envelopes, events, read_to_end, slow, until


async def take(reading, some):
    """The next items."""
    return [await asyncio.wait_for(anext(reading), 5) for _ in range(some)]


async def until_turn(reading, turn):
    """All items up to the end of a turn."""
    items = []
    async for item in reading:
        items.append(item)
        if isinstance(item, Envelope) and isinstance(item.event, TurnEnded) and item.event.turn == turn:
            break
    return items


async def test_log_first_then_live():
    """A reader gets what was there and what comes, each event once, as the store has it."""
    async with open_runtime(model=echo()) as rt:
        s = await rt.create("x")
        await s.run("one")
        reading = s.events()
        await s.run("two")
        items = await until_turn(reading, 2)
        assert list(range(len(items))) == envelopes(items)
        assert events(rt, "x") == [item.event for item in items]
        assert {"x"} == {item.session for item in items}
        assert [None, None, 1] == [item.turn for item in items[:3]]
        assert [item.at_ms for item in items] == sorted(item.at_ms for item in items)


async def test_a_reader_is_for_one_task():
    """A second task at the same reader is told, instead of waiting for ever or taking what the first was to get."""
    async with open_runtime(model=echo()) as rt:
        s = await rt.create()
        async with s.events(after=s.state()["seq"]) as reading:
            first = asyncio.create_task(anext(reading))
            await asyncio.sleep(0.01)
            with pytest.raises(UsageError, match="another task waits for this reader"):
                await anext(reading)
            await s.run("one")
            assert isinstance(await first, Envelope)
            assert isinstance(await anext(reading), Envelope)


@pytest.mark.parametrize("seed", range(6))
async def test_any_cursor_any_pace(seed):
    """Readers that begin anywhere and read at any pace see everything behind their cursor, in order, once."""
    dice = random.Random(seed)
    seen: dict[int, list[int]] = {}

    async with open_runtime(model=echo()) as rt:
        s = await rt.create()
        for n in range(dice.randrange(4)):
            await s.run(f"before {n}")
        last = s.state()["seq"]

        async def read(number, after):
            got = seen[number] = []
            async for item in s.events(after=after):
                assert isinstance(item, Envelope)
                got.append(item.seq)
                if dice.random() < 0.3:
                    await asyncio.sleep(dice.random() * 0.004)

        cursors = [dice.randrange(-1, last + 1) for _ in range(20)]
        readers = [asyncio.create_task(read(number, after)) for number, after in enumerate(cursors)]
        for n in range(12):
            await s.run(f"live {n}")
            if dice.random() < 0.5:
                await asyncio.sleep(dice.random() * 0.01)
        whole = s.state()["seq"]
        await s.stop()
        await asyncio.wait_for(asyncio.gather(*readers), 10)
        assert {n: list(range(after + 1, whole + 1)) for n, after in enumerate(cursors)} == seen, f"seed {seed}"


async def test_slow_reader_is_told_once_and_misses_nothing():
    """A reader that is too far behind gets one Lagged that names what it missed, and then exactly those events."""
    async with open_runtime(model=echo()) as rt:
        s = await rt.create()
        reading = s.events(queue_max=5)
        for n in range(20):
            await s.run(f"{n}")
        whole = s.state()["seq"]
        items = await take(reading, whole + 2)
        lagged = [item for item in items if isinstance(item, Lagged)]
        at = items.index(lagged[0])
        assert [Lagged(items[at - 1].seq + 1, whole)] == lagged
        assert list(range(whole + 1)) == envelopes(items)
        assert "callboard_subscribers_lagged_total 1" in rt.metrics_text() or "lagged" in rt.metrics_text()
        await s.run("and live again")
        assert [whole + 1] == envelopes(await take(reading, 1))


@pytest.mark.parametrize("seed", range(4))
async def test_slow_readers_with_small_queues(seed):
    """With small queues and random pauses every Lagged names just what follows, and no event is lost or repeated."""
    dice = random.Random(seed)

    async with open_runtime(model=echo()) as rt:
        s = await rt.create()

        async def read(queue_max):
            items = []
            async for item in s.events(queue_max=queue_max):
                items.append(item)
                if dice.random() < 0.2:
                    await asyncio.sleep(dice.random() * 0.01)
            return items

        readers = [asyncio.create_task(read(queue_max)) for queue_max in (1, 2, 3, 7, 20)]
        for n in range(40):
            await s.run(f"{n}")
        whole = s.state()["seq"]
        await s.stop()
        for items in await asyncio.wait_for(asyncio.gather(*readers), 20):
            assert list(range(whole + 1)) == envelopes(items), f"seed {seed}"
            next_seq = 0
            for item in items:
                if isinstance(item, Lagged):
                    assert next_seq == item.first <= item.last <= whole, f"seed {seed}"
                else:
                    next_seq = item.seq + 1


async def test_deltas():
    """Deltas come when they are asked for, between the events, and together they are the text."""
    words = " ".join(f"w{n}" for n in range(50))
    async with open_runtime(model=slow(0.1, words)) as rt:
        s = await rt.create()
        with_deltas, without = s.events(deltas=True), s.events()
        await s.run("go")
        items = await until_turn(with_deltas, 1)
        pieces = [item for item in items if isinstance(item, Delta)]
        assert words == "".join(piece.text for piece in pieces)
        assert {(s.id, 1, "text")} == {(piece.session, piece.turn, piece.part) for piece in pieces}
        assert [item for item in items if isinstance(item, Envelope)] == await until_turn(without, 1)


async def test_flushed_events_only():
    """No reader sees an event that the store has not confirmed, and none is lost when it does."""
    store = StallingStore()
    async with open_runtime(model=echo(), store=store) as rt:
        s = await rt.create()
        early = s.events()
        assert [0] == envelopes(await take(early, 1))
        store.stalled = True
        running = asyncio.create_task(s.run("one"))
        await asyncio.sleep(0.05)
        late = s.events()
        got: dict[str, list[int]] = {"early": [], "late": []}

        async def read(name, reading):
            async for item in reading:
                got[name].append(item.seq)

        readers = [asyncio.create_task(read("early", early)), asyncio.create_task(read("late", late))]
        await asyncio.sleep(0.05)
        assert {"early": [], "late": [0]} == got
        assert not running.done()
        store.resume()
        await running
        whole = s.state()["seq"]
        await until(lambda: all(numbers and numbers[-1] == whole for numbers in got.values()))
        assert {"early": list(range(1, whole + 1)), "late": list(range(whole + 1))} == got
        for reader in readers:
            reader.cancel()


async def test_leaving_reader_does_not_touch_the_other():
    """A reader that leaves, is cancelled, or is dropped leaves the others and the session as they are."""
    async with open_runtime(model=echo()) as rt:
        s = await rt.create()
        stays, leaves = s.events(), s.events(deltas=True)
        async with s.events() as closing:
            await take(closing, 1)
        assert [] == await read_to_end(closing)
        await take(leaves, 1)
        await leaves.aclose()
        await leaves.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(leaves)
        assert 1 == rt.statistics()["subscribers"]
        cancelled = asyncio.create_task(count(s.events()))
        await asyncio.sleep(0.01)
        cancelled.cancel()
        await s.run("go")
        items = await until_turn(stays, 1)
        assert list(range(len(items))) == envelopes(items)


async def test_dropped_readers_are_forgotten():
    """A reader that is dropped without a word is kept by nobody, and costs the session nothing more."""
    async with open_runtime(model=echo()) as rt:
        s = await rt.create()
        readings = []
        for _ in range(50):
            async for _item in (reading := s.events(deltas=True)):
                break
            readings.append(weakref.ref(reading))
        del reading
        gc.collect()
        assert [None] * 50 == [one() for one in readings]
        actor = rt.actor(s.id)
        assert ((), ()) == (actor.log.readers, actor.deltas)
        assert 0 == rt.statistics()["subscribers"]


async def test_one_task_waits_while_another_closes():
    """Closing a reading ends the iteration that waits on it."""
    async with open_runtime(model=echo()) as rt:
        s = await rt.create()
        reading = s.events(after=0)
        waiting = asyncio.create_task(count(reading))
        await asyncio.sleep(0.01)
        await reading.aclose()
        assert 0 == await asyncio.wait_for(waiting, 1)


async def test_cold_session(tmp_path):
    """A session that is not live is read to its end without being loaded, more than one page of it."""
    async with open_runtime(model=echo(), store=f"sqlite:///{tmp_path / 'x.db'}") as rt:
        s = await rt.create("x")
        for n in range(100):
            await s.run(f"{n}")
        whole = s.state()["seq"]
        await s.stop()
        assert list(range(whole + 1)) == envelopes(await read_to_end(s.events()))
        assert list(range(10, whole + 1)) == envelopes(await read_to_end(rt.read("x", after=9)))
        assert () == rt.sessions()
    with pytest.raises(SessionClosed):
        open_runtime().read("x")


async def test_across_a_crash_and_restart():
    """A reader of a session that crashes and is started again sees no gap and no repeat."""
    crashes: list[int] = []

    async def broken(view, messages):
        if view.turn == 2 and not crashes:
            crashes.append(1)
            raise KeyError("a bug in a plugin")
        return callboard.actors.Enter(messages)

    async with open_runtime(model=echo(), plugins=[Plugin("broken", before_step=broken)]) as rt:
        s = await rt.create()
        readers = [asyncio.create_task(read_to_end(s.events(queue_max=queue_max))) for queue_max in (1024, 3)]
        await s.run("one")
        await asyncio.wait_for(s.run("two"), 5)
        await s.resume_queue()
        await s.wait_idle()
        await s.run("three")
        whole = s.state()["seq"]
        await s.stop()
        for items in await asyncio.wait_for(asyncio.gather(*readers), 5):
            assert list(range(whole + 1)) == envelopes(items)
        assert [1] == crashes


async def test_from_a_tool_on_trio():
    """A tool reads another session while it works, on Trio."""
    got: list[int] = []

    @callboard.actors.tool(effect="none")
    async def watch() -> str:
        """Watch the other session."""
        with trio.fail_after(5):
            got.extend(envelopes(await until_turn(other.events(), 1)))
        return "seen"

    def play(prompt):
        return Reply("", [Call("watch")]) if prompt.session == "watcher" and prompt.step == 1 else Reply("ok")

    async with open_runtime(model=ScriptedModel(play), tools=[watch]) as rt:
        other, s = await rt.create(), await rt.create("watcher")
        running = asyncio.create_task(s.run("go"))
        await until(lambda: rt.actor(other.id).log.readers)
        await other.run("one")
        assert "completed" == (await asyncio.wait_for(running, 5)).receipts[0].receipt
        assert list(range(len(events(rt, other.id)))) == got


async def test_two_outside_readers_get_the_same_plan():
    """Readers that know only session and turn get the same snapshots of the plan, live and afterwards."""
    plan = [{"step": f"s{n}", "status": "pending"} for n in range(3)]

    def play(prompt):
        if prompt.step > 3:
            return Reply("done")
        done = [{**one, "status": "completed"} for one in plan[: prompt.step - 1]]
        return Reply(
            "", [Call("update_plan", {"explanation": f"e{prompt.step}", "plan": done + plan[prompt.step - 1 :]})]
        )

    async def snapshots(reading, turn):
        found = []
        async for item in reading:
            if isinstance(item, Envelope) and item.turn == turn:
                if isinstance(item.event, PlanUpdated):
                    found.append(item)
                if isinstance(item.event, TurnEnded):
                    return found
        return found

    async with open_runtime(model=ScriptedModel(play)) as rt:
        s = await rt.create("x")
        live = [asyncio.create_task(snapshots(rt.read("x"), 1)) for _ in range(2)]
        await s.run("go")
        first, second = await asyncio.gather(*live)
        assert 3 == len(first)
        assert first == second == await snapshots(rt.read("x"), 1)
        assert ["completed", "completed", "pending"] == [one.status for one in first[-1].event.plan]


async def test_reader_of_a_runtime_that_closes():
    """A reader of a live session ends when the runtime does, with everything handed out."""
    rt = await open_runtime(model=slow()).start()
    s = await rt.create()
    reading = asyncio.create_task(read_to_end(s.events()))
    await s.submit("go")
    await until(lambda: s.state()["phase"] == "running")
    await rt.close()
    items = await asyncio.wait_for(reading, 1)
    assert events(rt, s.id) == [item.event for item in items]


async def test_readers_hear_of_a_disk_that_does_not_confirm():
    """A late end is told once to the readers of its session alone, a failed write to all; the events follow then."""
    store = StallingStore()
    config = RuntimeConfig(runtime=Bounds(flush_stall_s=0.05))
    async with open_runtime(config, model=echo(), store=store) as rt:
        s, other = await rt.create("a"), await rt.create("b")
        mine, others = s.events(after=0), other.events(after=0)
        store.stalled = True
        running = asyncio.create_task(s.run("one"))

        assert [DurabilityDelayed("a", 1)] == await take(mine, 1)

        failed = StoreFailed("the disk is full", retrying=True)
        store.on_notice(failed)
        assert [[failed], [failed]] == [await take(mine, 1), await take(others, 1)]
        store.resume()
        assert "re: one" == (await running).last_message
        assert list(range(1, 8)) == envelopes(await until_turn(mine, 1))

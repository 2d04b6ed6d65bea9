"""What becomes of a runtime when one of its sessions crashes, or cannot be read."""

import asyncio

import pytest

import callboard.actors
import callboard.actors.testing
import callboard.plugins
import callboard.runtime
from callboard.actors import (
    IntensityReached,
    LogError,
    Plugin,
    SessionClosed,
    TurnEnded,
)
from callboard.actors.memory import MemoryStore
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.settings import Bounds, Supervision

from .hosted import echo

QUICK = RuntimeConfig(runtime=Bounds(shutdown_s=2.0))


async def test_crash_of_a_session_is_told_and_mended():
    """A session that crashes is started again on its log, and whoever waited for the turn hears of its end."""
    crashes: list[int] = []

    async def broken(view, messages):
        if not crashes:
            crashes.append(1)
            raise KeyError("a bug in a plugin")
        return callboard.actors.Enter(messages)

    plugins = [Plugin("broken", before_step=broken)]
    async with open_runtime(model=echo(), plugins=plugins) as rt:
        s = await rt.create()
        ended = await asyncio.wait_for(s.run("one"), 5)
        assert "interrupted" == ended.reason
        assert "re: two" == (await asyncio.wait_for(s.run("two"), 5)).last_message


async def test_a_crash_loop_leaves_the_runtime_usable():
    """A session that crashes again and again is given up, nobody waits for ever, and other sessions can be opened."""

    async def broken(view, messages):
        if view.session == "bad":
            raise KeyError("a bug in a plugin")
        return callboard.actors.Enter(messages)

    async with open_runtime(QUICK, model=echo(), plugins=[Plugin("broken", before_step=broken)]) as rt:
        good = await rt.create("good")
        bad = await rt.create("bad")
        running = [asyncio.create_task(bad.run("boom")) for _ in range(2)]
        while rt._sessions.registry.get("bad") is not None:
            await asyncio.gather(bad.submit("boom"), return_exceptions=True)
            await asyncio.sleep(0.1)
        with pytest.raises(SessionClosed):
            await bad.submit("boom")
        told = await asyncio.wait_for(asyncio.gather(*running, return_exceptions=True), 5)
        assert {TurnEnded, SessionClosed} >= {type(one) for one in told}
        again = await rt.open("good")
        assert "re: fine" == (await asyncio.wait_for(again.run("fine"), 5)).last_message
        assert good.state() == again.state()


async def test_model_that_is_not_known_any_more():
    """A session whose model is gone can be opened and read; its turns end with an error that says why."""
    store = MemoryStore()
    async with open_runtime(model="scripted:demo", store=store) as rt:
        await rt.create("x", model="scripted:demo")
    for record in list(store._logs["x"]):
        assert b"scripted:demo" in record.body
        store._logs["x"][0] = type(record)(
            record.seq, record.at_ms, record.turn, record.body.replace(b"scripted:demo", b"gone:model")
        )
    async with open_runtime(model=echo(), store=store) as rt:
        s = await rt.open("x")
        ended = await s.run("hi")
        assert "completed" == ended.reason
        assert "gone:model" in str(ended.error)


async def test_damaged_log():
    """A session whose log is damaged cannot be opened, says so, and disturbs nobody."""
    store = MemoryStore()
    async with open_runtime(model=echo(), store=store) as rt:
        for name in ("bad", "good"):
            await (await rt.create(name)).run("hi")
    bad = store._logs["bad"]
    bad[2] = type(bad[2])(bad[2].seq, bad[2].at_ms, bad[2].turn, b'{"type":"nonsense"}')
    async with open_runtime(model=echo(), store=store) as rt:
        for _ in range(2):
            with pytest.raises(LogError, match="nonsense"):
                await rt.open("bad")
        assert "re: yes" == (await (await rt.open("good")).run("yes")).last_message
        assert {"idle": 1} == rt.statistics()["sessions"]


async def test_supervisors_that_give_up():
    """When the supervisors give up, `wait` raises IntensityReached, nobody waits for ever, and closing works."""

    async def broken(view, messages):
        raise KeyError("a bug in a plugin")

    config = RuntimeConfig(supervisor=Supervision(restarts_max=0))
    rt = await open_runtime(config, model=echo(), plugins=[Plugin("broken", before_step=broken)]).start()
    other, bad = await rt.create(), await rt.create()
    waiting = [asyncio.create_task(rt.wait()), asyncio.create_task(bad.run("x")), asyncio.create_task(other.wait(1))]
    told = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
    assert [IntensityReached, SessionClosed, SessionClosed] == [type(one) for one in told]
    with pytest.raises(SessionClosed):
        await rt.create()
    with pytest.raises(IntensityReached):
        await rt.wait()
    await rt.close()
    assert () == rt.left

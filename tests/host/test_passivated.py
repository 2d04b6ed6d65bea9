"""Sessions that leave memory and come back, in whole runtimes: handles, alarms, agents, stops and counts."""

import asyncio

import pytest

from callboard.actors import (
    Alarm,
    Call,
    Event,
    Idle,
    Plugin,
    Projection,
    Refused,
    Reply,
    Resync,
    SessionClosed,
    TurnStarted,
    UsageError,
    tool,
)
from callboard.actors.events import MessageQueued
from callboard.actors.facts import ChildEnded
from callboard.actors.memory import MemoryStore
from callboard.actors.plugin import View
from callboard.actors.testing import ScriptedModel
from callboard.runtime import DEFAULT, RuntimeConfig, open_runtime
from callboard.runtime.config import config_of
from callboard.runtime.settings import Bounds

from .hosted import echo, envelopes, gauge, until
from .parents import Parent, of, spawn
from .stored import schema_of

EVICT_S = 0.03
QUICK = RuntimeConfig(runtime=Bounds(idle_evict_s=EVICT_S))


def state(rt, session):
    """Where a session is on its way into memory and out of it."""
    return rt._sessions.registry.state(session)


async def cold(rt, *sessions):
    """Return when all of them have left memory."""
    await until(lambda: {state(rt, one) for one in sessions} == {"cold"})


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request, tmp_path):
    """Each kind of store."""
    if request.param == "postgres":
        return schema_of(request.getfixturevalue("postgres"))
    return "memory" if request.param == "memory" else f"sqlite:///{tmp_path / 'x.db'}"


async def test_handle_of_a_session_that_left(store):
    """What can be said from the store is said without loading; what cannot loads it, once; no restart is counted."""
    async with open_runtime(QUICK, model=echo(), store=store) as rt:
        s = await rt.create("s")
        ended = await s.run("one")
        live = s.state()
        await cold(rt, "s")
        assert {**live, "phase": "passivated"} == s.state()
        assert (ended, (), Idle()) == (await s.wait(1), s.children(), await s.interrupt())
        await s.wait_idle()
        assert await rt.open("s") is not None
        assert ["s"] == [one.id for one in rt.sessions()]
        assert {"passivated": 1} == rt.statistics()["sessions"]
        assert 1.0 == gauge(rt.metrics_text(), 'callboard_sessions{phase="passivated"}')
        assert "cold" == state(rt, "s")
        with pytest.raises(SessionClosed, match="is not in memory"):
            rt.actor("s")
        with pytest.raises(UsageError, match="exists already"):
            await rt.create("s")
        assert "re: two" == (await s.run("two")).last_message
        (_, _, sessions) = rt.statistics()["tree"]["children"]
        assert [("s", 0)] == [(child["id"], child["restarts"]) for child in sessions["about"]["children"]]
        assert 0 == sessions["about"]["restarts"]


async def test_wait_for_a_turn_to_come_loads_and_holds(store):
    """Who waits for a turn that is still to come brings the session back and keeps it in memory."""
    async with open_runtime(QUICK, model=echo(), store=store) as rt:
        s = await rt.create("s")
        await cold(rt, "s")
        waiting = asyncio.ensure_future(s.wait(1))
        await until(lambda: state(rt, "s") == "live")
        await asyncio.sleep(3 * EVICT_S)
        assert "live" == state(rt, "s")
        await s.submit("one")
        assert 1 == (await waiting).turn


async def test_reader_across_passivation(store):
    """A reader sees each event once, whether it began before the session left or while it was away."""
    async with open_runtime(QUICK, model=echo(), store=store) as rt:
        s = await rt.create("s")
        early = s.events()
        items = [[await anext(early)], []]
        await s.run("one")
        await cold(rt, "s")
        late = s.events()
        for text in ("two", "three"):
            await s.run(text)
            await cold(rt, "s")
        count = s.state()["seq"] + 1
        for reading, seen in zip((early, late), items, strict=True):
            seen += [await asyncio.wait_for(anext(reading), 5) for _ in range(count - len(seen))]
        assert [list(range(count))] * 2 == [envelopes(seen) for seen in items]
        beyond = s.events(after=count + 5)
        assert Resync(count - 1) == await anext(beyond)
        await s.stop()
        assert [] == [item async for item in early]


class Wanted(Event, frozen=True):
    """A reminder."""

    due_ms: int


class Rang(Event, frozen=True):
    """It fired."""


DUE: Projection[int | None] = Projection(
    "due", None, lambda state, event: event.due_ms if isinstance(event, Wanted) else None, on=(Wanted, Rang)
)


@tool(effect="none")
async def remind(view: View) -> str:
    """Remind me soon."""
    view.append(Wanted(view.now_ms() + 400))
    return "soon"


REMINDERS = Plugin(
    "reminders",
    events=(Wanted, Rang),
    projections=(DUE,),
    tools=(remind,),
    alarms=(Alarm(DUE, lambda due: due, lambda view: (MessageQueued("r1", "it is time", "schedule"), Rang())),),
)


async def test_alarm_of_a_session_that_left(store):
    """What comes due while a session is not in memory loads it and fires, once."""
    model = ScriptedModel([Reply("", [Call("remind")])])
    async with open_runtime(QUICK, model=model, plugins=(REMINDERS,), store=store) as rt:
        s = await rt.create("s")
        await s.run("go")
        await cold(rt, "s")
        await until(lambda: len(of(TurnStarted, rt, "s")) == 2)
        await cold(rt, "s")
        assert (1, 2) == (len(of(Rang, rt, "s")), len(of(TurnStarted, rt, "s")))


async def test_child_tells_a_parent_that_left(store):
    """A parent stays while its agent is in memory; an agent that is spoken to later tells a parent that left."""
    play = Parent(spawn("a"))
    async with open_runtime(QUICK, model=ScriptedModel(play), plugins=DEFAULT, store=store) as rt:
        p = await rt.create("p")
        await p.run("go")
        await cold(rt, "p.a", "p")
        assert {"p": None, "p.a": "p"} == {one.id: one.parent for one in rt.sessions()}
        (a,) = [one for one in rt.sessions() if one.id == "p.a"]
        turns = len(of(TurnStarted, rt, "p"))
        await a.run("more")
        await until(lambda: [one.turn for one in of(ChildEnded, rt, "p")] == [1, 2])
        await until(lambda: len(of(TurnStarted, rt, "p")) == turns + 1)
        await cold(rt, "p.a", "p")
        assert "p.b" == await rt.spawn("p", "b", "work")
        await until(lambda: "p.b" in {one.child for one in of(ChildEnded, rt, "p")})


@pytest.mark.parametrize("of_parent", [True, False])
async def test_stop_of_a_session_that_left(store, of_parent):
    """A stop ends a session that left memory, and its agents with it."""
    async with open_runtime(QUICK, model=ScriptedModel(Parent(spawn("a"))), plugins=DEFAULT, store=store) as rt:
        p = await rt.create("p")
        await p.run("go")
        await cold(rt, "p.a", "p")
        (a,) = [one for one in rt.sessions() if one.id == "p.a"]
        await (p if of_parent else a).stop()
        assert ([] if of_parent else ["p"]) == [one.id for one in rt.sessions()]
        with pytest.raises(SessionClosed, match="open it again"):
            await a.submit("more")
        if of_parent:
            assert {} == rt._sessions.spawner.trees.open
        await (await rt.open("p.a")).run("again")


async def test_many_leave_and_all_come_back():
    """10,000 sessions leave memory, all are woken at once, and each does what it was told."""
    async with open_runtime(RuntimeConfig(runtime=Bounds(idle_evict_s=0.2)), model=echo()) as rt:
        sessions = []
        for _ in range(100):
            sessions += await asyncio.gather(*(rt.create() for _ in range(100)))
        await until(lambda: len(rt._sessions.registry.cold) == 10_000, 30)
        assert () == rt._sessions.supervisor.children()
        answers = await asyncio.gather(*(s.interrupt(1) for s in sessions))
        assert {"turn_mismatch"} == {answer.reason for answer in answers if isinstance(answer, Refused)}
        assert {1} == {ended.turn for ended in await asyncio.gather(*(s.run("go") for s in sessions[::50]))}
        await until(lambda: len(rt._sessions.registry.cold) == 10_000, 30)


async def test_closing_ends_those_that_left(store):
    """A closed runtime has no session left, and loads none to find out."""
    rt = await open_runtime(QUICK, model=echo(), store=store).start()
    s = await rt.create("s")
    reading = s.events()
    assert [0] == envelopes([await anext(reading)])
    await cold(rt, "s")
    await rt.close()
    assert ((), []) == (rt.left, [item async for item in reading])
    with pytest.raises(SessionClosed, match="the runtime is closed"):
        await s.submit("late")


async def test_never_is_a_choice():
    """Without a time, or with an endless one, nothing sweeps and no session leaves."""
    endless = config_of({"runtime": {"idle_evict_s": float("inf")}})
    for config in (RuntimeConfig(runtime=Bounds(idle_evict_s=None)), endless):
        async with open_runtime(config, model=echo()) as rt:
            await (await rt.create()).run("go")
            assert ["alarm", "sessions"] == [child["id"] for child in rt.statistics()["tree"]["children"]]


async def test_damaged_log_is_news_when_it_is_wanted(tmp_path):
    """A log that cannot be read any more ends the session that left; who asked is told."""
    store = MemoryStore()
    async with open_runtime(QUICK, model=echo(), store=store) as rt:
        s = await rt.create("s")
        await s.run("one")
        await cold(rt, "s")
        del store._logs["s"][1]
        with pytest.raises(SessionClosed):
            await asyncio.wait_for(s.run("two"), 5)
        assert [] == list(rt.sessions())


async def test_nothing_comes_back_where_nothing_starts():
    """When the supervisor has given up, a session that left stays away: who asks is refused, an alarm is no crash."""
    async with open_runtime(QUICK, model=echo()) as rt:
        s = await rt.create("s")
        await cold(rt, "s")
        rt._sessions.supervisor.end()
        with pytest.raises(SessionClosed, match="no session starts any more"):
            await s.submit("late")
        rt._sessions.ring("s")
        assert "cold" == state(rt, "s")

"""Trees of sessions under their supervisors: one bad session, many bad ones, agents, restarts, what the log keeps."""

import asyncio
import random

import pytest
import trio

from callboard.actors import (
    ChildEnded,
    Enter,
    Envelope,
    IntensityReached,
    MessageWithdrawn,
    Plugin,
    Reply,
    SessionClosed,
    TurnEnded,
    TurnStarted,
    UsageError,
)
from callboard.actors.testing import ScriptedModel
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.settings import Agents, Bounds, Supervision

from .hosted import echo, events, until
from .parents import Parent, lasting, of, spawn, wait

QUICK = RuntimeConfig(runtime=Bounds(shutdown_s=2.0))


def breaking(*ids, times=10**9):
    """A plugin that is broken for these sessions, so often for each; what reads a model's answer crashes the actor."""
    left = dict.fromkeys(ids, times)

    async def broken(view, messages):
        if left.get(view.session, 0) > 0:
            left[view.session] -= 1
            raise KeyError("a bug in a plugin")
        return Enter(messages)

    return Plugin("broken", before_step=broken)


async def give_up(rt, *ids):
    """Speak to these sessions until they are given up, however often that crashes them."""
    while any(rt._sessions.registry.get(id) is not None for id in ids):
        for one in rt.sessions():
            if one.id in ids:
                await asyncio.gather(one.submit("boom"), return_exceptions=True)
        await asyncio.sleep(0.02)


async def test_one_bad_session_ends_alone(caplog):
    """Four crashes of one session end that session, loudly: all who wait are told, and every other goes on."""
    async with open_runtime(QUICK, model=echo(), plugins=[breaking("bad")]) as rt:
        others = [await rt.create(f"good{n}") for n in range(20)]
        bad = await rt.create("bad")
        reading = bad.events()
        waiting = [asyncio.create_task(bad.wait(99)), asyncio.create_task(bad.wait_idle())]
        await give_up(rt, "bad")
        told = (await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5))[0]
        assert isinstance(told, SessionClosed)
        assert "crashed and was given up" in str(told)
        assert "gave up a child: bad ended (crashed)" in caplog.text
        ended = await asyncio.wait_for(asyncio.gather(*(one.run("fine") for one in others)), 10)
        assert {"re: fine"} == {one.last_message for one in ended}
        seen = [item.event async for item in reading if isinstance(item, Envelope)]
        turns = [type(event) for event in seen if isinstance(event, TurnStarted | TurnEnded)]
        assert [TurnStarted, TurnEnded] * (len(turns) // 2) == turns
        assert len(of(TurnStarted, rt, "bad")) == len(of(TurnEnded, rt, "bad")) >= 2
        assert 1 == rt.health()["given_up"]
        assert rt.health()["ok"]
        assert 'decision="give_up"} 1.0' in rt.metrics_text()


async def test_a_session_that_was_given_up_can_be_opened_again(tmp_path):
    """Its log is whole, so that whoever opens it goes on from there, also from a store on the disk."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    async with open_runtime(QUICK, model=echo(), plugins=[breaking("bad", times=4)], store=url) as rt:
        s = await rt.create("bad")
        await give_up(rt, "bad")
        with pytest.raises(SessionClosed, match="open it again"):
            await s.submit("more")
        again = await rt.open("bad")
        ended = await asyncio.wait_for(again.run("still there?"), 5)
        assert "re: still there?" == ended.last_message
        assert () == again.state()["queue"]


async def test_many_bad_sessions_reach_wait():
    """A fault that many sessions have is nobody's own: when too many are given up the runtime says so in `wait`."""
    config = RuntimeConfig(runtime=Bounds(shutdown_s=2.0), supervisor=Supervision(restarts_max=1, period_s=60.0))
    bad = [f"bad{n}" for n in range(3)]
    rt = await open_runtime(config, model=echo(), plugins=[breaking(*bad)]).start()
    good = await rt.create("good")
    for id in bad:
        await rt.create(id)
    waiting = [asyncio.create_task(rt.wait()), asyncio.create_task(good.wait(1))]
    await give_up(rt, *bad[:1])
    assert "re: hi" == (await good.run("hi")).last_message
    ending = asyncio.create_task(give_up(rt, *bad[1:]))
    told = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)
    await ending
    assert (IntensityReached, TurnEnded) == (type(told[0]), type(told[1]))
    assert "sessions" in str(told[0])
    health = rt.health()
    assert (False, ["the supervisors gave up: no session starts any more"]) == (health["ok"], health["problems"])
    with pytest.raises(SessionClosed):
        await rt.create()
    await rt.close()
    assert () == rt.left


def supervisors(rt):
    """The supervisors below the sessions', with who is below each."""
    sessions = next(child for child in rt.statistics()["tree"]["children"] if child["id"] == "sessions")
    return {
        child["id"]: [below["id"] for below in child["about"]["children"]]
        for child in sessions["about"]["children"]
        if child["kind"] == "supervisor"
    }


async def test_a_root_gets_a_supervisor_with_its_first_agent_and_loses_it_with_the_last():
    """A session without agents has none; all agents of one root, whatever their depth, are below one."""
    play = Parent(
        spawn("a", "b"), wait(), child=lambda prompt: spawn("x") if prompt.session == "p.a" else Reply("done")
    )
    async with open_runtime(model=ScriptedModel(play)) as rt:
        for id in ("lonely", "p"):
            await rt.create(id)
        assert {} == supervisors(rt)
        p = await rt.open("p")
        await p.run("go")
        await until(lambda: ["p.a", "p.a.x", "p.b"] == sorted(supervisors(rt).get("agents of p", [])))
        lives = len(rt._ground.guest._live)
        for id in ("p.a", "p.b"):
            await (await rt.open(id)).stop()
        await until(lambda: {} == supervisors(rt))
        await until(lambda: lives - 4 == len(rt._ground.guest._live))
        assert {} == rt._sessions._troupes._below
        assert "p" == (await rt.open("p")).id
        await rt.open("p.a.x")
        assert {"agents of p": ["p.a", "p.a.x"]} == supervisors(rt)
        await (await rt.open("p.a")).stop()
        await until(lambda: {} == supervisors(rt))


async def test_crashes_of_agents_are_news_and_never_counted():
    """However many agents of a tree crash at once, each is a failure at its parent, and nobody is ended for it."""
    names = [f"a{n}" for n in range(8)]
    config = RuntimeConfig(agents=Agents(running_max=16), supervisor=Supervision(restarts_max=0))
    plugins = [*rt_default(), breaking(*(f"p.{name}" for name in names))]
    play = Parent(spawn(*names), wait(), child=lambda prompt: Reply("never"))
    async with open_runtime(config, model=ScriptedModel(play), plugins=plugins) as rt:
        p = await rt.create("p")
        other = await rt.create("other")
        await asyncio.wait_for(p.run("go"), 10)
        await until(lambda: len(of(ChildEnded, rt, "p")) == len(names))
        await p.wait_idle()
        assert {"failed"} == {one.status for one in of(ChildEnded, rt, "p")}
        assert "parent done" == (await other.run("hi")).last_message
        assert {} == supervisors(rt)
        for name in names:
            assert 1 == len(of(TurnEnded, rt, f"p.{name}"))


def rt_default():
    """The plugins of a runtime that is given none."""
    from callboard.plugins import DEFAULT

    return DEFAULT


async def test_agents_go_with_a_root_that_is_given_up():
    """The agents of a bad session are stopped with it, and those of another work on."""

    async def child(prompt):
        return await lasting(prompt)

    play = {"bad": Parent(spawn("a"), child=child), "good": Parent(spawn("a"), child=child)}
    left = {"bad": 10**9}

    async def broken(view, messages):
        if view.turn > 1 and left.get(view.session):
            raise KeyError("a bug in a plugin")
        return Enter(messages)

    async def reply(prompt):
        said = play[prompt.session.partition(".")[0]](prompt)
        return await said if asyncio.iscoroutine(said) else said

    plugins = [*rt_default(), Plugin("broken", before_step=broken)]
    async with open_runtime(QUICK, model=ScriptedModel(reply), plugins=plugins) as rt:
        for id in ("bad", "good"):
            await (await rt.create(id)).run("go")
        await until(lambda: {"agents of bad", "agents of good"} == set(supervisors(rt)))
        await give_up(rt, "bad")
        await until(lambda: {"agents of good": ["good.a"]} == supervisors(rt))
        assert "running" == (await rt.open("good.a")).state()["phase"]
        (ended,) = of(TurnEnded, rt, "bad.a")
        assert ("aborted", "shutdown") == (ended.reason, ended.cause)


async def test_poison_is_set_aside_with_a_reason_and_the_session_goes_on(caplog):
    """The message that was being claimed at two crashes leaves the queue by an event that says why."""

    async def poisoned(view, messages):
        if any("poison" in message.text for message in messages):
            raise KeyError("cannot take this")
        return Enter(messages)

    async with open_runtime(QUICK, model=echo(), plugins=[Plugin("poisoned", before_step=poisoned)]) as rt:
        s = await rt.create("s")
        first = await asyncio.wait_for(s.run("poison", id="bad"), 5)
        assert "interrupted" == first.reason
        assert "re: good" == (await asyncio.wait_for(s.run("good"), 5)).last_message
        assert [MessageWithdrawn("bad", "crashes")] == of(MessageWithdrawn, rt, "s")
        assert "message 'bad' was being claimed at two crashes" in caplog.text
        assert () == s.state()["queue"]
        (_, _, sessions) = rt.statistics()["tree"]["children"]
        assert [2] == [child["restarts"] for child in sessions["about"]["children"]]


@pytest.mark.parametrize("seed", range(8))
async def test_random_crashes_end_no_other_session(seed):
    """Sessions that crash at random points are started again on their logs or given up alone; every log is whole."""
    chance = random.Random(seed)
    doomed = {f"s{n}": chance.choice((0, 0, 1, 2, 3, 50)) for n in range(10)}
    left = dict(doomed)

    async def sometimes(view, messages):
        await trio.sleep(chance.uniform(0, 0.01))
        if left[view.session] > 0:
            left[view.session] -= 1
            raise LookupError("a bug in a plugin")
        return Enter(messages)

    config = RuntimeConfig(runtime=Bounds(shutdown_s=2.0), supervisor=Supervision(restarts_max=3, period_s=60.0))
    async with open_runtime(config, model=echo(), plugins=[Plugin("sometimes", before_step=sometimes)]) as rt:
        sessions = [await rt.create(id) for id in doomed]
        for number in range(8):
            await asyncio.gather(*(one.submit(f"m{number}") for one in sessions), return_exceptions=True)
            await asyncio.sleep(0.02)
        # A session is given up with its fourth crash; more than three of those within the period end all.
        bad = {id for id, times in doomed.items() if times > 3}
        if len(bad) <= 3:
            await give_up(rt, *bad)
            for one in sessions:
                if one.id not in bad:
                    for _ in range(5):
                        ended = await asyncio.wait_for(one.run("last"), 5)
                    assert "re: last" == ended.last_message, f"seed {seed}"
            assert len(bad) == rt.health()["given_up"], f"seed {seed}"
        for id in doomed:
            consistent(events(rt, id))


def consistent(log):
    """Every event may follow those before it, and no turn is left open."""
    assert sum(isinstance(event, TurnStarted) for event in log) == sum(isinstance(event, TurnEnded) for event in log)


async def test_no_session_is_called_as_a_supervisor_is():
    """An id that is that of the supervisor of somebody's agents is refused; they work on."""
    async with open_runtime(model=ScriptedModel(Parent(spawn("a"), child=lasting))) as rt:
        p = await rt.create("p")
        await p.run("go")
        with pytest.raises(UsageError, match="those of supervisors"):
            await rt.create("agents of p")
        with pytest.raises(UsageError, match="those of supervisors"):
            await p.fork(session_id="agents of q")
        assert {"agents of p": ["p.a"]} == supervisors(rt)
        assert "running" == rt.actor("p.a").phase.value

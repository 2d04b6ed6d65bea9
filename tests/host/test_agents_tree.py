"""Trees of agents: interrupts and stops go down, ends go up."""

import asyncio

import pytest
import trio

import callboard.actors
from callboard.actors import (
    ChildEnded,
    Reply,
    TurnEnded,
    TurnStarted,
    UsageError,
)
from callboard.actors.testing import ScriptedModel
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.settings import Agents

from .fair import Since
from .hosted import SLACK_S, until
from .parents import Parent, of, spawn, wait


async def tree(rt):
    """A root, two children and a grandchild, all in a request that takes for ever."""
    s = await rt.create("p")
    await s.submit("go")
    await until(lambda: all(rt._sessions.registry.get(name) is not None for name in ("p.a", "p.b", "p.a.x")), 3)
    await until(lambda: sum(one.state()["phase"] == "running" for one in rt.sessions()) == 4)
    return s


async def play_tree(prompt):
    """The model of such a tree."""
    if prompt.step == 1 and prompt.turn == 1 and prompt.session == "p":
        return spawn("a", "b")
    if prompt.step == 1 and prompt.turn == 1 and prompt.session == "p.a":
        return spawn("x")
    if prompt.turn > 1:
        return Reply("next turn works")
    await trio.sleep(60)
    return Reply("late")


async def test_interrupt_goes_down_the_tree():
    """Interrupting a parent interrupts all below it in their windows, nobody is woken by that, and all work again."""
    async with open_runtime(model=ScriptedModel(play_tree)) as rt:
        s = await tree(rt)
        began = Since()
        await s.interrupt()
        await s.wait(1)
        for name in ("p.a", "p.b", "p.a.x"):
            ended = await (await rt.open(name)).wait(1)
            assert ("aborted", "parent") == (ended.reason, ended.cause)
        assert began.own_s() < 0.1 + 2 * SLACK_S
        await until(lambda: len(of(ChildEnded, rt, "p")) == 2)
        await asyncio.sleep(0.05)
        assert {"interrupted"} == {one.status for one in of(ChildEnded, rt, "p")}
        assert [1, 1] == [len(of(TurnStarted, rt, name)) for name in ("p", "p.a")]
        assert {"idle"} == {one.state()["phase"] for one in rt.sessions()}
        for one in rt.sessions():
            assert "next turn works" == (await one.run("again")).last_message
        names = ("p", "p.a", "p.b", "p.a.x")
        await until(lambda: all(len(of(TurnStarted, rt, n)) == len(of(TurnEnded, rt, n)) for n in names))
        assert all(len(of(TurnStarted, rt, name)) >= 2 for name in names)  # and ends of children wake their parents


async def test_interrupt_without_cascade():
    """With `cascade = false` children work on, and their ends are told as ever."""
    config = RuntimeConfig(agents=Agents(cascade=False, notify="queue"))
    async with open_runtime(config, model=ScriptedModel(play_tree)) as rt:
        s = await tree(rt)
        await s.interrupt()
        assert 2 == (await s.wait(1)).live_children
        await asyncio.sleep(0.15)
        assert ["idle", "running", "running", "running"] == sorted(one.state()["phase"] for one in rt.sessions())
        await (await rt.open("p.b")).interrupt()
        await until(lambda: of(ChildEnded, rt, "p"))
        assert [("p.b", "interrupted")] == [(one.child, one.status) for one in of(ChildEnded, rt, "p")]


async def test_interrupt_of_one_child():
    """Interrupting one child leaves its parent and its siblings alone, and tells the parent."""
    config = RuntimeConfig(agents=Agents(notify="queue"))
    async with open_runtime(config, model=ScriptedModel(play_tree)) as rt:
        await tree(rt)
        await (await rt.open("p.a")).interrupt()
        await until(lambda: of(ChildEnded, rt, "p"))
        assert [("p.a", "interrupted")] == [(one.child, one.status) for one in of(ChildEnded, rt, "p")]
        assert {"p": "running", "p.b": "running", "p.a": "idle", "p.a.x": "idle"} == {
            one.id: one.state()["phase"] for one in rt.sessions()
        }


async def test_stop_goes_down_the_tree():
    """Stopping a parent stops all below it, the deepest first, and each parent has recorded the ends below it."""
    async with open_runtime(model=ScriptedModel(play_tree)) as rt:
        s = await tree(rt)
        began = Since()
        await s.stop()
        assert began.own_s() < 3 * 0.1 + 3 * SLACK_S
        assert () == rt.sessions()
        for name, children in (("p", ["p.a", "p.b"]), ("p.a", ["p.a.x"])):
            assert children == sorted(one.child for one in of(ChildEnded, rt, name))
            assert {"stopped"} == {one.status for one in of(ChildEnded, rt, name)}
        assert {"shutdown"} == {of(TurnEnded, rt, name)[0].cause for name in ("p", "p.a", "p.b", "p.a.x")}
        assert ({}, set()) == (rt._sessions.spawner.trees.open, rt._sessions.spawner.closing)


async def test_closing_the_runtime_closes_the_tree():
    """Closing the runtime leaves the same logs as stopping the root does."""
    rt = await open_runtime(model=ScriptedModel(play_tree)).start()
    await tree(rt)
    await rt.close()
    assert () == rt.left
    for name, children in (("p", ["p.a", "p.b"]), ("p.a", ["p.a.x"])):
        assert children == sorted(one.child for one in of(ChildEnded, rt, name))
    assert [1] * 4 == [len(of(TurnEnded, rt, name)) for name in ("p", "p.a", "p.b", "p.a.x")]


async def test_child_that_is_opened_by_itself():
    """A child that was stopped and is opened again tells its parent of its next turn as ever."""
    play = Parent(spawn("a"), wait(), child=lambda prompt: Reply(f"turn {prompt.turn}"))
    config = RuntimeConfig(agents=Agents(notify="queue"))
    async with open_runtime(config, model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        await s.run("go")
        await (await rt.open("p.a")).stop()
        assert ("p",) == tuple(one.id for one in rt.sessions())
        await (await rt.open("p.a")).run("more")
        await until(lambda: len(of(ChildEnded, rt, "p")) == 2)
        assert [(1, "turn 1"), (2, "turn 2")] == [(one.turn, one.text) for one in of(ChildEnded, rt, "p")]
        assert 1 == len(s.children())


async def test_spawn_from_outside():
    """A program may start a subagent of a session, and hears what is in the way."""
    async with open_runtime(model=ScriptedModel(Parent())) as rt:
        s = await rt.create("p")
        child = await rt.spawn("p", "kid", "do it", notify=False)
        await until(lambda: of(ChildEnded, rt, "p"))
        assert ("p.kid", ("p.kid",)) == (child, s.children())
        with pytest.raises(UsageError, match="exists already"):
            await rt.spawn("p", "kid", "do it")
        with pytest.raises(callboard.actors.SessionClosed):
            await rt.spawn("nobody", "kid", "do it")
        await asyncio.sleep(0.02)
        assert [] == of(TurnStarted, rt, "p")

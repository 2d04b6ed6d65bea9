"""Agents that were ended for good: nothing that comes later brings one back, and its last turn is told."""

import asyncio
import os
import subprocess
import sys
import time
from functools import partial

import pytest

from callboard.actors import Call, ChildEnded, Reply, SessionClosed, TurnStarted
from callboard.actors.facts import Reminder, ReminderSet
from callboard.actors.memory import MemoryStore
from callboard.actors.testing import FakeWall, ScriptedModel
from callboard.plugins.schedule import SCHEDULE_PLUGIN
from callboard.runtime import DEFAULT, open_runtime

from .hosted import until
from .parents import Parent, of, spawn, wait

PLUGINS = tuple({plugin.name: plugin for plugin in (*DEFAULT, SCHEDULE_PLUGIN)}.values())
CLOSE = Reply("", [Call("close_agent", {"target": "a"})])
KILLED = """
import asyncio, os, sys, trio
from callboard.actors import Call, Reply
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime

STEPS = (
    Call("spawn_agent", {"task_name": "a", "message": "w"}),
    Call("wait_agent", {}),
    Call("followup_task", {"target": "a", "message": "more"}),
    Call("close_agent", {"target": "a"}),
)

async def model(prompt):
    if prompt.session == "p":
        return Reply("", [STEPS[prompt.step - 1]])
    if prompt.turn == 2:
        await trio.sleep(60)
    return Reply("first answer")

async def main():
    async with open_runtime(model=ScriptedModel(model), store=sys.argv[1]) as rt:
        async def stop(session_id):
            while rt.actor("p.a").log.seq < 10:
                await trio.sleep(0.01)
            os._exit(9)
        rt._sessions.stop_session = stop
        await (await rt.create("p")).run("go")

asyncio.run(main())
"""


async def closed(rt):
    """A session whose only agent has answered and is closed."""
    s = await rt.create("p")
    await s.run("go")
    assert (("completed", True),) == tuple((one["status"], one["closed"]) for one in s.state()["children"])
    return s


@pytest.mark.parametrize("trigger", [True, False])
async def test_mail_to_a_closed_agent(trigger):
    """Mail of a program to it, or to one below it, is refused like that of an agent, and opens nobody."""
    child = Parent(spawn("b"), wait())
    model = ScriptedModel(Parent(spawn("a"), wait(), CLOSE, child=lambda prompt: nested(prompt, child)))
    async with open_runtime(model=model) as rt:
        s = await closed(rt)
        for to in ("/root/a", "p.a", "/root/a/b"):
            with pytest.raises(SessionClosed, match="was closed: it takes no messages"):
                await s.mail(to, "wake up", trigger=trigger)
        assert ["p"] == [one.id for one in rt.sessions()]


def nested(prompt, child):
    """The replies of an agent that starts one itself."""
    return child.replies.pop(0) if prompt.session == "p.a" and child.replies else Reply("ok")


async def test_a_reminder_does_not_wake_a_closed_agent():
    """What comes due for it later, in another life of the program, opens nobody."""
    store = MemoryStore()

    def runtime():
        return open_runtime(model=ScriptedModel(lambda prompt: Reply("ok")), store=store, plugins=PLUGINS)

    async with runtime() as rt:
        await rt.create("p")
        await (await rt.open(await rt.spawn("p", "late", "w"))).wait_idle()
        due_ms = time.time_ns() // 1_000_000 + 600_000
        rt.actor("p.late").log.append(ReminderSet(Reminder("schedule-1", "after", "x", "60", due_ms, 1)))
        await rt._sessions._one.on_trio(partial(rt._sessions.spawner.close, "p.late"))
    store_due = store.due(2**62, (-1, ""), 10)
    assert [(due_ms, "p.late")] == list(store_due)
    async with open_runtime(model=ScriptedModel(), store=store, plugins=PLUGINS, clock=FakeWall(due_ms + 10_000)) as rt:
        await until(lambda: rt._calendar._tries)
        await asyncio.sleep(0.1)
        assert [] == [one.id for one in rt.sessions()]


def ends(rt):
    """Whether both turns have ended."""
    return 2 == len(of(ChildEnded, rt, "p"))


async def test_a_turn_that_closing_cut_off_is_told_after_a_crash(tmp_path):
    """The program died between the closing of an agent and the end of its second turn: its parent hears of an end."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = [sys.executable, "-c", KILLED, url]
    done = await asyncio.to_thread(subprocess.run, program, env=environ, timeout=30, check=False)
    assert 9 == done.returncode
    for _ in range(2):  # once, however often it is opened
        async with open_runtime(model=ScriptedModel(), store=url) as rt:
            await rt.open("p")
            await until(partial(ends, rt))
            told = [(one.turn, one.status, one.text) for one in of(ChildEnded, rt, "p")]
            assert [(1, "completed", "first answer"), (2, "stopped", "")] == told
            assert ["p"] == [one.id for one in rt.sessions()]
    async with open_runtime(model=ScriptedModel(), store=url) as rt:
        child = await rt.open("p.a")
        assert "interrupted" == (await child.wait(2)).reason
        assert 2 == len(of(ChildEnded, rt, "p"))
        assert 2 == len(of(TurnStarted, rt, "p.a"))

"""Subagents: beside their parent, within limits, each end told once."""

import asyncio
import json
import time
from itertools import pairwise

import pytest
import trio

import callboard.actors
from callboard.actors import (
    Call,
    ChildEnded,
    ChildSpawned,
    Envelope,
    MessageQueued,
    Plugin,
    Reply,
    StepStarted,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    tool,
)
from callboard.actors.messages import Steered
from callboard.actors.testing import ScriptedModel
from callboard.plugins.orders import NOBODY
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.settings import Agents

from .hosted import SLACK_S, events, until
from .parents import Parent, lasting, of, results, spawn, wait


async def test_parent_and_children_at_once():
    """The parent works on while its children do, and their steps are interleaved."""

    async def child(prompt):
        await trio.sleep(0.01)
        return Reply("", [Call("step")]) if prompt.step < 5 else Reply("child done")

    @tool(effect="none")
    async def step() -> str:
        """One step."""
        await trio.sleep(0.005)
        return "ok"

    play = Parent(spawn("a", "b", "c"), *([Reply("", [Call("step")])] * 4), wait(), child=child)
    async with open_runtime(model=ScriptedModel(play), tools=[step]) as rt:
        s = await rt.create("p")
        steps: list[str] = []

        async def watch(name):
            async for item in rt.read(name):
                steps.extend([name] * (isinstance(item, Envelope) and isinstance(item.event, StepStarted)))

        watching = [asyncio.create_task(watch("p"))]
        running = asyncio.create_task(s.run("go"))
        await until(lambda: len(s.children()) == 3)
        watching += [asyncio.create_task(watch(name)) for name in s.children()]
        ended = await running
        await s.wait_idle()
        assert ("parent done", 8) == (ended.last_message, ended.tool_calls)
        await until(lambda: len(steps) >= 15 + 6)
        changes = sum(one != other for one, other in pairwise(steps))
        assert changes >= 8, steps
        waited = json.loads(play.read[-1])
        assert ("Wait completed.", False) == (waited["message"], waited["timed_out"])
        assert [(f"/root/{n}", "completed", "child done") for n in "abc"] == [
            (one["path"], one["status"], one["text"]) for one in waited["agents"]
        ]
        for task in watching:
            task.cancel()


@pytest.mark.parametrize(
    ("limits", "names", "refused"),
    [
        ({"depth_max": 0}, ["a"], "depth_max is 0"),
        ({"running_max": 2}, ["a", "b", "c"], "running_max is 2"),
        ({"breadth_max": 2}, ["a", "b", "c"], "breadth_max is 2"),
        ({"running_max": 0}, ["a"], "running_max is 0"),
    ],
    ids=str,
)
async def test_limits(limits, names, refused):
    """What a limit refuses says which it is, and everything below it starts."""
    play = Parent(spawn(*names), child=lasting)
    async with open_runtime(RuntimeConfig(agents=Agents(**limits)), model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        await s.run("go")
        assert [True] * (len(names) - 1) == ["path" in text for text in play.read[:-1]]
        assert play.read[-1].startswith(f"spawn refused: {refused}.")
        assert len(names) - 1 == len(s.children())
        assert ["completed"] * (len(names) - 1) + ["failed"] == [one.receipt for one in of(ToolReturned, rt, "p")]


async def test_spawned_max_counts_what_agents_start_and_not_the_root():
    """The agents of a tree together start no more than the limit; the root goes on."""

    def child(prompt):
        if prompt.session.count(".") == 1 and prompt.turn == 1 and prompt.step == 1:
            return spawn("x", "y")
        return Reply("; ".join(results(prompt)) or "leaf")

    config = RuntimeConfig(agents=Agents(spawned_max=3))
    play = Parent(spawn("a"), wait(), spawn("b"), wait(), spawn("c"), wait(), child=child)
    async with open_runtime(config, model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        await s.run("go")
        await s.wait_idle()
        assert 3 == len(s.children())
        texts = [one.text for one in of(ChildEnded, rt, "p") if one.turn == 1]
        assert [0, 1, 2] == [text.count("spawned_max is 3") for text in texts]


@pytest.mark.parametrize("how", ["completed", "failed", "interrupted", "crashed", "stopped"])
async def test_slot_is_free_after_any_end(how):
    """However an agent ends, its slot is free, its end is told once with its status, and the next one starts."""
    ends = {
        "completed": lambda prompt: Reply("fine"),
        "failed": lambda prompt: "no reply at all",
        "interrupted": lasting,
        "crashed": lambda prompt: Reply("fine"),
        "stopped": lasting,
    }

    async def broken(view, messages):
        if how == "crashed" and view.session == "p.a":
            raise KeyError("a bug in a plugin")
        return callboard.actors.Enter(messages)

    def child(prompt):
        return ends[how](prompt) if prompt.session == "p.a" else Reply("second")

    config = RuntimeConfig(agents=Agents(running_max=1, notify="queue"))
    play = Parent(spawn("a"), Reply("first"), spawn("b"), wait(targets=["b"]), Reply("last"), child=child)
    plugins = (*callboard.plugins.DEFAULT, Plugin("broken", before_step=broken))
    async with open_runtime(config, model=ScriptedModel(play), plugins=plugins) as rt:
        s = await rt.create("p")
        await s.run("go")
        if how in ("interrupted", "stopped"):
            a = await rt.open("p.a")
            await until(lambda: a.state()["phase"] == "running")
            await (a.interrupt() if how == "interrupted" else a.stop())
        await until(lambda: s.state()["children"][0]["status"] not in ("pending", "running"))
        expected = "failed" if how == "crashed" else how
        assert [expected] == [one.status for one in of(ChildEnded, rt, "p")]
        await s.run("again")
        await s.wait_idle()
        told = [(one.child, one.status, one.turn) for one in of(ChildEnded, rt, "p")]
        assert [("p.a", expected, 1), ("p.b", "completed", 1)] == told
        mail = [one for one in of(MessageQueued, rt, "p") if one.source.startswith("agent:")]
        assert ["agent:/root/a", "agent:/root/b"] == [one.source for one in mail]
        if how == "crashed":
            assert "crashed" in mail[0].text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"task_name": "", "message": "x"}, "task_name must be"),
        ({"task_name": "Big", "message": "x"}, "task_name must be"),
        ({"task_name": "a/b", "message": "x"}, "task_name must be"),
        ({"task_name": "..", "message": "x"}, "task_name must be"),
        ({"task_name": "root", "message": "x"}, "task_name must be"),
        ({"task_name": "a" * 65, "message": "x"}, "task_name must be"),
        ({"task_name": "a\n", "message": "x"}, "task_name must be"),
        ({"task_name": "ok", "message": " "}, "message for the agent is empty"),
        ({"task_name": "ok", "message": "x" * 1_000_001}, "at most 1,000,000"),
        ({"task_name": "ok", "message": "x", "model": "gpt-nothing"}, "is not known"),
        ({"task_name": "ok"}, "missing required field `message`"),
        ({"task_name": "ok", "message": "x", "more": 1}, "unknown field `more`"),
        ({"task_name": 5, "message": "x"}, "Expected `str`, got `int`"),
        ({"task_name": "taken", "message": "x"}, "exists already"),
    ],
    ids=lambda value: repr(value)[:60],
)
async def test_spawn_with_wrong_arguments(arguments, words):
    """A wrong argument is a failed call that says what is wrong, and no agent starts."""
    play = Parent(Reply("", [Call("spawn_agent", arguments)]))
    async with open_runtime(model=ScriptedModel(play)) as rt:
        await rt.create("p.taken")
        s = await rt.create("p")
        await s.run("go")
        assert words in play.read[0]
        assert () == s.children()
        assert ["failed"] == [one.receipt for one in of(ToolReturned, rt, "p")]


async def test_names_are_unique_among_siblings_alone():
    """A name that a sibling has or had is refused; the same name below another agent is another path."""

    def child(prompt):
        return spawn("a") if prompt.session == "p.a" and prompt.step == 1 else Reply("done")

    play = Parent(spawn("a", "a"), wait(), spawn("a"), child=child)
    async with open_runtime(model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        await s.run("go")
        await s.wait_idle()
        spawned = [one for name in ("p", "p.a") for one in of(ChildSpawned, rt, name)]
        assert [("p.a", "/root/a"), ("p.a.a", "/root/a/a")] == [(one.child, one.path) for one in spawned]
        assert 2 == sum("exists already" in text for text in play.read)


async def test_wait_agent():
    """Waiting says who is done, times out, takes names and paths, and refuses numbers out of range and strangers."""

    async def child(prompt):
        if prompt.session == "p.slow":
            await trio.sleep(60)
        return Reply("quick one done")

    play = Parent(
        Reply("", [Call("list_agents")]),
        wait(),
        spawn("quick", "slow"),
        wait(targets=["quick"]),
        wait(targets=["/root/quick", "quick"], timeout_ms=3_600_000),
        wait(targets=["slow"], timeout_ms=1000),
        wait(timeout_ms=999),
        wait(timeout_ms=3_600_001),
        wait(timeout_ms=-1),
        wait(targets=[]),
        wait(targets=["nobody"]),
        wait(targets=["/root"]),
        wait(targets=["x"] * 101),
        Reply("", [Call("list_agents")]),
        child=child,
    )
    async with open_runtime(model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        began_s = time.monotonic()
        await s.run("go")
        assert 1.0 <= time.monotonic() - began_s < 1.0 + 4 * SLACK_S
        quick = {"path": "/root/quick", "status": "completed", "text": "quick one done"}
        slow = {"path": "/root/slow", "status": "running"}
        done = {"message": "Wait completed.", "timed_out": False, "agents": [quick]}
        assert [{"agents": []}, {**done, "message": NOBODY, "agents": []}] == [
            json.loads(text) for text in play.read[:2]
        ]
        assert [done, done] == [json.loads(text) for text in play.read[4:6]]
        assert {"message": "Wait timed out.", "timed_out": True, "agents": [slow]} == json.loads(play.read[6])
        for text, words in zip(
            play.read[7:13],
            [
                "got 999",
                "got 3600001",
                "got -1",
                "targets is empty",
                '/root/nobody","status":"not_found',
                "/root is not",
            ],
            strict=True,
        ):
            assert words in text
        assert "101 agents" in play.read[13]
        assert [("/root/quick", "completed", "work"), ("/root/slow", "running", "work")] == [
            (one["path"], one["status"], one["task"]) for one in json.loads(play.read[14])["agents"]
        ]


async def test_steer_ends_a_wait():
    """New input for the running turn ends a wait, and says so."""
    play = Parent(spawn("slow"), wait(), Reply("steered"), child=lasting)
    async with open_runtime(model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        running = asyncio.create_task(s.run("go"))
        await until(lambda: any(e.name == "wait_agent" for e in of(callboard.actors.ToolCalled, rt, "p")))
        assert Steered(1) == await s.steer("look here", expected_turn=1)
        assert "steered" == (await asyncio.wait_for(running, 2)).last_message
        waited = json.loads(play.read[-1])
        assert ("Wait interrupted by new input.", False) == (waited["message"], waited["timed_out"])


@pytest.mark.parametrize("notify", ["wake", "queue"])
async def test_mail_to_an_idle_parent(notify):
    """The end of a child wakes an idle parent, or waits for its next turn, as configured."""

    async def child(prompt):
        await trio.sleep(0.05)
        return Reply("child news")

    play = Parent(spawn("a"), Reply("not waiting"), Reply("second turn"), child=child)
    config = RuntimeConfig(agents=Agents(notify=notify))
    model = ScriptedModel(play)
    async with open_runtime(config, model=model) as rt:
        s = await rt.create("p")
        ended = await s.run("go")
        assert ("not waiting", 1) == (ended.last_message, ended.live_children)
        await until(lambda: of(ChildEnded, rt, "p"))
        await asyncio.sleep(0.05)
        await s.wait_idle()
        starts = [one.start for one in of(TurnStarted, rt, "p")]
        if notify == "wake":
            assert (["user", "automatic"], ()) == (starts, tuple(s.state()["queue"]))
        else:
            assert (["user"], 1) == (starts, len(s.state()["queue"]))
            await s.run("next")
            assert () == tuple(s.state()["queue"])
        seen = [m.text for p in model.prompts for m in p.messages if "child news" in getattr(m, "text", "")]
        assert {"Agent /root/a finished.\nchild news"} == set(seen)


async def test_end_is_never_told_before_it_is_one():
    """A child's end stands in its own log, durable, before the parent hears of it, whatever the order of ends."""
    told: list[tuple[str, bool]] = []

    async def child(prompt):
        await trio.sleep(0.001 * (hash(prompt.session) % 5))
        return Reply("done")

    names = [f"n{n}" for n in range(8)]
    play = Parent(spawn(*names), wait(), child=child)
    async with open_runtime(model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        running = asyncio.create_task(s.run("go"))
        async for item in s.events():
            if isinstance(item, Envelope) and isinstance(item.event, ChildEnded):
                told.append((item.event.child, any(isinstance(e, TurnEnded) for e in events(rt, item.event.child))))
            if len(told) == 8:
                break
        await running
        assert {(f"p.{name}", True) for name in names} == set(told)

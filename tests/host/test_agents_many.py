"""Many agents at once: each end is told once, and none before it is one."""

import time
from collections import Counter

import pytest
import trio

from callboard.actors import (
    AbortRequested,
    Allow,
    Call,
    ChildEnded,
    ChildSpawned,
    Hook,
    MessageQueued,
    Reply,
    ToolReturned,
    TurnEnded,
    User,
    tool,
)
from callboard.actors.children import CHILDREN
from callboard.actors.testing import ScriptedModel
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.settings import Agents, Bounds

from .fair import Since
from .hosted import until
from .parents import Parent, of, results, spawn, wait

MANY = 1000


@pytest.mark.limit_s(240)
async def test_a_thousand_that_end_at_once():
    """Of a thousand agents that end in no time each end is told once, after it is on its own log, and read once."""
    limits = Agents(notify="queue", running_max=MANY, breadth_max=MANY, spawned_max=MANY)
    early: list[str] = []
    model = ScriptedModel(lambda prompt: Reply("done"))
    config = RuntimeConfig(agents=limits, runtime=Bounds(mailbox_max=2 * MANY))
    async with open_runtime(config, model=model) as rt:
        s = await rt.create("p")
        live, waiting = rt._sessions.registry.live, {f"p.n{n}" for n in range(MANY)}
        log = live["p"].log

        def look():
            """After each append to the parent's log: whose end is new there has it on its own log, on the disk."""
            for child in log[CHILDREN]:
                if child.turn and child.id in waiting:
                    waiting.discard(child.id)
                    own = live[child.id].log
                    if own.last_end is None or own.durable < own.seq - 1:
                        early.append(child.id)

        log.watch(look)
        for number in range(MANY):
            await rt.spawn("p", f"n{number}", "work")
        await until(lambda: not waiting, 60)
        log.unwatch(look)
        assert [] == early
        told = Counter((one.child, one.turn, one.status) for one in of(ChildEnded, rt, "p"))
        assert Counter({(f"p.n{n}", 1, "completed"): 1 for n in range(MANY)}) == told
        assert MANY == len(s.state()["queue"]) == len(of(ChildSpawned, rt, "p"))
        await s.run("go")
        read = Counter(m.source for m in model.prompts[-1].messages if isinstance(m, User) and m.source != "user")
        assert Counter({f"agent:/root/n{n}": 1 for n in range(MANY)}) == read


async def cost_of_each_s(count: int) -> float:
    """Processor seconds for each of so many agents of one parent, from the first start to the last end."""
    limits = Agents(notify="queue", running_max=count, breadth_max=count, spawned_max=count)
    config = RuntimeConfig(agents=limits, runtime=Bounds(mailbox_max=2 * count))
    async with open_runtime(config, model=ScriptedModel(lambda prompt: Reply("done"))) as rt:
        await rt.create("p")
        began_s = time.process_time()
        for number in range(count):
            await rt.spawn("p", f"n{number}", "work")
        log = rt.actor("p").log
        await until(lambda: all(child.turn for child in log[CHILDREN]), 60)
        return (time.process_time() - began_s) / count


@pytest.mark.limit_s(240)
async def test_cost_of_an_agent_does_not_grow_with_its_siblings():
    """Each of 4,000 agents of one parent costs about what each of 1,000 does; it was three times that."""
    few_s, many_s = await cost_of_each_s(1_000), await cost_of_each_s(4_000)
    assert many_s < 1.8 * few_s, (few_s, many_s)


async def test_twelve_that_end_while_a_tool_runs():
    """The ends of twelve agents that come while a tool of their parent runs are all read at its next step."""
    all_done = trio.Event()

    @tool(effect="none")
    async def work() -> str:
        """Work until they all have ended."""
        await all_done.wait()
        return "worked"

    names = [f"n{n}" for n in range(12)]
    play = Parent(spawn(*names), Reply("", [Call("work")]), child=lambda prompt: Reply(f"{prompt.session} did it"))
    model = ScriptedModel(play)
    config = RuntimeConfig(agents=Agents(running_max=12))
    async with open_runtime(config, model=model, tools=[work]) as rt:
        s = await rt.create("p")
        await s.submit("go")
        await until(lambda: len(of(ChildEnded, rt, "p")) == 12)
        all_done.set()
        await s.wait(1)
        last = [prompt for prompt in model.prompts if prompt.session == "p"][2]
        read = [m.text for m in last.messages if isinstance(m, User) and m.source.startswith("agent:")]
        assert {f"Agent /root/{name} finished.\np.{name} did it" for name in names} == set(read)
        assert 12 == len(read)
        await s.wait_idle()
        assert 1 == len(of(TurnEnded, rt, "p"))


async def test_hooks_see_whose_call_it_is():
    """Every call in the tree is asked about under the path of its agent, two levels down as well."""
    asked = []

    async def before(call):
        asked.append((call.path, call.name))
        return Allow()

    def child(prompt):
        if prompt.session == "p.a" and prompt.step == 1:
            return spawn("x")
        if prompt.session == "p.a" and prompt.step == 2:
            return wait()
        return Reply("", [Call("list_agents")]) if prompt.step == 1 else Reply("; ".join(results(prompt)))

    play = Parent(spawn("a"), wait(), child=child)
    config = RuntimeConfig(agents=Agents(notify="queue"))
    async with open_runtime(config, model=ScriptedModel(play), hooks=[Hook("see", before_tool=before)]) as rt:
        s = await rt.create("p")
        await s.run("go")
        await s.wait_idle()
        assert {
            ("/root", "spawn_agent"),
            ("/root", "wait_agent"),
            ("/root/a", "spawn_agent"),
            ("/root/a", "wait_agent"),
            ("/root/a/x", "list_agents"),
        } == set(asked)
        assert ["completed"] == [one.receipt for one in of(ToolReturned, rt, "p.a.x")]


async def test_children_hear_of_an_abort_first():
    """The interrupt of a parent is on the logs of those below it at once, and within one window all have ended."""

    async def child(prompt):
        await trio.sleep(60)
        return Reply("late")

    play = Parent(spawn("a", "b", "c"), wait(), child=child)
    config = RuntimeConfig(agents=Agents(notify="queue"))
    async with open_runtime(config, model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        await s.submit("go")
        await until(lambda: sum(one.state()["phase"] == "running" for one in rt.sessions()) == 4)
        began = Since()
        await s.interrupt()
        await s.wait(1)
        for name in ("p.a", "p.b", "p.c"):
            assert [AbortRequested(1, "parent")] == of(AbortRequested, rt, name)
            await (await rt.open(name)).wait(1)
        assert began.own_s() < 0.1 + 0.5
        await until(lambda: len(of(ChildEnded, rt, "p")) == 3)
        assert 3 == sum(one.id.startswith("child:") for one in of(MessageQueued, rt, "p"))

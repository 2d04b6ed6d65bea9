"""Agents that wait for a slot in their tree, on virtual time: they do not rest, and nobody is told that they do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

from callboard.actors.memory import MemoryStore
from callboard.actors.messages import Withdrawn
from callboard.actors.model import Prompt, Reply
from callboard.actors.stage import SpawnRequest
from callboard.actors.testing import ScriptedModel
from callboard.plugins import AGENTS_PLUGIN
from callboard.runtime.config import RuntimeConfig
from callboard.runtime.handle import SessionHandle
from callboard.runtime.settings import Agents, Bounds

from .grove import Grove, open_grove
from .strict import until

EVICT_S = 5.0


@attrs.define(eq=False)
class Waiting:
    """An agent that its own agent woke where the tree has no slot, and the one that fills the tree."""

    grove: Grove
    agent: SessionHandle
    other: SessionHandle
    idle: list[float] = attrs.field(factory=list)

    async def wait_idle(self) -> None:
        """Note when the agent was said to rest."""
        await self.agent.wait_idle()
        self.idle.append(trio.current_time())


@asynccontextmanager
async def waiting() -> AsyncIterator[Waiting]:
    """`p.a` waits: `p.b`, and `p.c` by the user's own words, work as long as they may."""
    over = trio.Event()

    async def reply(prompt: Prompt) -> Reply:
        if prompt.session == "p.a.x":
            await over.wait()
        elif prompt.session == "p.b" or (prompt.session == "p.c" and prompt.turn > 1):
            await trio.sleep(1000)
        return Reply("done")

    config = RuntimeConfig(agents=Agents(running_max=2, notify="wake"), runtime=Bounds(idle_evict_s=EVICT_S))
    plugins = [AGENTS_PLUGIN]
    async with open_grove(ScriptedModel(reply), config=config, store=MemoryStore(), plugins=plugins) as grove:
        await grove.create("p")
        handles = {}
        for parent, name in (("p", "c"), ("p", "a"), ("p.a", "x"), ("p", "b")):
            id_ = await grove.sessions.spawn(SpawnRequest(parent, name, "work", notify=name == "x"))
            handles[id_] = await grove.sessions.open(id_)
            if name in "ca":
                await handles[id_].wait(1)
        await handles["p.c"].submit("the user's own")
        await until(lambda: {"p.a.x", "p.b", "p.c"} == set(grove.sessions.spawner.trees.of("p").books.slots))
        over.set()
        await until(lambda: ["p.a"] == list(grove.sessions.spawner.trees.of("p").waiting))
        there = Waiting(grove, handles["p.a"], handles["p.c"])
        grove.stage.nursery.start_soon(there.wait_idle)
        yield there


async def test_agent_that_waits_for_a_slot_does_not_rest():
    """Whoever waits until an agent rests waits for the turn that it has input for, however long no slot is free."""
    async with waiting() as there:
        await trio.sleep(10)
        assert [] == there.idle
        await there.other.interrupt()
        ended = await there.agent.wait(2)
        await until(lambda: there.idle)
        assert "completed" == ended.reason
        await there.agent.wait_idle()


async def test_agent_whose_input_is_taken_back_rests():
    """What an agent waited for with is withdrawn: it rests, without a turn and without a slot."""
    async with waiting() as there:
        assert isinstance(await there.agent.withdraw("child:p.a.x:1"), Withdrawn)
        await until(lambda: there.idle, within_s=1)
        await there.agent.wait_idle()


async def test_agent_that_waits_for_a_slot_stays_in_memory():
    """An agent with something to do is not evicted while it waits, and nobody finds it at rest."""
    async with waiting() as there:
        await trio.sleep(10 * EVICT_S)
        assert "live" == there.grove.sessions.registry.state("p.a")
        assert [] == there.idle

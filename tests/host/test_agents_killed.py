"""Agents that something kills from inside: a failure at their parent, with words, never an empty success or silence."""

import asyncio

import pytest
import trio

from callboard.actors import Call, ChildEnded, MessageQueued, Reply, TurnEnded, tool
from callboard.actors.testing import ScriptedModel
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.settings import Agents

from .hosted import until
from .parents import Parent, of, wait

QUIET = RuntimeConfig(agents=Agents(notify="queue"))


def _cut_turn(rt):
    """The scope of its turn is cancelled, and nobody asked for that."""
    rt._sessions.registry.actor("p.a").scene.window.scope.cancel()


def _cut_actor(rt):
    """The task of its actor is cancelled, and nobody asked for that."""
    (troupe,) = rt._sessions._troupes._below.values()
    troupe._children["p.a"].running.scope.cancel()


def _raise(error):
    def die(rt):
        raise error

    return die


KILLS = {
    "turn": _cut_turn,
    "actor": _cut_actor,
    "exit": _raise(SystemExit(3)),
    "cancelled": _raise(asyncio.CancelledError()),
    "generator": _raise(GeneratorExit()),
    "memory": _raise(MemoryError()),
    "group": _raise(BaseExceptionGroup("all", [SystemExit(1), ValueError("x")])),
}


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize(
    ("where", "how"), [*(("model", how) for how in KILLS), *(("tool", how) for how in ("turn", "actor"))]
)
async def test_killed_from_inside(where, how, background):
    """Whatever ends an agent from inside is told once as a failure that says something, and its slot is free."""

    @tool(effect="none")
    async def die() -> str:
        """Die."""
        KILLS[how](rt)
        await trio.sleep(60)
        return "lives"

    async def child(prompt):
        if where == "model":
            KILLS[how](rt)
            await trio.sleep(60)
        return Reply("", [Call("die")] if prompt.step == 1 else [])

    arguments = {"task_name": "a", "message": "work", "background": background}
    play = Parent(Reply("", [Call("spawn_agent", arguments)]), wait(), child=child)
    async with open_runtime(QUIET, model=ScriptedModel(play), tools=[die]) as rt:
        s = await rt.create("p")
        ended = await asyncio.wait_for(s.run("go"), 10)
        await until(lambda: of(ChildEnded, rt, "p"))
        await s.wait_idle()
        assert ("completed", "parent done") == (ended.reason, ended.last_message)
        (told,) = of(ChildEnded, rt, "p")
        assert ("p.a", "failed", 1) == (told.child, told.status, told.turn)
        assert told.text
        mail = [one.text for one in of(MessageQueued, rt, "p") if one.source == "agent:/root/a"]
        words = f"Agent /root/a failed.\n{told.text}"
        assert ([words] if background else []) == mail
        assert background or words == play.read[0]
        assert {} == rt._sessions.spawner.trees.of("p").books.slots
        (last,) = of(TurnEnded, rt, "p.a")
        assert last.error if how in ("exit", "memory") else last.reason == "interrupted"

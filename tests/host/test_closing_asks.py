"""What a session that is about to be stopped does no more: ask its model, when its agents have ended before it."""

import asyncio

import pytest

from callboard.actors import Reply, ToolCalled, TurnEnded
from callboard.actors.memory import MemoryStore
from callboard.actors.model import Prompt
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime

from .hosted import until
from .parents import is_child, lasting, of, spawn, wait

LIMIT_S = 20.0
STARTED_AND_WAITS = 3


@pytest.mark.parametrize("how", ["close", "stop"])
async def test_no_request_behind_the_end_of_its_agents(how):
    """A parent goes on from waiting when its agents are stopped; it is stopped itself without one more request."""
    asked, store = list[tuple[str, int]](), MemoryStore()

    async def answer(prompt: Prompt) -> Reply:
        asked.append((prompt.session, prompt.step))
        if is_child(prompt):
            return await lasting(prompt)
        return spawn("a", "b") if prompt.step == 1 else wait(timeout_ms=60_000)

    async with open_runtime(model=ScriptedModel(answer), store=store) as rt:
        s = await rt.create("p")
        await s.submit("go")
        await until(lambda: len(of(ToolCalled, rt, "p")) == STARTED_AND_WAITS and len(asked) == STARTED_AND_WAITS + 1)
        async with asyncio.timeout(LIMIT_S):
            await (rt.close() if how == "close" else s.stop())
    assert {("p", 1), ("p", 2), ("p.a", 1), ("p.b", 1)} == set(asked)
    async with open_runtime(model=ScriptedModel([]), store=store) as rt:
        await rt.open("p")
        assert [("aborted", "shutdown", 2)] == [(one.reason, one.cause, one.steps) for one in of(TurnEnded, rt, "p")]

"""Who watches a session hears of what happens when it happens, also while the disk is busy with something earlier."""

import trio

from callboard.actors import Call, PlanStep, PlanUpdated, Reply, ToolCalled, tool
from callboard.actors.memory import MemoryStore
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.plugins.plan import PLAN_PLUGIN

COMMIT_S = 0.01
PLAN = {"plan": [{"step": "wait", "status": "in_progress"}]}


class SlowStore(MemoryStore):
    """Says that something is durable only when `commit` is called."""

    def __init__(self):
        super().__init__()
        self.waiting = []

    def sync(self, done, session=None):
        self.waiting.append(done)

    async def commit(self):
        while True:
            await trio.sleep(COMMIT_S)
            due, self.waiting = self.waiting, []
            for done in due:
                done(None)


class Watcher:
    def __init__(self):
        self.events = []

    def take(self, envelopes):
        self.events += [envelope.event for envelope in envelopes]


@tool(effect="none")
async def linger() -> str:
    """Take long."""
    await trio.sleep(60)
    return "at last"


async def test_a_watcher_sees_what_came_before_a_long_call_and_the_call_itself_while_it_runs():
    """A plan written before a long call is told within a few commits, and so is the start of that call."""
    calls = [Call("update_plan", PLAN, "p"), Call("linger", {}, "l")]
    store, watcher = SlowStore(), Watcher()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.commit)
        model = ScriptedModel([Reply("", calls), Reply("done")])
        async with open_lab(model, tools=[linger], plugins=[PLAN_PLUGIN], store=store) as lab:
            session = await lab.session()
            session.log.follow(watcher)
            await session.submit("go")
            await trio.sleep(10 * COMMIT_S)
            expected = [
                ToolCalled("p", "update_plan", PLAN, "none"),
                PlanUpdated(None, (PlanStep("wait", "in_progress"),)),
                ToolCalled("l", "linger", {}, "none"),
            ]
            assert expected == [event for event in watcher.events if isinstance(event, PlanUpdated | ToolCalled)]
            await session.interrupt()
            await session.wait(1)
        nursery.cancel_scope.cancel()

"""Where bodies run: a place that stayed clean serves the next body, and nothing of the last one reaches it."""

import contextvars
from typing import Any

import trio

from callboard.actors.events import Call, ToolReturned
from callboard.actors.messages import Interrupt
from callboard.actors.model import Prompt, Reply
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.actors.tool import tool

from .strict import of_kind, until

MARK: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="clean")


@tool(timeout_s=1)
async def limited(seconds: float) -> str:
    """Has one second."""
    await trio.sleep(seconds)
    return "in time"


@tool
async def unlimited(seconds: float) -> str:
    """Has all the time there is."""
    await trio.sleep(seconds)
    return "at last"


@tool
async def leaves_a_child() -> str:
    """Starts a task in the nursery it runs in."""
    task = trio.lowlevel.current_task()
    assert task.parent_nursery is not None
    task.parent_nursery.start_soon(trio.sleep_forever)
    return "left a child"


@tool
async def leaves_a_scope() -> str:
    """Enters a scope and does not leave it."""
    trio.CancelScope(deadline=trio.current_time() + 1).__enter__()
    return "left a scope"


@tool
async def cancels_its_place() -> str:
    """Cancels the nursery it runs in."""
    task = trio.lowlevel.current_task()
    assert task.parent_nursery is not None
    task.parent_nursery.cancel_scope.cancel()
    return "cancelled"


@tool
async def marks() -> str:
    """Sets a context variable."""
    before = MARK.get()
    MARK.set("dirty")
    return before


TOOLS = (limited, unlimited, leaves_a_child, leaves_a_scope, cancels_its_place, marks)


async def texts_of(*calls: Call) -> list[str]:
    """One call a step, each in the place where the last one was; what the model read."""

    def model(prompt: Prompt) -> Reply:
        return Reply(calls=[calls[prompt.step - 1]]) if prompt.step <= len(calls) else Reply("done")

    async with open_lab(ScriptedModel(model), tools=TOOLS) as lab:
        session = await lab.session()
        assert (await session.run("go")).last_message == "done"
        return [e.text for e in of_kind(lab.records(), ToolReturned)]


def call(name: str, **arguments: Any) -> Call:
    """A call."""
    return Call(name, arguments)


async def test_deadline_of_one_body_is_not_that_of_the_next():
    """A limited body that ended in time, or did not, leaves the next one all its time."""
    calls = (call("limited", seconds=0.9), call("unlimited", seconds=50), call("limited", seconds=9))
    assert await texts_of(*calls, call("unlimited", seconds=50), call("limited", seconds=0.9)) == [
        "in time",
        "at last",
        "limited timed out after 1s.",
        "at last",
        "in time",
    ]


async def test_what_a_body_leaves_behind_does_not_reach_the_next():
    """A child, an open scope, a cancelled nursery and a context variable stay with the call that made them."""
    after = call("unlimited", seconds=50)
    names = ("leaves_a_child", "leaves_a_scope", "cancels_its_place", "marks")
    calls = [one for name in names for one in (call(name), after)]
    assert await texts_of(*calls, call("marks")) == [
        "left a child",
        "at last",
        "left a scope",
        "at last",
        "cancelled",
        "at last",
        "clean",
        "at last",
        "clean",
    ]


async def test_interrupt_of_one_body_does_not_reach_the_next():
    """A turn that was interrupted, and asked to end again later, ends only its own body."""
    replies = [Reply(calls=[call("unlimited", seconds=3)]), Reply("done")]
    async with open_lab(ScriptedModel(replies), tools=TOOLS) as lab:
        session, other = await lab.session(), await lab.session("other")
        await session.submit("go")
        await trio.sleep(1)
        window = session.actor.scene.window
        assert window is not None
        (host,) = window.asked
        await session.interrupt()
        await session.wait_idle()
        await other.submit("go")
        await trio.sleep(1)
        host.cut()  # type: ignore[attr-defined]  # a late word to a body that has ended
        await until(lambda: of_kind(lab.records("other"), ToolReturned))
        assert [e.text for e in of_kind(lab.records("other"), ToolReturned)] == ["at last"]


async def test_number_of_idle_places_is_bounded():
    """After a thousand bodies side by side few places are kept."""
    calls = [Call("look", {}) for _ in range(1000)]

    @tool(parallel=True)
    async def look() -> None:
        """Waits a second."""
        await trio.sleep(1)

    def model(prompt: Prompt) -> Reply:
        return Reply(calls=calls if prompt.step == 1 else [Call("look", {})] if prompt.step == 2 else [])

    async with open_lab(ScriptedModel(model), tools=[look]) as lab:
        session = await lab.session()
        await session.run("go")
        await trio.sleep(1)
        assert trio.lowlevel.current_statistics().tasks_living < 300


async def test_place_ends_with_the_runtime_while_a_body_runs():
    """When the runtime's nursery is cancelled under a body, neither the body nor its place stays behind."""
    before = trio.lowlevel.current_statistics().tasks_living
    with trio.move_on_after(5) as scope:
        async with open_lab(ScriptedModel([Reply(calls=[call("unlimited", seconds=50)])]), tools=TOOLS) as lab:
            await (await lab.session()).submit("go")
            await trio.sleep_forever()
    assert (True, before) == (scope.cancelled_caught, trio.lowlevel.current_statistics().tasks_living)


async def test_interrupted_turn_leaves_no_task_behind():
    """A session whose turn was interrupted rests with its one task; no place of an interrupted tool is kept."""
    replies = [Reply(calls=[call("unlimited", seconds=50)]), Reply("done")]
    async with open_lab(ScriptedModel(replies), tools=TOOLS) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1)
        await session.interrupt()
        await session.wait_idle()
        await trio.sleep(1)
        kept = sorted(task.name.split(" ")[0] for task in lab.stage.nursery.child_tasks)
        assert (1, 1) == (len(lab.stage.pits), sum(name == "host" for name in kept))
        assert (await session.run("more")).last_message == "done"


class Woken(trio.abc.Instrument):
    """Counts how often a task runs, and how many are begun."""

    def __init__(self) -> None:
        self.steps = self.begun = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A task runs to its next wait."""
        self.steps += 1

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        """A task was made."""
        self.begun += 1


async def test_an_interrupt_wakes_few_tasks():
    """The session twice, the turn and the tool once each, the tool's place twice; no task is made for it."""
    async with open_lab(ScriptedModel([Reply(calls=[call("unlimited", seconds=50)])]), tools=TOOLS) as lab:
        first, session = await lab.session("first"), await lab.session()
        await first.submit("go")
        await session.submit("go")
        await trio.sleep(1)
        await first.interrupt()  # the first window of a runtime starts its timers
        await trio.sleep(1)
        woken = Woken()
        trio.lowlevel.add_instrument(woken)
        session.actor.tell(Interrupt())
        while session.actor.phase.value != "idle":
            await trio.lowlevel.checkpoint()
            woken.steps -= 1  # this task
        trio.lowlevel.remove_instrument(woken)
        assert (0, True) == (woken.begun, woken.steps <= 6)

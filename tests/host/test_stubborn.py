"""Interrupting what does not stop: in real time, because spinners keep a virtual clock from moving."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import pytest
import trio

from callboard.actors.errors import CallOver
from callboard.actors.events import Call, Event, ToolReturned, TurnEnded
from callboard.actors.model import Prompt, Reply
from callboard.actors.plugin import Allow, Enter, Hook, Plugin, View
from callboard.actors.testing import Lab, LabSession, ScriptedModel, open_lab
from callboard.actors.tool import Tool, tool

from . import stubborn
from .fair import Since, in_time, timely

WINDOW_MIN_S = 0.09
ENDED_MAX_S = 0.25  # the window, 50 ms for the loop, and what a busy machine may add
GONE_MAX_S = 3.0


class Noted(Event, frozen=True):
    """Something that must not reach the log any more."""

    text: str


@attrs.define
class Story:
    """What one interrupted turn came to."""

    ended: TurnEnded
    window_s: float
    ended_s: float
    next_s: float
    gone_s: float
    late: list[str]
    parked: list[str]
    tasks_left: int


def one_call_each_first(prompt: Prompt) -> Reply:
    """The first step of turn 1 calls the tool, everything else only talks."""
    return Reply(calls=[Call("stubborn")]) if prompt.turn == 1 else Reply("fine")


@asynccontextmanager
async def deaf_lab(*args: Any, **options: Any) -> AsyncIterator[Lab]:
    """A lab; a failure in its block is told when all that hangs was left behind, which would keep it open for ever."""
    async with open_lab(*args, **options) as lab:
        try:
            yield lab
        finally:
            await until_gone(lab)


async def interrupt_when(
    session: LabSession, began: list[bool], turn: int = 2
) -> tuple[TurnEnded, float, float, float]:
    """Interrupt turn 1 once it hangs, then run another prompt in `turn`.

    The end, the seconds until then on the clock, and those of our own that each of the two took.
    """
    await session.submit("go")
    with trio.fail_after(5):
        while not began:
            await trio.sleep(0.001)
    await trio.sleep(0.02)
    asked = Since()
    await session.interrupt()
    ended = await session.wait(1)
    window_s, ended_s = asked.real_s(), asked.own_s()
    assert ended is not None
    again = await session.run("next")
    assert (again.turn, again.reason, again.last_message) == (turn, "completed", "fine")
    return ended, window_s, ended_s, asked.own_s() - ended_s


async def until_gone(lab: Lab) -> float:
    """Seconds until nothing abandoned lives any more."""
    asked = Since()
    with trio.move_on_after(GONE_MAX_S):
        while lab.stage.abandoned.count():
            await trio.sleep(0.005)
    return asked.real_s()


def play(make: Callable[[stubborn.Gates, list[str], list[bool]], Tool], *, freed: bool = True) -> Story:
    """Interrupt one call of a tool, then see whether everything goes on and nothing is left."""

    async def main() -> Story:
        tasks_before = trio.lowlevel.current_statistics().tasks_living
        gates, late, began = stubborn.Gates(), list[str](), list[bool]()
        plugin = Plugin("notes", events=(Noted,))
        async with deaf_lab(
            ScriptedModel(one_call_each_first), tools=[make(gates, late, began)], plugins=[plugin]
        ) as lab:
            session = await lab.session()
            ended, window_s, ended_s, next_s = await interrupt_when(session, began)
            if freed:
                await gates.open()
            gone_s = await until_gone(lab)
            assert Noted not in map(type, lab.records())
            parked = lab.stage.abandoned.parked
        tasks_left = trio.lowlevel.current_statistics().tasks_living - tasks_before
        return Story(ended, window_s, ended_s, next_s, gone_s, late, parked, tasks_left)

    return trio.run(main)


def hosted(body: stubborn.Body, gates: stubborn.Gates, late: list[str], began: list[bool]) -> Tool:
    """A tool around a shape, that tries to write whatever way it ends."""

    @tool(name="stubborn")
    async def shape(view: View) -> str:
        """Does not stop."""
        began.append(True)
        try:
            return str(await body(gates))
        finally:
            try:
                view.append(Noted("too late"))
            except CallOver:
                late.append("CallOver")

    return shape


@pytest.mark.parametrize("body", stubborn.SHAPES, ids=lambda body: body.__name__)
@timely
def test_turn_ends_in_its_window_whatever_the_tool_does(body):
    """Turn ended in time, call abandoned, next prompt served, nothing written late, no task left."""
    story = play(partial(hosted, body))
    assert story.ended.reason == "aborted"
    assert [r.receipt for r in story.ended.receipts] == ["abandoned"]
    assert story.window_s >= WINDOW_MIN_S
    in_time(story.ended_s, ENDED_MAX_S)
    in_time(story.next_s, ENDED_MAX_S)
    assert story.gone_s < GONE_MAX_S
    assert story.parked == (["stubborn"] if body.__name__ in stubborn.PARKED else [])
    assert story.late == ([] if body.__name__ in stubborn.DEAF else ["CallOver"])
    assert story.tasks_left == 0


def looping(gates: stubborn.Gates, late: list[str], began: list[bool]) -> Tool:
    """A thread that computes and never looks up."""

    @tool(name="stubborn")
    def shape(view: View) -> str:
        """Computes."""
        began.append(True)
        while not gates.stop:
            sum(range(2_000))
        try:
            view.append(Noted("too late"))
        except CallOver:
            late.append("CallOver")
        return "computed"

    return shape


@timely
def test_thread_that_computes_is_left_behind_and_counted_until_it_ends():
    """A thread cannot be stopped, so its turn ends without it, and what it does later reaches nothing."""
    story = play(looping)
    assert [r.receipt for r in story.ended.receipts] == ["abandoned"]
    in_time(story.ended_s, ENDED_MAX_S)
    in_time(story.next_s, ENDED_MAX_S)
    assert (story.late, story.parked, story.tasks_left) == (["CallOver"], [], 0)
    assert story.gone_s < GONE_MAX_S


def deaf_graceful(gates: stubborn.Gates, late: list[str], began: list[bool]) -> Tool:
    """A tool that promised to be graceful and is not."""

    @tool(name="stubborn", graceful=True)
    async def shape(view: View) -> str:
        """Hears and does nothing."""
        began.append(True)
        await view.interrupted.wait()
        return str(await stubborn.hard_loop(gates))

    return shape


@timely
def test_graceful_tool_that_does_not_return_is_abandoned_at_the_end_of_the_window():
    """Being graceful buys the window and nothing more."""
    story = play(deaf_graceful)
    assert (story.ended.ending, [r.receipt for r in story.ended.receipts]) == ("abandoned", ["abandoned"])
    assert story.window_s >= WINDOW_MIN_S
    in_time(story.ended_s, ENDED_MAX_S)
    assert (story.parked, story.tasks_left) == ([], 0)


@attrs.define
class Foreign:
    """A model, a plugin or a hook that hangs in the first turn and does not stop."""

    body: stubborn.Body
    gates: stubborn.Gates = attrs.field(factory=stubborn.Gates)
    began: list[bool] = attrs.field(factory=list)

    async def hang(self) -> None:
        """Hang once."""
        if not self.began:
            self.began.append(True)
            await self.body(self.gates)


def model_of(foreign: Foreign) -> dict[str, Any]:
    """A lab whose model hangs."""

    async def reply(prompt: Prompt) -> Reply:
        await foreign.hang()
        return Reply("fine")

    return {"model": ScriptedModel(reply)}


def plugin_of(foreign: Foreign) -> dict[str, Any]:
    """A lab whose plugin hangs before a step."""

    async def before_step(view: Any, messages: Any) -> Enter:
        await foreign.hang()
        return Enter(messages)

    return {"model": ScriptedModel(lambda prompt: Reply("fine")), "plugins": [Plugin("p", before_step=before_step)]}


def hook_of(foreign: Foreign) -> dict[str, Any]:
    """A lab whose hook hangs before a tool."""

    async def before_tool(call: Any) -> Allow:
        await foreign.hang()
        return Allow()

    @tool(name="stubborn")
    async def nothing() -> str:
        """Nothing."""
        return ""

    hook = Hook("h", before_tool=before_tool)
    return {"model": ScriptedModel(one_call_each_first), "tools": [nothing], "hooks": [hook]}


@pytest.mark.parametrize("body", [stubborn.hard_loop, stubborn.spinner, stubborn.swallow_all, stubborn.finally_sleep])
@pytest.mark.parametrize("lab_of", [model_of, plugin_of, hook_of])
@timely
def test_turn_ends_in_its_window_whatever_a_model_a_plugin_or_a_hook_does(body, lab_of):
    """Foreign code of any kind is left behind at the end of the window, and never touches the log again."""

    async def main() -> None:
        tasks_before = trio.lowlevel.current_statistics().tasks_living
        foreign = Foreign(body)
        async with deaf_lab(**lab_of(foreign)) as lab:
            session = await lab.session()
            turn = 3 if lab_of is plugin_of else 2  # what was not claimed yet comes first
            ended, window_s, ended_s, next_s = await interrupt_when(session, foreign.began, turn)
            assert (ended.reason, ended.cause) == ("aborted", "interrupted")
            assert window_s >= WINDOW_MIN_S
            in_time(ended_s, ENDED_MAX_S)
            in_time(next_s, ENDED_MAX_S)
            assert await until_gone(lab) < GONE_MAX_S
        assert trio.lowlevel.current_statistics().tasks_living == tasks_before

    trio.run(main)


@timely
def test_timeout_of_a_tool_that_ignores_it_is_a_failure_and_the_turn_goes_on():
    """`timeout_s` and one window later the call has failed, whatever its body does."""
    gates = stubborn.Gates.__new__(stubborn.Gates)

    @tool(name="stubborn", timeout_s=0.1)
    async def shape() -> None:
        """Does not stop."""
        await stubborn.hard_loop(gates)

    async def main() -> tuple[TurnEnded, list[str]]:
        replies = [Reply(calls=[Call("stubborn")]), Reply("then")]
        async with deaf_lab(ScriptedModel(replies), tools=[shape]) as lab:
            session = await lab.session()
            ended = await session.run("go")
            await until_gone(lab)
            return ended, [e.text for e in lab.records() if isinstance(e, ToolReturned)]

    ended, texts = trio.run(main)
    assert (ended.reason, ended.last_message, [r.receipt for r in ended.receipts]) == ("completed", "then", ["failed"])
    assert ended.receipts[0].seconds >= 0.1
    in_time(ended.receipts[0].seconds, 0.2 + ENDED_MAX_S)
    assert texts == ["stubborn timed out after 0.1s. It did not stop and was left behind."]


@timely
def test_without_dropping_a_stubborn_tool_is_abandoned_all_the_same():
    """When trio is not as expected nothing is dropped, but the turn still ends in its window."""

    async def main() -> None:
        gates, late, began = stubborn.Gates(), list[str](), list[bool]()
        freed = partial(hosted, stubborn.works_after_the_end)
        async with deaf_lab(ScriptedModel(one_call_each_first), tools=[freed(gates, late, began)]) as lab:
            lab.stage.can_drop = False
            session = await lab.session()
            ended, _, ended_s, _ = await interrupt_when(session, began)
            assert [r.receipt for r in ended.receipts] == ["abandoned"]
            in_time(ended_s, ENDED_MAX_S)
            assert await until_gone(lab) < GONE_MAX_S
            assert late == ["CallOver"]

    trio.run(main)


@timely
def test_many_stubborn_sessions_are_interrupted_at_once():
    """A hundred stubborn turns side by side end about when one does, and leave nothing."""
    gates = stubborn.Gates.__new__(stubborn.Gates)

    @tool(name="stubborn")
    async def shape() -> None:
        """Does not stop."""
        await stubborn.hard_loop(gates)

    async def main() -> float:
        async with deaf_lab(ScriptedModel(one_call_each_first), tools=[shape]) as lab:
            sessions = [await lab.session(f"s{n}") for n in range(100)]
            for session in sessions:
                await session.submit("go")
            await trio.sleep(0.1)
            asked = Since()
            for session in sessions:
                await session.interrupt()
            ends = [await session.wait(1) for session in sessions]
            seconds = asked.own_s()
            assert {next(r.receipt for r in e.receipts) for e in ends if e is not None} == {"abandoned"}
            assert await until_gone(lab) < GONE_MAX_S
            return seconds

    in_time(trio.run(main), 0.5)

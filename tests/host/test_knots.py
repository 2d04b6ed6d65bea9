"""Turns that would wait for themselves: whoever does it from inside is told, and nobody else is."""

import asyncio
from typing import Any

import attrs
import pytest
import trio

from callboard.actors import Call, Hook, Plugin, Reply, Result, TurnEnded, tool
from callboard.actors.model import Prompt
from callboard.actors.plugin import Enter, View
from callboard.actors.testing import ScriptedModel
from callboard.runtime import Runtime, open_runtime

LIMIT_S = 20.0
OWN = (
    "turn 2 of session 'p' cannot wait for its own session from inside, it would never end: "
    "submit without waiting, or wait outside of the turn."
)
ABOVE = (
    "turn 1 of session 'p.a' cannot wait for session 'p', which waits for it: "
    "submit without waiting, or wait outside of the turn."
)
WAITS = {
    "wait_idle": lambda rt: rt.session("p").wait_idle(),
    "wait": lambda rt: rt.session("p").wait(2),
    "wait for a later turn": lambda rt: rt.session("p").wait(3),
    "run": lambda rt: rt.session("p").run("more"),
}


@attrs.define
class Stand:
    """A runtime whose tools wait for sessions; `rt` is there once it is open."""

    rt: Runtime | None = None
    beside: list[Any] = attrs.field(factory=list)

    @property
    def runtime(self) -> Runtime:
        """The runtime, which is open."""
        assert self.rt is not None
        return self.rt

    def session(self, id_: str) -> Any:
        """The session as programs hold it."""
        return next(one for one in self.runtime.sessions() if one.id == id_)


async def in_nursery(wait: Any) -> None:
    """Wait in a task of its own, inside the body."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)


def calling(name: str, turn: int = 2) -> ScriptedModel:
    """A model that calls this tool once, in that turn."""

    def answer(prompt: Prompt) -> Reply:
        return Reply("", [Call(name, {})]) if (prompt.turn, prompt.step) == (turn, 1) else Reply("done")

    return ScriptedModel(answer)


def read(model: ScriptedModel, session: str = "p") -> list[str]:
    """The results that the model read last."""
    last = [prompt for prompt in model.prompts if prompt.session == session][-1]
    return [message.text for message in last.messages if isinstance(message, Result)]


async def second_turn(stand: Stand, model: ScriptedModel, **how: Any) -> TurnEnded:
    """The end of the second turn of session `p`."""
    async with open_runtime(model=model, **how) as rt:
        stand.rt = rt
        s = await rt.create("p")
        await s.run("one")
        async with asyncio.timeout(LIMIT_S):
            ended = await s.run("two")
            await s.wait_idle()
        return ended


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
@pytest.mark.parametrize("runs_on", ["trio", "trio in a nursery", "asyncio", "thread"])
async def test_own_end_in_a_tool(wait, runs_on):
    """A tool that waits for its own session, or submits to it and waits, fails with one sentence; nothing is queued."""
    stand, model = Stand(), calling("waiting")

    async def waits() -> None:
        await wait(stand)

    async def in_a_nursery() -> None:
        try:
            await in_nursery(waits)
        except* Exception as group:
            (error,) = group.exceptions
            raise error from None

    def in_a_thread() -> None:
        trio.from_thread.run(waits)

    fn: Any = {"trio in a nursery": in_a_nursery, "thread": in_a_thread}.get(runs_on, waits)
    waiting = tool(name="waiting", runs_on=runs_on.split()[0])(fn)
    ended = await second_turn(stand, model, tools=[waiting])
    assert ("completed", "done", ["failed"]) == (ended.reason, ended.last_message, [r.receipt for r in ended.receipts])
    assert [OWN] == [text.removeprefix("UsageError: ") for text in read(model)]
    assert 2 == max(prompt.turn for prompt in model.prompts)


async def test_own_end_in_a_hook_and_before_a_step():
    """What plugins do before a step is inside the turn as well, and so is what hooks decide."""
    stand, said = Stand(), list[str]()

    async def waits() -> None:
        if stand.rt is not None:
            try:
                await stand.session("p").wait_idle()
            except Exception as error:
                said.append(str(error))

    async def before_step(view: View, messages: Any) -> Enter:
        if view.turn == 2:
            await waits()
        return Enter(messages)

    async def before_tool(call: Any) -> None:
        await waits()

    @tool
    async def nothing() -> str:
        """Do nothing."""
        return "nothing"

    how = {"tools": [nothing], "hooks": [Hook("waits", before_tool=before_tool)]}
    plugins = [Plugin("waits", before_step=before_step)]
    await second_turn(stand, calling("nothing"), plugins=plugins, **how)
    assert [OWN] * 3 == said


async def test_what_needs_not_wait_and_what_runs_beside():
    """Ends of earlier turns are there at once, other sessions may be waited for, and the end by what outlives it."""
    stand = Stand()

    @tool
    async def fine(view: View) -> str:
        """Wait for what is no knot."""
        own, other = stand.session("p"), await stand.runtime.create("q")
        first, elsewhere = await own.wait(1), await other.run("hello")
        await other.wait_idle()
        accepted = await own.submit("more")

        async def after() -> None:
            await own.wait_idle()
            stand.beside.append("rests")

        view.start_soon(after)
        return f"{first.turn} {elsewhere.last_message} {accepted.turn}"

    @tool(runs_on="asyncio")
    async def leaves() -> str:
        """Let a task wait on asyncio."""

        async def after() -> None:
            await stand.session("p").wait_idle()
            stand.beside.append("rests too")

        stand.beside.append(asyncio.get_running_loop().create_task(after()))
        await asyncio.sleep(0.01)
        return "left"

    def answer(prompt: Prompt) -> Reply:
        calls = [Call("fine", {}), Call("leaves", {})]
        return Reply("", calls) if (prompt.session, prompt.turn, prompt.step) == ("p", 2, 1) else Reply("done")

    model = ScriptedModel(answer)
    async with open_runtime(model=model, tools=[fine, leaves]) as rt:
        stand.rt = rt
        s = await rt.create("p")
        await s.run("one")
        async with asyncio.timeout(LIMIT_S):
            ended = await s.run("two")
            assert ["completed"] * 2 == [receipt.receipt for receipt in ended.receipts]
            await s.wait_idle()
            await next(one for one in stand.beside if isinstance(one, asyncio.Task))
    assert {"rests", "rests too"} == {one for one in stand.beside if isinstance(one, str)}


async def test_a_session_that_a_tool_made_is_outside():
    """A session that was made from inside a turn lives outside of it: its hooks may wait for whoever made it."""
    stand, asked, rested = Stand(), trio.Event(), asyncio.Event()

    async def on_turn_end(turn: Any, ended: TurnEnded) -> None:
        if turn.session == "q":
            asked.set()
            await stand.session("p").wait_idle()
            rested.set()

    @tool
    async def makes() -> str:
        """Make a session, and stay until its hook waits."""
        other = await stand.runtime.create("q")
        ended = await other.run("work")
        await asked.wait()
        return str(ended.last_message)

    model = calling("makes")
    async with open_runtime(model=model, tools=[makes], hooks=[Hook("listens", on_turn_end=on_turn_end)]) as rt:
        stand.rt = rt
        s = await rt.create("p")
        await s.run("one")
        async with asyncio.timeout(LIMIT_S):
            await s.run("two")
            await rested.wait()
    assert ["done"] == read(model)


@pytest.mark.parametrize("background", [False, True])
async def test_an_agent_that_waits_for_its_parent(background):
    """An agent in the foreground cannot wait for its parent, which waits for it; one in the background can."""
    stand = Stand()

    @tool
    async def waits() -> str:
        """Wait for the parent."""
        await stand.session("p").wait_idle()
        return "p rests"

    def answer(prompt: Prompt) -> Reply:
        if prompt.step > 1 or prompt.turn > 1:
            return Reply("done")
        if prompt.session == "p.a":
            return Reply("", [Call("waits", {})])
        given = {"task_name": "a", "message": "work", "background": background}
        return Reply("", [Call("spawn_agent", given)])

    model = ScriptedModel(answer)
    async with open_runtime(model=model, tools=[waits]) as rt:
        stand.rt = rt
        s = await rt.create("p")
        async with asyncio.timeout(LIMIT_S):
            await s.run("go")
            await stand.session("p.a").wait_idle()
    assert ["p rests" if background else ABOVE] == [text.removeprefix("UsageError: ") for text in read(model, "p.a")]

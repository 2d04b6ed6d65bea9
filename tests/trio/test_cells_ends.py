"""Calls inside calls that are cut: by an interrupt, by their own body, by a crash; each has one result all the same."""

import random
from typing import Any

import pytest
import trio

from callboard.actors.books import HISTORY, TURN
from callboard.actors.errors import CallOver, UsageError
from callboard.actors.events import (
    Call,
    ToolReturned,
    TurnEnded,
)
from callboard.actors.model import Reply
from callboard.actors.plugin import View
from callboard.actors.receipts import repair
from callboard.actors.stage import Limits
from callboard.actors.testing import Lab, ScriptedModel, open_lab, seeded_run
from callboard.actors.tool import tool
from callboard.plugins.plan import plan_plugin

from .acts import TOOLS, interrupted
from .celled import STEPS, careful, user
from .disks import Disk
from .strict import about, check_history, check_log, of_kind


async def cut(lab: Lab, names: list[str]) -> tuple[TurnEnded, list[Any]]:
    """Interrupt a turn whose cell uses these, all at once: its end, and the results inside."""
    session = await lab.session()
    ended = await interrupted(lab, session)
    return ended, [e for e in of_kind(lab.records(), ToolReturned) if e.cell]


async def test_interrupt_gives_each_open_nested_call_its_receipt():
    """What waits at the gate never started, who is graceful returns in time, and the callers hear of it."""
    cell, results = user(("careful", {}), ("slow", {}), ("slow", {}), parallel=True)
    model = ScriptedModel([Reply(calls=[Call("cell", {}, "c")])])
    async with open_lab(model, tools=[cell, careful, *TOOLS]) as lab:
        ended, inner = await cut(lab, [])
        assert sorted((e.name, e.receipt) for e in inner) == [
            ("careful", "interrupted"),
            ("slow", "not_started"),
            ("slow", "not_started"),
        ]
        assert (ended.reason, ended.abort_s) == ("aborted", about(0.05))
        assert [type(error) for error in results] == [CallOver] * 3


async def test_interrupt_ends_a_running_exclusive_call():
    """An ordinary nested tool is cancelled at once; the turn ends with it."""
    cell, _ = user(("slow", {}))
    async with open_lab(ScriptedModel([Reply(calls=[Call("cell", {}, "c")])]), tools=[cell, *TOOLS]) as lab:
        ended, inner = await cut(lab, [])
        assert [(e.receipt, e.text) for e in inner] == [("interrupted", "aborted by user after 1.5s")]
        assert (ended.abort_s, [r.call for r in ended.receipts]) == (about(0), ["c.1", "c"])


async def test_stubborn_nested_call_is_left_behind_at_the_end_of_the_window():
    """A nested tool that outlives the window is abandoned, and so is not the cell."""
    cell, _ = user(("tidy", {"seconds": 7}))
    async with open_lab(ScriptedModel([Reply(calls=[Call("cell", {}, "c")])]), tools=[cell, *TOOLS]) as lab:
        ended, inner = await cut(lab, [])
        assert [e.receipt for e in inner] == ["abandoned"]
        assert (ended.abort_s, ended.ending) == (about(0.1), "abandoned")


async def test_interrupt_during_the_flush_of_a_nested_call():
    """A call whose ToolCalled waits for the disk has not run when the interrupt comes, and never does."""
    disk = Disk()

    @tool(graceful=True, effect="none")
    async def cell(view: View) -> str:
        """Uses a tool with an effect while the disk stands still."""
        disk.stall()
        with pytest.raises(CallOver):
            await view.use_tool("quick", {"text": "x"})
        with pytest.raises(CallOver):
            await view.use_tool("quick", {"text": "y"})
        disk.go()
        return "over"

    model = ScriptedModel([Reply(calls=[Call("cell", {}, "c")])])
    async with open_lab(model, tools=[cell, *TOOLS], store=disk) as lab:
        _, inner = await cut(lab, [])
        assert [(e.call, e.receipt) for e in inner] == [("c.1", "not_started")]


@pytest.mark.parametrize(
    ("name", "receipt", "text"),
    [
        ("slow", "interrupted", "interrupted: the call that made this one ended"),
        ("tidy", "abandoned", "interrupted: the call that made this one ended"),
    ],
)
async def test_body_that_gives_up_takes_its_calls_along(name, receipt, text):
    """A body that cancels a call it made waits for its end at most the length of a window, and it has its receipt."""

    @tool
    async def cell(view: View) -> str:
        """Gives up after a second."""
        begun_s = trio.current_time()
        with trio.move_on_after(1):
            await view.use_tool(name, {"seconds": 1000})
        return f"{trio.current_time() - begun_s:.1f}"

    model = ScriptedModel([Reply(calls=[Call("cell", {}, "c")]), Reply("on")])
    async with open_lab(model, tools=[cell, *TOOLS]) as lab:
        session = await lab.session()
        ended = await session.run("go")
        inner, outer = of_kind(lab.records(), ToolReturned)
        assert (inner.receipt, inner.text, outer.receipt) == (receipt, text, "completed")
        assert outer.text == ("1.0" if name == "slow" else "1.1")
        assert ended.reason == "completed"
        check_log(lab.records())


async def test_calls_that_a_body_leaves_behind_end_with_it():
    """A call that runs beside the session when its cell returns is closed first, so that no result is owed."""

    @tool
    async def cell(view: View) -> str:
        """Leaves a call behind."""
        view.start_soon(view.use_tool, "slow", {})
        await trio.sleep(1)
        return "gone"

    model = ScriptedModel([Reply(calls=[Call("cell", {}, "c")]), Reply("on")])
    async with open_lab(model, tools=[cell, *TOOLS]) as lab:
        session = await lab.session()
        await session.run("go")
        assert [(e.call, e.receipt) for e in of_kind(lab.records(), ToolReturned)] == [
            ("c.1", "abandoned"),
            ("c", "completed"),
        ]
        check_log(lab.records())


async def test_tools_are_used_on_trio_from_a_call():
    """A thread cannot use tools, nor can a hook; both read why."""

    @tool
    def threaded(view: View) -> str:
        """Tries, in a thread."""
        with pytest.raises(UsageError, match="must be an async def"):
            trio.from_thread.run(view.use_tool, "quick", {})
        return "refused"

    model = ScriptedModel([Reply(calls=[Call("threaded")]), Reply("on")])
    async with open_lab(model, tools=[threaded, *TOOLS]) as lab:
        await (await lab.session()).run("go")
        assert [e.text for e in of_kind(lab.records(), ToolReturned)] == ["refused"]


async def test_a_crash_closes_nested_calls_like_others():
    """The repair gives open nested calls their results before their cell's."""
    cell, _ = user(("update_plan", STEPS), ("slow", {}))
    model = ScriptedModel([Reply(calls=[Call("cell", {}, "c")])])
    async with open_lab(model, tools=[cell, *TOOLS], plugins=[plan_plugin()]) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1)
        repaired = repair(session.state(TURN), 5)
        returned = [(e.call, e.receipt, e.cell) for e in of_kind(repaired, ToolReturned)]
        assert returned == [("c.2", "outcome_unknown", "c"), ("c", "outcome_unknown", None)]
        assert [r.call for r in repaired[-1].receipts] == ["c.1", "c.2", "c"]  # type: ignore[attr-defined]
        await session.interrupt()


async def test_ids_of_a_turn_stay_apart():
    """A nested call takes no id that the model used in this turn, and the model's next call none of a nested one's."""
    cell, _ = user(("quick", {"text": "x"}))
    replies = [Reply(calls=[Call("cell", {}, "c"), Call("quick", {"text": "y"}, "c.1")])]
    replies.append(Reply(calls=[Call("quick", {"text": "z"}, "c.1.2")]))
    async with open_lab(ScriptedModel([*replies, Reply("on")]), tools=[cell, *TOOLS]) as lab:
        session = await lab.session()
        ended = await session.run("go")
        ids = [r.call for r in ended.receipts]
        assert (len(ids), len(set(ids))) == (4, 4)
        check_log(lab.records())


def test_interrupts_at_any_moment_leave_whole_books():
    """Whenever the interrupt comes and whoever runs first, each call has one result and the next turn runs."""

    async def scenario() -> None:
        uses = [("quick", {"text": "a"}), ("slow", {"seconds": 0.01}), ("careful", {}), ("update_plan", STEPS)]
        cell, _ = user(*uses, parallel=True)
        model = ScriptedModel([Reply(calls=[Call("cell", {}, "c")]), Reply("on")])
        tools = [cell, careful, *TOOLS]
        async with open_lab(model, tools=tools, plugins=[plan_plugin()], limits=Limits(abort_window_s=0.05)) as lab:
            session = await lab.session()
            await session.submit("go")
            for _ in range(random.randrange(40)):
                await trio.lowlevel.checkpoint()
            await session.interrupt()
            await session.wait(1)
            await session.run("again")
            check_history(session.state(HISTORY).messages)
            check_log(lab.records())

    assert seeded_run(scenario, range(60)) == 60

"""Calls that a tool's body makes: the path of any other call, results of their own, and nothing of it for the model."""

from typing import Any

import pytest
import trio

from callboard.actors.events import (
    Call,
    CellCalled,
    ControlCallEnded,
    NoteAdded,
    ToolCalled,
    ToolReturned,
)
from callboard.actors.model import Reply
from callboard.actors.plugin import AddContext, Block, Hook, Rewrite, ToolCall, ToolResult, View
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.actors.tool import Tool, tool
from callboard.plugins.plan import plan_plugin

from .acts import TOOLS
from .celled import STEPS, fatal, told, user
from .strict import check_log, of_kind


async def test_nested_call_has_its_own_events_and_no_place_in_history():
    """A call from a body is asked for, called and returned on the log under its cell; the model sees none of it."""
    cell, results = user(("quick", {"text": "a"}), ("quick", '{"text":"b"}'))
    events, ended = await told(cell)
    assert of_kind(events, CellCalled) == [
        CellCalled("c", Call("quick", {"text": "a"}, "c.1")),
        CellCalled("c", Call("quick", '{"text":"b"}', "c.2")),
    ]
    assert [(e.call, e.cell) for e in of_kind(events, ToolCalled)] == [("c", None), ("c.1", "c"), ("c.2", "c")]
    returned = [(e.call, e.cell, e.text) for e in of_kind(events, ToolReturned)]
    assert returned == [("c.1", "c", "a"), ("c.2", "c", "b"), ("c", None, "2 results")]
    assert results == [ToolResult("completed", "completed", text) for text in ("a", "b")]
    assert ([r.call for r in ended.receipts], ended.tool_calls) == (["c.1", "c.2", "c"], 3)


async def test_control_tool_inside_has_one_fact_that_names_the_cell():
    """A control call from a body leaves its event, its result and one fact with the cell's id, in one write."""
    cell, _ = user(("update_plan", STEPS))
    events, _ = await told(cell, plugins=[plan_plugin()])
    (fact,) = of_kind(events, ControlCallEnded)
    assert (fact.call, fact.cell, fact.tool, fact.outcome) == ("c.1", "c", "update_plan", "completed")
    at = events.index(fact)
    assert [type(e).__name__ for e in events[at - 2 : at]] == ["PlanUpdated", "ToolReturned"]


@pytest.mark.parametrize(
    ("use", "receipt", "text"),
    [
        (("nowhere", {}), "failed", "unsupported call: nowhere"),
        (("quick", {}), "failed", "failed to parse function arguments: Object missing required field `text`"),
        (("quick", "{"), "failed", "failed to parse function arguments: Input data was truncated"),
        (("quick", {"text": float("nan")}), "failed", "failed to parse function arguments: the arguments hold NaN"),
    ],
)
async def test_what_cannot_be_called_fails_as_any_other_call(use, receipt, text):
    """Unknown tools and arguments that do not fit are results of the call, with a receipt on the log."""
    cell, results = user(use)
    events, _ = await told(cell)
    assert results[0].receipt == receipt
    assert results[0].text.startswith(text)
    assert [e.receipt for e in of_kind(events, ToolReturned) if e.cell] == [receipt]


async def test_only_what_is_allowed_exists():
    """A body may name what it can call: a hidden tool answers to a plugin, and nothing beyond the names does."""
    cell, results = user(("secret", {}), ("quick", {"text": "x"}))
    await told(cell)
    assert [r.text for r in results] == ["hidden", "x"]
    cell, results = user(("secret", {}), ("quick", {"text": "x"}), allowed=frozenset({"quick"}))
    await told(cell)
    assert [r.text for r in results] == ["unsupported call: secret", "x"]


async def test_calls_do_not_nest_further():
    """A tool that was called from a body cannot make calls of its own, and reads why."""

    @tool
    async def outer(view: View) -> str:
        """Uses the cell."""
        return (await view.use_tool("cell", {})).text

    cell, results = user(("quick", {"text": "x"}))
    model = ScriptedModel([Reply(calls=[Call("outer")]), Reply("on")])
    async with open_lab(model, tools=[outer, cell, *TOOLS]) as lab:
        await (await lab.session()).run("go")
        assert ["a call that a tool makes cannot make calls of its own."] == [str(error) for error in results]


async def test_hooks_see_nested_calls_with_their_cell():
    """Hooks around a nested call may rewrite, block and note; they see the cell, and their notes wait for its end."""
    seen: list[tuple[str, str | None]] = []

    def before(call: ToolCall) -> Any:
        seen.append((call.name, call.cell))
        match call.arguments:
            case {"text": "block"}:
                return Block("no")
            case {"text": "rewrite"}:
                return Rewrite({"text": "other"})
        return None

    def after(call: ToolCall, result: ToolResult) -> Any:
        return AddContext(f"note on {call.call}") if call.cell else None

    cell, results = user(*[("quick", {"text": text}) for text in ("block", "rewrite", "plain")])
    events, _ = await told(cell, Hook("h", before_tool=before, after_tool=after))
    assert seen == [("cell", None), ("quick", "c"), ("quick", "c"), ("quick", "c")]
    assert [r.text for r in results] == ["Tool call blocked by PreToolUse hook: no. Tool: quick", "other", "plain"]
    notes = of_kind(events, NoteAdded)
    assert [note.text for note in notes] == ["note on c.2", "note on c.3"]
    last = of_kind(events, ToolReturned)[-1]
    assert events.index(notes[0]) > events.index(last)


async def test_exclusive_tools_run_alone_and_parallel_ones_together():
    """Calls of one body pass a gate of their own: who is not parallel is alone, in the order they came."""
    inside: list[str] = []
    most: dict[str, int] = {}

    def made(name: str, *, parallel: bool) -> Tool:
        @tool(name=name, parallel=parallel, effect="none")
        async def one() -> str:
            """Counts who is inside."""
            inside.append(name)
            most[name] = max(most.get(name, 0), len(inside))
            await trio.sleep(1)
            inside.remove(name)
            return name

        return one

    shared, alone = made("shared", parallel=True), made("alone", parallel=False)
    cell, results = user(*[(name, {}) for name in ("shared", "shared", "alone", "shared", "shared")], parallel=True)
    model = ScriptedModel([Reply(calls=[Call("cell")]), Reply("on")])
    async with open_lab(model, tools=[cell, shared, alone]) as lab:
        await (await lab.session()).run("go")
        check_log(lab.records())
        assert (most, len(results)) == ({"shared": 2, "alone": 1}, 5)


async def test_fatal_error_inside_ends_the_turn():
    """A nested tool that ends the turn ends it, after each call has its result."""
    cell, _ = user(("fatal", {}))
    model = ScriptedModel([Reply(calls=[Call("cell", {}, "c")]), Reply("on")])
    async with open_lab(model, tools=[cell, fatal]) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert (ended.error, [r.receipt for r in ended.receipts]) == ("over", ["failed", "failed"])
        check_log(lab.records())

"""Hooks around a tool call: allow, block, rewrite, add, break; what the model reads, and what stays as it was."""

from typing import Any

import pytest
import trio

from callboard.actors.books import HISTORY
from callboard.actors.events import Call, HookFailed, NoteAdded, ToolCalled, ToolReturned
from callboard.actors.model import Developer, Reply
from callboard.actors.notices import HookRan
from callboard.actors.plugin import AddContext, Allow, Block, Hook, Rewrite, ToolCall, ToolResult
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.actors.tool import tool

from .strict import check_history, check_log, of_kind


@tool(parallel=True)
async def echo(text: str) -> str:
    """Says it back."""
    await trio.sleep(1)
    return f"<{text}>"


async def played(*hooks: Hook, calls: Any = None, tools: Any = (echo,)) -> Any:
    """One turn with these hooks: the results, the log, the history and the notices."""
    calls = calls or [Call("echo", {"text": "hi"})]
    async with open_lab(ScriptedModel([Reply(calls=calls), Reply("on")]), tools=tools, hooks=hooks) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert (ended.reason, ended.last_message) == ("completed", "on")
        check_history(session.state(HISTORY).messages)
        check_log(lab.records())
        statuses = [(n.hook, n.status) for n in lab.notices if isinstance(n, HookRan)]
        returned = [(e.receipt, e.text) for e in of_kind(lab.records(), ToolReturned)]
        return returned, lab.records(), list(session.state(HISTORY).messages), statuses


@pytest.mark.parametrize("answer", [None, Allow()])
async def test_hook_that_allows_changes_nothing(answer):
    """None and Allow let the call go on."""
    returned, _, _, statuses = await played(Hook("h", before_tool=lambda call: answer))
    assert (returned, statuses) == ([("completed", "<hi>")], [("h", "ok")])


async def test_hook_sees_the_call_with_decoded_arguments_and_the_agent_path():
    """JSON text is read for the hook, and what the hook does to it changes nothing."""
    seen: list[ToolCall] = []

    def spoil(call: ToolCall) -> None:
        seen.append(call)
        call.arguments["text"] = "spoilt"

    returned, _, messages, _ = await played(
        Hook("h", before_tool=spoil), calls=[Call("echo", '{"text": "hi"}', id="c")]
    )
    assert returned == [("completed", "<hi>")]
    assert seen == [ToolCall("s", "/root", 1, "c", "echo", {"text": "spoilt"})]
    assert messages[1].calls[0].arguments == '{"text": "hi"}'


async def test_block_keeps_the_tool_from_running():
    """A blocked call is rejected with fixed words, nothing is called, and no later hook is asked."""
    asked: list[str] = []
    hooks = (
        Hook("first", before_tool=lambda call: Block("not on Sundays")),
        Hook("second", before_tool=lambda call: asked.append(call.name)),
    )
    returned, records, _, statuses = await played(*hooks)
    text = "Tool call blocked by PreToolUse hook: not on Sundays. Tool: echo"
    assert (returned, asked, statuses) == ([("rejected", text)], [], [("first", "blocked")])
    assert of_kind(records, ToolCalled) == []


async def test_last_rewrite_wins_and_is_what_the_tool_gets():
    """A later hook sees the rewrite of an earlier one; the log says what the handler got."""

    def louder(call: ToolCall) -> Rewrite:
        return Rewrite({"text": call.arguments["text"] + "!"})

    returned, records, _, _ = await played(Hook("a", before_tool=louder), Hook("b", before_tool=louder))
    assert returned == [("completed", "<hi!!>")]
    assert [e.arguments for e in of_kind(records, ToolCalled)] == [{"text": "hi!!"}]


async def test_block_beats_a_rewrite():
    """Any block wins."""
    hooks = (Hook("a", before_tool=lambda c: Rewrite({"text": "x"})), Hook("b", before_tool=lambda c: Block("no")))
    returned, _, _, _ = await played(*hooks)
    assert returned == [("rejected", "Tool call blocked by PreToolUse hook: no. Tool: echo")]


@pytest.mark.parametrize("arguments", [{"text": 1}, {}, {"text": object()}, {"text": "\ud800"}, None])
async def test_rewrite_that_does_not_fit_fails_the_call(arguments):
    """Rewritten arguments are decoded again, and the handler does not run on wrong ones."""
    returned, records, _, _ = await played(Hook("h", before_tool=lambda call: Rewrite(arguments)))
    assert returned[0][0] == "failed"
    assert returned[0][1].startswith("a hook's rewrite does not fit: ")
    assert of_kind(records, ToolCalled) == []


async def test_rewrite_mends_a_call_that_could_not_be_taken():
    """Arguments a hook wrote are no longer those that were flawed."""
    call = Call("echo", "{broken", flaw="cut off")
    returned, _, _, _ = await played(Hook("h", before_tool=lambda call: Rewrite({"text": "whole"})), calls=[call])
    assert returned == [("completed", "<whole>")]


def raises(*_: Any) -> None:
    raise LookupError("hook \ud800 bug")


def leaves(*_: Any) -> None:
    raise SystemExit(2)


async def sleeps(*_: Any) -> None:
    await trio.sleep(100)


def answers_wrong(*_: Any) -> Any:
    return "yes"


BROKEN = [
    (raises, "LookupError: hook \N{REPLACEMENT CHARACTER} bug"),
    (leaves, "SystemExit: 2"),
    (sleeps, "took over 5 s"),
    (answers_wrong, "answered str, not "),
]


@pytest.mark.parametrize(("fn", "failure"), BROKEN)
async def test_broken_hook_fails_open_with_an_event_and_a_notice(fn, failure):
    """A hook that breaks before or after a tool is recorded, and the call goes on as without it."""
    hook = Hook("h", before_tool=fn, after_tool=fn, timeout_s=5)
    returned, records, _, statuses = await played(hook)
    assert (returned, statuses) == ([("completed", "<hi>")], [("h", "failed")] * 2)
    failed = of_kind(records, HookFailed)
    assert [(e.hook, e.error[: len(failure)], e.blocked) for e in failed] == [("h", failure, False)] * 2


@pytest.mark.parametrize(("fn", "failure"), BROKEN)
async def test_broken_hook_can_be_told_to_fail_closed(fn, failure):
    """With `on_failure = "block"` a broken hook refuses the call."""
    hook = Hook("h", before_tool=fn, on_failure="block", timeout_s=5)
    returned, records, _, _ = await played(hook)
    assert returned[0][0] == "rejected"
    assert returned[0][1].startswith(f"Tool call blocked by PreToolUse hook: hook h failed: {failure}")
    assert [e.blocked for e in of_kind(records, HookFailed)] == [True]
    assert of_kind(records, ToolCalled) == []


async def test_after_a_success_hooks_may_add_and_may_hide():
    """Context is read by the model behind the results; a block replaces the text, the receipt stays completed."""
    hooks = (
        Hook("a", after_tool=lambda call, result: AddContext(f"checked {call.name}")),
        Hook("b", after_tool=lambda call, result: Block("too long to read")),
        Hook("c", after_tool=lambda call, result: AddContext(result.text)),
    )
    returned, _, messages, statuses = await played(*hooks)
    assert returned == [("completed", "too long to read")]
    assert messages[3:5] == [Developer("checked echo"), Developer("<hi>")]
    assert statuses == [("a", "context"), ("b", "blocked"), ("c", "context")]


async def test_after_hooks_are_asked_only_after_a_success():
    """A failed call is nothing a hook could hide or add to."""
    asked: list[ToolResult] = []
    hook = Hook("h", after_tool=lambda call, result: asked.append(result))
    await played(hook, calls=[Call("echo", {"text": 1}), Call("echo", {"text": "hi"}), Call("nowhere")])
    assert asked == [ToolResult("completed", "completed", "<hi>")]


async def test_slow_after_hook_does_not_lose_its_answer_to_a_sibling():
    """Of two parallel calls the first one's result is written only when its hooks have answered."""

    async def slow(call: ToolCall, result: ToolResult) -> Block | None:
        if result.text == "<a>":
            await trio.sleep(3)
            return Block("hidden")
        return None

    returned, _, _, _ = await played(
        Hook("h", after_tool=slow), calls=[Call("echo", {"text": "a"}), Call("echo", {"text": "b"})]
    )
    assert returned == [("completed", "hidden"), ("completed", "<b>")]


async def test_hooks_of_parallel_calls_are_asked_side_by_side():
    """Ten calls with a hook of two seconds wait two seconds, not twenty."""
    times: list[float] = []

    async def slow(call: ToolCall) -> None:
        await trio.sleep(2)
        times.append(trio.current_time())

    await played(Hook("h", before_tool=slow), calls=[Call("echo", {"text": "x"})] * 10)
    assert len(set(times)) == 1


async def test_notes_of_hooks_never_come_between_a_call_and_its_result():
    """With several groups of calls all notes stand behind all results."""

    @tool
    async def alone() -> str:
        """Exclusive."""
        return "a"

    hook = Hook("h", after_tool=lambda call, result: AddContext(call.name))
    calls = [Call("alone"), Call("echo", {"text": "x"}), Call("alone")]
    _, records, messages, _ = await played(hook, calls=calls, tools=(echo, alone))
    assert [m.text for m in messages if isinstance(m, Developer)] == ["alone", "echo", "alone"]
    assert len(of_kind(records, NoteAdded)) == 3

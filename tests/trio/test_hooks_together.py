"""Several hooks of one moment: who is heard, in which order, and whose answer counts."""

from typing import Any

import trio

from callboard.actors.books import HISTORY
from callboard.actors.events import (
    Call,
    HookFailed,
    NoteAdded,
    ToolCalled,
    ToolReturned,
)
from callboard.actors.hook import AddContext, Block, Hook, Rewrite
from callboard.actors.model import Reply
from callboard.actors.plugin import Plugin
from callboard.actors.testing import Lab, ScriptedModel, open_lab
from callboard.actors.tool import tool

from .hooked import WINDOW_S, at_once, failures, later, statuses
from .strict import check_history, check_log, of_kind


@tool
async def echo(text: str) -> str:
    """Says it back."""
    return f"<{text}>"


async def played(*hooks: Hook, plugins: Any = ()) -> tuple[ToolReturned, Lab, float]:
    """One call of echo with these hooks: its result, and how long it all took."""
    model = ScriptedModel([Reply(calls=[Call("echo", {"text": "hi"})]), Reply("on")])
    async with open_lab(model, tools=[echo], hooks=hooks, plugins=plugins) as lab:
        session, begun_s = await lab.session(), trio.current_time()
        await session.run("go")
        seconds = trio.current_time() - begun_s
        check_history(session.state(HISTORY).messages)
        check_log(lab.records())
    return of_kind(lab.records(), ToolReturned)[0], lab, seconds


async def test_async_hooks_of_one_moment_run_side_by_side_and_the_last_to_finish_rewrites():
    """Three waits are one wait, and the rewrite that came last counts, not the one that was asked last."""
    hooks = [
        Hook("slow", before_tool=later(Rewrite({"text": "slow"}), 5)),
        Hook("quick", before_tool=later(Rewrite({"text": "quick"}), 1)),
        Hook("plain", before_tool=at_once(Rewrite({"text": "plain"}))),
    ]
    returned, lab, seconds = await played(*hooks)
    assert (returned.text, seconds) == ("<slow>", 5)
    assert [("plain", "rewrote"), ("slow", "rewrote"), ("quick", "rewrote")] == statuses(lab)


async def test_of_several_refusals_the_first_by_order_is_said():
    """All async hooks are heard, and the first of them in order gives the reason, however late it came."""
    hooks = [Hook("a", before_tool=later(Block("slow no"), 5)), Hook("b", before_tool=later(Block("quick no"), 1))]
    returned, lab, _ = await played(*hooks)
    assert returned.text == "Tool call blocked by PreToolUse hook: slow no. Tool: echo"
    assert of_kind(lab.records(), ToolCalled) == []


async def test_a_plain_refusal_ends_the_asking_before_an_async_hook_began():
    """What is decided is not waited for."""
    returned, lab, seconds = await played(
        Hook("slow", before_tool=later(None, 5)), Hook("plain", before_tool=at_once(Block("no")))
    )
    assert (returned.receipt, seconds, statuses(lab)) == ("rejected", 0, [("plain", "blocked")])


async def test_what_a_hook_adds_before_a_tool_is_read_behind_its_result():
    """Whether the call was let through or refused."""
    for answer in (AddContext("mind the gap"), (AddContext("mind the gap"), Block("no"))):
        _, lab, _ = await played(Hook("h", before_tool=at_once(answer)))
        assert [NoteAdded("mind the gap", "developer", "hook")] == of_kind(lab.records(), NoteAdded)


async def test_several_refusals_of_a_result_are_read_together():
    """What hooks find wrong with a result adds up."""
    returned, _, _ = await played(
        Hook("a", after_tool=later(Block("one"), 2)), Hook("b", after_tool=at_once(Block("two")))
    )
    assert (returned.receipt, returned.text) == ("completed", "one\ntwo")


async def test_hooks_of_plugins_are_asked_first():
    """A plugin may bring hooks; they stand before those of the runtime."""
    plugin = Plugin("p", hooks=(Hook("of the plugin", before_tool=at_once(Rewrite({"text": "p"}))),))
    own = Hook("own", before_tool=lambda call: Rewrite({"text": call.arguments["text"] + "!"}))
    returned, _, _ = await played(own, plugins=[plugin])
    assert returned.text == "<p!>"


async def test_a_hook_that_swallows_its_cancellation_is_left_behind():
    """Its time is over, and the call goes on without it at most a window later."""

    async def stubborn(call: Any) -> None:
        with trio.move_on_after(1000, shield=True):
            await trio.sleep(1000)

    returned, lab, seconds = await played(Hook("h", before_tool=stubborn, timeout_s=2))
    assert (returned.receipt, seconds) == ("completed", 2 + WINDOW_S)
    assert [HookFailed("h", "took over 2 s")] == failures(lab)

"""Interrupting a turn: answered at once, ended in its window, one receipt a call, a history any provider accepts."""

from typing import Any

import pytest
import trio

from callboard.actors.books import HISTORY, PARKED, QUEUE, TURN
from callboard.actors.errors import ModelError
from callboard.actors.events import AbortRequested, Call, ModelSaid, StepStarted, ToolCalled, ToolReturned, TurnEnded
from callboard.actors.messages import Idle, Interrupt, Interrupting, Refused
from callboard.actors.model import Assistant, Developer, Reply, Result, User
from callboard.actors.plugin import Enter, Hook, Plugin, View
from callboard.actors.receipts import marker_text
from callboard.actors.stage import Limits
from callboard.actors.testing import LabSession, ScriptedModel, open_lab
from callboard.actors.tool import tool

from .acts import TOOLS, interrupted
from .strict import check_history, check_log, of_kind, until


async def test_batch_of_three_ends_with_one_result_each():
    """One call done, one running, one not started: three receipts, a marker, and the next turn works."""
    calls = [Call("quick", {"text": "a"}, id="a"), Call("slow", id="b"), Call("quick", {"text": "c"}, id="c")]
    async with open_lab(ScriptedModel([Reply("look", calls), Reply("on")]), tools=TOOLS) as lab:
        session = await lab.session()
        ended = await interrupted(lab, session)
        assert (ended.reason, ended.cause, ended.ending) == ("aborted", "interrupted", "cancelled")
        assert [(r.call, r.receipt) for r in ended.receipts] == [
            ("a", "completed"),
            ("b", "interrupted"),
            ("c", "not_started"),
        ]
        assert list(session.state(HISTORY).messages) == [
            User("go"),
            Assistant("look", tuple(calls)),
            Result("a", "quick", "a"),
            Result("b", "slow", "aborted by user after 1.5s", failed=True),
            Result(
                "c", "quick", "not started: aborted by user. Nothing of it ran; it may be called again.", failed=True
            ),
            User(marker_text("user"), "marker"),
        ]
        assert [type(e).__name__ for e in lab.records()[-6:]] == [
            "AbortRequested",
            "ToolReturned",
            "ToolReturned",
            "StepEnded",
            "NoteAdded",
            "TurnEnded",
        ]
        assert (await session.run("more")).last_message == "on"
        check_history(session.state(HISTORY).messages)


async def test_interrupt_is_answered_and_asked_in_the_same_moment():
    """No time passes between the interrupt, its answer, its record and the cancellation of the work."""
    seen: list[tuple[str, float]] = []

    @tool
    async def watch() -> None:
        """Says when it is cancelled."""
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            seen.append(("cancelled", trio.current_time()))
            raise

    async with open_lab(ScriptedModel([Reply(calls=[Call("watch")])]), tools=[watch]) as lab:
        session = await lab.session()
        session.actor.on_abort = lambda: seen.append(("children", trio.current_time()))
        await session.submit("go")
        await trio.sleep(5)
        before = trio.current_time()
        await session.interrupt()
        assert of_kind(lab.records(), AbortRequested) == [AbortRequested(1, "interrupted")]
        await session.wait(1)
        assert seen == [("children", before), ("cancelled", before)]


async def test_streamed_text_is_kept_and_marked():
    """What the model said before it was cut stays in the history, its unfinished calls do not."""
    model = ScriptedModel([Reply("one two three four", [Call("quick", {"text": "x"})])], delay_s=4)
    async with open_lab(model, tools=TOOLS) as lab:
        session = await lab.session()
        ended = await interrupted(lab, session, 2.5)
        messages = list(session.state(HISTORY).messages)
        assert messages[1] == Assistant("one two", interrupted=True)
        assert (ended.last_message, ended.tool_calls, ended.first_token_ms) == ("one two", 0, 1000)


async def test_streamed_text_can_be_thrown_away():
    """With `keep_partial_text` off nothing of a cut answer is kept."""
    model = ScriptedModel([Reply("one two three four")], delay_s=4)
    async with open_lab(model, limits=Limits(keep_partial_text=False)) as lab:
        session = await lab.session()
        ended = await interrupted(lab, session, 2.5)
        assert (ended.last_message, of_kind(lab.records(), ModelSaid)) == (None, [])


async def test_marker_can_be_a_developers_note_or_left_out():
    """`marker_role` words it without the user, `interrupt_message` turns it off."""
    for limits, last in [
        (Limits(marker_role="developer"), Developer(marker_text("developer"))),
        (Limits(interrupt_message=False), User("go")),
    ]:
        async with open_lab(ScriptedModel([Reply("x")], delay_s=9), limits=limits) as lab:
            session = await lab.session()
            await interrupted(lab, session, 0)
            assert session.state(HISTORY).messages[-1] == last


@pytest.mark.parametrize(
    ("cause", "text", "marked"),
    [
        ("interrupted", "aborted by user after 1.5s", True),
        ("parent", "aborted together with the parent agent after 1.5s", True),
        ("shutdown", "aborted because the runtime is shutting down after 1.5s", False),
        ("replaced", "aborted because a new task replaced this one after 1.5s", False),
        ("review_ended", "aborted because the review ended after 1.5s", False),
    ],
)
async def test_words_and_marker_follow_the_cause(cause, text, marked):
    """Only a person's interrupt, or the parent's, leaves the marker; every cause has its own words."""
    async with open_lab(ScriptedModel([Reply(calls=[Call("slow")])]), tools=TOOLS) as lab:
        session = await lab.session()
        await session.submit("go")
        await session.submit("later")
        await trio.sleep(1.5)
        assert await session.ask(lambda reply: Interrupt(cause=cause, reply=reply)) == Interrupting(1)
        ended = await session.wait(1)
        assert ended is not None
        assert ended.cause == cause
        assert [e.text for e in of_kind(lab.records(), ToolReturned)] == [text]
        assert any(isinstance(m, User) and m.source == "marker" for m in session.state(HISTORY).messages) == marked
        await session.wait_idle()
        parked = cause != "replaced"
        assert (session.state(PARKED), [m.text for m in session.state(QUEUE)]) == (
            parked,
            ["later"] if parked else [],
        )


async def test_first_cause_wins_and_repeats_are_harmless():
    """Later interrupts of the same turn are answered like the first, and change nothing."""
    async with open_lab(ScriptedModel([Reply(calls=[Call("tidy", {"seconds": 0.09})])]), tools=TOOLS) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1)
        assert await session.interrupt() == Interrupting(1)
        assert await session.ask(lambda reply: Interrupt(cause="parent", reply=reply)) == Interrupting(1)
        assert [await session.interrupt(1) for _ in range(3)] == [Interrupting(1)] * 3
        assert isinstance(await session.interrupt(2), Refused)
        ended = await session.wait(1)
        assert ended is not None
        assert ended.cause == "interrupted"
        assert len(of_kind(lab.records(), AbortRequested)) == 1
        assert len(of_kind(lab.records(), TurnEnded)) == 1


async def test_interrupt_of_an_idle_session_is_harmless():
    """Nothing is written, the answer says so, and the next turn runs."""
    async with open_lab(ScriptedModel([Reply("a"), Reply("b")])) as lab:
        session = await lab.session()
        assert await session.interrupt() == Idle()
        await session.run("go")
        before = lab.records()
        assert [await session.interrupt() for _ in range(3)] == [Idle()] * 3
        assert lab.records() == before
        assert (await session.run("more")).last_message == "b"


async def test_interrupt_that_names_a_turn_touches_no_other():
    """A turn id that is not running is refused, with words, and the running turn goes on."""
    async with open_lab(ScriptedModel([Reply("a"), Reply("b")], delay_s=5)) as lab:
        session = await lab.session()
        await session.run("go")
        assert await session.interrupt(1) == Refused("turn_mismatch", "turn 1 is not running: no turn is running")
        await session.submit("more")
        await trio.sleep(1)
        assert await session.interrupt(1) == Refused("turn_mismatch", "turn 1 is not running: turn 2 is running")
        assert await session.interrupt(3) == Refused("turn_mismatch", "turn 3 is not running: turn 2 is running")
        assert await session.interrupt(2) == Interrupting(2)
        ended = await session.wait(2)
        assert ended is not None
        assert ended.reason == "aborted"


async def test_interrupt_while_before_step_runs_keeps_the_message():
    """The message was not claimed, so it goes back to the queue, parked, and is offered with the next prompt."""

    async def ponder(view: View, messages: Any) -> Enter:
        if view.turn == 1:
            await trio.sleep(1000)
        return Enter(messages)

    async with open_lab(ScriptedModel([Reply("a"), Reply("b")]), plugins=[Plugin("p", before_step=ponder)]) as lab:
        session = await lab.session()
        ended: list[Any] = []
        lab.stage.nursery.start_soon(_keep, ended, session, "go")
        await trio.sleep(1)
        assert await session.interrupt() == Interrupting(1)
        await session.wait_idle()
        await until(lambda: ended)
        assert [(e.turn, e.reason, e.steps) for e in ended] == [(1, "aborted", 0)]
        assert ([m.text for m in session.state(QUEUE)], session.state(PARKED)) == (["go"], True)
        assert of_kind(lab.records(), StepStarted) == []
        assert (await session.run("more")).turn == 3
        users = [m.text for m in session.state(HISTORY).messages if isinstance(m, User) and m.source == "user"]
        assert users == ["go", "more"]
        check_log(lab.records())


async def _keep(ended: list[Any], session: LabSession, text: str) -> None:
    ended.append(await session.run(text))


async def test_interrupt_while_a_hook_is_asked_starts_nothing():
    """A call whose hooks were still asked is not started, and has no ToolCalled."""

    async def ponder(call: Any) -> None:
        await trio.sleep(1000)

    calls = [Call("quick", {"text": "a"}), Call("quick", {"text": "b"})]
    async with open_lab(
        ScriptedModel([Reply(calls=calls), Reply("on")]), tools=TOOLS, hooks=[Hook("h", before_tool=ponder)]
    ) as lab:
        session = await lab.session()
        ended = await interrupted(lab, session)
        assert ([r.receipt for r in ended.receipts], of_kind(lab.records(), ToolCalled)) == (["not_started"] * 2, [])


async def test_interrupt_while_a_hook_looks_at_a_result_keeps_the_result():
    """The tool had completed, so it stays completed."""

    async def ponder(call: Any, result: Any) -> None:
        await trio.sleep(1000)

    async with open_lab(
        ScriptedModel([Reply(calls=[Call("quick", {"text": "a"})])]), tools=TOOLS, hooks=[Hook("h", after_tool=ponder)]
    ) as lab:
        session = await lab.session()
        ended = await interrupted(lab, session)
        assert [r.receipt for r in ended.receipts] == ["completed"]
        assert [e.text for e in of_kind(lab.records(), ToolReturned)] == ["a"]


async def test_interrupt_before_the_turns_own_task_has_run():
    """Submit and interrupt in one breath: no step, the message is kept, the turn ended as aborted."""
    model = ScriptedModel([Reply("a")])
    async with open_lab(model) as lab:
        session = await lab.session()
        accepted: list[Any] = []
        lab.stage.nursery.start_soon(_submit, accepted, session)
        while not session.state(TURN).open:
            await trio.lowlevel.checkpoint()
        session.actor.tell(Interrupt())
        ended = await session.wait(1)
        assert ended is not None
        assert (ended.reason, ended.cause) == ("aborted", "interrupted")
        check_log(lab.records())
        await session.resume_queue()
        await session.wait_idle()
        assert session.state(QUEUE) == ()


async def _submit(accepted: list[Any], session: LabSession) -> None:
    accepted.append(await session.submit("go"))


async def test_interrupt_between_a_failed_request_and_the_next_try():
    """The pause before a retry is work like any other."""

    async def busy(prompt: Any) -> Reply:
        raise ModelError("busy", retryable=True, retry_after_s=30)

    async with open_lab(ScriptedModel(busy)) as lab:
        ended = await interrupted(lab, await lab.session(), 3)
        assert (ended.reason, ended.error, ended.abort_s) == ("aborted", None, 0.0)


async def test_the_same_interrupt_sent_again_stops_no_later_turn():
    """A client that tries twice under one id gets the first answer again, and the turn that runs meanwhile goes on."""
    async with open_lab(ScriptedModel([Reply("a"), Reply("b")], delay_s=1)) as lab:
        session = await lab.session()
        await session.submit("one")
        await trio.sleep(0.5)
        assert Interrupting(1) == await session.interrupt(id="x")
        await session.wait_idle()
        await session.submit("two")
        await trio.sleep(0.5)

        assert Interrupting(1) == await session.interrupt(id="x")

        ended = await session.wait(2)
        assert ended is not None
        assert ("completed", "b") == (ended.reason, ended.last_message)

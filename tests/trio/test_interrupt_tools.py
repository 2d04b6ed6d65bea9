"""Tools under an interrupt: clean-ups, graceful ones, late values, late errors, results of the same tick."""

from typing import Any

import pytest
import trio

from callboard.actors.events import Call, ToolCalled, ToolReturned
from callboard.actors.messages import Interrupt
from callboard.actors.model import Reply
from callboard.actors.notices import AbandonedChanged
from callboard.actors.plugin import Partial, View
from callboard.actors.stage import Limits
from callboard.actors.testing import LabSession, ScriptedModel, open_lab
from callboard.actors.tool import tool

from .acts import TOOLS, interrupted
from .strict import about, of_kind, until


@pytest.mark.parametrize("seconds", [0.02, 0.099])
async def test_clean_up_within_the_window_is_waited_for(seconds):
    """A shielded clean-up inside the window ends the call as interrupted, and the turn when it is done."""
    calls = [Call("tidy", {"seconds": seconds})]
    async with open_lab(ScriptedModel([Reply(calls=calls)]), tools=TOOLS) as lab:
        session = await lab.session()
        ended = await interrupted(lab, session)
        assert ([r.receipt for r in ended.receipts], ended.abort_s) == (["interrupted"], about(seconds))


async def test_clean_up_beyond_the_window_is_left_behind():
    """At the end of the window the call is abandoned, counted, and dropped; the turn does not wait."""
    calls = [Call("tidy", {"seconds": 7})]
    async with open_lab(ScriptedModel([Reply(calls=calls)]), tools=TOOLS) as lab:
        session = await lab.session()
        ended = await interrupted(lab, session)
        assert [r.receipt for r in ended.receipts] == ["abandoned"]
        assert (ended.abort_s, ended.ending) == (about(0.1), "abandoned")
        await until(lambda: not lab.stage.abandoned.count(), 1)
        counts = [n.count for n in lab.notices if isinstance(n, AbandonedChanged)]
        assert counts == [1, 0]
        (returned,) = of_kind(lab.records(), ToolReturned)
        assert returned.text == (
            "aborted by user after 1.6s. It did not stop in time and was left behind; "
            "what it may still do is not reported."
        )


async def test_windows_length_is_a_setting():
    """`abort_window_s` is how long a turn waits for its tools, and what a tool can read."""
    lengths: list[float] = []

    @tool(graceful=True)
    async def ask(view: View) -> None:
        """Reads the length."""
        lengths.append(view.window_s)
        await trio.sleep_forever()

    async with open_lab(
        ScriptedModel([Reply(calls=[Call("ask")])]), tools=[ask], limits=Limits(abort_window_s=2.5)
    ) as lab:
        ended = await interrupted(lab, await lab.session())
        assert (lengths, ended.abort_s) == ([2.5], about(2.5))


async def test_graceful_tool_is_told_and_returns_what_it_has():
    """A graceful tool keeps running, sees the interrupt, and its Partial is read word for word."""
    heard: list[bool] = []

    @tool(graceful=True, parallel=True)
    async def careful(view: View, text: str) -> Any:
        """Counts until it is told to stop."""
        heard.append(bool(view.interrupted))
        await view.interrupted.wait()
        await trio.sleep(0.05)
        heard.append(view.interrupted.is_set())
        return Partial(text) if text else "plain"

    calls = [Call("careful", {"text": "Wall time: 1.5 seconds\naborted by user"}), Call("careful", {"text": ""})]
    async with open_lab(ScriptedModel([Reply(calls=calls)]), tools=[careful]) as lab:
        session = await lab.session()
        ended = await interrupted(lab, session)
        assert ([r.receipt for r in ended.receipts], ended.ending) == (["interrupted"] * 2, "graceful")
        assert (heard, ended.abort_s) == ([False, False, True, True], about(0.05))
        assert [e.text for e in of_kind(lab.records(), ToolReturned)] == [
            "Wall time: 1.5 seconds\naborted by user",
            "aborted by user after 1.6s\nplain",
        ]


async def test_value_that_comes_after_the_cancellation_is_partial():
    """What an ordinary tool returns although it was cancelled is told as a part of the answer, not as the answer."""

    @tool
    async def stubborn() -> str:
        """Swallows and returns."""
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            return "half"

    async with open_lab(ScriptedModel([Reply(calls=[Call("stubborn")])]), tools=[stubborn]) as lab:
        ended = await interrupted(lab, await lab.session())
        assert [r.receipt for r in ended.receipts] == ["interrupted"]
        assert [e.text for e in of_kind(lab.records(), ToolReturned)] == ["aborted by user after 1.5s\nhalf"]


async def test_error_of_a_clean_up_goes_to_the_log_of_the_program(caplog):
    """A tool that fails while it is cancelled was interrupted; what it raised is for the operator."""

    @tool
    async def clumsy() -> None:
        """Breaks on its way out."""
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("no such socket")

    async with open_lab(ScriptedModel([Reply(calls=[Call("clumsy")])]), tools=[clumsy]) as lab:
        ended = await interrupted(lab, await lab.session())
        assert [r.receipt for r in ended.receipts] == ["interrupted"]
        assert "clumsy raised while it was being interrupted: OSError: no such socket" in caplog.text


async def test_tool_whose_wait_is_over_when_the_interrupt_comes_has_completed():
    """In whatever order the two wake up, the result was there."""
    async with open_lab(ScriptedModel([Reply(calls=[Call("slow", {"seconds": 1.5})])]), tools=TOOLS) as lab:
        session = await lab.session()
        await session.submit("go")
        await until(lambda: of_kind(lab.records(), ToolCalled))
        session.actor.stage.nursery.start_soon(_tell_at, session, trio.current_time() + 1.499)
        ended = await session.wait(1)
        assert ended is not None
        assert [r.receipt for r in ended.receipts] == ["completed"]


async def _tell_at(session: LabSession, at_s: float) -> None:
    await trio.sleep_until(at_s)
    session.actor.tell(Interrupt())


async def test_final_result_wins_over_an_interrupt_in_the_same_tick():
    """Once the body has returned, an interrupt that arrives before anybody looked changes nothing about the result."""
    box: list[LabSession] = []

    @tool
    async def last_word() -> str:
        """Is interrupted by its own last act."""
        await trio.sleep(1)
        window = box[0].actor.scene.window
        assert window is not None
        box[0].actor.tell(Interrupt())
        return "said"

    @tool
    async def last_error() -> str:
        """The same, with an error."""
        await last_word.fn()
        raise LookupError("nothing there")

    for name, receipt, text in [
        ("last_word", "completed", "said"),
        ("last_error", "failed", "LookupError: nothing there"),
    ]:
        async with open_lab(ScriptedModel([Reply(calls=[Call(name)])]), tools=[last_word, last_error]) as lab:
            box[:] = [await lab.session()]
            ended = await box[0].run("go")
            assert (ended.reason, [r.receipt for r in ended.receipts]) == ("aborted", [receipt])
            assert [e.text for e in of_kind(lab.records(), ToolReturned)] == [text]

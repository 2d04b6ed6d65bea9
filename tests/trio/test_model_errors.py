"""Errors of the model: retries and their notices, a request that streams nothing, a stream that is cut."""

from typing import Any

import pytest
import trio

from callboard.actors.books import HISTORY
from callboard.actors.errors import ModelError
from callboard.actors.events import Call, ModelFailed, ModelSaid
from callboard.actors.model import STREAM_CLOSED, Assistant, Prompt, Reply, Say, User
from callboard.actors.notices import ModelRetrying
from callboard.actors.stage import Limits
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.actors.tool import tool

from .strict import about, check_log, of_kind


class Streams:
    """Streams by the attempt: a pause in seconds, a piece of text, an error to raise, or a reply to return."""

    provider = "scripted"

    def __init__(self, *attempts: list[Any], idle_timeout_s: Any = None) -> None:
        self.attempts, self.idle_timeout_s = list(attempts), idle_timeout_s

    async def reply(self, prompt: Prompt, say: Say) -> Reply:
        """Play the next attempt."""
        for part in self.attempts.pop(0):
            if isinstance(part, BaseException):
                raise part
            if isinstance(part, Reply):
                return part
            if isinstance(part, str):
                say(part)
            else:
                await trio.sleep(part)
        return Reply("at last")


def failing(count: int, **options: Any) -> ScriptedModel:
    """Fails so many times, then answers."""
    left = [ModelError("busy", retryable=True, **options) for _ in range(count)]

    def reply(prompt: Prompt) -> Reply:
        if left:
            raise left.pop()
        return Reply("at last")

    return ScriptedModel(reply)


@pytest.mark.parametrize("retries_max", [0, 1, 4])
async def test_retries_are_bounded(retries_max):
    """A request is made `retries_max` times more, after waits that double, and then the turn has failed."""
    async with open_lab(failing(99), limits=Limits(retries_max=retries_max)) as lab:
        session = await lab.session()
        before = trio.current_time()
        ended = await session.run("go")
        assert (ended.reason, ended.error) == ("completed", "busy")
        assert [True] * retries_max + [False] == [e.retryable for e in of_kind(lab.records(), ModelFailed)]
        assert trio.current_time() - before == about(sum(0.5 * 2**n for n in range(retries_max)))


async def test_retry_is_told_to_readers_with_deltas():
    """A transient notice says which attempt failed and how long the next one waits; the log has the failure alone."""
    async with open_lab(failing(2, retry_after_s=7)) as lab:
        session = await lab.session()
        await session.run("go")
        assert [ModelRetrying("s", 1, n, 3, 7.0, "busy") for n in (1, 2)] == session.retries
        assert 2 == len(of_kind(lab.records(), ModelFailed))


@pytest.mark.parametrize(
    ("advice", "seconds"), [(3, 3), (90.5, 90.5), (10_000, 120), (0, 0.5), (-5, 0.5), ("9", 0.5), (None, 0.5)]
)
async def test_advice_is_followed_within_a_bound(advice, seconds):
    """Advice is waited out up to two minutes, and never less than our own wait; what is no number is no advice."""
    async with open_lab(failing(1, retry_after_s=advice)) as lab:
        session = await lab.session()
        before = trio.current_time()
        assert (await session.run("go")).last_message == "at last"
        assert trio.current_time() - before == about(seconds)


async def test_waiting_for_a_retry_is_interrupted_at_once():
    """A turn that waits for the provider ends as soon as it is asked to."""
    async with open_lab(failing(1, retry_after_s=60)) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1)
        await session.interrupt()
        ended = await session.wait(1)
        assert ended is not None
        assert (ended.reason, ended.abort_s) == ("aborted", about(0))


async def test_request_that_streams_nothing_is_made_again():
    """After `idle_timeout_s` without a sign of life a request has failed with a named error, and is retryable."""
    model = Streams([3600], ["half ", 3600], ["a", 4, "b", 4, "", 4, "c", Reply("abc")])
    async with open_lab(model, limits=Limits(idle_timeout_s=5)) as lab:
        session = await lab.session()
        before = trio.current_time()
        ended = await session.run("go")
        assert (ended.last_message, ended.error) == ("abc", None)
        text = "the model streamed nothing for 5 s (idle_timeout_s)"
        assert [(e.error, e.retryable) for e in of_kind(lab.records(), ModelFailed)] == [(text, True)] * 2
        assert trio.current_time() - before == about(5 + 0.5 + 5 + 1 + 12)
        assert list(session.state(HISTORY).messages) == [User("go"), Assistant("abc")]
        assert [d.text for d in session.deltas] == ["half ", "a", "b", "c"]


async def test_watchdog_gives_up_with_its_name():
    """When no attempt streams anything the turn ends with the named error, and keeps what was said last."""
    model = Streams([60], [60], ["half", 60])
    async with open_lab(model, limits=Limits(idle_timeout_s=5)) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert ended.error == "the model streamed nothing for 5 s (idle_timeout_s)"
        assert list(session.state(HISTORY).messages) == [User("go"), Assistant("half", interrupted=True)]


@pytest.mark.parametrize(("own", "configured", "seconds"), [(5, None, 5), (5, 2, 2), (None, 2, 2), (True, 7, 7)])
async def test_watchdog_is_the_models_unless_configured(own, configured, seconds):
    """A model may say how long its silence can last; the configuration goes before it."""
    async with open_lab(Streams([60], [], idle_timeout_s=own), limits=Limits(idle_timeout_s=configured)) as lab:
        session = await lab.session()
        before = trio.current_time()
        assert (await session.run("go")).last_message == "at last"
        assert trio.current_time() - before == about(seconds + 0.5)


@pytest.mark.parametrize("own", [None, 0, -1, True, "5"])
async def test_without_a_watchdog_a_model_may_be_silent(own):
    """What is no number of seconds is no watchdog, and then a request may take as long as it takes."""
    async with open_lab(Streams([100_000], idle_timeout_s=own)) as lab:
        session = await lab.session()
        assert (await session.run("go")).last_message == "at last"


@tool
async def dig() -> str:
    """Digs."""
    return "earth"


@pytest.mark.parametrize(
    "error",
    [
        ModelError(STREAM_CLOSED, retryable=True),
        ConnectionResetError(104, "reset"),
        EOFError(),
        trio.BrokenResourceError(),
        trio.EndOfChannel(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_stream_that_is_cut_inside_a_call_is_made_again(error):
    """Nothing of the cut call reaches the log; the next attempt's call does, once."""
    model = Streams(["I call ", error], ["I call", Reply("I call", [Call("dig")])], [Reply("dug")])
    async with open_lab(model, tools=[dig]) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert (ended.last_message, ended.tool_calls, ended.error) == ("dug", 1, None)
        assert [(e.error, e.retryable) for e in of_kind(lab.records(), ModelFailed)] == [(STREAM_CLOSED, True)]
        assert [(e.text, len(e.calls)) for e in of_kind(lab.records(), ModelSaid)] == [("I call", 1), ("dug", 0)]
        check_log(lab.records())


async def test_wire_that_breaks_before_anything_was_said_says_what_it_was():
    """An error of the connection is retryable and told as what it is."""
    async with open_lab(Streams([ConnectionRefusedError("refused")], [])) as lab:
        session = await lab.session()
        assert (await session.run("go")).last_message == "at last"
        (failed,) = of_kind(lab.records(), ModelFailed)
        assert (failed.retryable, "refused" in failed.error) == (True, True)


async def test_unfinished_call_is_dropped_at_an_interrupt_and_its_text_kept():
    """What was streamed stays, marked; a call that was not whole leaves no trace."""
    async with open_lab(Streams(["I call ", "dig", 60])) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1)
        await session.interrupt()
        ended = await session.wait(1)
        assert ended is not None
        assert (ended.tool_calls, ended.receipts) == (0, ())
        assert session.state(HISTORY).messages[1] == Assistant("I call dig", interrupted=True)


async def test_time_spent_on_retries_is_not_our_overhead():
    """The overhead of a step is its time without the model, however often it was asked."""
    async with open_lab(failing(2, retry_after_s=7)) as lab:
        session = await lab.session()
        await session.run("go")
        (ended,) = (e for e in lab.records() if type(e).__name__ == "StepEnded")
        assert ended.overhead_s == about(0)  # type: ignore[attr-defined]

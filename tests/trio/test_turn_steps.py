"""Steps: one model request and its tools after the other until nothing is owed, and every way a turn ends by itself."""

from typing import Any

import pytest
import trio

from callboard.actors.books import HISTORY, QUEUE, TURN
from callboard.actors.errors import ModelError
from callboard.actors.events import (
    AbortRequested,
    Call,
    Message,
    MessagesClaimed,
    ModelFailed,
    ModelSaid,
    StepStarted,
    ToolReturned,
    TurnEnded,
    Usage,
)
from callboard.actors.messages import Steered
from callboard.actors.model import Assistant, Prompt, Reply, User
from callboard.actors.plugin import Enter, Plugin, Reject, View
from callboard.actors.stage import Limits
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.actors.tool import tool

from .strict import about, check_history, check_log, of_kind, until


@tool
async def wait(seconds: float) -> str:
    """Waits."""
    await trio.sleep(seconds)
    return f"waited {seconds:g}"


@tool(parallel=True)
async def look(seconds: float) -> str:
    """Waits beside others."""
    await trio.sleep(seconds)
    return f"looked {seconds:g}"


def call(name: str, seconds: float) -> Call:
    """A call of one of the two."""
    return Call(name, {"seconds": seconds})


async def test_turn_is_steps_until_nothing_is_called():
    """Each step asks the model once, with everything that was said and returned before."""
    replies = [Reply("one", [call("wait", 1)]), Reply("two", [call("wait", 2)]), Reply("three")]
    model = ScriptedModel(replies, usage=Usage(input=10, output=1))
    async with open_lab(model, tools=[wait]) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert (ended.steps, ended.tool_calls, ended.last_message, ended.usage.total) == (3, 2, "three", 33)
        assert [len(prompt.messages) for prompt in model.prompts] == [1, 3, 5]
        assert [(prompt.turn, prompt.step) for prompt in model.prompts] == [(1, 1), (1, 2), (1, 3)]
        check_history(session.state(HISTORY).messages)
        check_log(lab.records())


async def test_model_that_says_more_is_asked_again():
    """A reply with `more` keeps the turn going though it calls nothing."""
    async with open_lab(ScriptedModel([Reply("first", more=True), Reply("second")])) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert (ended.steps, ended.last_message) == (2, "second")


async def test_empty_reply_ends_the_turn_without_a_message():
    """A model that says nothing leaves no empty answer in the history."""
    async with open_lab(ScriptedModel([Reply()])) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert (ended.reason, ended.last_message) == ("completed", None)
        assert list(session.state(HISTORY).messages) == [User("go")]


@pytest.mark.parametrize(
    ("calls", "seconds"),
    [
        ([call("look", 3), call("look", 1), call("look", 2)], 3),
        ([call("wait", 1), call("wait", 2)], 3),
        ([call("look", 1), call("look", 2), call("wait", 1), call("look", 2), call("look", 1)], 5),
        ([call("wait", 1), call("look", 2), call("wait", 1)], 4),
    ],
)
async def test_parallel_calls_share_the_gate_and_exclusive_ones_hold_it(calls, seconds):
    """Neighbouring parallel calls take as long as the longest, exclusive calls their sum; results come in order."""
    async with open_lab(ScriptedModel([Reply(calls=calls), Reply("done")]), tools=[wait, look]) as lab:
        session = await lab.session()
        before = trio.current_time()
        await session.run("go")
        assert trio.current_time() - before == about(seconds)
        returned = of_kind(lab.records(), ToolReturned)
        verb = {"look": "looked", "wait": "waited"}
        assert [e.text for e in returned] == [f"{verb[c.name]} {c.arguments['seconds']:g}" for c in calls]
        check_history(session.state(HISTORY).messages)


async def test_a_thousand_parallel_calls_are_recorded_in_call_order():
    """Whatever the finish order is, the log has the results as the calls were asked for."""
    calls = [call("look", (n * 7919) % 1000 / 1000) for n in range(1000)]
    async with open_lab(ScriptedModel([Reply(calls=calls), Reply("done")]), tools=[look]) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert len(ended.receipts) == 1000
        asked = [c.id for e in of_kind(lab.records(), ModelSaid) for c in e.calls]
        assert [e.call for e in of_kind(lab.records(), ToolReturned)] == asked


async def test_calls_that_cannot_run_are_answered_and_the_turn_goes_on():
    """An unknown tool, a payload of the wrong kind and arguments that do not fit are failed calls with plain words."""
    calls = [
        Call("nowhere"),
        Call("wait", "raw text", kind="custom"),
        Call("wait", {"seconds": "soon"}),
        Call("wait", "{"),
        Call("wait", {"seconds": 1, "more": 2}),
        Call("wait", {"seconds": 1}, flaw="invalid UTF-8 at byte 3"),
    ]
    async with open_lab(ScriptedModel([Reply(calls=calls), Reply("on")]), tools=[wait]) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert (ended.reason, ended.last_message) == ("completed", "on")
        assert [r.receipt for r in ended.receipts] == ["failed"] * 6
        texts = [e.text for e in of_kind(lab.records(), ToolReturned)]
        assert texts[:2] == ["unsupported call: nowhere", "wait handler received unsupported payload"]
        assert all(text.startswith("failed to parse function arguments: ") for text in texts[2:])
        assert texts[2].endswith("at `$.seconds`")
        assert texts[5].endswith("invalid UTF-8 at byte 3")


async def test_failed_request_is_tried_again_as_the_model_advises():
    """Retryable errors are waited out with a bound, shown on the log, and their half texts are not kept twice."""
    errors = [ModelError("busy", retryable=True, retry_after_s=7), ModelError("busy", retryable=True)]

    async def model(prompt: Prompt) -> Reply:
        if errors:
            raise errors.pop(0)
        return Reply("at last")

    async with open_lab(ScriptedModel(model)) as lab:
        session = await lab.session()
        before = trio.current_time()
        ended = await session.run("go")
        assert (ended.last_message, ended.error, trio.current_time() - before) == ("at last", None, 8.0)
        assert [(e.error, e.retryable) for e in of_kind(lab.records(), ModelFailed)] == [("busy", True)] * 2


class HalfModel:
    """Says half of it, then breaks."""

    provider = "scripted"

    async def reply(self, prompt: Prompt, say: Any) -> Reply:
        """Break."""
        say("half ")
        await trio.sleep(1)
        say("said")
        raise ModelError("stream closed before response.completed")


async def test_failed_request_ends_the_turn_with_an_error_and_never_as_an_abort():
    """The text that was streamed is kept and marked, the queue is parked, and the session stays usable."""
    async with open_lab(HalfModel()) as lab:
        session = await lab.session()
        await session.submit("go")
        await session.submit("later")
        ended = await session.wait(1)
        assert ended is not None
        assert (ended.reason, ended.cause, ended.error) == (
            "completed",
            None,
            "stream closed before response.completed",
        )
        assert list(session.state(HISTORY).messages) == [User("go"), Assistant("half said", interrupted=True)]
        assert [m.text for m in session.state(QUEUE)] == ["later"]
        await session.wait_idle()


async def test_steps_have_a_budget():
    """After `steps_max` steps the turn is aborted for its budget, without a marker."""
    async with open_lab(
        ScriptedModel(lambda prompt: Reply(calls=[call("wait", 1)])), tools=[wait], limits=Limits(steps_max=3)
    ) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert (ended.reason, ended.cause, ended.steps) == ("aborted", "budget", 3)
        assert not [m for m in session.state(HISTORY).messages if isinstance(m, User) and m.source == "marker"]
        check_history(session.state(HISTORY).messages)


async def test_seconds_have_a_budget():
    """After `turn_seconds_max` the turn is aborted for its budget wherever it is; clean-up gets the window."""
    cleaned: list[float] = []

    @tool
    async def slow() -> None:
        """Slow, with a clean-up."""
        try:
            await trio.sleep(60)
        finally:
            with trio.move_on_after(1, shield=True):
                await trio.sleep(0.05)
            cleaned.append(trio.current_time())

    replies = [Reply(calls=[Call("slow")]), Reply("on")]
    async with open_lab(ScriptedModel(replies), tools=[slow], limits=Limits(turn_seconds_max=5)) as lab:
        session = await lab.session()
        told: list[float] = []
        session.actor.on_abort = lambda: told.append(trio.current_time())
        begun = trio.current_time()
        ended = await session.run("go")
        assert (ended.reason, ended.cause, ended.abort_s) == ("aborted", "budget", about(0.05))
        assert (told, cleaned) == ([begun + 5], [about(begun + 5.05)])
        assert [r.receipt for r in ended.receipts] == ["interrupted"]
        assert [e.cause for e in of_kind(lab.records(), AbortRequested)] == ["budget"]
        assert (await session.run("more")).last_message == "on"


async def test_input_that_joins_enters_at_the_next_request():
    """Steered input waits for the running step to end and keeps the turn going after its last answer."""
    replies = [Reply(calls=[call("wait", 5)]), Reply("heard"), Reply("heard again")]
    model = ScriptedModel(replies, delay_s=1)
    async with open_lab(model, tools=[wait]) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(2)
        assert Steered(1) == await session.steer("left!")
        await trio.sleep(4.5)
        assert Steered(1) == await session.steer("right!", expected_turn=1)
        ended = await session.wait(1)
        assert ended is not None
        assert (ended.steps, ended.last_message) == (3, "heard again")
        assert [e.ids for e in of_kind(lab.records(), MessagesClaimed)] == [("auto:1",), ("auto:2",), ("auto:3",)]


async def test_before_step_may_change_what_enters():
    """A plugin's Enter replaces the claimed messages, and the log says so."""
    seen: list[tuple[str, ...]] = []

    async def shout(view: View, messages: tuple[Message, ...]) -> Enter:
        seen.append(tuple(m.text for m in messages))
        return Enter(tuple(Message(m.id, m.text.upper(), m.source) for m in messages))

    async def count(view: View, messages: tuple[Message, ...]) -> Enter:
        return Enter((*messages, Message("extra", str(view.turn), "notice")))

    plugins = [Plugin("shout", before_step=shout), Plugin("count", before_step=count)]
    replies = [Reply(calls=[call("wait", 1)]), Reply("ok")]
    async with open_lab(ScriptedModel(replies), tools=[wait], plugins=plugins) as lab:
        session = await lab.session()
        await session.run("go")
        users = [m for m in session.state(HISTORY).messages if isinstance(m, User)]
        assert users == [User("GO"), User("1", "notice"), User("1", "notice")]
        assert seen == [("go",), ()]
        check_log(lab.records())


async def test_before_step_may_refuse_the_step():
    """A Reject records the messages, opens no step, ends the turn as blocked, and the next queued message goes on."""

    async def no_secrets(view: View, messages: tuple[Message, ...]) -> Enter | Reject:
        if any("secret" in m.text for m in messages):
            return Reject("secrets are not for models")
        return Enter(messages)

    async with open_lab(ScriptedModel([Reply("ok")]), plugins=[Plugin("p", before_step=no_secrets)]) as lab:
        session = await lab.session()
        await session.submit("the secret is 7")
        await session.submit("the weather is fine")
        blocked, fine = await session.wait(1), await session.wait(2)
        assert blocked is not None
        assert (blocked.reason, blocked.error, blocked.steps) == ("blocked", "secrets are not for models", 0)
        assert fine is not None
        assert (fine.reason, fine.last_message) == ("completed", "ok")
        assert User("the secret is 7") in session.state(HISTORY).messages
        assert [(e.turn, e.step) for e in of_kind(lab.records(), StepStarted)] == [(2, 1)]


async def test_before_step_that_takes_everything_away_ends_the_turn():
    """A turn whose only message is swallowed by a plugin ends, and does not start again with the same message."""

    async def swallow(view: View, messages: tuple[Message, ...]) -> Enter:
        return Enter(())

    async with open_lab(ScriptedModel(), plugins=[Plugin("p", before_step=swallow)]) as lab:
        session = await lab.session()
        ended = await session.run("go")
        await session.wait_idle()
        assert (ended.reason, ended.steps, session.state(QUEUE)) == ("completed", 0, ())
        assert session.state(TURN).number == 1


async def test_message_withdrawn_while_plugins_are_asked_does_not_enter():
    """Until the claim is on the log a message can be taken back, and then its turn has nothing to do."""

    async def ponder(view: View, messages: tuple[Message, ...]) -> Enter:
        await trio.sleep(5)
        return Enter(messages)

    async with open_lab(ScriptedModel([Reply("ok")]), plugins=[Plugin("p", before_step=ponder)]) as lab:
        session = await lab.session()
        await session.run("first")
        await session.submit("second", id="two")
        await trio.sleep(1)
        assert type(await session.withdraw("two")).__name__ == "Withdrawn"
        ended = await session.wait(2)
        assert ended is not None
        assert (ended.reason, ended.steps) == ("completed", 0)
        assert User("second") not in session.state(HISTORY).messages
        check_log(lab.records())


async def test_end_of_a_turn_says_what_it_used():
    """TurnEnded carries steps, calls, tokens and times; only what this turn used, not the session."""
    model = ScriptedModel([Reply("a b", [call("wait", 2)]), Reply("c")] * 2, delay_s=1.0, usage=Usage(input=5))
    async with open_lab(model, tools=[wait]) as lab:
        session = await lab.session()
        await session.run("go")
        await session.submit("again")
        ended = await session.wait(2)
        assert isinstance(ended, TurnEnded)
        assert (ended.usage, ended.steps, ended.tool_calls, ended.first_token_ms) == (Usage(input=10), 2, 1, 500)
        assert [(r.tool, r.receipt, r.seconds) for r in ended.receipts] == [("wait", "completed", 2.0)]
        assert (ended.open_steps, ended.abort_s, ended.ending) == (0, None, None)


async def test_model_that_is_not_configured_ends_the_turn_with_an_error():
    """A session that was created with a model nobody knows any more says so, and does not crash."""

    def resolve(name: str | None) -> Any:
        raise ModelError(f"no model is called {name!r}")

    async with open_lab() as lab:
        lab.stage.resolve = resolve
        session = await lab.session(model="gone")
        ended = await session.run("go")
        assert (ended.reason, ended.error) == ("completed", "no model is called 'gone'")


async def test_two_sessions_do_not_wait_for_each_other():
    """Turns of different sessions run side by side."""
    async with open_lab(ScriptedModel([Reply(calls=[call("wait", 5)])]), tools=[wait]) as lab:
        sessions = [await lab.session(f"s{n}") for n in range(20)]
        before = trio.current_time()
        for session in sessions:
            await session.submit("go")
        for session in sessions:
            await session.wait(1)
        assert trio.current_time() - before == about(5)
        await until(lambda: all(s.actor.phase.value == "idle" for s in sessions))

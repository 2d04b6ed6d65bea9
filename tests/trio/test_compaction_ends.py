"""Compaction that meets its bounds: prompts that are too large, errors, interrupts, models that do not stop."""

import random

import pytest
import trio

from callboard.actors.books import HISTORY, QUEUE, TURN
from callboard.actors.errors import ModelError
from callboard.actors.events import Call, Compacted, MessagesClaimed, ModelFailed, Usage
from callboard.actors.messages import Interrupting
from callboard.actors.model import Prompt, Reply, User
from callboard.actors.phase import Phase
from callboard.actors.testing import open_lab, seeded_run
from callboard.actors.tool import tool

from .compacts import SUMMARY, compact, model, overflow, start
from .strict import check_history, check_log, of_kind, until


@tool
async def dig(metres: int) -> str:
    """Digs."""
    await trio.sleep(0.2)
    return "earth " * metres


async def test_overflow_is_compacted_and_asked_once_more():
    """A prompt that the provider refuses as too large is compacted inside its step, and the answer follows."""

    def answer(prompt: Prompt) -> Reply:
        return overflow(prompt) if len(prompt.messages) > 4 else Reply("ok")

    async with open_lab(model(answer)) as lab:
        session = await lab.session()
        for text in ("one", "two", "three"):
            ended = await session.run(text)
        assert (ended.reason, ended.error, ended.steps, ended.last_message) == ("completed", None, 1, "ok")
        assert [(e.error, e.retryable) for e in of_kind(lab.records(), ModelFailed)] == [("prompt is too long", True)]
        shape = [type(e).__name__ for e in lab.records()]
        assert shape[-6:] == ["StepStarted", "ModelFailed", "Compacted", "ModelSaid", "StepEnded", "TurnEnded"]
        assert ended.usage == Usage(50, output=5)
        check_log(lab.records())


async def test_overflow_twice_ends_the_turn_with_a_named_error():
    """When the compacted prompt is too large as well, the turn ends with an error and the session stays usable."""
    left = [1, 2]

    def answer(prompt: Prompt) -> Reply:
        return overflow(prompt) if left and left.pop() else Reply("ok")

    async with open_lab(model(answer)) as lab:
        session = await lab.session()
        ended = await session.run("one")
        error = "the prompt does not fit the model's window, not even after a compaction: prompt is too long"
        assert (ended.reason, ended.cause, ended.error) == ("completed", None, error)
        assert [e.retryable for e in of_kind(lab.records(), ModelFailed)] == [True, False]
        assert (await session.run("two")).last_message == "ok"


async def test_request_that_is_too_large_itself_loses_its_oldest():
    """The compaction leaves out the oldest messages, ever more of them, until the provider takes it."""
    lengths: list[int] = []

    def summary(prompt: Prompt) -> Reply:
        lengths.append(len(prompt.messages))
        return overflow(prompt) if len(prompt.messages) > 4 else Reply("so far")

    async with open_lab(model(summary=summary)) as lab:
        session = await lab.session()
        for n in range(5):
            await session.run(str(n))
        ended = await compact(session)
        assert (ended.error, lengths) == (None, [11, 10, 8, 4])
        assert [e.dropped for e in of_kind(lab.records(), Compacted)] == [7]
        assert list(session.state(HISTORY).messages) == [*(User(str(n)) for n in range(5)), SUMMARY]


async def test_request_that_never_fits_is_an_error():
    """A provider that refuses even the bare request ends the turn with an error; the history stays as it was."""
    async with open_lab(model(summary=overflow)) as lab:
        session = await lab.session()
        await session.run("one")
        before = list(session.state(HISTORY).messages)
        ended = await compact(session)
        assert (ended.reason, ended.error) == ("completed", "compaction failed: prompt is too long")
        assert [e.retryable for e in of_kind(lab.records(), ModelFailed)] == [True, True, False]
        assert before == list(session.state(HISTORY).messages)
        assert (await session.run("two")).last_message == "ok"


async def test_failing_compaction_ends_the_turn_and_its_message_was_heard():
    """The error is shown, the turn completes with it and without a step, and no message is offered again."""

    def broken(prompt: Prompt) -> Reply:
        raise ModelError("no credit")

    async with open_lab(model(window=1000, usage=Usage(2000), summary=broken)) as lab:
        session = await lab.session()
        await session.run("one")
        ended = await session.run("two")
        assert (ended.reason, ended.error, ended.steps) == ("completed", "compaction failed: no credit", 0)
        assert [e.ids for e in of_kind(lab.records(), MessagesClaimed)] == [("auto:1",), ("auto:2",)]
        assert ((), User("two")) == (session.state(QUEUE), session.state(HISTORY).messages[-1])
        check_log(lab.records())


async def test_compaction_is_retried_like_any_request():
    """A retryable error of the request for a summary is waited out."""
    errors = [ModelError("busy", retryable=True, retry_after_s=3)]

    def summary(prompt: Prompt) -> Reply:
        if errors:
            raise errors.pop()
        return Reply("so far")

    async with open_lab(model(summary=summary)) as lab:
        session = await lab.session()
        await session.run("one")
        before = trio.current_time()
        assert (await compact(session)).error is None
        assert 3 == trio.current_time() - before
        assert [(r.attempt, r.attempts_max, r.delay_s, r.error) for r in session.retries] == [(1, 3, 3, "busy")]


async def sleeps(prompt: Prompt) -> Reply:
    """Takes long, and cleans up."""
    try:
        await trio.sleep(60)
    finally:
        with trio.move_on_after(0.05, shield=True):
            await trio.sleep_forever()
    return Reply("late")


async def test_interrupt_ends_a_compact_turn_and_changes_nothing():
    """The window holds for a compaction too, and the history is what it was, but for the marker."""
    async with open_lab(model(summary=sleeps)) as lab:
        session = await lab.session()
        await session.run("one")
        before = list(session.state(HISTORY).messages)
        number = start(session)
        await trio.sleep(1)
        assert Interrupting(number) == await session.interrupt()
        ended = await session.wait(number)
        assert ended is not None
        assert (ended.reason, ended.cause, ended.kind) == ("aborted", "interrupted", "compact")
        assert ended.abort_s == pytest.approx(0.05, abs=0.01)
        assert before == list(session.state(HISTORY).messages)[:-1]
        assert not of_kind(lab.records(), Compacted)
        check_log(lab.records())


async def test_interrupt_during_an_automatic_compaction_keeps_the_message():
    """What the turn was to take stays queued, and the next word of the user takes it along in order."""
    async with open_lab(model(window=1000, usage=Usage(2000), summary=sleeps)) as lab:
        session = await lab.session()
        await session.run("one")
        await session.submit("two")
        await until(lambda: session.state(TURN).number == 2)
        await trio.sleep(1)
        await session.interrupt()
        ended = await session.wait(2)
        assert ended is not None
        assert (ended.reason, ended.steps, [m.text for m in session.state(QUEUE)]) == ("aborted", 0, ["two"])


async def interrupted_anywhere() -> None:
    """Turns that compact, fail and are interrupted at any moment."""

    async def summary(prompt: Prompt) -> Reply:
        await trio.sleep(random.random())
        if random.random() < 0.3:
            raise ModelError("busy", retryable=random.random() < 0.5, kind=random.choice(["other", "overflow"]))
        return Reply("so far", usage=Usage(10))

    async def answer(prompt: Prompt) -> Reply:
        await trio.sleep(random.random())
        if random.random() < 0.2:
            raise ModelError("busy", retryable=random.random() < 0.5, kind=random.choice(["other", "overflow"]))
        return Reply("", [Call("dig", {"metres": 30})] * (prompt.step < 3), usage=Usage(random.randint(0, 1200)))

    async with open_lab(model(answer, window=1000, summary=summary), tools=[dig]) as lab:
        session = await lab.session()
        for n in range(8):
            if random.random() < 0.3 and session.actor.phase is Phase.IDLE:
                start(session)
            await session.submit(f"text {n} ")
            await trio.sleep(random.random() * 3)
            if random.random() < 0.6:
                await session.interrupt()
        await session.resume_queue()
        await session.wait_idle()
        check_log(lab.records())
        check_history(session.state(HISTORY).messages)
        fates = [id_ for e in of_kind(lab.records(), MessagesClaimed) for id_ in e.ids]
        queued = [message.id for message in session.state(QUEUE)]
        assert sorted(fates + queued) == sorted(f"auto:{n + 1}" for n in range(8))


def test_no_order_of_compactions_and_interrupts_loses_anything():
    """Whatever comes when, each message has one fate, each turn one end, and the history stays valid."""
    assert 60 == seeded_run(interrupted_anywhere, range(60))


async def test_stubborn_compaction_is_left_behind():
    """A model that swallows its cancellation does not keep the turn, and its late summary changes nothing."""

    async def stubborn(prompt: Prompt) -> Reply:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
            await trio.sleep(2)
        return Reply("late")

    async with open_lab(model(summary=stubborn)) as lab:
        session = await lab.session()
        await session.run("one")
        number = start(session)
        await trio.sleep(1)
        await session.interrupt()
        ended = await session.wait(number)
        assert ended is not None
        assert ended.abort_s == pytest.approx(0.1, abs=0.01)
        await trio.sleep(10)
        assert not of_kind(lab.records(), Compacted)

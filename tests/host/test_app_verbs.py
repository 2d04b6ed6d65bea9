"""What can be asked of a session through its handle, and what it answers."""

import asyncio

import pytest
import trio

import callboard.actors
from callboard.actors import (
    Accepted,
    Idle,
    Interrupting,
    ModeAnswer,
    Refused,
    Reply,
    SessionClosed,
    Steered,
    Stopped,
    UsageError,
    Withdrawn,
)
from callboard.actors.model import Prompt
from callboard.actors.testing import ScriptedModel
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.settings import Bounds

from .hosted import count, echo, events, slow, until

QUICK = RuntimeConfig(runtime=Bounds(shutdown_s=2.0))


async def test_submit_run_and_wait():
    """Texts are taken in order, a queued one has no turn yet, and each can be waited for."""
    async with open_runtime(model=slow(0.02, "ok")) as rt:
        s = await rt.create()
        first = await s.submit("a")
        second = await s.submit("b", id="mine")
        assert isinstance(first, Accepted)
        assert (1, 1, None) == (first.turn, first.turn_id, second.turn)  # type: ignore[union-attr]
        assert second == await s.submit("b", id="mine")
        third = asyncio.create_task(s.run("c"))
        ended = [await s.wait(1), await s.wait(2), await third]
        assert [1, 2, 3] == [one.turn for one in ended]
        await s.wait_idle()
        state = s.state()
        assert ("idle", 0, len(events(rt, s.id)) - 1) == (state["phase"], len(state["queue"]), state["seq"])


async def test_same_id_is_run_once():
    """A text that is sent again under its id is no second turn: the answer is that of the first, also long after."""
    async with open_runtime(model=slow(0.01, "ok")) as rt:
        s = await rt.create()
        busy = asyncio.create_task(s.run("first"))
        await until(lambda: s.state()["phase"] == "running")
        twice = await asyncio.gather(s.run("x", id="k"), s.run("x", id="k"))
        assert twice[0] == twice[1]
        for n in range(5):
            await s.run(str(n))
        assert twice[0] == await s.run("x", id="k")
        await busy
        queued = sum(type(event).__name__ == "MessageQueued" for event in events(rt, s.id))
        assert 7 == queued


async def test_waiting_for_a_turn_that_ended_long_ago():
    """An old turn is found in the store at once, also more than one page back, and one that never was is an error."""
    async with open_runtime(model=ScriptedModel(lambda prompt: Reply(f"answer {prompt.turn}"))) as rt:
        s = await rt.create()
        for n in range(450):
            await s.run(f"q{n}")
        for turn in (1, 2, 225, 449, 450):
            ended = await asyncio.wait_for(s.wait(turn), 1)
            assert (turn, f"answer {turn}") == (ended.turn, ended.last_message)
        future = asyncio.create_task(s.wait(451))
        await asyncio.sleep(0.01)
        assert not future.done()
        await s.run("next")
        assert 451 == (await future).turn


async def test_interrupt_answers():
    """An interrupt says what it did: nothing, one turn, or a refusal; and it may be repeated."""
    async with open_runtime(model=slow()) as rt:
        s = await rt.create()
        assert Idle() == await s.interrupt()
        refused = await s.interrupt(turn=3)
        assert isinstance(refused, Refused)
        assert "turn_mismatch" == refused.reason
        await s.submit("go")
        await until(lambda: s.state()["phase"] == "running")
        refused = await s.interrupt(turn=2)
        assert isinstance(refused, Refused)
        first, second = await asyncio.gather(s.interrupt(turn=1), s.interrupt())
        assert (Interrupting(1), Interrupting(1)) == (first, second)
        ended = await s.wait(1)
        assert ("aborted", "interrupted") == (ended.reason, ended.cause)
        assert Idle() == await s.interrupt()


async def test_withdraw_and_resume_queue():
    """A queued text can be taken back; after an interrupt the others wait until they are released."""
    async with open_runtime(model=slow(30, "never")) as rt:
        s = await rt.create()
        await s.submit("running")
        await s.submit("b", id="b")
        dropped = asyncio.create_task(s.run("c", id="c"))
        await until(lambda: [message["id"] for message in s.state()["queue"]] == ["b", "c"])
        assert Withdrawn() == await s.withdraw("c")
        with pytest.raises(SessionClosed, match="withdrawn"):
            await dropped
        refused = await s.withdraw("c")
        assert isinstance(refused, Refused)
        assert "already_claimed" == refused.reason
        await s.interrupt()
        await s.wait_idle()
        assert ["b"] == [message["id"] for message in s.state()["queue"]]
        assert isinstance(await s.resume_queue(), Accepted)
        await until(lambda: s.state()["phase"] == "running")
        await until(lambda: not s.state()["queue"])
        with pytest.raises(SessionClosed, match="withdrawn"):
            await s.run("c", id="c")


async def test_set_mode():
    """Plan mode is on and off at once between turns, and at the next step inside one."""
    async with open_runtime(model=slow(0.05, "ok")) as rt:
        s = await rt.create()
        assert ModeAnswer("noop") == await s.set_mode("default")
        assert ModeAnswer("committed") == await s.set_mode("plan")
        assert s.state()["plan_mode"]["active"]
        await s.submit("go")
        await until(lambda: s.state()["phase"] == "running" and not s.state()["queue"])  # its step has begun
        assert ModeAnswer("queued") == await s.set_mode("default")
        assert ModeAnswer("cancelled") == await s.set_mode("plan")
        await s.wait_idle()
        assert s.state()["plan_mode"]["active"]


async def test_after_stop():
    """A stopped session refuses by name, stopping again is harmless, and opening it again goes on where it was."""
    async with open_runtime(model=echo()) as rt:
        s = await rt.create("x")
        await s.run("one")
        before = s.state()
        assert Stopped() == await s.stop()
        assert Stopped() == await s.stop()
        for asked in (s.submit("two"), s.run("two"), s.wait(1), s.wait_idle(), s.interrupt(), s.resume_queue()):
            with pytest.raises(SessionClosed, match="open it again"):
                await asked
        with pytest.raises(SessionClosed):
            s.state()
        assert () == rt.sessions()
        assert before["seq"] + 1 == await count(s.events())
        again = await rt.open("x")
        assert before == again.state()
        assert before == s.state()
        assert (2, "re: two") == ((ended := await s.run("two")).turn, ended.last_message)


async def test_stop_in_the_middle_of_a_turn():
    """Stopping ends a running turn as aborted by the shutdown, and those who wait are told."""
    async with open_runtime(model=slow()) as rt:
        s = await rt.create()
        running, queued = asyncio.create_task(s.run("a")), asyncio.create_task(s.run("b"))
        await until(lambda: len(s.state()["queue"]) == 1)
        assert Stopped() == await s.stop()
        assert "shutdown" == (await running).cause
        with pytest.raises(SessionClosed):
            await queued
        assert ["b"] == [message["text"] for message in (await rt.open(s.id)).state()["queue"]]


async def test_statistics_and_sessions():
    """Statistics show the tree, phases and readers as plain data, before and after the end."""
    async with open_runtime(model=slow()) as rt:
        s, _ = await rt.create("busy"), await rt.create("idle")
        await s.submit("go")
        await until(lambda: s.state()["phase"] == "running")
        reading = s.events()
        seen = rt.statistics()
        assert ({"running": 1, "idle": 1}, 1, [], []) == (
            seen["sessions"],
            seen["subscribers"],
            seen["abandoned"],
            seen["parked"],
        )
        assert ["alarm", "sweep", "sessions"] == [child["id"] for child in seen["tree"]["children"]]
        await reading.aclose()
        assert 0 == rt.statistics()["subscribers"]
    assert {} == rt.statistics()["sessions"]
    assert "callboard_turns_total" in rt.metrics_text()


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_steering_from_asyncio(store, tmp_path):
    """Of two texts at once one starts the turn and one joins it; a third steers it; each is heard once."""
    url = "memory" if store == "memory" else f"sqlite:///{tmp_path / 'log.sqlite'}"
    heard: list[list[str]] = []

    async def model(prompt: Prompt) -> Reply:
        heard.append([m.text for m in prompt.messages if isinstance(m, callboard.actors.User)])
        await trio.sleep(0.2)
        return Reply("ok")

    async with open_runtime(model=ScriptedModel(model), store=url) as rt:
        s = await rt.create()
        answers = await asyncio.gather(s.submit_or_steer("one"), s.submit_or_steer("two", id="t"))
        assert [Accepted, Steered] == [type(answer) for answer in answers]
        assert Steered(1) == await s.steer("three", expected_turn=1)
        await s.inject("four")
        ended = await s.wait(1)
        assert ["one", "two", "three", "four"] == heard[-1]
        assert (2, "completed") == (ended.steps, ended.reason)
        refused = await s.steer("late", id="late")
        assert isinstance(refused, Refused)
        assert (refused, "no_active_turn") == (await s.steer("late", id="late"), refused.reason)
        assert isinstance(await s.submit("late", id="late"), Accepted)
        assert Steered(1) == await s.submit_or_steer("two", id="t")
        await s.wait_idle()


@pytest.mark.parametrize(
    ("verb", "text", "more", "error"),
    [
        ("steer", 5, {}, "steer takes text, got int."),
        ("steer", "x", {"expected_turn": 0}, "steer takes a turn number from 1, or none, got 0."),
        ("submit_or_steer", b"x", {}, "submit_or_steer takes text, got bytes."),
        ("inject", " ", {}, "inject got an empty text: write what the session should do."),
        ("inject", "x", {"id": "auto:1"}, "message ids that begin with auto: are given by the session"),
    ],
)
async def test_what_cannot_be_steered_is_the_callers_mistake(verb, text, more, error):
    """What is no text, no turn or no id is named before anything is sent."""
    async with open_runtime(model=ScriptedModel()) as rt:
        s = await rt.create()
        with pytest.raises(UsageError, match=error):
            await getattr(s, verb)(text, **more)
        assert 1 == len(events(rt, s.id))

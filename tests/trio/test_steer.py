"""Input for a turn that runs: steer, submit_or_steer and inject in every phase of a session."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from callboard.actors.books import HISTORY, PARKED, QUEUE, TURN
from callboard.actors.errors import MailboxFull, ModelError, SessionClosed
from callboard.actors.events import Call, MessageQueued, MessagesClaimed, TurnEnded, TurnStarted
from callboard.actors.messages import Accepted, Inject, Interrupting, Refused, Steer, Steered, SubmitOrSteer
from callboard.actors.model import Prompt, Reply, User
from callboard.actors.phase import Phase
from callboard.actors.plugin import Enter, Message, Plugin, Reject, View
from callboard.actors.stage import Limits
from callboard.actors.testing import Lab, LabSession, ScriptedModel, open_lab, seeded_run
from callboard.actors.tool import tool

from .disks import Disk
from .strict import check_log, of_kind, until

NO_TURN = Refused("no_active_turn", "no turn takes input now: submit starts one")


@tool
async def nap(seconds: float) -> str:
    """Sleeps, and takes its time to end."""
    try:
        await trio.sleep(seconds)
    finally:
        with trio.move_on_after(0.05, shield=True):
            await trio.sleep_forever()
    return "slept"


def napping(seconds: float = 5.0) -> ScriptedModel:
    """A model that lets the first step of each turn sleep, and then answers with all that was said."""

    def reply(prompt: Prompt) -> Reply:
        if prompt.step == 1:
            return Reply(calls=[Call("nap", {"seconds": seconds})])
        return Reply(" ".join(m.text for m in prompt.messages if isinstance(m, User) and m.source != "marker"))

    return ScriptedModel(reply)


def said(session: LabSession) -> list[str]:
    """What entered history from outside, in order."""
    return [m.text for m in session.state(HISTORY).messages if isinstance(m, User) and m.source != "marker"]


async def test_steering_in_each_phase():
    """A running turn takes it; idle, being aborted and stopped there is none that could."""
    async with open_lab(napping(), tools=[nap]) as lab:
        session = await lab.session()
        assert NO_TURN == await session.steer("idle")
        await session.submit("go")
        await trio.sleep(1)
        assert Steered(1) == await session.steer("running")
        assert "turn_mismatch" == (await session.steer("other", expected_turn=2)).reason
        assert "empty_input" == (await session.steer("  ")).reason
        assert Interrupting(1) == await session.interrupt()
        assert Phase.ABORTING is session.actor.phase
        assert NO_TURN == await session.steer("aborting", expected_turn=1)
        assert isinstance(await session.submit_or_steer("next"), Accepted)
        await session.wait_idle()
        assert NO_TURN == await session.steer("after")
        assert ["go", "running", "next"] == said(session)
        await session.stop()
        for verb in (session.steer, session.submit_or_steer, session.inject):
            with pytest.raises(SessionClosed):
                await verb("stopped")
        assert 2 == len([e for e in lab.records() if isinstance(e, MessageQueued) and e.source == "user"])


async def test_a_session_that_stops_takes_no_input():
    """While the last turn of a stopping session ends every one of them is refused."""
    async with open_lab(napping(), tools=[nap]) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1)
        lab.stage.nursery.start_soon(session.stop)
        await until(lambda: session.actor.phase is Phase.STOPPING)
        for verb in (session.steer, session.submit_or_steer, session.inject):
            with pytest.raises(SessionClosed):
                await verb("stopping")
        assert 1 == len(of_kind(lab.records(), MessageQueued))


async def test_steering_while_the_end_is_flushed():
    """A turn that waits only for the disk takes no input: what comes starts the next turn, and no text is stranded."""
    disk = Disk()
    async with open_lab(napping(1), tools=[nap], store=disk, limits=Limits(flush_stall_s=1.0)) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(0.5)
        disk.stalled = True
        await until(lambda: not session.state(TURN).open)
        answers: list[Any] = []
        for letter in (Steer("s"), SubmitOrSteer("e"), Inject("i")):
            session.actor.tell(type(letter)(letter.text, reply=answers.append))
        await trio.sleep(0.1)
        assert [NO_TURN] == answers
        await trio.sleep(2)
        assert "store_stalled" == (await session.steer("stalled")).reason
        assert "store_stalled" == (await session.submit_or_steer("stalled")).reason
        disk.stalled = False
        disk.go()
        await session.wait_idle()
        assert [Accepted, Accepted] == [type(one) for one in answers[1:]]
        assert (["go", "e", "i"], 2, ()) == (said(session), session.state(TURN).number, session.state(QUEUE))


async def test_of_two_at_once_exactly_one_starts():
    """Two that arrive together at an idle session: the first starts a turn and the second joins it, in one request."""
    async with open_lab(napping(1), tools=[nap]) as lab:
        session = await lab.session()
        answers: list[Any] = []
        for text in ("left", "right"):
            session.actor.tell(SubmitOrSteer(text, reply=answers.append))
        ended = await session.wait(1)
        assert [Accepted(1, 1), Steered(1)] == answers
        assert ended is not None
        assert ("left right", 2) == (ended.last_message, ended.steps)
        assert 1 == len(of_kind(lab.records(), TurnStarted))


async def test_the_same_id_is_steered_once():
    """Sent twice it joins once; the answer is the same while the turn runs, after it, and from a log read anew."""
    async with open_lab(napping(), tools=[nap]) as lab:
        session = await lab.session()
        refused = await session.steer("early", id="early")
        await session.submit("go")
        await trio.sleep(1)
        answers = [await session.steer("more", id="a") for _ in range(2)]
        await session.wait(1)
        answers += [await session.steer("more", id="a"), await session.submit_or_steer("more", id="a")]
        await session.submit("again")
        assert (refused, NO_TURN) == (await session.steer("early", id="early"), refused)
        await session.wait_idle()
        await session.stop()
        session = await lab.session(fresh=False)
        answers.append(await session.steer("more", id="a"))
        assert [Steered(1)] * 5 == answers
        assert ["go", "more", "again"] == said(session)


async def test_injected_input_wakes_nobody():
    """An idle session stays idle, a turn does not go on for it, and the next step takes it, whichever that is."""
    async with open_lab(ScriptedModel(lambda prompt: Reply("ok"), delay_s=1), tools=[nap]) as lab:
        session = await lab.session()
        assert Accepted(1) == await session.inject("before", id="b")
        await trio.sleep(5)
        assert (Phase.IDLE, 0) == (session.actor.phase, session.state(TURN).number)
        await session.submit("go")
        await trio.sleep(0.5)
        await session.inject("during")
        ended = await session.wait(1)
        assert ended is not None
        assert (1, ["during"]) == (ended.steps, [m.text for m in session.state(QUEUE)])
        assert 2 == (await session.run("on")).turn
        assert (Accepted(1), ["before", "go", "during", "on"]) == (
            await session.inject("before", id="b"),
            said(session),
        )


async def test_injected_input_enters_at_the_next_step():
    """A running turn takes it with its next request."""
    async with open_lab(napping(), tools=[nap]) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1)
        await session.inject("look")
        ended = await session.wait(1)
        assert ended is not None
        assert ("go look", 2) == (ended.last_message, ended.steps)


async def fails(prompt: Prompt) -> Reply:
    """Thinks for a second and fails, but in the second turn."""
    await trio.sleep(1)
    if prompt.turn == 1:
        raise ModelError("no", retryable=False)
    return Reply("ok")


async def rejects(view: View, messages: tuple[Message, ...]) -> Enter | Reject:
    """Thinks for a second and refuses, but in the second turn."""
    await trio.sleep(1)
    return Reject("no") if view.turn == 1 else Enter(messages)


@pytest.mark.parametrize("how", ["error", "blocked"])
async def test_input_left_over_at_the_end_is_recorded(how):
    """A turn that ends by itself without another step records what was steered into it before it ends."""
    plugins = [Plugin("guard", before_step=rejects)] if how == "blocked" else []
    async with open_lab(ScriptedModel(fails if how == "error" else ()), plugins=plugins) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(0.5)
        assert Steered(1) == await session.steer("left")
        await session.wait_idle()
        assert (["go", "left"], (), False) == (said(session), session.state(QUEUE), session.state(PARKED))
        kinds = [type(e) for e in lab.records() if isinstance(e, MessagesClaimed | TurnEnded)]
        assert [MessagesClaimed, MessagesClaimed, TurnEnded] == kinds
        await session.run("on")
        assert ["go", "left", "on"] == said(session)


async def test_steering_into_a_budget_is_not_lost():
    """A turn whose steps are used up ends; what was steered into it comes back and goes first."""
    async with open_lab(napping(1), tools=[nap], limits=Limits(steps_max=1)) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(0.5)
        assert Steered(1) == await session.steer("left")
        await session.wait_idle()
        assert ([("left", True)], True) == ([(m.text, m.returned) for m in session.state(QUEUE)], session.state(PARKED))
        await session.run("on")
        assert ["go", "left", "on"] == said(session)
        check_log(lab.records())


async def test_an_automatic_turn_leaves_what_came_back():
    """Steered input that an interrupt gave back is the user's: mail that starts a turn meanwhile does not take it."""
    async with open_lab(napping(1), tools=[nap]) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(0.5)
        await session.steer("left")
        await session.interrupt()
        await session.wait_idle()
        await session.submit("news", source="agent:/root/a")
        await session.wait_idle()
        assert ((2, ["go", "news"]), ["left"]) == (
            (session.state(TURN).number, said(session)),
            [m.text for m in session.state(QUEUE)],
        )
        await session.resume_queue()
        await session.wait_idle()
        assert (["go", "news", "left"], 3) == (said(session), session.state(TURN).number)


@pytest.mark.parametrize("letter", [Steer, SubmitOrSteer, Inject])
async def test_a_full_mailbox_refuses_them_too(letter):
    """Input of every kind counts against the bound, and the refused one leaves no trace."""
    async with open_lab(napping(), tools=[nap], limits=Limits(mailbox_max=2)) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1)
        for text in ("a", "b"):
            await session.steer(text)
        with pytest.raises(MailboxFull):
            session.actor.tell(letter("c"))
        await session.wait_idle()
        assert ["go", "a", "b"] == said(session)


SEEDS_MAX = 60


def test_two_at_once_in_any_order():
    """Whatever the order and the moment, each text of submit_or_steer gets a turn, and those that joined share it."""

    async def story() -> None:
        async with open_lab(napping(0.01), tools=[nap]) as lab:
            session = await lab.session()
            answers: list[Any] = []
            async with trio.open_nursery() as nursery:
                for n in range(6):
                    nursery.start_soon(send, session, f"t{n}", n * 0.012, answers.append)
            await session.wait_idle()
            check(lab, session, answers)

    async def send(session: LabSession, text: str, after_s: float, told: Callable[[Any], None]) -> None:
        await trio.sleep(after_s)
        told(await session.submit_or_steer(text))

    def check(lab: Lab, session: LabSession, answers: list[Any]) -> None:
        assert (6, sorted(f"t{n}" for n in range(6))) == (len(answers), sorted(said(session)))
        started = [answer for answer in answers if isinstance(answer, Accepted)]
        assert len(started) == len(of_kind(lab.records(), TurnStarted))
        assert (False, ()) == (session.state(PARKED), session.state(QUEUE))

    assert SEEDS_MAX == seeded_run(story, range(SEEDS_MAX))

"""Mail between agents: when it enters, what it starts, and that each piece has one fate whatever happens around it."""

from collections import Counter
from typing import Any

import pytest
import trio

from callboard.actors.books import HISTORY, PARKED, QUEUE, TURN
from callboard.actors.errors import LogError, MailboxFull, SessionClosed
from callboard.actors.events import Call, MessageQueued, MessagesClaimed, StepStarted, TurnStarted
from callboard.actors.messages import Accepted, Inject, Mail, SetMode
from callboard.actors.model import Prompt, Reply, User
from callboard.actors.plugin import Enter, Message, Plugin, View
from callboard.actors.stage import Limits
from callboard.actors.testing import LabSession, ScriptedModel, open_lab, seeded_run
from callboard.actors.tool import tool

from .disks import Disk
from .strict import check_log, of_kind


def mails(session: LabSession) -> list[str]:
    """The last line of each mail that has entered."""
    entered = [m for m in session.state(HISTORY).messages if isinstance(m, User) and m.source.startswith("agent:")]
    return [m.text.splitlines()[-1] for m in entered]


def slow(seconds: float = 1) -> ScriptedModel:
    """Takes its time and calls nothing."""
    return ScriptedModel(lambda prompt: Reply("done"), delay_s=seconds)


@tool
async def work() -> str:
    """A second of work."""
    await trio.sleep(1)
    return "worked"


def working(prompt: Prompt) -> Reply:
    """One call in the first step of each turn."""
    return Reply(calls=[Call("work")]) if prompt.step == 1 else Reply("done")


async def test_trigger_mail_starts_a_turn_in_an_idle_session():
    """The turn is an automatic one, and the model reads the mail and who wrote it."""
    async with open_lab(slow()) as lab:
        session = await lab.session()
        assert isinstance(await session.mail("news", author="/root/a"), Accepted)
        await session.wait_idle()
        assert ["automatic"] == [e.start for e in of_kind(lab.events, TurnStarted)]
        assert User("Mail from agent /root/a:\nnews", "agent:/root/a") in session.state(HISTORY).messages


async def test_queued_mail_waits_for_the_next_turn():
    """Without a trigger nothing starts, and the next turn takes it in its first step, in order."""
    async with open_lab(slow()) as lab:
        session = await lab.session()
        await session.mail("one", trigger=False)
        await session.mail("two", trigger=False)
        await trio.sleep(10)
        assert 0 == session.state(TURN).number
        await session.run("go")
        assert ["one", "two"] == mails(session)


# When the mail arrives: in the first request, at the tool, in the request of the final answer, after the turn. For
# mail with and without a trigger: the turns and steps it takes until it has entered, None while it waits.
ARRIVALS = (
    (0.5, True, (1, 2)),
    (0.5, False, (1, 2)),
    (1.5, True, (1, 2)),
    (1.5, False, (1, 2)),
    (2.5, True, (1, 3)),  # no final answer is out yet, and a trigger is work to be done
    (2.5, False, None),  # the final answer is out: it waits for the next turn
    (5.0, True, (2, 1)),
    (5.0, False, None),
)


@pytest.mark.parametrize(("at_s", "trigger", "entered"), ARRIVALS)
async def test_delivery_follows_the_phase_of_the_turn(at_s, trigger, entered):
    """Mail joins the current turn until its final answer is out; from then on it is the next turn's."""
    model = ScriptedModel(working, delay_s=1)
    async with open_lab(model, tools=[work]) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(at_s)
        await session.mail("news", trigger=trigger)
        await session.wait_idle()
        found = next(((p.turn, p.step) for p in model.prompts if any("news" in str(m) for m in p.messages)), None)
        assert entered == found
        assert (entered is None) == bool(session.state(QUEUE))
        await session.run("more")
        assert ["news"] == mails(session)
        check_log(lab.records())


async def test_a_steer_reopens_the_turn_for_mail_that_wakes_nobody():
    """A step that is taken anyway takes the mail too."""
    async with open_lab(slow()) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(0.5)
        await session.mail("news", trigger=False)
        await session.steer("look")
        await session.wait_idle()
        assert (1, 2, ["news"]) == (session.state(TURN).number, session.state(TURN).step, mails(session))


async def test_no_mail_starts_a_turn_in_plan_mode():
    """It stays queued, goes along with what the user says, and starts a turn once the mode is off."""
    async with open_lab(slow()) as lab:
        session = await lab.session()
        await session.ask(lambda reply: SetMode(active=True, reply=reply))
        await session.mail("one")
        await trio.sleep(10)
        assert (0, 1) == (session.state(TURN).number, len(session.state(QUEUE)))
        await session.run("go")
        assert ["one"] == mails(session)
        await session.mail("two")
        await trio.sleep(10)
        await session.ask(lambda reply: SetMode(active=False, reply=reply))
        await session.wait_idle()
        assert (2, ["one", "two"]) == (session.state(TURN).number, mails(session))


async def test_a_full_mailbox_is_the_senders_news_at_once():
    """What the receiver has queued counts, and what was refused leaves nothing behind."""
    async with open_lab(slow(), limits=Limits(mailbox_max=3)) as lab:
        session = await lab.session()
        for n in range(2):
            await session.mail(str(n), trigger=False)
        await session.ask(lambda reply: SetMode(active=True, reply=reply))
        await session.mail("two")
        with pytest.raises(MailboxFull, match="3 messages queued"):
            session.actor.tell(Mail("late"))
        await session.resume_queue()
        assert 3 == len(of_kind(lab.records(), MessageQueued))


async def test_what_wakes_nobody_leaves_a_place_for_what_does():
    """A queue full of what waits for a turn would let nobody start one, and never be emptied."""
    async with open_lab(slow(), limits=Limits(mailbox_max=3)) as lab:
        session = await lab.session()
        await session.inject("one")
        await session.mail("two", trigger=False)
        for letter in (Mail("late", trigger=False), Inject("late")):
            with pytest.raises(MailboxFull, match="2 messages queued"):
                session.actor.tell(letter)
        assert "completed" == (await session.run("go")).reason
        assert () == session.state(QUEUE)


async def test_repeated_mail_is_taken_once():
    """However often it is sent, before and after it was claimed, it is one message with one answer."""
    async with open_lab(slow()) as lab:
        session = await lab.session()
        answers = [await session.mail("news", id="x") for _ in range(3)]
        await session.wait_idle()
        answers.append(await session.mail("news", id="x"))
        await session.wait_idle()
        assert (1, ["news"], 1) == (len(set(answers)), mails(session), session.state(TURN).number)


async def test_mail_repeated_after_the_receiver_was_opened_again():
    """What was taken is on the log, so a sender that never heard an answer may send again."""
    store = Disk()
    async with open_lab(slow(), store=store) as lab:
        session = await lab.session()
        first = await session.mail("news", id="x", trigger=False)
    async with open_lab(slow(), store=store) as lab:
        session = await lab.session(fresh=False)
        assert first == await session.mail("news", id="x", trigger=False)
        await session.run("go")
        assert ["news"] == mails(session)


@pytest.mark.parametrize("trigger", [True, False])
async def test_mail_that_falls_into_an_abort(trigger):
    """With a trigger it starts the next turn at once, without one it waits for it; what is parked stays."""
    model = ScriptedModel(lambda prompt: Reply("done"), delay_s=5)
    async with open_lab(model) as lab:
        session = await lab.session()
        await session.submit("go")
        await session.submit("later")
        await trio.sleep(1)
        await session.interrupt()
        assert isinstance(await session.mail("news", trigger=trigger), Accepted)
        await session.wait_idle()
        assert (2 if trigger else 1, ["news"] if trigger else []) == (session.state(TURN).number, mails(session))
        assert (True, "later") == (session.state(PARKED), session.state(QUEUE)[0].text)
        await session.resume_queue()
        await session.wait_idle()
        assert ["news"] == mails(session)
        check_log(lab.records())


async def test_mail_to_a_session_that_ends():
    """Until the end it is refused or kept, never lost: what was accepted is still queued on the log."""
    async with open_lab(ScriptedModel(working), tools=[work]) as lab:
        session = await lab.session()
        await session.mail("before", trigger=False)
        await session.stop()
        with pytest.raises(SessionClosed):
            await session.mail("after")
        assert ["before"] == [m.text.splitlines()[-1] for m in session.state(QUEUE)]


async def test_mail_is_refused_while_the_store_does_not_confirm():
    """A sender is not left waiting for a disk that stands still."""
    disk = Disk()
    async with open_lab(ScriptedModel([Reply("done")]), store=disk, limits=Limits(flush_stall_s=1)) as lab:
        session = await lab.session()
        await session.submit("go")
        disk.stall()
        await trio.sleep(5)
        assert "store_stalled" == (await session.mail("news")).reason
        disk.go()
        await session.wait_idle()
        assert isinstance(await session.mail("news", trigger=False), Accepted)


async def test_mail_that_the_store_did_not_take():
    """The sender hears of it and sends again under the same id, which is then taken once."""
    disk = Disk()
    async with open_lab(slow(), store=disk) as lab:
        session = await lab.session()
        disk.failing = True
        with pytest.raises(LogError):
            await session.mail("news", id="x")
        disk.failing = False
        await session.mail("news", id="x")
        await session.wait_idle()
        assert ["news"] == mails(session)


async def test_a_tool_sends_mail():
    """The view signs with the session's path, and returns once the receiver has it; an unknown one fails the call."""

    @tool
    async def write(to: str, view: View) -> str:
        """Sends mail twice under one id."""
        for _ in range(2):
            await view.mail(to, "look here", id=view.key)
        return "sent"

    def model(prompt: Prompt) -> Reply:
        calls = [Call("write", {"to": "/root/b"}), Call("write", {"to": "/root/c"})]
        return Reply(calls=calls) if (prompt.session, prompt.step) == ("a", 1) else Reply("ok")

    async with open_lab(ScriptedModel(model), tools=[write]) as lab:
        sender = await lab.session("a", path="/root/a")
        receiver = await lab.session("b", path="/root/b")
        ended = await sender.run("go")
        await receiver.wait_idle()
        assert ["completed", "failed"] == [one.receipt for one in ended.receipts]
        assert User("Mail from agent /root/a:\nlook here", "agent:/root/a") in receiver.state(HISTORY).messages
        assert ["look here"] == mails(receiver)
        assert "there is no agent '/root/c' in this lab." == sender.state(HISTORY).messages[3].text


async def crossing() -> None:
    """Four agents write to each other from tools and from outside, while they are interrupted and crash."""
    sent: Counter[str] = Counter()

    @tool(parallel=True)
    async def write(to: str, text: str, view: View) -> str:
        """Sends mail."""
        await view.mail(to, text, trigger=len(text) % 2 == 0, id=text)
        sent[text] += 1
        return "sent"

    crashed: list[str] = []

    async def before_step(view: View, messages: tuple[Message, ...]) -> Enter:
        if len(crashed) < 3 and view.turn == 2:
            crashed.append(view.session)
            raise LookupError("a bug in a plugin")
        return Enter(messages)

    def model(prompt: Prompt) -> Reply:
        if prompt.turn > 3 or prompt.step > 2:
            return Reply("done")
        letters = [(to, f"{prompt.session}{prompt.turn}{prompt.step}{to}") for to in "abcd" if to != prompt.session]
        return Reply(calls=[Call("write", {"to": to, "text": text}) for to, text in letters])

    plugin = Plugin("crash", before_step=before_step)
    async with open_lab(ScriptedModel(model, delay_s=0.01), tools=[write], plugins=[plugin]) as lab:
        sessions = [await lab.session(id_, path=f"/root/{id_}", restarts_max=9) for id_ in "abcd"]
        for session in sessions:
            await session.submit("go")
        for at in range(8):
            await trio.sleep(0.007)
            await sessions[at % 4].interrupt()
        for session in sessions * 3:
            await session.resume_queue()
            await session.wait_idle()
        await trio.sleep(100)
        for session in sessions:
            await session.run("last")
        entered: Counter[str] = Counter()
        for id_, session in zip("abcd", sessions, strict=True):
            records: list[Any] = lab.records(id_)
            check_log(records)
            assert not session.state(QUEUE)
            entered.update(mails(session))
        assert set(sent) <= set(entered)
        assert set(entered.values()) <= {1}


def test_mail_in_all_directions_is_taken_once():
    """Whatever is interrupted or crashes on either side, what a sender was told is taken enters exactly once."""
    assert 40 == seeded_run(crossing, range(40))


async def test_claimed_mail_leaves_the_queue_with_the_event_that_records_it():
    """One event takes it out of the queue and into the history, in front of the step that reads it."""
    async with open_lab(slow()) as lab:
        session = await lab.session()
        await session.mail("news", id="x")
        await session.wait_idle()
        claims = [e for e in lab.records() if isinstance(e, MessagesClaimed | StepStarted)]
        assert [MessagesClaimed(("mail:/root:x",)), StepStarted(1, 1)] == claims

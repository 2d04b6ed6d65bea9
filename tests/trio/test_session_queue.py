"""The queue of a session: in order, parked and released, taken back, answered once for each id, bounded."""

from typing import Any

import pytest
import trio

from callboard.actors.books import HISTORY, PARKED, QUEUE, TURN
from callboard.actors.children import CHILDREN
from callboard.actors.errors import MailboxFull, SessionClosed
from callboard.actors.events import Call, MessageQueued, MessagesClaimed, SessionOpened, TurnEnded, TurnStarted
from callboard.actors.facts import ChildEnded, ChildSpawned
from callboard.actors.messages import (
    Accepted,
    ChildDone,
    Interrupt,
    Interrupting,
    ModeAnswer,
    Refused,
    SetMode,
    Submit,
    Withdrawn,
)
from callboard.actors.model import Prompt, Reply, User
from callboard.actors.plugin import Message, Plugin, View
from callboard.actors.stage import Limits
from callboard.actors.store import Record
from callboard.actors.testing import LabSession, ScriptedModel, open_lab
from callboard.actors.tool import tool

from .disks import Disk
from .strict import check_log, of_kind, until


def answer(prompt: Prompt) -> Reply:
    """Says what it was told last."""
    return Reply(f"heard {prompt.messages[-1].text}")


def slow_model(seconds: float = 1) -> ScriptedModel:
    """Takes its time."""
    return ScriptedModel(answer, delay_s=seconds)


def said(session: LabSession) -> list[str]:
    """What the user said, as far as it has entered."""
    return [m.text for m in session.state(HISTORY).messages if isinstance(m, User) and m.source == "user"]


async def test_messages_get_turns_of_their_own_in_order():
    """An idle session starts at once, a busy one queues; answers say which turn, when that is known."""
    async with open_lab(slow_model()) as lab:
        session = await lab.session()
        first = await session.submit("a")
        second = await session.submit("b")
        third = await session.submit("c")
        assert (first.turn, second.turn, third.turn) == (1, None, None)
        assert first.seq < second.seq < third.seq
        await session.wait_idle()
        assert [e.last_message for e in of_kind(lab.events, TurnEnded)] == [
            "heard a",
            "heard b",
            "heard c",
        ]
        check_log(lab.records())


async def test_run_waits_for_the_turn_that_takes_its_text():
    """Callers side by side each get the end of their own turn."""
    async with open_lab(slow_model()) as lab:
        session = await lab.session()
        ends: dict[str, Any] = {}

        async def run(text: str) -> None:
            ends[text] = await session.run(text)

        async with trio.open_nursery() as nursery:
            for text in "abcde":
                nursery.start_soon(run, text)
        assert {text: end.last_message for text, end in ends.items()} == {t: f"heard {t}" for t in "abcde"}
        assert sorted(end.turn for end in ends.values()) == [1, 2, 3, 4, 5]


async def test_same_id_gets_the_same_answer_and_one_turn():
    """A repeated id writes nothing, is answered as the first time, and waits for the same turn."""
    async with open_lab(slow_model()) as lab:
        session = await lab.session()
        first = await session.submit("a", id="x")
        again = await session.submit("another text", id="x")
        queued = [await session.submit("b", id="y") for _ in range(3)]
        assert (first, len(set(queued))) == (again, 1)
        ends: dict[int, Any] = {}

        async def run(at: int, id_: str) -> None:
            ends[at] = await session.ask(lambda reply: Submit("b", id_, ended=reply))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, 0, "x")
            nursery.start_soon(run, 1, "y")
            nursery.start_soon(run, 2, "y")
        assert {at: end.turn for at, end in ends.items()} == {0: 1, 1: 2, 2: 2}
        assert await session.submit("b", id="y") == queued[0]
        assert len(of_kind(lab.records(), MessageQueued)) == 2
        check_log(lab.records())


async def test_same_id_gets_the_same_answer_after_the_session_was_opened_again():
    """What was accepted is on the log, so a repeat over a restart is one too."""
    store = Disk()
    async with open_lab(slow_model(), store=store) as lab:
        session = await lab.session()
        first = await session.submit("a", id="x")
        await session.wait_idle()
    async with open_lab(slow_model(), store=store) as lab:
        session = await lab.session(fresh=False)
        assert await session.submit("a", id="x") == first
        await session.wait_idle()
        assert session.state(TURN).number == 1


@pytest.mark.parametrize("release", ["submit", "resume"])
async def test_interrupt_parks_what_is_queued_until_the_user_speaks(release):
    """Queued messages stay, wait, and go on in order with the next message or when they are released."""
    async with open_lab(slow_model()) as lab:
        session = await lab.session()
        for text in "abc":
            await session.submit(text)
        await trio.sleep(0.5)
        assert await session.interrupt() == Interrupting(1)
        await session.wait_idle()
        await trio.sleep(100)
        assert (session.state(PARKED), [m.text for m in session.state(QUEUE)], said(session)) == (
            True,
            ["b", "c"],
            ["a"],
        )
        if release == "submit":
            assert (await session.submit("d")).turn is None
        else:
            assert isinstance(await session.resume_queue(), Accepted)
        await session.wait_idle()
        assert said(session) == (["a", "b", "c", "d"] if release == "submit" else ["a", "b", "c"])
        assert not session.state(PARKED)
        check_log(lab.records())


@pytest.mark.parametrize("word", ["submit", "submit_or_steer", "resume_queue", None])
async def test_what_the_user_says_while_the_turn_is_aborting_is_the_next_word(word):
    """An interrupt parks what was queued before it; whoever speaks right after it is heard, and does not wait."""

    @tool
    async def tidy() -> None:
        """Cleans up for 80 ms."""
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(0.08, shield=True):
                await trio.sleep_forever()

    def model(prompt: Prompt) -> Reply:
        return Reply(calls=[Call("tidy")]) if prompt.turn == 1 else answer(prompt)

    async with open_lab(ScriptedModel(model), tools=[tidy]) as lab:
        session = await lab.session()
        await session.submit("a")
        await session.submit("b")
        await trio.sleep(1)
        await session.interrupt()
        assert session.actor.phase.value == "aborting"
        if word == "resume_queue":
            await session.resume_queue()
        elif word is not None:
            assert (await getattr(session, word)("c")).turn is None
        await session.wait_idle()
        expected = {None: ["a"], "resume_queue": ["a", "b"]}.get(word, ["a", "b", "c"])
        assert (expected, word is None) == (said(session), session.state(PARKED))
        assert (await session.run("d")).last_message == "heard d"
        assert session.state(QUEUE) == ()


async def test_queued_message_can_be_taken_back_once():
    """Withdrawn before a turn claims it, refused afterwards; its waiter is told, its neighbours stay."""
    async with open_lab(slow_model()) as lab:
        session = await lab.session()
        await session.submit("a", id="a")
        failures: list[Exception] = []

        async def run() -> None:
            try:
                await session.run("b")
            except SessionClosed as error:
                failures.append(error)

        lab.stage.nursery.start_soon(run)
        await until(lambda: [m.text for m in session.state(QUEUE)] == ["b"])
        await session.submit("c", id="c")
        assert await session.withdraw(session.state(QUEUE)[0].id) == Withdrawn()
        assert isinstance(await session.withdraw("c"), Withdrawn)
        assert await session.withdraw("c") == Refused("already_claimed", "message 'c' is not in the queue")
        assert isinstance(await session.withdraw("a"), Refused)
        await session.wait_idle()
        assert (said(session), len(failures)) == (["a"], 1)
        check_log(lab.records())


async def test_mailbox_and_queue_are_bounded_together():
    """At `mailbox_max` a submit is refused at once, while interrupts, ends of children and stops still get in."""
    async with open_lab(slow_model(100), limits=Limits(mailbox_max=3)) as lab:
        session = await lab.session()
        for text in "abcd":
            await session.submit(text)
        assert len(session.state(QUEUE)) == 3
        with pytest.raises(MailboxFull, match="3 messages queued"):
            await session.submit("e")
        session.actor.tell(ChildDone("nobody", "/root/x", "completed", "", 1))
        assert await session.interrupt() == Interrupting(1)
        await session.wait_idle()
        await session.withdraw(session.state(QUEUE)[0].id)
        assert isinstance(await session.submit("e"), Accepted)


async def test_full_mailbox_of_a_session_that_does_not_listen_lets_ends_in():
    """Before the actor has read its log its mailbox fills up, and refuses the next message without waiting."""
    async with open_lab(slow_model(), limits=Limits(mailbox_max=2)) as lab:
        session = await lab.session()
        answers: list[Any] = []
        for _ in range(2):
            session.actor.tell(Submit("x", reply=answers.append))
        with pytest.raises(MailboxFull):
            session.actor.tell(Submit("x"))
        session.actor.tell(Interrupt(reply=answers.append))
        await until(lambda: len(answers) == 3)
        assert [type(a).__name__ for a in answers] == ["Accepted", "Accepted", "Interrupting"]


async def test_waiting_for_a_turn_that_ended():
    """The last end is remembered; an older one answers None, and one to come is waited for."""
    async with open_lab(slow_model()) as lab:
        session = await lab.session()
        for text in "ab":
            await session.run(text)
        last = await session.wait(2)
        assert last is not None
        assert (last.turn, await session.wait(1), await session.wait(0)) == (2, None, None)
        ended: list[Any] = []

        async def wait() -> None:
            ended.append(await session.wait(3))

        lab.stage.nursery.start_soon(wait)
        await trio.sleep(5)
        assert ended == []
        await session.run("c")
        await until(lambda: ended)
        assert ended[0].last_message == "heard c"


async def test_last_end_is_remembered_over_a_restart():
    """Waiting for the last turn works in a session that was opened from the store."""
    store = Disk()
    async with open_lab(slow_model(), store=store) as lab:
        await (await lab.session()).run("a")
    async with open_lab(slow_model(), store=store) as lab:
        session = await lab.session(fresh=False)
        ended = await session.wait(1)
        assert ended is not None
        assert ended.last_message == "heard a"


async def test_idle_session_is_asked_for_more():
    """A plugin's `on_idle` starts automatic turns, one at a time, and a repeated id starts none."""
    rounds: list[int] = []

    def on_idle(view: View) -> Message | None:
        if view.turn == 0:
            return None
        rounds.append(view.turn)
        return Message(f"goal:{min(view.turn, 3)}", f"round {view.turn}", "goal")

    async with open_lab(slow_model(), plugins=[Plugin("goal", on_idle=on_idle)]) as lab:
        session = await lab.session()
        await session.run("go")
        await session.wait_idle()
        assert rounds == [1, 2, 3, 4]
        assert session.state(TURN).number == 4
        started = [(e.turn, e.start) for e in of_kind(lab.events, TurnStarted)]
        assert started == [(1, "user"), (2, "automatic"), (3, "automatic"), (4, "automatic")]


async def test_users_message_beats_an_automatic_one():
    """What the user said comes before a round, and Plan mode starts no rounds at all."""
    queued = [Message("goal:1", "round", "goal")]

    def on_idle(view: View) -> Message | None:
        return queued.pop() if queued and view.turn else None

    async with open_lab(slow_model(), plugins=[Plugin("goal", on_idle=on_idle)]) as lab:
        session = await lab.session()
        assert await session.ask(lambda reply: SetMode(active=True, reply=reply)) == ModeAnswer("committed")
        await session.run("go")
        await session.wait_idle()
        assert (session.state(TURN).number, len(queued)) == (1, 1)
        assert await session.ask(lambda reply: SetMode(active=False, reply=reply)) == ModeAnswer("committed")
        await session.wait_idle()
        assert session.state(TURN).number == 2


async def test_end_of_a_child_is_recorded_once_and_wakes_its_parent():
    """A repeat of the same turn's end writes nothing; the news starts one automatic turn."""

    @tool
    async def spawn(view: View) -> str:
        """Records a child."""
        view.append(ChildSpawned("kid", "/root/kid", "task"))
        return "started"

    def model(prompt: Prompt) -> Reply:
        return Reply(calls=[Call("spawn")]) if (prompt.turn, prompt.step) == (1, 1) else Reply("ok")

    async with open_lab(ScriptedModel(model), tools=[spawn]) as lab:
        session = await lab.session()
        await session.run("go")
        for _ in range(3):
            done: Any = await session.ask(lambda r: ChildDone("kid", "/root/kid", "completed", "it is 7", 1, reply=r))
            assert isinstance(done, Accepted)
        await session.wait_idle()
        assert of_kind(lab.records(), ChildEnded) == [ChildEnded("kid", "completed", "it is 7", 1)]
        assert [child.status for child in session.state(CHILDREN)] == ["completed"]
        assert session.state(TURN).number == 2
        assert User("Agent /root/kid finished.\nit is 7", "agent:/root/kid") in session.state(HISTORY).messages
        assert len(of_kind(lab.records(), MessagesClaimed)) == 2


async def test_a_session_that_is_opened_starts_nothing_by_itself():
    """What was accepted before the program ended waits until the user speaks, and is then taken first."""
    async with open_lab(ScriptedModel(answer)) as lab:
        store, codec = lab.stage.store, lab.stage.codec
        before = [SessionOpened(root="s"), MessageQueued("m1", "old", seq=1, turn=1)]
        store.append("s", [Record(seq, 0, None, codec.encode(event)) for seq, event in enumerate(before)])
        session = await lab.session(fresh=False)
        await trio.sleep(1)
        assert (0, True) == (session.state(TURN).number, session.state(PARKED))

        ended = await session.run("new")

        assert (2, "heard new") == (ended.turn, ended.last_message)
        assert ["old", "new"] == [m.text for m in session.state(HISTORY).messages if isinstance(m, User)]


async def test_steered_input_that_no_step_took_survives_an_interrupt():
    """It goes back to the front of the queue, marked and parked, and enters once the user speaks again."""

    @tool
    async def slow() -> None:
        """Sleeps."""
        await trio.sleep_forever()

    def model(prompt: Prompt) -> Reply:
        return Reply(calls=[Call("slow")]) if prompt.turn == 1 else answer(prompt)

    async with open_lab(ScriptedModel(model), tools=[slow]) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1)
        await session.submit("late")
        await session.steer("left")
        await session.interrupt()
        await session.wait_idle()
        assert ([(m.text, m.returned) for m in session.state(QUEUE)], session.state(PARKED)) == (
            [("left", True), ("late", False)],
            True,
        )
        ended = await session.run("right")
        assert (ended.turn, ended.last_message) == (3, "heard right")
        texts = [m.text for m in session.state(HISTORY).messages if isinstance(m, User) and m.source != "marker"]
        assert texts == ["go", "left", "late", "right"]
        check_log(lab.records())


async def test_mail_that_waits_starts_no_turn_when_a_session_is_opened():
    """Mail of an agent that arrived before the program ended waits too, and comes with the next text."""
    async with open_lab(ScriptedModel(answer)) as lab:
        store, codec = lab.stage.store, lab.stage.codec
        before = [SessionOpened(root="s"), MessageQueued("c1", "news", "agent:/root/a", seq=1)]
        store.append("s", [Record(seq, 0, None, codec.encode(event)) for seq, event in enumerate(before)])
        session = await lab.session(fresh=False)
        await trio.sleep(1)
        assert 0 == session.state(TURN).number

        ended = await session.run("new")

        assert (1, "heard new") == (ended.turn, ended.last_message)
        assert ["news", "new"] == [m.text for m in session.state(HISTORY).messages if isinstance(m, User)]

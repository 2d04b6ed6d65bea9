"""What a session survives: crashes of plugins in and between turns, restarts, logs with an open turn."""

from typing import Any

import pytest
import trio

from callboard.actors.books import HISTORY, PARKED, QUEUE
from callboard.actors.envelope import Envelope
from callboard.actors.errors import CallOver, SessionClosed
from callboard.actors.events import Call, Event, MessageWithdrawn, NoteAdded, ToolReturned, TurnEnded
from callboard.actors.fold import Projection
from callboard.actors.messages import Submit
from callboard.actors.model import Reply
from callboard.actors.plugin import Enter, Message, Plugin, View
from callboard.actors.testing import LabSession, ScriptedModel, open_lab
from callboard.actors.tool import tool

from .disks import Disk
from .strict import check_history, check_log, of_kind, until


class Noted(Event, frozen=True):
    """Something a plugin writes."""

    text: str


@tool
async def slow() -> str:
    """Sleeps, and cleans up for 50 ms."""
    try:
        await trio.sleep(1000)
    finally:
        with trio.move_on_after(0.05, shield=True):
            await trio.sleep_forever()
    return "slept"


class Breaks:
    """A plugin that raises where it is told to, once."""

    def __init__(self, where: str) -> None:
        self.where = where

    def _maybe(self, where: str, view: View) -> None:
        if self.where == where and view.turn == (0 if where == "on_idle" else 1):
            self.where = ""
            raise LookupError(f"bug in {where}")

    async def before_step(self, view: View, messages: Any) -> Enter:
        """Enter, or break."""
        self._maybe("before_step", view)
        if self.where == "second step" and not messages:
            self.where = ""
            raise LookupError("bug in second step")
        return Enter(messages)

    def prompt_section(self, view: View) -> str | None:
        """Nothing, or break."""
        self._maybe("prompt_section", view)
        return None

    def open_steps(self, view: View) -> int:
        """None, or break."""
        self._maybe("open_steps", view)
        return 0

    def plugin(self) -> Plugin:
        """The plugin."""
        return Plugin(
            "breaks",
            before_step=self.before_step,
            prompt_section=self.prompt_section,
            open_steps=self.open_steps,
        )


@pytest.mark.parametrize(
    ("where", "claimed"),
    [("before_step", False), ("prompt_section", True), ("second step", True), ("open_steps", True)],
)
async def test_crash_of_a_plugin_is_repaired_by_the_next_run(where, claimed):
    """The exception escapes `run`; the next one closes the turn, tells who waited, and the session goes on."""
    replies = [Reply(calls=[Call("quick")]), Reply("one"), Reply("two"), Reply("three")]

    @tool
    async def quick() -> str:
        """Returns."""
        return "ok"

    async with open_lab(ScriptedModel(replies), tools=[quick], plugins=[Breaks(where).plugin()]) as lab:
        session = await lab.session(restarts_max=1)
        told: list[Any] = []
        session.actor.on_ended = told.append
        ended = await session.run("go")
        assert (ended.turn, ended.reason, len(session.crashes)) == (1, "interrupted", 1)
        assert told == [ended]
        assert (session.state(PARKED), len(session.state(QUEUE))) == ((False, 0) if claimed else (True, 1))
        assert (await session.run("more")).reason == "completed"
        check_history(session.state(HISTORY).messages)
        check_log(lab.records())


async def test_crash_while_tools_run_ends_them_and_closes_their_views():
    """Tools of a turn that crashed are cancelled, and what they still try reaches nothing."""
    late: list[str] = []

    @tool(parallel=True)
    async def stays(view: View) -> None:
        """Writes on its way out."""
        try:
            await trio.sleep(1000)
        finally:
            with trio.move_on_after(0.5, shield=True):
                await trio.sleep(0.02)
                try:
                    view.append(Noted("late"))
                except CallOver:
                    late.append("CallOver")

    class Poison:
        """Breaks the turn's own task from outside."""

        def __init__(self) -> None:
            self.armed = False

        def apply(self, state: int, event: Event) -> int:
            """A fold with a bug."""
            if self.armed:
                self.armed = False
                raise ZeroDivisionError
            return state

    poison = Poison()
    plugin = Plugin("p", events=(Noted,), projections=(Projection("poison", 0, poison.apply),))
    model = ScriptedModel([Reply(calls=[Call("stays"), Call("stays")]), Reply("on")])
    async with open_lab(model, tools=[stays], plugins=[plugin]) as lab:
        session = await lab.session(restarts_max=1)
        await session.submit("go")
        await trio.sleep(1)
        poison.armed = True
        told: list[Any] = []
        session.actor.tell(Submit("crash over this", reply=told.append, ended=told.append))
        ended = await session.wait(1)
        assert ended is not None
        assert ([r.receipt for r in ended.receipts], ended.reason) == (["outcome_unknown"] * 2, "interrupted")
        await until(lambda: len(late) == 2)
        assert ([type(a) for a in told], of_kind(lab.records(), Noted)) == ([SessionClosed] * 2, [])
        assert (await session.run("more")).last_message == "on"
        assert lab.stage.abandoned.count() == 0
        check_log(lab.records())


async def test_crash_between_turns_answers_once_and_keeps_the_message():
    """A plugin that breaks after a message was accepted takes nothing back: the turn runs after the restart."""
    broken = [True]

    def on_idle(view: View) -> Message | None:
        if view.turn == 1 and broken:
            broken.clear()
            raise LookupError("bug")
        return None

    async with open_lab(ScriptedModel([Reply("a"), Reply("b")]), plugins=[Plugin("p", on_idle=on_idle)]) as lab:
        session = await lab.session(restarts_max=1)
        told: list[Any] = []
        session.actor.on_ended = told.append
        ended = await session.run("go")
        await until(lambda: session.crashes)
        assert (ended.last_message, [e.turn for e in told]) == ("a", [1])
        assert (await session.run("more")).last_message == "b"
        assert [e.turn for e in told] == [1, 2]


async def test_message_that_brings_the_session_down_twice_is_set_aside(caplog):
    """A poison message cannot loop: after its second crash it is taken out of the queue, and what waits goes on."""

    async def poisoned(view: View, messages: tuple[Message, ...]) -> Enter:
        if any(message.text == "poison" for message in messages):
            raise LookupError("cannot take this")
        return Enter(messages)

    model = ScriptedModel([Reply("one"), Reply("two")])
    async with open_lab(model, plugins=[Plugin("poisoned", before_step=poisoned)]) as lab:
        session = await lab.session(restarts_max=2)
        first = await session.run("poison")
        assert ("interrupted", True, 1) == (first.reason, session.state(PARKED), len(session.state(QUEUE)))
        second = await session.run("good")
        assert ("completed", "one") == (second.reason, second.last_message)
        assert ("two", ()) == ((await session.run("better")).last_message, session.state(QUEUE))
        (withdrawn,) = of_kind(lab.records(), MessageWithdrawn)
        assert (lab.records()[1].id, 2) == (withdrawn.id, len(session.crashes))  # type: ignore[attr-defined]
        assert "was being claimed at two crashes and is set aside" in caplog.text
        check_log(lab.records())


async def test_readers_see_every_event_once_over_a_crash():
    """A reader that follows the log has no gap and no repeat when its session is run again."""
    seen: list[int] = []

    class Reader:
        """Keeps the numbers."""

        def take(self, envelopes: Any) -> None:
            """Keep them."""
            seen.extend(e.seq for e in envelopes if isinstance(e, Envelope))

    async with open_lab(ScriptedModel([Reply("a"), Reply("b")]), plugins=[Breaks("prompt_section").plugin()]) as lab:
        session = await lab.session(restarts_max=1)
        first = session.log.follow(Reader()) + 1
        await session.run("go")
        await session.run("more")
        assert seen == list(range(first, session.log.seq))


async def test_open_turn_is_closed_when_its_log_is_read_again():
    """After the program ended in mid-turn: receipts by what had begun, the queue parked, the next prompt works."""
    calls = [Call("quick", id="a"), Call("slow", id="b"), Call("slow", id="c")]

    @tool(effect="idempotent")
    async def quick() -> str:
        """Returns."""
        return "ok"

    store = Disk()
    with trio.move_on_after(5):
        async with open_lab(ScriptedModel([Reply(calls=calls)]), tools=[quick, slow], store=store) as lab:
            session = await lab.session()
            await session.submit("go")
            await session.submit("later")
            await trio.sleep_forever()
    async with open_lab(ScriptedModel([Reply("x"), Reply("y")]), tools=[quick, slow], store=store) as lab:
        session = await lab.session(fresh=False)
        ended = await session.wait(1)
        assert ended is not None
        assert (ended.reason, ended.cause) == ("interrupted", None)
        assert [(r.call, r.receipt) for r in ended.receipts] == [
            ("a", "completed"),
            ("b", "outcome_unknown"),
            ("c", "not_started"),
        ]
        assert [m.text for m in session.state(QUEUE)] == ["later"]
        assert (await session.run("more")).turn == 3
        check_history(session.state(HISTORY).messages)
        check_log(lab.records())


async def test_end_of_a_repaired_turn_is_told_after_it_is_durable():
    """The repair is written like any other end: flushed, then announced; interrupts are answered meanwhile."""
    store = Disk()
    with trio.move_on_after(5):
        async with open_lab(ScriptedModel([Reply("x")], delay_s=100), store=store) as lab:
            await (await lab.session()).submit("go")
            await trio.sleep_forever()
    async with open_lab(ScriptedModel([Reply("x")]), store=store) as lab:
        told: list[Any] = []
        session = LabSession(type((await lab.session("other")).actor)(lab.stage, "s", None))
        session.actor.on_ended = told.append
        await session.actor.load()
        store.stall()
        lab.sessions["s"] = session
        lab.stage.nursery.start_soon(session.actor.run)
        await trio.sleep(1)
        assert (told, type(await session.interrupt()).__name__) == ([], "Interrupting")
        store.go()
        await session.wait_idle()
        assert [e.reason for e in told] == ["interrupted"]
        assert len(of_kind(lab.records(), TurnEnded, NoteAdded, ToolReturned)) == 1

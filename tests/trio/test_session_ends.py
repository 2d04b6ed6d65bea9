"""How a session ends: stops in every phase, and everybody who waits for it gets an answer."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from callboard.actors.books import QUEUE, TURN
from callboard.actors.errors import LogError, SessionClosed
from callboard.actors.events import Call, TurnEnded, TurnStarted
from callboard.actors.messages import Await, Idle, Interrupt, Letter, Stop, Stopped, Submit
from callboard.actors.model import Prompt, Reply
from callboard.actors.phase import Phase
from callboard.actors.plugin import View
from callboard.actors.testing import LabSession, ScriptedModel, open_lab
from callboard.actors.tool import tool

from .disks import Disk
from .strict import check_log, of_kind, until


@tool
async def slow() -> str:
    """Sleeps, and cleans up for 50 ms."""
    try:
        await trio.sleep(1000)
    finally:
        with trio.move_on_after(0.05, shield=True):
            await trio.sleep_forever()
    return "slept"


class Asked:
    """Everything that waits for a session, and what it was told."""

    def __init__(self, session: LabSession) -> None:
        self.told: dict[str, list[Any]] = {}
        letters: dict[str, Callable[[Any], Letter]] = {
            "idle": lambda reply: Await(reply=reply),
            "turn": lambda reply: Await(session.state(TURN).number, reply=reply),
            "later turn": lambda reply: Await(99, reply=reply),
            "queued": lambda reply: Submit("queued", ended=reply),
        }
        for name, letter in letters.items():
            self.told[name] = []
            session.actor.tell(letter(self.told[name].append))

    def names(self) -> dict[str, list[str]]:
        """The types of the answers."""
        return {name: [type(answer).__name__ for answer in told] for name, told in self.told.items()}


async def test_stop_of_an_idle_session():
    """It ends at once; what it owned is closed, and everything after the end is told so."""
    closed: list[str] = []

    class Thing:
        """Owned by the session."""

        def __init__(self, name: str) -> None:
            self.name = name

        def close(self) -> None:
            """Break for one of them."""
            closed.append(self.name)
            if self.name == "broken":
                raise OSError("cannot close")

    @tool
    async def own(view: View) -> str:
        """Leaves things behind."""
        for name in ("first", "broken", "last"):
            view.belongings[name] = Thing(name)
        view.start_soon(beside)
        return "owned"

    async def beside() -> None:
        try:
            await trio.sleep_forever()
        finally:
            closed.append("task")

    async with open_lab(ScriptedModel([Reply(calls=[Call("own")]), Reply("ok")]), tools=[own]) as lab:
        session = await lab.session()
        await session.run("go")
        assert closed == []
        assert await session.stop() == Stopped()
        await until(lambda: len(closed) == 4)
        assert (sorted(closed), session.actor.phase) == (["broken", "first", "last", "task"], Phase.STOPPED)
        assert (await session.stop(), await session.interrupt()) == (Stopped(), Idle())
        with pytest.raises(SessionClosed, match="open it again"):
            await session.submit("more")


async def test_stop_of_a_running_session_ends_its_turn_first():
    """The turn is aborted for the shutdown, its end is durable, nothing queued starts, and everybody is told."""
    async with open_lab(ScriptedModel([Reply(calls=[Call("slow")])] * 3), tools=[slow]) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1)
        asked = Asked(session)
        before = trio.current_time()
        assert await session.stop() == Stopped()
        assert trio.current_time() - before == pytest.approx(0.05)
        assert asked.names() == {
            "idle": ["NoneType"],
            "turn": ["TurnEnded"],
            "later turn": ["SessionClosed"],
            "queued": ["SessionClosed"],
        }
        (ended,) = of_kind(lab.records(), TurnEnded)
        assert (ended.reason, ended.cause) == ("aborted", "shutdown")
        assert [m.text for m in session.state(QUEUE)] == ["queued"]
        assert len(of_kind(lab.records(), TurnStarted)) == 1
        check_log(lab.records())


async def test_stop_while_a_turn_is_aborting_keeps_the_first_cause():
    """The second asker is answered when the session has ended; new input is refused meanwhile."""
    async with open_lab(ScriptedModel([Reply(calls=[Call("slow")])]), tools=[slow]) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1)
        await session.interrupt()
        told: list[Any] = []
        session.actor.tell(Stop(reply=told.append))
        session.actor.tell(Stop(reply=told.append))
        session.actor.tell(Submit("no", reply=told.append, ended=told.append))
        await until(lambda: session.actor.phase is Phase.STOPPED)
        await until(lambda: len(told) == 4)
        assert sorted(type(a).__name__ for a in told) == ["SessionClosed", "SessionClosed", "Stopped", "Stopped"]
        assert [e.cause for e in of_kind(lab.records(), TurnEnded)] == ["interrupted"]


async def test_stop_waits_for_the_disk_with_a_bound():
    """What the session wrote last is flushed; a disk that never answers holds the end for `flush_stall_s`."""
    disk = Disk()
    async with open_lab(ScriptedModel(), store=disk) as lab:
        session = await lab.session()
        disk.stall()
        before = trio.current_time()
        assert await session.stop() == Stopped()
        assert trio.current_time() - before == pytest.approx(5)
        disk.go()


async def test_letters_that_arrive_behind_the_stop_are_answered():
    """Nothing that was put into the mailbox stays without an answer."""
    async with open_lab(ScriptedModel([Reply("a")])) as lab:
        session = await lab.session()
        told: list[Any] = []
        for letter in (
            Stop(reply=told.append),
            Submit("x", reply=told.append, ended=told.append),
            Await(reply=told.append),
            Interrupt(reply=told.append),
            Stop(reply=told.append),
        ):
            session.actor.tell(letter)
        await until(lambda: session.actor.phase is Phase.STOPPED)
        await until(lambda: len(told) == 6)
        assert sorted(type(a).__name__ for a in told) == ["Idle", *["SessionClosed"] * 3, "Stopped", "Stopped"]
        assert of_kind(lab.records(), TurnStarted) == []


async def test_store_that_fails_while_a_log_is_read_is_a_crash_with_its_name():
    """A log that cannot be read whole is refused loudly."""
    store = Disk()
    async with open_lab(ScriptedModel([Reply("a")]), store=store) as lab:
        session = await lab.session()
        await session.run("go")
        await session.stop()
        store.failing = True
        again = type(session.actor)(lab.stage, "s", None)
        with pytest.raises(LogError):
            await again.run()
        store.failing = False


async def test_supervisor_that_gives_up_closes_the_session():
    """`close` answers everybody who still waits."""

    def model(prompt: Prompt) -> Reply:
        return Reply(calls=[Call("slow")])

    async with open_lab(ScriptedModel(model), tools=[slow]) as lab:
        session = await lab.session()
        actor = type(session.actor)(lab.stage, "t", None)
        told: list[Any] = []
        actor.tell(Submit("x", reply=told.append, ended=told.append))
        actor.tell(Await(1, reply=told.append))
        actor.tell(Stop(reply=told.append))
        actor.close()
        assert [type(a).__name__ for a in told] == ["SessionClosed", "SessionClosed", "SessionClosed", "Stopped"]

"""Alarms: one heap for all sessions, never early, whatever the wall clock does; what is due is fired once."""

import itertools
from typing import Any

import pytest
import trio

from callboard.actors.alarm import SEGMENT_MAX_S, AlarmClock
from callboard.actors.books import QUEUE, TURN
from callboard.actors.events import Call, Event, MessageQueued
from callboard.actors.fold import Projection
from callboard.actors.messages import SetMode
from callboard.actors.model import Reply
from callboard.actors.plugin import Alarm, Plugin, View
from callboard.actors.testing import LabSession, ScriptedModel, open_lab
from callboard.actors.tool import tool

from .disks import Disk
from .strict import check_log, of_kind, until
from .walled import Walled


class Wanted(Event, frozen=True):
    """A reminder is set, for this wall time."""

    due_ms: int


class Rang(Event, frozen=True):
    """It was fired."""

    due_ms: int


def _dues(state: tuple[int, ...], event: Event) -> tuple[int, ...]:
    if isinstance(event, Wanted):
        return tuple(sorted((*state, event.due_ms)))
    return tuple(due for due in state if due != event.due_ms) if isinstance(event, Rang) else state


DUES: Projection[tuple[int, ...]] = Projection("dues", (), _dues, on=(Wanted, Rang))


def _fire(view: View) -> tuple[Event, ...]:
    due = view[DUES][0]
    return MessageQueued(f"schedule:{due}", f"reminder {due}", "schedule"), Rang(due)


REMINDERS = Plugin(
    "reminders",
    events=(Wanted, Rang),
    projections=(DUES,),
    alarms=(Alarm(DUES, lambda dues: dues[0] if dues else None, _fire),),
)


async def want(session: LabSession, due_ms: int) -> None:
    """Set a reminder, as a tool would."""
    session.log.append(Wanted(due_ms))


def rings(session: LabSession) -> list[str]:
    """The ids of the reminders that were queued."""
    return [e.id for e in of_kind(_records(session), MessageQueued) if e.source == "schedule"]


def _records(session: LabSession) -> list[Event]:
    store, codec = session.actor.stage.store, session.actor.stage.codec
    return [codec.decode(record.body) for record in store.read(session.actor.id, -1, 10_000)]


async def test_alarms_ring_in_order_and_never_early():
    """Each id rings once, at or just after its time, earliest first; a changed time replaces the old one."""
    walled, rang = Walled(), list[tuple[str, int]]()
    clock = AlarmClock(walled.now_ms, lambda id_: rang.append((id_, walled.now_ms())))
    now = walled.now_ms()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(clock.run)
        for id_, seconds in (("a", 300), ("b", 100), ("c", 200), ("d", 50)):
            clock.set(id_, now + seconds * 1000)
        clock.set("b", now + 250_000)
        clock.set("d", None)
        await trio.sleep(400)
        assert rang == [("c", now + 200_000), ("b", now + 250_000), ("a", now + 300_000)]
        assert len(clock) == 0
        nursery.cancel_scope.cancel()


async def test_alarm_follows_a_clock_that_is_set():
    """Set back, it rings later; set forward, it rings within one segment; it sleeps no longer than a segment."""
    walled, rang = Walled(), list[int]()
    reads: list[float] = []

    def now_ms() -> int:
        reads.append(trio.current_time())
        return walled.now_ms()

    clock = AlarmClock(now_ms, lambda id_: rang.append(walled.now_ms()))
    now = walled.now_ms()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(clock.run)
        clock.set("back", now + 100_000)
        await trio.sleep(50)
        walled.jump(-3600)
        await trio.sleep(100)
        assert rang == []
        walled.jump(3600)
        before = trio.current_time()
        await until(lambda: rang, SEGMENT_MAX_S + 1)
        assert trio.current_time() - before <= SEGMENT_MAX_S
        assert rang[0] >= now + 100_000
        clock.set("far", walled.now_ms() + 3_600_000)
        await trio.sleep(1000)
        gaps = [b - a for a, b in itertools.pairwise(reads)]
        assert max(gaps) <= SEGMENT_MAX_S + 0.001
        nursery.cancel_scope.cancel()


async def test_many_alarms_cost_one_entry_each():
    """Ten thousand ids, each moved a few times, ring once each in order."""
    walled, rang = Walled(), list[str]()
    clock = AlarmClock(walled.now_ms, rang.append)
    now = walled.now_ms()
    for step in range(3):
        for n in range(10_000):
            clock.set(f"{n}", now + 1000 + (n * 7919 + step) % 10_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(clock.run)
        await trio.sleep(20)
        assert (len(rang), len(set(rang)), len(clock)) == (10_000, 10_000, 0)
        nursery.cancel_scope.cancel()


async def test_due_reminder_starts_a_turn():
    """Event and message are one write, and the turn starts without anybody asking."""
    walled = Walled()
    async with open_lab(ScriptedModel(lambda p: Reply("ok")), plugins=[REMINDERS]) as lab:
        walled.install(lab)
        session = await lab.session()
        due = walled.now_ms() + 90_000
        await want(session, due)
        await trio.sleep(89)
        assert rings(session) == []
        await trio.sleep(2)
        assert (rings(session), session.state(TURN).number, session.state(TURN).start) == (
            [f"schedule:{due}"],
            1,
            "automatic",
        )
        check_log(lab.records())


@pytest.mark.parametrize("flush_s", [0, 3])
async def test_reminder_that_comes_due_while_a_turn_runs_is_fired_after_it(flush_s):
    """The turn is not disturbed, nothing is lost, and nothing rings in a circle meanwhile."""
    walled, disk = Walled(), Disk()

    @tool
    async def busy() -> str:
        """Takes long."""
        await trio.sleep(100)
        return "done"

    def model(prompt: Any) -> Reply:
        return Reply(calls=[Call("busy")]) if (prompt.turn, prompt.step) == (1, 1) else Reply("ok")

    async with open_lab(ScriptedModel(model), plugins=[REMINDERS], tools=[busy], store=disk) as lab:
        walled.install(lab)
        session = await lab.session()
        await session.submit("go")
        await want(session, walled.now_ms() + 10_000)
        await trio.sleep(99)
        assert (rings(session), len(walled.rang)) == ([], 1)
        if flush_s:
            disk.stall()
            await trio.sleep(flush_s)
            assert rings(session) == []
            disk.go()
        await until(lambda: session.state(TURN).number == 2)
        await session.wait_idle()
        assert (len(rings(session)), len(walled.rang)) == (1, 1)
        check_log(lab.records())


async def test_clock_set_back_between_the_ring_and_the_actor_fires_nothing_early():
    """The actor looks at the clock again, and asks the alarm once more."""
    walled = Walled()
    async with open_lab(ScriptedModel(lambda p: Reply("ok")), plugins=[REMINDERS]) as lab:
        clock = walled.install(lab)
        session = await lab.session()
        due = walled.now_ms() + 10_000
        await want(session, due)
        tell = session.actor.tell

        def late(letter: Any) -> None:
            walled.jump(-100)
            clock_letters.append(letter)
            tell(letter)

        clock_letters: list[Any] = []
        lab.sessions["s"] = LabSession(_Told(late))  # type: ignore[arg-type]  # only `tell` is used
        await until(lambda: clock_letters)
        lab.sessions["s"] = session
        await trio.sleep(50)
        assert (rings(session), len(clock)) == ([], 1)
        await trio.sleep(100)
        assert rings(session) == [f"schedule:{due}"]


class _Told:
    def __init__(self, tell: Any) -> None:
        self.tell = tell


async def test_missed_reminders_are_fired_when_the_session_is_opened():
    """What came due while nobody had the session in memory is fired on load, once."""
    walled, store = Walled(), Disk()
    async with open_lab(ScriptedModel(lambda p: Reply("ok")), plugins=[REMINDERS], store=store) as lab:
        walled.install(lab)
        session = await lab.session()
        await want(session, walled.now_ms() + 10_000)
    walled.jump(3600)
    for _ in range(2):
        async with open_lab(ScriptedModel(lambda p: Reply("ok")), plugins=[REMINDERS], store=store) as lab:
            walled.install(lab)
            session = await lab.session(fresh=False)
            await session.wait_idle()
            assert (len(rings(session)), session.state(TURN).number) == (1, 1)


async def test_reminder_in_plan_mode_is_fired_once_and_waits():
    """It is queued when it is due, and starts its turn when the mode ends."""
    walled = Walled()
    async with open_lab(ScriptedModel(lambda p: Reply("ok")), plugins=[REMINDERS]) as lab:
        walled.install(lab)
        session = await lab.session()
        await session.ask(lambda reply: SetMode(active=True, reply=reply))
        await want(session, walled.now_ms() + 10_000)
        await trio.sleep(100)
        assert (len(rings(session)), len(session.state(QUEUE)), session.state(TURN).number) == (1, 1, 0)
        await session.ask(lambda reply: SetMode(active=False, reply=reply))
        await session.wait_idle()
        assert (len(rings(session)), session.state(TURN).number) == (1, 1)


async def test_alarm_that_does_not_move_on_is_not_rung_for_again():
    """A plugin that fires and stays due cannot spin the runtime."""
    walled = Walled()
    stuck = Plugin(
        "stuck",
        events=(Wanted, Rang),
        projections=(DUES,),
        alarms=(Alarm(DUES, lambda dues: dues[0] if dues else None, lambda view: ()),),
    )
    async with open_lab(ScriptedModel(lambda p: Reply("ok")), plugins=[stuck]) as lab:
        walled.install(lab)
        session = await lab.session()
        await want(session, walled.now_ms() + 1_000)
        await trio.sleep(100)
        assert len(walled.rang) == 1
        assert (await session.run("go")).last_message == "ok"


async def test_reminder_with_a_repeated_id_is_dropped():
    """The id of a message makes a repeat after a crash harmless."""
    walled = Walled()
    twice = Plugin(
        "twice",
        events=(Wanted, Rang),
        projections=(DUES,),
        alarms=(
            Alarm(
                DUES,
                lambda dues: dues[0] if dues else None,
                lambda view: (MessageQueued("schedule:same", "x", "schedule"), Rang(view[DUES][0])),
            ),
        ),
    )
    async with open_lab(ScriptedModel(lambda p: Reply("ok")), plugins=[twice]) as lab:
        walled.install(lab)
        session = await lab.session()
        for seconds in (10, 20, 30):
            await want(session, walled.now_ms() + seconds * 1000)
        await trio.sleep(100)
        assert (rings(session), session.state(TURN).number, session.state(DUES)) == (["schedule:same"], 1, ())

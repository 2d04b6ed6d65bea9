"""The drive of reminders: what fires when, on clocks that are set, on disks that refuse, in Plan mode, beside turns."""

import logging
from functools import partial

import pytest
import trio

from callboard.actors import alarm
from callboard.actors.alarm import SEGMENT_MAX_S, AlarmClock
from callboard.actors.books import HISTORY, QUEUE, TURN
from callboard.actors.events import Call, MessageQueued
from callboard.actors.facts import Reminder, ReminderDeleted, ReminderFired, ReminderSet
from callboard.actors.memory import MemoryStore
from callboard.actors.messages import SetMode
from callboard.actors.model import Reply
from callboard.actors.testing import START_MS, ScriptedModel, open_lab
from callboard.actors.tool import tool
from callboard.plugins.reminders import MARKER, SCHEDULE, Schedule, decide, firing
from callboard.plugins.rules import at_ms
from callboard.plugins.schedule import SCHEDULE_PLUGIN

from .disks import Disk
from .scheduled import HOUR_S, active, fired, hourly, once, records, told
from .strict import check_log, of_kind, until
from .walled import Walled

HOUR_MS = HOUR_S * 1000


def lab(store=None, model=None, tools=()):
    """A lab with reminders."""
    answering = model or ScriptedModel(lambda prompt: Reply("ok"))
    return open_lab(answering, plugins=[SCHEDULE_PLUGIN], store=store, tools=tools)


def _has_fired(session, count):
    return len(fired(session)) == count


async def test_reminder_starts_a_turn_that_shows_it():
    """At its time and not before: message and event are one write, and the model reads the framed text."""
    walled = Walled()
    async with lab() as here:
        walled.install(here)
        session = await here.session()
        due = walled.now_ms() + 90_000
        session.log.append(once(1, due))
        await trio.sleep(89.9)
        assert [] == told(session)
        await trio.sleep(1)
        await session.wait_idle()
        assert [f"schedule:schedule-1:{due}"] == told(session)
        assert [("schedule-1", due)] == fired(session)
        kinds = [type(one).__name__ for one in here.records()]
        assert kinds.index("MessageQueued") + 1 == kinds.index("ReminderFired")
        (said, _) = session.state(HISTORY).messages
        assert said.text.startswith(f"{MARKER}\n")
        assert (1, "automatic", []) == (session.state(TURN).number, session.state(TURN).start, active(session))
        check_log(here.records())


async def test_one_shots_then_the_batch():
    """Overdue together: each one-shot its own message and turn, earliest first, then all recurring in one."""
    walled = Walled()
    async with lab() as here:
        walled.install(here)
        session = await here.session()
        now = walled.now_ms()
        session.log.append(hourly(1, now - 1, 1), once(2, now - 5, 1), hourly(3, now - 9, 1), once(4, now - 7, 1))
        await until(lambda: len(told(session)) == 3)
        await session.wait_idle()
        assert [
            f"schedule:schedule-4:{now - 7}",
            f"schedule:schedule-2:{now - 5}",
            f"schedule:schedule-3:{now - 9}+schedule-1:{now - 1}",
        ] == told(session)
        assert 3 == session.state(TURN).number
        check_log(here.records())


async def test_every_keeps_its_grid():
    """Each hour from its creation on, whatever a turn takes; nothing drifts."""
    walled = Walled()
    async with lab(model=ScriptedModel(lambda prompt: Reply("ok"), delay_s=600)) as here:
        walled.install(here)
        session = await here.session()
        first = walled.now_ms() + HOUR_MS
        session.log.append(hourly(1, first, 1))
        await trio.sleep(5 * HOUR_S + 1200)
        assert [("schedule-1", first + n * HOUR_MS) for n in range(5)] == fired(session)


async def test_every_with_hours_of_downtime():
    """What was missed while nothing ran comes once, at the latest time; a second opening brings nothing."""
    walled, store = Walled(), MemoryStore()
    async with lab(store) as here:
        walled.install(here)
        session = await here.session()
        first = walled.now_ms() + HOUR_MS
        session.log.append(hourly(1, first, 1), once(2, first + 5, 1))
        await session.log.flush()
    walled.jump(7.5 * HOUR_S)
    for _ in range(2):
        async with lab(store) as here:
            walled.install(here)
            session = await here.session(fresh=False)
            await until(partial(_has_fired, session, 2))
            await session.wait_idle()
            assert [("schedule-2", first + 5), ("schedule-1", first + 6 * HOUR_MS)] == fired(session)
            assert [f"schedule:schedule-2:{first + 5}", f"schedule:schedule-1:{first + 6 * HOUR_MS}"] == told(session)
            assert first + 7 * HOUR_MS == session.state(SCHEDULE).due_ms


async def test_nothing_else_resumes_with_it():
    """What a person had queued before the restart stays parked; the reminder alone starts a turn."""
    walled, store = Walled(), Disk()
    async with lab(store, ScriptedModel(lambda prompt: Reply("ok"), delay_s=50)) as here:
        walled.install(here)
        session = await here.session()
        session.log.append(once(1, walled.now_ms() + HOUR_MS, 1))
        await session.submit("first", "a")
        await session.submit("second", "b")
        await trio.sleep(1)
    walled.jump(2 * HOUR_S)
    async with lab(store) as here:
        walled.install(here)
        session = await here.session(fresh=False)
        await until(lambda: session.state(TURN).number == 2)
        await session.wait_idle()
        assert (1, ["b"]) == (len(told(session)), [one.id for one in session.state(QUEUE)])


BERLIN = [
    ("2026-03-28T12:00:00Z", ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
    ("2026-10-24T12:00:00Z", ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
]


@pytest.mark.parametrize(("begin", "expected"), BERLIN)
async def test_daily_across_the_nights_of_the_clocks(begin, expected):
    """Each civil night once: after the gap in spring, at the first of the two in autumn."""
    walled = Walled()
    walled.wall.set(at_ms(begin))
    async with lab() as here:
        walled.install(here)
        session = await here.session()
        due = at_ms(expected[0])
        daily = Reminder("schedule-1", "daily", "x", "02:30", due, walled.now_ms(), "Europe/Berlin")
        session.log.append(ReminderSet(daily))
        await trio.sleep(40 * HOUR_S)
        assert [("schedule-1", at_ms(at)) for at in expected] == fired(session)


@pytest.mark.parametrize("zone", ["UTC0", "Asia/Tokyo", "America/New_York"])
async def test_zone_of_the_host_changes_nothing(zone, monkeypatch):
    """The zone is in the record: where the program runs is of no matter."""
    monkeypatch.setenv("TZ", zone)
    await test_daily_across_the_nights_of_the_clocks(*BERLIN[0])


async def test_clock_that_is_set_back_and_forward():
    """Set back by hours nothing comes early or again; set forward it comes within a minute, as one."""
    walled = Walled()
    async with lab() as here:
        walled.install(here)
        session = await here.session()
        first = walled.now_ms() + HOUR_MS
        session.log.append(hourly(1, first, 1))
        await trio.sleep(HOUR_S + 1)
        assert [("schedule-1", first)] == fired(session)
        walled.jump(-5 * HOUR_S)
        await trio.sleep(5.9 * HOUR_S)
        assert [("schedule-1", first)] == fired(session)
        await trio.sleep(0.2 * HOUR_S)
        assert [("schedule-1", first), ("schedule-1", first + HOUR_MS)] == fired(session)
        walled.jump(4 * HOUR_S)
        await trio.sleep(SEGMENT_MAX_S + 1)
        assert [("schedule-1", first + n * HOUR_MS) for n in (0, 1, 5)] == fired(session)


async def test_target_far_away(monkeypatch):
    """Seventy days are many segments of sleep: it comes at its time, once."""
    monkeypatch.setattr(alarm, "SEGMENT_MAX_S", 3 * HOUR_S)
    walled = Walled()
    async with lab() as here:
        walled.install(here)
        session = await here.session()
        due = walled.now_ms() + 70 * 24 * HOUR_MS
        session.log.append(once(1, due, 1))
        await trio.sleep(70 * 24 * HOUR_S - 1)
        assert [] == told(session)
        await trio.sleep(2)
        assert [("schedule-1", due)] == fired(session)


async def test_due_while_a_turn_runs():
    """The turn is not disturbed; the reminder is fired when it has ended, and rings once."""
    walled = Walled()

    @tool
    async def busy() -> str:
        """Takes long."""
        await trio.sleep(100)
        return "done"

    def play(prompt):
        return Reply(calls=[Call("busy")]) if (prompt.turn, prompt.step) == (1, 1) else Reply("ok")

    async with lab(model=ScriptedModel(play), tools=[busy]) as here:
        walled.install(here)
        session = await here.session()
        await session.submit("go")
        session.log.append(once(1, walled.now_ms() + 10_000, 1))
        await trio.sleep(99)
        assert ([], 1) == (told(session), len(walled.rang))
        await until(lambda: session.state(TURN).number == 2)
        await session.wait_idle()
        assert (1, 1) == (len(told(session)), len(walled.rang))


async def test_plan_mode():
    """In Plan mode what is due is fired and queued once, all of it, and starts no turn until the mode ends."""
    walled = Walled()
    async with lab() as here:
        walled.install(here)
        session = await here.session()
        await session.ask(lambda reply: SetMode(active=True, reply=reply))
        now = walled.now_ms()
        session.log.append(once(1, now + 1000, 1), once(2, now + 1500, 1), hourly(3, now + 2000, 1))
        await trio.sleep(3 * HOUR_S)
        assert (0, 5) == (session.state(TURN).number, len(told(session)))
        await session.ask(lambda reply: SetMode(active=False, reply=reply))
        await until(lambda: session.state(TURN).number == 5)
        await session.wait_idle()
        assert (5, 0) == (len(told(session)), len(session.state(QUEUE)))


async def test_deleted_does_not_ring():
    """What was deleted before its time does not fire."""
    walled = Walled()
    async with lab() as here:
        walled.install(here)
        session = await here.session()
        session.log.append(once(1, walled.now_ms() + 10_000, 1))
        session.log.append(ReminderDeleted("schedule-1"))
        await trio.sleep(100)
        assert ([], []) == (told(session), walled.rang)


async def test_log_that_contradicts_itself_is_told_of(caplog):
    """The drive says so once, as an error of the program's log, and fires nothing more; the session works on."""
    walled = Walled()
    async with lab() as here:
        walled.install(here)
        session = await here.session()
        session.log.append(once(1, walled.now_ms() + 1000, 1), ReminderDeleted("schedule-9"))
        with caplog.at_level(logging.ERROR, logger="callboard"):
            await trio.sleep(100)
            for _ in range(3):
                assert "ok" == (await session.run("go")).last_message
        assert 1 == sum("corrupt_schedule_log" in str(one.exc_info) for one in caplog.records)
        assert [] == told(session)


async def test_many_schedules_on_one_alarm():
    """Ten thousand reminders in a thousand sessions: one entry for each session, and few looks at the clock a ring."""
    rang, states = list[str](), dict[str, Schedule]()
    now, looks = START_MS, 0

    def now_ms() -> int:
        nonlocal looks
        looks += 1
        return START_MS + round(trio.current_time() * 1000)

    def ring(id_: str) -> None:
        rang.append(id_)
        dues = decide(states[id_], now_ms())
        assert dues
        for event in firing(dues, now_ms())[1:]:
            states[id_] = SCHEDULE.apply(states[id_], event)
        clock.set(id_, states[id_].due_ms)

    clock = AlarmClock(now_ms, ring)
    for n in range(1000):
        state = SCHEDULE.zero
        for k in range(1, 11):
            state = SCHEDULE.apply(state, once(k, now + 1000 * (1 + (n * 7919 + k * 104_729) % 10_000), 1))
            clock.set(f"s{n}", state.due_ms)
        states[f"s{n}"] = state
    assert 1000 == len(clock)
    assert len(clock._heap) <= 2 * 1000 + 64
    async with trio.open_nursery() as nursery:
        nursery.start_soon(clock.run)
        await trio.sleep(10_001)
        nursery.cancel_scope.cancel()
    assert (10_000, 1000, 0) == (len(rang), len(set(rang)), len(clock))
    assert looks < 6 * 10_000


async def test_alarm_sweeps_out_what_was_changed():
    """An id whose time is changed for ever keeps the heap small."""
    clock = AlarmClock(lambda: START_MS, lambda id_: None)
    for n in range(100_000):
        clock.set("s", START_MS + 1_000_000 - n)
        clock.set(f"gone{n}", START_MS + 5)
        clock.set(f"gone{n}", None)
    assert (1, True) == (len(clock), len(clock._heap) <= 128)
    assert ([], 1) == (clock.due(), len(clock))


async def test_fired_events_are_what_the_fold_takes():
    """Whatever was fired in a long run, no event contradicts another, and ids and occurrences are all different."""
    walled = Walled()
    async with lab() as here:
        walled.install(here)
        session = await here.session()
        now = walled.now_ms()
        session.log.append(*(hourly(n, now + n * 60_000, 1) for n in range(1, 20)))
        for hours in (3, -2, 9, 0.5, -1):
            await trio.sleep(2 * HOUR_S)
            walled.jump(hours * HOUR_S)
        assert "" == session.state(SCHEDULE).flaw
        all_fired = [(one.id, one.at_ms) for one in of_kind(records(session), ReminderFired)]
        assert len(set(all_fired)) == len(all_fired) > 100
        ids = [one.id for one in of_kind(records(session), MessageQueued)]
        assert len(set(ids)) == len(ids)

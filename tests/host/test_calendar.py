"""Reminders of sessions that nobody has open: the store's index, one alarm for all, and what cannot be opened."""

import asyncio
import logging
import sqlite3
import time

import pytest

from callboard.actors import Reply
from callboard.actors.events import SessionForked
from callboard.actors.facts import Reminder, ReminderDeleted, ReminderFired, ReminderSet
from callboard.actors.memory import MemoryStore
from callboard.actors.store import Due, Header, Record
from callboard.actors.testing import FakeWall, ScriptedModel
from callboard.plugins.schedule import SCHEDULE_PLUGIN
from callboard.runtime import DEFAULT, RuntimeConfig, open_runtime
from callboard.runtime import calendar as calendars
from callboard.runtime.settings import Bounds
from callboard.runtime.stores import SqliteStore, open_store

from .hosted import until
from .stored import schema_of

PLUGINS = tuple({plugin.name: plugin for plugin in (*DEFAULT, SCHEDULE_PLUGIN)}.values())
HOUR_MS = 3_600_000


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request, tmp_path):
    """Each kind of store; it stays when a runtime is closed."""
    if request.param == "postgres":
        return open_store(schema_of(request.getfixturevalue("postgres")))
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "x.db")


def runtime(store, wall=None, config=None, model=None):
    """A runtime with reminders."""
    answering = model or ScriptedModel(lambda prompt: Reply("ok"))
    return open_runtime(config, model=answering, store=store, plugins=PLUGINS, clock=wall)


def once(number, due_ms):
    """A one-shot."""
    return ReminderSet(Reminder(f"schedule-{number}", "after", f"once {number}", "60", due_ms, 1))


def fired(rt, session):
    """What was fired in a session, by its log in the store."""
    codec = rt._ground.stage.codec
    events = [codec.decode(record.body) for record in rt.store.read(session, -1, 10_000)]
    return [(one.id, one.at_ms) for one in events if isinstance(one, ReminderFired)]


async def put(rt, session, *events):
    """Put events on the log of a live session, as its tools do."""
    log = rt.actor(session).log
    log.append(*events)
    done = asyncio.get_running_loop().create_future()
    log.when_durable(done.set_result)
    await done


def index(store):
    """All of a store's index."""
    return store.due(2**62, (-1, ""), 10_000)


async def test_index_follows_the_log(store):
    """Each change of what is due next is in the index with the event that changed it, and nowhere for a fork."""
    wall = FakeWall()
    now = wall.now_ms()
    async with runtime(store, wall) as rt:
        await rt.create("s")
        await rt.create("t")
        assert [] == index(store)
        await put(rt, "s", once(1, now + HOUR_MS), once(2, now + 2 * HOUR_MS))
        await put(rt, "t", once(1, now + HOUR_MS))
        assert [(now + HOUR_MS, "s"), (now + HOUR_MS, "t")] == index(store)
        assert now + HOUR_MS == store.header("s").due_ms
        await put(rt, "s", ReminderDeleted("schedule-1"))
        assert [(now + HOUR_MS, "t"), (now + 2 * HOUR_MS, "s")] == index(store)
        fork = await (await rt.open("s")).fork(session_id="f")
        assert isinstance(fork.id, str)
        assert {"s", "t"} == {session for _, session in index(store)}
        await put(rt, "s", ReminderDeleted("schedule-2"))
        await put(rt, "t", SessionForked("x", 1))
        assert [] == index(store)


def test_index_in_pages(store):
    """It is read behind a place, up to a time, so many at once, ordered by time and id."""
    store.open(lambda fn: fn())
    try:
        for n in range(50):
            record = Record(0, 1, None, b'{"type":"note_added","text":"x"}')
            store.append(f"s{n:02}", [record], Header(f"s{n:02}"), Due(100 + n // 10))
        store.append("s49", [Record(1, 1, None, b'{"type":"note_added","text":"x"}')], None, Due(None))
        store.append("s48", [Record(1, 1, None, b'{"type":"note_added","text":"x"}')])
        answers: list[Exception | None] = []
        store.sync(answers.append)
        while not answers:
            time.sleep(0.01)
        assert [None] == answers
        found, place = [], (-1, "")
        while page := store.due(103, place, 7):
            assert len(page) <= 7
            found += page
            place = page[-1]
        assert [(100 + n // 10, f"s{n:02}") for n in range(40)] == found
        assert [(104, f"s{n}") for n in range(40, 49)] == store.due(1000, (103, "s99"), 100)
        assert [] == store.due(1000, (-1, ""), 0)
    finally:
        store.close()


@pytest.mark.parametrize("together", [True, False])
def test_last_word_on_what_is_due(store, together):
    """A due time beats the header beside it, a later header an earlier due time, in one commit or in two."""
    store.open(lambda fn: fn())
    answers: list[Exception | None] = []

    def add(seq, header, due):
        store.append("s", [Record(seq, 1, None, b"{}")], header, due)
        if not together:
            store.sync(answers.append)

    try:
        add(0, Header("s", due_ms=4), Due(5))
        add(1, Header("s", due_ms=9), None)
        store.append("t", [Record(0, 1, None, b"{}")], Header("t", due_ms=4), Due(6))
        store.sync(answers.append)
        while len(answers) < (1 if together else 3):
            time.sleep(0.01)
        assert [(6, "t"), (9, "s")] == index(store)
        assert (9, 6) == (store.header("s").due_ms, store.header("t").due_ms)
    finally:
        store.close()


def test_file_of_the_first_version_gets_its_index(tmp_path):
    """A file that an earlier build wrote is opened, and its due times are found."""
    path = tmp_path / "x.db"
    store = SqliteStore(path)
    store.open(lambda fn: fn())
    store.append("s", [Record(0, 1, None, b"{}")], Header("s"), Due(7))
    store.close()
    with sqlite3.connect(path) as db:
        db.executescript("DROP INDEX sessions_due; DROP TABLE owners; DROP TABLE snapshots")
        db.execute("PRAGMA user_version=1")
    db.close()
    store.open(lambda fn: fn())
    assert [(7, "s")] == store.due(10, (-1, ""), 10)
    store.close()


async def test_session_that_nobody_has_opened(store):
    """What came due while nothing ran is fired by the next program, once, without anybody opening the session."""
    wall = FakeWall()
    due = wall.now_ms() + HOUR_MS
    async with runtime(store, wall) as rt:
        await rt.create("s")
        await rt.create("quiet")
        await put(rt, "s", once(1, due))
    wall.advance(7200)
    async with runtime(store, wall) as rt:
        await until(lambda: fired(rt, "s"))
        assert [("schedule-1", due)] == fired(rt, "s")
        await (await rt.open("s")).wait(1)
        assert ["s"] == [one.id for one in rt.sessions()]
    async with runtime(store, wall) as rt:
        await asyncio.sleep(0.1)
        assert ([("schedule-1", due)], ()) == (fired(rt, "s"), rt.sessions())


async def test_session_that_nobody_has_opened_comes_due_later(store):
    """It is woken at its time and not before."""
    async with runtime(store) as rt:
        await rt.create("s")
        due = time.time_ns() // 1_000_000 + 700
        await put(rt, "s", once(1, due))
    async with runtime(store) as rt:
        assert [] == fired(rt, "s")
        await until(lambda: fired(rt, "s"))
        assert time.time_ns() // 1_000_000 >= due


async def test_session_that_was_stopped(store, monkeypatch):
    """It is in the store and not open: what comes due wakes it like any other."""
    monkeypatch.setattr(calendars, "SEGMENT_MAX_S", 0.2)
    async with runtime(store) as rt:
        s = await rt.create("s")
        await put(rt, "s", once(1, time.time_ns() // 1_000_000 + 300))
        await s.stop()
        await until(lambda: fired(rt, "s"))


async def test_passivated_session(store):
    """A session that left memory comes back for what is due, and leaves again."""
    config = RuntimeConfig(runtime=Bounds(idle_evict_s=0.05))
    async with runtime(store, config=config) as rt:
        await rt.create("s")
        now = time.time_ns() // 1_000_000
        await put(rt, "s", once(1, now + 500), once(2, now + 900))
        state = rt._sessions.registry.state
        await until(lambda: state("s") == "cold")
        await until(lambda: len(fired(rt, "s")) == 1)
        await until(lambda: state("s") == "cold")
        await until(lambda: len(fired(rt, "s")) == 2)


async def test_many_sessions_due_at_once(store):
    """Three hundred sessions with three reminders each: all are told, and few are opened side by side."""
    wall = FakeWall()
    due = wall.now_ms() + HOUR_MS
    async with runtime(store, wall) as rt:
        for n in range(300):
            await rt.create(f"s{n}")
            await put(rt, f"s{n}", *(once(k, due + k) for k in range(1, 4)))
    wall.advance(7200)
    async with runtime(store, wall) as rt:
        opening, most = 0, 0
        calendar = rt._calendar
        plain = calendar._open

        async def counted(session):
            nonlocal opening, most
            opening += 1
            most = max(most, opening)
            try:
                return await plain(session)
            finally:
                opening -= 1

        calendar._open = counted
        waiting = [f"s{n}" for n in range(300)]

        def all_told():  # asks again for those alone that were not told yet
            while waiting and len(fired(rt, waiting[-1])) == 3:
                waiting.pop()
            return not waiting

        await until(all_told, 50)
        assert {3} == {len(fired(rt, f"s{n}")) for n in range(300)}
        assert most <= calendars.LOADS_MAX


async def test_session_that_cannot_be_opened(store, monkeypatch, caplog):
    """A damaged log is told of a few times and left; every other session is woken."""
    monkeypatch.setattr(calendars, "SEGMENT_MAX_S", 0.05)
    wall = FakeWall()
    due = wall.now_ms() + HOUR_MS
    async with runtime(store, wall) as rt:
        for name in ("a", "bad", "c"):
            await rt.create(name)
            await put(rt, name, once(1, due))
        rt.store.append("bad", [Record(2, due, None, b'{"type":"nobody_knows"}')])
        rt.actor("bad").log.seq += 1
    wall.advance(7200)
    with caplog.at_level(logging.ERROR, logger="callboard"):
        async with runtime(store, wall) as rt:
            await until(lambda: fired(rt, "a") and fired(rt, "c") if "c" in rt._sessions.registry else False)
            await asyncio.sleep(0.6)
            said = [one for one in caplog.records if "cannot be opened" in one.message and "bad" in one.message]
            assert calendars.TRIES_MAX == len(said)


async def test_corrupt_log_is_told_of_without_anybody_opening_it(store, caplog):
    """Reminders that cannot be trusted are news at the start of a program; the session itself works on."""
    wall = FakeWall()
    async with runtime(store, wall) as rt:
        await rt.create("s")
        await put(rt, "s", ReminderDeleted("schedule-4"))
    caplog.clear()
    async with runtime(store, wall) as rt:
        await until(lambda: any("corrupt_schedule_log" in str(one.exc_info) for one in caplog.records))
        s = await rt.open("s")
        assert "ok" == (await s.run("go")).last_message
        assert "ReminderDeleted" in s.state()["schedule"]["flaw"]


async def test_moved_by_somebody_else_in_time(store):
    """The index is looked at once more before a session is opened: who else has it may have been there."""
    wall = FakeWall()
    due = wall.now_ms() + HOUR_MS
    async with runtime(store, wall) as rt:
        await rt.create("s")
        await put(rt, "s", once(1, due))
    async with runtime(store, wall) as rt:
        rt._calendar.rang("s")
        rt._calendar.rang("nobody")
        await asyncio.sleep(0.1)
        assert () == rt.sessions()


async def test_runtime_without_anything_that_comes_due():
    """Where no plugin has an alarm the index is not read at all."""

    class Unread(MemoryStore):
        def due(self, upto_ms, after, limit):
            raise AssertionError("it was read")

    plain = tuple(plugin for plugin in PLUGINS if not plugin.alarms)
    async with open_runtime(model=ScriptedModel(), store=Unread(), plugins=plain) as rt:
        await (await rt.create("s")).run("go")

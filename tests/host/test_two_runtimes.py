"""Two runtimes on one store: each session is run by one of them, and goes over when that ends or is not heard of."""

import asyncio
import contextlib
import logging
import time
from typing import Any

import pytest

from callboard.actors import Fenced, LogError, MessageQueued, Reply, UsageError
from callboard.actors.books import TURN
from callboard.actors.facts import Reminder, ReminderFired, ReminderSet
from callboard.actors.store import Due, Record
from callboard.actors.testing import ScriptedModel
from callboard.plugins.schedule import SCHEDULE_PLUGIN
from callboard.runtime import DEFAULT, RuntimeConfig, open_runtime
from callboard.runtime import calendar as calendars
from callboard.runtime.settings import Bounds
from callboard.runtime.stores import SqliteStore

from .hosted import echo, envelopes, events, gauge, until
from .stored import claimed, opened, schema_of, stopped
from .terminal import finished, start

LEASE_S = 0.15
LAPSE_S = 0.25
FENCED = 'callboard_store_errors_total{kind="fenced"}'
PLUGINS = tuple({plugin.name: plugin for plugin in (*DEFAULT, SCHEDULE_PLUGIN)}.values())


@pytest.fixture(params=["full", "normal", "postgres"])
def url(request, tmp_path):
    """A file in each durability, and a PostgreSQL database, with a short lease."""
    if request.param == "postgres":
        return schema_of(request.getfixturevalue("postgres"), f"&lease={LEASE_S}")
    return f"sqlite:///{tmp_path / 'x.db'}?lease={LEASE_S}&durability={request.param}"


@contextlib.asynccontextmanager
async def pair(url, **options):
    """Two runtimes on one store."""
    first = open_runtime(model=echo(), store=url, plugins=PLUGINS, **options)
    async with first as one, open_runtime(model=echo(), store=url, plugins=PLUGINS) as two:
        yield one, two


async def taken(one, two, session="s"):
    """The second runtime opens a session while the first one's store is not heard of."""
    with stopped(one.store):
        await asyncio.sleep(LAPSE_S)
        return await two.open(session)


async def soon_open(rt, session="s"):
    """Open it once it is let go, which is a moment after its end."""
    for _ in range(100):
        with contextlib.suppress(Fenced):
            return await rt.open(session)
        await asyncio.sleep(0.01)
    return await rt.open(session)


async def remind(rt, session, in_s):
    """Set a reminder."""
    log, due_ms = rt.actor(session).log, time.time_ns() // 1_000_000 + int(in_s * 1000)
    log.append(ReminderSet(Reminder("schedule-1", "after", "look", "1", due_ms, 1)))
    await durable(log)


async def durable(log):
    """Wait for the disk."""
    done = asyncio.get_running_loop().create_future()
    log.when_durable(done.set_result)
    assert await done is None


def texts(rt, session="s"):
    """What was said to it, in order."""
    return [event.text for event in events(rt, session) if isinstance(event, MessageQueued)]


def index(rt):
    """What comes due, by the store's index."""
    return rt.store.due(2**62, (-1, ""), 10)


def fired(rt, session="s"):
    """How many reminders the log has that were fired."""
    return sum(isinstance(event, ReminderFired) for event in events(rt, session))


async def test_a_session_is_run_by_one_of_two(url):
    """Opening what another runtime runs is `Fenced` in one sentence, which changes nothing for the one that runs it."""
    async with pair(url) as (one, two):
        s = await one.create("s")
        for _ in range(3):
            with pytest.raises(Fenced, match="session 's' is held by another program"):
                await two.open("s")
            assert "re: on" == (await s.run("on")).last_message
        with pytest.raises(UsageError, match="exists already"):
            await two.create("s")
        assert () == two.sessions()
        assert 0.0 == gauge(two.metrics_text(), FENCED)


async def test_a_session_that_stops_goes_over(url):
    """Stopped in one runtime it is opened in the other, and back again."""
    async with pair(url) as (one, two):
        await (await one.create("s")).run("first")
        for rt, other, text in ((one, two, "second"), (two, one, "third"), (one, two, "fourth")):
            await (await rt.open("s")).stop()
            assert f"re: {text}" == (await (await soon_open(other)).run(text)).last_message


async def test_a_closed_runtime_lets_go_at_once(url):
    """What a runtime had open when it closed, live or passivated, can be opened by another one right away."""
    quick = RuntimeConfig(runtime=Bounds(idle_evict_s=0.02))
    async with open_runtime(model=echo(), store=url) as two:
        async with open_runtime(quick, model=echo(), store=url) as one:
            for name in ("a", "b"):
                await (await one.create(name)).run("on")
            await until(lambda: one._sessions.registry.state("a") == "cold")
            with pytest.raises(Fenced):  # a passivated session stays where it is
                await two.open("a")
        for name in ("a", "b"):
            assert "re: on" == (await (await two.open(name)).run("on")).last_message


async def test_an_idle_session_that_was_taken_over_ends(url, caplog):
    """Its next message is answered `Fenced`, its readers end with what is durable, it is counted, and said once."""
    async with pair(url) as (one, two):
        s = await one.create("s")
        await s.run("first")
        reading = asyncio.ensure_future(collected(one.read("s")))
        last = one.actor("s").log.seq - 1
        other = await taken(one, two)
        with pytest.raises(Fenced, match="taken over"):
            await s.submit("lost")
        await until(lambda: "s" not in one._sessions.registry)
        assert list(range(last + 1)) == envelopes(await asyncio.wait_for(reading, 5))
        assert 1.0 == gauge(one.metrics_text(), FENCED)
        assert "re: on" == (await other.run("on")).last_message
        assert "lost" not in str(events(two, "s"))
        with pytest.raises(Fenced, match="held by another"):
            await one.open("s")
        await other.stop()
        again = await soon_open(one)
        assert "re: back" == (await again.run("back")).last_message
        assert ["first", "on", "back"] == texts(one)
    assert 1 == caplog.text.count("session s ends")
    assert "restart" not in caplog.text


async def collected(reading):
    """All items of a reading."""
    return [item async for item in reading]


async def test_who_waits_for_a_turn_hears_that_it_was_taken_over(url):
    """Whoever waits, for a turn, for a message's or for rest, is answered when the session is lost in the middle."""
    slow = ScriptedModel(lambda prompt: Reply("late"), delay_s=1.0)
    async with open_runtime(model=slow, store=url) as one, open_runtime(model=echo(), store=url) as two:
        s = await one.create("s")
        running = asyncio.ensure_future(s.run("go"))
        await until(lambda: one.actor("s").log[TURN].step == 1)
        await durable(one.actor("s").log)
        waiting = asyncio.ensure_future(s.wait(1))
        resting = asyncio.ensure_future(s.wait_idle())
        other = await taken(one, two)
        assert "interrupted" == (await asyncio.wait_for(other.wait(1), 5)).reason
        for asked in (running, waiting):
            with pytest.raises(Fenced, match="taken over"):
                await asyncio.wait_for(asked, 5)
        await asyncio.wait_for(resting, 5)
        assert 1 == str(events(two, "s")).count("TurnEnded(")


async def test_a_passivated_session_that_was_taken_over(url):
    """A message to it is answered `Fenced`, and the session is open here no more."""
    quick = RuntimeConfig(runtime=Bounds(idle_evict_s=0.02))
    async with pair(url, config=quick) as (one, two):
        s = await one.create("s")
        await s.run("first")
        await until(lambda: one._sessions.registry.state("s") == "cold")
        other = await taken(one, two)
        await other.run("second")
        with pytest.raises(Fenced):
            await asyncio.wait_for(s.run("lost"), 5)
        await until(lambda: "s" not in one._sessions.registry)
        assert 1.0 == gauge(one.metrics_text(), FENCED)
        assert "re: third" == (await other.run("third")).last_message
        assert "lost" not in str(events(two, "s"))


@pytest.mark.parametrize("cold", [False, True])
async def test_a_reminder_of_a_session_that_was_taken_over_fires_once(url, cold):
    """It rings in both runtimes, and only the owner's is on the log and seen by readers; the other session ends."""
    quick = RuntimeConfig(runtime=Bounds(idle_evict_s=0.02 if cold else None))
    async with pair(url, config=quick) as (one, two):
        await one.create("s")
        await remind(one, "s", 2 * LAPSE_S)
        reading = asyncio.ensure_future(collected(one.read("s")))
        if cold:
            await until(lambda: one._sessions.registry.state("s") == "cold")
        other = await taken(one, two)
        await until(lambda: fired(two))
        await until(lambda: "s" not in one._sessions.registry)
        await other.wait_idle()
        await asyncio.sleep(0.1)
        assert 1 == fired(two)
        seen = [type(item.event).__name__ for item in await asyncio.wait_for(reading, 5)]
        assert "ReminderFired" not in seen
        assert 1 == str(events(two, "s")).count("TurnStarted(")


async def test_the_calendar_leaves_what_another_runtime_has(url, monkeypatch, caplog):
    """A session that is due and run elsewhere is looked at again in silence, and fires once its owner is gone."""
    monkeypatch.setattr(calendars, "SEGMENT_MAX_S", 0.03)
    monkeypatch.setattr(calendars, "GRACE_MS", 0)
    caplog.set_level(logging.INFO, "callboard")
    one = await open_runtime(model=echo(), store=url, plugins=()).start()  # it has no plugin that would fire
    await one.create("s")
    async with open_runtime(model=echo(), store=url, plugins=PLUGINS) as two:
        codec = two._ground.stage.codec
        due = ReminderSet(Reminder("schedule-1", "after", "look", "1", 5, 1))
        log = one.actor("s").log
        one.store.append("s", [Record(log.seq, 1, None, codec.encode(due))], None, Due(5))
        log.seq += 1
        one.store.sync(lambda error: None)
        await until(lambda: index(two) == [(5, "s")])
        await asyncio.sleep(0.3)
        assert (0, ()) == (fired(two), two.sessions())
        await one.close()
        await until(lambda: fired(two))
        assert "cannot be opened" not in caplog.text
        await (await two.open("s")).wait_idle()
        assert 1 == fired(two)


async def test_a_session_that_cannot_be_opened_is_let_go(url):
    """A log that is damaged is `LogError` in both runtimes, one after the other, and not held by the first."""
    async with open_runtime(model=echo(), store=url) as maker:
        await maker.create("s")
        maker.store.append("s", [Record(1, 1, None, b'{"type":"nobody_knows"}')])
    async with pair(url) as (one, two):
        for rt in (one, two, one):
            for _ in range(100):
                with pytest.raises(LogError) as raised:
                    await rt.open("s")
                if not isinstance(raised.value, Fenced):
                    break
                await asyncio.sleep(0.01)
            assert "nobody_knows" in str(raised.value)


async def test_two_runtimes_make_one_fork(url):
    """Of two forks with one id, made side by side, one comes to be and belongs to who made it."""
    async with pair(url) as (one, two):
        s = await one.create("s")
        await s.run("first")
        forked = await asyncio.gather(
            s.fork(session_id="f"), two._sessions.forks.fork("s", None, "f"), return_exceptions=True
        )
        made = [not isinstance(result, Exception) for result in forked]
        assert 1 == sum(made), forked
        assert all(isinstance(result, Fenced | UsageError) for result in forked if isinstance(result, Exception))
        winner, loser = (one, two) if made[0] else (two, one)
        assert "re: on" == (await (await winner.open("f")).run("on")).last_message
        with pytest.raises(Fenced):
            await loser.open("f")


async def test_a_rewind_by_who_lost_the_session_leaves_nothing(url):
    """It is `Fenced` before anything is copied, and the one who has the session now can rewind it."""
    async with pair(url) as (one, two):
        lost = await one.create("s")
        await lost.run("first")
        s = await taken(one, two)
        await s.run("second")
        with pytest.raises(Fenced, match="session 's' is held by another program"):
            await lost.rewind(0)
        assert ["s"] == [header.id for header in await asyncio.to_thread(two.store.headers)]
        assert 0 == (await s.rewind(0)).at
        assert 1 == (await s.run("anew")).turn


async def test_two_runtimes_create_one_session(url):
    """Of two that create the same id at once one has it, and the other is told so."""
    async with pair(url) as (one, two):
        made = await asyncio.gather(
            *(rt.create(f"s{n}") for n in range(8) for rt in (one, two)), return_exceptions=True
        )
        for n in range(8):
            both = made[2 * n : 2 * n + 2]
            refused = [result for result in both if isinstance(result, Exception)]
            assert 1 == len(refused)
            assert isinstance(refused[0], Fenced | UsageError)
            winner: Any = next(result for result in both if not isinstance(result, Exception))
            assert "re: on" == (await winner.run("on")).last_message


async def test_many_sessions_stay_where_they_are(url):
    """Fifty sessions in each of two runtimes run side by side for many leases, none is lost, none is fenced."""
    async with pair(url) as (one, two):
        sessions = [await rt.create(f"{name}{n}") for n in range(50) for name, rt in (("a", one), ("b", two))]
        for round_ in range(4):
            ended = await asyncio.gather(*(session.run(f"round {round_}") for session in sessions))
            assert {f"re: round {round_}"} == {one.last_message for one in ended}
            await asyncio.sleep(LEASE_S)
        assert (0.0, 0.0) == (gauge(one.metrics_text(), FENCED), gauge(two.metrics_text(), FENCED))


async def test_the_command_says_who_has_the_session(tmp_path):
    """`run --session` of a session that another program runs is one line and exit code 2; `log` only reads."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    async with open_runtime(model=echo(), store=url) as rt:
        await (await rt.create("s")).run("first")
        run = start(tmp_path, "run", "more", "--session", "s", "--model", "scripted:demo", "--store", url)
        done = await asyncio.to_thread(finished, run)
        assert (2, "", 1) == (done.returncode, done.stdout, done.stderr.count("\n"))
        assert "callboard: session 's' is held by another program (process " in done.stderr
        for command in (("list",), ("show", "s")):
            done = await asyncio.to_thread(finished, start(tmp_path, "log", *command, "--store", url))
            assert (0, "") == (done.returncode, done.stderr)
            assert "first" in done.stdout or command == ("list",)
        assert "re: second" == (await (await rt.open("s")).run("second")).last_message


async def test_who_only_reads_owns_nothing(tmp_path):
    """A runtime that looks at a store claims nothing: another one opens each session beside it."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    async with open_runtime(model=echo(), store=url) as maker:
        await (await maker.create("s")).run("first")
    async with open_runtime(model=echo(), store=url) as one, open_runtime(model=echo(), store=url) as two:
        assert ["s"] == [header.id for header in await one.stored()]
        assert len(await collected(one.read("s"))) > 3
        with opened(SqliteStore(tmp_path / "x.db")) as third:
            assert await claimed(third, "s") is None
            third.release("s")
        assert "re: on" == (await (await soon_open(two)).run("on")).last_message

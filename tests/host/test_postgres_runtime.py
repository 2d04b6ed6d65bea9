"""A whole runtime on PostgreSQL: sessions, interrupts, subagents, reminders, restarts, and the command line."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from callboard.actors import Call, Fenced, Reply, TurnEnded, tool
from callboard.actors.facts import Reminder, ReminderFired, ReminderSet
from callboard.actors.testing import ScriptedModel
from callboard.plugins.schedule import SCHEDULE_PLUGIN
from callboard.runtime import DEFAULT, RuntimeConfig, open_runtime
from callboard.runtime.settings import StoreConfig

from .hosted import echo, events, until
from .parents import Parent, spawn, wait
from .stored import schema_of
from .terminal import cli

PLUGINS = tuple({plugin.name: plugin for plugin in (*DEFAULT, SCHEDULE_PLUGIN)}.values())
PLAN = {"plan": [{"step": "buy flour", "status": "completed"}, {"step": "bake", "status": "pending"}]}


@pytest.fixture
def url(postgres):
    """The url of a store that nobody used before."""
    return schema_of(postgres)


async def test_a_session_goes_on_in_another_runtime(url):
    """Plan, turns, title and every event of a session are there for the runtime that opens it next."""
    model = ScriptedModel([Reply("", [Call("update_plan", PLAN)]), Reply("flour is there")])
    async with open_runtime(model=model, store=url) as rt:
        session = await rt.create("s", title="bread")
        await session.run("bake a bread")
        before = events(rt, "s")
    async with open_runtime(model=echo(), store=url) as rt:
        session = await rt.open("s")
        assert PLAN["plan"] == [
            {"step": one["step"], "status": one["status"]} for one in session.state()["plan"]["plan"]
        ]
        ended = await session.run("go on")
        assert (2, "completed") == (ended.turn, ended.reason)
        assert before == events(rt, "s")[: len(before)]
        assert ["bread"] == [one.title for one in await rt.stored()]


async def test_an_interrupt_reaches_a_tool(url):
    """A turn that is interrupted in a tool ends at once, and its end is durable."""
    began = []

    @tool(effect="none")
    async def hang() -> str:
        """Takes long."""
        began.append("hang")
        await trio.sleep(60)
        return "late"

    model = ScriptedModel([Reply("", [Call("hang")]), Reply("after")])
    async with open_runtime(model=model, tools=[hang], store=url) as rt:
        session = await rt.create("s")
        running = asyncio.create_task(session.run("go"))
        await until(lambda: began)
        await session.interrupt()
        assert ("aborted", "interrupted") == ((await running).reason, (await running).cause)
        assert 1 == len(rt.store.last("s", ["turn_ended"], 10**9, 1))


async def test_agents_and_what_they_did_are_there_again(url):
    """A parent's agents end, are told of, and stand in the store below their parent."""
    play = Parent(spawn("a", "b"), wait(), child=lambda prompt: Reply("child done"))
    async with open_runtime(model=ScriptedModel(play), store=url) as rt:
        session = await rt.create("p")
        ended = await session.run("go")
        assert "completed" == ended.reason
    async with open_runtime(model=echo(), store=url) as rt:
        session = await rt.open("p")
        assert {"p", "p.a", "p.b"} == {one.id for one in await rt.stored()}
        assert {"p"} == {one.parent for one in await rt.stored() if one.id != "p"}
        assert "completed" == (await session.run("again")).reason


async def test_a_reminder_fires_once_in_the_runtime_that_is_there(url):
    """A reminder whose program ended fires in the next one, which nobody asked to open the session."""
    async with open_runtime(model=echo(), store=url, plugins=PLUGINS) as rt:
        await rt.create("s")
        log, due_ms = rt.actor("s").log, time.time_ns() // 1_000_000 + 300
        log.append(ReminderSet(Reminder("schedule-1", "after", "look", "1", due_ms, 1)))
        done = asyncio.get_running_loop().create_future()
        log.when_durable(done.set_result)
        assert await done is None
    async with open_runtime(model=echo(), store=url, plugins=PLUGINS) as rt:
        await until(lambda: rt.store.last("s", ["turn_ended"], 10**9, 1), 10)
        fired = [one for one in events(rt, "s") if isinstance(one, ReminderFired)]
        assert ["schedule-1"] == [one.id for one in fired]


async def test_a_session_has_one_runtime_at_a_time(url):
    """What one runtime runs another cannot open, until the first one has let it go."""
    async with open_runtime(model=echo(), store=url) as two:
        async with open_runtime(model=echo(), store=url) as one:
            session = await one.create("s")
            await session.run("first")
            with pytest.raises(Fenced, match="held by another program"):
                await two.open("s")
        session = await two.open("s")
        assert 2 == (await session.run("second")).turn


async def test_a_restart_of_the_server_in_a_turn_is_survived(own_postgres):
    """A server that is ended as in a crash and started again while turns run costs them a moment."""
    url = schema_of(own_postgres)
    model = ScriptedModel(lambda prompt: Reply("re"), delay_s=0.01)
    async with open_runtime(model=model, store=url) as rt:
        sessions = [await rt.create(f"s{n}") for n in range(8)]

        async def live(session):
            return [(await session.run(f"text {n}")).reason for n in range(12)]

        lives = [asyncio.create_task(live(session)) for session in sessions]
        await asyncio.sleep(0.1)
        await asyncio.to_thread(own_postgres.kill)
        await asyncio.to_thread(own_postgres.start)
        assert [["completed"] * 12] * 8 == await asyncio.gather(*lives)
    async with open_runtime(model=echo(), store=url) as rt:
        for n in range(8):
            await rt.open(f"s{n}")
            ended = [one.turn for one in events(rt, f"s{n}") if isinstance(one, TurnEnded)]
            assert list(range(1, 13)) == ended


async def test_durability_of_the_configuration_counts_where_the_url_is_silent(url):
    """`[store] durability` reaches the store, and a url that says otherwise beats it."""
    config = RuntimeConfig(store=StoreConfig(durability="normal"))
    found = []
    for one in (url, f"{url}&durability=full"):
        async with open_runtime(config, model=echo(), store=one) as rt:
            store: Any = rt.store
            found.append(store._full)
    assert [False, True] == found


def test_the_command_line_runs_lists_and_shows(url, tmp_path):
    """callboard run, log list and log show take a PostgreSQL url, and looking before the first run makes nothing."""
    assert "no sessions yet" in cli(tmp_path, "log", "list", "--store", url).stdout
    lost = cli(tmp_path, "log", "show", "s", "--store", url)
    assert (2, 1) == (lost.returncode, lost.stderr.count("\n"))
    done = cli(tmp_path, "run", "Tell me about it", "--model", "scripted:demo", "--store", url, "--session", "s")
    assert (0, "") == (done.returncode, done.stderr)
    listed = cli(tmp_path, "log", "list", "--store", url).stdout.splitlines()
    assert ["id", "title", "status", "events", "updated", "path"] == listed[0].split()
    assert any(row.startswith("s ") for row in listed)
    assert any(row.startswith("  s.words") for row in listed)
    assert "› Tell me about it" in cli(tmp_path, "log", "show", "s", "--store", url).stdout


def test_the_command_line_tells_no_secret(postgres, tmp_path):
    """A wrong password, and a url that cannot be read, are one line each, without the password."""
    for wrong in (postgres.url(password="hush-hush"), "postgresql://me:hush-hush%zz@db/x", "postgre://me:hush-hush@db"):
        for command in (("run", "x", "--model", "scripted:demo"), ("log", "list")):
            done = cli(tmp_path, *command, "--store", wrong)
            assert 0 != done.returncode
            assert 1 == done.stderr.count("\n"), done.stderr
            assert "hush-hush" not in done.stderr + done.stdout


def test_the_example_runs(url):
    """examples/postgres.py, given a database, shows one session in two runtimes."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "error", str(root / "examples" / "postgres.py")],
        env={**os.environ, "CALLBOARD_POSTGRES_URL": url, "PYTHONPATH": str(root / ".dev")},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    says = "From here.\nNot there yet: it is held by another.\nFrom there.\n"
    assert (0, "", says) == (done.returncode, done.stderr, done.stdout)

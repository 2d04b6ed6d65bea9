"""How a runtime ends: within its time, whatever its tools do; by Ctrl-C, by SIGTERM, and with its interpreter."""

import asyncio
import logging
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from callboard.actors import Fenced, LogError, SessionClosed
from callboard.actors.books import TURN
from callboard.actors.memory import MemoryStore
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.settings import Bounds
from callboard.runtime.stores import SqliteStore

from .fair import Since
from .hosted import StallingStore, calls, echo, events, slow, stubborn, until
from .stored import stopped

SHUTDOWN_S = 1.0
QUICK = RuntimeConfig(runtime=Bounds(shutdown_s=SHUTDOWN_S))
SLACK_S = 1.0  # for a busy machine


@pytest.mark.parametrize("kind", ["deaf", "sleeper", "burner", "shielded"])
async def test_leaving_with_a_stubborn_tool(kind, caplog):
    """Leaving is bounded with a tool that does not end, and what still lives is named in `left` and the log."""
    with stubborn() as tools, caplog.at_level(logging.WARNING, "callboard"):
        rt = await open_runtime(QUICK, model=calls(kind), tools=tools.tools.values()).start()
        s = await rt.create()
        await s.submit("go")
        await until(lambda: tools.began)
        began = Since()
        await rt.close()
        took_s = began.own_s()
        assert took_s < SHUTDOWN_S + SLACK_S
        if kind == "deaf":  # its code never runs again, so it is not left
            assert ((), ("deaf",)) == (rt.left, rt.parked)
        else:
            assert [kind] == [name.split()[0] for name in rt.left]
            assert kind in caplog.text
        closing = [event for event in events(rt, s.id) if type(event).__name__ in ("ToolReturned", "TurnEnded")]
        assert 2 == len(closing)
        tools.release()
        await asyncio.sleep(0.1)


async def test_leaving_with_all_of_them_many_times():
    """Four sessions, each with all four kinds, do not make leaving longer."""
    with stubborn() as tools:
        rt = await open_runtime(QUICK, model=calls(*tools.tools), tools=tools.tools.values()).start()
        sessions = [await rt.create() for _ in range(4)]
        for s in sessions:
            await s.submit("go")
        await until(lambda: len(tools.began) == 16, 10)
        began = Since()
        await rt.close()
        assert began.own_s() < SHUTDOWN_S + 2 * SLACK_S
        assert {"sleeper (thread)", "burner (thread)", "shielded (asyncio)"} <= set(rt.left)
        tools.release()
        await asyncio.sleep(0.2)


async def test_leaving_with_a_store_that_stalls():
    """A store that confirms nothing does not hold the runtime for longer than its time."""
    store = StallingStore()
    rt = await open_runtime(QUICK, model=slow(), store=store).start()
    s = await rt.create()
    await s.submit("go")
    await until(lambda: s.state()["phase"] == "running")
    store.stalled = True
    waiting = asyncio.create_task(s.run("more"))
    began = Since()
    await rt.close()
    assert began.own_s() < SHUTDOWN_S + SLACK_S
    told = await asyncio.wait_for(asyncio.gather(waiting, return_exceptions=True), 1)
    assert isinstance(told[0], LogError | SessionClosed)


async def test_leaving_with_many_sessions():
    """A thousand idle and two hundred busy sessions end in a moment, each turn closed on its log."""
    patient = RuntimeConfig(runtime=Bounds(shutdown_s=30))  # on a busy machine this may take more than a moment
    rt = await open_runtime(patient, model=slow(), store=MemoryStore()).start()
    await asyncio.gather(*(rt.create() for _ in range(1000)))
    busy = await asyncio.gather(*(rt.create() for _ in range(200)))
    await asyncio.gather(*(s.submit("go") for s in busy))
    began = Since()
    await rt.close()
    assert began.own_s() < SHUTDOWN_S + SLACK_S
    assert () == rt.left
    assert {"TurnEnded"} == {type(events(rt, s.id)[-1]).__name__ for s in busy}


async def test_next_runtime_after_a_hard_end():
    """After a runtime left something behind, another one in the same loop works."""
    with stubborn() as tools:
        rt = await open_runtime(QUICK, model=calls("sleeper"), tools=tools.tools.values()).start()
        s = await rt.create()
        await s.submit("go")
        await until(lambda: tools.began)
        await rt.close()
        async with open_runtime(model=echo()) as other:
            assert "re: hi" == (await (await other.create()).run("hi")).last_message


# -- whole programs ----------------------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, contextlib, os, signal, sys, threading, time
import trio
from callboard.actors import Call, Reply, tool
from callboard.actors.testing import ScriptedModel
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.settings import Bounds

def say(text):
    os.write(1, (text + "\\n").encode())

@tool(effect="none")
async def lasting() -> str:
    say("began")
    try:
        await trio.sleep(60)
    finally:
        say("tool cleaned up")
    return "late"

@tool(effect="none")
async def deaf() -> str:
    say("began")
    while True:
        try:
            await trio.sleep(60)
        except BaseException:
            continue

@tool(effect="none")
async def shielding() -> str:
    say("began")
    while True:
        try:
            with trio.CancelScope(shield=True):
                await trio.sleep(60)
        except BaseException:
            continue

@tool(effect="none")
def sleeper() -> str:
    say("began")
    time.sleep(60)
    return "late"

@tool(effect="none")
def burner() -> str:
    say("began")
    while True:
        pass

TOOLS = [lasting, deaf, shielding, sleeper, burner]
CONFIG = RuntimeConfig(runtime=Bounds(shutdown_s=1.0))

async def main(kind, store):
    model = ScriptedModel(lambda prompt: Reply("", [Call(kind)]) if prompt.step == 1 else Reply("done"))
    async with open_runtime(CONFIG, model=model, tools=TOOLS, store=store) as rt:
        try:
            s = await rt.create("s")
            END
        finally:
            say("main cleaned up")
    say("closed")

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""
WAIT = 'await s.run("go")'
TERM = """task = asyncio.current_task()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            await s.run("go")"""
LEAVE = 'await s.submit("go"); await asyncio.sleep(0.2)'


def program(end: str) -> list[str]:
    """A program that ends so, as a command line."""
    return [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(PROGRAM).replace("END", end)]


def run_until(command: list[str], number: int | None) -> tuple[int, list[str], str, float]:
    """Start it, send the signal once its tool began: the code, what it said, its errors, how long the end took."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        try:
            assert "began\n" == running.stdout.readline()
            began_s = time.monotonic()
            if number is not None:
                running.send_signal(number)
            said, errors = running.communicate(timeout=20)
        finally:
            running.kill()
    return running.returncode, said.split("\n")[:-1], errors, time.monotonic() - began_s


async def ends_on_the_log(path) -> list[str]:
    """What the store of a program holds at the end of its session."""
    async with open_runtime(store=f"sqlite:///{path}") as rt:
        await rt.open("s")
        return [type(event).__name__ for event in events(rt, "s")]


@pytest.mark.parametrize(("number", "end"), [(signal.SIGINT, WAIT), (signal.SIGTERM, TERM)], ids=["ctrl-c", "sigterm"])
async def test_signal_ends_a_program_in_order(number, end, tmp_path):
    """After a signal every `finally` has run, the turn is closed, and the store has all of it."""
    path = tmp_path / "x.db"
    code, said, errors, took_s = run_until([*program(end), "lasting", f"sqlite:///{path}"], number)
    assert ["tool cleaned up", "main cleaned up"] == sorted(said, reverse=True), errors
    assert took_s < 5
    assert 0 != code
    assert ("KeyboardInterrupt" if number == signal.SIGINT else "CancelledError") in errors
    names = await ends_on_the_log(path)
    assert (1, 1) == (names.count("TurnEnded"), names.count("ToolReturned"))
    assert "AbortRequested" in names


@pytest.mark.parametrize("kind", ["deaf", "shielding", "sleeper", "burner"])
async def test_program_with_a_stubborn_tool_ends_normally(kind, tmp_path):
    """A program whose tool never ends leaves its runtime in time and ends with its interpreter, with code 0."""
    path = tmp_path / "x.db"
    code, said, errors, took_s = run_until([*program(LEAVE), kind, f"sqlite:///{path}"], None)
    assert (0, ["main cleaned up", "closed"]) == (code, said), errors
    assert took_s < 6
    names = await ends_on_the_log(path)
    assert (1, 1) == (names.count("TurnEnded"), names.count("ToolReturned"))


def test_program_that_never_closes_its_runtime():
    """A program that forgets to close still ends, and its tools clean up."""
    end = "rt2 = await open_runtime(CONFIG, model=model, tools=TOOLS).start(); s2 = await rt2.create(); "
    end += 'await s2.submit("go"); await asyncio.sleep(0.2)'
    code, said, errors, took_s = run_until([*program(end), "lasting", "memory"], None)
    assert (0, ["closed", "main cleaned up", "tool cleaned up"]) == (code, sorted(said)), errors
    assert took_s < 6


async def test_a_session_that_another_runtime_took_over_ends(tmp_path, caplog):
    """The store refuses the end of a turn for good: the session ends, who waits gets `Fenced`, it is said once."""
    url = f"sqlite:///{tmp_path / 'x.db'}?lease=0.1"
    async with open_runtime(QUICK, model=slow(), store=url) as one, open_runtime(QUICK, model=echo(), store=url) as two:
        s = await one.create("s")
        running, log = asyncio.ensure_future(s.run("go")), one.actor("s").log
        await until(lambda: log[TURN].step == 1)
        durable = asyncio.get_running_loop().create_future()
        log.when_durable(durable.set_result)
        assert None is await durable
        with stopped(one.store):
            await asyncio.sleep(0.2)
            other = await two.open("s")
        assert "re: on" == (await other.run("on")).last_message
        await s.interrupt()
        with pytest.raises(Fenced, match="taken over"):
            await asyncio.wait_for(running, 5)
        with pytest.raises(SessionClosed, match="open it again"):
            s.state()
    assert "is not durable" not in caplog.text


@pytest.mark.parametrize("turns", [1, 4, 8, 16])
async def test_a_start_that_is_cut_off_leaves_no_store_open(turns, tmp_path, monkeypatch):
    """A cancellation while a thread opens the file is raised once that is over, and the file is closed again."""
    path, made = tmp_path / "x.db", []
    store = SqliteStore(path)
    opens, closes = store.open, store.close

    def slow_open(run_soon):
        time.sleep(0.05)
        opens(run_soon)
        made.append("opened")

    def slow_close():
        closes()
        made.append("closed")

    monkeypatch.setattr(store, "open", slow_open)
    monkeypatch.setattr(store, "close", slow_close)
    start = asyncio.ensure_future(open_runtime(model=echo(), store=store).start())
    for _ in range(turns):
        await asyncio.sleep(0)
    start.cancel()
    await asyncio.sleep(0.01)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    await asyncio.sleep(0.15)  # whatever a thread still does is done by then
    assert made in ([], ["opened", "closed"])
    async with open_runtime(model=echo(), store=SqliteStore(path)) as rt:
        assert "re: on" == (await (await rt.create()).run("on")).last_message

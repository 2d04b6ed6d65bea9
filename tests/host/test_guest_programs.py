"""Whole programs that are interrupted, ended or broken from outside: every `finally` runs, everything is resolved."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

LOOPS = ("asyncio", "uvloop")

PRELUDE = """
import asyncio, contextlib, os, signal, sys, threading, time
import trio
import uvloop
from callboard.actors.errors import UsageError
from callboard.runtime.guest import Guest
run = {"asyncio": asyncio.run, "uvloop": uvloop.run}[sys.argv[1]]
def say(text): print(text, flush=True)
async def actor():
    try:
        await trio.sleep_forever()
    finally:
        with trio.move_on_after(5, shield=True): await trio.sleep(0.02)
        say("finally")
async def stay(guest):
    guest.spawn(actor, lambda outcome: say(outcome))
    await asyncio.sleep(0.02)
    say("ready")
    await asyncio.sleep(60)
async def leaving():
    guest = await Guest.enter()
    try: await stay(guest)
    finally: say(await guest.leave())
async def careless():
    await stay(await Guest.enter())
"""


def run_program(text, loop="asyncio", send=None):
    """Run a program, send it a signal when it says `ready`; its exit status, what it said, and its errors."""
    program = PRELUDE + textwrap.dedent(text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(
        [sys.executable, "-c", program, loop],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as child:
        try:
            said = []
            if send is not None and child.stdout is not None:
                said.append(child.stdout.readline())
                child.send_signal(send)
            out, err = child.communicate(timeout=30)
            return child.returncode, [*"".join([*said, out]).splitlines()], err
        finally:
            child.kill()


CANCELLED_SAID = "Outcome(value=None, error=None, cancelled=True)"


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("main", "left"), [("leaving", ["()"]), ("careless", [])])
def test_control_c_runs_every_finally(loop, main, left):
    """Ctrl-C in a program under `run` ends the actors in order, and the program with KeyboardInterrupt."""
    code, said, err = run_program(f"run({main}())", loop, signal.SIGINT)
    assert ["ready", "finally", CANCELLED_SAID, *left] == said, err
    assert "KeyboardInterrupt" in err
    assert code != 0


@pytest.mark.parametrize("loop", LOOPS)
def test_sigterm_that_cancels_main_runs_every_finally(loop):
    """A SIGTERM that the program turns into a cancellation of its main task ends the actors in order."""
    program = """
    async def main():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
        await leaving()
    try: run(main())
    except asyncio.CancelledError: say("cancelled")
    """
    code, said, err = run_program(program, loop, signal.SIGTERM)
    assert (0, ["ready", "finally", CANCELLED_SAID, "()", "cancelled"]) == (code, said), err


def test_control_c_without_asyncio_run():
    """Under a bare `run_until_complete` Ctrl-C stops the loop, and cancelling its tasks ends the actors in order."""
    program = """
    loop = asyncio.new_event_loop()
    before = signal.getsignal(signal.SIGINT)
    try: loop.run_until_complete(careless())
    except KeyboardInterrupt: say("interrupted")
    tasks = asyncio.all_tasks(loop)
    for task in tasks: task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()
    say(signal.getsignal(signal.SIGINT) is before)
    """
    code, said, err = run_program(program, send=signal.SIGINT)
    assert code == 0, err
    assert sorted(["True", CANCELLED_SAID, "finally", "interrupted", "ready"]) == sorted(said), err


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("raised", "status"), [("SystemExit(7)", 7), ("KeyboardInterrupt()", -signal.SIGINT), ("grouped", 7)]
)
def test_an_actor_that_ends_the_program_ends_it_in_order(loop, raised, status):
    """SystemExit and KeyboardInterrupt in an actor leave through the host loop, and every other `finally` runs."""
    program = f"""
    async def exits():
        grouped = BaseExceptionGroup("", [ValueError(), BaseExceptionGroup("", [SystemExit(7)])])
        await trio.sleep(0.05)
        raise {raised}
    async def main():
        guest = await Guest.enter()
        guest.spawn(exits, lambda outcome: say(type(outcome.error).__name__))
        await stay(guest)
    run(main())
    """
    code, said, err = run_program(program, loop)
    assert (status, ["ready", "RuntimeError", "finally", CANCELLED_SAID]) == (code, said), err


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("doing", ["sleeps", "spins"])
def test_a_stranded_guest_is_found_at_the_next_enter(loop, doing):
    """A loop closed over a living guest makes its thread unusable, which is said; another thread is fine."""
    program = f"""
    import gc
    async def sleeps(): await trio.sleep_forever()
    async def spins():
        while True: await trio.lowlevel.checkpoint()
    def strand():
        loop = (asyncio if sys.argv[1] == "asyncio" else uvloop).new_event_loop()
        async def main():
            guest = await Guest.enter()
            guest.spawn({doing}, say)
            await asyncio.sleep(0.01)
        loop.run_until_complete(main())
        loop.close()
    async def again():
        try: await Guest.enter()
        except UsageError as error: say(error)
    async def fine():
        guest = await Guest.enter()
        say(await guest.leave())
    strand()
    gc.collect()
    time.sleep(0.05)
    run(again())
    thread = threading.Thread(target=lambda: run(fine())); thread.start(); thread.join()
    os._exit(0)
    """
    code, said, err = run_program(program, loop)
    assert code == 0, err
    assert "Trio cannot run in this thread any more" in said[0]
    assert said[1:] == ["()"]


@pytest.mark.parametrize("loop", LOOPS)
def test_what_never_ends_holds_no_program(loop):
    """Once leaving has given up on a stubborn actor and named it, the program ends without waiting again."""
    program = """
    async def stubborn():
        while True:
            try:
                with trio.CancelScope(shield=True): await trio.sleep(100)
            except BaseException: pass
    async def main():
        guest = await Guest.enter()
        guest.spawn(stubborn, say)
        await asyncio.sleep(0.01)
        say(await guest.leave(0.05))
    began_s = time.monotonic()
    run(main())
    say(time.monotonic() - began_s < 5)
    """
    code, said, err = run_program(program, loop)
    assert (0, ["('stubborn',)", "True"]) == (code, said), err
    assert "the Trio run does not end; left behind: stubborn" in err


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("death", ["orderly", "hard"])
def test_when_the_run_dies_everything_is_resolved(loop, death):
    """An error in Trio itself resolves all futures, callbacks and asked tasks, and the next guest can start."""
    program = f"""
    import logging
    logging.getLogger("callboard").addHandler(logging.NullHandler())
    class Clock(trio.abc.Clock):
        broken = False
        def start_clock(self): pass
        def current_time(self): return time.perf_counter()
        def deadline_to_sleep_time(self, deadline):
            if self.broken: raise KeyError("the clock broke")
            return deadline - time.perf_counter()
    def fail(_): raise KeyError("nobody catches this")
    async def host():
        try: await asyncio.sleep(60)
        except asyncio.CancelledError:
            say("host cancelled")
            raise
    async def main():
        clock = Clock()
        guest = await Guest.enter(clock)
        future = guest.start(guest.ask_host, host)
        guest.spawn(trio.sleep_forever, lambda outcome: say("told"))
        await asyncio.sleep(0.02)
        clock.broken = {death!r} == "hard"
        trio.lowlevel.current_trio_token().run_sync_soon(sum if clock.broken else fail, ())
        try: await asyncio.wait_for(asyncio.wait((future,)), 5)
        finally: say(future.done() and future.exception() is not None)
        await asyncio.sleep(0.02)
        try: await guest.wait()
        except RuntimeError as error: say(error)
        say(await guest.leave())
        say("next")
        second = await Guest.enter()
        say(await second.leave())
    run(main())
    os._exit(0)
    """
    code, said, err = run_program(program, loop)
    assert code == 0, err
    died = "The Trio run died, and every actor in it is gone."
    assert sorted(["host cancelled", "told", "True", died, "()"]) == sorted(said[:-2]), err
    assert ["next", "()"] == said[-2:]

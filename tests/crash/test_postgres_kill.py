"""kill -9 of a program that writes, or of the PostgreSQL server it writes to, loses no acknowledged record."""

import os
import random
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from callboard.runtime.stores import look_into

from .appending import body

PROGRAM = Path(__file__).with_name("appending.py")
ROUNDS_MAX = int(os.environ.get("CALLBOARD_CRASH_ROUNDS", "5"))
SEED = int(os.environ.get("CALLBOARD_CRASH_SEED", "1"))
SERVER_ROUNDS_MAX = max(1, ROUNDS_MAX // 5)
THIS = "tests/crash/test_postgres_kill.py"
SESSIONS = 6


@pytest.fixture(scope="module")
def server(own_postgres):
    """A server of this file's own: its tests kill it."""
    return own_postgres


def new_url(server, durability):
    """The url of a store that nobody used before."""
    return server.url(more=f"?schema=t{secrets.token_hex(6)}&durability={durability}")


class Running:
    """The program, and the last acknowledged record of each session."""

    def __init__(self, url, seed):
        self.last, self.errors = dict[str, int](), list[str]()
        arguments = [sys.executable, str(PROGRAM), url, str(seed), str(SESSIONS)]
        self._one = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._answered = threading.Event()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self):
        assert self._one.stdout is not None
        for line in self._one.stdout:
            if re.fullmatch(rb"s\d+ \d+\n", line):  # the last line may be torn: what was not said whole was not said
                session, seq = line.decode().split()
                self.last[session] = int(seq)
                self._answered.set()
            elif line.startswith(b"error") and line.endswith(b"\n"):
                self.errors.append(line.decode())

    def wait_for_an_answer(self, limit_s=20.0):
        """Until something more is acknowledged."""
        self._answered.clear()
        assert self._answered.wait(limit_s), self.errors[-3:]

    def kill(self):
        """kill -9; nothing that it wrote to its error output may be left."""
        self._one.kill()
        self._reading.join()
        assert self._one.stdout is not None
        assert self._one.stderr is not None
        with self._one.stdout, self._one.stderr:
            assert b"" == self._one.stderr.read()
        assert -signal.SIGKILL == self._one.wait()


def check(url, acknowledged):
    """Everything acknowledged is there once, without gap, with the bytes that were written."""
    looking = look_into(url)
    try:
        for session, last in acknowledged.items():
            kept = looking.records(session, -1, 1_000_000)
            assert list(range(len(kept))) == [one.seq for one in kept]
            assert last < len(kept), f"{session}: {last} was acknowledged, {len(kept)} are there"
            assert [body(session, one.seq) for one in kept] == [one.body for one in kept]
            header = looking.header(session)
            assert header is not None
            assert header.events >= len(kept)  # the program may go on
    finally:
        looking.close()


@pytest.mark.limit_s(60 + ROUNDS_MAX)
@pytest.mark.parametrize("durability", ["full", "normal"])
def test_a_killed_program_loses_nothing_acknowledged(server, durability):
    """A program that is killed and started again and again on one schema never loses what it was told is durable."""
    chance, url, acknowledged = random.Random(SEED), new_url(server, durability), dict[str, int]()
    for round_ in range(-(-ROUNDS_MAX // 2)):
        running = Running(url, chance.randrange(2**32))
        if chance.random() < 0.8:
            running.wait_for_an_answer()
        time.sleep(chance.choice((0.0, 0.004, 0.04, 0.2)) * chance.random())
        running.kill()
        acknowledged |= running.last
        assert [] == running.errors
        try:
            check(url, acknowledged)
        except AssertionError as error:
            raise AssertionError(f"round {round_} of seed {SEED}, see {THIS}") from error
    assert SESSIONS == len(acknowledged)


@pytest.mark.limit_s(60 + 5 * SERVER_ROUNDS_MAX)
@pytest.mark.parametrize("how", ["kill", "immediate"])
def test_a_killed_server_loses_nothing_acknowledged(server, how):
    """The server is killed under a program that goes on with it when it is back: nothing is lost, doubled or fenced."""
    chance, url = random.Random(SEED), new_url(server, "full")
    running = Running(url, SEED)
    try:
        for _ in range(SERVER_ROUNDS_MAX):
            running.wait_for_an_answer()
            time.sleep(0.2 * chance.random())
            server.kill() if how == "kill" else server.stop(signal.SIGQUIT)
            time.sleep(0.1 * chance.random())
            server.start()
            running.wait_for_an_answer()
            check(url, dict(running.last))
    finally:
        running.kill()
    check(url, running.last)
    assert [] == [line for line in running.errors if "cannot write to" not in line]

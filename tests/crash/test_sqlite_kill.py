"""kill -9 at any moment loses no acknowledged record of the SQLite store and leaves a whole file."""

import contextlib
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading

import pytest

from callboard.runtime.stores.sqlite import SqliteStore

ROUNDS = int(os.environ.get("CALLBOARD_CRASH_ROUNDS", "25"))
SEED = int(os.environ.get("CALLBOARD_CRASH_SEED", "1"))
ROUNDS_A_FILE = 5
THIS = "tests/crash/test_sqlite_kill.py"
SESSIONS = 6

# Appends to several sessions for ever, and says each acknowledged record. Checkpoints come often, so that some of the
# kills fall into one.
PROGRAM = """
import asyncio, os, random, sys
from callboard.actors.store import Header, Record
from callboard.runtime.stores import commits
from callboard.runtime.stores.sqlite import SqliteStore

commits.WAL_PAGES_MAX = 30
chance = random.Random(int(sys.argv[2]))
store = SqliteStore(sys.argv[1])

def body(session, seq):
    return b'{"type":"note_added","text":"%s %d %s"}' % (session.encode(), seq, b"x" * (seq * 37 % 3000))

async def live(session):
    header = store.header(session)
    seq = header.events if header else 0
    loop = asyncio.get_running_loop()
    while True:
        for _ in range(chance.choice((1, 1, 2))):
            count = chance.randint(1, 4)
            records = [Record(n, n, None, body(session, n)) for n in range(seq, seq + count)]
            store.append(session, records, Header(session, title=str(seq)) if chance.random() < 0.3 else None)
            seq += count
        answer = loop.create_future()
        store.sync(answer.set_result)
        error = await answer
        os.write(1, b"%s %d\\n" % (session.encode(), seq - 1) if error is None else b"error %r\\n" % str(error))
        if chance.random() < 0.1:
            await asyncio.sleep(0.001)

async def main():
    store.open(asyncio.get_running_loop().call_soon_threadsafe)
    await asyncio.gather(*(live(f"s{n}") for n in range(int(sys.argv[3]))))

asyncio.run(main())
"""


def killed_after(path, seed, delay_s, *, answered):
    """The last acknowledged seq of each session of a program, killed `delay_s` after its start or first answer."""
    arguments = [sys.executable, "-c", PROGRAM, str(path), str(seed), str(SESSIONS)]
    running = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with running:
        assert running.stdout is not None
        assert running.stderr is not None
        said = running.stdout.readline() if answered else b""
        timer = threading.Timer(delay_s, running.send_signal, [signal.SIGKILL])
        timer.start()
        said += running.stdout.read()
        errors = running.stderr.read()
        timer.join()
    assert (b"", -signal.SIGKILL) == (errors, running.returncode)
    # The last line may be torn: what was not said whole was not said.
    lines = said[: said.rfind(b"\n") + 1].decode().splitlines()
    assert all(re.fullmatch(r"s\d+ \d+", line) for line in lines), lines[-3:]
    return {session: int(seq) for session, seq in (line.split() for line in lines)}


def check(path, acknowledged):
    """Everything acknowledged is there, without gap, with the bytes that were written; the file is whole."""
    store = SqliteStore(path)
    store.open(lambda fn: fn())
    try:
        events = {one.id: one.events for one in store.headers()}
        for session, last in acknowledged.items():
            kept = store.read(session, -1, 1_000_000)
            assert list(range(len(kept))) == [record.seq for record in kept]
            assert last < len(kept), f"{session}: {last} was acknowledged, {len(kept)} are there"
            assert len(kept) == events[session]
            for record in kept:
                text = f"{session} {record.seq} {'x' * (record.seq * 37 % 3000)}"
                assert record.body == f'{{"type":"note_added","text":"{text}"}}'.encode()
    finally:
        store.close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert [("ok",)] == db.execute("PRAGMA integrity_check").fetchall()


@pytest.mark.parametrize("seed", range(SEED, SEED + -(-ROUNDS // ROUNDS_A_FILE)))
def test_a_kill_loses_nothing_acknowledged(tmp_path, seed):
    """A program that is killed and started again and again on one file never loses what it was told is durable."""
    chance, path, acknowledged = random.Random(seed), tmp_path / "log.db", dict[str, int]()
    for round_ in range(ROUNDS_A_FILE):
        answered = chance.random() < 0.8
        delay_s = chance.choice((0.0, 0.004, 0.04, 0.2) if answered else (0.2, 0.6)) * chance.random()
        try:
            acknowledged |= killed_after(path, chance.randrange(2**32), delay_s, answered=answered)
            check(path, acknowledged)
        except AssertionError as error:
            again = f"CALLBOARD_CRASH_SEED={seed} CALLBOARD_CRASH_ROUNDS=1 python -m pytest {THIS}"
            raise AssertionError(f"round {round_}, killed after {delay_s:.4f} s; again: {again}") from error

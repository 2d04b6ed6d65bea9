"""Two programs, one session: the first is stopped past its lease, the second takes over, the first goes on."""

import contextlib
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from callboard.actors.events import MessageQueued, MessagesClaimed, TurnEnded, TurnStarted
from callboard.actors.facts import ReminderFired
from callboard.plugins.schedule import SCHEDULE_PLUGIN
from callboard.runtime.assembly import assemble
from callboard.runtime.config import RuntimeConfig
from callboard.runtime.stores import open_store

PROGRAM = Path(__file__).with_name("owning.py")
ROUNDS_MAX = int(os.environ.get("CALLBOARD_CRASH_ROUNDS", "1"))
LEASE_S = 0.6


class Running:
    """The program, and the lines it has said."""

    def __init__(self, *arguments):
        self.lines = []
        self._one = subprocess.Popen([sys.executable, str(PROGRAM), *arguments], stdout=subprocess.PIPE, text=True)
        assert self._one.stdout is not None
        self._out = self._one.stdout
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self):
        self.lines.extend(self._out)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._one.kill()
        self._one.wait()
        self._reading.join()
        self._out.close()

    def signal(self, number):
        self._one.send_signal(number)

    def said(self, *words):
        """What was said after these words, line by line."""
        return [line.split()[len(words) :] for line in tuple(self.lines) if line.split()[: len(words)] == list(words)]

    def wait_for(self, count, *words):
        """Until it has been said so often."""
        ends_at = time.monotonic() + 20
        while len(self.said(*words)) < count:
            assert time.monotonic() < ends_at, f"{words} was not said {count} times: {self.lines[-5:]}"
            time.sleep(0.005)


def stop(one, path):
    """Stop the program where it holds no lock of the file: stopped in the middle of a write it would keep all out."""
    while True:
        one.signal(signal.SIGSTOP)
        time.sleep(0.02)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as db:
            try:
                db.execute("BEGIN IMMEDIATE")
                db.execute("ROLLBACK")
                return
            except sqlite3.OperationalError:
                one.signal(signal.SIGCONT)
                time.sleep(0.003)


def events_of(url):
    """All events of the session, with their numbers."""
    codec = assemble(RuntimeConfig(), (SCHEDULE_PLUGIN,), (), ()).codec
    store = open_store(url)
    store.open(lambda fn: fn())
    try:
        return [(record.seq, codec.decode(record.body)) for record in store.read("s", -1, 10**9)]
    finally:
        store.close()


@pytest.mark.parametrize("round_", range(ROUNDS_MAX))
@pytest.mark.parametrize("durability", ["full", "normal", "postgres"])
def test_stopped_past_its_lease(tmp_path, durability, round_, request):
    """Nothing interleaves, the reminder that came due meanwhile fires once, and the first owner ends, told why."""
    path = tmp_path / "x.db"
    url = f"sqlite:///{path}?durability={durability}&lease={LEASE_S}"
    if durability == "postgres":
        url = request.getfixturevalue("postgres").url(more=f"?schema=t{secrets.token_hex(6)}&lease={LEASE_S}")
    with Running(url, "a", "1.0") as one:
        one.wait_for(3 + round_ % 7, "ran")
        if durability == "postgres":  # what it has locked then is waited for a moment, and let go by the server
            one.signal(signal.SIGSTOP)
        else:
            stop(one, path)
        with Running(url, "b") as two:
            two.wait_for(3, "ran")
            time.sleep(0.4 if round_ % 2 == 0 else 0)  # so that the reminder fires before the first goes on, or after
            one.signal(signal.SIGCONT)
            one.wait_for(1, "prompts")
            two.wait_for(len(two.said("ran")) + 3, "ran")
            two.wait_for(1, "saw")
            ends_at = time.monotonic() + 5
            while not any(kind == "ReminderFired" for _, kind in two.said("saw")):
                assert time.monotonic() < ends_at, "the reminder did not fire"
                time.sleep(0.01)
            two.wait_for(len(two.said("ran")) + 2, "ran")  # its turn comes before those asked for later
    check(one, two, events_of(url))


def check(one, two, events):
    """What must be true of the log, and of what the first owner said."""
    assert list(range(len(events))) == [seq for seq, _ in events]
    queued = [(seq, one.text) for seq, one in events if isinstance(one, MessageQueued) and one.source == "user"]
    owners = "".join(text[0] for _, text in queued)
    assert owners.lstrip("a").strip("b") == "", owners
    taken_at = next(seq for seq, text in queued if text.startswith("b"))
    # What was answered to either is on the log, in order, once.
    texts = [text for _, text in queued]
    for program in (one, two):
        ran = [words[0] for words in program.said("ran")]
        assert ran == [text for text in texts if text in set(ran)]
    # Nobody was shown anything that is not on the log, and the first nothing of the second's time.
    kinds = {seq: type(event).__name__ for seq, event in events}
    assert all(kinds[int(seq)] == kind for program in (one, two) for seq, kind in program.said("saw"))
    assert max(int(seq) for seq, _ in one.said("saw")) < taken_at
    # The reminder fired once, in the second.
    fired = [(seq, event.id) for seq, event in events if isinstance(event, ReminderFired)]
    assert ["schedule-1"] == [id_ for _, id_ in fired]
    assert fired[0][0] > max(seq for seq, text in queued if text.startswith("a"))
    assert [] == [kind for _, kind in one.said("saw") if kind == "ReminderFired"]
    asked = [event.id for _, event in events if isinstance(event, MessageQueued) and event.source == "schedule"]
    claimed = [id_ for _, event in events if isinstance(event, MessagesClaimed) for id_ in event.ids]
    assert 1 == len(asked) == claimed.count(asked[0])
    # Every turn that began has one end.
    started = [event.turn for _, event in events if isinstance(event, TurnStarted)]
    ended = [event.turn for _, event in events if isinstance(event, TurnEnded)]
    assert list(range(1, len(started) + 1)) == started
    assert ended == started[: len(ended)]
    assert len(started) - len(ended) <= 1  # the second was killed
    # The first was told why, and its readers were not left waiting.
    assert ["Fenced"] == [words[0] for words in one.said("lost")]
    assert 1 == len(one.said("ended"))

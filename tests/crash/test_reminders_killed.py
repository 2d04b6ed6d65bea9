"""kill -9 while reminders come due, again and again: each is told, once, and the next program goes on by itself."""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from callboard.actors import MessageQueued, MessagesClaimed, Reply, TurnEnded, TurnStarted
from callboard.actors.facts import ReminderFired
from callboard.actors.testing import ScriptedModel
from callboard.plugins.reminders import SCHEDULE
from callboard.plugins.schedule import SCHEDULE_PLUGIN
from callboard.runtime import open_runtime

PROGRAM = Path(__file__).with_name("reminding.py")
REMINDERS_MAX = 60
SEEDS_MAX = 3
KILLS_MAX = 3


def killed(url, draw):
    """Run the program, and kill it a moment after it has said that it runs."""
    with subprocess.Popen([sys.executable, str(PROGRAM), url], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline().strip() in ("set", "again")
        time.sleep(draw.uniform(0.01, 0.25))
        running.send_signal(signal.SIGKILL)


async def finished(url):
    """Open the runtime and touch nothing until all have been told; then let go what waits for the user."""
    async with open_runtime(
        model=ScriptedModel(lambda prompt: Reply("ok")), store=url, plugins=(SCHEDULE_PLUGIN,)
    ) as rt:
        codec = rt._ground.stage.codec

        def events():
            return [codec.decode(record.body) for record in rt.store.read("s", -1, 100_000)]

        ends_at = time.monotonic() + 20
        while len({one.id for one in events() if isinstance(one, ReminderFired)}) < REMINDERS_MAX:
            assert time.monotonic() < ends_at, "not all have been told"
            await asyncio.sleep(0.02)
        s = await rt.open("s")
        await s.wait_idle()
        await s.resume_queue()
        await s.run("what was that?")
        await s.wait_idle()
        assert "" == rt.actor("s").log[SCHEDULE].flaw
        return events()


@pytest.mark.parametrize("seed", range(SEEDS_MAX))
def test_killed_while_reminders_come_due(seed, tmp_path):
    """Nothing is lost and nothing is told twice, however often the program ends and wherever it was."""
    url, draw = f"sqlite:///{tmp_path / 'x.db'}", random.Random(seed)
    for _ in range(KILLS_MAX):
        killed(url, draw)
    events = asyncio.run(finished(url))
    fired = Counter(one.id for one in events if isinstance(one, ReminderFired))
    assert {f"schedule-{n}": 1 for n in range(1, REMINDERS_MAX + 1)} == fired, f"seed {seed}"
    queued = [one.id for one in events if isinstance(one, MessageQueued) and one.source == "schedule"]
    assert len(set(queued)) == len(queued), f"seed {seed}"
    named = Counter(part.split(":")[0] for id_ in queued for part in id_.removeprefix("schedule:").split("+"))
    assert fired == named, f"seed {seed}"
    claimed = Counter(id_ for one in events if isinstance(one, MessagesClaimed) for id_ in one.ids)
    assert dict.fromkeys(queued, 1) == {id_: claimed[id_] for id_ in queued}, f"seed {seed}"
    started = [one.turn for one in events if isinstance(one, TurnStarted)]
    assert list(range(1, len(started) + 1)) == started == [one.turn for one in events if isinstance(one, TurnEnded)]

"""kill -9 between any two steps of a drive, on a disk that takes its time: nothing is lost, nothing is doubled."""

import random
from collections import Counter

import pytest
import trio

from callboard.actors.books import HISTORY, PARKED, QUEUE
from callboard.actors.events import MessagesClaimed
from callboard.actors.model import Reply, User
from callboard.actors.testing import START_MS, ScriptedModel, open_lab
from callboard.plugins.reminders import MARKER, SCHEDULE
from callboard.plugins.schedule import SCHEDULE_PLUGIN

from .points import FLUSH_S, Steps
from .roughdisk import RoughDisk
from .scheduled import HOUR_S, active, fired, hourly, once, records, told
from .strict import check_history, check_log, of_kind, until
from .walled import Walled

HOUR_MS = HOUR_S * 1000
DUES = {
    "schedule-1": START_MS - 50,
    "schedule-2": START_MS - 70,
    "schedule-3": START_MS - 5,
    "schedule-4": START_MS - 9,
}
EVERY = 3  # of the steps are tried in one test, each test another residue


def lab(disk):
    """A lab with reminders and a model that takes a moment."""
    return open_lab(ScriptedModel(lambda prompt: Reply("ok"), delay_s=0.02), plugins=[SCHEDULE_PLUGIN], store=disk)


async def prepared(draw):
    """A disk with a session whose reminders are all overdue: two one-shots, two recurring."""
    disk = RoughDisk(draw)
    async with lab(disk) as here:
        walled = Walled()
        walled.install(here)
        walled.jump(-1)
        session = await here.session()
        session.log.append(
            once(1, DUES["schedule-1"], 1),
            once(2, DUES["schedule-2"], 1),
            hourly(3, DUES["schedule-3"], 1),
            hourly(4, DUES["schedule-4"], 1),
        )
        await session.log.flush()
    return disk


async def pump(disk):
    """The disk confirms every ten milliseconds."""
    while True:
        await trio.sleep(FLUSH_S)
        disk.go()
        disk.stall()


async def driven(disk, kill_at):
    """Open the session and let all of it fire; at step `kill_at` the program is gone. What is left, and the steps."""
    left = []
    with trio.CancelScope() as program:

        def at(number):
            if number == kill_at:
                left.append(disk.after_crash())
                program.cancel()

        steps = Steps(at)
        async with lab(disk) as here:
            Walled().install(here)
            disk.stall()
            here.stage.nursery.start_soon(pump, disk, name="pump")
            trio.lowlevel.add_instrument(steps)
            steps.on = True
            try:
                session = await here.session(fresh=False)
                await until(lambda: len(told(session)) == 3)
                await session.wait_idle()
                await session.log.flush()
            finally:
                trio.lowlevel.remove_instrument(steps)
            disk.go()
    return (left[0] if left else disk), steps.count


async def check_reopened(disk):
    """After the next opening everything has been told, and once."""
    async with lab(disk) as here:
        Walled().install(here)
        session = await here.session(fresh=False)
        await until(lambda: len(fired(session)) == 4)
        await session.wait_idle()
        if session.state(QUEUE) or session.state(PARKED):  # what was queued before the crash waits for the user
            await session.resume_queue()
            await session.run("go on")
            await until(lambda: not session.state(QUEUE))
            await session.wait_idle()
        assert sorted(DUES.items()) == sorted(fired(session))
        assert 3 == len(told(session)) == len(set(told(session)))
        claimed = Counter(id_ for one in of_kind(records(session), MessagesClaimed) for id_ in one.ids)
        assert dict.fromkeys(told(session), 1) == {id_: claimed[id_] for id_ in told(session)}
        texts = [one.text for one in session.state(HISTORY).messages if isinstance(one, User) and MARKER in one.text]
        assert 3 == len(texts) == len(set(texts))
        assert ["schedule-3", "schedule-4"] == active(session)
        assert DUES["schedule-4"] + HOUR_MS == session.state(SCHEDULE).due_ms
        check_log(here.records())
        check_history(session.state(HISTORY).messages)


@pytest.mark.parametrize("residue", range(EVERY))
@pytest.mark.limit_s(120)
async def test_killed_between_any_two_steps(residue):
    """Wherever the program ends, and whatever of its last writes reached the disk."""
    disk, count = await driven(await prepared(random.Random(0)), -1)
    await check_reopened(disk)
    assert count > 15
    for kill_at in range(1 + residue, count + 1, EVERY):
        for seed in range(6):  # which of the unconfirmed writes are there
            left, _ = await driven(await prepared(random.Random(seed)), kill_at)
            try:
                await check_reopened(left)
            except BaseException as error:
                error.add_note(f"killed at step {kill_at} of {count}, seed {seed}")
                raise

"""A program that owns a session, is stopped past its lease, and goes on: says what it is told and what readers see."""

import asyncio
import itertools
import os
import sys
import time

from callboard.actors import CallboardError, Envelope, Reply, SessionClosed
from callboard.actors.errors import Fenced
from callboard.actors.facts import Reminder, ReminderSet
from callboard.actors.testing import ScriptedModel
from callboard.plugins.schedule import SCHEDULE_PLUGIN
from callboard.runtime import open_runtime


def say(*words: object) -> None:
    """One line that is out before anything else happens."""
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


async def show(rt, name):
    """Say each event that a reader sees."""
    async for item in rt.read("s", deltas=False):
        if isinstance(item, Envelope):
            say("saw", item.seq, type(item.event).__name__)
    say("ended")


async def begun(rt, due_s):
    """The session: made with a reminder that comes due in `due_s`, or taken over, as soon as that may be."""
    if due_s is None:
        while True:
            try:
                return await rt.open("s")
            except Fenced as error:
                say("held", error)
            await asyncio.sleep(0.05)
    session = await rt.create("s")
    log, due_ms = rt.actor("s").log, time.time_ns() // 1_000_000 + int(due_s * 1000)
    log.append(ReminderSet(Reminder("schedule-1", "after", "look", "1", due_ms, 1)))
    await log_is_durable(log)
    return session


async def log_is_durable(log):
    """Wait for the disk."""
    done = asyncio.get_running_loop().create_future()
    log.when_durable(done.set_result)
    assert await done is None


async def main(url, name, due_s):
    """Run turn after turn, until the session is lost or the program is told to stop."""
    model = ScriptedModel(lambda prompt: Reply(f"re {name}"), delay_s=0.002)
    async with open_runtime(model=model, store=url, plugins=(SCHEDULE_PLUGIN,)) as rt:
        session = await begun(rt, due_s)
        say("began")
        showing = asyncio.create_task(show(rt, name))
        try:
            for n in itertools.count():
                say("asks", f"{name}{n}")
                try:
                    await session.run(f"{name}{n}")
                except SessionClosed:  # it had ended before it was asked
                    session = await rt.open("s")
                    continue
                say("ran", f"{name}{n}")
        except CallboardError as error:
            say("lost", type(error).__name__, error)
        await showing
        say("prompts", len(model.prompts))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else None))

"""The program that is killed: a session whose reminders come due every few milliseconds, on a real disk."""

import asyncio
import os
import sys
import time

from callboard.actors import Reply
from callboard.actors.facts import Reminder, ReminderSet
from callboard.actors.testing import ScriptedModel
from callboard.plugins.schedule import SCHEDULE_PLUGIN
from callboard.runtime import open_runtime

REMINDERS_MAX = 60
APART_MS = 7


def say(line: str) -> None:
    """One line that is out before anything else happens."""
    os.write(1, f"{line}\n".encode())


def reminders(now_ms: int) -> list[ReminderSet]:
    """Two one-shots in three, the rest recurring ones, which come due once in the life of a test."""
    made = []
    for n in range(1, REMINDERS_MAX + 1):
        due_ms, text = now_ms + APART_MS * n, f"text {n}"
        recurring = Reminder(f"schedule-{n}", "every", text, "86400", due_ms, 1)
        made.append(ReminderSet(recurring if n % 3 == 0 else Reminder(recurring.id, "after", text, "1", due_ms, 1)))
    return made


async def main(url: str) -> None:
    """Set the reminders once, then let them come."""
    model = ScriptedModel(lambda prompt: Reply("ok"), delay_s=0.004)
    async with open_runtime(model=model, store=url, plugins=(SCHEDULE_PLUGIN,)) as rt:
        if not await rt.stored():
            await rt.create("s")
            log = rt.actor("s").log
            log.append(*reminders(time.time_ns() // 1_000_000 + 50))
            done = asyncio.get_running_loop().create_future()
            log.when_durable(done.set_result)
            assert await done is None
            say("set")
        else:
            say("again")
        await asyncio.sleep(30)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

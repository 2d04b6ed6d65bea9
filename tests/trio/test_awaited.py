"""Waiting on a log: whatever goes wrong in a condition is its waiter's, and never of whoever appends."""

import pytest
import trio
import trio.testing

from callboard.actors.awaited import until
from callboard.actors.errors import Dropped
from callboard.actors.events import MessageQueued
from callboard.actors.testing import open_lab


@pytest.mark.parametrize("error", [Dropped, LookupError])
async def test_a_condition_that_fails_ends_its_wait_alone(error):
    """Also where a turn that is over ends its condition: then the log belongs to somebody else already."""
    looked, caught = list[int](), list[type]()

    def met() -> bool:
        looked.append(len(looked))
        if len(looked) > 2:
            raise error
        return False

    async with open_lab() as lab:
        log = (await lab.session("s")).log

        async def wait() -> None:
            try:
                await until(log, met)
            except (Dropped, LookupError) as raised:
                caught.append(type(raised))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            for number in range(3):
                log.append(MessageQueued(f"m{number}", "x", seq=log.seq + 1))
                await trio.testing.wait_all_tasks_blocked()
    assert (caught, len(looked)) == ([error], 3)

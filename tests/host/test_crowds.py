"""Many sessions end at once: a runtime with idle and busy ones closes whole, a tree of fifty agents is interrupted."""

import pytest
import trio

from .crowds import close_many, interrupt_tree
from .hosted import SLACK_S

BUSY_MACHINE_S = 2.0


@pytest.mark.limit_s(120)
async def test_many_sessions_close_whole_and_leave_nothing():
    """500 idle and 60 busy sessions end within the time; every turn is on its log, and nothing of them lives on."""
    ended = await close_many(500, 60, shells=5, shutdown_s=10.0)
    assert ((), {"aborted shutdown": 60}) == (ended.left, dict(ended.ends))
    assert (ended.before, True) == (ended.after, ended.seconds < 10.0)


async def soft():
    """Ends when it is told."""
    await trio.sleep_forever()


async def hard():
    """Swallows what it is told, for as long as it can."""
    while True:
        try:
            with trio.move_on_after(5, shield=True):
                await trio.sleep_forever()
        except trio.Cancelled:
            continue


@pytest.mark.limit_s(120)
@pytest.mark.parametrize(("body", "receipt"), [(soft, "interrupted"), (hard, "abandoned")])
async def test_interrupt_of_a_root_reaches_fifty_agents(body, receipt):
    """All of them, three levels deep, are asked at once and end in their own windows; their parents know; all go on."""
    seen = await interrupt_tree(body)
    assert (50, {"interrupted": 50}) == (seen.agents, dict(seen.ends_at_parents))
    assert {"completed": 50, receipt: 40} == dict(seen.receipts)
    assert seen.asked_s < SLACK_S + BUSY_MACHINE_S
    assert seen.seconds < 4 * 0.1 + SLACK_S + BUSY_MACHINE_S

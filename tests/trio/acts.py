"""Tools to be interrupted, and the interrupt of a first turn."""

import trio

from callboard.actors.books import HISTORY
from callboard.actors.events import TurnEnded
from callboard.actors.messages import Interrupting
from callboard.actors.testing import Lab, LabSession
from callboard.actors.tool import tool

from .strict import check_history, check_log


@tool
async def quick(text: str) -> str:
    """Returns at once."""
    return text


@tool
async def slow(seconds: float = 1000) -> str:
    """Sleeps."""
    await trio.sleep(seconds)
    return "slept"


@tool
async def tidy(seconds: float) -> str:
    """Sleeps, and cleans up for as long as it was told."""
    try:
        await trio.sleep(1000)
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + seconds):
            await trio.sleep_forever()
    return "never"


TOOLS = (quick, slow, tidy)


async def interrupted(lab: Lab, session: LabSession, after_s: float = 1.5) -> TurnEnded:
    """The end of turn 1, which is interrupted `after_s` seconds after it was submitted."""
    await session.submit("go")
    await trio.sleep(after_s)
    assert await session.interrupt() == Interrupting(1)
    ended = await session.wait(1)
    assert ended is not None
    check_history(session.state(HISTORY).messages)
    check_log(lab.records())
    return ended

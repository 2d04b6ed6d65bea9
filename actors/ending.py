"""Ending: how the last events of a session reach the disk, or do not, within a bound."""

import trio

from callboard.actors.errors import LogError
from callboard.actors.eventlog import LOGGER, EventLog


async def last_flush(log: EventLog, bound_s: float) -> None:
    """(Trio) Wait for the disk at most `bound_s`, and say what it did not confirm."""
    with trio.move_on_after(bound_s):
        try:
            await log.flush()
            return
        except LogError as error:
            LOGGER.warning("session %s: its last events are not durable: %s", log.session, error)
            return
    LOGGER.warning("session %s: the store does not confirm its last events", log.session)

"""Ending: how the end of a turn, and the last events of a session, reach the disk, or do not."""

from collections.abc import Callable

import trio

from callboard.actors.errors import Fenced, LogError
from callboard.actors.eventlog import LOGGER, EventLog
from callboard.actors.events import TurnEnded
from callboard.actors.notices import DurabilityDelayed
from callboard.actors.snapping import LEAVING_FACTOR
from callboard.actors.stage import Limits, Stage
from callboard.actors.timers import Timer

STALL_RETRY_S = 1.0


class Ending:
    """A turn that is over but for its flush. `done` is told once when its end is durable, maybe before this is made.

    When the log belongs to another owner by now it never will be, and `done` is not told.
    """

    __slots__ = ("_done", "_ended", "_late", "_log", "_retry", "_stage", "stalled")

    def __init__(
        self,
        stage: Stage,
        log: EventLog,
        ended: TurnEnded,
        done: Callable[[TurnEnded], None],
    ) -> None:
        self._stage, self._log, self._ended = stage, log, ended
        self._done: Callable[[TurnEnded], None] | None = done
        self._late: Timer | None = None
        self._retry: Timer | None = None
        self.stalled = False  # it was said that the disk takes too long
        self._ask()
        if self._done is not None:
            self._late = stage.timers.at(trio.current_time() + stage.limits.flush_stall_s, self._say)

    def close(self) -> None:
        """Nobody waits any more; harmless when repeated."""
        self._done = None
        for timer in (self._late, self._retry):
            if timer is not None:
                timer.cancel()

    def _say(self) -> None:
        self.stalled = True
        self._stage.on_notice(DurabilityDelayed(self._log.session, self._ended.turn))

    def _ask(self) -> None:
        if self._done is not None:
            self._log.when_durable(self._answered)

    def _answered(self, error: Exception | None) -> None:
        done = self._done
        if done is None:
            return
        if error is None:
            self.close()
            done(self._ended)
            return
        if isinstance(error, Fenced):
            self.close()
            return
        turn, session = self._ended.turn, self._log.session
        LOGGER.warning("session %s: the end of turn %d is not durable: %s", session, turn, error)
        self._retry = self._stage.timers.at(trio.current_time() + STALL_RETRY_S, self._ask)


async def last_flush(log: EventLog, limits: Limits) -> None:
    """(Trio) Wait for the disk at most `flush_stall_s`, and say what it did not confirm."""
    with trio.move_on_after(limits.flush_stall_s):
        try:
            await log.flush()
            log.snap(limits.snap_bytes // LEAVING_FACTOR)
            return
        except LogError as error:
            LOGGER.warning("session %s: its last events are not durable: %s", log.session, error)
            return
    LOGGER.warning("session %s: the store does not confirm its last events", log.session)

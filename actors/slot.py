"""Slot: a session's one place, held by a turn from its start until its end is on the disk."""

from collections.abc import Callable

from callboard.actors.ending import Ending
from callboard.actors.eventlog import EventLog
from callboard.actors.events import TurnEnded
from callboard.actors.stage import Stage
from callboard.actors.turn import Running


class Slot:
    """Holds a running turn, then its end on the way to the disk; `done` is told when that is durable."""

    __slots__ = ("_done", "_ending", "_log", "_running", "_stage")

    def __init__(self, stage: Stage, log: EventLog, done: Callable[[TurnEnded], None]) -> None:
        self._stage, self._log, self._done = stage, log, done
        self._running: Running | None = None
        self._ending: Ending | None = None

    @property
    def stalled(self) -> bool:
        """Whether the disk takes too long to confirm an end."""
        return self._ending is not None and self._ending.stalled

    def take(self, running: Running) -> None:
        """A turn begins."""
        self._running = running

    def look(self) -> None:
        """Close the books of a turn that is over, and wait for the disk before anybody hears of it."""
        running = self._running
        if running is None or not running.over:
            return
        self._running = None
        try:
            ended = running.end()
        finally:
            running.leave()
        self.finish(ended)

    def finish(self, ended: TurnEnded) -> None:
        """An end is on the log; a restarted session begins here."""
        self._ending = Ending(self._stage, self._log, ended, self._done)

    def free(self) -> None:
        """Nothing is in it any more: what was there is told to end, and reports nothing."""
        running, self._running = self._running, None
        ending, self._ending = self._ending, None
        if running is not None:
            running.leave()
        if ending is not None:
            ending.close()

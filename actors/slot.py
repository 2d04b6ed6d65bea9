"""Slot: a session's one place, held by a turn from its start until its end is on the disk."""

from collections.abc import Callable

from callboard.actors.ending import Ending
from callboard.actors.eventlog import EventLog
from callboard.actors.events import TurnEnded
from callboard.actors.stage import Stage
from callboard.actors.tasks import Task


class Slot:
    """Holds a task, then its end on the way to the disk; `done` is told when that is durable."""

    __slots__ = ("_done", "_ending", "_log", "_stage", "_task")

    def __init__(self, stage: Stage, log: EventLog, done: Callable[[TurnEnded], None]) -> None:
        self._stage, self._log, self._done = stage, log, done
        self._task: Task | None = None
        self._ending: Ending | None = None

    @property
    def stalled(self) -> bool:
        """Whether the disk takes too long to confirm an end."""
        return self._ending is not None and self._ending.stalled

    def take(self, task: Task) -> None:
        """A turn begins."""
        self._task = task

    def look(self) -> None:
        """Close the books of a turn that is over, and wait for the disk before anybody hears of it.

        Raises `Fenced` when the log belongs to another owner by now: then nothing here is true any more.
        """
        task = self._task
        if task is not None and task.over and self._log.fenced is None:
            self._task = None
            try:
                ended = task.end()
            finally:
                task.leave()
            self.finish(ended)
        if self._log.fenced is not None:  # maybe just now: a store may answer at once
            raise self._log.fenced

    def finish(self, ended: TurnEnded) -> None:
        """An end is on the log; a restarted session begins here."""
        self._ending = Ending(self._stage, self._log, ended, self._done)

    def free(self) -> None:
        """Nothing is in it any more: what was there is told to end, and reports nothing."""
        task, self._task = self._task, None
        ending, self._ending = self._ending, None
        if task is not None:
            task.leave()
        if ending is not None:
            ending.close()

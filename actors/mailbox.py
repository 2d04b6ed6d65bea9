"""Mailbox: a bounded queue that is not there while it is empty; one actor sleeps on it."""

from collections import deque
from typing import Any

import outcome
import trio

from callboard.actors.errors import MailboxFull
from callboard.actors.messages import Letter


class Mailbox:
    """FIFO and never lossy: `put` refuses at `letters_max`, `next` waits. One task may wait."""

    __slots__ = ("_letters", "_letters_max", "_sleeper")

    def __init__(self, letters_max: int) -> None:
        self._letters: deque[Letter] | None = None
        self._letters_max = letters_max
        self._sleeper: trio.lowlevel.Task | None = None

    def __len__(self) -> int:
        return 0 if self._letters is None else len(self._letters)

    def put(self, letter: Letter, *, urgent: bool = False) -> None:
        """Append a message; `MailboxFull` at once when there is no room, unless it is `urgent`."""
        if self._letters is None:
            self._letters = deque()
        if len(self._letters) >= self._letters_max and not urgent:
            raise MailboxFull(f"the mailbox holds {self._letters_max} messages already; try again later.")
        self._letters.append(letter)
        self.nudge()

    def nudge(self) -> None:
        """Let `next` return, though there is no message."""
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None:
            trio.lowlevel.reschedule(sleeper, outcome.Value(None))

    async def next(self) -> Letter | None:
        """(Trio) The oldest message, once there is one; None when it was only nudged."""
        if not self._letters:
            self._letters = None
            self._sleeper = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._give_up)
        return self._letters.popleft() if self._letters else None

    def _give_up(self, _: Any) -> trio.lowlevel.Abort:
        self._sleeper = None
        return trio.lowlevel.Abort.SUCCEEDED

    def discard(self, kind: type[Letter]) -> None:
        """Take out the messages of one kind."""
        if self._letters is not None:
            self._letters = deque(letter for letter in self._letters if not isinstance(letter, kind))

    def empty(self) -> tuple[Letter, ...]:
        """Take everything out."""
        letters, self._letters = tuple(self._letters or ()), None
        return letters

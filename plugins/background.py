"""Backgrounds: the commands that a session runs beside its turns, each with what it printed since the last look."""

import itertools
from collections.abc import Callable

import trio

from callboard.actors.errors import ToolError
from callboard.actors.plugin import View
from callboard.plugins.commands import TERM_GRACE_S, Command, first
from callboard.plugins.excerpt import Excerpt

RUNNING = "{id} is running.\nWall time: {seconds:.1f} seconds\nOutput since the last look:\n{output}"
OVER = "{id} has ended.\n{status}\nWall time: {seconds:.1f} seconds\nOutput since the last look:\n{output}"
UNKNOWN = "no background command {id!r} in this session; there are: {known}."
TOO_MANY = "{count} background commands are running, the most this session may have: end one with shell_kill first."

BACKGROUND_MAX = 16  # running at once, for each session
REMEMBERED_MAX = 64  # ended ones that can still be looked at


class Background:
    """One background command, and what it printed since the last look."""

    def __init__(self, name: str, command: Command, fresh: Callable[[], Excerpt]) -> None:
        self.name, self.command, self._fresh = name, command, fresh
        self._output = fresh()
        self._begun_s = trio.current_time()
        self._ended_s: float | None = None

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return not self.command.ended.is_set()

    async def run(self) -> None:
        """(Trio) Hear it until it ends; cancelled, it is killed."""
        try:
            await self.command.run(self._hear)
        finally:
            self._ended_s = trio.current_time()

    async def end(self) -> None:
        """(Trio) TERM, and KILL after a grace, or at once when cancelled; returns when nothing of it is left."""
        try:
            self.command.terminate()
            await first(self.command.ended.wait, until_s=trio.current_time() + TERM_GRACE_S)
        finally:
            self.command.kill()
        await first(self.command.ended.wait, until_s=trio.current_time() + TERM_GRACE_S)

    def _hear(self, text: str) -> None:
        self._output.add(text)

    def look(self) -> str:
        """State and new output, which is then forgotten."""
        output, self._output = self._output, self._fresh()
        seconds = (trio.current_time() if self._ended_s is None else self._ended_s) - self._begun_s
        ending = self.command.ending
        if ending is None:
            return RUNNING.format(id=self.name, seconds=seconds, output=output.text())
        return OVER.format(id=self.name, status=ending, seconds=seconds, output=output.text())


class Backgrounds:
    """The background commands of one session; `close` kills them all."""

    KEY = "shell"  # among the session's belongings

    def __init__(self) -> None:
        self._all: dict[str, Background] = {}
        self._numbers = itertools.count(1)

    @classmethod
    def of(cls, view: View) -> "Backgrounds":
        """Those of the view's session."""
        found = view.belongings.get(cls.KEY)
        if not isinstance(found, cls):
            found = view.belongings[cls.KEY] = cls()
        return found

    @property
    def running(self) -> tuple[str, ...]:
        """The ids of those that have not ended."""
        return tuple(name for name, one in self._all.items() if one.running)

    def check_room(self) -> None:
        """Refuse one too many."""
        if len(self.running) >= BACKGROUND_MAX:
            raise ToolError(TOO_MANY.format(count=BACKGROUND_MAX))

    def add(self, command: Command, fresh: Callable[[], Excerpt]) -> Background:
        """Take a command in under the next id and forget the oldest that have ended; `fresh` makes room for output."""
        one = Background(f"shell-{next(self._numbers)}", command, fresh)
        self._all[one.name] = one
        ended = [name for name, other in self._all.items() if not other.running]
        for name in ended[: max(0, len(ended) - REMEMBERED_MAX)]:
            del self._all[name]
        return one

    def __getitem__(self, name: str) -> Background:
        if name not in self._all:
            raise ToolError(UNKNOWN.format(id=name, known=", ".join(self._all) or "none"))
        return self._all[name]

    def close(self) -> None:
        """KILL every one and all they started."""
        for one in self._all.values():
            one.command.kill()

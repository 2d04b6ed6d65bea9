"""A server that is a program: started for one connection, under a keeper, so that nothing of it outlives that."""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Protocol

import trio

from callboard.plugins.commands import Command, Pump, first
from callboard.plugins.mcp_lines import MESSAGE_MAX_BYTES, Lines, TooLong
from callboard.plugins.mcp_server import Reach
from callboard.plugins.mcp_tools import plain_line

LOGGER: Final = logging.getLogger("callboard.mcp")
CLOSE_S = 0.5  # between the end of its input, TERM and KILL
SAID_MAX_CHARS = 300
LOGGED_LINES_MAX = 200  # of what one process says
TOO_LARGE = "it sent a message of {size:,} bytes, which is too large, and was ended"


class Pipe(Protocol):
    """Messages from and to a server, for the SDK."""

    async def take(self, line: bytes | TooLong) -> str | None:
        """Hand on a line that came; what is wrong with one that is no message."""
        ...

    def over(self) -> None:
        """Nothing comes any more."""
        ...

    async def sent(self) -> bytes | None:
        """The next line that goes; None when there will be no more."""
        ...

    def hush(self) -> None:
        """Nothing goes any more."""
        ...

    def streams(self) -> contextlib.AbstractAsyncContextManager[tuple[Any, Any]]:
        """What the SDK reads and writes."""
        ...


class Program:
    """One process; `ended` says how it ended, and what it said last."""

    def __init__(self, name: str, reach: Reach, clean: Callable[[str], str], starting: trio.Lock) -> None:
        self._starting = starting
        self._pipe: Pipe | None = None
        self._reach, self._log = reach, Log(name, clean)
        self._said = self._wrong = self.ended = ""

    @property
    def last_words(self) -> str:
        """The last line of its standard error, to stand behind what happened."""
        return f"; it said: {self._said}" if self._said else ""

    def hush(self) -> None:
        """Nothing is said to it any more: it may have stopped to read."""
        if self._pipe is not None:
            self._pipe.hush()

    def _hear(self, text: str) -> None:
        self._said = self._log.hear(text) or self._said

    @contextlib.asynccontextmanager
    async def streams(self, pipe: Pipe) -> AsyncIterator[tuple[Any, Any]]:
        """(Trio) Start it and talk to it; at the end its input is closed, and it gets a moment to leave.

        When that is cancelled it is killed.
        """
        reach, self._pipe = self._reach, pipe
        async with self._starting:
            command = Command.start(reach.argv, reach.folder, reach.environment, live=True, apart=True)
        async with pipe.streams() as streams, trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, command, pipe)
            nursery.start_soon(_write, command, pipe)
            yield streams
            command.input.close()
            for ask in (command.terminate, command.kill, lambda: None):
                await first(command.ended.wait, until_s=trio.current_time() + CLOSE_S)
                if command.ended.is_set():
                    break
                ask()
            nursery.cancel_scope.cancel()

    async def _watch(self, command: Command, pipe: Pipe) -> None:
        async def take(line: bytes | TooLong) -> None:
            if isinstance(line, TooLong) and line.answers is None:  # who waits for it cannot be told from it
                self._wrong = TOO_LARGE.format(size=line.size)
                command.kill()
            wrong = await pipe.take(line)
            if wrong is not None:
                self._log.say(wrong)

        lines = Lines(command.outputs[0], take, MESSAGE_MAX_BYTES)
        await command.pump([lines, Pump(command.outputs[1], self._hear)])
        for line in lines.rest:
            await take(line)
        self.ended = self._wrong or f"it ended: {plain_line(str(command.ending), SAID_MAX_CHARS)}{self.last_words}"
        pipe.over()


async def _write(command: Command, pipe: Pipe) -> None:
    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        while line := await pipe.sent():
            await command.input.send_all(line)


class Log:
    """What a process says beside its messages, line by line and bounded; without what is secret."""

    def __init__(self, name: str, clean: Callable[[str], str]) -> None:
        self._name, self._clean = name, clean
        self._begun = ""
        self._left = LOGGED_LINES_MAX

    def hear(self, text: str) -> str:
        """A piece of its standard error; the last line in it that says something."""
        *lines, self._begun = (self._begun + text).split("\n")
        self._begun = self._begun[-SAID_MAX_CHARS * 4 :]
        shown = [said for line in lines[-LOGGED_LINES_MAX:] if (said := self._clean(line))]
        for said in shown:
            self.say(said)
        return shown[-1] if shown else ""

    def say(self, said: str) -> None:
        """One line, unless there were too many."""
        if self._left > 0:
            LOGGER.info("MCP server %s: %s", self._name, said)
        elif self._left == 0:
            LOGGER.info("MCP server %s says more, which is not logged", self._name)
        self._left -= 1

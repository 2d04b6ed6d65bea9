"""Command: one command under its keeper, seen from Trio: start it, hear its output, end it and all it started."""

import codecs
import contextlib
import errno
import fcntl
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs
import trio

from callboard.actors.errors import ToolError

KEEPER = Path(__file__).with_name("keeper.py")

TERM_GRACE_S = 1.0  # between TERM and KILL where no abort window is shorter
PIECE_MAX_BYTES = 64 * 1024  # one read; a pipe holds as much
DRAIN_MAX_BYTES = 1024 * 1024  # read after the end; a pipe can be made to hold as much (fs.pipe-max-size)
SAID_MAX_BYTES = 4096  # what a keeper says is three short lines
REAP_S = 0.05  # how long the end of the keeper itself is waited for, inside any abort window
REAP_LATE_S = 10.0  # the same where nobody waits
FINAL = (b"exited", b"killed", b"refused")

TOO_LONG = "the command is too long for this system ({size:,} bytes): put it into a file and run that."
NO_PYTHON = "commands cannot start: {python!r} does not run ({why}); name a Python with shell_plugin(python=...)."
NO_KEEPER = "commands cannot start: {path} is missing; install callboard unpacked, with all its files."
NO_SYSTEM = "commands cannot start on {system}: they need a POSIX system."
EXITED = "Exit code: {code}"
KILLED = "Exit code: {code} (killed by {name})"
LEFT = "\n{count} of its descendants could not be killed."
NOT_STARTED = "the command could not start in {folder!r}: {why}."
LOST = "the command's keeper ended before the command did, so how the command ended is not known."


@attrs.frozen
class Ending:
    """How a command ended: `code` is its exit code, or 128 + n when signal n killed it.

    `code` None: it never began, or nobody saw its end; `error` says which. `left` counts descendants that could not be
    killed, such as another user's.
    """

    code: int | None
    signal: int | None = None
    error: str | None = None
    left: int = 0

    def __str__(self) -> str:
        """Exit code, signal and what could not be killed, or why there is none of it."""
        if self.error is not None:
            return self.error
        if self.signal is None:
            text = EXITED.format(code=self.code)
        else:
            known = {one.value: one.name for one in signal.Signals}
            text = KILLED.format(code=self.code, name=known.get(self.signal, f"signal {self.signal}"))
        return text + (LEFT.format(count=self.left) if self.left else "")


class Pumping(Protocol):
    """Takes what a pipe brings."""

    async def run(self) -> None:
        """(Trio) Until its end."""
        ...

    def drain(self) -> None:
        """What is still in the pipe when the command has ended."""
        ...


class Pump:
    """Gives what a pipe brings to `hear`, as text."""

    def __init__(self, output: trio.lowlevel.FdStream, hear: Callable[[str], None]) -> None:
        self._output, self._hear = output, hear
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    async def run(self) -> None:
        """(Trio) Until its end."""
        while piece := await self._output.receive_some(PIECE_MAX_BYTES):
            if text := self._decoder.decode(piece):
                self._hear(text)

    def drain(self) -> None:
        """What is still in the pipe; its end is not waited for, because somebody may hold it open."""
        with contextlib.suppress(OSError):
            for _ in range(DRAIN_MAX_BYTES // PIECE_MAX_BYTES):
                piece = os.read(self._output.fileno(), PIECE_MAX_BYTES)
                if not piece:
                    break
                if text := self._decoder.decode(piece):
                    self._hear(text)
        if text := self._decoder.decode(b"", final=True):
            self._hear(text)


class Feed:
    """What a command reads from its standard input; one that does not read it to the end is no error."""

    def __init__(self, given: bytes | None, theirs: contextlib.ExitStack, ours: contextlib.ExitStack) -> None:
        self._given = given
        self.theirs, writing = os.pipe()
        theirs.callback(os.close, self.theirs)
        self.input = trio.lowlevel.FdStream(writing)
        ours.callback(self.input.close)

    async def run(self) -> None:
        """(Trio) Pass it on, then say that this was all; what was not given is written by somebody else."""
        if self._given is not None:
            with contextlib.suppress(trio.BrokenResourceError):
                await self.input.send_all(self._given)
            self.input.close()

    def close(self) -> None:
        """Let go; harmless when repeated."""
        self.input.close()


class Command:
    """A running command; made by `start`, then `run` must be started once, in any nursery.

    `ended` is set when the command and all its descendants are gone and `ending` says how. Starting takes about 1 ms of
    the loop (posix_spawn), the keeper about 10 ms more beside it before the command runs.
    """

    def __init__(
        self, pid: int, life: socket.socket, outputs: Sequence[trio.lowlevel.FdStream], folder: str, feed: Feed | None
    ) -> None:
        self.pid, self._life, self.outputs, self._folder, self._feed = pid, life, outputs, folder, feed
        self.leader: int | None = None  # process id of the command itself, once the keeper said so
        self.ended = trio.Event()
        self.ending: Ending | None = None
        self.give_up_at = float("inf")  # Trio time after which nothing is waited for any more
        self._reaped = False

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        folder: str,
        environment: Mapping[str, str],
        python: str | None = None,
        *,
        given: bytes | None = None,
        live: bool = False,
        apart: bool = False,
        more: Sequence[int] = (),
        own: bool = False,
    ) -> "Command":
        """(Trio) Start `argv` (its first an absolute path) in `folder`, with exactly that environment.

        `given` is its standard input, by default empty; with `live` it is `input`, and stays open until that is closed.
        `apart` keeps its errors apart from its output; `run` then
        takes a second place to hear them. It inherits the descriptors `more` as 3, 4 and so on. With `own` the folder
        goes with it. Raises `ToolError` when the keeper cannot start; that the command itself cannot is told by
        `ending`.
        """
        python = python or sys.executable
        if not hasattr(os, "posix_spawn"):
            raise ToolError(NO_SYSTEM.format(system=sys.platform))
        if not KEEPER.is_file():
            raise ToolError(NO_KEEPER.format(path=KEEPER))
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            life, far = socket.socketpair()
            ours.callback(life.close)
            theirs.callback(far.close)
            pipes = [_output(theirs, ours) for _ in range(2 if apart else 1)]
            feed = None if given is None and not live else Feed(given, theirs, ours)
            files = [far.fileno(), pipes[0][1], pipes[-1][1], *more, *(() if feed is None else (feed.theirs,))]
            # Above all of theirs, so that none is overwritten before it is used, should the host have closed its own.
            safe = [_above(theirs, len(files), fd) for fd in files]
            given_at = "-" if feed is None else str(len(files) - 1)
            line = [python, "-I", "-S", str(KEEPER), str(len(more)), given_at, str(int(own)), folder, *argv]
            pid = _spawn(line, environment, [(os.POSIX_SPAWN_DUP2, fd, at) for at, fd in enumerate(safe)])
            life.settimeout(0)
            ours.pop_all()
        return cls(pid, life, [output for output, _ in pipes], folder, feed)

    async def run(self, *hear: Callable[[str], None]) -> None:
        """(Trio) Give its output to `hear` as it comes, until all is over; cancelled, kill it and all it started."""
        await self.pump([Pump(output, one) for output, one in zip(self.outputs, hear, strict=True)])

    @property
    def input(self) -> trio.lowlevel.FdStream:
        """Where a command that was started `live` reads from."""
        assert self._feed is not None
        return self._feed.input

    async def pump(self, pumps: Sequence[Pumping]) -> None:
        """(Trio) As `run`, with a pump of one's own for each of `outputs`."""
        try:
            async with trio.open_nursery() as nursery:
                for pump in pumps:
                    nursery.start_soon(pump.run)
                if self._feed is not None:
                    nursery.start_soon(self._feed.run)
                final = await self._listen()
                nursery.cancel_scope.cancel()
            for pump in pumps:
                pump.drain()
            self._end(final)
        finally:
            self._close()
            deadline = min(trio.current_time() + REAP_S, self.give_up_at)
            with trio.CancelScope(deadline=deadline, shield=True):
                await self._reap()
            if not self._reaped:
                trio.lowlevel.spawn_system_task(self._reap_late, name=f"end of keeper {self.pid}")

    def terminate(self) -> None:
        """TERM to the command and all its descendants; harmless when they are gone."""
        with contextlib.suppress(OSError):
            self._life.send(b"T")
        self._wake_keeper()

    def kill(self) -> None:
        """KILL to the command and all its descendants; harmless when repeated. `run` goes on until they are gone."""
        with contextlib.suppress(OSError):
            self._life.shutdown(socket.SHUT_WR)
        self._wake_keeper()

    def _wake_keeper(self) -> None:
        """A command may have stopped its keeper (`kill -STOP $PPID`), which then would hear nothing."""
        if not self._is_reaped():
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGCONT)

    async def _listen(self) -> bytes:
        """The last line that the keeper says; empty when it ended without one."""
        said = b""
        while len(said) < SAID_MAX_BYTES:
            await trio.lowlevel.wait_readable(self._life)
            try:
                piece = self._life.recv(SAID_MAX_BYTES)
            except BlockingIOError:
                continue
            except OSError:  # it was killed with something unread
                piece = b""
            said += piece
            lines = said.split(b"\n")[:-1]
            self.leader = next((int(line.split()[1]) for line in lines if line.startswith(b"started ")), None)
            final = next((line for line in lines if line.startswith(FINAL)), b"")
            if final or not piece:
                return final
        return b""

    def _end(self, final: bytes) -> None:
        word, number, left = final.split() if final else (b"", b"0", b"0")
        match word:
            case b"exited":
                self.ending = Ending(int(number), left=int(left))
            case b"killed":
                self.ending = Ending(128 + int(number), signal=int(number), left=int(left))
            case b"refused":
                why = os.strerror(int(number))
                self.ending = Ending(None, error=NOT_STARTED.format(folder=self._folder, why=why))
            case _:
                self.ending = Ending(None, error=LOST)
                if self.leader is not None:
                    with contextlib.suppress(OSError):
                        os.killpg(self.leader, signal.SIGKILL)
        self.ended.set()

    def _close(self) -> None:
        self.kill()
        for output in self.outputs:
            output.close()
        if self._feed is not None:
            self._feed.close()
        trio.lowlevel.notify_closing(self._life)
        self._life.close()

    async def _reap(self) -> None:
        """Take in the keeper's own end, so that it stays no zombie."""
        try:
            pidfd = os.pidfd_open(self.pid) if sys.platform == "linux" else None
        except OSError:  # an old kernel, or somebody else took it in
            pidfd = None
        try:
            wait_s = 0.001
            while not self._is_reaped():
                if pidfd is not None:
                    await trio.lowlevel.wait_readable(pidfd)
                else:
                    await trio.sleep(wait_s)
                    wait_s = min(2 * wait_s, 0.1)
        finally:
            if pidfd is not None:
                os.close(pidfd)

    async def _reap_late(self) -> None:
        with trio.move_on_after(REAP_LATE_S):
            await self._reap()

    def _is_reaped(self) -> bool:
        if not self._reaped:
            try:
                self._reaped = os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
            except ChildProcessError:  # the host ignores SIGCHLD, or somebody else took it in
                self._reaped = True
        return self._reaped


def _output(theirs: contextlib.ExitStack, ours: contextlib.ExitStack) -> tuple[trio.lowlevel.FdStream, int]:
    """A pipe to read from, and the end of it that is passed on."""
    reading, writing = os.pipe()
    theirs.callback(os.close, writing)
    output = trio.lowlevel.FdStream(reading)
    ours.callback(output.close)
    return output, writing


def _above(theirs: contextlib.ExitStack, low: int, fd: int) -> int:
    """The same file under a number of at least `low`, until `theirs` is closed."""
    above = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, low)
    theirs.callback(os.close, above)
    return above


def _spawn(line: list[str], environment: Mapping[str, str], files: Sequence[tuple[int, int, int]]) -> int:
    """Start a program in a group of its own, so that Ctrl-C in a terminal does not reach it."""
    try:
        return os.posix_spawn(line[0], line, environment, file_actions=files, setpgroup=0, setsigmask=())
    except OSError as error:
        if error.errno == errno.E2BIG:
            raise ToolError(TOO_LONG.format(size=sum(map(len, line)))) from None
        raise ToolError(NO_PYTHON.format(python=line[0], why=error.strerror)) from None
    except ValueError as error:  # a NUL or an unpaired surrogate
        raise ToolError(f"the command cannot be passed on: {error}.") from None


async def first(*waits: Callable[[], Awaitable[Any]], until_s: float = float("inf")) -> None:
    """(Trio) Return when one of these has returned, or at `until_s` on Trio's clock."""

    async def one(wait: Callable[[], Awaitable[Any]], scope: trio.CancelScope) -> None:
        await wait()
        scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.deadline = until_s
        for wait in waits:
            nursery.start_soon(one, wait, nursery.cancel_scope)

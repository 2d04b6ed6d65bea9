"""Typed: lines from standard input, one when it is asked for, without holding up the loop."""

import asyncio
import contextlib
import os
import threading

LINE_MAX_BYTES = 512 * 1024  # of one line; of a longer one the head and the tail are kept
READ_MAX_BYTES = 64 * 1024
NAME = "callboard-input"


class Typed:
    """The lines of one file descriptor: a terminal, a pipe, a file.

    A thread reads it, and only while a line is wanted; it may be left waiting for a terminal when the program ends.
    """

    def __init__(self, fd: int = 0) -> None:
        self._fd, self.terminal = fd, os.isatty(fd)
        self._kept = bytearray()
        self._reading = self._over = False
        self._read = asyncio.Event()

    @property
    def ended(self) -> bool:
        """Whether nothing can come any more; of a terminal that is never known."""
        return self._over and not self.terminal and not self._kept

    def forget(self) -> None:
        """Drop what was typed before anything was asked; what stands in a pipe was written on purpose and stays."""
        if self.terminal:
            self._kept.clear()
            _flush_typed(self._fd)

    async def line(self) -> str | None:
        """The next line without its end; None at the end of input, for a terminal each time that one says so."""
        while True:
            at = self._kept.find(b"\n")
            if at >= 0:
                return self._cut(at + 1)
            if self._over:
                self._over = not self.terminal
                return self._cut(len(self._kept)) if self._kept else None
            await self._more()

    def _cut(self, size: int) -> str:
        line = self._kept[:size].decode(errors="replace")
        del self._kept[:size]
        return line.rstrip("\r\n")

    async def _more(self) -> None:
        """Return when something was read since, or the end was."""
        self._read.clear()
        if not self._reading:
            self._reading = True
            loop = asyncio.get_running_loop()
            threading.Thread(target=self._pump, args=(loop,), name=NAME, daemon=True).start()
        await self._read.wait()

    def _pump(self, loop: asyncio.AbstractEventLoop) -> None:
        """(its own thread) One read."""
        try:
            data = os.read(self._fd, READ_MAX_BYTES)
        except OSError:  # a terminal that is gone, a descriptor that was closed
            data = b""
        with contextlib.suppress(RuntimeError):  # the loop is over, nobody waits there
            loop.call_soon_threadsafe(self._took, data)

    def _took(self, data: bytes) -> None:
        self._reading = False
        self._over = self._over or not data
        self._kept += data
        if b"\n" not in self._kept:
            del self._kept[LINE_MAX_BYTES:]
        self._read.set()


def _flush_typed(fd: int) -> None:
    """What a terminal still holds of earlier typing goes nowhere."""
    try:
        import termios  # not on every system
    except ImportError:
        return
    with contextlib.suppress(termios.error, OSError):
        termios.tcflush(fd, termios.TCIFLUSH)

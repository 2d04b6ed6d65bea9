"""Messages of a server over its standard output: one JSON text a line, of any length, in bounded memory."""

import contextlib
import os
import re
from collections.abc import Awaitable, Callable, Iterator

import attrs
import trio

from callboard.plugins.commands import PIECE_MAX_BYTES

MESSAGE_MAX_BYTES = 4 * 1024 * 1024
EDGE_BYTES = 512  # of a message that is too long; the id of what it answers stands at one of its ends
DRAIN_MAX_BYTES = 4 * 1024 * 1024
MESSAGES_S_MAX = 10_000  # a server that sends more waits

_FRONT = re.compile(rb'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,')
_BACK = re.compile(rb'[,{]\s*"id"\s*:\s*(\d{1,15})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


@attrs.frozen
class TooLong:
    """A message that was not kept: its size and its ends."""

    size: int
    head: bytes
    tail: bytes

    @property
    def answers(self) -> int | None:
        """The id of the request that it answers, where that can be told from its ends."""
        found = _FRONT.match(self.head) or _BACK.search(self.tail)
        return int(found[1]) if found else None


class Splitter:
    """Bytes to lines; of one that is longer than `most` only the ends are kept."""

    def __init__(self, most: int = MESSAGE_MAX_BYTES) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self._size = 0
        self._tail = b""

    def feed(self, piece: bytes) -> Iterator[bytes | TooLong]:
        """The lines that end in this piece, empty ones left out."""
        first, *others = piece.split(b"\n")
        self._take(first)
        for other in others:
            line = self._line()
            if isinstance(line, TooLong) or line.strip():
                yield line
            self._take(other)

    def _take(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._most:
            self._parts.append(part)
        else:
            if not self._tail:
                whole = b"".join(self._parts)
                self._parts, self._tail = [whole[:EDGE_BYTES] or part[:EDGE_BYTES]], whole[-EDGE_BYTES:]
            self._tail = (self._tail + part[-EDGE_BYTES:])[-EDGE_BYTES:]

    def _line(self) -> bytes | TooLong:
        parts, size, tail = self._parts, self._size, self._tail
        self._parts, self._size, self._tail = [], 0, b""
        whole = b"".join(parts)
        return TooLong(size, whole, tail) if size > self._most else whole


class Lines:
    """A pump: gives each line to `take`, and reads on when that is done; what is left at the end is in `rest`."""

    def __init__(
        self, output: trio.lowlevel.FdStream, take: Callable[[bytes | TooLong], Awaitable[None]], most: int
    ) -> None:
        self._output, self._take, self._splitter = output, take, Splitter(most)
        self._waiting: list[bytes | TooLong] = []
        self._since_s, self._count = 0.0, 0

    async def run(self) -> None:
        """(Trio) Until its end."""
        while piece := await self._output.receive_some(PIECE_MAX_BYTES):
            self._waiting = list(self._splitter.feed(piece))[::-1]
            while self._waiting:
                await self._slow_down()
                await self._take(self._waiting[-1])
                self._waiting.pop()

    def drain(self) -> None:
        """What is still in the pipe; its end is not waited for, because somebody may hold it open."""
        self._waiting.reverse()
        with contextlib.suppress(OSError):
            for _ in range(DRAIN_MAX_BYTES // PIECE_MAX_BYTES):
                piece = os.read(self._output.fileno(), PIECE_MAX_BYTES)
                if not piece:
                    break
                self._waiting.extend(self._splitter.feed(piece))

    @property
    def rest(self) -> list[bytes | TooLong]:
        """What nobody took, in order, once it was drained."""
        return self._waiting

    async def _slow_down(self) -> None:
        now_s = trio.current_time()
        if now_s - self._since_s >= 1:
            self._since_s, self._count = now_s, 0
        self._count += 1
        if self._count > MESSAGES_S_MAX:
            await trio.sleep(self._since_s + 1 - now_s)

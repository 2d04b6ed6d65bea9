"""Server-sent events from bytes, cut at any place: the data of each, as values."""

from typing import Any, Final

import msgspec

EVENT_BYTES_MAX = 32 * 1024 * 1024
DONE: Final = object()  # [DONE]: the last word of a chat's stream
MARK: Final = b"\xef\xbb\xbf"


class Unreadable(Exception):
    """What came is no stream of events; the text says what it is."""


class Events:
    """Takes bytes and gives events; lines end in LF, CRLF or CR, and comments are nothing."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # of a line that has not ended
        self._held_bytes = 0
        self._data: list[bytes] = []
        self._after_cr = False
        self._begun, self._start = False, b""

    def feed(self, chunk: bytes) -> list[Any]:
        """The events that end in this chunk; `DONE` for the last word."""
        if not chunk:
            return []
        if not self._begun:
            chunk = self._start + chunk
            if len(chunk) < len(MARK) and MARK.startswith(chunk):
                self._start = chunk
                return []
            chunk, self._begun = chunk.removeprefix(MARK), True
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
            self._after_cr = False
        if chunk:
            self._after_cr = chunk[-1:] == b"\r"
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._held_bytes += len(chunk)
        if self._held_bytes > EVENT_BYTES_MAX:
            raise Unreadable(f"one event of its answer is larger than {EVENT_BYTES_MAX:,} bytes")
        if b"\n" not in chunk:
            self._rest.append(chunk)
            return []
        *lines, rest = b"".join((*self._rest, chunk)).split(b"\n")
        self._rest = [rest] if rest else []
        return [event for line in lines for event in self._line(line)]

    def finish(self) -> list[Any]:
        """The event that no empty line ended, where it is whole."""
        try:
            last = [*self._line(b"".join(self._rest)), *self._line(b"")] if self._rest or self._data else []
        except Unreadable:  # cut in its middle
            last = []
        self._rest, self._data = [], []
        return last

    def _line(self, line: bytes) -> list[Any]:
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif not line and self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            self._data, self._held_bytes = [], sum(map(len, self._rest))
            return _value(data)
        elif not self._data:
            self._held_bytes = sum(map(len, self._rest))
        return []


def _value(data: bytes) -> list[Any]:
    if data.startswith(b"[DONE]"):
        return [DONE]
    if not data.strip():
        return []
    try:
        return [msgspec.json.decode(data)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return [msgspec.json.decode(data.decode("utf-8", "replace"))]
    except (msgspec.MsgspecError, RecursionError):
        raise Unreadable("one event of its answer is no JSON") from None

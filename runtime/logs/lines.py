"""Lines: a file with one envelope a line; where its end is torn, and where it is damaged."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import attrs
import msgspec

from callboard.actors.codec import Codec
from callboard.actors.errors import LogError
from callboard.actors.store import Record
from callboard.runtime.logs.checking import Damaged

LINE_BYTES_MAX: Final = 256 << 20
"""A longer line is damage: no record is so long."""
TORN: Final = (
    "{name}: the last line, {number}, is torn: {bytes:,} bytes from byte {start:,} on are cut; all before it is whole."
)
UNREAD: Final = "{name} cannot be read: {why}: use another copy of the file."
BROKEN: Final = (
    "{name}: line {number} (byte {start:,}) is damaged: {why} Nothing behind it can be trusted: "
    "use another copy of the file."
)


@attrs.frozen
class Line:
    """One envelope where it stands in its file."""

    number: int
    start: int
    session: str
    record: Record


@attrs.define
class Torn:
    """The end of a file that is no whole line, as a write that was cut off leaves it."""

    name: str
    number: int
    start: int
    bytes: int

    def __str__(self) -> str:
        return TORN.format(name=self.name, number=self.number, start=self.start, bytes=self.bytes)


class Lines:
    """The envelopes of a file; once they were read `torn` says whether its end is missing, `end` where the rest ends.

    Raises `Damaged` with the number of the line for what is no envelope and not the torn end.
    """

    def __init__(self, path: Path, name: str, codec: Codec) -> None:
        self._path, self._name, self._codec = path, name, codec
        self.torn: Torn | None = None
        self.end = 0
        self.count = 0

    def __iter__(self) -> Iterator[Line]:
        try:
            with self._path.open("rb") as file:
                yield from self._lines(file)
        except OSError as error:
            raise Damaged(UNREAD.format(name=self._name, why=error.strerror or error)) from None

    def _lines(self, file: BinaryIO) -> Iterator[Line]:
        self.torn, self.end, self.count, number = None, 0, 0, 0
        while raw := file.readline(LINE_BYTES_MAX):
            start, number = file.tell() - len(raw), number + 1
            ended = raw.endswith(b"\n")
            if ended and not raw.strip():
                self.end = start + len(raw)
                continue
            try:
                session, seq, at_ms, turn, body = self._codec.split_line(raw)
            except LogError as error:
                if ended or len(raw) == LINE_BYTES_MAX:
                    raise self.damaged(number, start, str(error)) from None
                self.torn = Torn(self._name, number, start, len(raw))
                return
            self.end, self.count = start + len(raw), self.count + 1
            yield Line(number, start, session, Record(seq, at_ms, turn, body))

    def damaged(self, number: int, start: int, why: str) -> Damaged:
        """The error about one line."""
        return Damaged(BROKEN.format(name=self._name, number=number, start=start, why=why))


def json_torn(path: Path, name: str) -> Torn | None:
    """Where a file of JSON lines of whatever kind is torn; `Damaged` for a line before its end that is no JSON.

    A file that is one JSON value over many lines is whole.
    """
    try:
        return _json_torn(path, name)
    except Damaged:
        if path.stat().st_size <= LINE_BYTES_MAX and _is_json(path.read_bytes()):
            return None
        raise


def _json_torn(path: Path, name: str) -> Torn | None:
    with path.open("rb") as file:
        number = 0
        while raw := file.readline(LINE_BYTES_MAX):
            number += 1
            if raw.strip() and not _is_json(raw):
                start = file.tell() - len(raw)
                if raw.endswith(b"\n") or len(raw) == LINE_BYTES_MAX:
                    why = "it is no JSON."
                    raise Damaged(BROKEN.format(name=name, number=number, start=start, why=why))
                return Torn(name, number, start, len(raw))
    return None


def _is_json(raw: bytes) -> bool:
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True

"""files: text files inside the session's folder; the tools `read_file`, `write_file`, `edit_file`."""

import contextlib
import os
import re
import stat
from collections.abc import Sequence
from typing import Annotated, BinaryIO

import attrs
import msgspec

from callboard.actors.errors import ToolError
from callboard.actors.plugin import Plugin, View
from callboard.actors.tool import OUTPUT_MAX_BYTES, Tool, tool
from callboard.plugins.places import CHUNK_MAX_BYTES, Place, check_regular, check_text, find, opened, told

READ_DESCRIPTION = """\
Read a UTF-8 text file, exactly as it is and without line numbers.
Without `limit` at most 2,000 lines are read. When more is left, a last line in square brackets says where to go on.\
"""
WRITE_DESCRIPTION = """\
Write a whole text file: a new one, or in place of what was there. Missing folders are made. To change a part of a \
file, use edit_file.\
"""
EDIT_DESCRIPTION = """\
Replace one piece of a text file. `old` must stand in the file exactly once, to the character: take enough lines \
around it. In a file whose lines end in CRLF, plain line ends in `old` and `new` are taken for CRLF.\
"""
PATH_FIELD = "The file; a relative path counts from the session's working directory."
OFFSET_FIELD = "The first line to read, counted from 1."
LIMIT_FIELD = "How many lines to read at most."
TEXT_FIELD = "The whole new content."
OLD_FIELD = "The text to replace, exactly as it stands in the file."
NEW_FIELD = "The text to put in its place; may be empty."

CREATED = "Created {path}: {size:,} bytes."
REPLACED = "Replaced {path}: {size:,} bytes."
EDITED = "Edited {path} at line {line:,}."
EMPTY_FILE = "[{path} is empty]"
MORE = "[lines {first:,} to {last:,} of {path}; more follows: go on with offset {next}]"
LONG_LINE = "[line {line:,} of {path} is too long: only its first {size:,} bytes are shown; go on with offset {next}]"
READ_ONLY = "{path} is read-only: leave it, or change its mode first."
BINARY = "{path} is not UTF-8 text ({why} at byte {at:,}): these tools take text files alone."
HUGE = "{path} has {size:,} bytes, more than {max:,}: give offset and limit to read a part."
HUGE_EDIT = "{path} has {size:,} bytes, more than {max:,} that can be edited: change it with a command."
PAST_END = "{path} has {lines:,} lines, so none at offset {offset:,}: give a smaller offset."
STOPPED = "reading {path} was stopped at line {line:,}."
OLD_EMPTY = "`old` is empty: give the text to replace."
SAME = "`old` and `new` are the same: there is nothing to change."
COUNT = "`old` stands {count} times in {path}, not once: {advice}."
NOT_FOUND = "read the file again and copy the text exactly"
TOO_OFTEN = "take more lines around it"
CHANGED = "{path} changed while it was edited, and was left as it is: read it again."

LINES_MAX = 2000  # read without a limit
LIMIT_MAX = 100_000
WHOLE_MAX_BYTES = 10 * 1024 * 1024  # read without offset and limit, or edited
NOTE_MAX_BYTES = 4096 + 512  # room for the last line of a reading: a path and some words
TO_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

File = Annotated[str, msgspec.Meta(description=PATH_FIELD)]


class ReadFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `read_file` takes."""

    path: File
    offset: Annotated[int, msgspec.Meta(ge=1, description=OFFSET_FIELD)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX, description=LIMIT_FIELD)] | None = None


class WriteFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `write_file` takes."""

    path: File
    text: Annotated[str, msgspec.Meta(description=TEXT_FIELD)]


class EditFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `edit_file` takes."""

    path: File
    old: Annotated[str, msgspec.Meta(description=OLD_FIELD)]
    new: Annotated[str, msgspec.Meta(description=NEW_FIELD)]


def decoded(place: Place, data: bytes, at: int = 0, *, final: bool = True) -> str:
    """UTF-8 text without NUL; `at` is where `data` stands in the file. not `final`: a cut last character goes."""
    if b"\0" in data:
        raise ToolError(BINARY.format(path=place.shown, why="NUL", at=at + data.index(b"\0")))
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if not final and error.end == len(data) and error.reason == "unexpected end of data":
            return data[: error.start].decode()
        raise ToolError(BINARY.format(path=place.shown, why="no character", at=at + error.start)) from None


@attrs.define
class Reading:
    """Lines of one file, read in bounded memory."""

    place: Place
    file: BinaryIO
    view: View
    line: int = 1  # the next one
    at: int = 0  # bytes read so far

    def skip(self, offset: int) -> None:
        """Go to line `offset`."""
        while self.line < offset:
            piece = self.file.readline(CHUNK_MAX_BYTES)
            self.at += len(piece)
            if not piece:
                return
            self.line += piece.endswith(b"\n")
            if self.view.interrupted:
                raise ToolError(STOPPED.format(path=self.place.shown, line=self.line))

    def take(self, lines: int, bytes_max: int) -> str:
        """The next lines, at most so many and of so many bytes; with a note when more is left."""
        first, begun, data = self.line, self.at, bytearray()
        while self.line - first < lines:
            piece = self.file.readline(bytes_max - len(data) + 1)
            if not piece:
                return decoded(self.place, bytes(data), begun)
            if len(data) + len(piece) > bytes_max:
                if self.line == first:
                    shown = decoded(self.place, bytes(data + piece), begun, final=False)
                    note = LONG_LINE.format(line=first, path=self.place.shown, size=len(shown.encode()), next=first + 1)
                    return f"{shown}\n{note}"
                break
            data += piece
            self.line += 1
        else:
            if not self.file.peek(1):  # type: ignore[attr-defined]  # a BufferedReader has it
                return decoded(self.place, bytes(data), begun)
        text = decoded(self.place, bytes(data), begun)
        return text + MORE.format(first=first, last=self.line - 1, path=self.place.shown, next=self.line)


def read(view: View, roots: Sequence[str], arguments: ReadFile, bytes_max: int) -> str:
    """The text of a file, or lines of it."""
    place = find(view, roots, arguments.path)
    offset = arguments.offset or 1
    with told(place, "read"), place.folder() as folder, opened(place, folder) as (file, found):
        part = arguments.offset is not None or arguments.limit is not None
        if found.st_size > WHOLE_MAX_BYTES and not part:
            raise ToolError(HUGE.format(path=place.shown, size=found.st_size, max=WHOLE_MAX_BYTES))
        reading = Reading(place, file, view)
        reading.skip(offset)
        text = reading.take(arguments.limit or LINES_MAX, bytes_max)
        if text:
            return text
        if offset == 1:
            return EMPTY_FILE.format(path=place.shown)
        ends_in_line = found.st_size > 0 and os.pread(file.fileno(), 1, found.st_size - 1) != b"\n"
        lines = reading.line - 1 + ends_in_line
        raise ToolError(PAST_END.format(path=place.shown, lines=lines, offset=offset))


def replace(place: Place, folder: int, text: str, before: os.stat_result | None) -> None:
    """Put a file in place in one step: whoever reads it meets the old or the new text, never a part.

    Mode and, where allowed, owner stay. `before` is checked again last: None means that any file may be there.
    """
    temporary = f".callboard-{os.urandom(8).hex()}.tmp"
    present = _state(place, folder)
    with contextlib.ExitStack() as undo:
        fd = os.open(temporary, TO_MAKE, 0o666, dir_fd=folder)
        undo.callback(os.unlink, temporary, dir_fd=folder)
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode())
            file.flush()
            if present is not None:
                with contextlib.suppress(PermissionError):
                    os.fchown(fd, present.st_uid, present.st_gid)
                os.fchmod(fd, stat.S_IMODE(present.st_mode))
            os.fsync(fd)
        if before is not None and not _same(before, _state(place, folder)):
            raise ToolError(CHANGED.format(path=place.shown))
        os.replace(temporary, place.name, src_dir_fd=folder, dst_dir_fd=folder)
        undo.pop_all()


def _state(place: Place, folder: int) -> os.stat_result | None:
    """The file that is there, if it may be replaced; None when nothing is there."""
    try:
        present = os.stat(place.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    check_regular(place, present)
    if not os.access(place.name, os.W_OK, dir_fd=folder):
        raise ToolError(READ_ONLY.format(path=place.shown))
    return present


def _same(one: os.stat_result, other: os.stat_result | None) -> bool:
    def key(found: os.stat_result) -> tuple[int, ...]:
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    return other is not None and key(one) == key(other)


def write(view: View, roots: Sequence[str], arguments: WriteFile) -> str:
    """Write a whole file and say what happened."""
    check_text(arguments.text, "text")
    place = find(view, roots, arguments.path)
    with told(place, "written"), place.folder(make=True) as folder:
        fresh = _state(place, folder) is None
        replace(place, folder, arguments.text, None)
    return (CREATED if fresh else REPLACED).format(path=place.shown, size=len(arguments.text.encode()))


def occurrences(text: str, old: str) -> list[int]:
    """Where `old` stands in `text`, overlapping ones included."""
    found, at = [], text.find(old)
    while at >= 0:
        found.append(at)
        at = text.find(old, at + 1)
    return found


def edited(place: Place, text: str, old: str, new: str) -> tuple[str, int]:
    """The text with its one `old` replaced, and the line where that stood."""
    if (crlf := text.count("\r\n")) and crlf == text.count("\n"):
        old, new = (re.sub(r"\r?\n", "\r\n", one) for one in (old, new))
    found = occurrences(text, old)
    if len(found) != 1:
        advice = TOO_OFTEN if found else NOT_FOUND
        raise ToolError(COUNT.format(count=len(found), path=place.shown, advice=advice))
    at = found[0]
    return text[:at] + new + text[at + len(old) :], text.count("\n", 0, at) + 1


def edit(view: View, roots: Sequence[str], arguments: EditFile) -> str:
    """Replace one piece of a file and say where."""
    if not arguments.old:
        raise ToolError(OLD_EMPTY)
    if arguments.old == arguments.new:
        raise ToolError(SAME)
    check_text(arguments.new, "new")
    place = find(view, roots, arguments.path)
    with told(place, "edited"), place.folder() as folder:
        with opened(place, folder) as (file, before):
            if before.st_size > WHOLE_MAX_BYTES:
                raise ToolError(HUGE_EDIT.format(path=place.shown, size=before.st_size, max=WHOLE_MAX_BYTES))
            text = decoded(place, file.read(WHOLE_MAX_BYTES + 1))
        after, line = edited(place, text, arguments.old, arguments.new)
        replace(place, folder, after, before)
    return EDITED.format(path=place.shown, line=line)


def _tools(roots: tuple[str, ...], output_max: int) -> tuple[Tool, ...]:
    bytes_max = max(CHUNK_MAX_BYTES // 64, output_max - NOTE_MAX_BYTES)

    @tool(effect="none", parallel=True, output_max=output_max)
    def read_file(arguments: ReadFile, view: View) -> str:
        return read(view, roots, arguments, bytes_max)

    @tool(effect="idempotent")
    def write_file(arguments: WriteFile, view: View) -> str:
        return write(view, roots, arguments)

    @tool(effect="once")
    def edit_file(arguments: EditFile, view: View) -> str:
        return edit(view, roots, arguments)

    texts = (READ_DESCRIPTION, WRITE_DESCRIPTION, EDIT_DESCRIPTION)
    tools = (read_file, write_file, edit_file)
    return tuple(attrs.evolve(one, description=text) for one, text in zip(tools, texts, strict=True))


def files_plugin(*, roots: Sequence[str] = (), output_max: int = OUTPUT_MAX_BYTES) -> Plugin:
    """The files plugin.

    `roots` are folders that may be read and written beside the session's own, with all below them; `/` allows all.
    `output_max` bounds what the model reads of one file at once, in bytes.
    """
    return Plugin("files", tools=_tools(tuple(os.fspath(root) for root in roots), output_max))


FILES = files_plugin()
"""The plugin as it is by default: the session's folder alone."""

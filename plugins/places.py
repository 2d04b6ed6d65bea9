"""Places: where a path leads, and files opened there without following a link that was put in the way meanwhile."""

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import attrs

from callboard.actors.errors import ToolError
from callboard.actors.plugin import View

NO_PATH = "path {path!r} is no path: give the name of a file."
OUTSIDE = "{path} lies outside of {roots}: stay inside."
OUTSIDE_LINK = "{path} leads to {target}, outside of {roots}: stay inside."
GONE = "{path} does not exist: check the name, or make it with write_file."
NO_FOLDER = "{path} goes through something that is no folder: check the path."
NOT_A_FILE = "{path} is {what}, not a regular file: give a file."
DENIED = "{path} may not be {verb}: permission denied."
FAILED = "{path} could not be {verb}: {why}."
NOT_UTF8 = "`{field}` has an unpaired surrogate at index {at}: send valid text."

CHUNK_MAX_BYTES = 64 * 1024
KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a symbolic link in a loop"),
)
TO_LOOK = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
TO_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@attrs.frozen
class Place:
    """Where a file is: `parts` below `root`, every symbolic link resolved; `shown` is the path as it was asked for."""

    shown: str
    root: str
    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        """The last part; `.` for the root itself."""
        return self.parts[-1] if self.parts else "."

    @contextlib.contextmanager
    def folder(self, *, make: bool = False) -> Iterator[int]:
        """A descriptor of the folder it is in, reached from the root without following a link.

        A folder that is swapped for a link after the path was resolved is so refused, never followed.
        """
        fd = os.open(self.root, TO_LOOK)
        try:
            for part in self.parts[:-1]:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=fd)
                below = os.open(part, TO_LOOK, dir_fd=fd)
                os.close(fd)
                fd = below
            yield fd
        finally:
            os.close(fd)


def find(view: View, roots: Sequence[str], path: str) -> Place:
    """Where `path` leads; a `ToolError` when that is outside of the session's folder and of `roots`."""
    if not path or "\0" in path:
        raise ToolError(NO_PATH.format(path=path))
    check_text(path, "path")
    allowed = [os.path.realpath(root) for root in (view.folder, *roots)]
    asked = str(Path(allowed[0], path))
    target = os.path.realpath(asked)
    for root in allowed:
        if target == root or target.startswith(root.rstrip("/") + "/"):
            below = os.path.relpath(target, root)
            return Place(path, root, () if below == "." else tuple(below.split("/")))
    within = " and ".join(allowed)
    if target == os.path.normpath(asked):
        raise ToolError(OUTSIDE.format(path=path, roots=within))
    raise ToolError(OUTSIDE_LINK.format(path=path, target=target, roots=within))


def check_text(text: str, field: str) -> None:
    """Refuse text that no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(NOT_UTF8.format(field=field, at=error.start)) from None


@contextlib.contextmanager
def told(place: Place, verb: str) -> Iterator[None]:
    """What the system refuses, as a `ToolError`."""
    try:
        yield
    except FileNotFoundError:
        raise ToolError(GONE.format(path=place.shown)) from None
    except NotADirectoryError:
        raise ToolError(NO_FOLDER.format(path=place.shown)) from None
    except PermissionError:
        raise ToolError(DENIED.format(path=place.shown, verb=verb)) from None
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise ToolError(FAILED.format(path=place.shown, verb=verb, why=why)) from None


def check_regular(place: Place, found: os.stat_result) -> None:
    """Refuse what is no regular file."""
    if not stat.S_ISREG(found.st_mode):
        what = next((words for is_one, words in KINDS if is_one(found.st_mode)), "something else")
        raise ToolError(NOT_A_FILE.format(path=place.shown, what=what))


@contextlib.contextmanager
def opened(place: Place, folder: int) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """A regular file for reading, and its state; pipes and devices are looked at first, so that opening never waits."""
    check_regular(place, os.stat(place.name, dir_fd=folder, follow_symlinks=False))
    with os.fdopen(os.open(place.name, TO_READ, dir_fd=folder), "rb", CHUNK_MAX_BYTES) as file:
        found = os.fstat(file.fileno())
        check_regular(place, found)
        yield file, found

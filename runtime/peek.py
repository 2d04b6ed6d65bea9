"""Peek: a local socket, for this user alone, at which other programs ask how a runtime stands."""

import asyncio
import contextlib
import os
import socket
import stat
import tempfile
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import msgspec
import platformdirs

from callboard.actors.eventlog import LOGGER
from callboard.actors.receipts import clean_text
from callboard.runtime.clock import WallClock, steady_s

QUESTION = b"tree\n"
QUESTION_MAX_BYTES = 64
ANSWER_S_MAX = 2.0  # that one asker may take with its question and its answer
ASKERS_MAX = 8  # at once; who comes then is turned away
FRESH_S = 0.25  # an answer younger than that is given again
ANSWER_BYTES_MAX = 8 << 20
UNNAMED_S = 60.0  # a socket that has no name yet after so long gets none
SOCKETS_MAX = 1_000  # that are looked at in the folder
OF_ONE_PROGRAM_MAX = 64
PATH_BYTES_MAX = 100  # what every system takes as the name of a socket


class Peek:
    """The socket of one runtime. `picture` makes the answer in slices; nobody who asks can hold the loop for longer.

    The folder is the user's own, the socket is closed to others, a question is one line, an answer one line of JSON.
    """

    def __init__(self, picture: Callable[[], Generator[None, None, Any]]) -> None:
        self._picture = picture
        self._path: Path | None = None
        self._server: asyncio.Server | None = None
        self._askers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._making = asyncio.Lock()
        self._answer, self._made_s = b"", float("-inf")

    async def open(self) -> None:
        """Listen; where that cannot be, a warning says why and nothing else changes."""
        try:
            folder = own_folder(runtime_folder())
            for stale in (*sockets(folder), *_unnamed(folder)):
                is_stale(stale)
            path = _free_path(folder)
            with contextlib.ExitStack() as undo:
                listening = undo.enter_context(listening_at(path))
                self._path = path  # only now: until here the name may be somebody else's
                self._server = await asyncio.start_unix_server(
                    self._asked, sock=listening, limit=QUESTION_MAX_BYTES, start_serving=False
                )
                undo.pop_all()
            await self._server.start_serving()
        except (OSError, ValueError) as error:
            LOGGER.warning("`callboard tree` cannot look at this program: %s", error)

    async def close(self) -> None:
        """Stop listening, turn away who still asks, and remove the socket; harmless when repeated."""
        if self._server is not None:
            self._server.close()
            self._server = None
            for writer in self._askers.values():
                writer.transport.abort()
            if self._askers:
                await asyncio.wait(tuple(self._askers), timeout=ANSWER_S_MAX)
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One asker: a question, an answer, and the end, all within ANSWER_S_MAX."""
        task = asyncio.current_task()
        assert task is not None
        if len(self._askers) >= ASKERS_MAX:
            writer.transport.abort()
            return
        self._askers[task] = writer
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                if await reader.readline() == QUESTION:
                    writer.write(await self._fresh())
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        except (OSError, ValueError, TimeoutError):
            pass  # it left, or talks too much or too slowly
        finally:
            del self._askers[task]
            writer.transport.abort()

    async def _fresh(self) -> bytes:
        async with self._making:
            now_s = asyncio.get_running_loop().time()
            if now_s - self._made_s > FRESH_S:
                picture = self._picture()
                while True:
                    try:
                        next(picture)
                    except StopIteration as made:
                        self._answer = msgspec.json.encode(made.value) + b"\n"
                        break
                    await asyncio.sleep(0)
                self._made_s = asyncio.get_running_loop().time()
            return self._answer


# -- where the sockets are ---------------------------------------------------------------------------------------------


def runtime_folder() -> Path:
    """The folder of this user's sockets; an `OSError` where there can be none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the system names no folder of this kind is no news for anybody
        folder = Path(platformdirs.user_runtime_dir("callboard"))
    if folder.is_absolute():
        return folder
    # A relative one is ignored, as the rules of these folders say: programs in two places would not find each other.
    return Path(tempfile.gettempdir(), f"callboard-{os.getuid()}")


def own_folder(folder: Path) -> Path:
    """The folder, made if need be; an `OSError` when others could put something there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid() or seen.st_mode & 0o022:
        raise PermissionError(f"the folder {folder} is not this user's alone: remove it, or set XDG_RUNTIME_DIR.")
    above = folder.parent.lstat()
    shared = above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX
    if not stat.S_ISDIR(above.st_mode) or above.st_uid not in (0, os.getuid()) or shared:
        raise PermissionError(f"the folder {folder.parent} is open to others: set XDG_RUNTIME_DIR to one of your own.")
    return folder


def sockets(folder: Path) -> list[Path]:
    """The sockets in the folder, by the numbers of their programs."""
    try:
        found = [path for path in folder.iterdir() if pid_of(path) is not None]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=lambda path: (pid_of(path) or 0, path.name))[:SOCKETS_MAX]


def _unnamed(folder: Path) -> list[Path]:
    """What programs left that were killed while they made their sockets."""
    before_s, found = WallClock().now_ms() / 1000 - UNNAMED_S, []
    for path in folder.glob(".*.sock"):
        with contextlib.suppress(FileNotFoundError):  # it has its name now
            if path.lstat().st_mtime < before_s:
                found.append(path)
    return found


def pid_of(path: Path) -> int | None:
    """The program that a socket's name names; None for the name of something else."""
    number, dot, ending = path.name.partition(".")
    named = number.isascii() and number.isdigit() and len(number) <= 10 and dot and path.name.endswith(".sock")
    return int(number) if named and ending.removesuffix("sock").strip("0123456789.") == "" else None


def is_stale(path: Path) -> bool:
    """Whether nobody listens there any more; then it is removed. What is no socket is left alone."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(0)
            asking.connect(str(path))
    except ConnectionRefusedError:
        with contextlib.suppress(OSError):
            path.unlink()
        return True
    except FileNotFoundError:
        return True
    except OSError:
        return False  # it listens and is busy, or is another user's
    return False


def _free_path(folder: Path) -> Path:
    names = (f"{os.getpid()}.sock", *(f"{os.getpid()}.{n}.sock" for n in range(2, OF_ONE_PROGRAM_MAX)))
    path = next((folder / name for name in names if not (folder / name).exists()), None)
    if path is None:
        raise OSError(f"this program shows {OF_ONE_PROGRAM_MAX - 1} runtimes already.")
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise OSError(f"the folder {folder} has too long a name for a socket: set XDG_RUNTIME_DIR to a shorter one.")
    return path


def listening_at(path: Path) -> socket.socket:
    """A socket that listens before it has its name: so one without a listener is stale, whenever it is seen."""
    first = path.with_name(f".{path.name}")
    with contextlib.suppress(FileNotFoundError):
        first.unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.settimeout(0)
        listening.bind(str(first))
        first.chmod(0o600)
        listening.listen(ASKERS_MAX)
        first.rename(path)
    except OSError:
        listening.close()
        with contextlib.suppress(OSError):
            first.unlink()
        raise
    return listening


# -- asking ------------------------------------------------------------------------------------------------------------


def ask(path: Path) -> bytes | None:
    """(blocking, at most twice ANSWER_S_MAX) What the program at this socket shows; None when it does not answer."""
    answer, ends_s = bytearray(), steady_s() + ANSWER_S_MAX
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(ANSWER_S_MAX)
            asking.connect(str(path))
            asking.sendall(QUESTION)
            while chunk := asking.recv(1 << 16):
                answer += chunk
                if len(answer) > ANSWER_BYTES_MAX or steady_s() > ends_s:
                    return None
    except OSError:
        return None
    return bytes(answer) or None


def program_name(argv: list[str]) -> str:
    """How a program is called, for people."""
    words = [Path(argv[0]).name, *argv[1:]] if argv else []
    return clean_text(" ".join(words))[:200]

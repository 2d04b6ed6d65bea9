"""Output: text goes out through a thread, so that a reader who is slow or gone never stops the loops."""

import asyncio
import os
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, TextIO

PENDING_MAX_CHARS = 256 * 1024  # written here and not yet taken outside; then `room` waits
JOIN_STEP_S = 0.05


class Output:
    """A text file for one door. `write` never waits; `failed` is the error that ended it, if one did.

    `moves` says that it is a terminal whose cursor may be moved, `colour` that it may have colours too. Not `threaded`,
    for a command without loops, `write` is the stream's own: it waits, and raises `OSError`.
    """

    def __init__(self, stream: TextIO, *, moves: bool = False, colour: bool = False, threaded: bool = True) -> None:
        self._stream, self.moves, self.colour, self._threaded = stream, moves, colour, threaded
        self.encoding = stream.encoding or "utf-8"
        self.failed: OSError | None = None
        self.on_failed: Callable[[], object] = lambda: None
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._pending_chars = 0
        self._roomy = asyncio.Event()
        self._roomy.set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # -- a file, as far as rich wants one ----------------------------------------------------------------------------

    def write(self, text: str) -> int:
        """Take text; it is written soon, in order."""
        if not self._threaded:
            self._stream.write(text)
        elif text and self.failed is None:
            if self._thread is None:
                self._begin()
            with self._lock:
                self._pending_chars += len(text)
                if self._pending_chars > PENDING_MAX_CHARS:
                    self._roomy.clear()
            self._queue.put(text)
        return len(text)

    def flush(self) -> None:
        """Each piece that goes through the thread is flushed as it is written."""
        if not self._threaded:
            self._stream.flush()

    def isatty(self) -> bool:
        """Whether the cursor may be moved."""
        return self.moves

    # -- what a door asks --------------------------------------------------------------------------------------------

    @property
    def behind(self) -> bool:
        """Whether something is still on its way out: no time to draw a picture again."""
        return self._pending_chars > 0

    async def room(self) -> None:
        """Return when what is written here is taken outside, up to `PENDING_MAX_CHARS`; at once after a failure."""
        await self._roomy.wait()

    def close(self, wait_on: Callable[[], bool]) -> bool:
        """Write what is left, for as long as `wait_on()` says so; whether nothing is under way any more."""
        if self._thread is None:
            return True
        self._queue.put(None)
        while self._thread.is_alive() and wait_on():
            self._thread.join(JOIN_STEP_S)
        return not self._thread.is_alive()

    # -- the thread --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None
        self._thread = threading.Thread(target=self._pump, name="callboard-output", daemon=True)
        self._thread.start()

    def _pump(self) -> None:
        while (text := self._queue.get()) is not None:
            if self.failed is None:
                try:
                    self._stream.write(text)
                    self._stream.flush()
                except (OSError, ValueError) as error:
                    self.failed = error if isinstance(error, OSError) else BrokenPipeError(str(error))
                    self._tell(self._broke)
            with self._lock:
                self._pending_chars -= len(text)
                roomy = self._pending_chars <= PENDING_MAX_CHARS // 2
            if roomy:
                self._tell(self._roomy.set)

    def _broke(self) -> None:
        self._roomy.set()
        self.on_failed()

    def _tell(self, fn: Callable[[], object]) -> None:
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(fn)
            except RuntimeError:
                self._loop = None  # the loop is over, nobody waits there


def standard_output(environ: Mapping[str, str], *, threaded: bool = True) -> Output:
    """The program's standard output, as this terminal or pipe wants it."""
    stream = sys.stdout
    moves = stream.isatty() and environ.get("TERM", "") not in ("", "dumb", "unknown")
    return Output(stream, moves=moves, colour=moves and not environ.get("NO_COLOR"), threaded=threaded)


def settle_streams() -> None:
    """Give a closed standard stream a place to go, before another file gets its number; never fail on a character."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != fd:
                os.dup2(opened, fd)
                os.close(opened)
        stream: Any = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(fd, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - lives on
        elif mode == "w" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

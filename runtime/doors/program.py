"""The life of a command that runs sessions: signals, one loop, and an end that comes whatever is left behind."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from types import FrameType
from typing import Any, Final, Literal, TypeAlias

from callboard.runtime.app import Runtime
from callboard.runtime.clock import steady_s
from callboard.runtime.doors.board import visible
from callboard.runtime.doors.output import Output

DONE_CODE, FAILED_CODE, USAGE_CODE, INTERRUPTED_CODE = 0, 1, 2, 130
AGAIN_S = 2.0  # a second Ctrl-C within this time stops the program
LAST_OUTPUT_S = 1.0  # that a stopped program waits for a reader who takes nothing
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SHOW_CURSOR: Final = b"\x1b[?25h\n"

Pressed: TypeAlias = Literal["interrupt", "stop", "kill"]


class Presses:
    """What Ctrl-C means: first interrupt the turn, again within AGAIN_S stop the program, then kill it."""

    def __init__(self) -> None:
        self._last_s = -AGAIN_S
        self.stopping = False

    def press(self, now_s: float) -> Pressed:
        """One more, at `now_s` seconds on a steady clock."""
        if self.stopping:
            return "kill"
        if now_s - self._last_s < AGAIN_S:
            self.stopping = True
            return "stop"
        self._last_s = now_s
        return "interrupt"


class Program:
    """One command. `run` gives its exit code; `on_interrupt` is asked at the first Ctrl-C, False stops at once."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.on_interrupt: Callable[[], bool] = lambda: False
        self.stopped = False
        self._presses = Presses()
        self._closing = self._over = False
        self._left: list[str] = []
        self._task: asyncio.Future[int] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        output.on_failed = self.stop

    def run(self, main: Callable[[], Coroutine[Any, Any, int]]) -> int:
        """Run `main` in a loop of its own, under the program's signals, and let all output out."""
        before = {number: signal.getsignal(number) for number in SIGNALS}
        for number, was in before.items():
            if was is not signal.SIG_IGN:
                signal.signal(number, self._signalled)
        try:
            with asyncio.Runner() as runner:
                code = runner.run(self._main(main))
        finally:
            went_out = self._let_out()
            for number, was in before.items():
                signal.signal(number, was)
        return code if went_out else FAILED_CODE

    async def _main(self, main: Callable[[], Coroutine[Any, Any, int]]) -> int:
        self._loop = asyncio.get_running_loop()
        task = self._task = self._loop.create_task(main(), name="callboard command")
        if self.stopped:
            task.cancel()
        await asyncio.wait((task,))
        if self._left:
            # What is left may hold this loop, or the interpreter, for ever.
            say_error(f"ended while these were still alive: {', '.join(self._left)}")
            broken = not task.cancelled() and task.exception() is not None
            code = FAILED_CODE if broken else INTERRUPTED_CODE if task.cancelled() else task.result()
            self._leave(code if self._let_out() else FAILED_CODE)
        return INTERRUPTED_CODE if task.cancelled() else task.result()

    @contextlib.asynccontextmanager
    async def opened(self, rt: Runtime) -> AsyncIterator[Runtime]:
        """The runtime, open for the length of the block; closing it is never cut, and what outlives it is noted."""
        await rt.start()
        try:
            yield rt
        finally:
            self._closing = True
            await rt.close()
            self._closing = False
            self._left += [*rt.left, *rt.parked]

    def stop(self) -> None:
        """End the command: cancelled, once, it closes what it opened."""
        self._presses.stopping = True
        if not self.stopped:
            self.stopped = True
            if self._task is not None and not self._closing:
                self._task.cancel()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        """(the main thread, between any two steps of it) Only decides, and lets the loop do it."""
        pressed = self._presses.press(steady_s()) if number == signal.SIGINT else "stop"
        if self._over or pressed == "kill":
            self._leave(INTERRUPTED_CODE)
        if self._loop is None:
            self.stop()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._interrupt if pressed == "interrupt" else self.stop)

    def _interrupt(self) -> None:
        if not self.on_interrupt():
            self.stop()

    def _let_out(self) -> bool:
        """Wait for what is written to go out; a signal ends that at once, and a stop soon. Whether it went out."""
        self._over = True
        until_s = steady_s() + LAST_OUTPUT_S
        if not self.output.close(wait_on=lambda: not self.stopped or steady_s() < until_s):
            self._leave(INTERRUPTED_CODE)  # the thread still writes, and the interpreter would wait for it
        failed = self.output.failed
        if failed is not None:
            silence()
            if not isinstance(failed, BrokenPipeError):
                say_error(f"the output could not be written: {failed.strerror or failed}")
        return failed is None

    def _leave(self, code: int) -> None:
        if self.output.moves:
            with contextlib.suppress(OSError):
                os.write(1, SHOW_CURSOR)
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def silence() -> None:
    """Let the interpreter's last flush of a broken standard output go nowhere."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)


def say_error(text: str) -> None:
    """One line on standard error, whatever the text holds."""
    line = " ".join(visible(part) for part in text.split())
    with contextlib.suppress(OSError, ValueError):
        print(f"callboard: {line}", file=sys.stderr, flush=True)

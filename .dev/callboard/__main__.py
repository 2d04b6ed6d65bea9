"""The command `callboard`, also as `python -m callboard`; a signal is answered by an exit code before and after it."""

import os
import signal
import sys
from collections.abc import Iterable
from types import FrameType
from typing import NoReturn

INTERRUPTED_CODE = 130  # the shell's code for Ctrl-C
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def main() -> int:
    """Import the command line, which takes half a second, and run it; the exit code."""
    heard = [number for number in SIGNALS if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)]
    for number in heard:
        signal.signal(number, _leave)
    from callboard.runtime.doors.cli import main as command

    try:
        for number in heard:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else _end)
        code = command()
        _be_deaf(heard)
    except KeyboardInterrupt:
        _be_deaf(heard)
        code = INTERRUPTED_CODE
    return code


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Nothing has begun. Thrown into the import of a module in C, an exception may be swallowed, or be a crash."""
    os._exit(INTERRUPTED_CODE)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(INTERRUPTED_CODE)


def _be_deaf(numbers: Iterable[int]) -> None:
    """All is done, and the code stands: what comes now comes too late."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())

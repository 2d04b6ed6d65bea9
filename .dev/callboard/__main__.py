"""The command `callboard`, also as `python -m callboard`; a signal is answered by an exit code before and after it."""

import signal
import sys
from types import FrameType

INTERRUPTED_CODE = 130  # the shell's code for Ctrl-C
ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def main() -> int:
    """Import the command line, which takes half a second, and run it; the exit code."""
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)
    try:
        from callboard.runtime.doors.cli import main as command

        code = command()
    except KeyboardInterrupt:
        code = INTERRUPTED_CODE
    for number in (signal.SIGINT, *ENDING):
        signal.signal(number, signal.SIG_IGN)  # too late: all is done, and the code stands
    return code


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(INTERRUPTED_CODE)


if __name__ == "__main__":
    sys.exit(main())

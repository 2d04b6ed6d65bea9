"""Progress: how far long work has come, as one line at the foot of a terminal; nothing where there is none."""

import contextlib
import sys
from typing import Final

from callboard.runtime.clock import steady_s

QUIET_S: Final = 1.0
"""Work that is over before says nothing."""
STEP_S: Final = 0.2
CLEAR: Final = "\r\x1b[K"


class Progress:
    """`told(done)` may be called for every event; the line is written now and then, and `end` takes it away."""

    def __init__(self, doing: str, total: int | None = None) -> None:
        self._doing, self._total = doing, total
        self._moves = sys.stderr.isatty()
        self._next_s = steady_s() + QUIET_S
        self._shown = False

    def told(self, done: int) -> None:
        """So many are done."""
        if self._moves and done % 64 == 0 and steady_s() >= self._next_s:
            self._next_s, self._shown = steady_s() + STEP_S, True
            of = "" if self._total is None else f" of {self._total:,}"
            self._write(f"{CLEAR}callboard: {self._doing} {done:,}{of} events")

    def end(self) -> None:
        """No line any more."""
        if self._shown:
            self._shown = False
            self._write(CLEAR)

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()

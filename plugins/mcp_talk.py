"""What passes between a session and a server while a call runs, and when a lost server is tried again."""

import math
from collections.abc import Callable

import trio

from callboard.actors.plugin import Failed
from callboard.plugins.mcp_tools import plain_line

BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.5, 60.0  # the first try again waits for nothing
PROGRESS_S, PROGRESS_MAX, PROGRESS_MAX_CHARS = 0.05, 1_000, 200


class Talk:
    """One call: what shows its progress, what ends it, and how it ended."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._shown, self._shown_s = 0, -math.inf
        self.scope, self.over = trio.CancelScope(), trio.Event()
        self.result: str | Failed | None = None

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """A server tells how far it is."""
        now_s = trio.current_time()
        if self.over.is_set() or self._shown >= PROGRESS_MAX or now_s - self._shown_s < PROGRESS_S:
            return
        self._shown, self._shown_s = self._shown + 1, now_s
        far = f"{done:g}" if total is None else f"{done:g}/{total:g}"
        said = plain_line(message, PROGRESS_MAX_CHARS) if message else ""
        self._show(f"{far} {said}".rstrip() + "\n")

    def end(self, result: str | Failed) -> None:
        """The first result counts."""
        if self.result is None:
            self.result = result
        self.over.set()


def backoff_s(failures: int, jitter: float) -> float:
    """Seconds to wait after so many failures in a row; `jitter` in 0..1 spreads them by half."""
    if failures <= 1:
        return 0.0
    full = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(failures - 2, 30))
    return full * (0.5 + 0.5 * jitter)

"""AbortWindow: ask, cancel, 100 ms. The one owner of a turn's cancellation."""

from collections.abc import Callable
from typing import Protocol

import trio

from callboard.actors.events import Cause
from callboard.actors.timers import Timer, Timers

ABORT_WINDOW_S = 0.1  # what codex gives a task between its token and its end; long enough for a clean-up, short enough
BELOW_S = 0.1  # what agents below get beyond the window, whose own end at the same time, to close their books


class Signal:
    """A flag that code of any kind can look at, and Trio code can wait for."""

    __slots__ = ("_event", "_up", "cause")

    def __init__(self) -> None:
        self._up = False
        self.cause: Cause | None = None  # why, once it is up
        self._event: trio.Event | None = None

    def set(self) -> None:
        """Raise the flag; it stays up."""
        self._up = True
        if self._event is not None:
            self._event.set()

    def is_set(self) -> bool:
        """Whether the flag is up."""
        return self._up

    __bool__ = is_set

    async def wait(self) -> None:
        """(Trio) Return once the flag is up."""
        if self._event is None:
            self._event = trio.Event()
            if self._up:
                self._event.set()
        await self._event.wait()


class Askable(Protocol):
    """Work outside the turn's own scope that an interrupt must reach."""

    def ask(self) -> None:
        """t = 0: cancel, or tell and leave running; does not wait."""
        ...


class AbortWindow:
    """One turn's window: `scope` is its own work, `asked` what runs for it elsewhere and has not ended.

    `request` opens the window at once and does not wait; `window_s` later it is `over`, and the turn ends without what
    has not ended. The first cause wins. `on_open` is told once, first; `look` whenever nothing may be left to wait for.
    What `on_open` puts `below` are turns of agents, each in a window of its own, that end before this one: it waits for
    their ends, and `BELOW_S` longer than for its own work at most.
    """

    __slots__ = (
        "_late",
        "_timer",
        "_timers",
        "asked",
        "below",
        "cause",
        "interrupted",
        "look",
        "on_open",
        "opened_s",
        "over",
        "scope",
        "settled",
        "told",
        "window_s",
    )

    def __init__(
        self, timers: Timers, window_s: float = ABORT_WINDOW_S, on_open: Callable[[], object] | None = None
    ) -> None:
        self._timers, self.window_s, self.on_open = timers, window_s, on_open
        self.scope = trio.CancelScope()
        self.cause: Cause | None = None
        self.settled = False  # the last step is behind it: whatever arrives now is for another turn
        self.opened_s = float("inf")
        self.interrupted = Signal()
        self.asked: dict[Askable, None] = {}
        self.below: dict[object, None] = {}
        self.look: Callable[[], None] | None = None
        self.told = False  # whether a graceful tool or a thread was running when it opened
        self.over = False
        self._late = False  # its own time is up
        self._timer: Timer | None = None

    def request(self, cause: Cause) -> bool:
        """Open the window; False when it is open already."""
        if self.cause is not None:
            return False
        self.cause = cause
        self.opened_s = trio.current_time()
        self._timer = self._timers.at(self.opened_s + self.window_s, self._end, patient=True)
        if self.on_open is not None:
            self.on_open()
        self.interrupted.cause = cause
        self.interrupted.set()
        for work in tuple(self.asked):
            work.ask()
        self.scope.cancel()
        return True

    def close(self) -> None:
        """The turn is over: nobody looks any more; harmless when repeated."""
        self.look = None
        if self._timer is not None:
            self._timer.cancel()

    def ended(self, below: object) -> None:
        """An agent below has ended its turn, or has none; harmless when repeated."""
        if below not in self.below:
            return
        del self.below[below]
        if self.below:
            return
        self.over = self.over or self._late
        if self.look is not None:
            self.look()

    def _end(self) -> None:
        if self.below and not self._late:
            self._late = True
            self._timer = self._timers.at(self.opened_s + self.window_s + BELOW_S, self._end)
            return
        self.over = True
        if self.look is not None:
            self.look()

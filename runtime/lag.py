"""How late each loop wakes its timers: a probe on asyncio and one on Trio."""

import asyncio
from collections.abc import Callable

import trio

from callboard.actors.notices import LoopLagged
from callboard.runtime.crossing import Outcome, Spawned
from callboard.runtime.guest import Guest

PROBE_PERIOD_S = 0.5


class LagProbes:
    """Tells `tell(LoopLagged(loop, seconds))` for both loops once every `period_s` seconds, from `start` to `stop`.

    For the system clock only: under virtual time the Trio probe is one more deadline to jump to, for ever.
    """

    def __init__(self, guest: Guest, tell: Callable[[LoopLagged], object], *, period_s: float = PROBE_PERIOD_S) -> None:
        self._guest, self._tell, self._period_s = guest, tell, period_s
        self._timer: asyncio.TimerHandle | None = None
        self._task: Spawned | None = None

    def start(self) -> None:
        """Begin to probe; a second start changes nothing."""
        if self._timer is None:
            self._arm()
            self._task = self._guest.spawn(self._probe_trio, _ignore, name="lag probe")

    def stop(self) -> None:
        """End both probes; any number of times."""
        if self._timer is not None and self._task is not None:
            self._timer.cancel()
            self._task.cancel()
        self._timer = self._task = None

    def _arm(self) -> None:
        due_s = self._guest.loop.time() + self._period_s
        self._timer = self._guest.loop.call_at(due_s, self._woken, due_s)

    def _woken(self, due_s: float) -> None:
        late_s = max(0.0, self._guest.loop.time() - due_s)
        self._arm()
        self._tell(LoopLagged("asyncio", late_s))

    async def _probe_trio(self) -> None:
        while True:
            due_s = trio.current_time() + self._period_s
            await trio.sleep_until(due_s)
            self._tell(LoopLagged("trio", max(0.0, trio.current_time() - due_s)))


def _ignore(_: Outcome) -> None:
    """A probe that ended owes nothing."""

"""Sweep: asks sessions that have rested for long to leave memory; one task for all of them, and no timer for any."""

import trio

from callboard.actors.phase import Phase
from callboard.runtime.registry import Registry

LOOKS_FACTOR = 8  # a session leaves at most an eighth later than it may
PAUSE_S_MIN = 0.005
AT_ONCE_MAX = 64  # sessions looked at, and so asked, in one turn of the loop


class Sweep:
    """Looks at all live sessions some times in each `evict_s`; what holds a session is asked again at each look."""

    def __init__(self, registry: Registry, evict_s: float) -> None:
        self._registry, self._evict_s = registry, evict_s

    async def run(self) -> None:
        """(Trio) Look until cancelled."""
        pause_s = max(PAUSE_S_MIN, self._evict_s / LOOKS_FACTOR)
        while True:
            await trio.sleep(pause_s)
            await self.look()

    async def look(self) -> None:
        """(Trio) Ask each that has rested for long and that nothing holds."""
        registry = self._registry
        for at, actor in enumerate(tuple(registry.live.values())):
            if at % AT_ONCE_MAX == AT_ONCE_MAX - 1:
                await trio.lowlevel.checkpoint()
            rests = actor.phase is Phase.IDLE and registry.state(actor.id) == "live"
            if rests and trio.current_time() - actor.rested_s >= self._evict_s and registry.may_leave(actor):
                registry.evict(actor)

"""How late both loops wake their timers while something else is measured: a tick on each, every few milliseconds."""

import asyncio
from typing import Self

import trio

from callboard.runtime.guest import Guest

from .measure import at, now_s

TICK_S = 0.002


class Lags:
    """`async with Lags()` in asyncio: seconds late of each tick, of this loop and of the Trio run in it."""

    def __init__(self) -> None:
        self.asyncio: list[float] = []
        self.trio: list[float] = []

    async def __aenter__(self) -> Self:
        self._guest = await Guest.enter()
        self._host = asyncio.ensure_future(self._host_ticks())
        self._inside = self._guest.spawn(self._trio_ticks, lambda _: None, name="bench ticks")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._host.cancel()
        self._inside.cancel()
        await self._guest.leave()

    async def _host_ticks(self) -> None:
        while True:
            due_s = now_s() + TICK_S
            await asyncio.sleep(TICK_S)
            self.asyncio.append(now_s() - due_s)

    async def _trio_ticks(self) -> None:
        while True:
            due_s = now_s() + TICK_S
            await trio.sleep(TICK_S)
            self.trio.append(now_s() - due_s)

    def figures(self) -> dict[str, float]:
        """p99 and max of both loops, in ms."""
        found: dict[str, float] = {}
        for name, values in (("asyncio", self.asyncio), ("trio", self.trio)):
            if values:
                found[f"lag_{name}_p99_ms"] = at(values, 99) * 1e3
                found[f"lag_{name}_max_ms"] = at(values, 100) * 1e3
        return found

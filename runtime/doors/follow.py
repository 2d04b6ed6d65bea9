"""Follow: one audience that reads a session, its subagents and who carries out its plans, beside other readers."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Self

from callboard.actors.children import CHILDREN
from callboard.actors.envelope import Envelope
from callboard.actors.errors import CallboardError, SessionClosed
from callboard.actors.facts import ChildSpawned, PlanHandedOver
from callboard.actors.phase import Phase
from callboard.actors.session import Session
from callboard.runtime.app import Runtime
from callboard.runtime.clock import steady_s
from callboard.runtime.doors.proposals import hands_over
from callboard.runtime.reading import QUEUE_MAX, Item, Reading

LOOK_S = 0.2  # how long a change that no event tells may stay unseen
CATCH_UP_S = 10.0  # without an item, while the audience has room for one
WORKING = ("pending", "running")

LOGGER = logging.getLogger("callboard")


async def _at_once() -> None:
    """Room is always there."""


class Following:
    """Gives every item of a tree to `take`, in order for each session; `room()` is awaited before the next one.

    A session to which a plan is handed over meanwhile is followed like a subagent, with its own tree.
    `failed` is what broke the reading of a session, if something did.
    """

    def __init__(
        self,
        rt: Runtime,
        root: str,
        take: Callable[[Item], object],
        *,
        after: int = -1,
        deltas: bool = False,
        room: Callable[[], Awaitable[None]] = _at_once,
    ) -> None:
        self._roots = [root]
        self._rt, self.root, self._take, self._deltas, self._room = rt, root, take, deltas, room
        self._seen: dict[str, int] = {}
        self._readings: dict[str, Reading] = {}
        self._pumps: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._crowded = 0  # pumps that wait for room
        self.failed: BaseException | None = None
        self.add(root, after)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def add(self, session: str, after: int = -1) -> None:
        """Read one more session, once."""
        if session not in self._readings:
            reading = self._rt.read(session, after, deltas=self._deltas, queue_max=QUEUE_MAX)
            self._readings[session], self._seen[session] = reading, after
            pump = asyncio.get_running_loop().create_task(self._pump(reading), name=f"reader of {session}")
            self._pumps.add(pump)
            pump.add_done_callback(self._ended)

    async def _pump(self, reading: Reading) -> None:
        async for item in reading:
            if isinstance(item, Envelope):
                if isinstance(item.event, ChildSpawned):
                    self.add(item.event.child)
                elif isinstance(item.event, PlanHandedOver) and item.event.session:
                    self._roots.append(item.event.session)
                    self.add(item.event.session)
                self._take(item)
                self._seen[item.session] = item.seq
                self._changed.set()
            else:
                self._take(item)
            self._crowded += 1
            await self._room()
            self._crowded -= 1

    def _ended(self, pump: asyncio.Task[None]) -> None:
        self._pumps.discard(pump)
        if not pump.cancelled() and pump.exception() is not None:
            self.failed = self.failed or pump.exception()
            LOGGER.error("%s broke off: %r", pump.get_name(), pump.exception())
        self._changed.set()

    async def resting(self, unless: Callable[[], bool] = lambda: False) -> None:
        """Return when nothing in the tree works, or `unless()` is true.

        Its last news are waited for, and plans that are being handed over: either may go on elsewhere; not for ever.
        """
        until_s: float | None = None
        while not unless():
            if not all(rests(self._rt, root) for root in self._roots):
                until_s = None
            elif not self._expects() or (until_s is not None and steady_s() >= until_s):
                return
            elif until_s is None:
                until_s = steady_s() + CATCH_UP_S
            await self._look_again()

    def _expects(self) -> bool:
        """Whether another session may be about to join those that are followed."""
        if self.failed is not None:
            return False
        if any(self._end_of(root) > self._seen[root] for root in self._roots):
            return True
        return any(actor is not None and hands_over(actor) for actor in map(self._actor, self._roots))

    async def caught_up(self) -> None:
        """Return when all that happened was given to `take`, however slow that is, or a reader broke or is silent."""
        until_s = steady_s() + CATCH_UP_S
        while not self._is_caught_up() and self.failed is None and steady_s() < until_s:
            await self._look_again()
            if self._crowded or self._changed.is_set():
                until_s = steady_s() + CATCH_UP_S

    async def _look_again(self) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._changed.wait()

    def _is_caught_up(self) -> bool:
        return all(self._end_of(session) <= seen for session, seen in self._seen.items())

    def _end_of(self, session: str) -> int:
        actor = self._actor(session)
        return -1 if actor is None else actor.log.seq - 1

    def _actor(self, session: str) -> Session | None:
        try:
            return self._rt.actor(session)
        except CallboardError:
            return None

    async def aclose(self) -> None:
        """Stop reading; other readers notice nothing."""
        for pump in tuple(self._pumps):
            pump.cancel()
        if self._pumps:
            await asyncio.wait(tuple(self._pumps))
        for reading in self._readings.values():
            await reading.aclose()


def rests(rt: Runtime, session: str) -> bool:
    """Whether neither the session nor any of its subagents works, or is about to."""
    try:
        actor = rt.actor(session)
    except SessionClosed:
        return True
    if actor.phase is not Phase.IDLE or len(actor.mailbox):
        return False
    return all(child.status not in WORKING and rests(rt, child.id) for child in actor.log[CHILDREN])

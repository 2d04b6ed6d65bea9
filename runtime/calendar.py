"""Calendar: wakes sessions of the store that come due while nobody has them open; it lives beside the one alarm."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from callboard.actors.alarm import SEGMENT_MAX_S, AlarmClock
from callboard.actors.errors import CallboardError, Fenced, LogError, SessionClosed
from callboard.runtime.lookup import Lookup

LOGGER = logging.getLogger("callboard")
PAGE_MAX = 256  # sessions read from the store's index at once
GRACE_MS = 2_000  # left to another program that may have the session open, before it is opened here
LOADS_MAX = 8  # sessions that are opened side by side
WAITING_MAX = 10_000  # sessions that wait to be opened; beyond that the index is read again
TRIES_MAX = 3  # how often a session is opened for one due time that it then does not move
REMEMBERED_MAX = 10_000  # sessions whose tries are counted


class Calendar:
    """Reads the store's index of due times once a minute and sets the alarm for what comes due until the next look.

    A session that is open, in memory or not, sets its own alarm. One that is not is opened when it rings, GRACE_MS late
    and after another look at the index: another program that has it may have been there. One that another program holds
    is left to it without a word until the next look. What cannot be opened is told of, and left after TRIES_MAX.
    """

    def __init__(
        self,
        alarm: AlarmClock,
        lookup: Lookup,
        now_ms: Callable[[], int],
        known: Callable[[str], bool],
        open_: Callable[[str], Awaitable[Any]],
        *,
        wanted: bool,
    ) -> None:
        """`known(id)` says whether a session is open; not `wanted`, when no plugin has anything that comes due."""
        self._alarm, self._lookup, self._now_ms, self._wanted = alarm, lookup, now_ms, wanted
        self._known, self._open = known, open_
        self._waiting: dict[str, None] = {}
        self._free = trio.lowlevel.ParkingLot()  # of those who open sessions, whoever has nothing to do
        self._tries: dict[str, tuple[int, int]] = {}  # by session: for which due time it was opened, and how often

    async def run(self) -> None:
        """(Trio) Run the alarm, and look until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._alarm.run)
            if self._wanted:
                nursery.start_soon(self._look_on)
                for _ in range(LOADS_MAX):
                    nursery.start_soon(self._wake_on)

    def rang(self, session_id: str) -> None:
        """(the alarm) It is due, and was not open."""
        if len(self._waiting) < WAITING_MAX:
            self._waiting[session_id] = None
        self._free.unpark()

    async def _look_on(self) -> None:
        while True:
            try:
                await self._look()
            except LogError as error:
                LOGGER.warning("what comes due cannot be read from the store: %s", error)
            await trio.sleep(SEGMENT_MAX_S)

    async def _look(self) -> None:
        upto_ms, place = self._now_ms() + int(SEGMENT_MAX_S * 1000), (-1, "")
        while True:
            found = await self._lookup.due(upto_ms, place, PAGE_MAX)
            for due_ms, session_id in found:
                if not self._known(session_id) and self._tried(session_id, due_ms) < TRIES_MAX:
                    self._alarm.set(session_id, due_ms + GRACE_MS)
            if len(found) < PAGE_MAX:
                return
            place = found[-1]

    async def _wake_on(self) -> None:
        while True:
            while self._waiting:
                session_id = next(iter(self._waiting))
                del self._waiting[session_id]
                await self._wake(session_id)
            await self._free.park()

    async def _wake(self, session_id: str) -> None:
        """Open it, if it is still due; once it is open it fires by itself."""
        try:
            header = await self._lookup.header(session_id)
            due_ms = None if header is None else header.due_ms
            if due_ms is None or due_ms + GRACE_MS > self._now_ms() or self._known(session_id):
                return
            self._count(session_id, due_ms)
            await self._open(session_id)
        except Fenced as error:  # another program has it, and lets it fire; should that one end, a later look sees it
            self._tries.pop(session_id, None)
            LOGGER.debug("%s", error)
        except SessionClosed:  # the runtime ends
            return
        except CallboardError as error:
            LOGGER.error("session %s is due and cannot be opened: %s", session_id, error)  # noqa: TRY400 - its log is at fault
        except Exception:
            LOGGER.exception("session %s is due and cannot be opened", session_id)

    def _tried(self, session_id: str, due_ms: int) -> int:
        known_ms, times = self._tries.get(session_id, (due_ms, 0))
        return times if known_ms == due_ms else 0

    def _count(self, session_id: str, due_ms: int) -> None:
        times = self._tried(session_id, due_ms) + 1
        self._tries.pop(session_id, None)
        if len(self._tries) >= REMEMBERED_MAX:
            del self._tries[next(iter(self._tries))]
        self._tries[session_id] = (due_ms, times)

"""Lookup: what a store knows of sessions without loading them: headers, records, ends of turns, who took a message."""

from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar

from callboard.actors.codec import Codec
from callboard.actors.eventlog import EventLog
from callboard.actors.events import Event, MessagesClaimed, TurnEnded, TurnStarted
from callboard.actors.facts import ChildSpawned
from callboard.actors.stage import Stage
from callboard.actors.store import Header, Place, Record, Store
from callboard.runtime.waiting import in_thread

T = TypeVar("T")

PAGE_MAX = 200
LOG_PAGE_MAX = 1_000  # records of a whole log that are read at once
MARKS_MAX = 8  # starts and ends of turns that are read to find the newest: other events may look like them


class Lookup:
    """Reads the store in pages, from asyncio or from Trio, in a thread where reading may wait for a disk."""

    def __init__(self, store: Store, codec: Codec) -> None:
        self._store, self._codec = store, codec

    async def header(self, session_id: str) -> Header | None:
        """What the store knows of a session without reading its log; None also for a fork that is half made."""
        found = await self._ask(self._store.header, session_id)
        return None if found is None or found.unfinished else found

    async def taken(self, session_id: str) -> bool:
        """Whether the store has anything under this id, a fork that is half made included."""
        return await self._ask(self._store.header, session_id) is not None

    async def headers(self, *, unfinished: bool = False) -> list[Header]:
        """All sessions of the store, newest first; with `unfinished` those that are half made too."""
        return [header for header in await self._ask(self._store.headers) if unfinished or not header.unfinished]

    async def due(self, upto_ms: int, after: Place, limit: int) -> list[Place]:
        """The sessions that come due up to a time, earliest first, and behind a place."""
        return await self._ask(self._store.due, upto_ms, after, limit)

    async def records(self, session_id: str, after: int, limit: int) -> list[Record]:
        """What stands on a log after an event."""
        return await self._ask(self._store.read, session_id, after, limit)

    async def log(self, stage: Stage, session_id: str) -> EventLog | None:
        """All that the store has of a session, folded for this once; None for a session that it does not know."""
        if await self.header(session_id) is None:
            return None
        log = EventLog(session_id, self._store, self._codec, stage.folds, stage.now_ms, stage.on_event)
        log.resume(await self._ask(lambda: log.start_of(self._store.snapshots(session_id))))
        while records := await self.records(session_id, log.seq - 1, LOG_PAGE_MAX):
            log.load(records)
        return log

    async def boundary(self, session_id: str, upto: int) -> int:
        """The newest event up to `upto` after which no turn is open."""
        kinds, before = tuple(str(kind.__struct_config__.tag) for kind in (TurnStarted, TurnEnded)), upto + 1
        while True:
            records = await self._ask(self._store.last, session_id, kinds, before, MARKS_MAX)
            for record in records:
                event = self._codec.decode(record.body)
                if isinstance(event, TurnStarted | TurnEnded):
                    return upto if isinstance(event, TurnEnded) else record.seq - 1
            if len(records) < MARKS_MAX:
                return upto
            before = records[-1].seq

    async def newest_turn(self, session_id: str) -> int:
        """The number of the newest turn that was started; 0 before the first."""
        found = await self._find(session_id, TurnStarted, lambda event: True, MARKS_MAX)
        return 0 if found is None else int(found[0].turn)

    async def has_agents(self, session_id: str) -> bool:
        """Whether it ever started an agent."""
        return await self._find(session_id, ChildSpawned, lambda event: True, MARKS_MAX) is not None

    async def find_ended(self, session_id: str, turn: int) -> TurnEnded | None:
        """The end of a turn."""
        found = await self._find(session_id, TurnEnded, lambda event: event.turn == turn)
        return None if found is None else found[0]

    async def find_taker(self, session_id: str, message: str) -> int | None:
        """The turn that took a message."""
        found = await self._find(session_id, MessagesClaimed, lambda event: message in event.ids)
        return None if found is None else found[1]

    async def _find(
        self, session_id: str, kind: type[Event], fits: Callable[[Any], bool], page_max: int = PAGE_MAX
    ) -> tuple[Any, int | None] | None:
        """The newest event of a kind that fits, with its turn."""
        tag, before = str(kind.__struct_config__.tag), 2**62
        while True:
            records = await self._ask(self._store.last, session_id, (tag,), before, page_max)
            for record in records:
                event = self._codec.decode(record.body)
                if isinstance(event, kind) and fits(event):
                    return event, record.turn
            if len(records) < page_max:
                return None
            before = records[-1].seq

    async def _ask(self, read: Callable[..., T], *args: Any) -> T:
        return await in_thread(read, *args) if self._store.blocking else read(*args)


def is_turn(turn: object) -> TypeGuard[int]:
    """Whether it may be the number of a turn."""
    return isinstance(turn, int) and not isinstance(turn, bool) and turn >= 1

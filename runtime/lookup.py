"""Lookup: what a store knows of sessions that nobody has to load for it: headers, ends of turns, who took a message."""

from collections.abc import Callable
from typing import Any, TypeVar

from callboard.actors.codec import Codec
from callboard.actors.events import Event, MessagesClaimed, TurnEnded
from callboard.actors.store import Header, Store
from callboard.runtime.waiting import in_thread

T = TypeVar("T")

PAGE_MAX = 200


class Lookup:
    """Reads the store in pages, from asyncio or from Trio, in a thread where reading may wait for a disk."""

    def __init__(self, store: Store, codec: Codec) -> None:
        self._store, self._codec = store, codec

    async def header(self, session_id: str) -> Header | None:
        """What the store knows of a session without reading its log."""
        return await self._ask(self._store.header, session_id)

    async def headers(self) -> list[Header]:
        """All sessions of the store, newest first."""
        return await self._ask(self._store.headers)

    async def find_ended(self, session_id: str, turn: int) -> TurnEnded | None:
        """The end of a turn."""
        found = await self._find(session_id, TurnEnded, lambda event: event.turn == turn)
        return None if found is None else found[0]

    async def find_taker(self, session_id: str, message: str) -> int | None:
        """The turn that took a message."""
        found = await self._find(session_id, MessagesClaimed, lambda event: message in event.ids)
        return None if found is None else found[1]

    async def _find(
        self, session_id: str, kind: type[Event], fits: Callable[[Any], bool]
    ) -> tuple[Any, int | None] | None:
        """The newest event of a kind that fits, with its turn."""
        tag, before = str(kind.__struct_config__.tag), 2**62
        while True:
            records = await self._ask(self._store.last, session_id, (tag,), before, PAGE_MAX)
            for record in records:
                event = self._codec.decode(record.body)
                if isinstance(event, kind) and fits(event):
                    return event, record.turn
            if len(records) < PAGE_MAX:
                return None
            before = records[-1].seq

    async def _ask(self, read: Callable[..., T], *args: Any) -> T:
        return await in_thread(read, *args) if self._store.blocking else read(*args)

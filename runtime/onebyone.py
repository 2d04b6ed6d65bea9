"""One by one: what is done to one session (created, opened, stopped) is done one after the other, on Trio."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from callboard.actors.errors import SessionClosed
from callboard.runtime.crossing import Starts
from callboard.runtime.waiting import Pending

T = TypeVar("T")


class OneByOne:
    """A lock for each id that something is being done to, and none for any other."""

    def __init__(self, guest: Starts) -> None:
        self._guest = guest
        self._busy: dict[str, trio.Event] = {}

    def __contains__(self, session_id: object) -> bool:
        """Whether something is being done to this one."""
        return session_id in self._busy

    def __len__(self) -> int:
        return len(self._busy)

    async def on_trio(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work` on Trio, asked from either loop; it goes on when the asker is cancelled."""
        ended = Pending()
        self._guest.spawn(work, ended.reply, name="sessions")
        outcome = await ended.get()
        if outcome.error is not None:
            raise outcome.error
        if outcome.cancelled:
            raise SessionClosed("the runtime closed meanwhile.")
        value: T = outcome.value
        return value

    @asynccontextmanager
    async def alone(self, session_id: str) -> AsyncIterator[None]:
        """(Trio) Nobody else creates, opens or stops this id meanwhile."""
        while (busy := self._busy.get(session_id)) is not None:
            await busy.wait()
        done = self._busy[session_id] = trio.Event()
        try:
            yield
        finally:
            del self._busy[session_id]
            done.set()

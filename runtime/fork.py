"""Fork: a new root session whose log begins as another's does, up to a point at which no turn was open."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import msgspec

from callboard.actors.errors import LogError, SessionClosed, SessionNotFound, UsageError
from callboard.actors.eventlog import EventLog
from callboard.actors.events import SessionForked, SessionOpened
from callboard.actors.stage import Stage
from callboard.actors.store import FORKING, Header, Record
from callboard.runtime.lookup import Lookup
from callboard.runtime.registry import Registry

PAGE_MAX = 200  # records that are in memory at once; each page is durable before the next is read


class Forks:
    """Makes forks, from the store alone: of a session that is live, passivated or closed.

    The copy is written page by page under a header that says `forking`, which hides it from everybody; the write of its
    last event, SessionForked, changes the header, so a crash before leaves nothing that can be seen or opened, and only
    keeps the id taken.
    """

    def __init__(
        self,
        stage: Stage,
        registry: Registry,
        lookup: Lookup,
        on_trio: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]],
        alone: Callable[[str], AbstractAsyncContextManager[None]],
        open_: Callable[[str], Awaitable[Any]],
    ) -> None:
        """`alone(id)` keeps others from the id meanwhile, and `open_(id)` opens a session of the store."""
        self._stage, self._registry, self._lookup = stage, registry, lookup
        self._on_trio, self._alone, self._open = on_trio, alone, open_

    async def fork(self, source: str, at: Any, target: str) -> Any:
        """A handle of the new session `target`, durable; `UsageError` for a wrong `at` or an id that is taken."""
        if at is not None and (not isinstance(at, int) or isinstance(at, bool) or at < 0):
            raise UsageError(
                f"fork takes the number of an event from 0, or none for the last point between turns, got {at!r:.80}."
            )
        return await self._on_trio(partial(self._fork, source, at, target))

    async def _fork(self, source: str, at: int | None, target: str) -> Any:
        if not self._registry.open:
            raise SessionClosed("the runtime is closing: no session starts any more.")
        live = self._registry.get(source)
        if live is not None:
            await live.log.synced()
        async with self._alone(target):
            if target in self._registry or await self._lookup.taken(target):
                raise UsageError(f"session {target!r} exists already: choose another id for the fork.")
            await self._copy(source, await self._point(source, at), target)
        return await self._open(target)

    async def _point(self, source: str, at: int | None) -> int:
        """The last event that is copied."""
        header = await self._lookup.header(source)
        if header is None:
            raise SessionNotFound(f"there is no session {source!r} in this store.")
        last = header.events - 1
        if at is not None and at > last:
            raise UsageError(f"fork takes an event of session {source!r}, whose last one is {last}, got {at}.")
        boundary = await self._lookup.boundary(source, last if at is None else at)
        if at is not None and at != boundary:
            raise UsageError(
                f"fork takes the end of a turn or an event between turns: event {at} of session {source!r} lies inside "
                f"a turn; event {boundary} is the last one before it."
            )
        return boundary

    async def _copy(self, source: str, at: int, target: str) -> None:
        """Write the log of the fork: its own opening, then page after page, then where all of it came from."""
        stage = self._stage
        (first,) = await self._page(source, -1, 0)
        opened = stage.codec.decode(first.body)
        if not isinstance(opened, SessionOpened):
            raise LogError(f"session {source!r} begins with {type(opened).__name__}: it cannot be forked.")
        opening = msgspec.structs.replace(opened, parent=None, root=target, depth=0, path="/root")
        header = Header(target, None, target, opening.path, opening.title, FORKING, created_ms=stage.now_ms())
        log = EventLog(target, stage.store, stage.codec, stage.folds, stage.now_ms, stage.on_event)
        log.append(opening, at_ms=first.at_ms, header=header)
        while log.seq <= at:
            records = await self._page(source, log.seq - 1, at)
            stage.store.append(target, records)
            log.seq += len(records)  # as they are: nothing here has to fold them
            await log.flush()
        log.append(SessionForked(source, at), header=msgspec.structs.replace(header, status="idle"))
        await log.flush()

    async def _page(self, source: str, after: int, at: int) -> list[Record]:
        """The next records up to `at`, at least one."""
        records = await self._lookup.records(source, after, min(PAGE_MAX, at - after))
        if not records or records[0].seq != after + 1 or records[-1].seq > at:
            raise LogError(f"session {source!r}: event {after + 1} is missing: it cannot be forked.")
        return records

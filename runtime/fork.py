"""Fork: a new root session whose log begins as another's does; rewind: a fork that takes the other's id."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import attrs
from msgspec.structs import replace

from callboard.actors.errors import LogError, SessionClosed, SessionNotFound, UsageError
from callboard.actors.eventlog import EventLog
from callboard.actors.events import SessionForked, SessionOpened
from callboard.actors.stage import Stage
from callboard.actors.store import FORKING, REWOUND, Change, Header, Record
from callboard.runtime.lookup import Lookup
from callboard.runtime.registry import Registry
from callboard.runtime.waiting import Pending

MAKING = "{id}~rewind"  # the fork while it is being made, which nobody sees
BEFORE = "{id}~{number}"  # the old log
PAGE_MAX = 200  # records that are in memory at once; each page is durable before the next is read


@attrs.frozen
class Rewound:
    """What a session was rewound to: its handle, the id that its old log is read under, and the last event kept."""

    session: Any
    old: str
    at: int


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
        end: Callable[[str], Awaitable[None]],
    ) -> None:
        """`alone(id)` keeps others from the id meanwhile; `open_(id)` opens a session of the store.

        `end(id)` ends one and all below it, from inside `alone`.
        """
        self._stage, self._registry, self._lookup = stage, registry, lookup
        self._on_trio, self._alone, self._open, self._end = on_trio, alone, open_, end

    async def fork(self, source: str, at: Any, target: str) -> Any:
        """A handle of the new session `target`, durable; `UsageError` for a wrong `at` or an id that is taken."""
        check_point("fork", at)
        return await self._on_trio(partial(self._fork, source, at, target))

    async def _fork(self, source: str, at: int | None, target: str) -> Any:
        self._check_open()
        await self._settled(source)
        async with self._alone(target):
            if target in self._registry or await self._lookup.taken(target):
                raise UsageError(f"session {target!r} exists already: choose another id for the fork.")
            forked = SessionForked(source, await self._point("fork", source, at))
            await self._copy(source, target, forked, "idle", target)
        return await self._open(target)

    async def rewind(self, source: str, at: Any) -> Rewound:
        """The session goes on from `at`: a fork takes its id, at one moment; its agents end, its readers too.

        Raises `UsageError` for a wrong `at`, an agent, or a store that cannot rename.
        """
        check_point("rewind", at)
        if not callable(getattr(self._stage.store, "rename", None)):
            raise UsageError("this store cannot give sessions other ids: fork the session instead.")
        found: Rewound = await self._on_trio(partial(self._rewind, source, at))
        return found

    async def _rewind(self, source: str, at: int | None) -> Rewound:
        self._check_open()
        await self._settled(source)
        async with self._alone(source):
            point, made = await self._point("rewind", source, at), MAKING.format(id=source)
            header = await self._lookup.header(source)
            if header is None or header.parent is not None:
                raise UsageError(f"session {source!r} is an agent: fork it, or rewind {header and header.root!r}.")
            if header.rewound:
                raise UsageError(f"session {source!r} is the old log of one that was rewound: fork it instead.")
            async with self._alone(made):
                with self._registry.opening(source), self._registry.opening(made):
                    await self._claimed(source)
                    old = await self._make(source, point, made)
                    await self._claimed(source)
                    await self._end(source)
                    await self._rename(changes_of(source, old, made, await self._lookup.headers(unfinished=True)))
        return Rewound(await self._open(source), old, point)

    async def _make(self, source: str, at: int, made: str) -> str:
        """Write the fork that will be the session, which nobody sees yet; the id that the old log will have."""
        known = await self._lookup.headers(unfinished=True)
        left = next((header for header in known if header.id == made), None)
        if left is not None and left.status != FORKING:
            raise UsageError(
                f"session {made!r} is in the way: the fork of {source!r} is called that while it is made; fork it."
            )
        if left is not None:  # a crash left it
            await self._rename([Change(made, None)])
        old = free_id(source, [header.id for header in known])
        await self._copy(source, made, SessionForked(old, at), FORKING, source)
        return old

    async def _claimed(self, session: str) -> None:
        """It is ours, before anything of it is copied, and before it ends: another program may have it."""
        answered = Pending()
        self._stage.store.claim(session, answered.reply)
        await answered.get()

    async def _rename(self, changes: list[Change]) -> None:
        answered, store = Pending(), self._stage.store
        rename: Callable[..., None] = getattr(store, "rename")  # noqa: B009 - not every Store has it
        rename(changes, answered.reply)
        await answered.get()

    async def _settled(self, source: str) -> None:
        live = self._registry.get(source)
        if live is not None:
            await live.log.synced()

    def _check_open(self) -> None:
        if not self._registry.open:
            raise SessionClosed("the runtime is closing: no session starts any more.")

    async def _point(self, verb: str, source: str, at: int | None) -> int:
        """The last event that is copied."""
        header = await self._lookup.header(source)
        if header is None:
            raise SessionNotFound(f"there is no session {source!r} in this store.")
        last = header.events - 1
        if at is not None and at > last:
            raise UsageError(f"{verb} takes an event of session {source!r}, whose last one is {last}, got {at}.")
        boundary = await self._lookup.boundary(source, last if at is None else at)
        if at is not None and at != boundary:
            raise UsageError(
                f"{verb} takes the end of a turn or an event between turns: event {at} of session {source!r} lies "
                f"inside a turn; event {boundary} is the last one before it."
            )
        return boundary

    async def _copy(self, source: str, target: str, forked: SessionForked, status: str, name: str) -> None:
        """Write the log of the fork: its own opening, then page after page, then where all of it came from.

        It is written under the id `target`, and will be read under `name`.
        """
        stage, at = self._stage, forked.at
        (first,) = await self._page(source, -1, 0)
        opened = stage.codec.decode(first.body)
        if not isinstance(opened, SessionOpened):
            raise LogError(f"session {source!r} begins with {type(opened).__name__}: it cannot be forked.")
        opening = replace(opened, parent=None, root=name, depth=0, path="/root")
        header = Header(target, None, target, opening.path, opening.title, FORKING, created_ms=stage.now_ms())
        log = EventLog(target, stage.store, stage.codec, stage.folds, stage.now_ms, stage.on_event)
        log.append(opening, at_ms=first.at_ms, header=header)
        while log.seq <= at:
            records = await self._page(source, log.seq - 1, at)
            stage.store.append(target, records)
            log.seq += len(records)  # as they are: nothing here has to fold them
            await log.flush()
        log.append(forked, header=replace(header, status=status))
        await log.flush()

    async def _page(self, source: str, after: int, at: int) -> list[Record]:
        """The next records up to `at`, at least one."""
        records = await self._lookup.records(source, after, min(PAGE_MAX, at - after))
        if not records or records[0].seq != after + 1 or records[-1].seq > at:
            raise LogError(f"session {source!r}: event {after + 1} is missing: it cannot be forked.")
        return records


def check_point(verb: str, at: Any) -> None:
    """A `UsageError` for what is no event of any log."""
    if at is not None and (not isinstance(at, int) or isinstance(at, bool) or at < 0):
        raise UsageError(
            f"{verb} takes the number of an event from 0, or none for the last point between turns, got {at!r:.80}."
        )


def free_id(source: str, ids: Sequence[str]) -> str:
    """The first id for the old log of a session that neither a session nor one below it has."""
    number, taken = 1, set(ids)
    while (old := BEFORE.format(id=source, number=number)) in taken or any(id_.startswith(f"{old}.") for id_ in taken):
        number += 1
    return old


def changes_of(source: str, old: str, made: str, headers: Sequence[Header]) -> list[Change]:
    """What a rewind changes: `made` becomes the session; its old log and all agents below make room, due no more."""
    tree = [header for header in headers if header.id == source or (header.root == source and header.id != made)]
    ids = {one.id: old + one.id.removeprefix(source) for one in tree if one.id == source or below(one.id, source)}
    changes = [
        Change(
            one.id,
            replace(
                one,
                id=ids.get(one.id, one.id),
                parent=ids.get(one.parent or "", one.parent),
                root=old,
                status=REWOUND,
                due_ms=None,
            ),
        )
        for one in tree
    ]
    created_ms = next((one.created_ms for one in tree if one.id == source), 0)
    forked = [one for one in headers if one.id == made]
    changes += [
        Change(made, replace(one, id=source, root=source, status="idle", created_ms=created_ms)) for one in forked
    ]
    return changes


def below(session: str, above: str) -> bool:
    """Whether an id is that of an agent below another, as they are named when they are started."""
    return session.startswith(f"{above}.")

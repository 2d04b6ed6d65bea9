"""crash_at_each_append: a story that dies at every append it makes, and what must be true of the next life."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import attrs
import trio

from callboard.actors.books import HISTORY, QUEUE
from callboard.actors.errors import UsageError
from callboard.actors.eventlog import LOGGER
from callboard.actors.events import Event
from callboard.actors.faults import KEPT, FaultyStore, Kept, Write
from callboard.actors.lab import LabSession
from callboard.actors.memory import MemoryStore
from callboard.actors.phase import Phase
from callboard.actors.promises import check_history, check_log, check_messages
from callboard.actors.seeds import Bounds, name_of, run_in_virtual_time
from callboard.actors.store import Store

SAYS: Final = {
    "synced": "with no more on the disk than what somebody had waited for",
    "before": "before it reached the disk",
    "after": "once it was on the disk, before anybody heard",
}
NO_POINTS = "at names no death to play: leave it out for all of them."
NO_APPENDS = "{name} appended nothing to the store that opens(store) was given, so nothing dies: pass it to open_lab."
NEXT = "What now?"
ALL_MAX = 1_000_000


class World(Protocol):
    """What a story plays in, as far as this module knows: a lab, or something like it."""

    @property
    def accepted(self) -> Sequence[tuple[str, int, bytes]]:
        """What was said to be durable: the session, the number, and the event as the store had it then."""
        ...

    async def reopen(self) -> Sequence[LabSession]:
        """Open every session that the store has, and return those that go on once all of them rest."""
        ...

    def records(self, id: str = "s") -> Sequence[Event]:
        """Everything on a session's log, as the store has it."""
        ...

    def check(self) -> None:
        """Raise when a log does not replay to the state of its session."""
        ...


W = TypeVar("W", bound=World)
Opens: TypeAlias = Callable[[Store], AbstractAsyncContextManager[W]]
Check: TypeAlias = Callable[[W], Awaitable[None] | None]
Point: TypeAlias = tuple[int, Kept]


@attrs.define(eq=False)
class _Life:
    """One run of the story, up to its death or its end."""

    story: Callable[[Any], Awaitable[None]]
    opens: Opens[Any]
    check: Check[Any] | None
    inner: Store
    writes: list[tuple[Write, int]] = attrs.field(factory=list)  # each with how many were not synced then
    accepted: Sequence[tuple[str, int, bytes]] = ()

    def _store(self, n: int, kept: Kept) -> FaultyStore:
        def tears(write: Write) -> bool:
            self.writes.append((write, store.unsynced))
            return write.n == n

        store = FaultyStore(self.inner, tear_at=tears, kept=kept)
        return store

    async def whole(self) -> None:
        """(Trio) To its end, and then the next life, as after every other end."""
        store = self._store(0, "after")
        async with self.opens(store) as world:
            await self.story(world)
            self.accepted = world.accepted
        await self._next(store)

    async def until(self, n: int, kept: Kept) -> None:
        """(Trio) To its death at append `n`, and the next life."""
        store = self._store(n, kept)

        def lives(record: logging.LogRecord) -> bool:
            return store.torn_at is None  # what a program without a disk complains of while it dies is no news

        LOGGER.addFilter(lives)
        try:
            with trio.CancelScope() as program:
                store.on_tear = lambda write: program.cancel()
                async with self.opens(store) as world:
                    self.accepted = world.accepted
                    await self.story(world)
        except BaseException:
            if store.torn_at is None:
                raise
        finally:
            LOGGER.removeFilter(lives)
        if store.torn_at is None:
            raise AssertionError(f"the story made {store.appends} appends this time: let it do the same each time.")
        await self._next(store)

    async def _next(self, store: FaultyStore) -> None:
        """Everything that was promised is there, nothing is there twice or half, and it goes on."""
        store.tear_at = lambda write: False
        store.open(trio.lowlevel.current_trio_token().run_sync_soon)
        found = {one.id: store.read(one.id, -1, ALL_MAX) for one in store.headers() if not one.unfinished}
        for session, seq, body in self.accepted:
            kept = found.get(session, [])
            assert [one.body for one in kept[seq : seq + 1]] == [body], (
                f"event {seq} of {session!r} was accepted, and is lost"
            )
        async with self.opens(store) as world:
            sessions = await world.reopen()
            await self._check_logs(world, sessions)
            for session in sessions:
                ended = await session.run(NEXT)
                assert ended.reason == "completed", f"the next turn of {session.actor.id!r} ended {ended.reason}"
            await self._check_logs(world, sessions)
            world.check()
            for one, records in found.items():
                assert store.read(one, -1, len(records)) == records, f"what {one!r} had written is not what it was"
            checking = self.check(world) if self.check is not None else None
            if checking is not None:
                await checking

    async def _check_logs(self, world: World, sessions: Sequence[LabSession]) -> None:
        while any(session.actor.phase is not Phase.IDLE for session in sessions):  # one may start another
            for session in sessions:
                await session.wait_idle()
        for session in sessions:
            await session.log.flush()
        for session in sessions:
            log = session.log
            events = world.records(log.session)
            check_log(events)
            check_history(log[HISTORY].messages)
            check_messages(events, [message.id for message in log[QUEUE]])


def crash_at_each_append(
    story: Callable[[W], Awaitable[None]],
    check: Check[W] | None = None,
    *,
    opens: Opens[W],
    at: Iterable[Point] | None = None,
    seed: int = 0,
    store: Callable[[], Store] = MemoryStore,
    bounds: Bounds | None = None,
) -> int:
    """Play a story once for each append and each way to die there, look at the next life each time; how many deaths.

    `opens(store)` is a lab on that store: `lambda store: open_lab(model, plugins=[...], store=store)`; `story(lab)`
    plays in it, the same way each time. A first run counts the appends. Then the program dies at each: with it on the
    disk but before anybody hears ("after"), before it got there ("before"), and with nothing on the disk that nobody
    waited for ("synced"). A new lab opens the same store: what was accepted is there, no call is without a result, each
    turn ends once, no message is lost or there twice, replay gives the same state, a next turn works; then `check(lab)`
    may look at what the plugin promises. A failure is raised with a note that says the append and how to repeat it;
    `at` plays these deaths alone.
    """
    limits = bounds or Bounds()

    def life() -> _Life:
        return _Life(story, opens, check, store())

    first = life()
    try:
        run_in_virtual_time(first.whole, seed=seed, bounds=limits)
    except Exception as error:
        error.add_note(f"{name_of(story)} or the life after it failed, and nothing had died.")
        raise
    total = first.writes
    if not total:
        raise UsageError(NO_APPENDS.format(name=name_of(story)))
    points = tuple(_points(total) if at is None else at)
    if not points:
        raise UsageError(NO_POINTS)
    count = 0
    for n, kept in points:
        one = life()
        try:
            run_in_virtual_time(one.until, n, kept, seed=seed, bounds=limits)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            where = one.writes[n - 1][0] if n <= len(one.writes) else f"append {n}"
            error.add_note(
                f"killed at {where} of {len(total)}, {SAYS[kept]}: repeat it with "
                f"crash_at_each_append({name_of(story)}, ..., at=[({n}, {kept!r})], seed={seed})"
            )
            raise
        count += 1
    return count


def _points(writes: Iterable[tuple[Write, int]]) -> list[Point]:
    """Each append with each way to die there; where nothing else waits for the disk, two of them are one."""
    return [(one.n, kept) for one, unsynced in writes for kept in (KEPT if unsynced > 1 else KEPT[1:])]

"""What one turn does, counted: tasks, scopes, scheduler rounds, appends, encodes, syncs; the same on every machine."""

import asyncio
import cProfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio

from callboard.actors.codec import Codec
from callboard.actors.eventlog import EventLog
from callboard.actors.memory import MemoryStore
from callboard.runtime.clock import WallClock
from callboard.runtime.guest import Guest
from callboard.runtime.stores.commits import Commits

from .sides import STEPS_MAX, is_whole, runtime


class Tasks(trio.abc.Instrument):
    """Counts tasks begun, times a task ran, and rounds of the scheduler."""

    def __init__(self, counted: "Counter[str]") -> None:
        self._counted = counted

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        """A task was made."""
        self._counted["tasks"] += 1

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A task runs to its next wait."""
        self._counted["task_steps"] += 1

    def before_io_wait(self, timeout: float) -> None:
        """A round of the scheduler begins."""
        self._counted["rounds"] += 1
        self._counted["sleeps"] += timeout > 0


PLACES: tuple[tuple[str, Any, str], ...] = (
    ("scopes", trio.CancelScope, "__enter__"),
    ("appends", EventLog, "append"),
    ("encodes", Codec, "encode"),
    ("flushes", EventLog, "flush"),
    ("now_ms", WallClock, "now_ms"),
    ("store_appends", MemoryStore, "append"),
    ("store_syncs", MemoryStore, "sync"),
    ("store_appends", Commits, "append"),
    ("store_syncs", Commits, "sync"),
    ("commits", Commits, "_commit"),
    ("loop_rounds", asyncio.BaseEventLoop, "_run_once"),
    ("loop_handles", asyncio.Handle, "_run"),
)


@contextmanager
def _counting(counted: "Counter[str]") -> Iterator[None]:
    """Count the calls of `PLACES`; every place is as before afterwards."""
    before: list[tuple[Any, str, Any]] = []
    try:
        for name, owner, attribute in PLACES:
            original = getattr(owner, attribute)
            before.append((owner, attribute, owner.__dict__.get(attribute)))
            setattr(owner, attribute, _counted(name, original, counted))
        yield
    finally:
        for owner, attribute, original in reversed(before):
            if original is None:
                delattr(owner, attribute)
            else:
                setattr(owner, attribute, original)


def _counted(name: str, original: Callable[..., Any], counted: "Counter[str]") -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        counted[name] += 1
        return original(*args, **options)

    return call


def of_turn(store: str = "memory", turns: int = 5, after: int = 1, **options: Any) -> dict[str, float]:
    """Counts of each step of a turn of `sides.script`, the mean of some turns of one session after its first ones."""
    counted: Counter[str] = Counter()

    async def main() -> None:
        async with runtime(store, **options) as rt:
            guest = await Guest.enter()
            session = await rt.create()
            for _ in range(after):
                await session.run("go")
            tasks, before = Tasks(counted), session.state()["seq"]

            async def watch(change: Callable[[trio.abc.Instrument], None]) -> None:
                change(tasks)

            await guest.start(watch, trio.lowlevel.add_instrument)
            counted.clear()
            for _ in range(turns):
                assert is_whole(await session.run("go"))
            found.update(counted)
            found["events"] = session.state()["seq"] - before
            await guest.start(watch, trio.lowlevel.remove_instrument)
            await guest.leave()

    found: Counter[str] = Counter()
    with _counting(counted):
        asyncio.run(main())
    return {name: count / turns / STEPS_MAX for name, count in sorted(found.items())}


def of_create(sessions: int = 200) -> tuple[float, float]:
    """Trio tasks, and calls of Python and C functions, for each of many sessions created at once."""
    counted: Counter[str] = Counter()

    async def main() -> tuple[float, float]:
        async with runtime("memory") as rt:
            guest, profile = await Guest.enter(), cProfile.Profile()
            await asyncio.gather(*(rt.create() for _ in range(10)))

            async def watch() -> None:
                trio.lowlevel.add_instrument(Tasks(counted))

            await guest.start(watch)
            counted.clear()
            with profile:
                created = await asyncio.gather(*(rt.create() for _ in range(sessions)))
                await created[-1].wait_idle()
            await guest.leave()
            return counted["tasks"], sum(entry.callcount for entry in profile.getstats())

    tasks, calls = asyncio.run(main())
    return tasks / sessions, calls / sessions

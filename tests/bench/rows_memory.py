"""10,000 idle sessions: CPU to start one, memory of one, the pause of a full collection; and turns that wait."""

import asyncio
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from callboard.actors import Reply
from callboard.actors.model import Prompt
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.garbage import PROCESS
from callboard.runtime.settings import Bounds

from .floor_actors import idle, waiting
from .measure import Pauses, Span, collection_ms, now_s, resident_bytes, settle
from .row import Figures, Goal, Row
from .sides import add, with_gc

AT_ONCE = 100
WARM_BATCHES = 5
BEGIN_S_MAX = 30.0


class Silent:
    """A model that does not answer for an hour; says how many requests wait."""

    provider = "scripted"

    def __init__(self) -> None:
        self.waiting = 0

    async def reply(self, prompt: Prompt, say: Any) -> Reply:
        """Nothing."""
        self.waiting += 1
        await trio.sleep(3600)
        return Reply()


def idle_sessions(sessions: int) -> Figures:
    """Sessions that are open and idle; the runtime is left open, because this program ends here."""
    return _left_open(_idle(sessions))


def _left_open(main: Any) -> Figures:
    loop = asyncio.new_event_loop()
    figures: Figures = loop.run_until_complete(main)
    return figures


async def _idle(sessions: int) -> Figures:
    rt = await open_runtime(with_gc("manage"), model=Silent(), tools=[add]).start()
    await rt.create()

    async def begin(count: int) -> None:
        await asyncio.gather(*(rt.create() for _ in range(count)))

    figures = await _held(begin, sessions)
    assert len(rt.sessions()) == sessions + 1
    with Pauses() as all_at_once:
        PROCESS.look(idle=True)
    PROCESS.leave()
    return {**figures, "idle_collection_ms": all_at_once.max_ms, "left_collection_ms": collection_ms()}


def idle_floor(sessions: int) -> Figures:
    """A task, a nursery and a scope for each."""
    return trio.run(_floor, idle, sessions, 1)


def passivated_sessions(sessions: int) -> Figures:
    """Sessions of a store on disk that left memory: created, made to leave, and woken again at the end."""
    with tempfile.TemporaryDirectory() as folder:
        return _left_open(_passivated(sessions, f"sqlite:///{folder}/x.db?durability=normal"))


async def _passivated(sessions: int, store: str) -> Figures:
    bounds = Bounds(idle_evict_s=None)
    rt = await open_runtime(RuntimeConfig(runtime=bounds), model=Silent(), tools=[add], store=store).start()
    registry = rt._sessions.registry
    created: list[str] = []

    async def leave() -> None:
        for actor in tuple(registry.live.values()):
            registry.evict(actor)
        while registry.live:
            await asyncio.sleep(0.001)

    async def begin(count: int) -> None:
        created.extend(one.id for one in await asyncio.gather(*(rt.create() for _ in range(count))))
        await leave()

    for _ in range(WARM_BATCHES):  # what comes once: page caches, threads, the room of a batch
        await begin(AT_ONCE)
    figures = await _held(begin, sessions)
    assert len(registry.cold) == sessions + WARM_BATCHES * AT_ONCE
    some = created[-AT_ONCE:]
    with Span() as span:
        for id_ in some:
            registry.awake(id_)
        while any(registry.state(id_) != "live" for id_ in some):
            await asyncio.sleep(0.001)
    await rt.close()
    return {**figures, "cpu_us_wake": span.cpu_s / len(some) * 1e6}


def passivated_floor(sessions: int) -> Figures:
    """An id and a small record for each in a dict, and a row of it in a SQLite file."""
    with tempfile.TemporaryDirectory() as folder:
        loop = asyncio.new_event_loop()
        return loop.run_until_complete(_passivated_floor(sessions, f"{folder}/x.db"))


async def _passivated_floor(sessions: int, path: str) -> Figures:
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("CREATE TABLE events (id TEXT PRIMARY KEY, body BLOB) WITHOUT ROWID")
    known: dict[str, tuple[int, bool]] = {}

    async def begin(count: int) -> None:
        for _ in range(count):
            known[id_ := f"s-{len(known):020}"] = (len(known), True)
            db.execute("INSERT INTO events VALUES (?, ?)", (id_, b"{}"))
        db.commit()

    for _ in range(WARM_BATCHES):
        await begin(AT_ONCE)
    figures = await _held(begin, sessions)
    some = list(known)[-AT_ONCE:]
    with Span() as span:
        for id_ in some:
            assert db.execute("SELECT body FROM events WHERE id = ?", (id_,)).fetchone()
    db.close()
    return {**figures, "cpu_us_wake": span.cpu_s / len(some) * 1e6}


def waiting_turns(sessions: int) -> Figures:
    """Turns whose model has not answered; what a session itself takes is in the figure."""
    return _left_open(_waiting(sessions))


async def _waiting(sessions: int) -> Figures:
    model = Silent()
    rt = await open_runtime(model=model, tools=[add]).start()

    async def one() -> None:
        session = await rt.create()
        await session.submit("go")

    async def begin(count: int) -> None:
        due, until_s = model.waiting + count, now_s() + BEGIN_S_MAX
        await asyncio.gather(*(one() for _ in range(count)))
        while model.waiting < due and now_s() < until_s:
            await asyncio.sleep(0.001)

    await begin(1)
    figures = await _held(begin, sessions)
    assert model.waiting == sessions + 1
    return figures


def waiting_floor(sessions: int) -> Figures:
    """The task of a session, and under it that of a turn with a nursery and a scope."""
    return trio.run(_floor, waiting, sessions, 2)


async def _floor(body: Callable[[trio.Event], Awaitable[None]], sessions: int, tasks_each: int) -> Figures:
    async with trio.open_nursery() as nursery:
        over = trio.Event()

        async def begin(count: int) -> None:
            for _ in range(count):
                nursery.start_soon(body, over)
            for _ in range(1 + tasks_each):
                await trio.lowlevel.checkpoint()

        before = trio.lowlevel.current_statistics().tasks_living
        figures = await _held(begin, sessions)
        assert trio.lowlevel.current_statistics().tasks_living == before + sessions * tasks_each
        nursery.cancel_scope.cancel()
    return figures


async def _held(begin: Callable[[int], Awaitable[None]], sessions: int) -> dict[str, float]:
    """Figures of so many sessions, begun some at a time and held."""
    settle()
    before = resident_bytes()
    with Span() as span, Pauses() as pauses:
        for _ in range(sessions // AT_ONCE):
            await begin(AT_ONCE)
    settle()
    held = resident_bytes() - before
    return {
        "cpu_us_spawn": span.cpu_s / sessions * 1e6,
        "us_spawn": span.wall_s / sessions * 1e6,
        "kb_each": held / sessions / 1024,
        "pause_max_ms": pauses.max_ms,
        "full_collection_ms": collection_ms(),
    }


SHOWN = ("cpu_us_spawn", "us_spawn", "kb_each", "full_collection_ms")
ROWS = (
    Row(
        "memory.idle",
        "10,000 idle sessions: to start one, to hold one, to collect garbage beside them",
        idle_sessions,
        idle_floor,
        (*SHOWN, "pause_max_ms", "idle_collection_ms", "left_collection_ms"),
        {"sessions": 10_000},
        {"sessions": 200},
        {"cpu_us_spawn": Goal(1.9, 60), "kb_each": Goal(1.4, 6.5), "full_collection_ms": Goal(0.3, 20)},
        apart=True,
    ),
    Row(
        "memory.passivated",
        "10,000 sessions that left memory, on disk: to start one and let it go, to keep one, to load one again",
        passivated_sessions,
        passivated_floor,
        ("cpu_us_spawn", "kb_each", "full_collection_ms", "cpu_us_wake"),
        {"sessions": 10_000},
        {"sessions": 200},
        {"kb_each": Goal(value=0.5)},
        apart=True,
    ),
    Row(
        "memory.waiting",
        "5,000 turns that wait for their model: to start one, to hold one, to collect garbage beside them",
        waiting_turns,
        waiting_floor,
        SHOWN,
        {"sessions": 5_000},
        {"sessions": 200},
        {"kb_each": Goal(value=9)},
        apart=True,
    ),
)

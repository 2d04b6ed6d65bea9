"""10,000 idle sessions: CPU to start one, memory of one, the pause of a full collection; and turns that wait."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from callboard.actors import Reply
from callboard.actors.model import Prompt
from callboard.runtime import open_runtime
from callboard.runtime.garbage import PROCESS

from .floor_actors import idle, waiting
from .measure import Pauses, Span, collection_ms, now_s, resident_bytes, settle
from .row import Figures, Goal, Row
from .sides import add, with_gc

AT_ONCE = 100
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

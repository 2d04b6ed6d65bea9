"""What a step costs: 11 steps a turn, 10 calls, one of them a plan update, a model that answers at once."""

import asyncio
from collections.abc import Iterator
from functools import partial

import trio

from .floor_step import Steps, with_steps
from .guest import run_guest
from .measure import Span, late, now_s, settle
from .row import Figures, Goal, Row
from .sides import STEPS_MAX, is_whole, runtime

SHOWN = ("us_step", "cpu_us_step", "turn_p50_ms", "turn_p99_ms")
STORES = {"memory": "nothing kept", "normal": "SQLite NORMAL", "full": "SQLite FULL"}
SECONDS_MAX = 1.5  # a side of a round measures no longer; a slow disk takes fewer turns instead
GOALS = {
    ("memory", 1): {"cpu_us_step": Goal(3.3, 60)},
    ("normal", 1): {"us_step": Goal(2.2, 120)},
    ("normal", 200): {"us_step": Goal(3.0, 50)},
}


def ours(store: str, sessions: int, batches: int) -> Figures:
    """Turns of new sessions, `sessions` at once; making and stopping them is not in the figures."""
    return asyncio.run(_ours(store, sessions, batches))


async def _ours(store: str, sessions: int, batches: int) -> Figures:
    span, takes = Span(), list[float]()
    async with runtime(store) as rt:

        async def one(session):
            begun_s = now_s()
            ended = await session.run("go")
            takes.append(now_s() - begun_s)
            return ended

        for batch in range(-1, batches):
            live = [await rt.create() for _ in range(sessions)]
            if batch <= 0:
                settle()
                span, takes[:] = Span(), []  # the first batch is for warming up
            with span:
                ends = [await one(live[0])] if sessions == 1 else await asyncio.gather(*map(one, live))
            assert all(map(is_whole, ends)), ends[0]
            assert len(live[0].state()["plan"]["plan"]) == 4, live[0].state()
            for session in live:
                await session.stop()
            if span.wall_s > SECONDS_MAX:
                break
    return _figures(span, takes)


def floor(store: str, sessions: int, batches: int) -> Figures:
    """The same turns by hand, inside Trio."""

    async def main(steps: Steps, _: trio.Nursery) -> Figures:
        span, takes = Span(), list[float]()

        async def one(session: str) -> None:
            begun_s = now_s()
            assert await steps.turn(session) == STEPS_MAX
            takes.append(now_s() - begun_s)

        for batch in range(-1, batches):
            if batch <= 0:
                settle()
                span, takes[:] = Span(), []
            with span:
                if sessions == 1:
                    await one(f"s{batch}")
                else:
                    async with trio.open_nursery() as nursery:
                        for at in range(sessions):
                            nursery.start_soon(one, f"s{batch}-{at}")
            if span.wall_s > SECONDS_MAX:
                break
        return _figures(span, takes)

    figures: Figures = run_guest(with_steps, store, main)
    return figures


def _figures(span: Span, takes: list[float]) -> Figures:
    return {**span.us_each(len(takes) * STEPS_MAX, "step"), **late(takes, prefix="turn_")}


def _rows() -> Iterator[Row]:
    for sessions, batches in ((1, 300), (200, 4)):
        for store, told in STORES.items():
            yield Row(
                f"step.{store}.{sessions}",
                f"a step, {sessions} session{'s' * (sessions > 1)}, {told}",
                partial(ours, store),
                partial(floor, store),
                SHOWN,
                {"sessions": sessions, "batches": batches},
                {"sessions": min(sessions, 20), "batches": 3},
                GOALS.get((store, sessions), {}),
            )


ROWS = tuple(_rows())

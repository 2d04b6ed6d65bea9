"""Durable events: producers that append one event each and wait until it is on the disk, again and again."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import trio

from callboard.actors.books import BUILT_IN
from callboard.actors.codec import Codec
from callboard.actors.eventlog import EventLog
from callboard.actors.events import SessionOpened
from callboard.actors.facts import PlanStep, PlanUpdated
from callboard.actors.fold import Folds
from callboard.actors.store import Header
from callboard.plugins.plan import PLAN
from callboard.runtime.stores import open_store

from .floor_step import GroupCommit, Put
from .guest import in_guest, run_guest
from .measure import Span, at, late, now_s
from .row import Figures, Goal, Row

EVENT = PlanUpdated("because", tuple(PlanStep("a step of the plan, some words long", "pending") for _ in range(3)))
TICK_S = 0.001
GOALS = {
    ("full", 1): {"put_p50_us": Goal(1.8, 250)},
    ("normal", 1): {"put_p50_us": Goal(4.6, 60)},
    ("normal", 100): {"events_per_s": Goal(0.5, 50_000)},
    ("normal", 1000): {"events_per_s": Goal(0.5, 50_000)},
}


def ours(durability: str, producers: int, seconds: float) -> Figures:
    """A session's log for each producer, on one store."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_ours(Path(folder) / "bench.db", durability, producers, seconds))


async def _ours(path: Path, durability: str, producers: int, seconds: float) -> Figures:
    store = open_store(f"sqlite:///{path}?durability={durability}")
    loop = asyncio.get_running_loop()
    store.open(lambda fn: _no_handle(loop.call_soon_threadsafe(fn)))
    codec, folds, told = Codec(), Folds((*BUILT_IN, PLAN)), 0

    def listen(event: object, session: str, turn: int | None) -> None:
        nonlocal told
        told += 1

    logs = [EventLog(f"s{number}", store, codec, folds, lambda: 1, listen) for number in range(producers)]
    for log in logs:
        log.append(SessionOpened(root=log.session), header=Header(log.session, root=log.session))

    async def put(number: int) -> None:
        logs[number].append(EVENT)
        await logs[number].flush()

    figures, count = await in_guest(_produced, put, producers, seconds)
    assert told == count + producers
    assert sum(log.durable for log in logs) == count
    assert len(store.read("s0", 0, 1_000_000)) == logs[0].durable
    await asyncio.to_thread(store.close)
    return dict(figures)


def _no_handle(_: object) -> None:
    """What `run_soon` returns."""


def floor(durability: str, producers: int, seconds: float) -> Figures:
    """The same events by hand, into one group commit."""

    async def main() -> Figures:
        with tempfile.TemporaryDirectory() as folder:
            commits, body = GroupCommit(durability, folder), Codec().encode(EVENT)
            seqs = [0] * producers

            async def put(number: int) -> None:
                commits.put(Put(f"s{number}", seqs[number], now_s(), "plan", body=body))
                seqs[number] += 1
                await commits.durable()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(commits.commits)
                figures, count = await _produced(put, producers, seconds)
                nursery.cancel_scope.cancel()
            assert commits.events == count
            commits.close()
            return figures

    figures: Figures = run_guest(main)
    return figures


async def _produced(
    put: Callable[[int], Awaitable[None]], producers: int, seconds: float
) -> tuple[dict[str, float], int]:
    """(Trio) What the producers reached, and how late Trio's timers were meanwhile; the number of events."""
    takes, lates = list[float](), list[float]()
    for number in range(producers):
        await put(number)
    until_s = now_s() + seconds

    async def produce(number: int) -> None:
        while (begun_s := now_s()) < until_s:
            await put(number)
            takes.append(now_s() - begun_s)

    async def tick() -> None:
        while (begun_s := now_s()) < until_s:
            await trio.sleep(TICK_S)
            lates.append(now_s() - begun_s - TICK_S)

    with Span() as span:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick)
            for number in range(producers):
                nursery.start_soon(produce, number)
    figures = {
        "events_per_s": len(takes) / span.wall_s,
        "cpu_us_event": span.cpu_s / len(takes) * 1e6,
        **late(takes, "us", "put_"),
        "lag_trio_p99_ms": at(lates or [0.0], 99) * 1e3,
    }
    return figures, len(takes) + producers


def _rows() -> Iterator[Row]:
    for durability in ("normal", "full"):
        for producers in (1, 10, 100, 1000):
            yield Row(
                f"events.{durability}.{producers}",
                f"durable events, {producers:,} producer{'s' * (producers > 1)}, SQLite {durability.upper()}",
                partial(ours, durability),
                partial(floor, durability),
                ("events_per_s", "cpu_us_event", "put_p50_us", "put_p99_us", "lag_trio_p99_ms"),
                {"producers": producers, "seconds": 0.8},
                {"producers": min(producers, 20), "seconds": 0.1},
                GOALS.get((durability, producers), {}),
            )


ROWS = tuple(_rows())

"""Asking and telling actors: inside Trio, and from asyncio across to Trio and back."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeAlias

import trio

from callboard.actors.messages import Await
from callboard.runtime.guest import Guest

from .floor_actors import Actor, Answer
from .guest import in_guest
from .measure import Span, late, now_s, settle
from .row import Figures, Goal, Row
from .sides import runtime

CLIENTS = 64
BURST = 1_000
CREATED_AT_ONCE = 200
Asks: TypeAlias = Callable[[int], Awaitable[object]]
Gather: TypeAlias = Callable[[Callable[[int], Awaitable[None]], int], Awaitable[None]]


def ours(actors: int, seconds: float) -> Figures:
    """Sessions that are asked whether they are idle: a message through the mailbox that does nothing else."""
    return asyncio.run(_ours(actors, seconds))


async def _ours(actors: int, seconds: float) -> Figures:
    async with runtime() as rt:
        live = await _sessions(rt, actors)
        sessions = [rt.actor(handle.id) for handle in live]

        async def ask_inside(at: int) -> None:
            answer = Answer()
            sessions[at % actors].tell(Await(reply=answer.give))
            await answer.wait()

        def tell(at: int, done: Callable[[object], None]) -> None:
            sessions[at % actors].tell(Await(reply=done))

        async def inside() -> dict[str, float]:
            return await _inside(ask_inside, tell, seconds)

        guest = await Guest.enter()
        figures: dict[str, float] = await guest.start(inside)
        await guest.leave()
        figures |= await _across(lambda at: live[at % actors].wait_idle(), seconds)
        assert len(rt.sessions()) == actors
    return figures


async def _sessions(rt: Any, count: int) -> Sequence[Any]:
    live: list[Any] = []
    while len(live) < count:
        live += await asyncio.gather(*(rt.create() for _ in range(min(CREATED_AT_ONCE, count - len(live)))))
    return live


def floor(actors: int, seconds: float) -> Figures:
    """The same by hand, in a stock guest."""
    return asyncio.run(_floor(actors, seconds))


async def _floor(actors: int, seconds: float) -> Figures:
    figures: dict[str, float] = {}
    loop, live, over = asyncio.get_running_loop(), [Actor() for _ in range(actors)], asyncio.Event()

    async def ask_inside(at: int) -> None:
        answer = Answer()
        live[at % actors].tell(answer.give)
        await answer.wait()

    def tell(at: int, done: Callable[[object], None]) -> None:
        live[at % actors].tell(lambda: done(None))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for actor in live:
                nursery.start_soon(actor.run)
            await trio.lowlevel.checkpoint()
            figures.update(await _inside(ask_inside, tell, seconds))
            leave.append(nursery.cancel_scope.cancel)
            over.set()
            await trio.sleep_forever()

    async def ask_across(at: int) -> None:
        answer = loop.create_future()
        live[at % actors].tell(lambda: answer.set_result(None))
        await answer

    leave: list[Callable[[], None]] = []
    guest = asyncio.ensure_future(in_guest(main))
    await over.wait()
    figures |= await _across(ask_across, seconds)
    leave[0]()
    await guest
    return figures


async def _inside(ask: Asks, tell: Callable[[int, Callable[[object], None]], None], seconds: float) -> dict[str, float]:
    """(Trio) One client, many clients, then bursts of tells."""

    async def gather(client: Callable[[int], Awaitable[None]], count: int) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(client, number)

    figures = await _asked("trio", ask, gather, seconds)
    told, handled, drained = 0, 0, trio.Event()

    def done(_: object) -> None:
        nonlocal handled
        handled += 1
        if handled == told:
            drained.set()

    with Span() as span:
        while span.running_s < seconds:
            drained = trio.Event()
            first, told = told, told + BURST
            for at in range(first, told):
                tell(at, done)
            await drained.wait()
    assert handled == told
    return {**figures, "tell_per_s": told / span.wall_s, "tell_cpu_us": span.cpu_s / told * 1e6}


async def _across(ask: Asks, seconds: float) -> dict[str, float]:
    """(asyncio) One client, then many."""

    async def gather(client: Callable[[int], Awaitable[None]], count: int) -> None:
        await asyncio.gather(*(client(number) for number in range(count)))

    return await _asked("cross", ask, gather, seconds)


async def _asked(name: str, ask: Asks, gather: Gather, seconds: float) -> dict[str, float]:
    takes: list[float] = []

    async def client(number: int) -> None:
        until_s, count = now_s() + seconds, clients
        for at in itertools.count(number, count):
            begun_s = now_s()
            await ask(at)
            ended_s = now_s()
            takes.append(ended_s - begun_s)
            if ended_s > until_s:
                return

    figures: dict[str, float] = {}
    for clients in (1, CLIENTS):
        takes.clear()
        settle()
        with Span() as span:
            await gather(client, clients)
        if clients == 1:
            figures |= {f"{name}_cpu_us": span.cpu_s / len(takes) * 1e6, **late(takes, "us", f"{name}_")}
        else:
            figures[f"{name}_{clients}_per_s"] = len(takes) / span.wall_s
            figures[f"{name}_{clients}_cpu_us"] = span.cpu_s / len(takes) * 1e6
    return figures


def _goals(actors: int) -> dict[str, Goal]:
    at_10k = actors == 10_000
    return {
        "trio_p50_us": Goal(2.3, 15),
        "trio_64_per_s": Goal(0.4, 80_000 if at_10k else 100_000),
        "tell_per_s": Goal(0.25, None if at_10k else 700_000),
        "cross_p50_us": Goal(1.5, 60),
    }


def _rows() -> Iterator[Row]:
    for actors in (1, 100, 10_000):
        yield Row(
            f"ask.{actors}",
            f"ask and tell, {actors:,} actor{'s' * (actors > 1)}: inside Trio, and from asyncio across",
            ours,
            floor,
            (
                "trio_p50_us",
                "trio_cpu_us",
                "trio_64_per_s",
                "tell_per_s",
                "cross_p50_us",
                "cross_cpu_us",
                "cross_64_per_s",
            ),
            {"actors": actors, "seconds": 0.4},
            {"actors": min(actors, 100), "seconds": 0.05},
            _goals(actors),
        )


ROWS = tuple(_rows())

"""Tools that do not stop when they are told to: every shape that was ever found, as bodies to be hosted."""

import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import trio

Body = Callable[["Gates"], Awaitable[Any]]


class Gates:
    """What a shape may wait for, opened when its test is over so that nothing is left; `stop` ends loops in threads."""

    def __init__(self) -> None:
        self.event = trio.Event()
        self.send, self.receive = trio.open_memory_channel[int](0)
        self.lock = trio.Lock()
        self.stop = False
        self.process: trio.Process | None = None

    async def open(self) -> None:
        """Let everything go on."""
        self.stop = True
        self.event.set()
        with contextlib.suppress(trio.WouldBlock, trio.BrokenResourceError):
            self.send.send_nowait(1)
        if self.process is not None:
            self.process.kill()
            await self.process.wait()


async def shielded(seconds: float) -> None:
    """A wait that no cancellation reaches."""
    with trio.CancelScope(shield=True, deadline=float("inf")):
        await trio.sleep(seconds)


async def hard_loop(gates: Gates) -> NoReturn:
    """Shields each wait, and swallows the rest."""
    while True:
        try:
            await shielded(5)
        except trio.Cancelled:
            continue


async def spinner(gates: Gates) -> NoReturn:
    """Swallows a cancellation that comes again at once."""
    while True:
        try:
            await trio.sleep(5)
        except trio.Cancelled:
            continue


async def nursery_with_hard_children(gates: Gates) -> None:
    """Waits in a nursery for two children that do not end."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hard_loop, gates)
        nursery.start_soon(hard_loop, gates)
        await trio.sleep(5)


async def nested_three_deep(gates: Gates) -> None:
    """A hard loop in a nursery in a nursery."""

    async def middle() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hard_loop, gates)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(middle)


async def nursery_of_spinners(gates: Gates) -> None:
    """Three spinners at once."""
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(spinner, gates)


async def finally_event(gates: Gates) -> None:
    """Its clean-up waits for an event that nobody sets."""
    try:
        await hard_loop(gates)
    finally:
        with trio.CancelScope(shield=True, deadline=float("inf")):
            await gates.event.wait()


async def finally_channel(gates: Gates) -> None:
    """Its clean-up waits for a message that nobody sends."""
    try:
        await hard_loop(gates)
    finally:
        with trio.CancelScope(shield=True, deadline=float("inf")):
            await gates.receive.receive()


async def finally_thread(gates: Gates) -> None:
    """Its clean-up waits for a thread."""
    try:
        await hard_loop(gates)
    finally:
        await trio.to_thread.run_sync(time.sleep, 0.2, abandon_on_cancel=False)


async def finally_sleep(gates: Gates) -> None:
    """Its clean-up takes twice as long as the window."""
    try:
        await shielded(5)
    finally:
        await shielded(0.2)


async def finally_nursery(gates: Gates) -> None:
    """Its clean-up opens a nursery of its own."""
    try:
        await shielded(5)
    finally:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shielded, 5)
            nursery.start_soon(spinner, gates)


async def slow_child(gates: Gates) -> None:
    """A child whose clean-up takes longer than the window."""

    async def slow() -> None:
        try:
            await trio.sleep(9)
        finally:
            await shielded(0.25)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow)
        await shielded(5)


async def shielded_nursery(gates: Gates) -> None:
    """A nursery under a shield, with a child under another."""
    with trio.CancelScope(shield=True, deadline=float("inf")):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shielded, 5)


async def swallow_all(gates: Gates) -> NoReturn:
    """Catches everything that can be thrown, and waits on."""
    while True:
        try:
            await shielded(5)
        except BaseException:
            continue


async def spin_and_swallow_all(gates: Gates) -> NoReturn:
    """Catches everything, without a shield: it spins."""
    while True:
        try:
            await trio.sleep(5)
        except BaseException:
            continue


async def hear_nothing(gates: Gates) -> None:
    """The same, for the eyes of a type checker."""
    await swallow_all(gates)


async def swallow_all_in_a_child(gates: Gates) -> None:
    """The same, below a nursery."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(swallow_all, gates)


async def generator_with_a_nursery(gates: Gates) -> None:
    """An async generator that holds a nursery open while it waits."""

    async def numbers() -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 0.3)
            while True:
                await shielded(5)
                yield 1

    async for _ in numbers():
        pass


async def deaf_generator(gates: Gates) -> None:
    """An async generator that catches everything, so that what waits for it cannot be ended either."""

    async def numbers() -> Any:
        if not gates.stop:
            await hear_nothing(gates)
        yield 1

    async for _ in numbers():
        pass


async def deaf_generator_with_a_nursery(gates: Gates) -> None:
    """The same, with a nursery held open around it and a child that catches everything."""

    async def numbers() -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(swallow_all, gates)
            yield 1
            await swallow_all(gates)

    async for _ in numbers():
        pass


async def deaf_in_two_nurseries(gates: Gates) -> None:
    """Nurseries inside one task, deaf children in both, and a deaf body."""
    async with trio.open_nursery() as outer, trio.open_nursery() as inner:
        outer.start_soon(swallow_all, gates)
        inner.start_soon(swallow_all, gates)
        await swallow_all(gates)


async def stubborn_process(gates: Gates) -> None:
    """A command that ignores TERM, and a wait for it that ignores everything else."""
    gates.process = await trio.lowlevel.open_process(["sh", "-c", "trap '' TERM; sleep 5"])
    try:
        await gates.process.wait()
    finally:
        gates.process.terminate()
        with trio.CancelScope(shield=True, deadline=float("inf")):
            await gates.process.wait()


async def thread_sleep(gates: Gates) -> None:
    """A thread that is waited for whatever happens."""
    await trio.to_thread.run_sync(time.sleep, 0.4, abandon_on_cancel=False)


async def lock_under_a_shield(gates: Gates) -> None:
    """Waits for a lock it will never get, with no cancellation reaching it."""
    gates.lock.acquire_nowait()

    async def want() -> None:
        with trio.CancelScope(shield=True, deadline=float("inf")):
            await gates.lock.acquire()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(want)


async def two_drops(gates: Gates) -> None:
    """Survives the first thing that is thrown, and the second."""
    for _ in range(2):
        try:
            await shielded(5)
        except BaseException:
            continue
    await shielded(5)


async def works_after_the_end(gates: Gates) -> str:
    """Swallows its cancellation, waits out the window, and goes on as if nothing had happened."""
    try:
        await trio.sleep(5)
    except trio.Cancelled:
        await shielded(0.15)
    return "late"


SHAPES: tuple[Body, ...] = (
    hard_loop,
    spinner,
    nursery_with_hard_children,
    nested_three_deep,
    nursery_of_spinners,
    finally_event,
    finally_channel,
    finally_thread,
    finally_sleep,
    finally_nursery,
    slow_child,
    shielded_nursery,
    swallow_all,
    spin_and_swallow_all,
    swallow_all_in_a_child,
    generator_with_a_nursery,
    deaf_generator,
    deaf_generator_with_a_nursery,
    deaf_in_two_nurseries,
    stubborn_process,
    thread_sleep,
    lock_under_a_shield,
    two_drops,
    works_after_the_end,
)
DEAF = frozenset(  # nothing of them ever runs again
    {
        "swallow_all",
        "spin_and_swallow_all",
        "deaf_generator",
        "deaf_generator_with_a_nursery",
        "deaf_in_two_nurseries",
    }
)
PARKED = DEAF | {"swallow_all_in_a_child"}

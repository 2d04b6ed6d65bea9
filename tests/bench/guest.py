"""A stock Trio guest run in asyncio, for the floors: no guard, no outcomes, nothing but the two loops."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import trio


def run_guest(main: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """Run an async Trio function as a guest of a new asyncio loop, and return what it returns."""

    async def host() -> Any:
        return await in_guest(main, *args)

    return asyncio.run(host())


async def in_guest(main: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """(asyncio) Run an async Trio function as a guest of this loop."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[Any] = loop.create_future()
    trio.lowlevel.start_guest_run(
        main,
        *args,
        run_sync_soon_threadsafe=loop.call_soon_threadsafe,
        run_sync_soon_not_threadsafe=loop.call_soon,
        done_callback=over.set_result,
        host_uses_signal_set_wakeup_fd=True,
    )
    return (await over).unwrap()

"""run_sync: a runtime for a program that has no event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

import trio

from callboard.actors.errors import UsageError
from callboard.actors.events import TurnEnded
from callboard.runtime.app import Runtime, open_runtime

T = TypeVar("T")


@overload
def run_sync(what: str, /, **options: Any) -> TurnEnded: ...
@overload
def run_sync(what: Callable[[Runtime], Awaitable[T]], /, **options: Any) -> T: ...
def run_sync(what: Any, /, **options: Any) -> Any:
    """A runtime for a program without an event loop: runs one text as a turn, or an async function of the runtime.

    `options` are those of `open_runtime`. Returns the TurnEnded, or what the function returns. In a thread with a
    running loop it is a `UsageError`: loops are never entered twice.
    """
    if _loop_runs() or trio.lowlevel.in_trio_run():
        raise UsageError(
            "an event loop runs in this thread: use `async with open_runtime(...)`, or in a notebook "
            "`rt = await open_runtime(...).start()` and `await rt.close()`."
        )
    if not (isinstance(what, str) or callable(what)):
        raise UsageError(f"run_sync takes a text, or an async function that takes the runtime, got {what!r:.80}.")
    runtime = open_runtime(**options)

    async def main() -> Any:
        async with runtime as rt:
            return await what(rt) if callable(what) else await (await rt.create()).run(what)

    return asyncio.run(main())


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

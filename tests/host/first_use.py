"""A program whose first session asks a provider for the first time; it prints by how many seconds its loop was late."""

import asyncio
import sys

from callboard.runtime import open_runtime
from callboard.runtime.config import config_of

from .fair import Since

TICK_S = 0.002


async def ticks() -> float:
    """Until it is cancelled; the worst of all, without the time for which this machine had no core to give."""
    late_s = 0.0
    try:
        while True:
            since = Since()
            await asyncio.sleep(TICK_S)
            late_s = max(late_s, since.own_s() - TICK_S)
    except asyncio.CancelledError:
        return late_s


async def main(model: str, url: str, api: str) -> None:
    """One turn in a runtime that has just started."""
    settings = {"name": model, "base_url": url, **({"api": api} if api else {})}
    assert not {"openai", "anthropic", "httpx2"} & sys.modules.keys()
    async with open_runtime(config_of({"model": settings}), store="memory") as rt:
        ticking = asyncio.create_task(ticks())
        session = await rt.create()
        ended = await session.run("hi")
        assert (ended.reason, ended.error) == ("completed", None), ended
        ticking.cancel()
        print(await ticking)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

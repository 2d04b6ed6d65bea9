"""A metrics scrape while 200 sessions are busy: what it takes, and how late both loops are meanwhile."""

import asyncio
import threading
import urllib.request
from functools import partial

from callboard.runtime.app import serve_metrics

from .lags import Lags
from .measure import Span, late, now_s
from .row import Figures, Goal, Row
from .sides import is_whole, runtime

PAUSE_S = 0.1
OPENED_S_MAX = 30


def busy(*, scraped: bool, sessions: int, seconds: float) -> Figures:
    """Turn after turn in each session; `scraped` ten times a second over HTTP, or left alone."""
    return asyncio.run(_busy(scraped, sessions, seconds))


async def _busy(scraped: bool, sessions: int, seconds: float) -> Figures:
    turns, stop, takes, pages = 0, threading.Event(), list[float](), list[int]()
    async with runtime() as rt:

        async def work() -> None:
            nonlocal turns
            session = await rt.create()
            while not stop.is_set():
                assert is_whole(await session.run("go"))
                turns += 1

        load = [asyncio.create_task(work()) for _ in range(sessions)]
        await asyncio.sleep(0.3)
        server = serve_metrics(rt)
        url = f"http://127.0.0.1:{server.port}/metrics"
        turns = 0
        async with Lags() as lags:
            with Span() as span:
                scraping = asyncio.to_thread(_scrape, url, stop, takes, pages) if scraped else asyncio.sleep(0)
                scraper = asyncio.ensure_future(scraping)
                await asyncio.sleep(seconds)
                counted = turns
        stop.set()
        await asyncio.gather(scraper, *load)
        await asyncio.to_thread(server.close)
    assert counted
    assert not scraped or min(pages) > 1000, "a scrape came back empty"
    return {**lags.figures(), "turns_per_s": counted / span.wall_s, **late(takes, prefix="scrape_")}


def _scrape(url: str, stop: threading.Event, takes: list[float], pages: list[int]) -> None:
    """(a thread) Ask for the page until told to stop."""
    while not stop.wait(PAUSE_S):
        begun_s = now_s()
        with urllib.request.urlopen(url, timeout=OPENED_S_MAX) as answer:
            pages.append(len(answer.read()))
        takes.append(now_s() - begun_s)


ROWS = (
    Row(
        "scrape.busy",
        "ten scrapes a second while 200 sessions are busy; beside it the same without a scrape",
        partial(busy, scraped=True),
        partial(busy, scraped=False),
        (
            "lag_asyncio_p99_ms",
            "lag_trio_p99_ms",
            "lag_asyncio_max_ms",
            "turns_per_s",
            "scrape_p50_ms",
            "scrape_p99_ms",
        ),
        {"sessions": 200, "seconds": 2.0},
        {"sessions": 10, "seconds": 0.4},
        {"lag_asyncio_p99_ms": Goal(1.5, 20), "lag_trio_p99_ms": Goal(1.5, 20)},
    ),
)

"""The metrics of whole runtimes: no name makes a series, what is scraped is valid, and a scrape stalls neither loop."""

import asyncio
import contextlib
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from tests.bench.lags import TICK_S, Lags
from tests.bench.measure import at, now_s
from tests.pure.metrics_samples import HOSTILE, fill, series

from callboard.actors import Allow, Call, Hook, ModelError, Reply, tool
from callboard.actors.testing import ScriptedModel
from callboard.metrics.families import SERIES_MAX
from callboard.metrics.render import OPENMETRICS, Exposition
from callboard.metrics.serve import serve_metrics
from callboard.runtime import Runtime, open_runtime

from .hosted import stubborn

FEW, MANY, AT_ONCE = 50, 5_000, 250
INVENTED = 1_000
LONG = "x" * 1_000_000
LAG_P99_MAX_S = 0.010
ROUNDS_MAX = 12


@tool(effect="none", parallel=True)
async def known() -> str:
    """A tool that there is, for the hooks to see."""
    return "ok"


class Hostile:
    """A model that calls tools nobody made, and whose provider is one of two known ones or has a name of its own."""

    def __init__(self) -> None:
        names = [(f"made_up_{n}", f"mcp__server_{n}__tool", f"dynamic__{n}")[n % 3] for n in range(INVENTED)]
        self._called = [*HOSTILE, LONG, *names]
        self._providers = [*HOSTILE, LONG, *(f"provider {n}" for n in range(INVENTED))]
        self.provider = "openai"

    async def reply(self, prompt: Any, say: Any) -> Reply:
        await trio.lowlevel.checkpoint()
        nth = int(prompt.session.removeprefix("s"))
        foreign = self._providers[nth % len(self._providers)]
        self.provider = ("openai", "scripted", foreign, foreign)[nth % 4]
        if prompt.step == 2 and nth % 7 == 0:
            raise ModelError(f"no {LONG[: nth % 100]}")
        return Reply("", [Call(self._called[nth % len(self._called)]), Call("known")] if prompt.step == 1 else [])


@pytest.mark.limit_s(180)
async def test_thousands_of_sessions_make_no_series():
    """5,000 sessions, 1,000 invented tools and hostile names everywhere leave the series that 50 sessions made."""
    hooks = [Hook(name, before_tool=lambda call: Allow()) for name in ("gate", "é", 'a"} 1', "# EOF", LONG)]
    async with open_runtime(model=Hostile(), tools=[known], hooks=hooks, store="memory") as rt:

        async def use(numbers: range) -> int:
            for start in range(0, len(numbers), AT_ONCE):
                opened = await asyncio.gather(*(rt.create(f"s{n}") for n in numbers[start : start + AT_ONCE]))
                await asyncio.gather(*(session.run(f"go {session.id}") for session in opened))
            return series(rt.registry)

        few = await use(range(FEW))
        many = await use(range(FEW, MANY))
        phases = rt.statistics()["sessions"]
        text = rt.metrics_text(OPENMETRICS.media_type)
    assert MANY == sum(phases.values())
    assert few == many <= SERIES_MAX
    assert text.isascii()
    counted = {family.name: family for family in parse_openmetrics(text)}
    turns = sum(sample.value for sample in counted["callboard_turns"].samples)
    called = {s.labels["tool"]: s.value for s in counted["callboard_tool_calls"].samples if s.value}
    providers = {s.labels["provider"] for s in counted["callboard_model_requests"].samples if s.value}
    hooked = {s.labels["hook"]: s.value for s in counted["callboard_hook_runs"].samples if s.value}
    assert (MANY, 2 * MANY) == (turns, sum(called.values()))
    assert ({"known", "mcp", "dynamic", "other"}, {"openai", "scripted", "other"}) == (set(called), providers)
    assert {"gate": MANY, "other": (len(hooks) - 1) * MANY} == hooked


@contextlib.asynccontextmanager
async def loaded(sessions: int = 8) -> AsyncIterator[Runtime]:
    """A runtime whose sessions work all the time, with as many series as there may be."""

    @tool(effect="none")
    async def look() -> str:
        """Look, for a moment."""
        await trio.sleep(0.02)
        return "seen"

    model = ScriptedModel(lambda prompt: Reply("", [Call("look")] if prompt.step < 3 else []))
    async with open_runtime(model=model, tools=[look]) as rt:
        fill(rt.registry)

        async def work() -> None:
            session = await rt.create()
            while True:
                await session.run("go")
                model.prompts.clear()

        working = [asyncio.create_task(work()) for _ in range(sessions)]
        await asyncio.sleep(0.2)
        try:
            yield rt
        finally:
            for task in working:
                task.cancel()
            await asyncio.wait(working)


class OwnLags(Lags):
    """As `Lags`, but a tick is at most as late as the processor time this process used since it began to wait.

    So what neighbours on the machine take away is not held against us, and all that our threads do is.
    """

    async def _host_ticks(self) -> None:
        while True:
            begun_s, used_s = now_s(), time.process_time()
            await asyncio.sleep(TICK_S)
            self.asyncio.append(min(now_s() - begun_s - TICK_S, time.process_time() - used_s))

    async def _trio_ticks(self) -> None:
        while True:
            begun_s, used_s = now_s(), time.process_time()
            await trio.sleep(TICK_S)
            self.trio.append(min(now_s() - begun_s - TICK_S, time.process_time() - used_s))

    def p99_s(self) -> float:
        """The later of both loops."""
        assert min(len(self.asyncio), len(self.trio)) > 20
        return max(at(self.asyncio, 99), at(self.trio, 99))


@pytest.mark.limit_s(120)
async def test_scrapes_of_a_loaded_runtime_stall_neither_loop(record_property):
    """Under scrapes without a pause, each rendered anew, both loops wake 99 timers of 100 within 10 ms."""
    stop, scraping, pages = threading.Event(), threading.Event(), list[int]()

    def scrape(url: str) -> None:
        while not stop.is_set():
            if scraping.wait(0.05):
                with urllib.request.urlopen(url, timeout=20) as answer:
                    pages.append(answer.read().count(b"\n"))

    alone, scraped = list[float](), list[float]()
    async with loaded() as rt:
        source = Exposition(rt.registry, time.monotonic, render_min_s=0.0).page
        with serve_metrics(source) as server:
            scraper = threading.Thread(target=scrape, args=(f"http://127.0.0.1:{server.port}/metrics",))
            scraper.start()
            try:
                for _ in range(ROUNDS_MAX):  # a neighbour on the machine may spoil one round, not each
                    for found, on in ((alone, False), (scraped, True)):
                        (scraping.set if on else scraping.clear)()
                        async with OwnLags() as lags:
                            await asyncio.sleep(0.6)
                        found.append(lags.p99_s())
                    if min(scraped) <= LAG_P99_MAX_S:
                        break
            finally:
                stop.set()
                await asyncio.to_thread(scraper.join)
    record_property("lag_p99_ms", {"alone": min(alone) * 1e3, "scraped": min(scraped) * 1e3, "scrapes": len(pages)})
    assert len(pages) >= len(scraped)
    assert min(pages) > SERIES_MAX
    assert min(scraped) <= LAG_P99_MAX_S


async def scraped_after_an_abort(accept: str) -> str:
    """What a scraper gets from a runtime with a turn that was interrupted out of a tool that does not end."""
    with stubborn() as tools:
        model = ScriptedModel(lambda prompt: Reply("", [Call("sleeper")] if prompt.turn == 2 else []))
        async with open_runtime(model=model, tools=list(tools.tools.values())) as rt:
            session = await rt.create("s-1")
            await session.run("one")
            running = asyncio.create_task(session.run("two"))
            while not tools.began:
                await asyncio.sleep(0.005)
            await session.interrupt()
            await running
            with serve_metrics(rt.exposition.page) as server:
                asked = urllib.request.Request(f"http://127.0.0.1:{server.port}/metrics", headers={"Accept": accept})
                text = await asyncio.to_thread(lambda: urllib.request.urlopen(asked, timeout=10).read().decode())
            tools.release()
    return str(text)


async def test_scrape_names_the_turn_that_was_aborted():
    """OpenMetrics of a runtime is read back by its own parser, and an abort's exemplar is its session and turn."""
    families = {f.name: f for f in parse_openmetrics(await scraped_after_an_abort(OPENMETRICS.media_type))}
    aborts = [s for s in families["callboard_abort_seconds"].samples if s.exemplar]
    assert [("abandoned", {"session": "s-1", "turn": "2"})] == [(s.labels["ending"], s.exemplar.labels) for s in aborts]
    calls = [s.exemplar.labels for s in families["callboard_tool_seconds"].samples if s.exemplar]
    assert [{"session": "s-1", "turn": "2"}] == calls
    turns = {s.exemplar.labels["turn"] for s in families["callboard_turn_seconds"].samples if s.exemplar}
    assert {"1", "2"} == turns


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian package prometheus)")
async def test_scrape_of_a_runtime_passes_promtool():
    """What a runtime serves passes `promtool check metrics` without a word."""
    text = await scraped_after_an_abort("")
    assert " # {" not in text
    ask = ["promtool", "check", "metrics"]
    done = await asyncio.to_thread(subprocess.run, ask, input=text, capture_output=True, text=True, check=False)
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)

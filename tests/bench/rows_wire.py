"""Sessions whose answers stream from a provider on this machine, beside the SDK alone in the same Trio run."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import trio
from tests.wires import WIRES

from callboard.actors.model import Prompt, User
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.models import ModelNames
from callboard.runtime.settings import ModelConfig

from .lags import Lags
from .measure import Span, resident_bytes
from .row import Figures, Row

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-none"


@contextmanager
def provider(wire: str, deltas: int, pieces: int, pause_s: float) -> Iterator[ModelConfig]:
    """The program while it runs, and how it is asked."""
    command = [sys.executable, "-m", "tests.bench.wire_server", wire, str(deltas), str(pieces), str(pause_s)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        url = program.stdout.readline().strip()
        yield ModelConfig(name=WIRES[wire].model, base_url=url + WIRES[wire].base, **WIRES[wire].settings)
        program.stdin.close()


def streams(wire: str, sessions: int, deltas: int, pieces: int, pause_s: float) -> Figures:
    """So many sessions at once, one turn each."""
    with provider(wire, deltas, pieces, pause_s) as model:
        return asyncio.run(_streams(RuntimeConfig(model=model), sessions, deltas))


async def _streams(config: RuntimeConfig, sessions: int, deltas: int) -> Figures:
    async with open_runtime(config) as rt:
        opened = [await rt.create() for _ in range(sessions)]
        before = resident_bytes()
        async with Lags() as late:
            with Span() as span:
                ends = await asyncio.gather(*(one.run("go") for one in opened))
            kb_each = (resident_bytes() - before) / sessions / 1024
        assert {(one.reason, one.error) for one in ends} == {("completed", None)}
        assert {len(one.last_message or "") for one in ends} == {7 * deltas}
    each = {"cpu_ms_turn": span.cpu_s / sessions * 1e3, "wall_s": span.wall_s, "kb_each": kb_each}
    return {**each, **late.figures()}


def bare(wire: str, sessions: int, deltas: int, pieces: int, pause_s: float) -> Figures:
    """The same answers taken by the same model without a runtime."""
    with provider(wire, deltas, pieces, pause_s) as config:
        return trio.run(_bare, config, sessions, deltas)


async def _bare(config: ModelConfig, sessions: int, deltas: int) -> Figures:
    names = ModelNames(config.name, config)
    await names.warm()
    texts = list[str]()

    async def one(number: int) -> None:
        asked = Prompt(f"s{number}", 1, 1, "", (User("go"),))
        texts.append((await names.default.reply(asked, lambda piece, part="text": None)).text)

    with Span() as span:
        async with trio.open_nursery() as nursery:
            for number in range(sessions):
                nursery.start_soon(one, number)
    assert {len(text) for text in texts} == {7 * deltas}
    assert len(texts) == sessions
    await names.aclose()
    return {"cpu_ms_turn": span.cpu_s / sessions * 1e3, "wall_s": span.wall_s}


SHOWN = ("cpu_ms_turn", "wall_s", "kb_each", "lag_trio_p99_ms", "lag_trio_max_ms")
FULL = {"sessions": 1_000, "deltas": 100, "pieces": 10, "pause_s": 0.1}
QUICK = {"sessions": 5, "deltas": 20, "pieces": 3, "pause_s": 0.01}
ROWS = tuple(
    Row(
        f"wire.{wire}",
        f"1,000 sessions at once, each answer 100 deltas over {wire}, beside the SDK alone",
        partial(streams, wire),
        partial(bare, wire),
        SHOWN,
        FULL,
        QUICK,
    )
    for wire in WIRES
)

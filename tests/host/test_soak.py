"""The soak: its rule of growth, and a short run of it."""

import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from tests.bench.soak_sample import Sample, grown, left

ROOT = Path(__file__).parents[2]
SECONDS = 20

STEADY = Sample(0.0, 0, 500, 200, 20, 30, 1, 100 << 20)


def samples(**rise: float) -> list[Sample]:
    """100 samples in which some numbers rise evenly by so much in all."""
    return [
        attrs.evolve(
            STEADY, at_s=10.0 * at, **{name: round(getattr(STEADY, name) + by * at / 100) for name, by in rise.items()}
        )
        for at in range(100)
    ]


GROWTH: dict[str, tuple[dict[str, float], list[str]]] = {
    "nothing": ({}, []),
    "a little": ({"trio_tasks": 40, "files": 5, "memory_bytes": 5 << 20}, []),
    "tasks": ({"trio_tasks": 300}, ["trio_tasks grew from 588.5 to 768.5"]),
    "files": ({"files": 40}, ["files grew from 42 to 66"]),
    "memory": ({"memory_bytes": 40 << 20}, ["memory grew from 111.8 to 135.8 MB over 0 sessions"]),
    "what ended sessions may leave": ({"memory_bytes": 40 << 20, "ended": 30_000}, []),
}


@pytest.mark.parametrize(("rise", "found"), GROWTH.values(), ids=GROWTH)
def test_growth_is_found(rise, found):
    """What rises by more than chance is named with its medians; the rest is no news."""
    assert found == grown(samples(**rise))


def test_the_warm_up_is_not_looked_at():
    """A program that fills its caches first has not grown."""
    warming = [attrs.evolve(STEADY, memory_bytes=1 << 20, trio_tasks=1, threads=1)] * 20
    assert [] == grown([*warming, *samples()])


def test_what_is_left_at_the_end_is_named():
    """Tasks, files and processes have to be as few as before; threads may idle."""
    after = attrs.evolve(STEADY, asyncio_tasks=201, processes=3, threads=90)
    more = "more than before the first session"
    assert [f"1 asyncio_tasks {more}", f"2 processes {more}"] == left(STEADY, after)
    assert [] == left(STEADY, STEADY)


def test_a_short_soak():
    """Sessions used without pity keep every promise, and leave nothing behind when they have ended."""
    command = [sys.executable, "-m", "tests.bench.soak", "--minutes", str(SECONDS / 60), "--sessions", "20"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert (0, "") == (ended.returncode, ended.stderr), ended.stdout + ended.stderr
    assert "nothing grew and nothing broke" in ended.stdout

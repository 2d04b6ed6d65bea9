"""A row of the table: its two sides, its sizes and goals; and the rounds in which the sides take turns."""

import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import attrs
import msgspec

from .measure import calibration_ns, now_s, settle, spread

Figures: TypeAlias = Mapping[str, float]
Side: TypeAlias = Callable[..., Figures]

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "tests.bench"
SIDE_S_MAX = 60.0
NO_GOALS: Mapping[str, "Goal"] = MappingProxyType({})


@attrs.frozen
class Goal:
    """What a figure should come to: a ratio to the floor of the same round, and a value on the machine of the goals.

    A figure that ends in `_per_s` should be at least that, any other at most.
    """

    ratio: float | None = None
    value: float | None = None


@attrs.frozen
class Row:
    """One workload at one size; `ours` and `floor` take the same sizes, assert their own result, and return figures.

    `shown` are the figures of the table, the first of them the row's own; others are kept in its JSON line.
    """

    name: str
    what: str
    ours: Side
    floor: Side | None
    shown: tuple[str, ...]
    full: Mapping[str, Any]
    quick: Mapping[str, Any]
    goals: Mapping[str, Goal] = NO_GOALS
    apart: bool = False  # each side in a program of its own, each time: for memory


@attrs.frozen
class Taken:
    """A row as it was measured: min, median and max of each figure, and the median ratio of the rounds."""

    row: str
    what: str
    rounds: int
    ours: Mapping[str, list[float]]
    floor: Mapping[str, list[float]]
    ratios: Mapping[str, float]
    calibration_ns: tuple[float, float]
    seconds: float
    python: str = platform.python_version()


def take(row: Row, rounds: int, *, quick: bool = False) -> Taken:
    """Run both sides `rounds` times, in turns, each round begun by the other one."""
    sizes = row.quick if quick else row.full
    sides = [row.ours] if row.floor is None else [row.ours, row.floor]
    got: dict[Side, list[Figures]] = {side: [] for side in sides}
    before_ns, begun_s = calibration_ns(), now_s()
    for one in range(rounds):
        for side in sides if one % 2 == 0 else reversed(sides):
            settle()
            got[side].append(_apart(row, side, quick=quick) if row.apart else side(**sizes))
    ours, floor = got[row.ours], got[row.floor] if row.floor is not None else []
    ratios = {
        name: spread(a[name] / b[name] for a, b in zip(ours, floor, strict=True))[1]
        for name in ours[0]
        if floor and all(name in a and b.get(name) for a, b in zip(ours, floor, strict=True))
    }
    return Taken(
        row.name,
        row.what,
        rounds,
        _spreads(ours),
        _spreads(floor),
        ratios,
        (before_ns, calibration_ns()),
        now_s() - begun_s,
    )


def _spreads(got: list[Figures]) -> dict[str, list[float]]:
    names = dict.fromkeys(name for figures in got for name in figures)
    return {name: spread(figures[name] for figures in got if name in figures) for name in names}


def side(row: Row, name: str, *, quick: bool) -> Figures:
    """One side of a row, once."""
    measured = row.ours if name == "ours" else row.floor
    assert measured is not None, f"{row.name} has no floor"
    return measured(**(row.quick if quick else row.full))


def _apart(row: Row, measured: Side, *, quick: bool) -> Figures:
    name = "ours" if measured is row.ours else "floor"
    command = [sys.executable, "-m", PACKAGE, row.name, "--here", "--side", name, *(["--quick"] if quick else [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SIDE_S_MAX, check=False)
    if done.returncode:
        raise RuntimeError(f"{row.name}, {name}: {done.stderr[-2000:]}")
    figures: Figures = msgspec.json.decode(done.stdout.splitlines()[-1], type=dict[str, float])
    return figures


def larger_is_better(figure: str) -> bool:
    """Whether a figure is a rate."""
    return figure.endswith("_per_s")


def within(figure: str, goal: Goal, value: float, ratio: float | None, slack: float = 1.0) -> bool:
    """Whether a figure meets its goal, `slack` times as bad at most; by the ratio wherever there is one."""
    measured, wanted = (ratio, goal.ratio) if ratio is not None and goal.ratio is not None else (value, goal.value)
    if wanted is None:
        return True
    return measured * slack >= wanted if larger_is_better(figure) else measured <= wanted * slack

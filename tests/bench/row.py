"""A row of the table: its two sides, its sizes and goals; and the rounds in which the sides take turns."""

import platform
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import attrs

from .measure import calibration_ns, now_s, settle, spread

Figures: TypeAlias = Mapping[str, float]
Side: TypeAlias = Callable[..., Figures]

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
            got[side].append(side(**sizes))
    ours, floor = got[row.ours], got[row.floor] if row.floor is not None else []
    ratios = {
        name: spread(a[name] / b[name] for a, b in zip(ours, floor, strict=True))[1]
        for name in ours[0]
        if floor and all(b.get(name) for b in floor)
    }
    return Taken(
        row.name,
        row.what,
        rounds,
        {name: spread(figures[name] for figures in ours) for name in ours[0]},
        {name: spread(figures[name] for figures in floor) for name in floor[0]} if floor else {},
        ratios,
        (before_ns, calibration_ns()),
        now_s() - begun_s,
    )


def larger_is_better(figure: str) -> bool:
    """Whether a figure is a rate."""
    return figure.endswith("_per_s")


def within(figure: str, goal: Goal, value: float, ratio: float | None, slack: float = 1.0) -> bool:
    """Whether a figure meets its goal, `slack` times as bad at most; by the ratio wherever there is one."""
    measured, wanted = (ratio, goal.ratio) if ratio is not None and goal.ratio is not None else (value, goal.value)
    if wanted is None:
        return True
    return measured * slack >= wanted if larger_is_better(figure) else measured <= wanted * slack

"""The table for people: a line for each figure of a row, Callboard beside its floor, the ratio and the goal."""

from collections.abc import Iterator

from .row import Goal, Row, Taken, larger_is_better, within

WIDTHS = (20, 18, 27, 27, 8, 17, 4)
HEAD = ("row", "figure", "Callboard (min to max)", "floor (min to max)", "ratio", "goal", "")


def line(cells: tuple[str, ...]) -> str:
    """One line of the table."""
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def head() -> str:
    """What the columns are."""
    return "\n".join((line(HEAD), "  ".join("-" * width for width in WIDTHS)))


def lines(row: Row, taken: Taken) -> Iterator[str]:
    """A row of the table."""
    machine = f"(loop step {taken.calibration_ns[0]:.0f} and {taken.calibration_ns[1]:.0f} ns)"
    yield f"{row.what}  {machine}"
    name = row.name
    for figure in row.shown:
        if figure in taken.ours:
            yield line((name, figure, *_cells(figure, row.goals.get(figure), taken)))
            name = ""


def _cells(figure: str, goal: Goal | None, taken: Taken) -> tuple[str, ...]:
    ratio = taken.ratios.get(figure)
    told = "" if ratio is None else f"{ratio:.1f}x" if ratio < 100 else f"{ratio:.0f}x"
    verdict = ""
    if goal is not None:
        verdict = "ok" if within(figure, goal, taken.ours[figure][1], ratio) else "OVER"
    return (
        _spread(taken.ours[figure]),
        _spread(taken.floor[figure]) if figure in taken.floor else "-",
        told,
        _goal(figure, goal),
        verdict,
    )


def _spread(values: list[float]) -> str:
    low, middle, high = map(_number, values)
    return middle if low == high else f"{middle} ({low} to {high})"


def _goal(figure: str, goal: Goal | None) -> str:
    if goal is None:
        return ""
    sign = "≥" if larger_is_better(figure) else "≤"
    ratio = "" if goal.ratio is None else f"{goal.ratio:g}x"
    value = "" if goal.value is None else _number(goal.value)
    return f"{sign} {ratio} ({value})" if ratio and value else f"{sign} {ratio or value}"


def _number(value: float) -> str:
    if value != value:
        return "?"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value == int(value) else f"{value:.3g}"

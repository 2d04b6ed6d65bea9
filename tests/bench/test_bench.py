"""Every row runs and holds its own result; ratios to the floors and counts of a turn stay within bounds.

The bounds are wide: they catch a step that became several times as dear, on any machine, and nothing smaller.
"""

import os
import subprocess
import sys

import msgspec
import pytest

from . import counts, table
from .row import ROOT, Goal, Row, Taken, side, take, within
from .rows import ROWS, named

TRIES_MAX = 3
GOAL_MISSED_MAX = 3.0
"""A guarded ratio may be so many times its goal."""

# CPU ratios that a busy machine hardly moves: row -> figure and the most it may be.
GUARDED = {
    "step.memory.1": ("cpu_us_step", GOAL_MISSED_MAX * 3.3),
    "step.normal.200": ("cpu_us_step", GOAL_MISSED_MAX * 3.0),
    "interrupt.stubborn": ("p99_ms", GOAL_MISSED_MAX * 1.25),
    "ask.100": ("trio_cpu_us", GOAL_MISSED_MAX * 2.3),
    "events.normal.100": ("cpu_us_event", GOAL_MISSED_MAX * 2.0),
    "timers.10000": ("arm_us", 12.0),
}

# What a step of `sides.script` may do at most, in the mean over a turn; lower it whenever the code does less.
STEP_MAX = {
    "tasks": 1.0,
    "task_steps": 3.0,
    "rounds": 3.0,
    "scopes": 0.1,
    "appends": 3.3,
    "flushes": 0.9,
    "store_appends": 3.3,
    "store_syncs": 1.1,
    "now_ms": 5.5,
    "loop_rounds": 3.1,
    "loop_handles": 3.3,
}
CREATE_CALLS_MAX = 296  # of Python and C, to create one of many sessions, an owner of its log among them
DISK_STEP_MAX = {**STEP_MAX, "commits": 1.1}


@pytest.mark.parametrize("row", [row for row in ROWS if row.name not in GUARDED], ids=lambda row: row.name)
def test_row_runs(row):
    """A row at a tiny size holds its own result and has the figures that its table shows."""
    ours, floor = one(row, "ours"), {} if row.floor is None else one(row, "floor")
    assert all(value == value for value in (*ours.values(), *floor.values()))
    assert set(row.goals) <= set(row.shown)
    assert set(row.goals) <= set(ours)


@pytest.mark.parametrize("name", GUARDED)
def test_ratio_is_guarded(name):
    """A row whose ratio is guarded is within its bound in one of some tries."""
    figure, ratio_max = GUARDED[name]
    (row,) = named([name])
    found = []
    for _ in range(TRIES_MAX):
        taken = take(row, 1, quick=True)
        found.append(taken.ratios[figure])
        if found[-1] <= ratio_max:
            return
    pytest.fail(f"{name}: {figure} is {min(found):.1f} times its floor, at most {ratio_max:.1f}")


def one(row, name):
    """One side of a row; a side that is measured apart in a program of its own, as always."""
    if not row.apart:
        return side(row, name, quick=True)
    told = bench(row.name, "--here", "--side", name, "--quick")
    assert told.returncode == 0, told.stderr
    return msgspec.json.decode(told.stdout, type=dict[str, float])


def bench(*arguments):
    """Run the command in a program of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "tests.bench", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=50, check=False)


def least(names, **options):
    """These counts of a step, each the least of some tries: on a busy machine a timer comes due in between."""
    tries = [counts.of_turn(**options) for _ in range(TRIES_MAX)]
    return {name: min(one[name] for one in tries) for name in names}  # what is bounded is counted: no name is missing


@pytest.mark.parametrize(("store", "most"), [("memory", STEP_MAX), ("normal", DISK_STEP_MAX)])
def test_a_step_does_no_more(store, most):
    """A step starts no more tasks and scopes, appends, syncs and wakes no more often than it is known to."""
    found = least(tuple(most), store=store)
    assert {} == {name: found[name] for name, limit in most.items() if found[name] > limit}


def test_every_event_is_encoded_once():
    """The codec is asked once for each event on the log, and once more for an event of a plugin held by its call."""
    found = counts.of_turn()
    assert found["events"] <= found["encodes"] <= found["events"] + 0.1


def test_a_long_session_steps_alike():
    """The counts of a step are the same in the first turns of a session and after a thousand events."""
    steady = ("tasks", "scopes", "appends", "encodes", "store_syncs", "now_ms")
    assert least(steady, turns=2) == pytest.approx(least(steady, turns=2, after=17), rel=0.01)


def test_another_plugin_costs_no_more_syncs():
    """A plugin more adds no task, no append and no sync to a step."""
    from .rows_growth import SHIPPED, _plugin

    steady = ("tasks", "appends", "encodes", "store_syncs", "flushes", "scopes")
    few, many = (least(steady, plugins=(*SHIPPED, *map(_plugin, range(count)))) for count in (0, 5))
    assert few == many


def test_a_session_is_cheap_to_start():
    """A session with a random id takes one Trio task, and no more Python calls than it is known to."""
    tasks, calls = counts.of_create()
    assert tasks == 1.0
    assert calls <= CREATE_CALLS_MAX


def test_command_prints_a_table_and_writes_lines(tmp_path):
    """The command prints a line for each figure that is shown and writes one JSON line for each row."""
    lines = tmp_path / "rows.jsonl"
    told = bench("timers", "--quick", "--json", str(lines))
    assert told.returncode == 0, told.stderr
    (row,) = named(["timers"])
    assert all(figure in told.stdout for figure in row.shown)
    (line,) = lines.read_bytes().splitlines()
    taken = msgspec.json.decode(line, type=Taken)
    assert (row.name, 1, set(row.shown)) == (taken.row, taken.rounds, set(taken.ours) & set(row.shown))


def test_command_names_what_there_is():
    """A name that means no row ends the command with 2 and says which groups there are."""
    told = bench("nonsense")
    assert (2, "") == (told.returncode, told.stdout)
    assert "'nonsense'" in told.stderr
    assert "step" in told.stderr


def test_rows_are_named_once():
    """No two rows have one name, and a group's name means all its rows."""
    assert len(ROWS) == len({row.name for row in ROWS})
    assert [row.name for row in ROWS if row.name.startswith("step.")] == [row.name for row in named(["step"])]


def test_goal_is_judged_by_its_ratio():
    """A goal with a ratio is judged by it, one without by its value, and a rate must be at least its goal."""
    assert within("us_step", Goal(2.0, 100), value=500, ratio=1.9)
    assert not within("us_step", Goal(2.0, 100), value=50, ratio=2.1)
    assert within("us_step", Goal(2.0, 100), value=500, ratio=5.9, slack=3)
    assert not within("us_step", Goal(value=100), value=101, ratio=None)
    assert within("turns_per_s", Goal(0.5), value=1, ratio=0.6)
    assert not within("turns_per_s", Goal(0.5), value=1, ratio=0.4)


def test_sides_take_turns():
    """Rounds interleave: each side begins every other round, and the ratio is the median of the rounds' own."""
    order = []

    def sided(name, values):
        def run():
            order.append(name)
            return {"us": values[order.count(name) - 1]}

        return run

    row = Row("x.y", "x", sided("ours", [2.0, 9.0, 4.0]), sided("floor", [1.0, 3.0, 1.0]), ("us",), {}, {})
    taken = take(row, 3)
    assert order == ["ours", "floor", "floor", "ours", "ours", "floor"]
    assert (taken.ours["us"], taken.ratios["us"]) == ([2.0, 4.0, 9.0], 3.0)
    assert "3.0x" in "\n".join(table.lines(row, taken))

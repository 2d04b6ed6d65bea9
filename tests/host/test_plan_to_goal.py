"""The story of plans, questions, reminders and goals as a whole: what its metrics count, and what its readers see."""

import importlib.util
from pathlib import Path
from types import ModuleType

from prometheus_client import CollectorRegistry
from tests.pure.metrics_samples import samples

from callboard.actors import Envelope, TurnEnded
from callboard.actors.testing import ScriptedModel
from callboard.runtime import SessionHandle, open_runtime
from callboard.runtime.doors.story import Story

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "plan_to_goal.py"
TURNS = 5
COUNTED = {
    "questions_total{ending=answered}": 3,
    "reminders_total{result=set}": 1,
    "reminders_total{result=fired}": 1,
    "reminder_lag_seconds_count": 1,
    "goal_changes_total{operation=create}": 1,
    "goal_changes_total{operation=complete}": 1,
    "goal_rounds_total{result=completed}": 2,
    "plan_mode_seconds_count": 1,
    "control_tool_calls_total{outcome=completed,tool=request_user_input}": 1,
    "control_tool_calls_total{outcome=completed,tool=exit_plan_mode}": 1,
    "control_tool_calls_total{outcome=failed,tool=exit_plan_mode}": 1,
    "control_tool_calls_total{outcome=completed,tool=schedule_create}": 1,
    "control_tool_calls_total{outcome=completed,tool=get_goal}": 1,
    "control_tool_calls_total{outcome=completed,tool=update_goal}": 1,
    "control_tool_calls_total{outcome=completed,tool=update_plan}": 3,
}
TOLD = (
    "plan mode is on",
    "? Paper: Which paper?",
    "  1. matte - No glare.",
    "› matte",
    "  │ 2. Print 9 posters.",
    "› Keep planning: There are only two walls.",
    "› Approve",
    "the plan is approved: it is carried out in this session",
    "plan mode is off",
    "• Plan (2/3 done)",
    "1 step of the plan is still open",
    "reminder schedule-1 is due: The ink is dry.",
    "goal: Both posters are on the walls.",
    "round 2 of 256 of the goal",
    "the goal is reached",
)


def example() -> ModuleType:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("plan_to_goal", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def story(session: SessionHandle) -> list[str]:
    """What a reader who comes later is told of all the turns."""
    told, lines = Story(session.id, lambda: 90, colour=False, starts=False), []
    async for item in session.events():
        if isinstance(item, Envelope):
            lines += [line.plain for line in told.take(item)]
            if isinstance(item.event, TurnEnded) and item.event.turn == TURNS:
                break
    return lines


async def test_the_whole_story_is_counted_and_told(capsys):
    """One session plans, is approved, reminded and reaches its goal: each is counted once, and told in this order."""
    play, registry = example(), CollectorRegistry()
    async with open_runtime(model=ScriptedModel(play.play), registry=registry) as rt:
        session = await rt.create()
        await session.set_mode("plan")
        await session.submit("Posters for the market, please.")
        read = await play.watch(session, until=3)
        await session.command("/goal Both posters are on the walls.")
        await play.watch(session, until=TURNS, after=read)
        lines = await story(session)
    counted = samples(registry)
    assert {name: counted.get(name) for name in COUNTED} == COUNTED
    prefixes = ("questions", "approvals", "reminders", "goal_", "control_tool_calls", "plan_mode_seconds_count")
    assert {name for name in counted if name.startswith(prefixes)} == COUNTED.keys() - {"reminder_lag_seconds_count"}
    rest = iter(lines)
    assert [line for line in TOLD if line not in rest] == []
    assert "turn 5: Both are on the walls.  [0 open]" in capsys.readouterr().out

"""callboard demo, whole; and the view of a running tree as one reader among several."""

import io
import re
from contextlib import asynccontextmanager

import pytest

from callboard.actors.envelope import Envelope
from callboard.actors.facts import PlanUpdated
from callboard.actors.messages import Accepted
from callboard.actors.testing import ScriptedModel
from callboard.plugins.plan import Plan
from callboard.runtime import open_runtime
from callboard.runtime.doors.board import plan_lines
from callboard.runtime.doors.follow import Following
from callboard.runtime.doors.output import Output
from callboard.runtime.doors.screen import PIPE_CELLS_MAX, Screen
from callboard.runtime.doors.story import Story
from callboard.runtime.models.scripted import SCRIPTS, STEPS

from .terminal import Terminal, cli, working_in

SPAWNED = {f"+ agent {name}" for name in ("words", "todos", "check")}


def leftovers(home):
    """What a demo left: its folders and its processes."""
    return [*home.glob("callboard-demo-*"), *working_in(home)]


@pytest.fixture(scope="module")
def piped(tmp_path_factory):
    """The demo, run once in a pipe, and the home it ran in."""
    home = tmp_path_factory.mktemp("piped")
    return cli(home, "demo"), home


def test_the_demo_in_a_pipe_tells_the_whole_story(piped):
    """Plain lines: the plan, three agents, the interrupt with its receipt, the counted control calls; nothing stays."""
    done, home = piped
    assert (0, "") == (done.returncode, done.stderr)
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    plans = [line for line in lines if line.startswith("• Plan (")]
    assert [f"• Plan ({n}/{len(STEPS)} done)" for n in range(len(STEPS) + 1)] == plans
    assert SPAWNED <= set(lines)
    assert "= agent check interrupted" in lines
    assert any(re.fullmatch(r"    interrupted +\d\.\d s  shell", line) for line in lines)
    assert any(re.fullmatch(r"  Its process tree is gone: 2 processes \(\d+, \d+\)\.", line) for line in lines)
    counted = 'callboard_control_tool_calls_total{outcome="%s",tool="%s"} %d.0'
    wanted = [("completed", "update_plan", 6), ("completed", "todo_write", 6), ("failed", "todo_write", 1)]
    assert [] == [one for one in wanted if f"  {counted % one}" not in lines]
    assert any(line.startswith("  callboard_abort_seconds_sum{") for line in lines)
    assert lines[-1].startswith("Done: 1 turn · 9 steps · 24 calls (22 completed, 1 failed, 1 interrupted) · 3 agents")
    assert [] == leftovers(home)


def test_the_agents_of_the_demo_work_at_the_same_time(piped):
    """All three have begun their command before the first of them has ended it."""
    lines = piped[0].stdout.splitlines()
    begun = [line for line in lines if re.match(r"\w+ │ ▸ \$ ", line)]
    first_end = next(at for at, line in enumerate(lines) if re.match(r"\w+ │ • \$ ", line))
    assert 3 == len(begun)
    assert set(begun) <= set(lines[:first_end])


def test_the_demo_in_a_terminal_shows_a_dashboard(tmp_path):
    """Wide and narrow, it draws both panels in colours, gives the cursor back and leaves the summary."""
    with Terminal(tmp_path, "demo", width=120) as wide, Terminal(tmp_path, "demo", width=60) as narrow:
        assert [0, 0] == [wide.end(), narrow.end()]
    for one in (wide, narrow):
        assert all(
            part in one.shown for part in ("╭─ root ─", "╭─ agents ─", "✔ words completed", "■ check interrupted")
        )
        assert all(part in one.shown for part in ("The interrupt", "Its process tree is gone", "Done: 1 turn"))
        assert re.search(r"\x1b\[[0-9;]+m", one.text)
        assert one.text.rindex("\x1b[?25h") > one.text.rindex("\x1b[?25l")
    assert "╮ ╭─ agents" in wide.shown
    assert "╮ ╭─ agents" not in narrow.shown
    assert [] == leftovers(tmp_path)


def test_ctrl_c_ends_the_demo_and_leaves_nothing(tmp_path):
    """One Ctrl-C while all agents work: exit code 130, no folder, no process, no traceback."""
    with Terminal(tmp_path, "demo") as terminal:
        terminal.wait_for("the curtain is still down")
        assert [] != leftovers(tmp_path)
        terminal.press_ctrl_c()
        assert 130 == terminal.end()
        assert "Traceback" not in terminal.text
    assert [] == leftovers(tmp_path)


# -- one reader among several ------------------------------------------------------------------------------------------


class Shown(io.StringIO):
    """A stream that says what it is written in."""

    encoding = "utf-8"


@asynccontextmanager
async def watched(rt, session):
    """The story of a session as a pipe would get it."""
    stream = Shown()
    screen = Screen(Output(stream, threaded=False))
    story = Story(session.id, lambda: screen.width, colour=False, starts=False)

    def take(item):
        if isinstance(item, Envelope):
            screen.lines(story.take(item))

    async with Following(rt, session.id, take) as following:
        yield following, stream


def plans_in(text):
    """The plan cells of a story, each as its lines."""
    cells, open_ = [], False
    for line in text.splitlines():
        if line.startswith("• Plan ("):
            cells.append([line])
            open_ = True
        elif open_ and line.startswith("  "):
            cells[-1].append(line)
        else:
            open_ = False
    return cells


def cell(event):
    """A plan as the story shows it."""
    lines = [str(line) for line in plan_lines(Plan(event.explanation, event.plan), PIPE_CELLS_MAX, colour=False)]
    return [f"{'  ' if at else '• '}{line}" for at, line in enumerate(lines)]


async def test_who_follows_a_turn_gets_the_plans_that_are_drawn():
    """A reader that knows session and turn sees the snapshots the screen draws, and nobody minds one that leaves."""
    async with open_runtime(model=ScriptedModel(SCRIPTS["demo"])) as rt:
        session = await rt.create("tree")
        reader, leaver = session.events(), session.events()
        async with watched(rt, session) as (following, stream), watched(rt, session) as (leaving, left):
            accepted = await session.submit("look")
            assert isinstance(accepted, Accepted)
            async for item in leaver:
                if isinstance(item, Envelope) and isinstance(item.event, PlanUpdated):
                    break
            await leaver.aclose()
            await leaving.aclose()
            await session.wait(accepted.turn)
            await following.resting()
            await following.caught_up()
            drawn = plans_in(stream.getvalue())
            early = plans_in(left.getvalue())
        plans = []
        async for item in reader:
            if isinstance(item, Envelope) and item.turn == accepted.turn and isinstance(item.event, PlanUpdated):
                plans.append(item.event)
            if len(plans) == len(drawn):
                break
        await reader.aclose()
    assert [0, 1, 2, 3, 3, 4, 5] == [sum(step.status == "completed" for step in plan.plan) for plan in plans]
    assert [cell(plan) for plan in plans] == drawn
    assert drawn[: len(early)] == early

"""The story of plans, questions, reminders and goals as a whole: what its metrics count, and what its readers see."""

import json

from prometheus_client import CollectorRegistry
from tests.pure.metrics_samples import samples

from callboard.actors import Call, Envelope, Prompt, QuestionAsked, Reply, TurnEnded
from callboard.actors.testing import ScriptedModel
from callboard.runtime import SessionHandle, open_runtime
from callboard.runtime.doors.story import Story

PAPER = {"id": "paper", "header": "Paper", "question": "Which paper?"}
PAPERS = [{"label": "matte", "description": "No glare."}, {"label": "glossy", "description": "Stronger colours."}]
PLAN = "# Posters\n\n1. Buy matte paper.\n2. Print {count} posters.\n3. Put them on the walls."
SAYS = {2: "Printed.", 3: "A reminder: the ink is dry.", 4: "One is on the wall.", 5: "Both are on the walls."}
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


def checklist(**steps: str) -> Call:
    """The plan as a checklist that the user follows."""
    return Call("update_plan", {"plan": [{"step": step, "status": status} for step, status in steps.items()]})


def play(prompt: Prompt) -> Reply:
    """The model is a script: what it does in each turn and step."""
    match prompt.turn, prompt.step:
        case 1, 1:
            return Reply("", [Call("request_user_input", {"questions": [{**PAPER, "options": PAPERS}]})])
        case 1, step:
            return Reply("", [Call("exit_plan_mode", {"plan": PLAN.format(count=9 if step == 2 else 2)})])
        case 2, 1:
            remind = Call("schedule_create", {"prompt": "The ink is dry.", "after_seconds": 1})
            return Reply("", [checklist(paper="completed", printing="completed", walls="pending"), remind])
        case 4, 1:
            return Reply("", [checklist(paper="completed", printing="completed", walls="in_progress")])
        case 5, 1:
            return Reply("", [checklist(paper="completed", printing="completed", walls="completed"), Call("get_goal")])
        case 5, 2:
            goal = json.loads(prompt.messages[-1].text)["goal"]
            done = {"goal_id": goal["id"], "revision": goal["revision"], "action": "complete"}
            return Reply("", [Call("update_goal", done)])
    return Reply(SAYS[prompt.turn])


async def answer(session: SessionHandle, asked: QuestionAsked) -> None:
    """The user chooses what is first, but for a plan that is too large."""
    if "9 posters" in asked.detail:
        await session.answer(asked.id, ["Keep planning"], "There are only two walls.")
    else:
        await session.answer(asked.id, [asked.options[0].label])


async def ended(session: SessionHandle, until: int, after: int = -1) -> int:
    """Answer what is asked until a turn ends; how far it has read."""
    async for item in session.events(after=after):
        match item:
            case Envelope(event=QuestionAsked() as asked):
                await answer(session, asked)
            case Envelope(event=TurnEnded(turn=turn), seq=seq) if turn == until:
                return seq
    return after


async def story(session: SessionHandle) -> list[str]:
    """What a reader who comes later is told of all the turns."""
    told, lines = Story(session.id, lambda: 90, colour=False, starts=False), []
    async for item in session.events():
        if isinstance(item, Envelope):
            lines += [line.plain for line in told.take(item)]
            if isinstance(item.event, TurnEnded) and item.event.turn == TURNS:
                break
    return lines


async def test_the_whole_story_is_counted_and_told():
    """One session plans, is approved, reminded and reaches its goal: each is counted once, and told in this order."""
    registry = CollectorRegistry()
    async with open_runtime(model=ScriptedModel(play), registry=registry) as rt:
        session = await rt.create()
        await session.set_mode("plan")
        await session.submit("Posters for the market, please.")
        read = await ended(session, until=3)
        await session.command("/goal Both posters are on the walls.")
        await ended(session, until=TURNS, after=read)
        lines = await story(session)
    counted = samples(registry)
    assert {name: counted.get(name) for name in COUNTED} == COUNTED
    prefixes = ("questions", "approvals", "reminders", "goal_", "control_tool_calls", "plan_mode_seconds_count")
    assert {name for name in counted if name.startswith(prefixes)} == COUNTED.keys() - {"reminder_lag_seconds_count"}
    rest = iter(lines)
    assert [line for line in TOLD if line not in rest] == []

"""From a plan to a goal: a question, a review, a checklist, a reminder, and rounds that a session goes on by itself."""

import asyncio
from collections.abc import Iterator

from callboard.actors import (
    Call,
    Envelope,
    Event,
    GoalChanged,
    MessageQueued,
    ModelSaid,
    Option,
    PlanModeSet,
    PlanUpdated,
    QuestionAnswered,
    QuestionAsked,
    ReminderFired,
    ReminderSet,
    Reply,
    ToolReturned,
    TurnEnded,
    tool,
)
from callboard.actors.testing import FakeWall, ScriptedModel
from callboard.runtime import open_runtime

PLAN = "# Two posters\n1. Print both on recycled paper.\n2. Hang them up once the ink is dry."
QUESTION = {"id": "paper", "question": "On which paper?", "options": [{"label": "Recycled"}, {"label": "Glossy"}]}


def work(task: str, minutes: int) -> Call:
    """Something done by hand."""
    return Call("work", {"task": task, "minutes": minutes})


def checklist(printing: str, hanging: str) -> Call:
    """How far it is."""
    steps = [{"step": "Print", "status": printing}, {"step": "Hang up", "status": hanging}]
    return Call("update_plan", {"plan": steps})


SCRIPT = [
    Reply("", [Call("request_user_input", {"questions": [QUESTION]})]),
    Reply("", [Call("exit_plan_mode", {"plan": PLAN})]),
    # approved: the next turn carries it out
    Reply("", [checklist("in_progress", "pending"), work("Print two posters", 10)]),
    Reply("", [Call("schedule_create", {"prompt": "The ink is dry.", "after_seconds": 1800})]),
    Reply("Meanwhile there is the floor.", [work("Sweep the shop", 30)]),
    Reply("The floor is clean."),
    # the reminder starts a turn
    Reply("", [checklist("completed", "in_progress")]),
    Reply("The posters can go up now."),
    # the goal, round by round
    Reply("One at a time.", [work("Hang one at the door", 5)]),
    Reply("One is left."),
    Reply("", [work("Hang one in the window", 5), checklist("completed", "completed")]),
    Reply("Both are up; a last look from outside."),
    Reply("", [Call("update_goal", {"goal_id": "goal-1", "revision": 1, "action": "complete"})]),
    Reply("Both posters hang, and straight."),
]


def told(event: Event) -> Iterator[str]:
    """What a person may want to know of an event."""
    match event:
        case MessageQueued(source="user", text=text):
            yield f"> {text}"
        case MessageQueued(source="goal", id=id):
            yield f"Round {id.rpartition(':')[2]}."
        case PlanModeSet(active=active):
            yield f"Plan mode is {'on' if active else 'off'}."
        case QuestionAsked(question=question, detail=detail, options=options):
            yield from (f"    {line}" for line in detail.splitlines())
            yield f"? {question} {' / '.join(option.label for option in options)}"
        case QuestionAnswered(selected=selected):
            yield f"> {' '.join(selected)}"
        case PlanUpdated(plan=steps):
            yield "  ".join(f"[{'x' if step.status == 'completed' else ' '}] {step.step}" for step in steps)
        case ReminderSet(reminder=reminder):
            yield f"Reminder in {reminder.rule} s: {reminder.prompt}"
        case ReminderFired():
            yield "The reminder comes."
        case GoalChanged(goal=goal):
            yield f"Goal, {goal.phase}: {goal.objective}"
        case ToolReturned(name="work", text=text):
            yield f"* {text}"
        case ModelSaid(text=text) if text:
            yield text


async def main() -> None:
    """The user's part: switch Plan mode on, answer what is asked, and give the goal."""
    wall = FakeWall()

    @tool(name="work", runs_on="trio")
    def by_hand(task: str, minutes: int) -> str:
        """Do something by hand; the clock goes on."""
        wall.advance(60 * minutes)
        return f"{task}: {minutes} minutes"

    async with open_runtime(model=ScriptedModel(SCRIPT), tools=[by_hand], clock=wall) as rt:
        session = await rt.create()
        await session.set_mode("plan")
        await session.submit("Two posters for the market, please.")
        async for item in session.events():
            for line in told(item.event) if isinstance(item, Envelope) else ():
                print(line)
            match item:
                case Envelope(event=QuestionAsked(id=id, options=(Option(label=first), *_))):
                    await session.answer(id, [first])
                case Envelope(event=TurnEnded(turn=3)):
                    await session.command("/goal Both posters are on the walls.")
                case Envelope(event=TurnEnded(turn=6)):
                    break


if __name__ == "__main__":
    asyncio.run(main())

"""From a plan to a goal: a question, an approval, a checklist, a reminder, and rounds that end by themselves."""

import asyncio
import json

from callboard.actors import (
    Call,
    Envelope,
    GoalChanged,
    PlanModeSet,
    PlanUpdated,
    Prompt,
    QuestionAsked,
    ReminderFired,
    ReminderSet,
    Reply,
    TurnEnded,
)
from callboard.actors.testing import ScriptedModel
from callboard.runtime import SessionHandle, open_runtime

PAPER = {"id": "paper", "header": "Paper", "question": "Which paper?"}
PAPERS = [{"label": "matte", "description": "No glare."}, {"label": "glossy", "description": "Stronger colours."}]
PLAN = "# Posters\n\n1. Buy matte paper.\n2. Print {count} posters.\n3. Put them on the walls."
SAYS = {2: "Printed.", 3: "A reminder: the ink is dry.", 4: "One is on the wall.", 5: "Both are on the walls."}


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
    """The user: chooses, and says more where that is needed."""
    choice, text = asked.options[0].label, None
    if "9 posters" in asked.detail:
        choice, text = "Keep planning", "There are only two walls."
    print(f"  ? {asked.question} -> {choice}{'' if text is None else f': {text}'}")
    await session.answer(asked.id, [choice], text)


async def watch(session: SessionHandle, until: int, after: int = -1) -> int:
    """A client: shows what happens, and passes on what the user says, until a turn ends; how far it has read."""
    async for item in session.events(after=after):
        match item:
            case Envelope(event=PlanModeSet(active=active)):
                print(f"  plan mode {'on' if active else 'off'}")
            case Envelope(event=QuestionAsked() as asked):
                await answer(session, asked)
            case Envelope(event=PlanUpdated(plan=plan)):
                print("  " + ", ".join(f"{step.step}: {step.status}" for step in plan))
            case Envelope(event=ReminderSet(reminder=reminder)):
                print(f"  {reminder.id} set: {reminder.prompt}")
            case Envelope(event=ReminderFired(id=id_)):
                print(f"  {id_} due")
            case Envelope(event=GoalChanged(operation=operation, goal=goal)):
                print(f"  goal {operation}: {goal.objective}")
            case Envelope(event=TurnEnded() as ended, seq=seq):
                said = ended.last_message or "(the plan is approved)"
                print(f"turn {ended.turn}: {said}  [{ended.open_steps} open]")
                if ended.turn == until:
                    return seq
    return after


async def main() -> None:
    """Plan, carry out, be reminded; then work towards a goal, round by round, until it is reached."""
    async with open_runtime(model=ScriptedModel(play)) as rt:
        session = await rt.create()
        await session.set_mode("plan")
        await session.submit("Posters for the market, please.")
        read = await watch(session, until=3)
        await session.command("/goal Both posters are on the walls.")
        await watch(session, until=5, after=read)


if __name__ == "__main__":
    asyncio.run(main())

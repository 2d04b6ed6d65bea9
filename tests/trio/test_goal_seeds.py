"""Goals under seeds: whatever people and model do, in whatever order, the log is whole and the session rests."""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import trio

from callboard.actors.books import QUEUE, TURN
from callboard.actors.events import Call, Event, MessageQueued, StepStarted, TurnEnded, TurnStarted
from callboard.actors.facts import GoalChanged
from callboard.actors.messages import SetMode
from callboard.actors.model import Prompt, Reply
from callboard.actors.testing import LabSession, ScriptedModel, open_lab, seeded_run
from callboard.actors.tool import tool
from callboard.plugins.goal import goal_plugin
from callboard.plugins.goalbook import GOAL, GoalBook

from .goaled import armed, book, goal
from .strict import check_log, of_kind

SEEDS_MAX = 40
LINES = ("win", "pause", "resume", "clear", "edit win more", "show", "resume", "win")
STARTS_MAX = 60


@tool(effect="none")
async def work() -> str:
    """Takes a while."""
    await trio.sleep(random.uniform(0, 0.3))
    return "worked"


async def _reply(prompt: Prompt) -> Reply:
    """Anything a model may do."""
    await trio.sleep(random.uniform(0, 0.5))
    if prompt.step > 2:
        return Reply("enough", truncated=random.random() < 0.05)
    revision, goal_id = random.randint(1, 6), f"goal-{random.randint(1, 2)}"
    action = random.choice(["complete", "blocked", "pause", "edit", "resume"])
    change = {"goal_id": goal_id, "revision": revision, "action": action}
    if action == "blocked":
        change["blocked_reason"] = "stuck"
    choices = [Call("work"), Call("work"), Call("get_goal"), Call("update_goal", change)]
    choices.append(Call("create_goal", {"objective": "x"}))
    return Reply(calls=[random.choice(choices)]) if random.random() < 0.6 else Reply("talk")


def _set_mode(active: bool, reply: Callable[[Any], None]) -> SetMode:
    return SetMode(active, reply=reply)


async def _person(session: LabSession) -> None:
    """Somebody who says and stops things at any moment."""
    for _ in range(8):
        await trio.sleep(random.uniform(0, 1.5))
        match random.randrange(6):
            case 0:
                await session.submit("and this?")
            case 1:
                await session.steer("more")
            case 2:
                await session.interrupt()
            case 3:
                planning = random.random() < 0.5
                await session.ask(partial(_set_mode, planning))
            case 4:
                await session.replace("this instead")
            case _:
                await goal(session, random.choice(LINES))


async def story() -> None:
    """Two people and a goal, until all rests."""
    async with open_lab(ScriptedModel(_reply), tools=[work], plugins=[goal_plugin(rounds_max=5)]) as lab:
        session = await lab.session()
        async with trio.open_nursery() as people:
            people.start_soon(_person, session)
            people.start_soon(_person, session)
        with trio.fail_after(1_000):
            await session.wait_idle()
            for planning in (True, False):  # in two steps, because a choice that waits for the next step is no news
                await session.ask(partial(_set_mode, planning))
            await session.wait_idle()
        events = lab.records()
        check_log(events)
        found: GoalBook = book(session)
        assert None is found.corrupt
        assert found.goal is None or found.rounds <= found.goal.rounds_max
        assert not armed(session), "an armed goal rests"
        assert not any(message.source == "goal" for message in session.state(QUEUE)) or not session.state(TURN).open
        queued = [event.id for event in of_kind(events, MessageQueued) if event.source == "goal"]
        assert len(queued) == len(set(queued))
        begun = [kind for kind in events if isinstance(kind, TurnStarted) and kind.start == "automatic"]
        assert len(begun) <= STARTS_MAX, "turns without end"
        assert found == _folded(events)
        assert len(of_kind(events, TurnEnded)) >= bool(of_kind(events, StepStarted))
        assert all(event.goal.id.startswith("goal-") for event in of_kind(events, GoalChanged))


def _folded(events: Sequence[Event]) -> GoalBook:
    state = GOAL.zero
    for event in events:
        state = GOAL.apply(state, event)
    return state


def test_goals_in_any_order():
    """No order of messages, rounds, interrupts and commands contradicts itself, loses a round, or has no end."""
    assert SEEDS_MAX == seeded_run(story, range(SEEDS_MAX))

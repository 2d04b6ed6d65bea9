"""What tests of goals share: a session with a goal, its commands, and what became of its rounds."""

from collections.abc import Callable
from typing import Any

from callboard.actors.events import Call, Event, MessagesClaimed, TurnEnded
from callboard.actors.facts import GoalChanged
from callboard.actors.messages import Told, UseCommand
from callboard.actors.model import Prompt, Reply, User
from callboard.actors.testing import Lab, LabSession, ScriptedModel
from callboard.plugins.goal import BELONGING
from callboard.plugins.goalbook import GOAL, GoalBook
from callboard.plugins.goals import is_armed

from .strict import of_kind


async def goal(session: LabSession, rest: Any = "make it work", id: str | None = None) -> Any:
    """What `/goal REST` answers."""
    return await session.ask(lambda reply: UseCommand("goal", rest, id, reply=reply))


async def said(session: LabSession, rest: str = "show") -> str:
    """What `/goal REST` tells people."""
    answer = await goal(session, rest)
    assert isinstance(answer, Told), answer
    return answer.text


def book(session: LabSession) -> GoalBook:
    """The fold."""
    found: GoalBook = session.state(GOAL)
    return found


def armed(session: LabSession) -> bool:
    """Whether its goal goes on by itself."""
    return is_armed(book(session), (session.actor.scene.belongings or {}).get(BELONGING))


def phase(session: LabSession) -> tuple[str, str | None, int]:
    """Phase, reason and rounds."""
    found = book(session)
    assert found.goal is not None
    return found.goal.phase, found.goal.blocked_reason, found.rounds


def operations(lab: Lab, id: str = "s") -> list[str]:
    """What was done to the goal, in order."""
    return [event.operation for event in of_kind(lab.records(id), GoalChanged)]


def ends(lab: Lab) -> list[TurnEnded]:
    """The ends of the turns."""
    return of_kind(lab.records(), TurnEnded)


def claims(events: list[Event]) -> list[tuple[str, ...]]:
    """Which messages the turns took."""
    return [event.ids for event in of_kind(events, MessagesClaimed)]


def is_goal_round(prompt: Prompt) -> bool:
    """Whether the newest message of the user's kind is a round."""
    users = [message for message in prompt.messages if isinstance(message, User)]
    return bool(users) and users[-1].source == "goal"


def update(action: str, revision: int = 1, **more: Any) -> Reply:
    """A call that changes the goal."""
    return Reply(calls=[Call("update_goal", {"goal_id": "goal-1", "revision": revision, "action": action, **more})])


def busy(after: Callable[[Prompt], Reply] | None = None) -> ScriptedModel:
    """A model that calls `work` in the first step of each turn, and then says that it goes on."""

    def play(prompt: Prompt) -> Reply:
        if prompt.step == 1:
            return Reply(calls=[Call("work")])
        return Reply("continue") if after is None else after(prompt)

    return ScriptedModel(play)

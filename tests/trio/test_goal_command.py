"""/goal in whole sessions: what people type, what it answers, what it refuses, and what it writes."""

from typing import Any

import msgspec
import pytest

from callboard.actors.events import Call, ToolReturned
from callboard.actors.messages import Refused, SetMode
from callboard.actors.model import Reply
from callboard.actors.testing import Lab, ScriptedModel, open_lab
from callboard.plugins.goal import (
    CLEARED,
    GOAL_PLUGIN,
    NO_GOAL,
    NO_OBJECTIVE,
    NOTHING_CLEARED,
    goal_plugin,
)

from .goaled import book, goal, is_goal_round, operations, said
from .strict import of_kind, until

GOALS = (GOAL_PLUGIN,)


def calling(*calls: Call) -> ScriptedModel:
    """A model that makes these calls one after the other in the user's first turn, and only talks after that."""

    def play(prompt):
        return Reply(calls=[calls[prompt.step - 1]]) if prompt.turn == 1 and prompt.step <= len(calls) else Reply("ok")

    return ScriptedModel(play)


def changing(action: str, revision: int = 1, **more: Any) -> Call:
    """A call of update_goal."""
    return Call("update_goal", {"goal_id": "goal-1", "revision": revision, "action": action, **more})


def read(lab: Lab, name: str = "_goal") -> list[tuple[str, Any]]:
    """What the calls came to."""
    returned = [one for one in of_kind(lab.records(), ToolReturned) if name in one.name]
    return [(one.receipt, msgspec.json.decode(one.text) if one.text[:1] == "{" else one.text) for one in returned]


LINES: tuple[tuple[str, str], ...] = (
    ("", NO_GOAL),
    ("show", NO_GOAL),
    ("SHOW ", NO_GOAL),
    ("clear", NOTHING_CLEARED),
    ("pause now", "Goal goal-1, active; 0 of 4 rounds: pause now"),
    ("show", "Goal goal-1, active; 0 of 4 rounds: pause now"),
    ("edit\n make it\nwork ", "Goal goal-1, active; 0 of 4 rounds: make it\nwork"),
    ("Pause", "Goal goal-1, paused; 0 of 4 rounds: make it\nwork"),
    ("edit x", "Goal goal-1, paused; 0 of 4 rounds: x"),
    ("RESUME", "Goal goal-1, active; 0 of 4 rounds: x"),
    ("clear", CLEARED),
    ("show", NO_GOAL),
    ("editor wars", "Goal goal-2, active; 0 of 4 rounds: editor wars"),
)


async def test_what_the_command_understands():
    """Empty and `show` show; exact words in any case act; `edit` takes a text; anything else is an objective."""
    async with open_lab(calling(), plugins=[goal_plugin(4)]) as lab:
        session = await lab.session()
        await session.ask(lambda reply: SetMode(active=True, reply=reply))
        for line, expected in LINES:
            assert expected == await said(session, line)
        assert ["create", "edit", "pause", "edit", "resume", "clear", "create"] == operations(lab)


REFUSALS: tuple[tuple[Any, str], ...] = (
    ("pause", NO_GOAL),
    ("resume", NO_GOAL),
    ("edit x", NO_GOAL),
    ("edit", NO_OBJECTIVE),
    ("EDIT  ", NO_OBJECTIVE),
    ("x" * 5_000, "invalid_objective: "),
    (None, "/goal takes text, got NoneType."),
    ({"objective": "x"}, "/goal takes text, got dict."),
)


@pytest.mark.parametrize(("rest", "says"), REFUSALS, ids=lambda value: f"{value!r:.20}")
async def test_what_the_command_refuses(rest, says):
    """A refusal says what is wrong, and nothing is written."""
    async with open_lab(calling(), plugins=GOALS) as lab:
        session = await lab.session()
        answer = await goal(session, rest)
        assert ("invalid_command", True) == (answer.reason, answer.detail.startswith(says))
        assert (1, 0) == (len(lab.records()), book(session).made)


async def test_a_new_goal_needs_the_last_one_to_be_complete():
    """Over an unfinished goal a text is refused; over a complete one a text and an edit make a new goal."""

    def play(prompt):
        text = prompt.messages[-1].text
        id_ = "goal-2" if "goal-2" in text else "goal-1" if "goal-1" in text else ""
        if not is_goal_round(prompt) or prompt.step > 1 or not id_:
            return Reply("ok")
        return Reply(calls=[Call("update_goal", {"goal_id": id_, "revision": 1, "action": "complete"})])

    async with open_lab(ScriptedModel(play), plugins=GOALS) as lab:
        session = await lab.session()
        await goal(session, "one")
        refused = await goal(session, "two")
        assert (True, True) == (isinstance(refused, Refused), "goal_already_exists" in refused.detail)
        await session.wait_idle()
        assert "complete; 1 of 256" in await said(session)
        await goal(session, "two")
        await session.wait_idle()
        await goal(session, "edit three")
        await until(lambda: book(session).made == 3)
        await goal(session, "clear")
        await session.wait_idle()
        assert ["create", "complete", "create", "complete", "create", "clear"] == operations(lab)


async def test_the_same_command_id_acts_once():
    """A command that is sent again under its id is answered as before, and writes nothing more."""
    async with open_lab(calling(), plugins=GOALS) as lab:
        session = await lab.session()
        await session.ask(lambda reply: SetMode(active=True, reply=reply))
        first = await goal(session, "x", id="one")
        assert first == await goal(session, "x", id="one")
        assert ["create"] == operations(lab)


async def test_what_is_used_is_shown():
    """Budgets are shown with what the rounds have used of them."""
    create = Call("create_goal", {"objective": "x", "token_budget": 5_000, "seconds_budget": 60})
    async with open_lab(calling(create), plugins=GOALS) as lab:
        session = await lab.session()
        await session.run("go")
        await session.wait_idle()
        expected = "Goal goal-1, blocked (no_progress); 3 of 256 rounds, 0 of 5,000 tokens, 0 of 60 s: x"
        assert expected == await said(session)

"""get_goal, create_goal, update_goal and /goal in whole sessions: what they need, answer, refuse and write."""

from typing import Any

import msgspec
import pytest
import trio

from callboard.actors.events import Call, ControlCallEnded, ToolCalled, ToolReturned
from callboard.actors.facts import Goal, GoalChanged
from callboard.actors.hook import Hook
from callboard.actors.memory import MemoryStore
from callboard.actors.messages import Interrupting, Told
from callboard.actors.model import Reply
from callboard.actors.testing import Lab, LabSession, ScriptedModel, open_lab
from callboard.plugins.goal import (
    GOAL_PLUGIN,
    goal_plugin,
)
from callboard.plugins.goalbook import GOAL

from .goaled import armed, book, ends, goal, operations, phase, update
from .strict import check_log, of_kind

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


async def test_what_the_tools_declare():
    """All are control tools that change nothing outside, run alone, and only the reading one has no effect."""
    declared = {t.name: (t.control, t.mutates, t.parallel, t.effect, t.runs_on) for t in GOAL_PLUGIN.tools}
    changes = (True, False, False, "idempotent", "trio")
    assert {
        "get_goal": (True, False, False, "none", "trio"),
        "create_goal": changes,
        "update_goal": changes,
    } == declared
    assert all(tool.spec.description for tool in GOAL_PLUGIN.tools)


async def test_the_whole_life_of_a_goal_by_tools():
    """Each answer shows the goal after the change; each change is on the log in one write with its result."""
    edit = Call("update_goal", {"goal_id": "goal-1", "revision": 1, "action": "edit", "rounds_max": 9, "objective": ""})
    pause = Call(
        "update_goal", {"goal_id": "goal-1", "revision": 2, "action": "pause", "blocked_reason": "", "rounds_max": 0}
    )
    resume = Call("update_goal", {"goal_id": "goal-1", "revision": 3, "action": "resume"})
    block = Call("update_goal", {"goal_id": "goal-1", "revision": 4, "action": "blocked", "blocked_reason": "no key"})
    done = Call("update_goal", {"goal_id": "goal-1", "revision": 5, "action": "complete"})
    none, create = Call("get_goal"), Call("create_goal", {"objective": " do it ", "token_budget": 5_000})
    model = calling(none, create, none, edit, pause, resume, block, done)
    async with open_lab(model, plugins=GOALS) as lab:
        session = await lab.session()
        await session.run("go")
        start = {"id": "goal-1", "objective": "do it", "token_budget": 5_000}
        start |= {"rounds_started": 0, "tokens_used": 0, "seconds_used": 0.0}

        def shown(revision: int, phase: str, activation: str = "disarmed", rounds: int = 9, **more: Any) -> Any:
            whole = {**start, "revision": revision, "phase": phase, "rounds_max": rounds, **more}
            return ("completed", {"goal": whole, "activation": activation})

        assert [
            ("completed", {"goal": None}),
            shown(1, "active", "armed", 256),
            shown(1, "active", "armed", 256),
            shown(2, "active", "armed"),
            shown(3, "paused"),
            shown(4, "active", "armed"),
            shown(5, "blocked", blocked_reason="model_reported: no key"),
            shown(6, "complete"),
        ] == read(lab)
        events = lab.records()
        for at, event in enumerate(events):
            if isinstance(event, GoalChanged):
                assert [ToolReturned, ControlCallEnded] == [type(one) for one in events[at + 1 : at + 3]]
        assert {"completed"} == {one.outcome for one in of_kind(events, ControlCallEnded)}
        assert 1 == len(ends(lab))
        check_log(events)


ARGUMENTS: dict[str, tuple[Call, str]] = {
    "no objective": (Call("create_goal", {}), "failed to parse function arguments"),
    "an unknown field": (Call("create_goal", {"objective": "x", "max": 3}), "failed to parse function arguments"),
    "a number": (Call("create_goal", {"objective": 5}), "failed to parse function arguments"),
    "half a character": (Call("create_goal", '{"objective": "\\ud800"}'), "failed to parse function arguments"),
    "nested deep": (Call("create_goal", '{"objective": ' + "[" * 50_000), "failed to parse function arguments"),
    "an empty objective": (Call("create_goal", {"objective": " "}), "invalid_objective: "),
    "a huge objective": (Call("create_goal", {"objective": "x" * 50_000}), "invalid_objective: "),
    "no rounds": (Call("create_goal", {"objective": "x", "rounds_max": 0}), "invalid_max_rounds: "),
    "huge rounds": (Call("create_goal", {"objective": "x", "rounds_max": 10**30}), "invalid_max_rounds: "),
    "no budget": (Call("create_goal", {"objective": "x", "token_budget": 0}), "invalid_budget: "),
    "seconds below 0": (Call("create_goal", {"objective": "x", "seconds_budget": -1}), "invalid_budget: "),
    "no such action": (
        Call("update_goal", {"goal_id": "goal-1", "revision": 1, "action": "clear"}),
        "failed to parse function arguments",
    ),
    "no goal": (Call("update_goal", {"goal_id": "goal-1", "revision": 1, "action": "pause"}), "goal_not_found: "),
    "a lone reason": (
        Call("update_goal", {"goal_id": "g", "revision": 1, "action": "complete", "blocked_reason": "x"}),
        "invalid_update: ",
    ),
    "a lone limit": (
        Call("update_goal", {"goal_id": "g", "revision": 1, "action": "pause", "rounds_max": 3}),
        "invalid_update: ",
    ),
    "blocked without a reason": (
        Call("update_goal", {"goal_id": "g", "revision": 1, "action": "blocked", "blocked_reason": ""}),
        "invalid_update: ",
    ),
}


@pytest.mark.parametrize(("call", "says"), ARGUMENTS.values(), ids=ARGUMENTS)
async def test_arguments_that_do_not_fit_write_nothing(call, says):
    """Each is a failed call that says what is wrong, briefly, and no event is written."""
    async with open_lab(calling(call), plugins=GOALS) as lab:
        session = await lab.session()
        await session.run("go")
        ((receipt, text),) = read(lab)
        assert ("failed", True, True) == (receipt, text.startswith(says), len(text) < 800)
        assert (0, []) == (book(session).made, operations(lab))


async def test_the_log_decides_between_two_revisions():
    """A change for a revision that is over loses, and says which one is there."""
    create = Call("create_goal", {"objective": "x"})
    edit = changing("edit", objective="y")
    async with open_lab(calling(create, edit, edit), plugins=GOALS) as lab:
        session = await lab.session()
        await session.run("go")
        assert ("failed", True) == (
            read(lab)[-1][0],
            "stale_revision: goal-1 is at revision 2, not 1" in read(lab)[-1][1],
        )
        await goal(session, "pause")


async def test_the_model_makes_no_goal_by_itself():
    """In a round, and in a turn that mail or a reminder began, only what a round may do is done."""
    mine = {"goal_id": "goal-1", "revision": 1}
    tries = [
        Call("create_goal", {"objective": "more"}),
        *(Call("update_goal", {**mine, "action": action}) for action in ("edit", "pause", "resume")),
        Call("update_goal", {**mine, "action": "blocked", "blocked_reason": "hard"}),
    ]
    tries[1] = Call("update_goal", {**mine, "action": "edit", "objective": "less"})

    def play(prompt):
        return Reply(calls=[tries[prompt.step - 1]] if prompt.step <= len(tries) else [])

    async with open_lab(ScriptedModel(play), plugins=[goal_plugin(1)]) as lab:
        session = await lab.session()
        await goal(session)
        await session.wait_idle()
        codes = [text.partition(":")[0] for _, text in read(lab)]
        assert [*["authority_required"] * 4, "block_threshold"] == codes
        assert ["create", "block"] == operations(lab)
        await session.mail("please set a goal")
        await session.wait_idle()
        assert "authority_required" == read(lab)[-5][1].partition(":")[0]


async def test_from_the_third_round_on_the_model_may_block_it():
    """Blocked by the model: the reason says so, one last report follows, and nothing new begins."""

    def play(prompt):
        if prompt.step == 1:
            return update("blocked", blocked_reason="no key")
        return Reply("report")

    async with open_lab(ScriptedModel(play), plugins=GOALS) as lab:
        session = await lab.session()
        await goal(session)
        await session.wait_idle()
        assert ("blocked", "model_reported: no key", 3) == phase(session)
        assert (["failed", "failed", "completed"], 3) == ([receipt for receipt, _ in read(lab)], len(ends(lab)))
        assert not armed(session)


async def test_a_steer_gives_a_round_the_authority_of_the_user():
    """What the user steers into a round counts as the user's word."""
    asked, go_on = trio.Event(), trio.Event()

    async def play(prompt):
        if prompt.step == 1:
            asked.set()
            await go_on.wait()
            return Reply("hm")
        return update("pause") if prompt.step == 2 else Reply("paused")

    async with open_lab(ScriptedModel(play), plugins=GOALS) as lab:
        session = await lab.session()
        await goal(session)
        await asked.wait()
        await session.steer("pause it")
        go_on.set()
        await session.wait_idle()
        assert (("paused", None, 1), 1) == (phase(session), len(ends(lab)))


async def test_a_subagent_changes_no_goal():
    """Below the root every change is refused, also with a message in the turn."""
    async with open_lab(calling(Call("create_goal", {"objective": "x"}), Call("get_goal")), plugins=GOALS) as lab:
        session = await lab.session("s", parent="p", depth=1, path="/root/a")
        await session.run("go")
        assert [("failed", True), ("completed", False)] == [(r, "authority_required" in str(t)) for r, t in read(lab)]


async def test_a_goal_made_in_a_turn_that_is_cut_does_not_go_on():
    """A call that had its result stands when its turn is interrupted; its goal waits for a resume."""
    looking = trio.Event()

    async def look(call, result):
        looking.set()
        await trio.sleep(1_000)

    model = calling(Call("create_goal", {"objective": "x"}))
    async with open_lab(model, plugins=GOALS, hooks=[Hook("look", after_tool=look, timeout_s=2_000)]) as lab:
        session = await lab.session()
        await session.submit("go")
        await looking.wait()
        assert await session.interrupt() == Interrupting(1)
        await session.wait_idle()
        assert (("active", None, 0), ["create"], False) == (phase(session), operations(lab), armed(session))
        assert (1, {}) == (len(ends(lab)), session.actor.scene.belongings)


async def test_of_a_call_and_a_command_at_once_the_first_counts():
    """A command that changes the goal while a call waits for its hook: the call's change is void, the log is whole."""
    looking, go_on = trio.Event(), trio.Event()

    async def look(call, result):
        if call.name == "update_goal":
            looking.set()
            await go_on.wait()

    create = Call("create_goal", {"objective": "x"})
    edit = changing("edit", objective="y")
    async with open_lab(calling(create, edit), plugins=GOALS, hooks=[Hook("look", after_tool=look)]) as lab:
        session = await lab.session()
        await session.submit("go")
        await looking.wait()
        assert isinstance(await goal(session, "pause"), Told)
        go_on.set()
        await session.wait_idle()
        assert (("paused", None, 0), None) == (phase(session), book(session).corrupt)


async def test_a_corrupt_goal_says_so_everywhere():
    """A session whose log contradicts itself about its goal opens; tools and command name it, and no round begins."""
    store = MemoryStore()
    async with open_lab(calling(), plugins=GOALS, store=store) as lab:
        session = await lab.session()
        session.log.append(GoalChanged("pause", Goal("goal-7", 3, "x", "paused", 5)))
    calls = [
        Call("get_goal"),
        Call("create_goal", {"objective": "x"}),
        Call("update_goal", {"goal_id": "goal-7", "revision": 3, "action": "complete"}),
    ]
    async with open_lab(calling(*calls), plugins=GOALS, store=store) as lab:
        session = await lab.session(fresh=False)
        await session.run("go")
        await session.wait_idle()
        assert [("failed", "corrupt_goal_log")] * 3 == [
            (receipt, text.partition(":")[0]) for receipt, text in read(lab)
        ]
        for line in ("", "x", "clear", "resume"):
            refused = await goal(session, line)
            assert refused.detail.startswith(
                "corrupt_goal_log: the goal of this session cannot be read: pause of 'goal-7'"
            )
        assert (1, None) == (len(ends(lab)), session.state(GOAL).goal)


async def test_calls_of_the_goal_are_no_secret_and_no_hook_is_passed_over():
    """The calls are on the log like any other, with their effect."""
    async with open_lab(calling(Call("get_goal"), Call("create_goal", {"objective": "x"})), plugins=GOALS) as lab:
        session = await lab.session()
        await session.run("go")
        effects = [(one.name, one.effect) for one in of_kind(lab.records(), ToolCalled)]
        assert [("get_goal", "none"), ("create_goal", "idempotent")] == effects
        assert isinstance(session, LabSession)
        await goal(session, "clear")

"""Plan mode in a session: what the model is told when, what is written when, and what may run meanwhile."""

from typing import Any

import pytest
import trio

from callboard.actors.books import HISTORY, QUEUE
from callboard.actors.compaction import PLAN_MODE as STILL_PLANNING
from callboard.actors.events import Call, MessagesClaimed, StepStarted, ToolReturned, TurnEnded
from callboard.actors.facts import PlanModeRequested, PlanModeSet
from callboard.actors.mode import MODE, Mode
from callboard.actors.model import Reply, User
from callboard.actors.plugin import Enter, Plugin, Reject, View
from callboard.actors.stage import Ran
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.actors.tool import tool
from callboard.plugins.plan import PLAN_PLUGIN, REFUSED_IN_PLAN_MODE
from callboard.plugins.plan_mode import (
    GATED,
    PLAN_MODE_PLUGIN,
    SECTION,
    SECTION_BELOW,
    STATED,
    SWITCHED_OFF,
    SWITCHED_ON,
    plan_mode_plugin,
)

from .planning import set_mode
from .strict import check_history, check_log, of_kind, until

HARD = plan_mode_plugin(gate="hard")


def notices(model: ScriptedModel) -> list[list[str]]:
    """The notices that each request had in it."""
    return [[one.text for one in p.messages if isinstance(one, User) and one.source == "notice"] for p in model.prompts]


@tool(effect="none")
async def wait(seconds: float = 1.0) -> str:
    """Wait."""
    await trio.sleep(seconds)
    return "waited"


@tool
async def write(view: View) -> str:
    """Change something."""
    return "written"


@tool(effect="none")
async def through(view: View) -> str:
    """Have another tool change something."""
    result = await view.use_tool("write", {})
    return f"{result.receipt}: {result.text}"


async def test_the_section_stands_behind_the_system_text():
    """It is there while the mode is on, or will be with this step; the catalogue is the same, the effort is asked."""
    model = ScriptedModel()
    async with open_lab(model, plugins=[plan_mode_plugin(section="  Look only.\n", effort="high")]) as lab:
        session = await lab.session(system="You are X.")
        await session.run("a")
        await set_mode(session, active=True)
        await session.run("b")
        await set_mode(session, active=False)
        await session.run("c")
        expected = [("You are X.", None), ("You are X.\n\nLook only.", "high"), ("You are X.", None)]
        assert expected == [(prompt.system, prompt.effort) for prompt in model.prompts]
        assert all(prompt.tools == model.prompts[0].tools for prompt in model.prompts)


@pytest.mark.parametrize("effort", [None, ""])
async def test_no_effort_is_asked(effort):
    """Without a setting the model thinks as it does by itself; our own section says what holds."""
    model = ScriptedModel()
    async with open_lab(model, plugins=[plan_mode_plugin(effort=effort)]) as lab:
        session = await lab.session()
        await set_mode(session, active=True)
        await session.run("a")
        assert [(SECTION, None)] == [(prompt.system, prompt.effort) for prompt in model.prompts]


async def test_each_switch_is_told_once():
    """None before the first request; then one notice a switch, behind what entered, and none twice."""
    model = ScriptedModel()
    async with open_lab(model, plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await lab.session()
        assert "committed" == await set_mode(session, active=True)
        await session.run("a")
        for active in (False, True, False):
            await set_mode(session, active=active)
            await session.run("b")
            await session.run("c")
        off, on = SWITCHED_OFF, SWITCHED_ON
        assert [[], *[[off]] * 2, *[[off, on]] * 2, *[[off, on, off]] * 2] == notices(model)
        last = of_kind(lab.records(), MessagesClaimed)[1].messages
        assert last is not None
        assert [("b", "user"), (off, "notice")] == [(one.text, one.source) for one in last]
        check_log(lab.records())
        check_history(session.state(HISTORY).messages)


async def test_a_switch_in_a_turn_is_committed_with_the_next_step():
    """It is a choice until then, and the section is already there; then one write has switch, notice and step."""
    model = ScriptedModel([Reply(calls=[Call("wait")]), Reply("done")])
    async with open_lab(model, plugins=[PLAN_MODE_PLUGIN], tools=[wait]) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(0.5)
        assert "queued" == await set_mode(session, active=True)
        assert Mode(pending=True) == session.state(MODE)
        await session.wait_idle()
        assert Mode(active=True) == session.state(MODE)
        events = lab.records()
        at = events.index(PlanModeSet(active=True))
        assert [PlanModeSet, MessagesClaimed, StepStarted] == [type(event) for event in events[at : at + 3]]
        assert [[], [SWITCHED_ON]] == notices(model)
        assert ["", SECTION] == [prompt.system for prompt in model.prompts]


@pytest.mark.parametrize("first", [False, True])
async def test_a_switch_taken_back_in_a_turn_is_nothing(first):
    """On and off, or off and on, in one turn: no switch on the log, nothing told."""
    model = ScriptedModel([Reply(calls=[Call("wait")]), Reply("done"), Reply("more")])
    async with open_lab(model, plugins=[PLAN_MODE_PLUGIN], tools=[wait]) as lab:
        session = await lab.session()
        if first:
            await set_mode(session, active=True)
        await session.submit("go")
        await trio.sleep(0.5)
        assert "queued" == await set_mode(session, active=not first)
        assert "cancelled" == await set_mode(session, active=first)
        await session.wait_idle()
        await session.run("more")
        assert [PlanModeSet(active=True)] * first == of_kind(lab.records(), PlanModeSet)
        chosen = [PlanModeRequested(not first), PlanModeRequested(first), PlanModeRequested(None)]
        assert chosen == of_kind(lab.records(), PlanModeRequested)
        assert [[], [], []] == notices(model)


async def test_a_refused_step_commits_nothing():
    """A plugin that refuses the step leaves the choice as it is, for the next step that enters; it is told there."""
    answers: list[Any] = [None, Reject("not now"), None]

    async def before_step(view: View, messages: Any) -> Enter | Reject:
        await trio.sleep(1)
        return answers.pop(0) or Enter(messages)

    model = ScriptedModel()
    async with open_lab(model, plugins=[Plugin("gate", before_step=before_step), PLAN_MODE_PLUGIN]) as lab:
        session = await lab.session()
        await session.run("a")
        await session.submit("b")
        await trio.sleep(0.5)
        assert "queued" == await set_mode(session, active=True)
        await session.wait_idle()
        assert Mode(pending=True) == session.state(MODE)
        await session.run("c")
        assert Mode(active=True) == session.state(MODE)
        assert ["completed", "blocked", "completed"] == [e.reason for e in of_kind(lab.records(), TurnEnded)]
        assert [[], [SWITCHED_ON]] == notices(model)


async def test_the_mode_is_stated_again_after_a_restart():
    """Once, at the first step after the session was opened, whichever it is; never in one that knew no other."""
    for switches, expected in (([], []), ([True], [STATED[True]]), ([True, False], [STATED[False]])):
        model = ScriptedModel()
        async with open_lab(model, plugins=[PLAN_MODE_PLUGIN]) as lab:
            session = await lab.session()
            await session.run("a")
            for active in switches:
                await set_mode(session, active=active)
                await session.run("b")
            told = notices(model)[-1]
            await session.stop()
            again = await lab.session(fresh=False)
            await again.run("c")
            await again.run("d")
            assert [[*told, *expected]] * 2 == notices(model)[-2:]


async def test_the_mode_is_stated_again_after_a_compaction():
    """On: by the compaction itself and once; off: by the next step; and a mode on its way out is not called on."""
    model = ScriptedModel()
    async with open_lab(model, plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await lab.session()
        await session.run("a")
        await set_mode(session, active=True)
        await session.run("b")
        await session.compact()
        await session.wait_idle()
        await session.run("c")
        texts = [one.text for one in model.prompts[-1].messages]
        assert (1, 0) == (texts.count(STILL_PLANNING), texts.count(STATED[True]))
        await set_mode(session, active=False)
        await session.run("d")
        await session.compact()
        await session.wait_idle()
        await session.run("e")
        texts = [one.text for one in model.prompts[-1].messages]
        assert (0, 1) == (texts.count(STILL_PLANNING), texts.count(STATED[False]))


async def test_update_plan_is_refused_in_plan_mode():
    """By what the log says: also while the way out is chosen, and not while only the way in is."""
    call = Call("update_plan", {"plan": "not even a list"})
    model = ScriptedModel([Reply(calls=[Call("wait"), call]), Reply(calls=[Call("wait"), call]), Reply("done")])
    async with open_lab(model, plugins=[PLAN_PLUGIN, PLAN_MODE_PLUGIN], tools=[wait]) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(0.5)
        await set_mode(session, active=True)
        await trio.sleep(1)
        await set_mode(session, active=False)
        await session.wait_idle()
        first, second = (e for e in of_kind(lab.records(), ToolReturned) if e.name == "update_plan")
        assert "failed to parse function arguments" in first.text
        assert REFUSED_IN_PLAN_MODE == second.text


async def results(plugin: Plugin, *calls: Call, planning: bool = True) -> list[tuple[str, str]]:
    """The receipts and texts of these calls."""
    model = ScriptedModel([Reply(calls=calls), Reply("done")])
    async with open_lab(model, plugins=[plugin], tools=[wait, write, through]) as lab:
        session = await lab.session()
        if planning:
            await set_mode(session, active=True)
        await session.run("go")
        check_log(lab.records())
        check_history(session.state(HISTORY).messages)
        return [(event.receipt, event.text) for event in of_kind(lab.records(), ToolReturned)]


GATED_WRITE = GATED.format(name="write")


async def test_the_hard_gate():
    """What can change things is rejected by the rule's name, also inside another call; what only looks runs."""
    found = await results(HARD, Call("write"), Call("wait"), Call("through"))
    inner = [("rejected", GATED_WRITE), ("completed", f"rejected: {GATED_WRITE}")]
    assert [("rejected", GATED_WRITE), ("completed", "waited"), *inner] == found
    assert GATED_WRITE.startswith("plan_mode: ")


@pytest.mark.parametrize(("plugin", "planning"), [(HARD, False), (PLAN_MODE_PLUGIN, True)])
async def test_without_the_hard_gate_everything_runs(plugin, planning):
    """A soft gate only asks the model, and a hard one is open outside of Plan mode."""
    assert [("completed", "written")] == await results(plugin, Call("write"), planning=planning)


async def test_the_hard_gate_reads_the_log():
    """A way out that is only chosen opens nothing in the batch that runs; the next step does."""
    model = ScriptedModel([Reply(calls=[Call("wait"), Call("write")]), Reply(calls=[Call("write")]), Reply("done")])
    async with open_lab(model, plugins=[HARD], tools=[wait, write]) as lab:
        session = await lab.session()
        await set_mode(session, active=True)
        await session.submit("go")
        await trio.sleep(0.5)
        assert "queued" == await set_mode(session, active=False)
        await session.wait_idle()
        texts = [event.text for event in of_kind(lab.records(), ToolReturned)]
        assert ["waited", GATED_WRITE, "written"] == texts


async def test_the_hard_gate_holds_below_a_session_that_plans():
    """A child in no mode of its own is held to its parent's, from the moment it is on the log."""
    model = ScriptedModel(lambda prompt: Reply(calls=[Call("write")]) if prompt.step == 1 else Reply("done"))
    async with open_lab(model, plugins=[HARD], tools=[write]) as lab:
        parent = await lab.session("p")
        child = await lab.session("p.c", parent="p", depth=1, path="/root/c")
        lab.stage.above = lambda session: [parent.log] if session == "p.c" else []
        await child.run("one")
        await set_mode(parent, active=True)
        await child.run("two")
        await set_mode(parent, active=False)
        await child.run("three")
        texts = [event.text for event in of_kind(lab.records("p.c"), ToolReturned)]
        assert ["written", GATED_WRITE, "written"] == texts


async def test_a_child_of_a_session_that_plans_reads_so():
    """With a soft gate, too, an agent below is told to change nothing; it has no mode of its own to leave."""
    model = ScriptedModel()
    async with open_lab(model, plugins=[PLAN_MODE_PLUGIN]) as lab:
        parent = await lab.session("p")
        child = await lab.session("p.c", parent="p", depth=1, path="/root/c")
        lab.stage.above = lambda session: [parent.log] if session == "p.c" else []
        for active in (False, True, False):
            await set_mode(parent, active=active)
            await child.run("go")
        assert ["", SECTION_BELOW, ""] == [prompt.system for prompt in model.prompts]
        assert [[], [], []] == notices(model)


async def test_the_users_own_command_is_not_gated():
    """What the user runs with `!` is nobody's tool."""
    ran: list[str] = []

    async def shell(command: str, *rest: Any, **options: Any) -> Ran:
        ran.append(command)
        return Ran(0)

    async with open_lab(plugins=[HARD], shell=shell) as lab:
        session = await lab.session()
        await set_mode(session, active=True)
        await session.shell("touch x")
        await session.wait_idle()
        assert ["touch x"] == ran


async def test_automatic_starts_wait_for_the_end_of_the_mode():
    """A reminder that comes meanwhile stays queued, and starts its turn when the mode is off."""
    async with open_lab(plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await lab.session()
        await set_mode(session, active=True)
        await session.submit("wake up", source="schedule")
        await trio.sleep(1)
        assert ["wake up"] == [message.text for message in session.state(QUEUE)]
        await set_mode(session, active=False)
        await until(lambda: not session.state(QUEUE))
        await session.wait_idle()
        assert 1 == len(of_kind(lab.records(), TurnEnded))

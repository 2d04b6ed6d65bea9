"""Plans in blocks of their own: what a session makes of them, and how they are carried out, once."""

from typing import Any

import pytest
import trio

from callboard.actors.books import HISTORY
from callboard.actors.events import (
    MessageQueued,
    ModelSaid,
    TurnEnded,
)
from callboard.actors.facts import (
    PlanApproved,
    PlanProposed,
)
from callboard.actors.messages import Accepted, Refused, Told
from callboard.actors.mode import MODE, Mode
from callboard.actors.model import Assistant, Reply, User
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.plugins.handovers import HAND_OVER_FRESH, IMPLEMENT, session_of
from callboard.plugins.plan_mode import (
    PLAN_MODE_PLUGIN,
    SWITCHED_OFF,
)

from .planning import implement, set_mode
from .strict import check_history, of_kind, until

BLOCK = "<proposed_plan>\n- a\n- b\n</proposed_plan>\n"


async def test_a_proposed_plan():
    """It is a fact and no text: shown apart, in the history as it was, and outside of Plan mode nothing special."""
    model = ScriptedModel(
        [Reply(f"Intro\n{BLOCK}Outro"), Reply(f"Intro\n{BLOCK}Outro"), Reply(f"\n{BLOCK}")], delay_s=1
    )
    async with open_lab(model, plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await lab.session()
        await session.run("a")
        assert f"Intro\n{BLOCK}Outro" == of_kind(lab.records(), TurnEnded)[0].last_message
        session.deltas.clear()
        await set_mode(session, active=True)
        await session.run("b")
        assert [PlanProposed("2-plan", "- a\n- b\n")] == of_kind(lab.records(), PlanProposed)
        assert "Intro\nOutro" == of_kind(lab.records(), TurnEnded)[1].last_message
        shown = {part: "".join(d.text for d in session.deltas if d.part == part) for part in ("text", "plan")}
        assert {"text": "Intro\nOutro", "plan": "- a\n- b\n"} == shown
        assert [Assistant(BLOCK.rstrip()), Assistant("Intro\nOutro")] == session.state(HISTORY).messages[-2:]
        await session.run("c")
        assert "" == of_kind(lab.records(), ModelSaid)[-1].text
        assert [Assistant(BLOCK.rstrip())] == session.state(HISTORY).messages[-1:]
        check_history(session.state(HISTORY).messages)


async def test_a_plan_that_is_cut_off_is_none():
    """An interrupt in the middle of a block leaves what was said beside it, and no plan."""
    text = f"Intro words\n{BLOCK.replace('- b', '- b c d e f g')}"
    async with open_lab(ScriptedModel([Reply(text)], delay_s=10), plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await lab.session()
        await set_mode(session, active=True)
        await session.submit("a")
        await until(lambda: any(delta.part == "plan" for delta in session.deltas))
        await session.interrupt()
        await session.wait_idle()
        assert [] == of_kind(lab.records(), PlanProposed)
        assert ["Intro words\n"] == [event.text for event in of_kind(lab.records(), ModelSaid)]


async def proposing(lab: Any) -> Any:
    """A session in Plan mode with one proposal."""
    session = await lab.session()
    await set_mode(session, active=True)
    await session.run("plan it")
    return session


async def test_a_proposal_is_carried_out_here():
    """Out of Plan mode, which the model is told, with one message; whoever asks again gets the same answer."""
    model = ScriptedModel([Reply(BLOCK), Reply("done")])
    async with open_lab(model, plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await proposing(lab)
        first = await implement(session, {"plan": "1-plan"})
        assert isinstance(first, Accepted)
        assert first == await implement(session, {"plan": "1-plan", "clear": False})
        await session.wait_idle()
        assert first == await implement(session, {"plan": "1-plan", "clear": True})
        assert [IMPLEMENT] == [event.text for event in of_kind(lab.records(), MessageQueued)[1:]]
        assert [PlanApproved("1-plan", "keep", "- a\n- b\n")] == of_kind(lab.records(), PlanApproved)
        assert [User(IMPLEMENT), User(SWITCHED_OFF, "notice")] == model.prompts[-1].messages[-2:]
        assert (2, Mode()) == (len(model.prompts), session.state(MODE))


@pytest.mark.parametrize("line", ["", "  ", "2-plan", " 2-plan "])
async def test_a_line_takes_up_the_last_proposal(line):
    """Without an id the last one is meant; the older one stays as it is."""
    model = ScriptedModel([Reply(BLOCK), Reply(BLOCK.replace("- a", "- A")), Reply("done")])
    async with open_lab(model, plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await proposing(lab)
        await session.run("again")
        first = await implement(session, line)
        await session.wait_idle()
        assert first == await implement(session, {"plan": "2-plan"}) == await implement(session, "")
        assert [PlanApproved("2-plan", "keep", "- A\n- b\n")] == of_kind(lab.records(), PlanApproved)


@pytest.mark.parametrize("line", ["clear", "1-plan clear", " 1-plan\tclear "])
async def test_a_line_takes_a_proposal_to_a_new_session(line):
    """The word behind it, or alone, says so."""
    async with open_lab(ScriptedModel([Reply(BLOCK)]), plugins=[PLAN_MODE_PLUGIN]) as lab:
        lab.stage.hand_over = lambda session, plan, text: None
        session = await proposing(lab)
        assert Told(f"Session {session_of('s', '1-plan')} carries the plan out.") == await implement(session, line)
        assert [PlanApproved("1-plan", "clear", "- a\n- b\n")] == of_kind(lab.records(), PlanApproved)


async def test_a_line_without_any_proposal():
    """It is refused, with or without the word for a new session, and a session without plans is unchanged."""
    async with open_lab(ScriptedModel([]), plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await lab.session()
        seq = session.log.seq
        for line in ("", "clear"):
            assert Refused("not_pending", "no plan was proposed in this session") == await implement(session, line)
        assert seq == session.log.seq


async def test_a_proposal_for_a_new_session():
    """The answer names the session, each time; nothing of it runs here, and the mode is over."""
    calls: list[tuple[str, str, str]] = []
    async with open_lab(ScriptedModel([Reply(BLOCK)]), plugins=[PLAN_MODE_PLUGIN]) as lab:
        lab.stage.hand_over = lambda session, plan, text: calls.append((session, plan, text))
        session = await proposing(lab)
        first = await implement(session, {"plan": "1-plan", "clear": True})
        assert Told(f"Session {session_of('s', '1-plan')} carries the plan out.") == first
        assert first == await implement(session, {"plan": "1-plan", "clear": True})
        assert first == await implement(session, {"plan": "1-plan"})
        assert {("s", "1-plan", HAND_OVER_FRESH.format(plan="- a\n- b\n"))} == set(calls)
        assert (1, Mode()) == (len(of_kind(lab.records(), MessageQueued)), session.state(MODE))


async def test_a_proposal_in_a_running_turn():
    """The switch waits for a step, the message for a turn of its own."""
    model = ScriptedModel([Reply(BLOCK), Reply("slow"), Reply("done")], delay_s=1)
    async with open_lab(model, plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await proposing(lab)
        await session.submit("talk on")
        await trio.sleep(0.5)
        await implement(session, {"plan": "1-plan"})
        assert Mode(active=True, pending=False) == session.state(MODE)
        await session.wait_idle()
        assert (3, Mode()) == (len(of_kind(lab.records(), TurnEnded)), session.state(MODE))


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ({"plan": "9-plan"}, "not_pending"),
        ({"plan": ""}, "not_pending"),
        ({"plan": "x" * 100_000}, "not_pending"),
        ({"plan": 1}, "invalid_command"),
        ({}, "invalid_command"),
        ("1-plan 2-plan", "invalid_command"),
        ("clear 1-plan", "invalid_command"),
        ("x " * 50_000, "invalid_command"),
        ("9-plan", "not_pending"),
        ("9-plan clear", "not_pending"),
        ("CLEAR", "not_pending"),
        ({"plan": "1-plan", "clear": 1}, "invalid_command"),
        ({"plan": "1-plan", "more": True}, "invalid_command"),
        ([["plan", "1-plan"]], "invalid_command"),
        (None, "invalid_command"),
    ],
)
async def test_a_wrong_proposal_is_refused(argument, reason):
    """With one sentence that quotes it, cut, and nothing is written."""
    async with open_lab(ScriptedModel([Reply(BLOCK)]), plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await proposing(lab)
        seq = session.log.seq
        refused = await implement(session, argument)
        assert isinstance(refused, Refused)
        assert (reason, seq) == (refused.reason, session.log.seq)
        assert len(refused.detail) < 250
        assert ("1-plan" in refused.detail) or reason == "invalid_command"

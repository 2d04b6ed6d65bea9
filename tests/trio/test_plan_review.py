"""The review of a plan: what each answer brings, once, whatever ends in between."""

from typing import Any

import pytest
import trio

from callboard.actors.asked import PERMISSIONS, QUESTIONS, Permissions
from callboard.actors.books import PARKED, QUEUE
from callboard.actors.errors import ModelError
from callboard.actors.events import (
    Call,
    Compacted,
    ControlCallEnded,
    MessageQueued,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from callboard.actors.facts import (
    ApprovalPolicySet,
    PlanApproved,
    PlanModeRequested,
    PlanModeSet,
    QuestionAnswered,
    QuestionAsked,
)
from callboard.actors.messages import Accepted, AnswerQuestion, HandedOver, SetMode, Stop
from callboard.actors.mode import MODE, Mode
from callboard.actors.model import Prompt, Reply, User
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.actors.tool import tool
from callboard.plugins.handovers import HAND_OVER, HAND_OVER_FRESH, HANDOVERS
from callboard.plugins.plan import PLAN_PLUGIN, REFUSED_IN_PLAN_MODE
from callboard.plugins.plan_mode import (
    DISMISSED,
    NO_USER,
    NOT_PLANNING,
    OPTIONS,
    PLAN_MODE_PLUGIN,
    QUESTION,
    SWITCHED_OFF,
    not_approved,
    plan_mode_plugin,
)

from .planning import PLAN, answer, asked, plans, presented, review, set_mode
from .strict import check_log, of_kind, until

ID = "1.t1s1c1.plan-review"
HANDED = f"handover:{ID}"
MESSAGE = HAND_OVER.format(plan=PLAN)


def result(lab: Any) -> tuple[str, str, str]:
    """The one result of `exit_plan_mode`: its receipt and text, and the outcome of its fact."""
    (returned,) = (e for e in of_kind(lab.records(), ToolReturned) if e.name == "exit_plan_mode")
    (fact,) = (e for e in of_kind(lab.records(), ControlCallEnded) if e.tool == "exit_plan_mode")
    return returned.receipt, returned.text, fact.outcome


async def test_the_user_is_asked():
    """With the plan as the detail and two choices, durable, under the call's name."""
    async with open_lab(plans(), plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await presented(lab)
        expected = QuestionAsked(ID, "t1s1c1", 1, "plan_mode", "Plan review", QUESTION, OPTIONS, PLAN)
        assert (expected,) == session.state(QUESTIONS)
        assert ["Approve", "Keep planning"] == [option.label for option in OPTIONS]


async def test_an_approved_plan_is_carried_out_here():
    """Answer, way out, approval and message are one write; the turn ends, and the message's turn is out of the mode."""
    model = plans()
    async with open_lab(model, plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await presented(lab)
        assert isinstance(await answer(session, "Approve"), Accepted)
        await session.wait_idle()
        events = lab.records()
        at = events.index(QuestionAnswered(ID, "answered", ("Approve",)))
        queued = events[at + 3]
        assert [PlanModeRequested(active=False, narrate=False), PlanApproved(ID, "keep", PLAN)] == events[
            at + 1 : at + 3
        ]
        assert isinstance(queued, MessageQueued)
        assert (HANDED, MESSAGE, "plan") == (queued.id, queued.text, queued.source)
        assert ("completed", '{"approved":true,"execution":"keep"}', "completed") == result(lab)
        assert Mode() == session.state(MODE)
        first, second = model.prompts
        assert ("medium", None, "") == (first.effort, second.effort, second.system)
        assert [User(MESSAGE, "plan")] == second.messages[3:]
        assert ["user", "user"] == [event.start for event in of_kind(events, TurnStarted)]
        check_log(events)


async def test_calls_behind_an_approval_are_still_in_plan_mode():
    """The rest of the batch runs before the switch is committed."""
    model = plans()
    model = ScriptedModel([review(PLAN, Call("update_plan", {"plan": []})), Reply("done")])
    async with open_lab(model, plugins=[PLAN_PLUGIN, PLAN_MODE_PLUGIN]) as lab:
        session = await presented(lab)
        await answer(session, "Approve")
        await session.wait_idle()
        assert REFUSED_IN_PLAN_MODE in [event.text for event in of_kind(lab.records(), ToolReturned)]


@pytest.mark.parametrize(
    ("choices", "text"),
    [(("Approve",), "but use tabs"), (("Keep planning",), None), (("Keep planning",), "no {tabs}"), ((), "Approve")],
)
async def test_anything_else_is_keep_planning(choices, text):
    """The call has failed with the feedback in it, the mode stays, and the model goes on in the same turn."""
    async with open_lab(plans(Reply("I see")), plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await presented(lab)
        await answer(session, *choices, text=text)
        await session.wait_idle()
        expected = not_approved(QuestionAnswered(ID, "answered", choices, text))
        assert ("failed", expected, "failed") == result(lab)
        assert Mode(active=True) == session.state(MODE)
        assert not of_kind(lab.records(), PlanApproved, PlanModeRequested)
        (ended,) = of_kind(lab.records(), TurnEnded)
        assert (2, "I see") == (ended.steps, ended.last_message)


async def test_a_dismissed_review():
    """The model is told to stop and wait."""
    async with open_lab(plans(), plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await presented(lab)
        await answer(session)
        await session.wait_idle()
        assert ("failed", DISMISSED, "failed") == result(lab)
        assert Mode(active=True) == session.state(MODE)


async def test_an_interrupt_while_the_user_is_asked():
    """The question is cancelled with its turn, the fact says interrupted, and a late answer is refused."""
    async with open_lab(plans(), plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await presented(lab)
        await session.interrupt()
        await session.wait_idle()
        assert ("interrupted", "interrupted") == (result(lab)[0], result(lab)[2])
        assert [QuestionAnswered(ID, "cancelled")] == of_kind(lab.records(), QuestionAnswered)
        late = await session.ask(lambda reply: AnswerQuestion(ID, ("Approve",), reply=reply))
        assert "not_pending" == late.reason
        assert Mode(active=True) == session.state(MODE)


async def calling(plan: Any, *, active: bool = True, **opening: Any) -> tuple[str, str, str]:
    """What a call of the tool with this plan comes to, when nobody is asked."""
    model = ScriptedModel([Reply(calls=[Call("exit_plan_mode", {"plan": plan})]), Reply("done")])
    async with open_lab(model, plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await lab.session(**opening)
        if active:
            await set_mode(session, active=True)
        await session.run("plan it")
        assert not of_kind(lab.records(), QuestionAsked)
        return result(lab)


async def test_the_checks_come_in_order():
    """Not in Plan mode, whatever the arguments; then the arguments; then the heading; then whether a user is there."""
    assert ("failed", NOT_PLANNING, "failed") == await calling(7, active=False)
    assert (await calling(7))[1].startswith("failed to parse function arguments")
    assert (await calling("\ud800"))[0] == "failed"
    assert (await calling("no heading", parent="p", depth=1, path="/root/c"))[1].startswith("the plan must begin")
    assert ("failed", NO_USER, "failed") == await calling(PLAN, parent="p", depth=1, path="/root/c")


async def test_a_way_in_that_is_only_chosen_is_no_plan_mode():
    """The tool reads the log."""

    @tool(effect="none")
    async def wait() -> str:
        """Wait."""
        await trio.sleep(1)
        return "waited"

    model = ScriptedModel([Reply(calls=[Call("wait"), Call("exit_plan_mode", {"plan": PLAN})])])
    async with open_lab(model, plugins=[PLAN_MODE_PLUGIN], tools=[wait]) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(0.5)
        assert "queued" == await set_mode(session, active=True)
        await session.wait_idle()
        assert ("failed", NOT_PLANNING, "failed") == result(lab)


async def test_plan_mode_again_before_the_way_out_was_committed():
    """Approved, and switched on again in one breath: the choices cancel out and nothing is switched."""
    model = plans()
    async with open_lab(model, plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await presented(lab)
        session.actor.tell(AnswerQuestion(ID, ("Approve",)))
        assert "cancelled" == await set_mode(session, active=True)
        await session.wait_idle()
        assert [PlanModeSet(active=True)] == of_kind(lab.records(), PlanModeSet)
        assert Mode(active=True) == session.state(MODE)
        told = [one for one in model.prompts[-1].messages if isinstance(one, User) and one.source == "notice"]
        assert [] == told


async def test_a_plan_behind_a_compaction():
    """The history is made smaller first, by a turn of its own that does not call the mode on; then the plan, once."""
    model = plans()
    async with open_lab(model, plugins=[plan_mode_plugin(execution="compact")]) as lab:
        session = await presented(lab)
        await answer(session, "Approve")
        await session.wait_idle()
        assert ["regular", "compact", "regular"] == [event.kind for event in of_kind(lab.records(), TurnStarted)]
        assert 1 == len(of_kind(lab.records(), Compacted))
        texts = [one.text for one in model.prompts[-1].messages]
        assert (MESSAGE, 1) == (texts[-1], texts.count(MESSAGE))
        assert not [text for text in texts if "Plan mode is still on" in text]
        assert (Mode(), (), ()) == (session.state(MODE), session.state(QUEUE), session.state(HANDOVERS))


async def test_a_compaction_that_fails_keeps_no_plan_back():
    """The plan is carried out all the same, with the history as it is."""

    def play(prompt: Prompt) -> Reply:
        if prompt.step == 0:
            raise ModelError("no summaries today")
        return review() if prompt.turn == 1 else Reply("done")

    async with open_lab(ScriptedModel(play), plugins=[plan_mode_plugin(execution="compact")]) as lab:
        session = await presented(lab)
        await answer(session, "Approve")
        await until(lambda: len(of_kind(lab.records(), TurnEnded)) == 3)
        await session.wait_idle()
        ends = of_kind(lab.records(), TurnEnded)
        assert [None, "done"] == [ends[0].error, ends[2].last_message]
        assert "no summaries today" in str(ends[1].error)
        assert ((), (), False) == (session.state(QUEUE), session.state(HANDOVERS), session.state(PARKED))


async def test_a_compaction_that_is_cut_off_leaves_the_plan_to_the_user():
    """Nothing runs by itself after an interrupt; the plan waits, and goes on with the next word of the user's."""

    async def play(prompt: Prompt) -> Reply:
        if prompt.step == 0:
            await trio.sleep(100)
        return review() if prompt.turn == 1 else Reply("done")

    async with open_lab(ScriptedModel(play), plugins=[plan_mode_plugin(execution="compact")]) as lab:
        session = await presented(lab)
        await answer(session, "Approve")
        await until(lambda: len(of_kind(lab.records(), TurnStarted)) == 2)
        await trio.sleep(1)
        await session.interrupt()
        await session.wait_idle()
        assert [HANDED] == [message.id for message in session.state(QUEUE)]
        await session.resume_queue()
        await session.wait_idle()
        assert "done" == of_kind(lab.records(), TurnEnded)[-1].last_message


async def test_a_plan_for_a_new_session():
    """It is handed over once nothing runs, again at each rest until the new session is there, and never run here."""
    calls: list[tuple[str, str, str]] = []
    async with open_lab(plans(), plugins=[plan_mode_plugin(execution="clear")]) as lab:
        lab.stage.hand_over = lambda session, plan, text: calls.append((session, plan, text))
        session = await presented(lab)
        await answer(session, "Approve")
        assert [] == calls
        await session.wait_idle()
        expected = ("s", ID, HAND_OVER_FRESH.format(plan=PLAN))
        assert {expected} == set(calls)
        assert Mode() == session.state(MODE)
        await session.run("meanwhile")
        assert {expected} == set(calls)
        await session.ask(lambda reply: HandedOver(ID, "new", reply=reply))
        count = len(calls)
        await session.run("and then")
        assert (count, ()) == (len(calls), session.state(HANDOVERS))
        assert not [event for event in of_kind(lab.records(), MessageQueued) if event.source == "plan"]
        assert ("completed", '{"approved":true,"execution":"clear"}', "completed") == result(lab)


async def test_a_plan_for_a_new_session_that_cannot_be():
    """It is this session's own then, exactly once, also when that is said twice."""
    async with open_lab(plans(), plugins=[plan_mode_plugin(execution="clear")]) as lab:
        session = await presented(lab)
        await answer(session, "Approve")
        await session.wait_idle()
        for _ in range(2):
            await session.ask(lambda reply: HandedOver(ID, "", reply=reply))
        await session.wait_idle()
        assert [MESSAGE] == [e.text for e in of_kind(lab.records(), MessageQueued) if e.source == "plan"]
        assert ("done", ()) == (of_kind(lab.records(), TurnEnded)[-1].last_message, session.state(HANDOVERS))


@pytest.mark.parametrize("execution", ["keep", "compact", "clear"])
async def test_an_answer_after_a_restart(execution):
    """The question outlives its call under the same id, and its answer brings the same without it, once."""
    calls: list[str] = []
    model = plans()
    async with open_lab(model, plugins=[plan_mode_plugin(execution=execution)]) as lab:
        lab.stage.hand_over = lambda session, plan, text: calls.append(plan)
        session = await presented(lab)
        await session.stop()
        again = await lab.session(fresh=False)
        assert (ID, Mode(active=True)) == ((await asked(again)).id, again.state(MODE))
        assert isinstance(await answer(again, "Approve"), Accepted)
        await again.wait_idle()
        late = await again.ask(lambda reply: AnswerQuestion(ID, ("Approve",), reply=reply))
        assert "not_pending" == late.reason
        assert Mode() == again.state(MODE)
        assert [PlanApproved(ID, execution, PLAN)] == of_kind(lab.records(), PlanApproved)
        texts = [message.text for message in model.prompts[-1].messages]
        assert (execution != "clear") == (MESSAGE in texts) == (ID not in calls)
        assert SWITCHED_OFF not in texts
        check_log(lab.records())


async def test_feedback_after_a_restart():
    """It reaches the model as a message that starts a turn, in Plan mode; a review that was closed brings nothing."""
    for choices, text, turns in ((("Keep planning",), "use tabs", 2), ((), None, 1)):
        async with open_lab(plans(), plugins=[PLAN_MODE_PLUGIN]) as lab:
            session = await presented(lab)
            await session.stop()
            again = await lab.session(fresh=False)
            await answer(again, *choices, text=text)
            await again.wait_idle()
            assert (turns, Mode(active=True)) == (len(of_kind(lab.records(), TurnEnded)), again.state(MODE))
            queued = [event.text for event in of_kind(lab.records(), MessageQueued) if event.source == "plan"]
            assert [not_approved(QuestionAnswered(ID, "answered", choices, text))] * (turns - 1) == queued


async def test_a_new_review_takes_the_place_of_an_old_one():
    """Only one plan can be approved: the question that a restart left open is cancelled."""
    model = ScriptedModel(lambda prompt: review(f"# Plan {prompt.turn}") if prompt.step == 1 else Reply("done"))
    async with open_lab(model, plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await presented(lab)
        await session.stop()
        again = await lab.session(fresh=False)
        await again.submit("once more")
        await until(lambda: [one.turn for one in again.state(QUESTIONS)] == [2])
        assert "# Plan 2" == (await asked(again)).detail
        assert [QuestionAnswered(ID, "cancelled")] == of_kind(lab.records(), QuestionAnswered)


async def test_permissions_are_those_from_before():
    """What was permitted when Plan mode began is permitted again at its end, whatever was said in between."""
    async with open_lab(plans(), plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await lab.session()
        session.log.append(ApprovalPolicySet("ask"))
        await set_mode(session, active=True)
        await session.submit("plan it")
        await asked(session)
        session.log.append(ApprovalPolicySet("never"))
        assert "never" == session.state(PERMISSIONS).policy
        await answer(session, "Approve")
        await session.wait_idle()
        assert Permissions("ask") == session.state(PERMISSIONS)


async def test_a_stop_in_the_middle_of_an_approval():
    """Approval and stop in one breath: the plan waits in the queue, and runs when its user comes back."""
    model = plans()
    async with open_lab(model, plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await presented(lab)
        session.actor.tell(AnswerQuestion(ID, ("Approve",)))
        await session.ask(lambda reply: Stop(reply=reply))
        again = await lab.session(fresh=False)
        assert [HANDED] == [message.id for message in again.state(QUEUE)]
        assert Mode(active=True, pending=False, narrate=False) == again.state(MODE)
        await again.resume_queue()
        await again.wait_idle()
        assert ("done", Mode()) == (of_kind(lab.records(), TurnEnded)[-1].last_message, again.state(MODE))
        assert 1 == [message.text for message in model.prompts[-1].messages].count(MESSAGE)


async def test_a_switch_by_the_user_while_the_plan_is_read():
    """The user leaves the mode by hand and approves afterwards: both are the same way out."""
    async with open_lab(plans(), plugins=[PLAN_MODE_PLUGIN]) as lab:
        session = await presented(lab)
        answered = await session.ask(lambda reply: SetMode(active=False, reply=reply))
        assert "queued" == answered.result
        await answer(session, "Approve")
        await session.wait_idle()
        assert [PlanModeSet(active=True), PlanModeSet(active=False)] == of_kind(lab.records(), PlanModeSet)

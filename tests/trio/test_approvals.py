"""Approvals of calls: who is asked, what each end does to the call, and what is said too late."""

from typing import Any

import pytest
import trio

from callboard.actors.asked import APPROVALS, PERMISSIONS
from callboard.actors.books import QUEUE, TURN
from callboard.actors.events import Call, MessageQueued, ModelSaid, StepStarted, ToolCalled, ToolReturned
from callboard.actors.facts import ApprovalAsked, ApprovalDecided, ApprovalPolicySet, PlanModeSet
from callboard.actors.memory import MemoryStore
from callboard.actors.messages import Accepted, Told
from callboard.actors.model import Reply
from callboard.actors.passivation import is_free
from callboard.actors.testing import LabSession, ScriptedModel, open_lab
from callboard.actors.tool import tool
from callboard.plugins.ask import ask_plugin
from callboard.plugins.plan import PLAN_PLUGIN

from .asks import Eyes, approvals, asked, look, once, results, save, saving
from .celled import user
from .strict import check_log, of_kind, until

STEPS = {"plan": [{"step": "a", "status": "pending"}]}
REFUSED = "The user did not allow this call of save."


async def test_each_decision_has_its_result():
    """Allowed, the call runs; denied, the model reads the feedback; what was not asked for runs at once."""
    calls = [*saving("1", "2", "3"), Call("look", {}, "l"), Call("update_plan", STEPS, "p")]
    plugins = (ask_plugin(policy="ask"), PLAN_PLUGIN)
    async with asked(once(*calls), plugins=plugins) as (lab, session):
        await session.submit("go")
        said: Any = (("c1", "allow_once", None), ("c2", "deny", 'use "look"'), ("1.c3", "deny", None))
        for call, decision, feedback in said:
            await approvals(session)
            assert isinstance(await session.approve(call, decision, feedback), Accepted)
        await session.wait_idle()
        quoted = 'The user did not allow this call of save and says: "use "look""'
        assert [
            ("completed", "saved 1"),
            ("rejected", quoted),
            ("rejected", REFUSED),
            ("completed", "seen"),
            ("completed", "Plan updated"),
        ] == results(lab)
        (first, *_) = of_kind(lab.records(), ApprovalAsked)
        assert ("1.c1", "c1", 1, "save", {"text": "1"}) == (
            first.id,
            first.call,
            first.turn,
            first.tool,
            first.arguments,
        )


async def test_what_is_asked_for_stands_behind_the_answer_that_wants_it():
    """The model's words and calls are on the log before the request, so that people see what it is about."""
    async with asked(once(*saving("1"))) as (lab, session):
        await session.submit("go")
        await approvals(session)
        kinds = [type(e) for e in of_kind(lab.records(), StepStarted, ModelSaid, ApprovalAsked, ToolCalled)]
        assert [StepStarted, ModelSaid, ApprovalAsked] == kinds
        await session.approve("c1", "allow_once")
        await session.wait_idle()


async def test_calls_side_by_side_are_asked_for_side_by_side():
    """None waits for the approval of another, and allowing the tool allows all that wait; each runs once."""

    @tool(parallel=True)
    async def touch(at: int) -> str:
        """Changes something."""
        return f"touched {at}"

    calls = [Call("touch", {"at": at}, f"t{at}") for at in range(50)]
    async with asked(once(*calls), tools=[touch]) as (lab, session):
        await session.submit("go")
        ids = await approvals(session, 50)
        await session.approve(ids[3], "deny")
        await session.approve(ids[7], "allow_session")
        assert () == session.state(APPROVALS)
        assert "not_pending" == (await session.approve(ids[8], "deny")).reason
        await session.wait_idle()
        assert {"completed": 49, "rejected": 1} == {
            kind: sum(receipt == kind for receipt, _ in results(lab)) for kind in ("completed", "rejected")
        }
        assert [] == of_kind(lab.records(), MessageQueued)[1:]


async def test_one_permission_is_for_one_call():
    """The same call again is asked for again, and a tool that was allowed is not, also in later turns."""
    model = ScriptedModel(lambda prompt: Reply("", saving("1")) if prompt.step < 3 else Reply("on"))
    async with asked(model) as (lab, session):
        await session.submit("go")
        for decision in ("allow_once", "allow_session"):
            (id_,) = await approvals(session)
            await session.approve(id_, decision)
            await until(lambda: not session.state(APPROVALS))
        await session.wait_idle()
        await session.run("again")
        assert ["completed"] * 4 == [receipt for receipt, _ in results(lab)]
        assert 2 == len(of_kind(lab.records(), ApprovalAsked))


@pytest.mark.parametrize(
    ("policy", "rules", "text"),
    [
        ("never", {}, "save needs the user's approval, and this session asks for none (policy never)."),
        ("rules", {"save": "deny"}, "The rules of this runtime do not allow save."),
        ("rules", {"*": "deny", "look": "deny"}, "The rules of this runtime do not allow save."),
    ],
)
async def test_what_is_ruled_out_is_refused_unasked(policy, rules, text):
    """Nobody is asked, the body does not run, and what changes nothing runs all the same."""
    plugins = [ask_plugin(policy=policy, rules=rules)]
    async with asked(once(*saving("1"), Call("look", {}, "l")), plugins=plugins) as (lab, session):
        await session.run("go")
        assert ["rejected", "completed"] == [receipt for receipt, _ in results(lab)]
        assert results(lab)[0][1].startswith(text)
        assert ([], 1) == (of_kind(lab.records(), ApprovalAsked), len(of_kind(lab.records(), ToolCalled)))


async def test_no_policy_asks_for_nothing():
    """Without a policy calls run as ever, and nothing about them is on the log."""
    async with asked(once(*saving("1")), plugins=[ask_plugin()]) as (lab, session):
        await session.run("go")
        assert [("completed", "saved 1")] == results(lab)
        assert [] == of_kind(lab.records(), ApprovalAsked, ApprovalDecided)


async def test_nobody_there_is_a_refusal():
    """Where nobody reads the session, a call that needs an approval is refused at once."""
    async with asked(once(*saving("1")), read=False) as (lab, session):
        await session.run("go")
        unavailable = "save needs the user's approval, and nobody is there to give it (unavailable)."
        assert [("rejected", f"{unavailable} The call did not run.")] == results(lab)
        assert [ApprovalDecided("1.c1", "unavailable")] == of_kind(lab.records(), ApprovalDecided)


async def test_an_interrupt_is_not_held_up_by_a_request():
    """The turn ends within its window, the request is cancelled, and the call counts as not started."""
    async with asked(once(*saving("1", "2"))) as (lab, session):
        await session.submit("go")
        await approvals(session)
        began_s = trio.current_time()
        await session.interrupt()
        await session.wait_idle()
        assert trio.current_time() - began_s <= 0.1
        assert [ApprovalDecided("1.c1", "cancelled")] == of_kind(lab.records(), ApprovalDecided)
        assert ["not_started", "not_started"] == [receipt for receipt, _ in results(lab)]
        assert "not_pending" == (await session.approve("c1", "allow_once")).reason


async def family(lab: Any) -> tuple[LabSession, LabSession]:
    """A root that is read, and its child."""
    root = await lab.session("root")
    child = await lab.session("child", parent="root", depth=1, path="/root/a")
    lab.stage.above = lambda session: [root.log] if session == "child" else []
    for session in (root, child):
        session.log.follow(Eyes())
    return root, child


async def test_children_do_not_ask():
    """A call of a child that needs an approval is refused with a reason; what the root allowed holds for it."""
    model = ScriptedModel(lambda prompt: Reply("", saving("1")) if prompt.step == 1 else Reply("on"))
    async with open_lab(model, plugins=[ask_plugin(policy="ask")], tools=[save]) as lab:
        root, child = await family(lab)
        await child.run("go")
        ((receipt, text),) = results(lab, "child")
        assert ("rejected", True) == (receipt, "subagents may not ask for it" in text)
        await root.submit("go")
        await approvals(root)
        await root.approve("c1", "allow_session")
        await root.wait_idle()
        await child.run("again")
        assert ("completed", "saved 1") == results(lab, "child")[-1]
        await child.command("approvals", "never")
        await child.run("once more")
        assert "rejected" == results(lab, "child")[-1][0]
        assert [] == of_kind(lab.records("child"), ApprovalAsked)


async def test_a_child_cannot_loosen_what_the_root_is_held_to():
    """Its own policy only adds to its root's: `off` in the child lets nothing through, and `/approvals` says so."""
    model = ScriptedModel(lambda prompt: Reply("", saving("1")) if prompt.step == 1 else Reply("on"))
    async with open_lab(model, plugins=[ask_plugin()], tools=[save]) as lab:
        root, child = await family(lab)
        await child.run("go")
        await root.command("approvals", "never")
        said = "off - no call needs one; above it holds never, which holds here too"
        assert Told(f"approvals are now: {said}") == await child.command("approvals", "off")
        assert Told(f"approvals: {said}") == await child.command("approvals", "")
        await child.run("again")
        assert ["completed", "rejected"] == [receipt for receipt, _ in results(lab, "child")]


async def test_calls_of_code_need_approvals_too():
    """A call that the body of another makes is asked for under its own id, and refused like any other."""
    cell, got = user(("save", {"text": "1"}), ("look", {}), ("save", {"text": "2"}))
    rules: Any = {"cell": "allow"}
    plugins = [ask_plugin(policy="rules", rules=rules)]
    async with asked(once(Call("cell", {}, "x")), plugins=plugins, tools=[cell, save, look]) as (lab, session):
        await session.submit("go")
        for decision in ("allow_once", "deny"):
            await until(lambda: session.state(APPROVALS))
            (id_,) = await approvals(session)
            assert id_.startswith("1.x")
            await session.approve(id_, decision)
            assert () == session.state(APPROVALS)
        await session.wait_idle()
        assert [("completed", "saved 1"), ("completed", "seen"), ("rejected", REFUSED)] == [
            (one.receipt, one.text) for one in got
        ]
        check_log(lab.records())


async def test_an_interrupt_ends_a_request_inside_code():
    """The nested call is closed with its cell, within the window."""
    cell, _ = user(("save", {"text": "1"}))
    rules: Any = {"cell": "allow"}
    plugins = [ask_plugin(policy="rules", rules=rules)]
    async with asked(once(Call("cell", {}, "x")), plugins=plugins, tools=[cell, save]) as (lab, session):
        await session.submit("go")
        await approvals(session)
        began_s = trio.current_time()
        await session.interrupt()
        await session.wait_idle()
        assert trio.current_time() - began_s <= 0.1 + 1e-6
        assert ["cancelled"] == [e.decision for e in of_kind(lab.records(), ApprovalDecided)]


async def test_a_permission_that_comes_late_is_told_to_the_model():
    """After a restart the request has its old id; allowed, the model reads so and makes the call once unasked."""
    store = MemoryStore()
    async with asked(once(*saving("1")), store=store) as (_, session):
        await session.submit("go")
        assert ["1.c1"] == await approvals(session)
    again = [Reply("", saving("1")), Reply("", saving("1")), Reply("done")]
    model = ScriptedModel(again)
    async with asked(model, store=store, fresh=False) as (lab, session):
        assert ["1.c1"] == await approvals(session)
        assert not is_free(session.actor)
        assert isinstance(await session.approve("c1", "allow_once"), Accepted)
        (next_id,) = await approvals(session)
        said = model.prompts[0].messages[-1].text
        assert ("this one call" in said, '"text":"1"' in said) == (True, True)
        assert [("not_started"), ("completed")] == [receipt for receipt, _ in results(lab)]
        await session.approve(next_id, "deny")
        await session.wait_idle()
        assert ["allow_once", "deny"] == [e.decision for e in of_kind(lab.records(), ApprovalDecided)]


async def test_a_late_permission_joins_the_turn_that_runs():
    """Its word is read in that turn, where the permission still counts; a late denial says nothing."""
    store = MemoryStore()
    async with asked(once(*saving("1")), store=store) as (_, session):
        await session.submit("go")
        await approvals(session)
    replies = [Reply("", [Call("look", {}, "l")]), Reply("", saving("1")), Reply("done")]
    async with asked(ScriptedModel(replies, delay_s=1.0), store=store, fresh=False) as (lab, session):
        await session.submit("something else")
        await until(lambda: session.state(TURN).step == 1)
        await session.approve("1.c1", "allow_once")
        await session.wait_idle()
        assert (["not_started", "completed", "completed"], 2) == (
            [receipt for receipt, _ in results(lab)],
            session.state(TURN).number,
        )
        assert 1 == len(of_kind(lab.records(), ApprovalAsked))


@pytest.mark.parametrize(("decision", "messages"), [("deny", 0), ("allow_session", 1)])
async def test_a_late_decision_about_a_tool(decision, messages):
    """A tool that is allowed late stays allowed; a late denial is settled and tells nobody."""
    store = MemoryStore()
    async with asked(once(*saving("1")), store=store) as (_, session):
        await session.submit("go")
        await approvals(session)
    async with asked(ScriptedModel(), store=store, fresh=False) as (lab, session):
        await session.approve("1.c1", decision)
        await session.wait_idle()
        queued = of_kind(lab.records(), MessageQueued)[1:]
        assert (messages, ()) == (len(queued), session.state(QUEUE))
        assert ("save",) * messages == session.state(PERMISSIONS).tools


async def test_a_stale_decision_meets_no_later_call():
    """An id from before settles nothing, although the model uses the same name for a call of another turn."""
    model = ScriptedModel(lambda prompt: Reply("", saving("1")) if prompt.step == 1 else Reply("on"))
    async with asked(model) as (lab, session):
        await session.submit("go")
        (stale,) = await approvals(session)
        await session.interrupt()
        await session.wait_idle()
        await session.submit("again")
        (fresh,) = await approvals(session)
        assert ("1.c1", "2.c1") == (stale, fresh)
        assert "not_pending" == (await session.approve(stale, "allow_once")).reason
        assert isinstance(await session.approve(fresh, "deny"), Accepted)
        await session.wait_idle()
        assert ["not_started", "rejected"] == [e.receipt for e in of_kind(lab.records(), ToolReturned)]


async def test_the_policy_is_changed_while_a_session_runs():
    """`/approvals` says what holds and sets another; what is no policy changes nothing, whatever it is."""
    model = ScriptedModel(lambda prompt: Reply("", saving("1")) if prompt.step == 1 else Reply("on"))
    async with asked(model, plugins=[ask_plugin(policy="never")]) as (lab, session):
        said = await session.command("approvals")
        assert Told("approvals: never - a call that would need one is refused") == said
        for wrong in ("maybe", 5, None, ["off"], {"a": 1}, "\x1b[31m"):
            assert "invalid_command" == (await session.command("approvals", wrong)).reason
        await session.run("go")
        assert Told("approvals are now: off - no call needs one") == await session.command("approvals", " OFF ")
        await session.run("again")
        assert Told("approvals: off - no call needs one") == await session.command("approvals", "")
        assert ["rejected", "completed"] == [receipt for receipt, _ in results(lab)]
        assert [ApprovalPolicySet("off")] == of_kind(lab.records(), ApprovalPolicySet)


async def test_plan_mode_ends_with_the_policy_of_before():
    """A policy that was set in Plan mode, and what was allowed there, are gone when it ends."""
    model = ScriptedModel(lambda prompt: Reply("", saving("1")) if prompt.step == 1 else Reply("on"))
    async with asked(model, plugins=[ask_plugin(policy="never")]) as (lab, session):
        session.log.append(PlanModeSet(active=True))
        await session.command("approvals", "off")
        await session.run("go")
        session.log.append(PlanModeSet(active=False))
        await session.run("again")
        assert ["completed", "rejected"] == [receipt for receipt, _ in results(lab)]

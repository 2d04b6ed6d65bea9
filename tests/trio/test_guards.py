"""Guards and approvals: which calls may run, who is asked, and in which order."""

from callboard.actors.asked import APPROVALS, PERMISSIONS
from callboard.actors.events import Call, ToolReturned
from callboard.actors.facts import (
    ApprovalDecided,
    PlanModeSet,
)
from callboard.actors.messages import Accepted
from callboard.actors.model import Reply
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.actors.tool import tool

from .polled import POLL, Eyes, approve, one_call
from .strict import check_log, of_kind, until


async def test_a_guard_refuses_a_call():
    """Its reason is the call's `rejected` result, and the body does not run; a guard that breaks has refused."""
    calls = [Call("write", {"text": text}) for text in ("yes", "no", "bug")]
    async with open_lab(ScriptedModel([Reply(calls=calls), Reply("on")]), plugins=[POLL]) as lab:
        await (await lab.session()).run("go")
        broken = "plugin poll could not decide about this call: RuntimeError: a bug of the plugin's"
        assert [("completed", "YES"), ("rejected", "writing no is not allowed"), ("rejected", broken)] == [
            (e.receipt, e.text) for e in of_kind(lab.records(), ToolReturned)
        ]


async def test_an_approval_waits_for_its_decision():
    """Allowed, the call runs; denied, its result quotes the user; an interrupt settles it as cancelled."""
    calls = [Call("write", {"text": f"ask {at}"}, f"c{at}") for at in range(3)]
    async with open_lab(ScriptedModel([Reply(calls=calls)]), plugins=[POLL]) as lab:
        session = await lab.session()
        session.log.follow(Eyes())
        await session.submit("go")
        for call, decision in (("c0", "allow_once"), ("c1", "deny")):
            await until(lambda: session.state(APPROVALS))
            assert isinstance(await approve(session, call, decision, "too loud"), Accepted)
        await until(lambda: session.state(APPROVALS))
        await session.interrupt()
        await session.wait_idle()
        assert [("completed", "ASK 0"), ("rejected", "deny: too loud")] == [
            (e.receipt, e.text) for e in of_kind(lab.records(), ToolReturned)[:2]
        ]
        assert "cancelled" == of_kind(lab.records(), ApprovalDecided)[-1].decision
        assert "not_pending" == (await approve(session, "c2", "allow_once")).reason
        check_log(lab.records())


async def test_nobody_to_ask_is_a_refusal():
    """Where nobody reads the session, an approval is unavailable at once."""
    async with open_lab(one_call("write", text="ask"), plugins=[POLL]) as lab:
        session = await lab.session()
        await session.run("go")
        assert ["unavailable: None"] == [e.text for e in of_kind(lab.records(), ToolReturned)]
        assert ((), ()) == (session.state(APPROVALS), session.state(PERMISSIONS).asked)


async def test_permissions_are_what_they_were_before_plan_mode():
    """What was allowed in Plan mode is not allowed after it, and what was allowed before is again."""
    calls = [Call("write", {"text": "ask"}, "c")]
    async with open_lab(ScriptedModel([Reply(calls=calls), Reply("on")]), plugins=[POLL]) as lab:
        session = await lab.session()
        session.log.follow(Eyes())
        session.log.append(PlanModeSet(active=True))
        await session.submit("go")
        await until(lambda: session.state(APPROVALS))
        await approve(session, "c", "allow_session")
        await session.wait_idle()
        assert ("write",) == session.state(PERMISSIONS).tools
        session.log.append(PlanModeSet(active=False))
        assert ((), None) == (session.state(PERMISSIONS).tools, session.state(PERMISSIONS).before)


async def test_approvals_are_asked_for_in_the_order_of_the_calls():
    """Of calls that may run side by side, each is asked about before the next, and all at once."""

    @tool(parallel=True)
    async def send(text: str) -> str:
        """Send something."""
        return text

    calls = [Call("send", {"text": f"ask {at}"}, f"c{at}") for at in range(20)]
    async with open_lab(ScriptedModel([Reply(calls=calls)]), plugins=[POLL], tools=[send]) as lab:
        session = await lab.session()
        session.log.follow(Eyes())
        await session.submit("go")
        await until(lambda: len(session.state(APPROVALS)) == 20)
        assert [f"c{at}" for at in range(20)] == [one.call for one in session.state(APPROVALS)]
        await session.interrupt()
        await session.wait_idle()
        check_log(lab.records())

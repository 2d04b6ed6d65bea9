"""Plugins that ask, guard, command and read: what the session does for them, whatever happens meanwhile."""

from collections.abc import Sequence
from typing import Any

import msgspec
import trio

from callboard.actors.asked import APPROVALS, PERMISSIONS, QUESTIONS
from callboard.actors.books import HISTORY, QUEUE, TURN
from callboard.actors.events import Call, Event, MessageQueued, ModelSaid, NoteAdded, ToolReturned, TurnEnded
from callboard.actors.facts import (
    ApprovalDecided,
    Option,
    PlanModeSet,
    PlanProposed,
    QuestionAnswered,
    QuestionAsked,
    ToolsFound,
)
from callboard.actors.memory import MemoryStore
from callboard.actors.messages import Accepted, AnswerQuestion, Approve, Refused, Told, UseCommand
from callboard.actors.model import Assistant, Reply
from callboard.actors.plugin import Command, Concluded, Did, Plugin, ToolCall, View
from callboard.actors.testing import LabSession, ScriptedModel, open_lab
from callboard.actors.tool import Tool, tool

from .strict import check_log, of_kind, until

YES_NO = (Option("Yes"), Option("No", "rather not"))


@tool(effect="none", control=True)
async def poll(view: View) -> str:
    """Ask the user."""
    answer = await view.ask_user("Go on?", YES_NO, by="poll", header="Go", detail="the whole story")
    return f"{answer.ending}: {answer.selected} {answer.text}"


@tool(effect="none")
async def finish(view: View) -> Concluded:
    """End the turn."""
    return Concluded({"done": True})


@tool
async def write(text: str) -> str:
    """Write something."""
    return text.upper()


def _answered(view: View, asked: QuestionAsked, answer: QuestionAnswered) -> Sequence[Event]:
    if answer.text == "break":
        raise RuntimeError("a bug of the plugin's")
    waits = view[TURN].open and view[TURN].calls.is_open(asked.call)
    return () if waits else (MessageQueued(f"answer:{asked.id}", f"{asked.question} {answer.selected}", "user"),)


def _command(view: View, rest: Any) -> Did | Refused:
    match rest:
        case "say":
            return Did((MessageQueued("own:1", "said by a command", "user"),))
        case "break":
            raise RuntimeError("a bug of the plugin's")
        case "wrong":
            return Did((MessageQueued("own:2", object(), "user"),))  # type: ignore[arg-type]  # a plugin's mistake
        case "":
            return Refused("invalid_command", "/poll needs a word")
    return Did((ToolsFound((rest,)),), f"found {rest} in turn {view.turn}")


async def _guard(view: View, call: ToolCall, one: Tool) -> str | None:
    if call.arguments == {"text": "bug"}:
        raise RuntimeError("a bug of the plugin's")
    if not one.mutates or not call.arguments["text"].startswith("ask"):
        return None if one.name != "write" or call.arguments["text"] != "no" else "writing no is not allowed"
    decided = await view.ask_approval(call)
    return None if decided.decision.startswith("allow") else f"{decided.decision}: {decided.feedback}"


class Upper:
    """Takes lines that begin with ! out of the text, as proposals."""

    def feed(self, piece: str) -> list[tuple[str, str]]:
        """Everything at once."""
        return [("plan" if piece.startswith("!") else "text", piece)]

    def end(self) -> list[tuple[str, str]]:
        """Nothing is held back."""
        return []

    def read(self, text: str) -> tuple[str, list[Event]]:
        """The lines apart."""
        lines = text.split("\n")
        plans = [line for line in lines if line.startswith("!")]
        said = "\n".join(line for line in lines if not line.startswith("!"))
        return said, [PlanProposed("p", plan) for plan in plans]

    def cut(self, text: str) -> str:
        """What is no proposal."""
        return self.read(text)[0]


POLL = Plugin(
    "poll",
    tools=(poll, finish, write),
    commands=(Command("poll", _command, "WORD"),),
    guard=_guard,
    answered=_answered,
    reads=lambda view: Upper(),
)


def one_call(name: str, **arguments: Any) -> ScriptedModel:
    """A model that makes one call, and then is content."""
    return ScriptedModel([Reply(calls=[Call(name, arguments)]), Reply("done")])


async def answer(session: LabSession, id: str, *choices: str, text: str | None = None, verb: str | None = None) -> Any:
    """Answer a question."""
    return await session.ask(lambda reply: AnswerQuestion(id, choices, text, verb, reply=reply))


async def approve(session: LabSession, call: str, decision: Any, feedback: str | None = None) -> Any:
    """Decide about a call."""
    return await session.ask(lambda reply: Approve(call, decision, feedback, reply=reply))


async def use(session: LabSession, argument: Any, name: str = "poll", id: str | None = None) -> Any:
    """Use a command."""
    return await session.ask(lambda reply: UseCommand(name, argument, id, reply=reply))


async def test_a_question_waits_for_its_answer():
    """It is on the log under the call's name, a bad answer leaves it open, and the first good one is the result."""
    async with open_lab(one_call("poll"), plugins=[POLL]) as lab:
        session = await lab.session()
        await session.submit("go")
        await until(lambda: session.state(QUESTIONS))
        (asked,) = session.state(QUESTIONS)
        assert QuestionAsked("1.t1s1c1", "t1s1c1", 1, "poll", "Go", "Go on?", YES_NO, "the whole story") == asked
        for bad in (("Maybe",), ("Yes", "No"), ("Yes", "Yes")):
            refused = await answer(session, asked.id, *bad)
            assert ("invalid_answer", (asked,)) == (refused.reason, session.state(QUESTIONS))
        assert "invalid_answer" == (await answer(session, asked.id, text=" ")).reason
        assert isinstance(await answer(session, asked.id, "Yes", text="but slowly", verb="v"), Accepted)
        assert isinstance(await answer(session, asked.id, "Yes", text="but slowly", verb="v"), Accepted)
        assert "not_pending" == (await answer(session, asked.id, "No")).reason
        await session.wait_idle()
        assert ["answered: ('Yes',) but slowly"] == [e.text for e in of_kind(lab.records(), ToolReturned)]
        check_log(lab.records())


async def test_nothing_chosen_dismisses_a_question():
    """An answer without a choice and without a text is the user's dismissal."""
    async with open_lab(one_call("poll"), plugins=[POLL]) as lab:
        session = await lab.session()
        await session.submit("go")
        await until(lambda: session.state(QUESTIONS))
        await answer(session, session.state(QUESTIONS)[0].id)
        await session.wait_idle()
        assert ["dismissed: () None"] == [e.text for e in of_kind(lab.records(), ToolReturned)]


async def test_an_interrupt_cancels_a_question():
    """Its end is on the log once, before the turn's, and no answer is taken any more."""
    async with open_lab(one_call("poll"), plugins=[POLL]) as lab:
        session = await lab.session()
        await session.submit("go")
        await until(lambda: session.state(QUESTIONS))
        id_ = session.state(QUESTIONS)[0].id
        await session.interrupt()
        await session.wait_idle()
        assert [QuestionAnswered(id_, "cancelled")] == of_kind(lab.records(), QuestionAnswered)
        assert ["interrupted"] == [e.receipt for e in of_kind(lab.records(), ToolReturned)]
        assert "not_pending" == (await answer(session, id_, "Yes")).reason
        check_log(lab.records())


async def test_a_question_outlives_a_shutdown_and_a_crash():
    """A session that is read again asks the same under the same id, once; the late answer reaches the model."""
    store = MemoryStore()
    async with open_lab(one_call("poll"), plugins=[POLL], store=store) as lab:
        session = await lab.session()
        await session.submit("go")
        await until(lambda: session.state(QUESTIONS))
    model = ScriptedModel([Reply("heard")])
    async with open_lab(model, plugins=[POLL], store=store) as lab:
        session = await lab.session(fresh=False)
        (asked,) = session.state(QUESTIONS)
        assert "1.t1s1c1" == asked.id
        await answer(session, asked.id, "No")
        await session.wait_idle()
        assert ("Go on? ('No',)", ()) == (model.prompts[0].messages[-1].text, session.state(QUESTIONS))
        assert 1 == len(of_kind(lab.records(), QuestionAsked))
        check_log(lab.records())


async def test_a_plugin_that_fails_over_an_answer_leaves_the_question_open():
    """Its bug is told to who answered, the session lives, and another answer is taken."""
    async with open_lab(one_call("poll"), plugins=[POLL]) as lab:
        session = await lab.session()
        await session.submit("go")
        await until(lambda: session.state(QUESTIONS))
        id_ = session.state(QUESTIONS)[0].id
        refused = await answer(session, id_, text="break")
        expected = f"question {id_!r} stays open: RuntimeError: a bug of the plugin's"
        assert Refused("invalid_answer", expected) == refused
        await answer(session, id_, "Yes")
        await session.wait_idle()
        assert "completed" == of_kind(lab.records(), TurnEnded)[0].reason


async def test_a_question_that_is_given_up_is_taken_back():
    """A call that stops waiting inside a turn that goes on leaves no question behind."""

    @tool(effect="none", timeout_s=1.0)
    async def impatient(view: View) -> str:
        """Ask, but not for long."""
        return (await view.ask_user("Quick?", YES_NO, by="poll")).ending

    async with open_lab(one_call("impatient"), plugins=[POLL], tools=[impatient]) as lab:
        session = await lab.session()
        await session.run("go")
        assert ["cancelled"] == [e.ending for e in of_kind(lab.records(), QuestionAnswered)]
        check_log(lab.records())


async def test_a_call_that_concludes_ends_its_turn():
    """The model is not asked again, unless input has arrived that the turn owes an answer."""
    model = ScriptedModel([Reply(calls=[Call("finish")]), Reply("not asked")])
    async with open_lab(model, plugins=[POLL]) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert ("completed", 1, 1) == (ended.reason, ended.steps, len(model.prompts))
        assert ['{"done":true}'] == [e.text for e in of_kind(lab.records(), ToolReturned)]
        check_log(lab.records())


async def test_a_guard_refuses_a_call():
    """Its reason is the call's `rejected` result, and the body does not run; a guard that breaks has refused."""
    calls = [Call("write", {"text": text}) for text in ("yes", "no", "bug")]
    async with open_lab(ScriptedModel([Reply(calls=calls), Reply("on")]), plugins=[POLL]) as lab:
        await (await lab.session()).run("go")
        broken = "plugin poll could not decide about this call: RuntimeError: a bug of the plugin's"
        assert [("completed", "YES"), ("rejected", "writing no is not allowed"), ("rejected", broken)] == [
            (e.receipt, e.text) for e in of_kind(lab.records(), ToolReturned)
        ]


class Eyes:
    """A reader of a log who answers nothing."""

    def take(self, envelopes: Sequence[Any]) -> None:
        """See it."""


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


async def test_commands_act_in_every_phase():
    """A command writes and answers while a turn runs and between turns; under one id it acts once."""
    model = ScriptedModel([Reply("first")], delay_s=5.0)
    async with open_lab(model, plugins=[POLL]) as lab:
        session = await lab.session()
        assert Told("found a in turn 0") == await use(session, "a", id="x")
        assert Told("found a in turn 0") == await use(session, "a", id="x")
        await session.submit("go")
        assert Told("found b in turn 1") == await use(session, "b")
        assert Refused("invalid_command", "/poll needs a word") == await use(session, "")
        assert "unsupported" == (await use(session, "a", "nothing")).reason
        await session.wait_idle()
        assert [ToolsFound(("a",)), ToolsFound(("b",))] == of_kind(lab.records(), ToolsFound)


async def test_a_command_that_breaks_is_a_refusal():
    """Neither its exception nor an event that cannot be written takes the session down, and nothing is written."""
    async with open_lab(ScriptedModel(), plugins=[POLL]) as lab:
        session = await lab.session()
        before = session.log.seq
        for wrong in ("break", "wrong"):
            assert "invalid_command" == (await use(session, wrong)).reason
        assert (before, ()) == (session.log.seq, session.state(QUEUE))
        assert "completed" == (await session.run("still there")).reason


async def test_a_command_may_speak_for_the_user():
    """A message that it queues starts a turn, also behind a queue that was parked, and the same id comes once."""
    model = ScriptedModel(lambda prompt: Reply("ok"))
    async with open_lab(model, plugins=[POLL]) as lab:
        session = await lab.session()
        assert isinstance(await use(session, "say"), Accepted)
        await session.wait_idle()
        assert "said by a command" == model.prompts[0].messages[-1].text
        await use(session, "say")
        await session.wait_idle()
        assert 1 == len(model.prompts)
        check_log(lab.records())


async def test_a_filter_takes_proposals_out_of_the_text():
    """What it takes out stands on the log before the text, and in history; its deltas have a part of their own."""
    async with open_lab(ScriptedModel([Reply("!one\nhello"), Reply("!two")]), plugins=[POLL]) as lab:
        session = await lab.session()
        ended = [await session.run("go"), await session.run("again")]
        assert ["hello", None] == [one.last_message for one in ended]
        said = [e for e in lab.records() if isinstance(e, PlanProposed | ModelSaid)]
        kept = [e.text for e in said]
        assert ["!one", "hello", "!two", ""] == kept
        spoken = [m.text for m in session.state(HISTORY).messages if isinstance(m, Assistant)]
        plans = ["<proposed_plan>\n!one\n</proposed_plan>", "<proposed_plan>\n!two\n</proposed_plan>"]
        assert [plans[0], "hello", plans[1]] == spoken
        check_log(lab.records())


async def test_what_was_cut_off_proposes_nothing():
    """Of a text that an interrupt cut, only what is said to the user is kept."""
    async with open_lab(ScriptedModel([Reply("!plan that goes on and on")], delay_s=60.0), plugins=[POLL]) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(30)
        await session.interrupt()
        await session.wait_idle()
        assert ([], []) == (of_kind(lab.records(), PlanProposed), of_kind(lab.records(), ModelSaid))
        assert ["plan"] == sorted({delta.part for delta in session.deltas if delta.text.startswith("!")})


async def test_commit_is_durable_and_at_once():
    """A control tool that commits has its events on the log before its result, and its last write with it."""

    @tool(effect="none", control=True)
    async def note(view: View) -> int:
        """Write twice."""
        view.append(ToolsFound(("held",)))
        await view.commit(ToolsFound(("at once",)))
        return len(of_kind(lab.records(), ToolsFound))

    async with open_lab(one_call("note"), plugins=[POLL], tools=[note]) as lab:
        session = await lab.session()
        await session.run("go")
        assert ["1"] == [e.text for e in of_kind(lab.records(), ToolReturned)]
        assert [("at once",), ("held",)] == [e.names for e in of_kind(lab.records(), ToolsFound)]


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


def test_every_answer_can_be_kept():
    """What commands answer is kept under an id as plain values and read back equal."""
    kept = msgspec.convert(msgspec.to_builtins(Told("x")), Told | Accepted | Refused)
    assert Told("x") == kept


async def test_notes_of_a_filter_do_not_break_a_session_without_one():
    """Where no plugin reads along, text is said as it came."""
    async with open_lab(ScriptedModel([Reply("!as it is")])) as lab:
        session = await lab.session()
        assert "!as it is" == (await session.run("go")).last_message
        assert [] == of_kind(lab.records(), NoteAdded)


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

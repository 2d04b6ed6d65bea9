"""Plugins that ask, guard, command and read: what the session does for them, whatever happens meanwhile."""

import msgspec
import trio

from callboard.actors.asked import QUESTIONS
from callboard.actors.books import HISTORY, QUEUE
from callboard.actors.events import Call, ModelSaid, NoteAdded, ToolReturned, TurnEnded
from callboard.actors.facts import (
    PlanProposed,
    QuestionAnswered,
    QuestionAsked,
    ToolsFound,
)
from callboard.actors.memory import MemoryStore
from callboard.actors.messages import Accepted, Refused, Told
from callboard.actors.model import Assistant, Reply
from callboard.actors.plugin import View
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.actors.tool import tool

from .polled import POLL, YES_NO, answer, one_call, use
from .strict import check_log, of_kind, until


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

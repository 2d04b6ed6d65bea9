"""request_user_input: who may ask when, what is refused, and what becomes of questions and answers."""

from typing import Any

import pytest
import trio

from callboard.actors.asked import QUESTIONS
from callboard.actors.books import QUEUE
from callboard.actors.events import (
    Call,
    ControlCallEnded,
    MessageQueued,
    TurnEnded,
)
from callboard.actors.facts import Option, PlanModeSet, QuestionAnswered, QuestionAsked
from callboard.actors.memory import MemoryStore
from callboard.actors.messages import Accepted
from callboard.actors.model import Reply, User
from callboard.actors.passivation import is_free
from callboard.actors.testing import ScriptedModel, open_lab, seeded_run
from callboard.plugins.ask import ASK_PLUGIN, PARTS, QUESTION_MAX_CHARS, QUESTIONS_MAX, ask_plugin

from .asks import answers, asked, asking, once, question, questions, results
from .disks import Disk
from .strict import of_kind, until

UNAVAILABLE = [("failed", "request_user_input is unavailable in Default mode")]


async def test_questions_wait_side_by_side():
    """All are on the log under the call's name, any order of answers goes, and the result has each under its id."""
    call = asking(question("a"), question("b", header=""), question("c"))
    async with asked(once(call)) as (lab, session):
        await session.submit("go")
        ids = await questions(session, 3)
        assert ["1.q.1", "1.q.2", "1.q.3"] == ids
        options = (Option("red"), Option("blue", "as the sea"))
        expected = QuestionAsked("1.q.2", "q", 1, "ask", "", "Which b?", options)
        assert expected == session.state(QUESTIONS)[1]
        assert isinstance(await session.answer(ids[2], ["blue"], "but light"), Accepted)
        await session.answer(ids[0], text="green")
        assert [ids[1]] == await questions(session)
        await session.answer(ids[1])
        await session.wait_idle()
        ((receipt, text),) = results(lab)
        assert ("completed", {"a": ["green"], "b": [], "c": ["blue", "but light"]}) == (receipt, answers(text))
        assert ["answered", "answered", "dismissed"] == [e.ending for e in of_kind(lab.records(), QuestionAnswered)]
        assert ["completed"] == [e.outcome for e in of_kind(lab.records(), ControlCallEnded)]


async def test_questions_of_a_call_reach_the_disk_in_one_write():
    """Nobody hears of a part of them: they are appended together, and durable before anybody can answer."""
    disk = Disk()
    async with asked(once(asking(*(question(str(n)) for n in range(QUESTIONS_MAX)))), store=disk) as (lab, session):
        await session.submit("go")
        await questions(session, QUESTIONS_MAX)
        places = [at for at, event in enumerate(lab.records()) if isinstance(event, QuestionAsked)]
        assert list(range(places[0], places[0] + QUESTIONS_MAX)) == places
        for id_ in await questions(session, QUESTIONS_MAX):
            await session.answer(id_, ["red"])
        await session.wait_idle()
        assert {str(n): ["red"] for n in range(QUESTIONS_MAX)} == answers(results(lab)[0][1])


async def test_default_mode_has_no_questions_unless_it_is_configured():
    """The tool is refused in Default mode, works in Plan mode, and the fold alone says which mode it is."""
    model = ScriptedModel(lambda prompt: Reply("", [asking()]) if prompt.step == 1 else Reply("on"))
    async with asked(model, plugins=[ASK_PLUGIN]) as (lab, session):
        await session.run("go")
        assert UNAVAILABLE == results(lab)
        session.log.append(PlanModeSet(active=True))
        await session.submit("again")
        (id_,) = await questions(session)
        await session.answer(id_, ["red"])
        await session.wait_idle()
        session.log.append(PlanModeSet(active=False))
        await session.run("and again")
        assert ["failed", "completed", "failed"] == [receipt for receipt, _ in results(lab)]


async def test_subagents_do_not_ask_unless_they_may():
    """A child's call is refused; widened, the question is on the child's own log, in Plan mode of its parent too."""
    place: dict[str, Any] = {"parent": "root", "depth": 1, "path": "/root/a"}
    async with open_lab(once(asking()), plugins=[ask_plugin(default_mode=True)]) as lab:
        await (await lab.session("child", **place)).run("go")
        ((receipt, text),) = results(lab, "child")
        assert ("failed", True) == (receipt, "can only be used by the root agent" in text)
    async with open_lab(once(asking()), plugins=[ask_plugin(children=True)]) as lab:
        root, child = await lab.session("root"), await lab.session("child", **place)
        lab.stage.above = lambda session: [root.log] if session == "child" else []
        root.log.append(PlanModeSet(active=True))
        await child.submit("go")
        (id_,) = await questions(child)
        assert ((), "not_pending") == (root.state(QUESTIONS), (await root.answer(id_, ["red"])).reason)
        await child.answer(id_, ["red"])
        await child.wait_idle()
        assert {"colour": ["red"]} == answers(results(lab, "child")[0][1])


MISFITS: tuple[tuple[Any, str], ...] = (
    ([], "takes 1 to 50 questions, got 0"),
    ([question(str(n)) for n in range(QUESTIONS_MAX + 1)], "takes 1 to 50 questions, got 51"),
    ([question(), question()], "'colour' is used by another question"),
    ([question(" ")], "`$.questions[0].id` is empty"),
    ([question("x" * 101)], "has 101 characters: at most 100"),
    ([question(question="\n")], "`$.questions[0].question` is empty"),
    ([question(question="x" * (QUESTION_MAX_CHARS + 1))], "has 10,001 characters: at most 10,000"),
    ([question(header="x" * 201)], "has 201 characters: at most 200"),
    ([question(options=[])], "has 0 options: every question needs 1 to 50"),
    ([question(options=[{"label": str(n)} for n in range(51)])], "has 51 options"),
    ([question(options=[{"label": ""}])], "`$.questions[0].options[0].label` is empty"),
    ([question(options=[{"label": "a"}, {"label": "a"}])], "the same label twice"),
    ([question(options=[{"label": "a", "description": "x" * 2001}])], "at most 2,000"),
    ([question(options=[{"label": "a", "value": 1}])], "value"),
    ([question(extra=1)], "extra"),
    ([question(options="red")], "Expected `array`, got `str`"),
    ([question(options=None)], "Expected `array`, got `null`"),
    ([{**question(), "id": 1}], "Expected `str`, got `int`"),
    ("colour", "Expected `array`, got `str`"),
    ([[[]]], "Expected `object`, got `array`"),
)


@pytest.mark.parametrize(("wrong", "part"), MISFITS)
async def test_what_cannot_be_asked_is_refused(wrong, part):
    """Nothing is asked, the model reads in one short sentence what is wrong, and the turn goes on."""
    async with asked(once(Call("request_user_input", {"questions": wrong}))) as (lab, session):
        ended = await session.run("go")
        ((receipt, text),) = results(lab)
        assert ("failed", "completed", []) == (receipt, ended.reason, of_kind(lab.records(), QuestionAsked))
        assert part in text
        assert len(text) < 700


async def test_hostile_texts_are_asked_and_answered_as_they_are():
    """Control characters, braces and markup pass through the log and the result unchanged."""
    nasty = "\x1b[31m{tool} %s </turn_aborted>\u202e\x00 'q'"
    call = asking(question(nasty[:90], question=nasty, options=[{"label": nasty, "description": nasty}]))
    async with asked(once(call)) as (lab, session):
        await session.submit("go")
        (id_,) = await questions(session)
        assert "1.q.1" == id_
        assert "invalid_answer" == (await session.answer(id_, [nasty + " "])).reason
        await session.answer(id_, [nasty], text="\ud800 lone")
        await session.wait_idle()
        assert {nasty[:90]: [nasty, "\ufffd lone"]} == answers(results(lab)[0][1])


async def test_a_bad_answer_leaves_the_question_open_and_the_first_good_one_wins():
    """What is refused changes nothing; the same verb again answers the same, another one is too late."""
    async with asked(once(asking())) as (lab, session):
        await session.submit("go")
        (id_,) = await questions(session)
        for choices, text in ((["green"], None), (["red", "blue"], None), ([], "  ")):
            assert "invalid_answer" == (await session.answer(id_, choices, text)).reason
        assert [id_] == await questions(session)
        first = await session.answer(id_, ["red"], id="mine")
        assert first == await session.answer(id_, ["red"], id="mine")
        assert "not_pending" == (await session.answer(id_, ["blue"])).reason
        assert "not_pending" == (await session.answer("1.q.9", ["blue"])).reason
        await session.wait_idle()
        assert first == await session.answer(id_, ["red"], id="mine")
        assert {"colour": ["red"]} == answers(results(lab)[0][1])


def test_of_two_answers_at_once_one_wins():
    """Whichever comes first counts, the other is told so, whatever the order of the tasks."""

    async def race() -> None:
        async with asked(once(asking())) as (lab, session):
            await session.submit("go")
            (id_,) = await questions(session)
            got: list[Any] = []

            async def say(colour: str) -> None:
                got.append((colour, await session.answer(id_, [colour])))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(say, "red")
                nursery.start_soon(say, "blue")
            await session.wait_idle()
            (won,) = [colour for colour, answer in got if isinstance(answer, Accepted)]
            assert ["not_pending"] == [answer.reason for colour, answer in got if colour != won]
            assert {"colour": [won]} == answers(results(lab)[0][1])

    assert 5 == seeded_run(race, range(5))


async def test_an_interrupt_cancels_all_questions_of_a_call():
    """Also those of a call that has one answer already; each has one end, and none is a refusal or a failure."""
    async with asked(once(asking(question("a"), question("b"), question("c")))) as (lab, session):
        await session.submit("go")
        ids = await questions(session, 3)
        await session.answer(ids[0], ["red"])
        await session.interrupt()
        assert {"not_pending"} == {(await session.answer(id_, ["red"])).reason for id_ in ids}
        await session.wait_idle()
        ends = of_kind(lab.records(), QuestionAnswered)
        assert [("1.q.1", "answered"), ("1.q.2", "cancelled"), ("1.q.3", "cancelled")] == [
            (e.id, e.ending) for e in ends
        ]
        assert ["interrupted"] == [receipt for receipt, _ in results(lab)]
        assert ["interrupted"] == [e.outcome for e in of_kind(lab.records(), ControlCallEnded)]
        assert () == session.state(QUESTIONS)


async def test_questions_outlive_a_shutdown_and_their_answers_reach_the_model():
    """Reopened they are open under the same ids; each late answer is one message, a late dismissal is none."""
    store = MemoryStore()
    async with asked(once(asking(question("a"), question("b"), question("c"))), store=store) as (_, session):
        await session.submit("go")
        ids = await questions(session, 3)
        await session.answer(ids[0], ["red"])
        await session.stop()
    model = ScriptedModel(lambda prompt: Reply("heard"))
    async with asked(model, store=store, fresh=False) as (lab, session):
        assert ids[1:] == await questions(session, 2)
        await session.answer(ids[1], text="green")
        await session.wait_idle()
        await session.answer(ids[2])
        await session.wait_idle()
        (prompt,) = model.prompts
        said = prompt.messages[-1]
        assert isinstance(said, User)
        assert ("user", "Which b?") == (said.source, said.text.splitlines()[0].partition("user: ")[2])
        assert [
            "The user has now answered: green",
            "Asked together with it: Which a?",
            "The user had answered: red",
        ] == said.text.splitlines()[1:4]
        assert ["answer:1.q.2"] == [e.id for e in of_kind(lab.records(), MessageQueued)[1:]]
        assert "not_pending" == (await session.answer(ids[1], ["red"])).reason


async def test_answers_that_came_in_time_are_not_lost_with_their_call():
    """The last question of a call that is settled late brings the others along, dismissed as it may be; each once."""
    store = MemoryStore()
    async with asked(once(asking(*(question(id_) for id_ in "abcd"))), store=store) as (_, session):
        await session.submit("go")
        ids = await questions(session, 4)
        await session.answer(ids[0], ["red"])
        await session.answer(ids[1])
        await session.stop()
    model = ScriptedModel(lambda prompt: Reply("heard"))
    async with asked(model, store=store, fresh=False) as (lab, session):
        await session.answer(ids[2])
        assert [] == of_kind(lab.records(), MessageQueued)[1:]
        await session.answer(ids[3])
        await session.wait_idle()
        (queued,) = of_kind(lab.records(), MessageQueued)[1:]
        told = [line.partition(": ")[2] for line in queued.text.splitlines()[:4]]
        assert ["Which d?", "(nothing: the user left it unanswered)", "Which a?", "red"] == told
        assert (("ask_parts", ()), 1) == ((PARTS.key, session.state(PARTS)), len(model.prompts))


async def test_a_session_that_was_cut_off_asks_again():
    """A log that ends while a question is open is repaired around it: the call is over, the question is not."""
    store, model = MemoryStore(), once(asking())
    async with open_lab(model, plugins=[ask_plugin(default_mode=True)], store=store) as lab:
        session = await lab.session()
        await session.submit("go")
        (id_,) = await questions(session)
        cut = MemoryStore()
        for record in store.read("s", -1, 1000):
            cut.append("s", [record], None)
    async with asked(ScriptedModel([Reply("heard")]), store=cut, fresh=False) as (lab, session):
        assert ([id_], ["interrupted"]) == (await questions(session), [receipt for receipt, _ in results(lab)])
        assert "interrupted" == of_kind(lab.records(), TurnEnded)[0].reason
        await session.answer(id_, ["blue"])
        await session.wait_idle()
        assert 2 == len(of_kind(lab.records(), TurnEnded))


async def test_an_answer_that_comes_during_a_later_turn_is_the_next_turn():
    """It waits its turn like what the user says, and nobody takes it for the answer to something else."""
    store = MemoryStore()
    async with asked(once(asking()), store=store) as (_, session):
        await session.submit("go")
        (id_,) = await questions(session)
    model = ScriptedModel(lambda prompt: Reply(prompt.messages[-1].text[:6]), delay_s=1.0)
    async with asked(model, store=store, fresh=False) as (lab, session):
        await session.submit("second")
        await until(lambda: model.prompts)
        await session.answer(id_, ["red"])
        assert ["answer:1.q.1"] == [message.id for message in session.state(QUEUE)]
        await session.wait_idle()
        assert ["second", "Before"] == [e.last_message for e in of_kind(lab.records(), TurnEnded)[1:]]


async def test_an_open_question_keeps_a_session_in_memory():
    """Also between turns, after a restart: whoever reads it would lose sight of it."""
    store = MemoryStore()
    async with asked(once(asking()), store=store) as (_, session):
        await session.submit("go")
        (id_,) = await questions(session)
    async with asked(ScriptedModel(), store=store, fresh=False) as (_, session):
        await session.log.flush()
        assert not is_free(session.actor)
        await session.answer(id_)
        await session.log.flush()
        await until(lambda: is_free(session.actor))


async def test_a_crash_of_the_actor_leaves_the_question_open():
    """The actor that is run again reads the question from its log, under the same id, and takes its answer."""
    async with open_lab(once(asking()), plugins=[ask_plugin(default_mode=True)]) as lab:
        session = await lab.session(restarts_max=1)
        await session.submit("go")
        (id_,) = await questions(session)
        broken: Any = object()
        session.actor.tell(broken)
        await until(lambda: session.crashes)
        await session.wait_idle()
        assert ([], [id_]) == (of_kind(lab.records(), QuestionAnswered), await questions(session))
        await session.answer(id_, ["red"])
        await session.wait_idle()
        assert ["answered"] == [e.ending for e in of_kind(lab.records(), QuestionAnswered)]

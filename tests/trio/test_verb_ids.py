"""Ids of verbs, also after a restart, verbs during an abort, and schemas of final answers."""

from typing import Any

import msgspec
import pytest
import trio

from callboard.actors.events import MessageQueued, TurnEnded, TurnStarted, VerbAnswered
from callboard.actors.memory import MemoryStore
from callboard.actors.messages import (
    Accepted,
    Compact,
    Edit,
    Edited,
    Inject,
    Interrupt,
    Interrupting,
    ModeAnswer,
    Refused,
    Replace,
    ResumeQueue,
    Review,
    SetMode,
    Shell,
    Steer,
    StopOnce,
    Stopped,
    Submit,
    SubmitOrSteer,
    Withdraw,
    Withdrawn,
)
from callboard.actors.model import Reply
from callboard.actors.stage import Limits
from callboard.actors.testing import ScriptedModel, open_lab

from .strict import check_log, of_kind
from .tasked import ask, nap, napping

# -- ids


# Each verb with what it is given besides its id.
NAMED: dict[str, tuple[type[Any], tuple[Any, ...], str]] = {
    "submit": (Submit, ("x",), "id"),
    "steer": (Steer, ("x",), "id"),
    "submit_or_steer": (SubmitOrSteer, ("x",), "id"),
    "replace": (Replace, ("x",), "id"),
    "inject": (Inject, ("x",), "id"),
    "interrupt": (Interrupt, (), "id"),
    "withdraw": (Withdraw, ("w",), "verb_id"),
    "edit": (Edit, ("e", "y"), "verb_id"),
    "resume_queue": (ResumeQueue, (), "id"),
    "set_mode": (SetMode, (True,), "id"),
    "compact": (Compact, ("",), "id"),
    "review": (Review, ("x",), "id"),
    "shell": (Shell, ("x",), "id"),
}


@pytest.mark.parametrize("running", [False, True], ids=["idle", "running"])
@pytest.mark.parametrize("verb", NAMED)
async def test_the_same_id_acts_once_also_after_a_restart(verb, running):
    """The same verb with the same id gets the same answer, at once, later, and from a log that is read anew."""
    letter, given, name = NAMED[verb]
    store = MemoryStore()
    async with open_lab(napping(1), tools=[nap], store=store) as lab:
        session = await lab.session()
        for waiting in ("w", "e"):
            await session.inject(waiting, id=waiting)
        if running:
            await session.submit("go")
            await trio.sleep(0.5)
        first = await ask(session, letter, *given, **{name: "once"})
        answers = [await ask(session, letter, *given, **{name: "once"})]
        await session.wait_idle()
        answers.append(await ask(session, letter, *given, **{name: "once"}))
        await session.stop()
        count, turns = len(lab.records()), len(of_kind(lab.records(), TurnStarted))
        session = await lab.session(fresh=False)
        answers.append(await ask(session, letter, *given, **{name: "once"}))
        await session.wait_idle()
        assert [first] * 3 == answers
        again = [e for e in lab.records()[count:] if not isinstance(e, VerbAnswered)]
        assert (turns, []) == (len(of_kind(lab.records(), TurnStarted)), of_kind(again, MessageQueued))


@pytest.mark.parametrize("verb", NAMED)
async def test_an_id_that_another_verb_used_is_taken(verb):
    """Whatever the verb, an id under which another one acted is refused, and nothing is done."""
    letter, given, name = NAMED[verb]
    async with open_lab(napping(1), tools=[nap]) as lab:
        session = await lab.session()
        other: tuple[type[Any], tuple[Any, ...]] = (ResumeQueue, ()) if verb != "resume_queue" else (Interrupt, ())
        await ask(session, other[0], *other[1], id="taken")
        count = len(lab.records())
        answer = await ask(session, letter, *given, **{name: "taken"})
        assert isinstance(answer, Refused)
        assert "id_taken" == answer.reason
        assert set() == {type(e) for e in lab.records()[count:]} - {VerbAnswered}


async def test_a_stop_under_an_id_is_noted_once():
    """The first time it is accepted, and after that the answer is that the session has stopped."""
    async with open_lab() as lab:
        session = await lab.session()
        assert isinstance(await ask(session, StopOnce, "s"), Accepted)
        await session.stop()
        session = await lab.session(fresh=False)
        assert Stopped() == await ask(session, StopOnce, "s")


async def test_a_verb_is_answered_during_an_abort():
    """While the window is open each verb has its answer at once, and nobody waits for what does not end."""
    async with open_lab(napping(), tools=[nap], limits=Limits(abort_window_s=5.0)) as lab:
        session = await lab.session()
        await session.submit("go")
        for waiting in ("w", "e"):
            await session.submit(waiting, id=waiting)
        await trio.sleep(1)
        await session.interrupt()
        begun_s = trio.current_time()
        kinds = [type(await ask(session, letter, *given)) for letter, given, _ in NAMED.values()]
        assert begun_s == trio.current_time()
        refused = [Refused] * 3  # no shell here
        assert [
            Accepted,
            Refused,
            Accepted,
            Accepted,
            Accepted,
            Interrupting,
            Withdrawn,
            Edited,
            Accepted,
            ModeAnswer,
        ] == kinds[:10]
        assert 3 == len(refused) == len(kinds[10:])
        await session.wait_idle()
        check_log(lab.records())


# -- schemas

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


async def test_a_schema_goes_to_the_model_and_must_be_the_same():
    """Each prompt of the turn carries it, and no other; who steers with one is refused unless it is the same value."""
    model = napping(1)
    async with open_lab(model, tools=[nap]) as lab:
        session = await lab.session()
        await ask(session, Submit, "go", schema=SCHEMA)
        await trio.sleep(0.5)
        other = {"properties": {"n": {"type": "integer"}}, "type": "object"}
        answers = [await ask(session, Steer, "s", schema=one) for one in (other, None, {"type": "object"}, [1])]
        assert ["Steered", "Steered", "schema_mismatch", "schema_mismatch"] == [
            getattr(answer, "reason", type(answer).__name__) for answer in answers
        ]
        await session.wait_idle()
        await session.run("plain")
        assert {1: [SCHEMA], 2: [None]} == {
            turn: list({msgspec.json.encode(p.schema): p.schema for p in model.prompts if p.turn == turn}.values())
            for turn in (1, 2)
        }


@pytest.mark.parametrize(
    ("answers", "steps", "failed"),
    [(['{"n": 1}'], 1, False), (["one", '{"n": 1}'], 2, False), (["one", "two", '{"n": 1}'], 2, True)],
)
async def test_an_answer_that_is_no_json_is_asked_for_once_more(answers, steps, failed):
    """With a schema a final answer that cannot be read is given again, once; then the turn says what was wrong."""
    async with open_lab(ScriptedModel([Reply(text) for text in answers])) as lab:
        session = await lab.session()
        ended: TurnEnded = await session.ask(lambda reply: Submit("go", schema=SCHEMA, ended=reply))
        assert (steps, "completed", failed) == (ended.steps, ended.reason, ended.error is not None)
        assert not failed or "schema" in str(ended.error)

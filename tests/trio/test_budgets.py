"""Budgets: tokens and dollars of a session, steps and seconds of a turn; each ends it loudly and leaves it usable."""

import pytest
import trio

from callboard.actors.books import HISTORY, QUEUE, USAGE
from callboard.actors.budget import Price
from callboard.actors.compact import Compacting
from callboard.actors.events import Call, Compacted, ModelSaid, StepStarted, ToolCalled, TurnEnded, Usage
from callboard.actors.model import Reply, User
from callboard.actors.stage import Limits
from callboard.actors.testing import MemoryStore, ScriptedModel, open_lab
from callboard.actors.tool import tool

from .compacts import compact, model
from .strict import check_history, check_log, of_kind

USED = Usage(50, output=10)


@tool
async def dig() -> str:
    """Digs."""
    await trio.sleep(1)
    return "earth"


def digging() -> ScriptedModel:
    """Digs for ever."""
    return ScriptedModel(lambda prompt: Reply("", [Call("dig"), Call("dig")]), usage=USED)


async def test_tokens_are_checked_after_each_reply():
    """The reply that exceeds them is the last: nothing of it runs, and each of its calls has its one result."""
    async with open_lab(digging(), tools=[dig], limits=Limits(tokens_max=100)) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert (ended.reason, ended.cause, ended.steps) == ("aborted", "budget", 2)
        assert ended.error == "out of budget: tokens_max: the session has used 120 of 100 tokens"
        assert [r.receipt for r in ended.receipts] == ["completed", "completed", "not_started", "not_started"]
        assert (2, 0.0) == (len(of_kind(lab.records(), ToolCalled)), ended.abort_s)
        check_history(session.state(HISTORY).messages)
        check_log(lab.records())


async def test_tokens_are_checked_before_each_request():
    """What is used up exactly lets the step end, and makes no further request."""
    async with open_lab(digging(), tools=[dig], limits=Limits(tokens_max=120)) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert (ended.reason, ended.cause, ended.steps, ended.tool_calls) == ("aborted", "budget", 2, 4)
        assert {"completed"} == {r.receipt for r in ended.receipts}


async def test_exceeding_final_answer_is_kept():
    """An answer that exceeds the budget is on the log, and its turn says that nothing follows."""
    async with open_lab(ScriptedModel([Reply("so it is")], usage=USED), limits=Limits(tokens_max=59)) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert (ended.reason, ended.cause, ended.last_message, ended.usage) == ("aborted", "budget", "so it is", USED)


async def test_session_over_its_budget_answers_at_once_and_never_silently():
    """Each further message is heard, and answered with an aborted turn without a step; none waits for ever."""
    async with open_lab(ScriptedModel([Reply("ok")] * 9, usage=USED), limits=Limits(tokens_max=60)) as lab:
        session = await lab.session()
        assert (await session.run("one")).reason == "completed"
        before = trio.current_time()
        for turn, text in ((2, "two"), (3, "three")):
            ended = await session.run(text)
            assert (ended.turn, ended.reason, ended.cause, ended.steps) == (turn, "aborted", "budget", 0)
            assert ended.error == "out of budget: tokens_max: the session has used 60 of 60 tokens"
        assert trio.current_time() == before
        assert ((), 1) == (session.state(QUEUE), len(of_kind(lab.records(), StepStarted)))
        check_log(lab.records())


async def test_more_budget_at_the_next_open_goes_on():
    """Opened with more to spend, the session knows everything that was said to it meanwhile."""
    store, answers = MemoryStore(), ScriptedModel([Reply("ok")] * 9, usage=USED)
    async with open_lab(answers, limits=Limits(tokens_max=60), store=store) as lab:
        session = await lab.session()
        await session.run("one")
        await session.run("two")
    async with open_lab(answers, limits=Limits(tokens_max=600), store=store) as lab:
        session = await lab.session(fresh=False)
        ended = await session.run("three")
        assert (ended.reason, ended.last_message, session.state(USAGE).total) == ("completed", "ok", 120)
        users = [m.text for m in session.state(HISTORY).messages if isinstance(m, User)]
        assert ["one", "two", "three"] == users


async def test_dollars_come_from_the_table_when_the_provider_tells_none():
    """Prices make the cost of each reply, on the log and in the usage; they end the session's turns when used up."""
    price = Price(input=10_000, output=50_000)  # a dollar for 100 in, one for 20 out
    async with open_lab(digging(), tools=[dig], limits=Limits(cost_usd_max=2.0), price=price) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert (ended.cause, ended.steps) == ("budget", 2)
        assert ended.usage.cost_usd == pytest.approx(2.0)
        assert ended.error is not None
        assert ended.error.startswith("out of budget: cost_usd_max: the session has cost 2.0000 of 2 US dollars")
        assert [1.0, 1.0] == [e.usage.cost_usd for e in of_kind(lab.records(), ModelSaid)]


async def test_dollars_of_the_provider_go_before_the_table():
    """A reply that brings its cost keeps it."""
    replies = [Reply("ok", usage=Usage(50, cost_usd=0.25))]
    async with open_lab(ScriptedModel(replies), price=Price(input=10_000)) as lab:
        session = await lab.session()
        assert (await session.run("go")).usage.cost_usd == 0.25


async def test_steps_and_seconds_say_which_budget_it_was():
    """The end of a turn names the bound of the turn that it met."""
    async with open_lab(digging(), tools=[dig], limits=Limits(steps_max=2)) as lab:
        session = await lab.session()
        assert (await session.run("go")).error == "out of budget: steps_max: the turn has made 2 steps"
    async with open_lab(digging(), tools=[dig], limits=Limits(turn_seconds_max=2.5)) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert ended.error == "out of budget: turn_seconds_max: the turn has run for 2.5 s"
        assert ended.cause == "budget"


async def test_interrupt_before_the_budget_is_an_interrupt():
    """The first cause wins, and then no budget is named."""
    async with open_lab(digging(), tools=[dig], limits=Limits(turn_seconds_max=2.5)) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1.5)
        await session.interrupt()
        ended = await session.wait(1)
        assert ended is not None
        assert (ended.cause, ended.error) == ("interrupted", None)


async def test_compaction_is_paid_for_like_an_answer():
    """Its tokens count, exceeding ones end the turn, and a session with nothing left does not compact."""
    async with open_lab(model(usage=USED), limits=Limits(tokens_max=100)) as lab:
        session = await lab.session()
        await session.run("one")
        first, second = await compact(session), await compact(session)
        assert [Compacting.kind] * 2 == [first.kind, second.kind]
        assert [("aborted", "budget")] * 2 == [(first.reason, first.cause), (second.reason, second.cause)]
        assert (1, 115) == (len(of_kind(lab.records(), Compacted)), session.state(USAGE).total)
        assert 3 == len(of_kind(lab.records(), TurnEnded))


async def test_automatic_compaction_that_uses_up_the_rest_ends_the_turn():
    """After it nothing is left for the step: the input was heard, the history is compact, the turn says why."""
    limits = Limits(tokens_max=100, context_window=60)
    async with open_lab(model(usage=USED), limits=limits) as lab:
        session = await lab.session()
        await session.run("one")
        ended = await session.run("two")
        assert (ended.cause, ended.steps, len(of_kind(lab.records(), Compacted))) == ("budget", 0, 1)
        assert session.state(HISTORY).messages[-1] == User("two")

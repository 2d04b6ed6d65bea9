"""Budgets of whole trees: tokens, dollars and busy seconds of a root and all its agents together."""

import asyncio
import re
import time

import pytest
import trio

from callboard.actors import Call, ChildEnded, Enter, ModelSaid, Plugin, Reply, ToolReturned, TurnEnded, Usage, tool
from callboard.actors.events import Compacted
from callboard.actors.memory import MemoryStore
from callboard.actors.messages import Accepted, Refused
from callboard.actors.testing import ScriptedModel
from callboard.plugins import DEFAULT
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.admission import Spent
from callboard.runtime.config import config_of
from callboard.runtime.settings import Agents, Bounds

from .hosted import SLACK_S, echo, slow, until
from .parents import Parent, lasting, of, spawn, wait

USED = Usage(50, output=10)
PRICES = {"scripted": {"input": 1_000_000, "output": 5_000_000}}  # with these a reply costs 100 dollars


def trees(rt):
    """The books of all trees."""
    return rt._sessions.spawner.trees


def logged(rt, *names):
    """What the logs of these sessions say they used."""
    said = [one.usage for name in names for kind in (ModelSaid, Compacted) for one in of(kind, rt, name)]
    ended = [one for name in names for one in of(TurnEnded, rt, name)]
    seconds = sum((one.ended_ms - one.started_ms) / 1000 for one in ended)
    return Spent(sum(one.total for one in said), sum(one.cost_usd for one in said), seconds)


@tool(effect="none", parallel=True)
async def dig() -> str:
    """Digs."""
    await trio.lowlevel.checkpoint()
    return "earth"


def digging(prompt):
    """Digs for ever."""
    return Reply("", [Call("dig")])


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ({"tokens_max": 2_400}, r"agents.tokens_max: the tree of session 'p' has used 2,\d+ of 2,400 tokens"),
        ({"cost_usd_max": 4_000.0}, r"agents.cost_usd_max: the tree of session 'p' has used \S+ of 4,000 US dollars"),
    ],
    ids=str,
)
async def test_agents_stop_and_the_root_reports(limit, words):
    """Agents that use up what they may are aborted and told apart from failures; the root still has its last tenth."""
    config = config_of({"agents": limit, "prices": PRICES})
    play = Parent(spawn("a", "b", "c"), wait(), spawn("d"), child=digging)
    async with open_runtime(config, model=ScriptedModel(play, usage=USED), tools=[dig]) as rt:
        s = await rt.create("p")
        ended = await s.run("go")
        assert ("completed", "parent done") == (ended.reason, ended.last_message)
        name, value = next(iter(limit.items()))
        most = value - value // 10
        for child in s.children():
            (last,) = of(TurnEnded, rt, child)
            assert ("aborted", "budget") == (last.reason, last.cause)
            assert re.fullmatch(f"out of budget: {words}; its agents may use \\S+, the rest is the root's", last.error)
        told = of(ChildEnded, rt, "p")
        assert {"interrupted"} == {one.status for one in told}
        assert ["out of budget: agents."] * 3 == [one.text[:22] for one in told]
        assert play.read[-1].startswith(f"spawn refused: {name} is {value:,.0f}. This tree has used up what its agents")
        spent = trees(rt).spent("p")
        assert logged(rt, "p", *s.children()).tokens == spent.tokens
        used = spent.tokens if name == "tokens_max" else spent.cost_usd
        assert most <= used <= value


async def test_root_alone_has_all_of_it():
    """A root without agents uses the whole budget, and its turns end loudly when nothing is left."""
    config = RuntimeConfig(agents=Agents(tokens_max=180))
    async with open_runtime(config, model=ScriptedModel([Reply("ok")] * 9, usage=USED)) as rt:
        s = await rt.create("p")
        assert ["completed"] * 3 == [(await s.run("go")).reason for _ in range(3)]
        ended = await s.run("go")
        assert ("aborted", "budget", 0) == (ended.reason, ended.cause, ended.steps)
        assert "out of budget: agents.tokens_max: the tree of session 'p' has used 180 of 180 tokens" == ended.error
        other = await rt.create("q")
        assert "completed" == (await other.run("go")).reason


async def test_session_budget_and_tree_budget_side_by_side():
    """A session's own budget ends its turns as before; each error says whose budget it is."""
    config = config_of({"budget": {"tokens_max": 130}, "agents": {"tokens_max": 1_000}})
    play = Parent(spawn("a"), child=digging)
    async with open_runtime(config, model=ScriptedModel(play, usage=USED), tools=[dig]) as rt:
        s = await rt.create("p")
        await s.run("go")
        await until(lambda: of(ChildEnded, rt, "p"))
        assert "out of budget: tokens_max: the session has used 180 of 130 tokens" == of(ChildEnded, rt, "p")[0].text


async def test_nothing_more_starts_where_nothing_is_left():
    """Mail that would start an agent's turn is refused too; the user's own words are answered by an aborted turn."""
    config = RuntimeConfig(agents=Agents(tokens_max=200, notify="queue"))
    play = Parent(spawn("a"), wait(), child=lambda prompt: Reply("done"))
    async with open_runtime(config, model=ScriptedModel(play, usage=USED)) as rt:
        s = await rt.create("p")
        await s.run("go")
        answer = await s.mail("/root/a", "more")
        assert isinstance(answer, Refused)
        assert ("limit_reached", True) == (answer.reason, answer.detail.startswith("tokens_max is 200. "))
        assert isinstance(await s.mail("/root/a", "for later", trigger=False), Accepted)
        ended = await (await rt.open("p.a")).run("go on")
        assert ("aborted", "budget", 0) == (ended.reason, ended.cause, ended.steps)


async def test_seconds_of_all_turns():
    """Turns side by side use up the seconds together: agents end at nine tenths, in the middle of what they do."""
    config = RuntimeConfig(agents=Agents(seconds_max=1.6, notify="queue"))
    play = Parent(spawn("a", "b"), wait(), child=lasting)
    async with open_runtime(config, model=ScriptedModel(play)) as rt:
        s, began_s = await rt.create("p"), time.monotonic()
        ended = await s.run("go")
        assert 0.45 <= time.monotonic() - began_s < 0.48 + 2 * SLACK_S
        assert ("completed", "parent done") == (ended.reason, ended.last_message)
        assert {"interrupted"} == {one.status for one in of(ChildEnded, rt, "p")}
        assert {"out of budget: agents.seconds_max: "} == {one.text[:35] for one in of(ChildEnded, rt, "p")}
        spent = trees(rt).spent("p").seconds
        assert 1.44 <= spent < 1.6 + 4 * SLACK_S
        assert pytest.approx(logged(rt, "p", "p.a", "p.b").seconds, abs=0.05) == spent
        tree = trees(rt).of("p")
        assert ({}, {}, None) == (tree.turns, tree.books.turns, tree.timer)


async def test_seconds_of_a_root():
    """The root's turn ends when all is used up and later turns at once."""
    config = RuntimeConfig(agents=Agents(seconds_max=0.3))
    async with open_runtime(config, model=slow()) as rt:
        s = await rt.create("p")
        ended = await s.run("go")
        assert ("aborted", "budget") == (ended.reason, ended.cause)
        assert ended.error is not None
        assert ended.error.startswith("out of budget: agents.seconds_max: the tree of session 'p' has used 0.3")
        assert 0 == (await s.run("again")).steps


@pytest.mark.parametrize("how", ["interrupted", "stopped", "crashed", "failed"])
async def test_each_turn_is_counted_once(how):
    """Whatever ends a turn, its seconds are counted once, and its clock stands still after that."""

    async def broken(view, messages):
        if how == "crashed" and view.session == "p.a":
            raise KeyError("a bug in a plugin")
        return Enter(messages)

    def child(prompt):
        return "no reply at all" if how == "failed" else lasting(prompt)

    config = RuntimeConfig(agents=Agents(seconds_max=60.0, notify="queue"))
    plugins = (*DEFAULT, Plugin("broken", before_step=broken))
    async with open_runtime(config, model=ScriptedModel(Parent(spawn("a"), child=child)), plugins=plugins) as rt:
        s = await rt.create("p")
        await s.run("go")
        if how in ("interrupted", "stopped"):
            a = await rt.open("p.a")
            await (a.interrupt() if how == "interrupted" else a.stop())
        await until(lambda: of(ChildEnded, rt, "p"))
        spent, tree = trees(rt).spent("p"), trees(rt).of("p")
        assert ({}, {}, {}, None) == (tree.turns, tree.books.turns, tree.books.slots, tree.timer)
        await asyncio.sleep(0.01)
        assert spent == trees(rt).spent("p") != Spent()


@pytest.mark.parametrize("killed", [False, True])
async def test_reopened_tree_knows_what_it_used(killed):
    """What was used is counted again from the logs, also of a turn that was cut off, and nothing is given back."""
    store = MemoryStore()

    async def child(prompt):
        if killed and prompt.step == 3:
            await trio.sleep(60)
        return Reply("", [Call("dig")]) if prompt.step < 3 else Reply("done")

    config = config_of({"agents": {"tokens_max": 1_000, "cost_usd_max": 1e9, "seconds_max": 60}, "prices": PRICES})
    play = Parent(spawn("a"), *([] if killed else [wait()]), child=child)
    async with open_runtime(config, model=ScriptedModel(play, usage=USED), tools=[dig], store=store) as rt:
        await (await rt.create("p")).run("go")
        await until(lambda: (120 if killed else 180) == logged(rt, "p.a").tokens)
        logs, before = {name: list(log) for name, log in store._logs.items()}, trees(rt).spent("p")
    if killed:
        store._logs.update(logs)
    async with open_runtime(config, model=ScriptedModel(usage=USED), tools=[dig], store=store) as rt:
        s = await rt.open("p")
        after = trees(rt).spent("p")
        assert (before.tokens, before.cost_usd) == (after.tokens, after.cost_usd)
        assert pytest.approx(before.seconds, abs=0.3) == after.seconds
        assert {} == trees(rt).of("p").books.turns
        await s.run("go on")
        assert before.tokens + 60 <= trees(rt).spent("p").tokens <= before.tokens + 120  # the end of `a` may wake it
    config = config_of({"agents": {"tokens_max": before.tokens}})
    async with open_runtime(config, model=echo(), store=store) as rt:
        ended = await (await rt.open("p")).run("go on")
        assert ("budget", 0) == (ended.cause, ended.steps)


@pytest.mark.parametrize(("body", "tokens"), [(b'{"type":"nonsense"}', 240), (b"nonsense", 180), (b"", 180)])
async def test_damaged_log_of_an_agent(body, tokens):
    """An agent whose log cannot be read is counted as far as it can be, and keeps nobody from opening the root."""
    store = MemoryStore()
    config = RuntimeConfig(agents=Agents(tokens_max=1_000, notify="queue"))
    play = Parent(spawn("a"), wait())
    async with open_runtime(config, model=ScriptedModel(play, usage=USED), store=store) as rt:
        await (await rt.create("p")).run("go")
    log = store._logs["p.a"]
    log[-1] = type(log[-1])(log[-1].seq, 0, None, body)
    async with open_runtime(config, model=echo(), store=store) as rt:
        s = await rt.open("p")
        assert tokens == trees(rt).spent("p").tokens
        assert "completed" == (await s.run("go")).reason


@pytest.mark.parametrize("names", [(), ("a",)])
async def test_tree_that_left_memory_keeps_its_books(names):
    """Sessions that are passivated have used what they used; when the root is stopped nothing of it stays."""
    config = RuntimeConfig(runtime=Bounds(idle_evict_s=0.05), agents=Agents(tokens_max=1_000))
    play = Parent(*[reply for name in names for reply in (spawn(name), wait())])
    async with open_runtime(config, model=ScriptedModel(play, usage=USED)) as rt:
        s = await rt.create("p")
        await s.run("go")
        everybody = ("p", *s.children())
        await until(lambda: set(everybody) == set(rt._sessions.registry.cold))
        spent = trees(rt).spent("p").tokens
        assert logged(rt, *everybody).tokens == spent > 0
        await s.run("more")
        assert spent + 60 == trees(rt).spent("p").tokens
        await s.stop()
        assert {} == trees(rt).open


async def test_without_limits_nothing_is_counted():
    """A runtime without such limits keeps no books for a root without agents, and counts no tokens of any tree."""
    play = Parent(spawn("a"), wait())
    async with open_runtime(model=ScriptedModel(play, usage=USED)) as rt:
        s = await rt.create("p")
        await s.run("go")
        assert (Spent(), ["p"]) == (trees(rt).spent("p"), list(trees(rt).open))
    async with open_runtime(model=echo()) as rt:
        await (await rt.create("p")).run("go")
        assert {} == trees(rt).open


async def test_call_that_is_one_too_many():
    """A call that is one too many for the tree is not started, and has its one result."""
    config = RuntimeConfig(agents=Agents(tokens_max=100))
    async with open_runtime(config, model=ScriptedModel(digging, usage=USED), tools=[dig]) as rt:
        s = await rt.create("p")
        ended = await s.run("go")
        assert ["completed", "not_started"] == [one.receipt for one in ended.receipts]
        assert ["completed", "not_started"] == [one.receipt for one in of(ToolReturned, rt, "p")]

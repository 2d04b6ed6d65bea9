"""Limits of whole trees: who may start, who waits for a slot, and that every slot comes free."""

import asyncio

import pytest
import trio

from callboard.actors import (
    Call,
    ChildEnded,
    LogError,
    Reply,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    View,
    tool,
)
from callboard.actors.books import TURN
from callboard.actors.memory import MemoryStore
from callboard.actors.messages import Accepted, Refused
from callboard.actors.testing import ScriptedModel
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.registry import opened_of
from callboard.runtime.settings import Agents, Bounds

from .hosted import echo, until
from .parents import Parent, lasting, of, results, spawn, wait


def books(rt, root="p"):
    """The books of a tree."""
    return rt._sessions.spawner.trees.of(root).books


def bomb(check):
    """A model of which every agent asks for five more, waits for them, and says how that went."""

    def play(prompt):
        check()
        if prompt.turn > 1:
            return Reply("heard")
        if prompt.step == 1:
            return spawn("a", "b", "c", "d", "e")
        return wait() if prompt.step == 2 else Reply("done")

    return ScriptedModel(play)


async def test_spawn_bomb():
    """Where each agent asks for five more the tree stops at its limits, refusals name them, and all come to rest."""
    limits = Agents(depth_max=2, running_max=6, breadth_max=4, spawned_max=10)
    most = [0]

    def check():
        most[0] = max(most[0], len(books(rt).slots))

    async with open_runtime(RuntimeConfig(agents=limits), model=bomb(check)) as rt:
        s = await rt.create("p")
        ended = await s.run("go")
        assert ("completed", "done") == (ended.reason, ended.last_message)
        await until(lambda: {"idle"} == {one.state()["phase"] for one in rt.sessions()}, 20)
        depths = [one.path.count("/") - 1 for one in rt.sessions()]
        assert 2 == max(depths)
        assert 10 >= sum(depth > 1 for depth in depths) == books(rt).spawned
        assert 6 >= most[0] > 1
        assert ({}, {}) == (books(rt).slots, rt._sessions.spawner.trees.of("p").waiting)
        refused = [
            one.text
            for session in rt.sessions()
            for one in of(ToolReturned, rt, session.id)
            if one.name == "spawn_agent" and one.receipt == "failed"
        ]
        assert len(depths) - 1 + len(refused) == 5 * len(depths)
        named = {text.removeprefix("spawn refused: ").partition(" is ")[0] for text in refused}
        assert {"depth_max", "running_max"} <= named <= {"depth_max", "running_max", "breadth_max", "spawned_max"}


async def test_loop_that_starts_one_at_a_time():
    """An agent that starts one after the other for ever is stopped by the count of all; its root may go on."""

    def child(prompt):
        if prompt.session != "p.a" or prompt.turn > 1:
            return Reply("leaf")
        refused = [text for text in results(prompt) if "spawned_max" in text]
        if refused:
            return Reply(refused[0])
        return wait() if prompt.step % 2 == 0 else spawn(f"x{prompt.step}")

    steps = [reply for name in "bcdefg" for reply in (spawn(name), wait())]
    play = Parent(spawn("a"), wait(), *steps, child=child)
    async with open_runtime(RuntimeConfig(agents=Agents(spawned_max=4)), model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        assert "parent done" == (await s.run("go")).last_message
        first = next(one for one in of(ChildEnded, rt, "p") if one.child == "p.a")
        assert first.text == (
            "spawn refused: spawned_max is 4. This tree has used up its agents; solve the task yourself."
        )
        assert (4, 7) == (books(rt).spawned, len(s.children()))


async def test_interrupt_frees_all_slots():
    """Interrupted agents leave their slots, so the next turn of the parent starts as many again."""
    play = Parent(spawn("a", "b"), wait(), spawn("c", "d"), wait(), child=lasting)
    async with open_runtime(RuntimeConfig(agents=Agents(running_max=2)), model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        for names in (("p.a", "p.b"), ("p.c", "p.d")):
            await s.submit("go")
            await until(lambda: len(books(rt).slots) == 2)
            assert set(names) == set(books(rt).slots)
            await s.interrupt()
            await until(lambda: {} == books(rt).slots)
            await s.wait_idle()
        assert 0 == sum("refused" in text for text in play.read)


async def test_root_is_never_kept_waiting():
    """However full its tree is, and whatever its agents ask for, the root's own turns begin at once and go on."""

    def child(prompt):
        return spawn(*(f"x{prompt.step}_{n}" for n in range(5)))

    play = Parent(spawn("a", "b", "c"), Reply("first"), child=child)
    limits = Agents(running_max=3, depth_max=1, notify="queue")
    config = RuntimeConfig(agents=limits, runtime=Bounds(steps_max=100_000))
    async with open_runtime(config, model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        assert "first" == (await s.run("go")).last_message
        await until(lambda: all(rt.actor(f"p.{name}").log[TURN].step > 20 for name in "abc"), 20)
        assert {"p.a", "p.b", "p.c"} == set(books(rt).slots)
        for _ in range(5):
            assert "parent done" == (await asyncio.wait_for(s.run("and?"), 5)).last_message
        assert {"p.a", "p.b", "p.c"} == set(books(rt).slots)
        assert [] == rt.statistics()["trees"]["p"]["waiting"]


async def test_agent_that_never_began_holds_nothing():
    """An agent that is stopped before its first turn leaves no slot behind."""
    async with open_runtime(RuntimeConfig(agents=Agents(running_max=1)), model=ScriptedModel(Parent())) as rt:
        s = await rt.create("p")
        for name in ("a", "b"):
            child = await rt.spawn("p", name, "work", notify=False)
            await (await rt.open(str(child))).stop()
            assert {} == books(rt).slots
        assert "p.c" == await rt.spawn("p", "c", "work", notify=False)
        await until(lambda: 3 == len(of(ChildEnded, rt, "p")))
        assert ("p.a", "p.b", "p.c") == s.children()
        assert {} == books(rt).slots


async def test_mail_that_starts_a_turn_takes_a_slot():
    """Without a free slot such mail is refused and says why; what starts nothing is taken; later it goes through."""
    said = []

    @tool(effect="none")
    async def write(view: View) -> str:
        """Writes to the first agent."""
        await view.mail("/root/a", "more")
        return "sent"

    def child(prompt):
        said.append(prompt.messages[-1].text)
        return lasting(prompt) if prompt.session != "p.a" and prompt.turn == 1 else Reply("fine")

    config = RuntimeConfig(agents=Agents(running_max=1, notify="queue"))
    play = Parent(spawn("a"), wait(), spawn("b"), Reply("", [Call("write")]), Reply("one"), child=child)
    async with open_runtime(config, model=ScriptedModel(play), tools=[write]) as rt:
        s = await rt.create("p")
        await s.run("go")
        full = "running_max is 1. Wait until an agent has finished, then try again"
        assert f"the mail was not taken: {full}." == play.read[-1]
        assert Refused("limit_reached", full) == await s.mail("/root/a", "more")
        assert isinstance(await s.mail("/root/a", "for later", trigger=False), Accepted)
        assert isinstance(await s.mail("/root/b", "it works already"), Accepted)
        await (await rt.open("p.b")).interrupt()
        await until(lambda: {} == books(rt).slots)
        assert isinstance(await s.mail("/root/a", "again", id="m"), Accepted)
        await until(lambda: 2 == len(of(TurnEnded, rt, "p.a")))
        assert isinstance(await s.mail("/root/a", "again", id="m"), Accepted)
        assert ({}, 2) == (books(rt).slots, len(of(TurnStarted, rt, "p.a")))
        await rt.spawn("p", "c", "work", notify=False)
        await until(lambda: {"p.c"} == set(books(rt).slots))
        assert isinstance(await s.mail("/root/a", "again", id="m"), Accepted)  # it was taken before
        assert isinstance(await s.mail("/root/a", "again", id="n"), Refused)
        assert any("again" in text for text in said)


class NoMessages(MemoryStore):
    """Takes no message of the first agent."""

    def append(self, session, records, header=None, due=None):
        """As a disk that is full."""
        if session == "p.a" and any(b"message_queued" in record.body for record in records):
            raise LogError("the disk is full.")
        super().append(session, records, header, due)


async def test_agent_whose_task_is_not_taken_holds_nothing():
    """An agent that lives but could not be told its task has failed, and its slot is free."""
    config = RuntimeConfig(agents=Agents(running_max=1, notify="queue"))
    async with open_runtime(config, model=ScriptedModel(Parent()), store=NoMessages()) as rt:
        await rt.create("p")
        await rt.spawn("p", "a", "work")
        await until(lambda: of(ChildEnded, rt, "p"))
        assert ("failed", True) == (of(ChildEnded, rt, "p")[0].status, "p.a" in {one.id for one in rt.sessions()})
        assert {} == books(rt).slots


async def test_mail_that_starts_nothing_holds_nothing():
    """Mail for an agent that may not start by itself waits there, without a slot."""
    config = RuntimeConfig(agents=Agents(running_max=1, notify="queue"))
    async with open_runtime(config, model=ScriptedModel(Parent())) as rt:
        s = await rt.create("p")
        await rt.spawn("p", "a", "work")
        await until(lambda: of(ChildEnded, rt, "p"))
        await (await rt.open("p.a")).set_mode("plan")
        assert isinstance(await s.mail("/root/a", "more"), Accepted)
        assert ({}, 1) == (books(rt).slots, len(of(TurnStarted, rt, "p.a")))
        await rt.spawn("p", "b", "work")
        await until(lambda: 2 == len(of(ChildEnded, rt, "p")))


async def test_woken_agent_waits_for_a_slot():
    """An agent that an end wakes begins when a slot is free, and the user's own words begin in any case."""
    over = trio.Event()

    async def child(prompt):
        if prompt.session == "p.a" and prompt.turn == 1 and prompt.step == 1:
            return spawn("x")
        if prompt.session == "p.a.x":
            await over.wait()
        elif prompt.session == "p.b" or (prompt.session == "p.c" and prompt.turn > 1):
            await trio.sleep(60)
        return Reply("done")

    config = RuntimeConfig(agents=Agents(running_max=2))
    play = Parent(spawn("c"), wait(), spawn("a"), child=child)
    async with open_runtime(config, model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        await s.run("go")
        await until(lambda: {"p.a.x"} == set(books(rt).slots))
        await s.wait_idle()
        await rt.spawn("p", "b", "work", notify=False)
        c = await rt.open("p.c")
        await c.submit("the user's own")
        await until(lambda: {"p.a.x", "p.b", "p.c"} == set(books(rt).slots))
        over.set()
        await until(lambda: of(ChildEnded, rt, "p.a"))
        await until(lambda: ["p.a"] == list(rt._sessions.spawner.trees.of("p").waiting))
        a = await rt.open("p.a")
        assert ("idle", 1) == (a.state()["phase"], len(of(TurnStarted, rt, "p.a")))
        await c.interrupt()
        await until(lambda: 2 == len(of(TurnEnded, rt, "p.a")))
        assert {"p.b"} == set(books(rt).slots)


@pytest.mark.parametrize("killed", [False, True])
async def test_reopened_tree_knows_what_it_started(killed):
    """The count of all ever started outlives the program, however it ended, and agents that are not opened count."""
    store = MemoryStore()

    async def child(prompt):
        if prompt.session == "p.a" and prompt.turn == 1 and prompt.step == 1:
            return spawn("x", "y")
        if prompt.session == "p.a" and killed:
            await trio.sleep(60)
        return Reply("done")

    config = RuntimeConfig(agents=Agents(spawned_max=3))
    async with open_runtime(config, model=ScriptedModel(Parent(spawn("a"), child=child)), store=store) as rt:
        s = await rt.create("p")
        await s.run("go")
        await until(lambda: 2 == len(of(ChildEnded, rt, "p.a")))
        logs = {name: list(log) for name, log in store._logs.items()}
    if killed:
        store._logs.update(logs)

    asked = [spawn("v", "w")]

    def more(prompt):
        return asked.pop() if asked and prompt.session == "p.a" else Reply("done")

    async with open_runtime(config, model=ScriptedModel(more), store=store) as rt:
        await rt.open("p")
        assert 2 == books(rt).spawned
        a = await rt.open("p.a")
        await a.run("again")
        assert (3, 3) == (books(rt).spawned, len(a.children()))
        assert ["spawned_max is 3" in one.text for one in of(ToolReturned, rt, "p.a")[-2:]] == [False, True]


async def test_fork_starts_with_a_tree_of_its_own():
    """A fork has none of the agents that its source started, and they do not count in it."""
    store = MemoryStore()
    play = Parent(spawn("a"), wait(), child=lambda p: spawn("x") if (p.session, p.step) == ("p.a", 1) else Reply("."))
    async with open_runtime(model=ScriptedModel(play), store=store) as rt:
        s = await rt.create("p")
        await s.run("go")
        await s.wait_idle()
        fork = await s.fork()
        assert (1, 0) == (books(rt).spawned, books(rt, fork.id).spawned)
    config = RuntimeConfig(agents=Agents(tokens_max=1_000_000))  # so that the root's log is counted too
    async with open_runtime(config, model=echo(), store=store) as rt:
        await rt.open(fork.id)
        await rt.open("p.a.x")  # alone: its tree is counted from the root's log all the same
        assert (1, 0) == (books(rt).spawned, books(rt, fork.id).spawned)
        await (await rt.open("p.a.x")).stop()
        open_now = {one.id for one in rt.sessions()}
        assert ("p" in open_now) == ("p" in rt._sessions.spawner.trees.open)


async def test_turn_that_was_left_behind_gives_back_only_its_own():
    """A session that was given up holds nothing, and what its turn says later does not touch the turn after it."""
    config = RuntimeConfig(agents=Agents(seconds_max=60.0, notify="queue"))
    async with open_runtime(config, model=ScriptedModel(Parent())) as rt:
        s = await rt.create("p")
        await rt.spawn("p", "a", "work")
        await until(lambda: of(ChildEnded, rt, "p"))
        trees, log = rt._sessions.spawner.trees, rt.actor("p.a").log
        opened, told = opened_of(rt.actor("p.a")), list[str]()

        def begin():
            assert trees.may_begin(log, "automatic")
            return trees.enter(log, told.append)

        first = begin()
        assert {"p.a"} == set(books(rt).slots) == set(books(rt).turns)
        trees.part("p.a", opened)
        assert ({}, {}) == (books(rt).slots, books(rt).turns)
        second = begin()
        first.close()
        assert {"p.a"} == set(books(rt).slots) == set(books(rt).turns)
        for _ in range(2):
            second.close()
            assert ({}, {}) == (books(rt).slots, books(rt).turns)
        assert [] == told
        assert "completed" == (await s.run("go")).reason

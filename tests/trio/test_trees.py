"""Whole trees at random: whatever meets whatever, every promise holds afterwards; and what that has found.

The seeds here take some seconds; `python -m tests.trio.trees --runs 5000` takes longer.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio

from callboard.actors.books import TURN
from callboard.actors.codec import Codec
from callboard.actors.envelope import Envelope
from callboard.actors.errors import LogError, SessionClosed, SessionNotFound
from callboard.actors.events import TurnEnded, TurnRecovered
from callboard.actors.facts import ChildClosed, ChildEnded
from callboard.actors.memory import MemoryStore
from callboard.actors.messages import Accepted, Submit
from callboard.actors.model import Prompt, Reply
from callboard.actors.plugin import Enter, Message, Plugin, View
from callboard.actors.stage import SpawnRequest
from callboard.actors.store import Done, Due, Header, Record
from callboard.actors.testing import ScriptedModel, seeded_run
from callboard.plugins import AGENTS_PLUGIN
from callboard.runtime.config import RuntimeConfig
from callboard.runtime.settings import Bounds

from .grove import Grove, open_grove
from .strict import of_kind, until
from .treechecks import orphans
from .trees import trees

SEEDS_MAX = 60
FOUND = (
    20_340,
    20_561,
    21_016,
    30_728,
    32_410,
    32_634,
    200_598,
    202_814,
)  # each found something once, and has a test of its own
BLOCKS = 4


@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_promise_holds_in_whole_trees(block):
    """Children end once and are told once, slots come free, nothing acknowledged is lost, the next turn works."""
    seeds = (*range(block, SEEDS_MAX, BLOCKS), *FOUND[block::BLOCKS])
    assert seeded_run(trees, seeds) == len(seeds)


async def play(prompt: Prompt) -> Reply:
    """An agent's first turn takes a minute where its task says so, or `linger`s for a part of the abort window."""
    tasks = [getattr(message, "text", "") for message in prompt.messages]
    if "last" in tasks or "linger" in tasks:
        try:
            await trio.sleep(60)
        finally:
            if "linger" in tasks:
                with trio.move_on_after(0.05, shield=True):
                    await trio.sleep_forever()
    return Reply(f"{prompt.session} {prompt.turn}")


async def bug(view: View, messages: tuple[Message, ...]) -> Enter:
    """Brings an actor down that is told to go down."""
    for message in messages:
        if message.text.startswith("crash"):
            await trio.sleep(1)
            for _ in range(int(message.text.removeprefix("crash") or 0)):
                await trio.lowlevel.checkpoint()
            raise LookupError("a bug in a plugin")
    return Enter(messages)


@asynccontextmanager
async def grown(store: MemoryStore, **bounds: Any) -> AsyncIterator[Grove]:
    """A grove that is closed at the end."""
    config = RuntimeConfig(runtime=Bounds(**bounds))
    plugins = (AGENTS_PLUGIN, Plugin("bug", before_step=bug))
    async with open_grove(ScriptedModel(play), config=config, store=store, plugins=plugins) as grove:
        yield grove
        assert () == await grove.close()


def ends(store: MemoryStore, parent: str, child: str) -> list[tuple[int, str]]:
    """Which ends of a child its parent knows."""
    events = [Codec().decode(record.body) for record in store.read(parent, -1, 10_000)]
    return [(one.turn, one.status) for one in of_kind(events, ChildEnded) if one.child == child]


async def spawned(grove: Grove, parent: str, name: str, task: str = "work") -> Any:
    """A handle of a new child."""
    child = await grove.sessions.spawn(SpawnRequest(parent, name, task))
    return await grove.sessions.open(child)


async def test_an_agent_is_opened_below_its_parent():
    """Opening an agent from the store opens those above it first, so that its ends have somebody to be told to."""
    store = MemoryStore()
    async with grown(store) as grove:
        await grove.create("p")
        await spawned(grove, "p", "a")
        await (await spawned(grove, "p.a", "x")).wait(1)
    async with grown(store) as grove:
        handle = await grove.sessions.open("p.a.x")
        assert {"p", "p.a", "p.a.x"} == set(grove.sessions.registry.live)
        assert "p.a.x 2" == (await handle.run("again")).last_message
        await until(lambda: len(ends(store, "p.a", "p.a.x")) == 2)
    assert [(1, "completed"), (2, "completed")] == ends(store, "p.a", "p.a.x")


class Refusing(MemoryStore):
    """Refuses the first writes that hold the end of a child."""

    refusals = 3

    def append(
        self, session: str, records: Sequence[Record], header: Header | None = None, due: Due | None = None
    ) -> None:
        """Take records, or not."""
        if self.refusals and any(type(Codec().decode(record.body)) is ChildEnded for record in records):
            self.refusals -= 1
            raise LogError("the disk is full")
        super().append(session, records, header, due)


async def test_an_end_that_the_parents_disk_refused_is_told_again():
    """A parent whose disk is full when an agent ends hears of that end, once, when there is room."""
    store = Refusing()
    async with grown(store) as grove:
        await grove.create("p")
        await (await spawned(grove, "p", "a")).wait(1)
        await until(lambda: ends(store, "p", "p.a"))
        await trio.sleep(10)
    assert 0 == store.refusals
    assert [(1, "completed")] == ends(store, "p", "p.a")


async def test_agents_below_a_crashed_agent_end_with_it():
    """An agent that crashes leaves nobody alive below it, on no level, and is told to its parent as failed."""
    store = MemoryStore()
    async with grown(store) as grove:
        await grove.create("p")
        middle = await spawned(grove, "p", "a")
        await spawned(grove, "p.a", "x", "last")
        await spawned(grove, "p.a.x", "y", "last")
        await until(lambda: grove.sessions.registry.actor("p.a.x.y").phase.value == "running")
        assert isinstance(await middle.submit("crash"), Accepted)
        await until(lambda: set(grove.sessions.registry.live) == {"p"})
        assert set() == orphans(grove)
    assert [(1, "completed"), (2, "failed")] == ends(store, "p", "p.a")
    assert [(1, "stopped")] == ends(store, "p.a.x", "p.a.x.y")


@pytest.mark.parametrize("rounds", range(6))
async def test_agent_that_crashes_while_it_is_told_to_end(rounds):
    """An agent whose crash and whose end come at once is gone, with the turn closed, and those who wait are told."""
    store = MemoryStore()
    async with grown(store) as grove:
        await grove.create("p")
        await spawned(grove, "p", "a", "crash")
        below = await spawned(grove, "p.a", "x", f"crash {rounds}")
        with suppress(SessionClosed), trio.fail_after(5):
            await below.wait(1)
        await until(lambda: set(grove.sessions.registry.live) == {"p"}, within_s=5)
    assert [(1, "failed")] == ends(store, "p", "p.a")
    events = [Codec().decode(record.body) for record in store.read("p.a.x", -1, 10_000)]
    (ended,) = of_kind(events, TurnEnded)
    assert (ended.reason, ended.cause) in {("interrupted", None), ("aborted", "shutdown")}


async def test_a_session_that_is_stopped_in_the_pause_before_its_restart():
    """A session that crashed twice and is stopped before it runs again is gone, and whoever waits for it is told."""
    store = MemoryStore()
    async with grown(store) as grove:
        session = await grove.create("p")
        told: list[str] = []

        async def go() -> None:
            with pytest.raises(SessionClosed) as caught:
                await session.run("crash")
            told.append(str(caught.value))

        await session.submit("crash")
        await trio.sleep(1.5)
        grove.stage.nursery.start_soon(go)
        await until(lambda: [child.alive for child in grove.sessions.supervisor.children()] == [False])
        with trio.fail_after(5):
            await session.stop()
        await until(lambda: len(told) == 1, within_s=5)
        assert not grove.sessions.registry.live
    events = [Codec().decode(record.body) for record in store.read("p", -1, 10_000)]
    assert [1, 2] == [one.turn for one in of_kind(events, TurnEnded)]


async def test_agents_below_a_dismissed_agent_end_with_it():
    """An agent that is dismissed takes those below it along."""
    store = MemoryStore()
    async with grown(store) as grove:
        await grove.create("p")
        await spawned(grove, "p", "a", "last")
        await spawned(grove, "p.a", "x", "last")
        await until(lambda: grove.sessions.registry.actor("p.a.x").phase.value == "running")
        grove.sessions.spawner.dismiss("p.a")
        await until(lambda: set(grove.sessions.registry.live) == {"p"}, within_s=1)


async def test_a_reopened_parent_hears_of_every_end_it_missed():
    """Ends of turns that the parent's log lost in a crash are told when it is opened, oldest first, each once."""
    store, after = MemoryStore(), MemoryStore()
    async with grown(store) as grove:
        await grove.create("p")
        child = await spawned(grove, "p", "a")
        for _ in range(2):
            await child.run("again")
        await until(lambda: len(ends(store, "p", "p.a")) == 3)
    for session in ("p", "p.a"):
        records = store.read(session, -1, 10_000)
        if session == "p":
            told = [at for at, one in enumerate(records) if type(Codec().decode(one.body)) is ChildEnded]
            records = records[: told[0] + 2]
        after.append(session, records, store.header(session))
    assert [(1, "completed")] == ends(after, "p", "p.a")
    async with grown(after) as grove:
        await grove.sessions.open("p")
        await until(lambda: len(ends(after, "p", "p.a")) == 3)
    assert [(1, "completed"), (2, "completed"), (3, "completed")] == ends(after, "p", "p.a")


async def test_a_turn_of_a_closed_agent_never_goes_on():
    """Where turns go on behind a crash, that of an agent which was closed does not: it is told of once, as stopped."""
    store, after = MemoryStore(), MemoryStore()
    async with grown(store) as grove:
        await grove.create("p")
        await spawned(grove, "p", "a", "last")
        await until(lambda: grove.sessions.registry.actor("p.a").log[TURN].in_step)
        grove.sessions.registry.actor("p").log.append(ChildClosed("p.a"))
        for session in ("p", "p.a"):
            after.append(session, store.read(session, -1, 10_000), store.header(session))
    async with grown(after, recover="continue") as grove:
        await grove.sessions.open("p.a")
        await trio.sleep(100)
        assert [(1, "stopped")] == ends(after, "p", "p.a")
    events = [Codec().decode(record.body) for record in after.read("p.a", -1, 10_000)]
    assert [] == of_kind(events, TurnRecovered)
    assert ["interrupted"] == [one.reason for one in of_kind(events, TurnEnded)]


class Stalling(MemoryStore):
    """Confirms nothing while it is stalled."""

    def __init__(self) -> None:
        super().__init__()
        self.stalled, self.waiting = False, list[Done]()

    def sync(self, done: Done, session: str | None = None) -> None:
        """Answer, or not before it goes on."""
        if self.stalled:
            self.waiting.append(done)
        else:
            super().sync(done, session)

    def go_on(self, error: Exception | None = None) -> None:
        """Confirm all that waits, or refuse it."""
        self.stalled, waiting, self.waiting = False, self.waiting, []
        for done in waiting:
            done(error)


async def test_an_agent_that_is_opened_while_it_ends_is_opened_below_its_parent():
    """Whoever opens an agent that is ending waits for that; its parent then hears of the end that was not told."""
    store = Stalling()
    async with grown(store) as grove:
        await grove.create("p")
        child = await spawned(grove, "p", "a", "last")
        await until(lambda: grove.sessions.registry.actor("p.a").phase.value == "running")
        store.stalled = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child.stop)
            await trio.sleep(1)
            assert [] == ends(store, "p", "p.a")
            nursery.start_soon(grove.sessions.open, "p.a")
            await trio.sleep(1)
            assert {"p", "p.a"} == set(grove.sessions.registry.live)
            await trio.sleep(5)
            store.go_on()
        await until(lambda: ends(store, "p", "p.a"), within_s=5)
        assert "p.a 2" == (await child.run("again")).last_message
        await until(lambda: len(ends(store, "p", "p.a")) == 2)
    assert [(1, "stopped"), (2, "completed")] == ends(store, "p", "p.a")


@pytest.mark.parametrize("error", [None, LogError("the disk is full")])
async def test_an_end_that_was_not_durable_as_its_agent_was_given_up_is_told_when_it_is(error):
    """An agent that a stalled disk keeps from ending is given up; its parent hears of the end once the disk goes on."""
    store = Stalling()
    async with grown(store) as grove:
        await grove.create("p")
        child = await spawned(grove, "p", "a", "last")
        await until(lambda: grove.sessions.registry.actor("p.a").phase.value == "running")
        store.stalled = True
        await child.stop()
        assert {"p"} == set(grove.sessions.registry.live)
        await trio.sleep(100)
        assert [] == ends(store, "p", "p.a")
        store.go_on(error)
        await until(lambda: ends(store, "p", "p.a"), within_s=5)
    assert [(1, "stopped")] == ends(store, "p", "p.a")


async def test_a_reader_that_comes_while_a_session_loads_misses_nothing():
    """A cursor of before is good for a session that is on its way back into memory: no resync, and no gap."""
    store = MemoryStore()
    async with grown(store, idle_evict_s=1.0) as grove:
        session = await grove.create("p")
        await session.run("one")
        registry = grove.sessions.registry
        await until(lambda: registry.is_passivated("p"))
        last = len(store.read("p", -1, 100)) - 1
        await trio.sleep(1)
        registry.tell("p", Submit("two"))
        assert "loading" == registry.state("p")
        read: list[Any] = []
        async with registry.read("p", last - 3, deltas=False, queue_max=64) as reading:
            async for item in reading:
                read.append(item)
                if isinstance(item, Envelope) and isinstance(item.event, TurnEnded) and item.event.turn == 2:
                    break
    assert list(range(last - 2, read[-1].seq + 1)) == [item.seq for item in read]


async def test_an_agent_out_of_memory_does_not_come_back_while_those_above_it_are_stopped():
    """A message for it, while its sibling takes its time to end, finds it closed and brings nobody back."""
    store = MemoryStore()
    async with grown(store, idle_evict_s=5.0) as grove:
        registry = grove.sessions.registry
        await grove.create("p")
        resting = await spawned(grove, "p", "a")
        await resting.wait(1)
        await until(lambda: registry.is_passivated("p.a"))
        await spawned(grove, "p", "b", "linger")
        await until(lambda: registry.actor("p.b").phase.value == "running")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(grove.sessions.stop_session, "p")
            await trio.sleep(0.02)
            assert registry.actor("p.b").phase.value == "stopping"
            with pytest.raises((SessionClosed, SessionNotFound)):
                await resting.submit("come back")
        assert not registry.places()

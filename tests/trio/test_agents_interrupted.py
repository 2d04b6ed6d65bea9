"""Interrupts of trees of agents on virtual time: who is asked and who ends, in which order, in whose window."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from callboard.actors.abort import ABORT_WINDOW_S, BELOW_S
from callboard.actors.codec import Codec
from callboard.actors.errors import LogError, ToolError
from callboard.actors.events import AbortRequested, Event, TurnEnded
from callboard.actors.memory import MemoryStore
from callboard.actors.messages import Idle, Interrupt
from callboard.actors.model import Prompt, Reply
from callboard.actors.stage import SpawnRequest
from callboard.actors.store import Due, Header, Record
from callboard.actors.testing import ScriptedModel
from callboard.plugins import AGENTS_PLUGIN
from callboard.runtime.config import RuntimeConfig

from .grove import Grove, open_grove
from .strict import until

BRANCHES = ("p.a", "p.b")
ALL = ("p", "p.a", "p.a.x", "p.b", "p.b.x")


class Sick(MemoryStore):
    """Takes no end of a turn of the sessions that are `sick`."""

    def __init__(self) -> None:
        super().__init__()
        self.sick: set[str] = set()

    def append(
        self, session: str, records: Sequence[Record], header: Header | None = None, due: Due | None = None
    ) -> None:
        """Take records, or not."""
        if session in self.sick and any(type(Codec().decode(record.body)) is TurnEnded for record in records):
            raise LogError("the disk is full")
        super().append(session, records, header, due)


@attrs.define(eq=False)
class Play:
    """A tree that works: which of its agents hear nothing, and all that was asked and ended, in order."""

    deaf: frozenset[str]
    over: trio.Event = attrs.field(factory=trio.Event)
    began: set[str] = attrs.field(factory=set)
    done: dict[str, trio.Event] = attrs.field(factory=lambda: {one: trio.Event() for one in ALL})
    seen: list[tuple[str, str, float]] = attrs.field(factory=list)
    store: Sick = attrs.field(factory=Sick)

    async def reply(self, prompt: Prompt) -> Reply:
        """Work for ever, and hear or hear not that it is enough."""
        self.began.add(prompt.session)
        done = self.done.setdefault(prompt.session, self.over)
        while not done.is_set():
            try:
                await done.wait()
            except trio.Cancelled:
                if prompt.session not in self.deaf:
                    raise
                with trio.move_on_after(0.01, shield=True):
                    await trio.sleep_forever()
        return Reply("late")

    def rest(self, session: str) -> None:
        """Its work is done."""
        self.done[session].set()

    def hear(self, event: Event, session: str, turn: int | None) -> None:
        """All logs in one order."""
        if isinstance(event, AbortRequested | TurnEnded):
            self.seen.append((session, "asked" if isinstance(event, AbortRequested) else "ended", trio.current_time()))

    def at(self, session: str, what: str) -> int:
        """Its place among all that happened; it happened once."""
        (place,) = [at for at, (who, did, _) in enumerate(self.seen) if (who, did) == (session, what)]
        return place

    def times(self, what: str, since_s: float) -> dict[str, float]:
        """When that happened to whom, in seconds since then."""
        return {session: round(at_s - since_s, 3) for session, did, at_s in self.seen if did == what}

    def check_order(self) -> None:
        """Whoever stands below somebody that ended was asked before that, and has ended before that."""
        sessions = [session for session, did, _ in self.seen if did == "ended"]
        for above in sessions:
            for below in (one for one in sessions if one.startswith(f"{above}.")):
                assert self.at(below, "asked") < self.at(below, "ended") < self.at(above, "ended"), self.seen


@asynccontextmanager
async def working(*deaf: str, detached: tuple[str, ...] = ()) -> AsyncIterator[tuple[Play, Grove]]:
    """A root, two agents, and one below each, all at work."""
    play = Play(frozenset(deaf))
    async with open_grove(
        ScriptedModel(play.reply),
        config=RuntimeConfig(),
        store=play.store,
        plugins=[AGENTS_PLUGIN],
        on_event=play.hear,
    ) as grove:
        await (await grove.create("p")).submit("work")
        for branch in BRANCHES:
            for one in (branch, f"{branch}.x"):
                parent, _, name = one.rpartition(".")
                await grove.sessions.spawn(SpawnRequest(parent, name, "work", detached=one in detached))
        await until(lambda: play.began == set(ALL))
        try:
            yield play, grove
        finally:
            for event in (play.over, *play.done.values()):
                event.set()


def ended(play: Play, *sessions: str) -> bool:
    """Whether the turns of these have ended."""
    return set(sessions) <= {session for session, did, _ in play.seen if did == "ended"}


async def interrupt(grove: Grove, session: str) -> float:
    """As its user does; when."""
    at_s = trio.current_time()
    await (await grove.sessions.open(session)).interrupt()
    return at_s


async def test_willing_agents_are_asked_and_end_before_those_above_them():
    """At an interrupt of the root all below it are asked before any turn ends, and turns end from the leaves up."""
    async with working() as (play, grove):
        at_s = await interrupt(grove, "p")
        await until(lambda: ended(play, *ALL))
        assert ["asked"] * 5 + ["ended"] * 5 == [did for _, did, _ in play.seen]
        assert dict.fromkeys(ALL, 0.0) == play.times("ended", at_s)
        play.check_order()


@pytest.mark.parametrize(("detached", "working_below"), [((), 4), (("p.a",), 2)])
async def test_interrupt_of_a_root_that_rests(detached, working_below):
    """Its agents work on in the background, and an interrupt ends their turns all the same, but for detached ones."""
    async with working(detached=detached) as (play, grove):
        play.rest("p")
        await until(lambda: ended(play, "p"))
        play.seen.clear()
        at_s, root = trio.current_time(), await grove.sessions.open("p")
        assert Idle(working_below) == await root.interrupt(id="once")
        below = [one for one in ALL[1:] if not one.startswith(detached or "nobody")]
        await until(lambda: ended(play, *below))
        assert dict.fromkeys(below, 0.0) == play.times("ended", at_s)
        play.check_order()
        await trio.sleep(1)
        assert (Idle(working_below), Idle()) == (await root.interrupt(id="once"), await root.interrupt())


async def test_agents_of_others_are_not_theirs():
    """A plugin that names a session which is not below its own is told so, and nobody is ended."""
    async with working() as (play, grove):
        agents = grove.sessions.spawner.seen_by("p.a")
        await grove.create("p.a.made")  # by a program, which chose its id
        strangers: list[Any] = ["p", "p.a", "p.b", "p.b.x", "nobody", "p.a.", "p.a.nobody", "p.a.x.y", "p.a.made"]
        for other in (*strangers, "p.a." + "x." * 100_000, 5, None, ["p.a.x"]):
            with pytest.raises(ToolError, match=r"is no agent below session 'p\.a'"):
                agents.interrupt(other)
            with pytest.raises(ToolError, match=r"is no agent below session 'p\.a'"):
                await agents.close(other)
        await trio.sleep(1)
        assert [] == play.seen


async def test_all_below_have_been_asked_when_an_interrupt_is_answered():
    """Who hears that a turn is being aborted finds all agents below it asked already, on every level."""
    async with working() as (play, grove):
        seen: list[list[str]] = []
        letter = Interrupt(reply=lambda answer: seen.append([session for session, _, _ in play.seen]))
        grove.sessions.registry.tell("p", letter)
        await until(lambda: ended(play, *ALL))
        assert [list(ALL)] == seen


@pytest.mark.parametrize("deaf", [("p.a.x",), ("p.a.x", "p.b.x"), ("p.a", "p.a.x"), ("p", "p.a.x"), ALL])
async def test_stubborn_agents_use_up_their_windows_before_those_above_them_end(deaf):
    """Who hears nothing ends with its window, whoever waits for it right behind it, and all others at once."""
    async with working(*deaf) as (play, grove):
        at_s = await interrupt(grove, "p")
        await until(lambda: ended(play, *ALL))
        late = {one for one in ALL if any(other == one or other.startswith(f"{one}.") for other in deaf)}
        expected = {one: ABORT_WINDOW_S if one in late else 0.0 for one in ALL}
        assert dict.fromkeys(ALL, 0.0) == play.times("asked", at_s)
        assert expected == play.times("ended", at_s)
        play.check_order()


async def test_each_agent_has_a_window_of_its_own():
    """Two that hear nothing and are asked at different times have their whole windows; the root waits for the later."""
    async with working("p.a.x", "p.b.x") as (play, grove):
        at_s = await interrupt(grove, "p.a")
        await trio.sleep(0.06)
        await interrupt(grove, "p")
        await until(lambda: ended(play, *ALL))
        asked, over = play.times("asked", at_s), play.times("ended", at_s)
        assert {"p.a": 0.0, "p.a.x": 0.0, "p": 0.06, "p.b": 0.06, "p.b.x": 0.06} == asked
        assert {"p.a": 0.1, "p.a.x": 0.1, "p": 0.16, "p.b": 0.16, "p.b.x": 0.16} == over
        play.check_order()


async def test_wait_for_agents_below_is_bounded():
    """An agent whose end no disk takes keeps its parent no longer than a bound beyond that one's own window."""
    async with working() as (play, grove):
        play.store.sick.add("p.a")
        at_s = await interrupt(grove, "p")
        await until(lambda: ended(play, "p", "p.a.x", "p.b", "p.b.x"))
        play.store.sick.clear()
        assert {"p": ABORT_WINDOW_S + BELOW_S, "p.a.x": 0.0, "p.b": 0.0, "p.b.x": 0.0} == {
            one: at for one, at in play.times("ended", at_s).items() if one != "p.a"
        }


async def test_detached_agents_are_not_waited_for():
    """A detached agent is not asked, works on, and nobody above it waits for its end."""
    async with working("p.a.x", detached=("p.a",)) as (play, grove):
        at_s = await interrupt(grove, "p")
        await until(lambda: ended(play, "p"))
        assert {"p": 0.0, "p.b": 0.0, "p.b.x": 0.0} == play.times("ended", at_s)
        await trio.sleep(1)
        assert not ended(play, "p.a")
        assert not ended(play, "p.a.x")


async def test_agent_that_has_not_begun_is_asked_before_its_parent_ends():
    """An agent whose task is still in its mailbox begins, is asked and ends before the turn above it does."""
    async with working() as (play, grove):
        await grove.sessions.spawn(SpawnRequest("p", "new", "work"))
        assert "p.new" not in play.began
        grove.sessions.registry.tell("p", Interrupt())
        await until(lambda: ended(play, "p", "p.new"))
        play.check_order()


async def test_agents_below_one_that_rests_end_before_the_root():
    """Where the agent between has ended its turn, the root waits for those below that one all the same."""
    async with working("p.a.x") as (play, grove):
        await interrupt(grove, "p.b")
        await grove.sessions.spawn(SpawnRequest("p.b", "y", "work"))
        await until(lambda: "p.b.y" in play.began)
        at_s = await interrupt(grove, "p")
        await until(lambda: ended(play, "p", "p.b.y"))
        over: Any = play.times("ended", at_s)
        assert (0.1, 0.0) == (over["p"], over["p.b.y"])
        assert play.at("p.b.y", "ended") < play.at("p", "ended")

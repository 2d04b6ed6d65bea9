"""Forks: a new session that begins as another does, from live, passivated and closed ones, durable or not there."""

import asyncio
from typing import Any

import pytest

from callboard.actors import (
    Accepted,
    Call,
    LogError,
    MessagesClaimed,
    Reply,
    Resync,
    SessionClosed,
    SessionForked,
    SessionNotFound,
    SessionOpened,
    TurnEnded,
    TurnStarted,
    UsageError,
    tool,
)
from callboard.actors.books import QUEUE, TURN
from callboard.actors.children import CHILDREN
from callboard.actors.memory import MemoryStore
from callboard.actors.store import FORKING, Header
from callboard.actors.testing import ScriptedModel
from callboard.plugins.plan import PLAN
from callboard.plugins.todo import TODOS
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.fork import PAGE_MAX
from callboard.runtime.settings import Bounds

from .hosted import echo, events, read_to_end, slow, until
from .parents import Parent, spawn, wait
from .stored import schema_of
from .terminal import cli

QUICK = RuntimeConfig(runtime=Bounds(idle_evict_s=0.03))
PLANNED = {"plan": [{"step": "one", "status": "completed"}, {"step": "two", "status": "pending"}]}
TODO = {"todos": [{"content": "x", "status": "in_progress"}]}


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request, tmp_path):
    """Each kind of store."""
    if request.param == "postgres":
        return schema_of(request.getfixturevalue("postgres"))
    return "memory" if request.param == "memory" else f"sqlite:///{tmp_path / 'x.db'}"


def records(rt, session):
    """The records of a log."""
    return rt.store.read(session, -1, 10**9)


def ends(rt, session):
    """Where the turns of a session ended."""
    return [at for at, event in enumerate(events(rt, session)) if isinstance(event, TurnEnded)]


def checked(rt, source, fork, at):
    """The log of a fork is its own opening, the source's events to `at` byte for byte, and where they came from."""
    theirs, ours = records(rt, source)[: at + 1], records(rt, fork)
    assert theirs[1:] == ours[1 : at + 1]
    assert (theirs[0].at_ms, 0, None) == (ours[0].at_ms, ours[0].seq, ours[0].turn)
    told = events(rt, fork)
    assert (SessionForked(source, at), at + 1, None) == (told[at + 1], ours[at + 1].seq, ours[at + 1].turn)
    return told


def planner():
    """A model that writes a plan and a todo list in its first turn, and answers with the number of the turn."""

    def play(prompt):
        if prompt.turn == 1 and prompt.step == 1:
            return Reply("", [Call("update_plan", PLANNED), Call("todo_write", TODO)])
        return Reply(f"turn {prompt.turn}")

    return ScriptedModel(play)


@pytest.mark.parametrize("where", ["live", "passivated", "stopped"])
async def test_a_fork_begins_as_its_source_does(store, where):
    """Wherever the source is, its fork has the same past, an opening of its own, and goes on by itself."""
    model = planner()
    async with open_runtime(QUICK if where == "passivated" else None, model=model, store=store) as rt:
        s = await rt.create("s", system="be nice", title="A title")
        await s.run("one")
        await s.run("two")
        await s.set_mode("plan")
        if where == "passivated":
            await until(lambda: rt._sessions.registry.state("s") == "cold")
        if where == "stopped":
            await s.stop()
        last = len(records(rt, "s")) - 1
        fork = await s.fork(session_id="f")
        told = checked(rt, "s", "f", last)
        assert SessionOpened(root="f", system="be nice", title="A title") == told[0]
        assert (len(told), "f", "/root", None) == (last + 2, fork.id, fork.path, fork.parent)
        state = fork.state()
        assert (2, True) == (len(state["plan"]["plan"]), state["plan_mode"]["active"])
        await fork.set_mode("default")
        ended = await fork.run("three")
        assert (3, "turn 3") == (ended.turn, ended.last_message)
        texts = [getattr(message, "text", "") for message in model.prompts[-1].messages]
        assert ["one", "turn 1", "two", "turn 2"] == [
            text for text in texts if text in ("one", "turn 1", "two", "turn 2")
        ]
        assert last + 1 == len(records(rt, "s"))


async def test_a_fork_is_durable_and_its_own(tmp_path):
    """Once returned a fork is in the store: opened again it has the same folds, also when its source is not there."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    async with open_runtime(model=planner(), store=url) as rt:
        s = await rt.create("s", title="A title")
        await s.run("one")
        fork = await s.fork()
        before, told = fork.state(), events(rt, fork.id)
        assert {("s", "A title", "idle"), (fork.id, "A title", "idle")} == {
            (one.id, one.title, one.status) for one in await rt.stored()
        }
    async with open_runtime(model=planner(), store=url) as rt:
        again = await rt.open(fork.id)
        assert (before, told) == (again.state(), events(rt, fork.id))
        assert 2 == (await again.run("two")).turn
        assert (fork.id,) == tuple(one.id for one in rt.sessions())


async def test_a_point_between_turns_can_be_chosen(store):
    """A fork takes the end of any turn, what lies between turns, and the very beginning; its turns go on from there."""
    async with open_runtime(model=planner(), store=store) as rt:
        s = await rt.create("s")
        for text in ("one", "two"):
            await s.run(text)
        first = ends(rt, "s")[0]
        between = first + 1
        assert records(rt, "s")[between].turn is None
        for name, at, turn in (("f0", 0, 1), ("f1", first, 2), ("f2", between, 2)):
            fork = await s.fork(at, session_id=name)
            checked(rt, "s", name, at)
            assert turn == (await fork.run("go")).turn
        assert () == rt.actor("f2").log[QUEUE]


async def test_a_point_inside_a_turn_is_refused_with_what_is_allowed(store):
    """Any event inside a turn is refused, the refusal names the last one before it, and nothing is made."""
    async with open_runtime(model=planner(), store=store) as rt:
        s = await rt.create("s")
        await s.run("one")
        told = events(rt, "s")
        started = next(at for at, event in enumerate(told) if isinstance(event, TurnStarted))
        for at in range(started, ends(rt, "s")[0]):
            with pytest.raises(
                UsageError, match=rf"event {at} of session 's' lies inside a turn; event {started - 1} is"
            ):
                await s.fork(at, session_id="f")
        assert ["s"] == [one.id for one in await rt.stored()]


@pytest.mark.parametrize("at", [-1, True, 1.0, "1", float("nan"), 10**30, [0]])
async def test_a_point_that_is_none_is_refused(at):
    """What is no event of the log is a UsageError that shows it, cut."""
    async with open_runtime(model=echo()) as rt:
        s = await rt.create("s")
        with pytest.raises(UsageError, match="fork takes"):
            await s.fork(at)
        assert 1 == len(await rt.stored())


@pytest.mark.parametrize("id", ["", "a\nb", "x" * 201, 7])
async def test_an_id_that_cannot_be_is_refused(id):
    """The id of a fork is checked as that of a new session is."""
    async with open_runtime(model=echo()) as rt:
        s = await rt.create("s")
        with pytest.raises(UsageError, match="a session id is"):
            await s.fork(session_id=id)


async def test_an_id_that_is_taken_is_refused(store):
    """An open session, a stored one and the source itself keep their ids; of two forks at once one gets the id."""
    async with open_runtime(model=echo(), store=store) as rt:
        s = await rt.create("s")
        await (await rt.create("closed")).stop()
        for name in ("s", "closed"):
            with pytest.raises(UsageError, match="exists already"):
                await s.fork(session_id=name)
        two = await asyncio.gather(s.fork(session_id="f"), s.fork(session_id="f"), return_exceptions=True)
        assert [True, True] == [any(isinstance(one, kind) for one in two) for kind in (UsageError, type(s))]
        assert 2 == len(records(rt, "f"))


async def test_while_a_turn_runs_the_fork_ends_before_it(store):
    """Without a point a fork takes the last one at which no turn was open, and the running turn is not disturbed."""
    async with open_runtime(model=slow(), store=store) as rt:
        s = await rt.create("s")
        before = await s.fork(session_id="before")
        await s.submit("go", id="m")
        await until(lambda: rt.actor("s").log[TURN].open)
        fork = await s.fork(session_id="f")
        at = next(at for at, event in enumerate(events(rt, "s")) if isinstance(event, TurnStarted)) - 1
        checked(rt, "s", "f", at)
        assert (True, (), 0) == (rt.actor("s").log[TURN].open, rt.actor("f").log[QUEUE], rt.actor("f").log[TURN].number)
        assert Accepted(at + 2, 1) == await fork.submit("mine", id="m")
        assert (1, await before.submit("x")) == (rt.actor("before").log[TURN].number, Accepted(2, 1))


async def test_a_crashed_turn_of_the_source_stays_behind(tmp_path):
    """Of a log that a crash left inside a turn the fork takes what came before that turn."""
    store = MemoryStore()
    async with open_runtime(model=echo(), store=store) as rt:
        s = await rt.create("s")
        await s.run("one")
        await s.run("two")
    torn = MemoryStore()
    whole, second = store.read("s", -1, 10**9), None
    async with open_runtime(model=echo(), store=torn) as rt:
        codec = rt._ground.stage.codec
        second = next(r.seq for r in whole if isinstance(e := codec.decode(r.body), TurnStarted) and e.turn == 2)
        torn.append("s", whole[: second + 2], Header("s"))
        await rt._sessions.forks.fork("s", None, "f")
        assert second + 1 == len(records(rt, "f"))
        checked(rt, "s", "f", second - 1)


async def test_what_waits_in_the_source_does_not_come_along(store):
    """Queued messages, ids that were used, and subagents stay with the source; the fork may use the same names."""
    play = Parent(spawn("a"), wait(), Reply("one"), spawn("a"), wait(), Reply("two"))
    async with open_runtime(model=ScriptedModel(play), store=store) as rt:
        s = await rt.create("s")
        await s.run("go", id="m")
        await s.wait_idle()
        assert isinstance(await s.inject("later", id="j"), Accepted)
        fork = await s.fork(session_id="f")
        log = rt.actor("f").log
        assert (1, (), ()) == (len(rt.actor("s").log[QUEUE]), log[QUEUE], log[CHILDREN])
        ended = await fork.run("go", id="m")
        assert ("two", ("f.a",)) == (ended.last_message, fork.children())
        claimed = [one.ids for one in events(rt, "f") if isinstance(one, MessagesClaimed)]
        assert [("m",), ("m",)] == [ids for ids in claimed if "m" in ids]


async def test_plan_and_todos_come_along_and_are_shown_once(store):
    """The first step of a fork is a fresh one: an unfinished plan and list are told to its model, once."""
    model = planner()
    async with open_runtime(model=model, store=store) as rt:
        s = await rt.create("s")
        await s.run("one")
        fork = await s.fork(session_id="f")
        log = rt.actor("f").log
        assert (rt.actor("s").log[PLAN], rt.actor("s").log[TODOS]) == (log[PLAN], log[TODOS])
        for text in ("two", "three"):
            await fork.run(text)
        notes = [sum(getattr(m, "source", "") == "notice" for m in prompt.messages) for prompt in model.prompts[-2:]]
        assert [2, 2] == notes


async def test_a_fork_of_a_subagent_is_a_root(store):
    """A fork stands at the root of a tree of its own, whatever its source is, and has subagents of its own."""
    play = Parent(spawn("a"), wait(), Reply("one"), spawn("b"), wait(), Reply("two"))
    async with open_runtime(model=ScriptedModel(play), store=store) as rt:
        s = await rt.create("s", system="be nice")
        await s.run("go")
        fork = await (await rt.open("s.a")).fork(session_id="f")
        opened = events(rt, "f")[0]
        assert SessionOpened(root="f", system="be nice", title="a") == opened
        assert (None, "/root") == (fork.parent, fork.path)
        assert "two" == (await fork.run("go")).last_message
        assert (("s.a",), ("f.b",)) == (s.children(), fork.children())


async def test_a_fork_can_be_forked(store):
    """A fork of a fork has both pasts, each marked."""
    async with open_runtime(model=echo(), store=store) as rt:
        s = await rt.create("s")
        await s.run("one")
        one = await s.fork(session_id="f1")
        await one.run("two")
        two = await one.fork(session_id="f2")
        assert 3 == (await two.run("three")).turn
        marks = [event.source for event in events(rt, "f2") if isinstance(event, SessionForked)]
        assert ["s", "f1"] == marks


async def test_a_long_log_is_copied_in_pages(store):
    """A log of several pages is copied whole, whatever its length is to that of a page."""
    async with open_runtime(model=echo(), store=store) as rt:
        s = await rt.create("s")
        while len(records(rt, "s")) <= 2 * PAGE_MAX + 1:
            await s.run("again")
        boundaries = ends(rt, "s")
        near = [min(boundaries, key=lambda at: abs(at - wanted)) for wanted in (PAGE_MAX, 2 * PAGE_MAX)]
        for number, at in enumerate((*near, boundaries[-1])):
            await s.fork(at, session_id=f"f{number}")
            checked(rt, "s", f"f{number}", at)


class Failing(MemoryStore):
    """A store that refuses the append number `refused` of a fork named `f`."""

    def __init__(self, refused):
        super().__init__()
        self.left = refused

    def append(self, session, records, header=None, due=None):
        """Count those of the fork."""
        if session == "f":
            self.left -= 1
            if self.left < 0:
                raise LogError("the disk is full.")
        super().append(session, records, header, due)


@pytest.mark.parametrize("refused", [0, 1, 2])
async def test_a_fork_that_is_half_made_is_seen_by_nobody(refused):
    """Where the copy breaks off the caller is told, and no list, open or reader ever shows the half of it."""
    failing = Failing(refused)
    async with open_runtime(model=echo(), store=failing) as rt:
        s = await rt.create("s")
        await s.run("one")
        with pytest.raises(LogError, match="the disk is full"):
            await s.fork(session_id="f")
        for _ in range(2):
            assert ["s"] == [one.id for one in await rt.stored()]
            assert [] == await read_to_end(rt.read("f"))
            assert [Resync(-1)] == await read_to_end(rt.read("f", after=0))
            with pytest.raises(SessionNotFound):
                await rt.open("f")
            assert ("s",) == tuple(one.id for one in rt.sessions())
        failing.left = 10**9
        if refused:  # something of it is in the store, and nobody may write behind it
            for taken in (s.fork(session_id="f"), rt.create("f")):
                with pytest.raises(UsageError, match="exists already"):
                    await taken
        assert 1 == (await s.wait(1)).turn
        assert 2 == (await (await s.fork(session_id="g")).run("two")).turn


async def test_the_command_line_lists_no_half_fork(tmp_path):
    """A fork that a crash left half made is in no listing of the store, and cannot be shown."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    async with open_runtime(model=echo(), store=url) as rt:
        s = await rt.create("s")
        await s.run("one")
        rt.store.append("half", records(rt, "s")[:3], Header("half", status=FORKING))
    listed = cli(tmp_path, "log", "list", "--store", url)
    assert (True, False) == ("s" in listed.stdout.split(), "half" in listed.stdout)
    assert "there is no session 'half'" in cli(tmp_path, "log", "show", "half", "--store", url).stderr


async def test_a_fork_from_inside_a_turn():
    """A tool may fork the session it works in: the fork begins before the turn."""
    box: list[Any] = []

    @tool(effect="none")
    async def branch() -> str:
        """Forks."""
        box.append(await (await box[0].open("s")).fork(session_id="f"))
        return "forked"

    async with open_runtime(model=ScriptedModel([Reply("", [Call("branch")]), Reply("done")]), tools=[branch]) as rt:
        box.append(rt)
        s = await rt.create("s")
        assert "done" == (await s.run("go")).last_message
        assert (0, SessionForked("s", 1)) == (rt.actor("f").log[TURN].number, events(rt, "f")[-1])


async def test_a_closed_runtime_forks_nothing():
    """Forking after the end says that the runtime is closed."""
    async with open_runtime(model=echo()) as rt:
        s = await rt.create("s")
    with pytest.raises(SessionClosed):
        await s.fork()

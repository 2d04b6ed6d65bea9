"""Goals in whole runtimes: a fork's goal waits, one that goes on keeps its session in memory, a restart disarms it."""

import asyncio

import pytest

from callboard.actors import Call, Envelope, GoalChanged, Reply, Told
from callboard.actors.testing import ScriptedModel
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.config import config_of
from callboard.runtime.settings import Bounds

from .hosted import events, until
from .parents import of

EVICT_S = 0.03
QUICK = RuntimeConfig(runtime=Bounds(idle_evict_s=EVICT_S))


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    """Each kind of store."""
    return "memory" if request.param == "memory" else f"sqlite:///{tmp_path / 'x.db'}"


def finishing(turns=2):
    """A model that completes a goal in its round number `turns`, whatever its revision is."""

    def play(prompt):
        text = prompt.messages[-1].text
        if f"Round {turns} of" not in text:
            return Reply("on it" if prompt.step == 1 else "reported")
        revision = int(text.partition("revision ")[2].partition(" ")[0])
        complete = {"goal_id": "goal-1", "revision": revision, "action": "complete"}
        return Reply(calls=[Call("update_goal", complete)])

    return ScriptedModel(play)


def done(rt, session):
    """What was done to a goal."""
    return [event.operation for event in of(GoalChanged, rt, session)]


async def test_a_line_sets_a_goal_and_the_session_reaches_it(store):
    """`/goal TEXT` is answered at once; the session works by itself until the goal is complete."""
    async with open_runtime(model=finishing(), store=store) as rt:
        s = await rt.create("s")
        assert Told("Goal goal-1, active; 0 of 256 rounds: win") == await s.command("/goal win")
        await s.wait_idle()
        assert ["create", "complete"] == done(rt, "s")
        shown = s.state()["goal"]
        assert ("complete", 2, None) == (shown["phase"], shown["rounds"], shown["corrupt"])


async def test_a_fork_has_the_goal_and_does_not_go_on(store):
    """A fork of a session whose goal goes on has the goal, active and waiting; its source goes on."""
    async with open_runtime(model=finishing(), store=store) as rt:
        s = await rt.create("s")
        await s.set_mode("plan")
        await s.command("/goal win")
        fork = await s.fork(session_id="f")
        for one in (fork, s):
            await one.set_mode("default")
            await one.wait_idle()
        assert (["create"], ["create", "complete"]) == (done(rt, "f"), done(rt, "s"))
        assert Told("Goal goal-1, active, and waits for /goal resume; 0 of 256 rounds: win") == await fork.command(
            "/goal"
        )
        await fork.command("/goal resume")
        await fork.wait_idle()
        assert ["create", "resume", "complete"] == done(rt, "f")


async def test_a_fork_takes_the_same_round_again(store):
    """A round that waited in the source is offered anew in the fork, under the id it would have had there."""
    async with open_runtime(model=finishing(1), store=store) as rt:
        s = await rt.create("s")
        await s.command("/goal win")
        await s.wait_idle()
        fork = await s.fork(2, session_id="f")
        await fork.command("/goal resume")
        await fork.wait_idle()
        assert ["create", "resume", "complete"] == done(rt, "f")


async def test_only_a_goal_that_goes_on_keeps_its_session_in_memory(store):
    """Armed it stays, though it rests; paused it leaves, and comes back to be resumed."""
    async with open_runtime(QUICK, model=finishing(), store=store) as rt:
        s, other = await rt.create("s"), await rt.create("other")
        await s.set_mode("plan")
        await s.command("/goal win")
        state = rt._sessions.registry.state
        await until(lambda: state("other") == "cold")
        await other.run("hi")
        await until(lambda: state("other") == "cold")
        assert "live" == state("s")
        await s.command("/goal pause")
        await until(lambda: state("s") == "cold")
        await s.set_mode("default")
        await s.command("/goal resume")
        await s.wait_idle()
        assert ["create", "pause", "resume", "complete"] == done(rt, "s")


async def test_a_new_runtime_goes_on_only_when_asked(tmp_path):
    """After a restart an active goal waits: opening and speaking begin no round, a resume does."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    async with open_runtime(model=finishing(), store=url) as rt:
        s = await rt.create("s")
        await s.set_mode("plan")
        await s.command("/goal win")
    async with open_runtime(model=finishing(), store=url) as rt:
        s = await rt.open("s")
        await s.set_mode("default")
        await s.run("hi")
        await s.wait_idle()
        assert (["create"], 0) == (done(rt, "s"), s.state()["goal"]["rounds"])
        await s.command("/goal resume")
        await s.wait_idle()
        assert ["create", "resume", "complete"] == done(rt, "s")
        assert "reported" == [event.last_message for event in events(rt, "s") if hasattr(event, "last_message")][-1]


async def test_the_number_of_rounds_is_configured():
    """A goal that names no number of rounds has the configured one."""
    config = config_of({"plugins": {"goal": {"rounds_max": 3}}})
    async with open_runtime(config, model=finishing()) as rt:
        s = await rt.create("s")
        assert Told("Goal goal-1, active; 0 of 3 rounds: win") == await s.command("/goal win")
        await s.wait_idle()


async def test_the_state_shows_a_goal_as_people_know_it():
    """`state()` has the goal with how far it is, and nothing of what the rounds are driven by; None without one."""
    async with open_runtime(model=finishing()) as rt:
        s = await rt.create("s")
        assert (None, {"active": (), "flaw": ""}) == (s.state()["goal"], s.state()["schedule"])
        await s.command("/goal win")
        await s.wait_idle()
        goal = s.state()["goal"]
        own = {"rounds": 2, "tokens": 0, "corrupt": None, "id": "goal-1", "objective": "win", "phase": "complete"}
        assert own == {name: goal[name] for name in own}
        assert {"stops", "turn", "waiting"}.isdisjoint(goal)


async def test_who_follows_a_session_hears_at_once_that_its_goal_ended(store):
    """What ends a goal between turns is durable by itself, and so it reaches readers without another event."""
    async with open_runtime(model=ScriptedModel(lambda prompt: Reply("on it")), store=store) as rt:
        s = await rt.create("s")
        reading = s.events()
        await s.command("/goal win")
        heard = []
        async with asyncio.timeout(5):
            async for item in reading:
                event = item.event if isinstance(item, Envelope) else None
                heard += [event.operation] if isinstance(event, GoalChanged) else []
                if len(heard) == 2:
                    break
        await reading.aclose()
        assert (["create", "block"], "no_progress") == (heard, s.state()["goal"]["blocked_reason"])

"""Agents that a program starts: what it may ask for, what is refused, what it can read of a tree."""

import asyncio

import attrs
import pytest
import trio

from callboard.actors import Assistant, ChildSpawned, MessageQueued, Reply, TurnEnded, TurnStarted, UsageError, User
from callboard.actors.messages import Interrupting, Refused
from callboard.actors.testing import ScriptedModel
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.admission import TreeLimits
from callboard.runtime.settings import Agents, RoleConfig

from .hosted import gauge, until
from .parents import Parent, lasting, of

ROLES = {"scout": RoleConfig(instructions="You only look.", tools=("list_agents",))}
QUIET = Agents(notify="queue", roles=ROLES)


async def test_program_starts_what_a_tool_would():
    """A role, a model, what was said and where it stands come to the agent as with the tool, and replay agrees."""
    model = ScriptedModel(Parent(Reply("I see"), Reply("me too"), child=lambda prompt: Reply("done")))
    async with open_runtime(RuntimeConfig(agents=QUIET), model=model) as rt:
        s = await rt.create("p", system="Be kind.")
        await s.run("first")
        await s.run("second")
        child = await s.spawn("a", "work", role="scout", fork_turns="1", detach=True)
        assert not isinstance(child, Refused)
        await child.wait(1)
        assert ("p.a", "p", "/root/a") == (child.id, child.parent, child.path)
        assert [("p.a", "/root/a", "work", True, "scout")] == [
            (one.child, one.path, one.task, one.detached, one.role) for one in of(ChildSpawned, rt, "p")
        ]
        (prompt,) = [prompt for prompt in model.prompts if prompt.session == "p.a"]
        assert "Be kind.\n\nYou only look." == prompt.system
        assert [User("second"), Assistant("me too"), User("work", "agent:/root")] == list(prompt.messages)
        assert {"list_agents", "report"} == {one.name for one in prompt.tools}
        assert "p.b" == await rt.spawn("p", "b", "work", fork_turns="all")
        await until(lambda: any(prompt.session == "p.b" for prompt in model.prompts))
        (prompt,) = [prompt for prompt in model.prompts if prompt.session == "p.b"]
        assert ["first", "I see", "second", "me too", "work"] == [message.text for message in prompt.messages]


WRONG = [
    ({"name": "A b"}, "task_name must be 1 to 64 of a-z, 0-9 and _, got 'A b'"),
    ({"name": "root"}, "task_name must be"),
    ({"name": 5}, "have to be text"),
    ({"name": "x" * 100_000}, "task_name must be"),
    ({"task": ""}, "the message for the agent is empty"),
    ({"task": None}, "have to be text"),
    ({"task": "x" * 1_000_001}, "has 1,000,001 characters: at most 1,000,000"),
    ({"role": "nobody"}, "there is no role 'nobody': choose one of scout"),
    ({"role": ["scout"]}, r"spawn takes role: the name of a role, or None, got \['scout'\]"),
    ({"role": "\x00" * 1000}, "there is no role"),
    ({"model": "nowhere:x"}, "nowhere"),
    ({"model": 7}, "spawn takes model: the name of a model, or None, got 7"),
    ({"fork_turns": "some"}, "fork_turns must be none, all or a number of turns"),
    ({"fork_turns": 0}, "fork_turns must be"),
    ({"fork_turns": -1}, "fork_turns must be"),
    ({"fork_turns": True}, "spawn takes fork_turns: none, all or a number of turns, got True"),
    ({"fork_turns": 1.5}, "spawn takes fork_turns"),
    ({"background": "no"}, "spawn takes background: True or False, got 'no'"),
    ({"detach": 1}, "spawn takes detach: True or False, got 1"),
    ({"notify": None}, "spawn takes notify: True or False, got None"),
    ({"background": False, "detach": True}, "background=False or detach=True, not both"),
]


@pytest.mark.parametrize(("given", "words"), WRONG, ids=lambda one: None if isinstance(one, str) else str(one)[:40])
async def test_wrong_arguments_start_nobody(given, words):
    """What no room would mend is a mistake of the caller that says what is wrong, and no agent starts."""
    async with open_runtime(RuntimeConfig(agents=QUIET), model=ScriptedModel(Parent())) as rt:
        s = await rt.create("p")
        with pytest.raises(UsageError, match=words):
            await s.spawn(**({"name": "a", "task": "work"} | given))
        assert ((), 1) == (s.children(), len(rt.sessions()))


@pytest.mark.parametrize(
    ("limits", "refusal"),
    [
        ({"depth_max": 0}, "depth_max is 0. Solve the task yourself"),
        ({"running_max": 1}, "running_max is 1. Wait until an agent has finished, then try again"),
        ({"breadth_max": 1}, "breadth_max is 1. Wait until one of your agents has finished, then try again"),
    ],
    ids=str,
)
async def test_limits_are_answers(limits, refusal):
    """A limit of the tree refuses with an answer that names it; it is counted, and nothing is on a log."""
    config = RuntimeConfig(agents=Agents(**limits))
    async with open_runtime(config, model=ScriptedModel(Parent(child=lasting))) as rt:
        s = await rt.create("p")
        if limits != {"depth_max": 0}:
            assert "p.a" == await rt.spawn("p", "a", "work")
        before = s.state()["seq"]
        expected = Refused("limit_reached", refusal)
        assert (expected, expected) == (await rt.spawn("p", "b", "work"), await s.spawn("b", "work", background=False))
        assert before == s.state()["seq"]
        (limit,) = limits
        (line,) = [one for one in rt.metrics_text().splitlines() if f'agents_refused_total{{limit="{limit}"}}' in one]
        assert "2.0" == line.rpartition(" ")[2]
        assert 2 == gauge(rt.metrics_text(), "callboard_agents_refused_total")


async def test_mail_that_a_limit_refuses_is_counted():
    """Mail that would start a turn where no slot is free is a refusal too, and is counted with the others."""
    play = Parent(child=lambda prompt: Reply("done") if prompt.session == "p.a" else lasting(prompt))
    async with open_runtime(RuntimeConfig(agents=Agents(running_max=1)), model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        await s.spawn("a", "work", background=False, notify=False)
        await s.spawn("b", "work")
        assert isinstance(await s.mail("/root/a", "more"), Refused)
        assert 1 == gauge(rt.metrics_text(), "callboard_agents_refused_total")


async def test_foreground():
    """Without `background` the call returns when the first turn has ended, whose end is mail as ever."""

    async def child(prompt):
        await trio.sleep(0.05)
        return Reply("did it")

    async with open_runtime(RuntimeConfig(agents=QUIET), model=ScriptedModel(Parent(child=child))) as rt:
        s = await rt.create("p")
        kid = await s.spawn("a", "work", background=False)
        assert not isinstance(kid, Refused)
        assert ["did it"] == [one.last_message for one in of(TurnEnded, rt, "p.a")]
        assert "did it" == (await kid.wait(1)).last_message
        await until(lambda: ["child:p.a:1"] == [one.id for one in of(MessageQueued, rt, "p")])


async def test_foreground_that_nobody_waits_for_ends():
    """Whoever waits for an agent in the foreground and is cancelled takes its turn along, and no other."""
    async with open_runtime(RuntimeConfig(agents=QUIET), model=ScriptedModel(Parent(child=lasting))) as rt:
        s = await rt.create("p")
        await s.spawn("b", "work")
        waiting = asyncio.create_task(s.spawn("a", "work", background=False))
        await until(lambda: of(TurnStarted, rt, "p.a"))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: of(TurnEnded, rt, "p.a"))
        assert [("aborted", "parent")] == [(one.reason, one.cause) for one in of(TurnEnded, rt, "p.a")]
        assert [] == of(TurnEnded, rt, "p.b")


async def test_interrupt_leaves_detached_ones_alone():
    """An interrupt of the session reaches agents that a program started, but for those it let go."""

    async def reply(prompt):
        await trio.sleep(60)
        return Reply("late")

    async with open_runtime(RuntimeConfig(agents=QUIET), model=ScriptedModel(reply)) as rt:
        s = await rt.create("p")
        await s.submit("go")
        for name, detach in (("a", False), ("b", True)):
            await s.spawn(name, "work", detach=detach)
        await until(lambda: of(TurnStarted, rt, "p.a") and of(TurnStarted, rt, "p.b"))
        assert isinstance(await s.interrupt(), Interrupting)
        assert 1 == (await s.wait(1)).live_children
        assert (1, 0) == (len(of(TurnEnded, rt, "p.a")), len(of(TurnEnded, rt, "p.b")))


async def test_books_of_a_tree_are_shown():
    """The state of a root, and the statistics, say what its tree may, what it used, and who works, waits and is new."""
    agents = Agents(running_max=3, breadth_max=5, depth_max=2, spawned_max=9, seconds_max=1000.0, roles=ROLES)
    model = ScriptedModel(Parent(child=lasting))
    async with open_runtime(RuntimeConfig(agents=agents), model=model) as rt:
        s = await rt.create("p")
        tree = s.state()["tree"]
        limits = TreeLimits(depth_max=2, running_max=3, breadth_max=5, spawned_max=9, seconds_max=1000.0)
        assert attrs.asdict(limits) == tree["limits"]
        nothing = {"running": 0, "reserved": 0, "waiting": [], "spawned": 0}
        assert {"used": {"tokens": 0, "cost_usd": 0.0, "seconds": 0.0}, **nothing} == {
            key: value for key, value in tree.items() if key != "limits"
        }
        child = await s.spawn("a", "work")
        assert not isinstance(child, Refused)
        assert 1 == sum(s.state()["tree"][key] for key in ("running", "reserved"))
        await until(lambda: of(TurnStarted, rt, "p.a"))
        await child.spawn("x", "work")
        await until(lambda: of(TurnStarted, rt, "p.a.x"))
        tree = s.state()["tree"]
        assert (2, 0, 1) == (tree["running"], tree["reserved"], tree["spawned"])
        assert tree["used"]["seconds"] > 0
        assert "tree" not in child.state()
        shown = rt.statistics()["trees"]
        assert ["p"] == list(shown)
        assert {"running": 2, "reserved": 0, "waiting": [], "spawned": 1} == {
            key: value for key, value in shown["p"].items() if key != "used"
        }
        await child.interrupt()
        await until(lambda: s.state()["tree"]["running"] == 0)
    async with open_runtime(model=ScriptedModel(Parent())) as rt:
        used = (await rt.create("p")).state()["tree"]["used"]
        assert {"tokens": None, "cost_usd": None, "seconds": None} == used

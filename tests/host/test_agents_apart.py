"""Agents in the foreground, in the background and detached: who waits for whom, and whom an interrupt reaches."""

import asyncio
import json

import pytest
import trio

from callboard.actors import (
    AddContext,
    Assistant,
    Call,
    ChildEnded,
    ChildReleased,
    ChildSpawned,
    Developer,
    Enter,
    Hook,
    MessageQueued,
    Plugin,
    Reply,
    SessionOpened,
    ToolReturned,
    TurnEnded,
    User,
    tool,
)
from callboard.actors.phase import Phase
from callboard.actors.testing import ScriptedModel
from callboard.plugins import DEFAULT
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.app import Runtime
from callboard.runtime.settings import Agents, RoleConfig

from .hosted import until
from .parents import Parent, lasting, of, spawn, wait


def runs(rt: Runtime, session: str) -> bool:
    """Whether a turn of this session runs."""
    actor = rt._sessions.registry.get(session)
    return actor is not None and actor.phase is Phase.RUNNING


def start(name="a", **arguments):
    """A reply that starts one agent in some way."""
    return Reply("", [Call("spawn_agent", {"task_name": name, "message": "work", **arguments})])


def quiet(**agents):
    """A configuration in which no end wakes anybody."""
    return RuntimeConfig(agents=Agents(notify="queue", **agents))


def mails(rt, session="p"):
    """The mail from agents that a session got."""
    return [one.text for one in of(MessageQueued, rt, session) if one.source.startswith("agent:")]


ENDS = {
    "completed": (lambda prompt: Reply("fine"), "Agent /root/a finished.\nfine", "completed"),
    "silent": (lambda prompt: Reply(""), "Agent /root/a finished. It gave no answer: ask it again", "completed"),
    "failed": (lambda prompt: "no reply at all", "Agent /root/a failed.\n", "failed"),
    "crashed": (lambda prompt: Reply("fine"), "Agent /root/a failed.\n", "failed"),
}


@pytest.mark.parametrize("how", ENDS)
async def test_foreground(how):
    """A call in the foreground answers with the first turn of its agent, its words or a failure; no mail repeats it."""

    async def broken(view, messages):
        if how == "crashed" and view.session == "p.a":
            raise KeyError("a bug in a plugin")
        return Enter(messages)

    child, words, receipt = ENDS[how]
    play = Parent(start(background=False), child=child)
    plugins = (*DEFAULT, Plugin("broken", before_step=broken))
    async with open_runtime(model=ScriptedModel(play), plugins=plugins) as rt:
        s = await rt.create("p")
        await s.run("go")
        await s.wait_idle()
        assert play.read[0].startswith(words)
        assert [receipt] == [one.receipt for one in of(ToolReturned, rt, "p")]
        assert (1, []) == (len(of(ChildEnded, rt, "p")), mails(rt))
        (spawned,), (called,) = of(ChildSpawned, rt, "p"), of(ToolReturned, rt, "p")
        assert (called.call, 1) == (spawned.call, spawned.turn)


async def test_later_turns_of_a_foreground_agent_are_mail():
    """Only the first turn of an agent in the foreground is the answer of its call; the end of the next one is mail."""
    play = Parent(start(background=False), child=lambda prompt: Reply(f"turn {prompt.turn}"))
    async with open_runtime(quiet(), model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        await s.run("go")
        await (await rt.open("p.a")).run("more")
        await until(lambda: len(of(ChildEnded, rt, "p")) == 2)
        assert ["Agent /root/a finished.\nturn 2"] == mails(rt)


async def test_steer_ends_a_foreground_wait():
    """New input ends the wait; the agent works on in the background, and its end is mail."""
    go = trio.Event()

    async def child(prompt):
        await go.wait()
        return Reply("late")

    play = Parent(start(background=False), Reply("steered"), child=child)
    async with open_runtime(quiet(), model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        running = asyncio.create_task(s.run("go"))
        await until(lambda: of(ChildSpawned, rt, "p"))
        await until(lambda: runs(rt, "p.a"))
        await s.steer("look here")
        ended = await asyncio.wait_for(running, 3)
        assert ("steered", 1) == (ended.last_message, ended.live_children)
        assert play.read[0].startswith("Wait interrupted by new input. Agent /root/a works on in the background")
        assert [ChildReleased("p.a")] == of(ChildReleased, rt, "p")
        go.set()
        await until(lambda: of(ChildEnded, rt, "p"))
        assert ["Agent /root/a finished.\nlate"] == mails(rt)


MATRIX = [
    ({"background": False}, {}, "interrupted"),
    ({"background": False}, {"cascade": False}, "interrupted"),
    ({"background": False}, {"detach": True}, "interrupted"),
    ({}, {}, "interrupted"),
    ({}, {"cascade": False}, "running"),
    ({"detach": True}, {}, "running"),
    ({"detach": True}, {"cascade": False}, "running"),
    ({}, {"detach": True}, "running"),
    ({"detach": False}, {"detach": True}, "interrupted"),
]


@pytest.mark.parametrize(("asked", "config", "expected"), MATRIX, ids=repr)
async def test_interrupt_of_the_parent(asked, config, expected):
    """An interrupt reaches whom a call waits for, and with `cascade` all but those that were started detached."""
    play = Parent(start(**asked), wait(), child=lasting)
    async with open_runtime(quiet(**config), model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        running = asyncio.create_task(s.run("go"))
        await until(lambda: rt._sessions.registry.get("p.a") is not None)
        await until(lambda: runs(rt, "p.a"))
        await asyncio.sleep(0.02)
        await s.interrupt()
        assert "aborted" == (await running).reason
        if expected == "interrupted":
            ended = await (await rt.open("p.a")).wait(1)
            assert ("aborted", "parent") == (ended.reason, ended.cause)
            await until(lambda: of(ChildEnded, rt, "p"))
            assert ["Agent /root/a was interrupted."] == mails(rt)
        else:
            await asyncio.sleep(0.15)
            assert ([], "running") == (of(ChildEnded, rt, "p"), (await rt.open("p.a")).state()["phase"])
        assert 1 == len(of(TurnEnded, rt, "p"))


async def test_interrupt_reaches_those_below_an_agent_that_rests():
    """An agent between that has finished its turn does not keep an interrupt from those that work below it."""

    async def child(prompt):
        if prompt.session == "p.a":
            return spawn("x") if prompt.step == 1 else Reply("a is done")
        return await lasting(prompt)

    play = Parent(spawn("a"), wait(targets=["a"]), Reply("done"), child=child)
    async with open_runtime(quiet(), model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        running = asyncio.create_task(s.run("go"))
        await until(lambda: of(ChildEnded, rt, "p"))
        await until(lambda: runs(rt, "p.a.x"))
        await s.interrupt()
        assert "aborted" == (await running).reason
        ended = await (await rt.open("p.a.x")).wait(1)
        assert ("aborted", "parent") == (ended.reason, ended.cause)


async def test_closing_reaches_detached_agents():
    """Closing and stopping end detached agents too."""
    play = Parent(
        start(detach=True),
        wait(timeout_ms=1000),
        Reply("", [Call("close_agent", {"target": "a"})]),
        start("b", detach=True),
        child=lasting,
    )
    async with open_runtime(quiet(), model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        await s.run("go")
        assert ["stopped"] == [one.status for one in of(ChildEnded, rt, "p")]
        await s.stop()
        assert [("p.a", "stopped"), ("p.b", "stopped")] == [(one.child, one.status) for one in of(ChildEnded, rt, "p")]
        assert () == rt.sessions()


@pytest.mark.parametrize("background", [True, False])
async def test_end_outlives_a_restart_of_the_parent(tmp_path, background):
    """An end that was told and not yet read is there after a restart, once, and the next turn reads it."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    play = Parent(start(background=background), Reply("not waiting"), child=lasting)
    rt = await open_runtime(quiet(), model=ScriptedModel(play), store=url).start()
    s = await rt.create("p")
    running = asyncio.create_task(s.run("go"))
    await until(lambda: rt._sessions.registry.get("p.a") is not None)
    await until(lambda: runs(rt, "p.a"))
    if not background:
        await s.interrupt()
    await running
    await (await rt.open("p.a")).interrupt()
    await until(lambda: of(ChildEnded, rt, "p"))
    await rt.close()
    model = ScriptedModel(lambda prompt: Reply("read"))
    async with open_runtime(quiet(), model=model, store=url) as rt:
        s = await rt.open("p")
        assert ["Agent /root/a was interrupted."] == mails(rt)
        await s.run("and now?")
        await s.run("again")
        texts = [m.text for m in model.prompts[-1].messages if isinstance(m, User) and m.source == "agent:/root/a"]
        assert ["Agent /root/a was interrupted."] == texts
        assert 1 == len(of(ChildEnded, rt, "p"))


async def test_forked_context():
    """A forked agent knows what was said, not what was done, and its task is its own first input; replay agrees."""
    play = Parent(
        Reply("I see"),
        Reply("let me split this", [Call("spawn_agent", {"task_name": "a", "message": "work", "fork_turns": "all"})]),
        start("b", fork_turns=1),
        start("c"),
        wait(),
        child=lambda prompt: Reply("done"),
    )
    model = ScriptedModel(play)
    async with open_runtime(model=model) as rt:
        s = await rt.create("p", system="Be kind.")
        await s.run("first")
        await s.run("second")
        seen = {prompt.session: (prompt.system, tuple(prompt.messages)) for prompt in model.prompts}
        task = User("work", "agent:/root")
        assert ("Be kind.", (User("first"), Assistant("I see"), User("second"), task)) == seen["p.a"]
        assert ("Be kind.", (User("second"), task)) == seen["p.b"]
        assert ("Be kind.", (task,)) == seen["p.c"]
        await (await rt.open("p.a")).stop()
        again = await rt.open("p.a")
        await again.run("and you?")
        assert (*seen["p.a"][1], Assistant("done"), User("and you?")) == tuple(model.prompts[-1].messages)


async def test_forked_context_carries_notes_of_developers():
    """What a hook noted for the model is copied too, without the call that it is about."""

    async def after(call, result):
        return AddContext("take care") if call.session == "p" and call.turn == 1 else None

    play = Parent(
        Reply("", [Call("list_agents")]),
        Reply("looked"),
        start(fork_turns="all"),
        wait(),
        child=lambda _: Reply("done"),
    )
    model = ScriptedModel(play)
    async with open_runtime(model=model, hooks=[Hook("after", after_tool=after)]) as rt:
        s = await rt.create("p")
        await s.run("look")
        await s.run("go")
        child = next(prompt for prompt in model.prompts if prompt.session == "p.a").messages
        copied = [User("look"), Developer("take care"), Assistant("looked"), User("go")]
        assert [*copied, User("work", "agent:/root")] == list(child)


@tool(effect="none")
async def look() -> str:
    """Look."""
    return "seen"


@tool(effect="none")
async def touch() -> str:
    """Touch."""
    return "touched"


ROLES = {
    "scout": RoleConfig(instructions="You only look.", tools=("look", "spawn_agent", "wait_agent")),
    "toucher": RoleConfig(tools=("touch", "look")),
}


async def test_roles_make_agents_stricter_down_the_tree():
    """A role gives instructions and takes tools; an agent below it never has what its parent has not."""
    read = {}

    def child(prompt):
        if prompt.session == "p.a":
            return [
                Reply("", [Call("look"), Call("touch")]),
                start("x", role="toucher"),
                wait(),
                Reply("a is done"),
            ][prompt.step - 1]
        return Reply("", [Call("look"), Call("touch")]) if prompt.step == 1 else Reply("x is done")

    def watched(prompt):
        read[prompt.session] = prompt
        return child(prompt) if "." in prompt.session else play(prompt)

    play = Parent(start(role="scout"), wait())
    config = RuntimeConfig(agents=Agents(notify="queue", roles=ROLES))
    async with open_runtime(config, model=ScriptedModel(watched), tools=[look, touch]) as rt:
        s = await rt.create("p", system="Be kind.")
        await s.run("go")
        await s.wait_idle()
        texts = {name: [one.text for one in of(ToolReturned, rt, name)][:2] for name in ("p.a", "p.a.x")}
        assert {"p.a": ["seen", "unsupported call: touch"], "p.a.x": ["seen", "unsupported call: touch"]} == texts
        offered = {name: {spec.name for spec in prompt.tools} for name, prompt in read.items()}
        assert {"look", "spawn_agent", "wait_agent", "report"} == offered["p.a"]
        assert {"look", "report"} == offered["p.a.x"]
        assert {"Be kind.\n\nYou only look."} == {read["p.a"].system, read["p.a.x"].system}
        assert "Roles: scout (You only look.), toucher." in next(
            spec.description for spec in read["p"].tools if spec.name == "spawn_agent"
        )
        (opened,) = of(SessionOpened, rt, "p.a.x")
        assert ("look", "report") == tuple(sorted(opened.only))
        assert "scout" == json.loads(json.dumps(s.state()["children"]))[0]["role"]


async def test_ends_of_later_turns_outlive_a_restart(tmp_path):
    """Turns of an agent that ended, or were cut off, while its parent was away are all told when that is opened."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    play = Parent(start(), wait(), child=lambda prompt: Reply(f"turn {prompt.turn}"))
    async with open_runtime(quiet(), model=ScriptedModel(play), store=url) as rt:
        await (await rt.create("p")).run("go")
    async with open_runtime(quiet(), model=ScriptedModel(play), store=url) as rt:
        a = await rt.open("p.a")
        for number in (2, 3, 4):
            assert f"turn {number}" == (await a.run("more")).last_message
        assert ("p", "p.a") == tuple(one.id for one in rt.sessions())
    async with open_runtime(quiet(), model=ScriptedModel(play), store=url) as rt:
        s = await rt.open("p")
        await until(lambda: len(of(ChildEnded, rt, "p")) == 4)
        assert [(n, f"turn {n}") for n in (1, 2, 3, 4)] == [(one.turn, one.text) for one in of(ChildEnded, rt, "p")]
        assert [f"Agent /root/a finished.\nturn {n}" for n in (1, 2, 3, 4)] == mails(rt)
        assert 3 == len(s.state()["queue"])
    async with open_runtime(quiet(), model=ScriptedModel(play), store=url) as rt:
        await rt.open("p")
        assert ("p",) == tuple(one.id for one in rt.sessions())
        assert 4 == len(of(ChildEnded, rt, "p"))


async def test_closed_agents_stay_closed(tmp_path):
    """A parent that is opened again opens none of the agents that it has closed, and still refuses to write to them."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    play = Parent(
        start(),
        wait(timeout_ms=1000),
        Reply("", [Call("close_agent", {"target": "a"})]),
        Reply("closed"),
        child=lasting,
    )
    async with open_runtime(quiet(), model=ScriptedModel(play), store=url) as rt:
        await (await rt.create("p")).run("go")
    again = Parent(
        Reply("", [Call("followup_task", {"target": "a", "message": "more"})]), Reply("", [Call("list_agents")])
    )
    async with open_runtime(quiet(), model=ScriptedModel(again), store=url) as rt:
        s = await rt.open("p")
        assert ("p",) == tuple(one.id for one in rt.sessions())
        await s.run("go on")
        assert "agent /root/a was closed: it takes no messages. Start another one." == again.read[0]
        (listed,) = json.loads(again.read[1])["agents"]
        assert ("stopped", True) == (listed["status"], listed["closed"])
        assert ("p",) == tuple(one.id for one in rt.sessions())

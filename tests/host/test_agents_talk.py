"""Agents that talk to each other, follow up, report, and end each other."""

import asyncio
import json

import pytest
import trio

from callboard.actors import (
    Call,
    ChildClosed,
    ChildEnded,
    MessageQueued,
    Reply,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from callboard.actors.testing import ScriptedModel
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.settings import Agents

from .hosted import until
from .parents import Parent, lasting, of, results, spawn, wait

QUIET = RuntimeConfig(agents=Agents(notify="queue"))


def use(name, **arguments):
    """A reply that makes one call."""
    return Reply("", [Call(name, arguments)])


def heard(prompt):
    """The last text that a model read."""
    return getattr(prompt.messages[-1], "text", "")


async def test_followup_starts_a_turn_and_a_message_does_not():
    """A follow-up starts a turn of an agent that rests, whose end is told again; a message waits for that turn."""
    play = Parent(
        spawn("a"),
        wait(),
        use("send_message", target="a", message="for later"),
        use("followup_task", target="/root/a", message="more"),
        wait(targets=["a"]),
        child=lambda prompt: Reply(f"turn {prompt.turn}: {heard(prompt)}"),
    )
    async with open_runtime(QUIET, model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        await s.run("go")
        sent = {"path": "/root/a", "status": "completed"}
        assert [sent, sent] == [json.loads(text) for text in play.read[2:4]]
        (waited,) = json.loads(play.read[4])["agents"]
        assert ("completed", "turn 2: Mail from agent /root:\nmore") == (waited["status"], waited["text"])
        assert [(1, "completed"), (2, "completed")] == [(one.turn, one.status) for one in of(ChildEnded, rt, "p")]
        queued = [(one.text, one.wake) for one in of(MessageQueued, rt, "p.a")]
        assert [
            ("work", True),
            ("Mail from agent /root:\nfor later", False),
            ("Mail from agent /root:\nmore", True),
        ] == queued
        assert 2 == len(of(TurnStarted, rt, "p.a"))


async def test_report_reaches_the_parent_at_once():
    """What an agent reports is mail of its parent at once: it ends a wait, is read next, and the agent works on."""
    go = trio.Event()

    async def child(prompt):
        if prompt.step == 1:
            return use("report", output="half way")
        await go.wait()
        return Reply("all of it")

    def parent(prompt):
        if prompt.step < 3:
            return spawn("a") if prompt.step == 1 else wait()
        play.read += results(prompt)
        seen = [message.text for message in prompt.messages if "half way" in getattr(message, "text", "")]
        go.set()
        return Reply("; ".join(seen))

    play = Parent(child=child)
    model = ScriptedModel(lambda prompt: child(prompt) if "." in prompt.session else parent(prompt))
    async with open_runtime(QUIET, model=model) as rt:
        s = await rt.create("p")
        ended = await s.run("go")
        waited = json.loads(play.read[0])
        assert ("Wait interrupted by new input.", False, "running") == (
            waited["message"],
            waited["timed_out"],
            waited["agents"][0]["status"],
        )
        assert "Mail from agent /root/a:\nhalf way" == ended.last_message
        await until(lambda: of(ChildEnded, rt, "p"))
        assert ["all of it"] == [one.text for one in of(ChildEnded, rt, "p")]
        assert ["Reported to /root."] == [one.text for one in of(ToolReturned, rt, "p.a")]


@pytest.mark.parametrize("notify", ["wake", "queue"])
async def test_report_to_a_parent_that_rests(notify):
    """A report wakes a parent that rests, or waits for its next turn, as configured."""

    async def child(prompt):
        if prompt.step == 1:
            await trio.sleep(0.02)
            return use("report", output="news")
        return await lasting(prompt)

    async with open_runtime(
        RuntimeConfig(agents=Agents(notify=notify)), model=ScriptedModel(Parent(spawn("a"), child=child))
    ) as rt:
        s = await rt.create("p")
        await s.run("go")
        await until(lambda: any("news" in one.text for one in of(MessageQueued, rt, "p")))
        await asyncio.sleep(0.05)
        await s.wait_idle()
        starts = ["user", "automatic"] if notify == "wake" else ["user"]
        assert starts == [one.start for one in of(TurnStarted, rt, "p")]


async def test_root_is_not_offered_a_report():
    """Only agents that another one started are offered `report`; at the root a call of it says why not."""
    play = Parent(use("report", output="x"), spawn("a"), wait())
    model = ScriptedModel(play)
    async with open_runtime(model=model) as rt:
        s = await rt.create("p")
        await s.run("go")
        assert play.read[0].startswith("nobody started this agent")
        offered = {prompt.session: {tool.name for tool in prompt.tools} for prompt in model.prompts}
        assert offered["p.a"] - offered["p"] == {"report"}
        assert offered["p"] - offered["p.a"] == {
            *("request_user_input", "schedule_create", "schedule_list", "schedule_delete")
        }


async def test_interrupt_agent():
    """An agent stops an agent below it and those below that; its end is told, and it can be given more to do."""

    async def child(prompt):
        if prompt.session == "p.a" and (prompt.turn, prompt.step) == (1, 1):
            return spawn("x")
        return Reply("again") if prompt.turn > 1 else await lasting(prompt)

    play = Parent(
        spawn("a"),
        wait(timeout_ms=1000),
        use("interrupt_agent", target="a"),
        wait(),
        use("interrupt_agent", target="a"),
        use("followup_task", target="a", message="more"),
        wait(),
        child=child,
    )
    async with open_runtime(QUIET, model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        await s.run("go")
        stopped, rested = json.loads(play.read[2]), json.loads(play.read[4])
        assert {"path": "/root/a", "previous_status": "running", "ended": True} == {"ended": True, **stopped}
        assert "interrupted" == rested["previous_status"] == json.loads(play.read[3])["agents"][0]["status"]
        assert ("completed", "again") == tuple(json.loads(play.read[6])["agents"][0][key] for key in ("status", "text"))
        assert [("interrupted", 1), ("completed", 2)] == [(one.status, one.turn) for one in of(ChildEnded, rt, "p")]
        assert ["interrupted"] == [one.status for one in of(ChildEnded, rt, "p.a")]


async def test_close_agent():
    """Closing ends an agent and all below it for good: no message reaches it, and a repeat changes nothing."""

    async def child(prompt):
        if prompt.session == "p.a" and prompt.step == 1:
            return spawn("x")
        return await lasting(prompt)

    play = Parent(
        spawn("a", "b"),
        wait(timeout_ms=1000),
        use("close_agent", target="a"),
        use("close_agent", target="a"),
        use("send_message", target="a/x", message="hello"),
        use("followup_task", target="a", message="hello"),
        spawn("a"),
        use("list_agents", scope="below"),
        child=child,
    )
    async with open_runtime(QUIET, model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        await s.run("go")
        first, again = json.loads(play.read[3]), json.loads(play.read[4])
        assert ("running", "stopped") == (first["previous_status"], again["previous_status"])
        assert play.read[5] == "agent /root/a/x was closed: it takes no messages. Start another one."
        assert play.read[6] == "agent /root/a was closed: it takes no messages. Start another one."
        assert "an agent /root/a exists already" in play.read[7]
        listed = {one["path"]: (one["status"], one.get("closed")) for one in json.loads(play.read[8])["agents"]}
        closed = dict.fromkeys(("/root/a", "/root/a/x"), ("stopped", True))
        assert closed | {"/root/b": ("running", None)} == listed
        assert [ChildClosed("p.a")] == of(ChildClosed, rt, "p")
        assert [("p.a", "stopped")] == [(one.child, one.status) for one in of(ChildEnded, rt, "p")]
        assert [("p.a.x", "stopped")] == [(one.child, one.status) for one in of(ChildEnded, rt, "p.a")]
        assert {"p", "p.b"} == {one.id for one in rt.sessions()}


async def test_closing_keeps_a_failure_and_an_answer():
    """An agent that has failed or answered before it is closed stands as that."""

    def child(prompt):
        return "no reply at all" if prompt.session == "p.bad" else Reply("fine")

    play = Parent(
        spawn("bad", "good"),
        wait(),
        Reply("", [Call("close_agent", {"target": name}) for name in ("bad", "good")]),
        wait(),
        child=child,
    )
    async with open_runtime(QUIET, model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        await s.run("go")
        bad, good = json.loads(play.read[-1])["agents"]
        assert ("failed", True, "completed", True) == (bad["status"], bad["closed"], good["status"], good["closed"])
        assert "reply" in bad["text"].lower()


async def test_list_agents_by_scope():
    """The list shows the agent's own, all below it, or the whole tree with the agent itself marked."""
    read = {}

    async def child(prompt):
        if prompt.session == "p.a" and prompt.step == 1:
            return spawn("x")
        if prompt.session == "p.a" and prompt.step == 2:
            return Reply("", [Call("list_agents", {"scope": scope}) for scope in ("children", "below", "tree")])
        if prompt.session == "p.a" and prompt.step == 3:
            read["a"] = results(prompt)
            return wait()
        if prompt.session == "p.a.x":
            await trio.sleep(0.05)
        return Reply("done")

    play = Parent(
        spawn("a"),
        wait(),
        Reply("", [Call("list_agents", {"scope": scope}) for scope in ("children", "below", "tree")]),
        use("list_agents", scope="all"),
        child=child,
    )
    async with open_runtime(QUIET, model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        await s.run("go")
        children, below, tree = ([one["path"] for one in json.loads(text)["agents"]] for text in read["a"])
        assert (["/root/a/x"], ["/root/a/x"], ["/root", "/root/a", "/root/a/x"]) == (children, below, tree)
        assert [None, True, None] == [one.get("you") for one in json.loads(read["a"][2])["agents"]]
        children, below, tree = ([one["path"] for one in json.loads(text)["agents"]] for text in play.read[2:5])
        assert (["/root/a"], ["/root/a", "/root/a/x"], ["/root", "/root/a", "/root/a/x"]) == (children, below, tree)
        assert "Invalid enum value 'all'" in play.read[5]


async def test_agent_waits_for_those_below_it():
    """An agent whose turn has ended while agents below it work is `waiting`, and a wait for it goes on."""
    go = trio.Event()

    async def child(prompt):
        if prompt.session == "p.a.x":
            await go.wait()
            return Reply("x is done")
        return spawn("x") if prompt.step == 1 and prompt.turn == 1 else Reply(f"turn {prompt.turn}")

    def parent(prompt):
        play.read += results(prompt)
        if prompt.step == 4:
            go.set()
        return [spawn("a"), wait(timeout_ms=1000), use("list_agents"), wait(), Reply("done")][prompt.step - 1]

    play = Parent(child=child)
    model = ScriptedModel(lambda prompt: child(prompt) if "." in prompt.session else parent(prompt))
    async with open_runtime(model=model) as rt:
        s = await rt.create("p")
        await s.run("go")
        texts = [json.loads(text) for text in play.read[1:]]
        assert ("Wait timed out.", "waiting") == (texts[0]["message"], texts[0]["agents"][0]["status"])
        assert "waiting" == texts[1]["agents"][0]["status"]
        assert ("Wait completed.", "completed", "turn 2") == (
            texts[2]["message"],
            *(texts[2]["agents"][0][key] for key in ("status", "text")),
        )


WRONG = [
    ("send_message", {"target": "a", "message": ""}, "message is empty"),
    ("send_message", {"target": "a", "message": "x" * 100_001}, "message has 100,001 characters"),
    ("send_message", {"target": "nobody", "message": "x"}, "there is no agent 'nobody'"),
    ("send_message", {"target": "/root/a/x/y/z", "message": "x"}, "there is no agent '/root/a/x/y/z'"),
    ("send_message", {"target": "/root", "message": "x"}, "an agent cannot be the target of its own send_message"),
    ("send_message", {"target": "\x00", "message": "x"}, "names no agent"),
    ("send_message", {"target": "a"}, "missing required field `message`"),
    ("send_message", {"target": 7, "message": "x"}, "Expected `str`, got `int`"),
    ("followup_task", {"target": "/root", "message": "x"}, "/root is not an agent that was started"),
    ("followup_task", {"target": "..", "message": "x"}, "are reserved"),
    ("followup_task", {"target": "a", "message": " \n"}, "message is empty"),
    ("followup_task", {"target": "a", "message": "x", "wake": True}, "unknown field `wake`"),
    ("interrupt_agent", {"target": "/root"}, "/root is not an agent that was started"),
    ("interrupt_agent", {"target": "b"}, "there is no agent 'b'"),
    ("interrupt_agent", {"target": "root"}, "are reserved"),
    ("interrupt_agent", {}, "missing required field `target`"),
    ("close_agent", {"target": "/root"}, "/root is not an agent that was started"),
    ("close_agent", {"target": "x" * 10_000}, "names no agent"),
    ("close_agent", {"target": ["a"]}, "Expected `str`, got `array`"),
    ("list_agents", {"scope": None}, "Expected `str`, got `null`"),
    ("wait_agent", {"targets": ["a", "."]}, "are reserved"),
    ("wait_agent", {"targets": "a"}, "Expected `array | null`, got `str`"),
    ("wait_agent", {"timeout_ms": 1e300}, "Expected `int`, got `float`"),
    ("wait_agent", {"timeout_ms": True}, "Expected `int`, got `bool`"),
    ("spawn_agent", {"task_name": "n", "message": "x", "fork_turns": "some"}, "fork_turns must be"),
    ("spawn_agent", {"task_name": "n", "message": "x", "fork_turns": 0}, "fork_turns must be"),
    ("spawn_agent", {"task_name": "n", "message": "x", "fork_turns": []}, "Expected `int | str | null`"),
    ("spawn_agent", {"task_name": "n", "message": "x", "role": "nobody"}, "there is no role 'nobody'"),
    ("spawn_agent", {"task_name": "n", "message": "x", "background": False, "detach": True}, "do not go together"),
    ("spawn_agent", {"task_name": "n", "message": "x", "background": "no"}, "Expected `bool`, got `str`"),
]


async def test_wrong_input_of_every_tool():
    """A wrong argument is a failed call that says what is wrong, and nothing happens to any agent."""
    calls = [Reply("", [Call(name, arguments)]) for name, arguments, _ in WRONG]
    play = Parent(spawn("a"), wait(), *calls, child=lambda prompt: Reply("done"))
    async with open_runtime(QUIET, model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        await s.run("go")
        texts = play.read[2:]
        assert len(WRONG) == len(texts)
        wrong = [(name, text) for (name, _, words), text in zip(WRONG, texts, strict=True) if words not in text]
        assert [] == wrong
        assert all(text.isprintable() and len(text) < 500 for text in texts)
        assert ["failed"] * len(WRONG) == [one.receipt for one in of(ToolReturned, rt, "p")][2:]
        assert (("p.a",), 1) == (s.children(), len(of(TurnEnded, rt, "p.a")))


async def test_strangers_are_out_of_reach():
    """An agent may write to its siblings and its parent, but stops neither them nor itself."""
    read = {}

    async def child(prompt):
        if prompt.session == "p.a":
            return await lasting(prompt)
        if prompt.step == 1:
            return Reply(
                "",
                [
                    *(Call(name, {"target": "/root/a"}) for name in ("interrupt_agent", "close_agent")),
                    *(Call(name, {"target": "/root/b"}) for name in ("interrupt_agent", "close_agent")),
                    Call("send_message", {"target": "/root/a", "message": "hello"}),
                    Call("send_message", {"target": "/root", "message": "hello"}),
                ],
            )
        read["b"] = results(prompt)
        return Reply("done")

    play = Parent(spawn("a", "b"), wait(targets=["b"]), child=child)
    async with open_runtime(QUIET, model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        await s.run("go")
        not_below = "/root/a is not below you: {} is for agents that you, or agents of yours, have started."
        assert [not_below.format(name) for name in ("interrupt_agent", "close_agent")] == read["b"][:2]
        assert all(text.startswith("an agent cannot be the target of its own") for text in read["b"][2:4])
        assert ["/root/a", "/root"] == [json.loads(text)["path"] for text in read["b"][4:]]
        assert "running" == (await rt.open("p.a")).state()["phase"]
        mail = [one.text for one in of(MessageQueued, rt, "p") if one.source == "agent:/root/b"]
        assert "Mail from agent /root/b:\nhello" == mail[0]

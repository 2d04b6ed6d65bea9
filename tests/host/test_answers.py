"""Answering and approving through a session's handle: what it takes, what it shows, and that nothing is lost."""

import asyncio
from functools import partial
from typing import Any

import pytest
import trio

from callboard.actors import Accepted, Call, Prompt, Refused, Reply, UsageError, tool
from callboard.actors.testing import ScriptedModel
from callboard.plugins import AGENTS_PLUGIN
from callboard.plugins.ask import ask_plugin
from callboard.runtime import RuntimeConfig, SessionHandle, open_runtime
from callboard.runtime.settings import Bounds

from .hosted import until

OPTIONS = [{"label": "red"}, {"label": "blue", "description": "as the sea"}]
ASK = Call("request_user_input", {"questions": [{"id": "c", "header": "H", "question": "Which?", "options": OPTIONS}]})
SAVE = Call("save", {"text": "x"}, "c1")
QUICK = RuntimeConfig(runtime=Bounds(shutdown_s=2.0, idle_evict_s=0.05))


@tool
async def save(text: str) -> str:
    """Changes something."""
    return f"saved {text}"


def play(prompt: Prompt) -> Reply:
    """Ask or save when it is told to, else only talk."""
    said = prompt.messages[-1].text
    calls = {"ask": [ASK], "save": [SAVE], "spawn": [Call("spawn_agent", {"task_name": "a", "message": "save"})]}
    return Reply("", calls[said]) if prompt.step == 1 and said in calls else Reply(f"heard {said}")


def runtime(store: str = "memory", **settings: Any) -> Any:
    """A runtime whose model asks."""
    plugins = [AGENTS_PLUGIN, ask_plugin(**{"default_mode": True, "policy": "ask", **settings})]
    return open_runtime(QUICK, model=ScriptedModel(play), plugins=plugins, tools=[save], store=store)


async def opened(s: SessionHandle, key: str) -> dict[str, Any]:
    """The one question or approval that is open, once it is."""
    await until(lambda: s.state()[key])
    (one,) = s.state()[key]
    assert isinstance(one, dict)
    return one


async def test_a_question_is_shown_and_answered():
    """`state()` has all of it as plain values; the answer is durable, and the turn goes on with it."""
    async with runtime() as rt:
        s = await rt.create("s")
        running = asyncio.ensure_future(s.run("ask"))
        asked = await opened(s, "questions")
        options = ({"label": "red", "description": ""}, {"label": "blue", "description": "as the sea"})
        expected = {"id": f"1.{asked['call']}.1", "call": asked["call"], "turn": 1, "by": "ask", "header": "H"}
        assert {**expected, "question": "Which?", "options": options, "detail": ""} == asked
        assert "invalid_answer" == (await s.answer(asked["id"], ["green"])).reason
        answers = [await s.answer(asked["id"], ["blue"], "or so", id="v") for _ in range(2)]
        assert isinstance(answers[0], Accepted)
        assert answers[0] == answers[1]
        assert "not_pending" == (await s.answer(asked["id"])).reason
        assert 'heard {"answers":{"c":{"answers":["blue","or so"]}}}' == (await running).last_message
        assert [] == s.state()["questions"]


async def test_an_approval_is_shown_and_decided():
    """`state()` has the call and its arguments, and of the permissions what people may read."""
    async with runtime() as rt:
        s = await rt.create("s")
        reading = asyncio.ensure_future(_read(s))
        running = asyncio.ensure_future(s.run("save"))
        asked = await opened(s, "approvals")
        assert {"id": "1.c1", "call": "c1", "turn": 1, "tool": "save", "arguments": {"text": "x"}} == asked
        assert isinstance(await s.approve("c1", "allow_session"), Accepted)
        assert "heard saved x" == (await running).last_message
        assert {"policy": None, "tools": ("save",), "once": ()} == s.state()["permissions"]
        assert "answers" not in s.state()
        assert "heard saved x" == (await s.run("save")).last_message
        assert "approvals are now: never" in (await s.command("/approvals never")).text
        assert "invalid_command" == (await s.command("/approvals perhaps")).reason
        assert "never" == s.state()["permissions"]["policy"]
        reading.cancel()


async def _read(s: SessionHandle) -> None:
    async for _ in s.events():
        pass


async def test_a_session_that_nobody_reads_has_no_approvals():
    """Where no reader could answer, the call is refused at once, and the turn goes on."""
    async with runtime() as rt:
        ended = await (await rt.create()).run("save")
        assert "nobody is there to give it (unavailable)" in (ended.last_message or "")


async def test_what_the_root_allowed_holds_for_its_children():
    """A child's call is refused until its root allowed the tool, also when the child was started before."""
    async with runtime() as rt:
        s = await rt.create("s")
        reading = asyncio.ensure_future(_read(s))
        await s.run("spawn")
        (child_id,) = s.children()
        child = await rt.open(child_id)
        await child.wait_idle()
        assert "subagents may not ask for it" in (await child.run("save")).last_message
        running = asyncio.ensure_future(s.run("save"))
        await opened(s, "approvals")
        await s.approve("c1", "allow_session")
        await running
        assert "heard saved x" == (await child.run("save")).last_message
        reading.cancel()


WRONG_ANSWERS: tuple[tuple[Any, ...], ...] = (
    (None, ["red"]),
    ("", ["red"]),
    (5, ["red"]),
    ("q", "red"),
    ("q", None),
    ("q", {"red"}),
    ("q", [1]),
    ("q", ["red"] * 101),
    ("q", ["red"], 5),
    ("q", [], b"text"),
    ("q", [], "x" * 100_001),
)
WRONG_DECISIONS: tuple[tuple[Any, ...], ...] = (
    (None, "deny"),
    ("", "deny"),
    ("c", "allow"),
    ("c", None),
    ("c", ["deny"]),
    ("c", "cancelled"),
    ("c", "deny", 5),
    ("c", "deny", "x" * 100_001),
    ("c", "allow_once", "go on"),
)


async def test_what_is_no_answer_is_an_error_of_the_caller():
    """Wrong types, unknown decisions and huge texts raise one clear, short sentence; nothing is written."""
    async with runtime() as rt:
        s = await rt.create()
        before = s.state()["seq"]
        calls: list[Any] = [partial(s.answer, *wrong) for wrong in WRONG_ANSWERS]
        calls += [partial(s.approve, *wrong) for wrong in WRONG_DECISIONS]
        calls += [partial(s.answer, "q", id=""), partial(s.approve, "c", "deny", id="\x00")]
        for call in calls:
            with pytest.raises(UsageError) as raised:
                await call()
            assert (True, True) == (str(raised.value).endswith("."), len(str(raised.value)) < 250), raised.value
        assert before == s.state()["seq"]
        for unknown in ("q", "x" * 10_000, "\x1b[2J\ud800"):
            refused = [await s.answer(unknown, ["red"]), await s.approve(unknown, "deny")]
            assert ["not_pending"] * 2 == [one.reason for one in refused if isinstance(one, Refused)]
            assert all(len(one.detail) < 400 for one in refused if isinstance(one, Refused))


async def test_of_many_answers_at_once_one_counts():
    """Thirty clients answer the same question, from both loops: one is accepted, the others were too late."""
    async with runtime() as rt:
        s = await rt.create()
        running = asyncio.ensure_future(s.run("ask"))
        id_ = (await opened(s, "questions"))["id"]
        answers = await asyncio.gather(*(s.answer(id_, [("red", "blue")[n % 2]]) for n in range(30)))
        assert [1, 29] == [sum(isinstance(one, kind) for one in answers) for kind in (Accepted, Refused)]
        assert {"not_pending"} == {one.reason for one in answers if isinstance(one, Refused)}
        await running


async def test_an_interrupt_takes_back_what_was_asked():
    """The turn ends in its window, and an answer afterwards is too late."""
    async with runtime() as rt:
        s = await rt.create()
        running = asyncio.ensure_future(s.run("ask"))
        id_ = (await opened(s, "questions"))["id"]
        await s.interrupt()
        assert ("aborted", "interrupted") == ((await running).reason, (await s.wait(1)).cause)
        assert ("not_pending", []) == ((await s.answer(id_, ["red"])).reason, s.state()["questions"])


async def test_a_question_is_asked_again_by_the_next_program(tmp_path):
    """After a shutdown it is open under its id, keeps the session in memory, and its answer starts a turn."""
    store = f"sqlite:///{tmp_path / 'log.db'}"
    async with runtime(store) as rt:
        s = await rt.create("s")
        await s.submit("ask")
        id_ = (await opened(s, "questions"))["id"]
    async with runtime(store) as rt:
        s = await rt.open("s")
        assert id_ == (await opened(s, "questions"))["id"]
        await asyncio.sleep(0.2)  # several times the time after which an idle session leaves memory
        assert "idle" == s.state()["phase"]
        assert isinstance(await s.answer(id_, text="green"), Accepted)
        ended = await s.wait(2)
        assert "The user has now answered: green" in (ended.last_message or "")
        assert [] == s.state()["questions"]


async def test_answers_come_from_trio_too():
    """A handle answers from a tool of another session as it does from asyncio."""
    box: list[SessionHandle] = []

    @tool(effect="none")
    async def reply() -> str:
        """Answer the other session."""
        (other,) = box
        with trio.fail_after(5):
            while not other.state()["questions"]:
                await trio.sleep(0.01)
            answer = await other.answer(other.state()["questions"][0]["id"], ["red"])
        return type(answer).__name__

    model = ScriptedModel(
        lambda prompt: play(prompt) if prompt.session == "asks" else Reply("", [Call("reply")][: 2 - prompt.step])
    )
    async with open_runtime(QUICK, model=model, plugins=[ask_plugin(default_mode=True)], tools=[reply]) as rt:
        box.append(await rt.create("asks"))
        running = asyncio.ensure_future(box[0].run("ask"))
        await (await rt.create("answers")).run("go")
        assert 'heard {"answers":{"c":{"answers":["red"]}}}' == (await running).last_message

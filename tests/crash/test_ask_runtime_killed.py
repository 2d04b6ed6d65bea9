"""A runtime that dies by kill -9 while it asks: the next one asks the same, and the answer reaches the model."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from callboard.actors import Accepted, Reply
from callboard.actors.testing import ScriptedModel
from callboard.plugins.ask import ask_plugin
from callboard.runtime import open_runtime

RUNTIME = """
import asyncio, sys
from callboard.actors import Call, Reply, tool
from callboard.actors.facts import ApprovalAsked, QuestionAsked
from callboard.actors.testing import ScriptedModel
from callboard.plugins.ask import ask_plugin
from callboard.runtime import open_runtime

@tool
async def save(text: str) -> str:
    "Changes something."
    return "saved"

QUESTIONS = [{"id": str(n), "header": "", "question": f"Which {n}?", "options": [{"label": "a"}]} for n in range(3)]
ASK = {"questions": QUESTIONS}
CALLS = {"ask": Call("request_user_input", ASK, "q"), "save": Call("save", {"text": "x"}, "c")}

async def main():
    model = ScriptedModel([Reply("", [CALLS[sys.argv[2]]])])
    plugins = [ask_plugin(default_mode=True, policy="ask")]
    async with open_runtime(model=model, plugins=plugins, tools=[save], store=sys.argv[1]) as rt:
        session = await rt.create("s")
        async with session.events() as reading:
            await session.submit("go")
            async for item in reading:  # only what is on the disk
                if isinstance(item.event, (QuestionAsked, ApprovalAsked)):
                    print(item.event.id, flush=True)

asyncio.run(main())
"""


def killed_while_asking(store: str, what: str, count: int) -> Sequence[str]:
    """Run it, kill it once it has said that so many are asked; what it said."""
    with subprocess.Popen([sys.executable, "-c", RUNTIME, store, what], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        said = [running.stdout.readline().strip() for _ in range(count)]
        running.send_signal(signal.SIGKILL)
    return said


def runtime(store: str, model: Any) -> Any:
    """The next one."""
    return open_runtime(model=model, plugins=[ask_plugin(default_mode=True, policy="ask")], store=store)


def test_questions_outlive_a_killed_runtime(tmp_path):
    """After kill -9, again and again, the questions are open under their ids; each answer is heard once."""
    store = f"sqlite:///{tmp_path / 'log.db'}"
    ids = killed_while_asking(store, "ask", 3)
    assert ["1.q.1", "1.q.2", "1.q.3"] == ids
    asyncio.run(_answered(store))


async def _answered(store: str) -> None:
    model = ScriptedModel(lambda prompt: Reply(prompt.messages[-1].text))
    async with runtime(store, model) as rt:
        s = await rt.open("s")
        assert ["1.q.1", "1.q.2", "1.q.3"] == [one["id"] for one in s.state()["questions"]]
        assert isinstance(await s.answer("1.q.2", ["a"], id="v"), Accepted)
        await s.wait_idle()
    async with runtime(store, model) as rt:
        s = await rt.open("s")
        assert isinstance(await s.answer("1.q.2", ["a"], id="v"), Accepted)
        assert "not_pending" == (await s.answer("1.q.2", ["a"])).reason
        assert isinstance(await s.answer("1.q.3", text="b"), Accepted)
        await s.wait_idle()
        ended = [await s.wait(turn) for turn in (1, 2, 3)]
        assert ["interrupted", "completed", "completed"] == [one.reason for one in ended]
        assert [True, True] == [
            part in (one.last_message or "") for part, one in zip(("Which 1?", "Which 2?"), ended[1:], strict=True)
        ]
        assert (["1.q.1"], 2) == ([one["id"] for one in s.state()["questions"]], len(model.prompts))


def test_an_approval_outlives_a_killed_runtime(tmp_path):
    """After kill -9 the request is open under its id, and the call it was for counts as not started."""
    store = f"sqlite:///{tmp_path / 'log.db'}"
    assert ["1.c"] == killed_while_asking(store, "save", 1)
    asyncio.run(_approved(store))


async def _approved(store: str) -> None:
    model = ScriptedModel(lambda prompt: Reply(prompt.messages[-1].text))
    async with runtime(store, model) as rt:
        s = await rt.open("s")
        (asked,) = s.state()["approvals"]
        assert ("save", {"text": "x"}) == (asked["tool"], asked["arguments"])
        assert isinstance(await s.approve("c", "allow_once"), Accepted)
        assert "not_pending" == (await s.approve("c", "allow_once")).reason
        ended = [await s.wait(turn) for turn in (1, 2)]
        assert ["not_started"] == [one.receipt for one in ended[0].receipts]
        assert "this one call" in (ended[1].last_message or "")

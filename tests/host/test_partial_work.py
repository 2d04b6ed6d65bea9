"""What an interrupted turn had done already is kept: text, output, seconds; each in the words of its cause."""

import asyncio
import re
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from callboard.actors import Call, ModelSaid, Reply, ToolReturned, TurnEnded
from callboard.actors.events import Cause
from callboard.actors.receipts import aborted_by
from callboard.actors.testing import ScriptedModel
from callboard.plugins.excerpt import Excerpt
from callboard.plugins.shell import SHELL, aborted
from callboard.runtime import open_runtime
from callboard.runtime.config import config_of

from .hosted import until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="commands need a POSIX system")

COMMAND = "echo half of it; touch began; sleep 1000"
CUT = re.compile(r"Wall time: (\d+\.\d) seconds\n(.*)\nPartial output:\nhalf of it\n")


@pytest.mark.parametrize("cause", get_args(Cause))
def test_an_interrupted_command_is_worded_by_cause(cause):
    """Seconds, who ended it, then what was captured, marked as partial; nothing captured is not mentioned."""
    output = Excerpt(1000)
    assert f"Wall time: 0.1 seconds\n{aborted_by(cause)}" == aborted(0.0, output, cause).text
    output.add("half\n")
    text = aborted(1.25, output, cause).text
    assert f"Wall time: 1.2 seconds\n{aborted_by(cause)}\nPartial output:\nhalf\n" == text


def ended_by(tmp_path: Path, cause: Cause, config: dict[str, Any], end: Any) -> tuple[ToolReturned, TurnEnded]:
    """The result of a command and its turn; `end(session)` ends them once the command has begun."""
    model = ScriptedModel([Reply("Let me see.", [Call("shell", {"command": COMMAND})])])

    async def main() -> tuple[ToolReturned, TurnEnded]:
        async with open_runtime(config_of(config), model=model, plugins=[SHELL], folder=tmp_path) as rt:
            session = await rt.create(session_id="s")
            await session.submit("go")
            await until((tmp_path / "began").exists)
            await end(session)
            ended = None if cause == "shutdown" else await session.wait(1)
            found: list[Any] = []
            async for item in (await rt.open("s")).events():
                found.append(item.event)  # type: ignore[union-attr]
                if isinstance(found[-1], TurnEnded):
                    break
            assert ended in (None, found[-1])
            (returned,) = (event for event in found if isinstance(event, ToolReturned))
            return returned, found[-1]

    return asyncio.run(main())


async def by_user(session: Any) -> None:
    """Interrupt it."""
    await session.interrupt()


async def by_itself(session: Any) -> None:
    """Its seconds run out."""


async def by_stop(session: Any) -> None:
    """End the session."""
    await session.stop()


@pytest.mark.parametrize(
    ("cause", "config", "end"),
    [
        ("interrupted", {}, by_user),
        ("budget", {"runtime": {"turn_seconds_max": 0.6}}, by_itself),
        ("shutdown", {}, by_stop),
    ],
)
def test_output_of_an_interrupted_command_is_kept(tmp_path, cause, config, end):
    """What it printed is in its result and its seconds are in its receipt, whoever ended it."""
    returned, ended = ended_by(tmp_path, cause, config, end)
    match = CUT.fullmatch(returned.text)
    assert match is not None
    assert (match[2], returned.receipt) == (aborted_by(cause), "interrupted")
    (receipt,) = ended.receipts
    assert (ended.cause, receipt.receipt) == (cause, "interrupted")
    assert float(match[1]) == pytest.approx(max(0.1, receipt.seconds), abs=0.15)


def test_text_of_a_cut_answer_is_kept_without_its_calls(tmp_path):
    """The calls that the answer would have ended with never were, and the next turn reads the text."""
    reply = Reply("one two three four", [Call("shell", {"command": "touch ran"})])
    model = ScriptedModel([reply, Reply("on")], delay_s=1.0)

    async def main() -> tuple[TurnEnded, list[Any]]:
        async with open_runtime(model=model, plugins=[SHELL], folder=tmp_path) as rt:
            session = await rt.create()
            await session.submit("go")
            async for item in session.events(deltas=True):
                if getattr(item, "part", None) == "text":
                    break
            await session.interrupt()
            ended = await session.wait(1)
            await session.run("go on")
            said: list[Any] = []
            async for item in session.events():
                if isinstance(getattr(item, "event", None), ModelSaid):
                    said.append(item.event)  # type: ignore[union-attr]
                if len(said) == 2:
                    break
            return ended, said

    ended, said = asyncio.run(main())
    assert (said[0].interrupted, said[0].calls, ended.tool_calls, ended.receipts) == (True, (), 0, ())
    assert "one two three four".startswith(said[0].text)
    assert said[0].text == ended.last_message == model.prompts[1].messages[1].text
    assert list(tmp_path.iterdir()) == []

"""The same story over the wires of three providers, with their own SDKs, ends in the same state."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.sse_server import sse_server
from tests.wires import USED, WIRES, Line, Spoken, Wire, serve

from callboard.actors import Interrupting
from callboard.runtime import ModelConfig, RuntimeConfig, open_runtime

from .wire_story import letter, look

STORY = Path(__file__).with_name("wire_story.py")
KEY = "sk-planted-0123456789"
PLAN = {"plan": [{"step": "Count the stalls", "status": "in_progress"}]}
LOOKS = tuple(("look", {"where": where}) for where in ("north", "east", "south"))
LETTER = "Dear friends of the fair, this year"


def play(lines: list[Line]) -> Spoken:
    """What the model says, by what it was told: the same over each wire."""
    asked = [line.text for line in lines if line.who == "user"]
    results = [line.text for line in lines if line.who == "result"]
    if any("Count again." in text for text in asked):
        return Spoken(text="Twelve stalls.", thought="5 + 4 + 3")
    if any("Shorter" in text for text in asked):
        assert any(line.who == "model" and line.text.startswith("Dear friends") for line in lines)
        assert [len(line.calls) for line in lines if line.calls] == [4, 1, 1]
        return Spoken(text="Come to the fair.")
    if any("Write to everybody." in text for text in asked):
        return Spoken(text=LETTER, hangs=True)
    if not results:
        return Spoken(thought="First the plan.", text="I look around.", calls=(("update_plan", PLAN), *LOOKS))
    if len(results) == 4:
        assert results[1:] == ["five", "four", "three"]
        return Spoken(
            thought="Somebody else should count.",
            calls=(("spawn_agent", {"task_name": "stalls", "message": "Count again."}),),
        )
    if len(results) == 5:
        return Spoken(calls=(("wait_agent", {}),))
    return Spoken(text="There are twelve.")


def part(name: str, wire: Wire, url: str, folder: Path) -> Any:
    """One part of the story in a process of its own."""
    table = {
        "model": {"name": wire.model, "base_url": url + wire.base, **wire.settings},
        "store": {"url": f"sqlite:///{folder / 'story.db'}"},
    }
    env = {**os.environ, "OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
    ran = subprocess.run(
        [sys.executable, str(STORY), name, json.dumps(table)],
        env=env,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return json.loads(ran.stdout)


def told(wire: Wire, folder: Path) -> Any:
    """The whole story over one wire."""
    folder.mkdir()
    with sse_server(serve(wire, play)) as server:
        made = [part(name, wire, server.url, folder) for name in ("begin", "resume")]
        assert len(server.heard) == 7
    assert all(KEY.encode() not in path.read_bytes() for path in folder.iterdir())
    return made


def test_the_same_story_ends_in_the_same_state(tmp_path):
    """A plan, three tools side by side, an agent, an interrupt in mid-stream, on in a new process: equal everywhere."""
    stories = {name: told(wire, tmp_path / name) for name, wire in WIRES.items()}
    (states, (first, second)), (after, (third,)) = stories["chat"]
    assert first[:3] == ["completed", None, "There are twelve."]
    assert first[6][:4] == [["update_plan", "completed"], *([["look", "completed"]] * 3)]
    assert second[:3] == ["aborted", "interrupted", LETTER]
    assert third[:3] == ["completed", None, "Come to the fair."]
    assert states["fair"]["plan"] == after["fair"]["plan"] == {"explanation": None, **PLAN}
    assert states["fair.stalls"]["usage"] == {**USED, "cost_usd": 0.0}
    for name in WIRES:
        assert stories[name] == stories["chat"], name


ORDER = ("messages", "responses", "chat", "messages", "chat", "responses", "messages")


def change(lines: list[Line]) -> Spoken:
    """A thought, a text and two calls; then a last word; the turn about letters hangs."""
    last = [line.text for line in lines if line.who == "user"][-1]
    if lines[-1].who == "result":
        return Spoken(text=f"Seen: {lines[-1].text}.", thought="All seen.")
    if "letter" in last:
        return Spoken(text=LETTER, thought="A long one.", hangs=True)
    return Spoken(text="I look.", thought="Two of them.", calls=LOOKS[:2])


async def test_a_history_is_valid_whatever_provider_wrote_it(tmp_path, monkeypatch):
    """Turn by turn another provider goes on: with calls, thoughts and what an interrupt left; each takes all of it."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, KEY)
    store = f"sqlite:///{tmp_path / 'turns.db'}"
    heard = 0
    for number, name in enumerate(ORDER, 1):
        wire = WIRES[name]
        with sse_server(serve(wire, change)) as server:
            config = RuntimeConfig(model=ModelConfig(name=wire.model, base_url=server.url + wire.base, **wire.settings))
            async with open_runtime(config, store=store, tools=[look]) as rt:
                session = await (rt.create("s") if number == 1 else rt.open("s"))
                ended = await session.run(f"Look, number {number}.")
                assert (ended.reason, ended.error, ended.last_message) == ("completed", None, "Seen: four.")
                reading = asyncio.create_task(letter(session))
                await asyncio.sleep(0.05)
                await session.submit("Now a letter.")
                await asyncio.wait_for(reading, 10)
                answered = await session.interrupt()
                assert isinstance(answered, Interrupting)
                cut = await session.wait(answered.turn)
                assert (cut.reason, cut.last_message) == ("aborted", LETTER)
        lines = wire.lines(server.heard[-1].json)
        assert [len(line.calls) for line in lines if line.calls] == [2] * number
        assert [line.text for line in lines if line.who == "result"] == ["five", "four"] * number
        heard += len(server.heard)
    assert heard == 3 * len(ORDER)

"""Streams as providers send them, from files: the same answer wherever their bytes are cut."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
import trio
from tests.pure.openai_samples import Said, prompt
from tests.sse_server import Answer, in_pieces, sse_server

from callboard.actors.events import Usage
from callboard.actors.model import Model, Reply, ToolSpec, User
from callboard.runtime.models import AnthropicModel, OpenAIModel
from callboard.runtime.settings import ModelConfig

FOLDER = Path(__file__).parents[1] / "recorded"
KEY = "sk-planted-0123456789"
WHERE = {"type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"]}
LOOK = ToolSpec("look", "Look.", {**WHERE, "additionalProperties": False})
TEXT = "Zwölf Stände 🎪 — und ein Zelt."
LOOKS = [("look", {"where": "north – am Fluß"}), ("look", {"where": "east"})]
SPLITS = 12


@attrs.frozen
class Recorded:
    """What a file comes to."""

    model: Callable[[str], Model]
    text: str = ""
    calls: tuple[tuple[str, object], ...] = ()
    usage: Usage | None = None
    thought: str = ""


def responses(url: str) -> Model:
    """A model of the Responses API."""
    return OpenAIModel("gpt-x", ModelConfig(base_url=url + "/v1"))


def chat(url: str) -> Model:
    """A model of Chat Completions."""
    return OpenAIModel("gpt-x", ModelConfig(base_url=url + "/v1", api="chat"))


def messages(url: str) -> Model:
    """A model of the Messages API."""
    return AnthropicModel("claude-x", ModelConfig(base_url=url))


USED = Usage(412, 384, 77, 40)
RECORDED = {
    "responses-text": Recorded(responses, text=TEXT, usage=USED),
    "responses-tools": Recorded(
        responses, "", tuple(LOOKS), USED, "**Counting the stalls**\n\nNorth first, then east."
    ),
    "chat-text": Recorded(chat, text=TEXT, usage=USED),
    "chat-tools": Recorded(chat, calls=tuple(LOOKS), usage=USED),
    "messages-text": Recorded(messages, text=TEXT, usage=Usage(412, 384, 77)),
    "messages-tools": Recorded(messages, "", tuple(LOOKS), Usage(412, 384, 77), "North first."),
    "chat-compatible": Recorded(chat, calls=tuple(LOOKS[:1]), thought="North first."),
}


def cuts(body: bytes, name: str) -> list[tuple[int, ...]]:
    """Places to cut a body at: nowhere, everywhere, and at random."""
    chance = random.Random(name)
    some = (chance.sample(range(len(body)), chance.randint(1, 60)) for _ in range(SPLITS))
    return [(), tuple(range(len(body))), *map(tuple, some)]


def told(reply: Reply, said: Said) -> Recorded:
    """What an answer came to, and what was seen of it as it streamed."""
    shown = {part: "".join(piece for piece, of in said if of == part) for part in ("text", "reasoning")}
    assert shown["text"] == reply.text
    calls = tuple((call.name, arguments_of(call.arguments)) for call in reply.calls)
    return Recorded(responses, reply.text, calls, reply.usage, shown["reasoning"])


def arguments_of(arguments: object) -> object:
    """The arguments of a call, decoded."""
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def test_every_file_is_listed():
    """Each file of the folder is served by the next test."""
    assert {path.stem for path in FOLDER.glob("*.sse")} == RECORDED.keys()


@pytest.mark.parametrize("name", RECORDED)
def test_the_same_answer_wherever_a_stream_is_cut(name, monkeypatch):
    """Whole, byte by byte and at random places: text, thoughts, calls and usage are the same."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    body = (FOLDER / f"{name}.sse").read_bytes()
    expected = RECORDED[name]
    scripts = [Answer(pieces=in_pieces(body, *at)) for at in cuts(body, name)]

    async def asked(url: str) -> list[Recorded]:
        model, made = expected.model(url), list[Recorded]()
        for _ in scripts:
            said = Said()
            made.append(told(await model.reply(prompt(User("hi"), tools=(LOOK,)), said), said))
        await model.aclose()  # type: ignore[attr-defined]
        return made

    with sse_server(scripts) as server:
        made = trio.run(asked, server.url)
    assert made == [attrs.evolve(expected, model=responses)] * len(scripts)

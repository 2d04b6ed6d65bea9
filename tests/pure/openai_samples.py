"""What the tests of OpenAI models share: prompts, events as the protocols write them, and replies made of them."""

from typing import Any

from hypothesis import strategies as st

from callboard.actors.model import Prompt, Reply, ToolSpec
from callboard.runtime.models.openai_catalogue import catalogue
from callboard.runtime.models.openai_chat import ChatReply
from callboard.runtime.models.openai_responses import ResponsesReply
from callboard.runtime.models.refusals import Asked
from callboard.runtime.models.stream import DONE

ASKED = Asked(model="gpt-x", host="api.openai.com", variable="OPENAI_API_KEY", secrets=("sk-planted-key",))
OPEN = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
LOOK = ToolSpec("look.up", "Look.", {**OPEN, "additionalProperties": False})
CUT = ToolSpec(
    "cut",
    "Cut.",
    {
        "type": "object",
        "properties": {"path": {"type": "string"}, "limit": {"type": "integer", "minimum": 1}},
        "required": ["path"],
        "additionalProperties": False,
    },
)
FREE = ToolSpec("free", "Anything.", {"type": "object", "additionalProperties": {"type": "string"}})
TOOLS = (LOOK, CUT, FREE)
USAGE = {
    "input_tokens": 50,
    "input_tokens_details": {"cached_tokens": 20},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 4},
    "total_tokens": 59,
}


def nested(leaf: st.SearchStrategy[Any], levels: int = 2) -> st.SearchStrategy[Any]:
    """Values of any shape, so deep."""
    made = leaf
    for _ in range(levels):
        made = leaf | st.lists(made, max_size=3) | st.dictionaries(st.text(max_size=3), made, max_size=3)
    return made


VALUES = nested(st.none() | st.booleans() | st.integers(-2, 5) | st.text(max_size=3))


def prompt(*messages: Any, **more: Any) -> Prompt:
    """What a session asks."""
    return Prompt("s", 1, 1, more.pop("system", ""), messages, **more)


class Said(list[tuple[str, str]]):
    """All that was said, with its part."""

    def __call__(self, piece: str, part: str = "text", /) -> None:
        self.append((piece, part))


def message(text: str, place: int = 0, **more: Any) -> list[dict[str, Any]]:
    """The events of a message in two deltas."""
    item = {
        "type": "message",
        "id": f"msg_{place}",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
        **more,
    }
    half = len(text) // 2
    return [
        {"type": "response.output_item.added", "output_index": place, "item": {**item, "content": []}},
        *(
            {"type": "response.output_text.delta", "output_index": place, "content_index": 0, "delta": delta}
            for delta in (text[:half], text[half:])
        ),
        {"type": "response.output_item.done", "output_index": place, "item": item},
    ]


def function(name: str, arguments: str, place: int, id_: str) -> list[dict[str, Any]]:
    """The events of a call."""
    item = {"type": "function_call", "id": f"fc_{place}", "call_id": id_, "name": name, "status": "completed"}
    return [
        {"type": "response.output_item.added", "output_index": place, "item": {**item, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "output_index": place, "delta": arguments},
        {"type": "response.output_item.done", "output_index": place, "item": {**item, "arguments": arguments}},
    ]


def reasoning(place: int, encrypted: str = "e", *summary: str) -> list[dict[str, Any]]:
    """The events of a thought."""
    item = {
        "type": "reasoning",
        "id": f"rs_{place}",
        "summary": [{"type": "summary_text", "text": text} for text in summary],
        "encrypted_content": encrypted,
        "status": None,
    }
    return [
        *(
            {
                "type": "response.reasoning_summary_text.delta",
                "output_index": place,
                "summary_index": at,
                "delta": text,
            }
            for at, text in enumerate(summary)
        ),
        {"type": "response.output_item.done", "output_index": place, "item": item},
    ]


def ended(status: str = "completed", **more: Any) -> dict[str, Any]:
    """The last event."""
    return {"type": f"response.{status}", "response": {"status": status, "output": [], "usage": USAGE, **more}}


def heard(*events: Any, said: Said | None = None, model: str = "gpt-x") -> Reply:
    """The reply of Responses events."""
    made = ResponsesReply(model, catalogue(TOOLS, "responses", strict=True), ASKED, Said() if said is None else said)
    for event in events:
        made.feed(event)
    return made.reply()


def chunk(finish: Any = None, **delta: Any) -> dict[str, Any]:
    """One chunk of a chat."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def asks(*calls: Any, finish: Any = None) -> dict[str, Any]:
    """A chunk with pieces of calls: (index, id, name, arguments), each None where it is left out."""
    made = []
    for index, id_, name, arguments in calls:
        function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
        piece = {"index": index, "id": id_, "function": function}
        made.append({key: value for key, value in piece.items() if value is not None})
    return chunk(finish, tool_calls=made)


def chatted(*chunks: Any, said: Said | None = None) -> Reply:
    """The reply of chat chunks; "[DONE]" for the last word."""
    made = ChatReply(catalogue(TOOLS, "chat", strict=False), ASKED, Said() if said is None else said)
    for one in chunks:
        made.feed(DONE if one == "[DONE]" else one)
    return made.reply()

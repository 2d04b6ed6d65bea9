"""The server's side of three wires: requests as neutral lines, checked strictly, and answers as their streams.

One script serves all three, so that a story must end in the same state over each.
"""

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import attrs
from pydantic import TypeAdapter

from .sse_server import Answer, Heard, Piece, sse

Who = Literal["system", "user", "model", "result"]


@attrs.frozen
class Line:
    """One thing that a request tells: who said what, and the calls that an answer of the model asked for."""

    who: Who
    text: str
    calls: tuple[tuple[str, str, Any], ...] = ()  # id, name, arguments
    id: str = ""  # of the call that a result is of


@attrs.frozen(kw_only=True)
class Spoken:
    """What the model says: a thought, a text and calls; `hangs` after the text, as when it has much more to say."""

    text: str = ""
    thought: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    hangs: bool = False


@attrs.frozen
class Wire:
    """One format: where it is asked, its requests as lines, and an answer as events."""

    name: str
    model: str
    path: str
    base: str  # what follows the server's address in `base_url`
    settings: Mapping[str, Any]
    lines: Callable[[Any], list[Line]]
    events: Callable[[Spoken, int], bytes]


USED = {"input": 120, "cached": 100, "output": 30}  # of each answer
ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
PIECE = 7  # characters in one delta


def serve(wire: Wire, play: Callable[[list[Line]], Spoken]) -> Callable[[Heard], Answer]:
    """A script for the loopback server: each request is checked and played."""

    def script(heard: Heard) -> Answer:
        assert heard.path.partition("?")[0] == wire.path, heard.path
        lines = wire.lines(heard.json)
        spoken = play(lines)
        body = wire.events(spoken, len(lines))
        return Answer(pieces=(body, Piece(cut="hang")) if spoken.hangs else (body,))

    return script


def pieces(text: str) -> Iterator[str]:
    """A text as it streams."""
    for at in range(0, len(text), PIECE):
        yield text[at : at + PIECE]


def call_id(asked: int, at: int) -> str:
    """The id of a call: no other request has as many lines."""
    return f"call_{asked}_{at}"


def check_pairs(lines: list[Line]) -> None:
    """The results of an answer's calls stand right behind it, one for each, and ids are never used twice."""
    open_, seen = set[str](), set[str]()
    for line in lines:
        if line.who == "result":
            assert line.id in open_, f"a result of no call: {line.id}"
            open_.discard(line.id)
            continue
        assert not open_, f"no result of {open_}"
        for id_, name, arguments in line.calls:
            assert ID.fullmatch(id_), id_
            assert ID.fullmatch(name), name
            assert isinstance(arguments, dict), arguments
            assert id_ not in seen, f"{id_} twice"
            seen.add(id_)
            open_.add(id_)
    assert not open_, f"no result of {open_}"
    assert lines, "nothing was asked"


@functools.cache
def _kind(name: str) -> TypeAdapter[Any]:
    """How an SDK itself describes a part of a request."""
    if name == "chat":
        from openai.types.chat import ChatCompletionMessageParam

        return TypeAdapter(ChatCompletionMessageParam)
    if name == "messages":
        from anthropic.types import MessageParam

        return TypeAdapter(MessageParam)
    from openai.types.responses import ResponseInputItemParam

    return TypeAdapter(ResponseInputItemParam)


def whole(value: Any) -> Any:
    """A value with its lazy parts gone through."""
    if isinstance(value, Mapping):
        return {key: whole(one) for key, one in value.items()}
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        return value
    return [whole(one) for one in value]


def check_types(name: str, items: list[Any]) -> None:
    """Each item is what the provider's SDK says that one is."""
    for item in items:
        whole(_kind(name).validate_python(item))


# -- Responses ---------------------------------------------------------------------------------------------------------


def responses_lines(body: Any) -> list[Line]:
    """The lines of a Responses request; thoughts that were sent back must be followed by what they led to."""
    check_types("responses", body["input"])
    lines = [Line("system", body["instructions"])] if body.get("instructions") else []
    thinking = False
    for item in body["input"]:
        kind = item["type"]
        if kind == "reasoning":
            assert item["encrypted_content"].startswith("sealed:"), item
            assert not thinking
            thinking = True
            continue
        if kind == "message":
            assert item["content"].strip(), item
            assert not thinking or item["role"] == "assistant", "a thought with nothing behind it"
            who: Who = "model" if item["role"] == "assistant" else "user"
            lines.append(Line(who, item["content"]))
        elif kind == "function_call":
            asked = (item["call_id"], item["name"], json.loads(item["arguments"]))
            last = lines[-1] if lines and lines[-1].who == "model" else None
            if last is not None:
                lines[-1] = attrs.evolve(last, calls=(*last.calls, asked))
            else:
                lines.append(Line("model", "", (asked,)))
        else:
            assert kind == "function_call_output", kind
            assert not thinking, "a thought with nothing behind it"
            lines.append(Line("result", item["output"], id=item["call_id"]))
        thinking = False
    assert not thinking, "a thought with nothing behind it"
    check_pairs(lines)
    return lines


def responses_events(spoken: Spoken, asked: int) -> bytes:
    """The events of a Responses stream."""
    made: list[Any] = [{"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}]
    place = 0
    if spoken.thought:
        item = {"type": "reasoning", "id": f"rs_{asked}", "summary": [{"type": "summary_text", "text": spoken.thought}]}
        made += [
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "summary": []}},
            *(
                {
                    "type": "response.reasoning_summary_text.delta",
                    "output_index": 0,
                    "item_id": item["id"],
                    "summary_index": 0,
                    "delta": piece,
                }
                for piece in pieces(spoken.thought)
            ),
            {
                "type": "response.output_item.done",
                "output_index": 0,
                "item": {**item, "encrypted_content": f"sealed:{asked}"},
            },
        ]
        place = 1
    if spoken.text:
        text = {"type": "message", "id": f"msg_{asked}", "role": "assistant", "status": "in_progress", "content": []}
        made.append({"type": "response.output_item.added", "output_index": place, "item": text})
        made += (
            {"type": "response.output_text.delta", "output_index": place, "content_index": 0, "delta": piece}
            for piece in pieces(spoken.text)
        )
        if spoken.hangs:
            return sse(*made)
        content = [{"type": "output_text", "text": spoken.text, "annotations": []}]
        done = {**text, "status": "completed", "content": content}
        made.append({"type": "response.output_item.done", "output_index": place, "item": done})
        place += 1
    for at, (name, arguments) in enumerate(spoken.calls):
        call = {"type": "function_call", "id": f"fc_{at}", "call_id": call_id(asked, at), "name": name}
        written = json.dumps(arguments)
        made.append({"type": "response.output_item.added", "output_index": place, "item": {**call, "arguments": ""}})
        made += (
            {"type": "response.function_call_arguments.delta", "output_index": place, "delta": piece}
            for piece in pieces(written)
        )
        done = {**call, "arguments": written, "status": "completed"}
        made.append({"type": "response.output_item.done", "output_index": place, "item": done})
        place += 1
    usage = {
        "input_tokens": USED["input"],
        "input_tokens_details": {"cached_tokens": USED["cached"]},
        "output_tokens": USED["output"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": USED["input"] + USED["output"],
    }
    made.append({"type": "response.completed", "response": {"status": "completed", "output": [], "usage": usage}})
    return sse(*made)


# -- Chat Completions --------------------------------------------------------------------------------------------------


def chat_lines(body: Any) -> list[Line]:
    """The lines of a chat."""
    check_types("chat", body["messages"])
    lines: list[Line] = []
    for message in body["messages"]:
        role, text = message["role"], message.get("content")
        if role == "tool":
            lines.append(Line("result", text, id=message["tool_call_id"]))
        elif role == "assistant":
            calls = message.get("tool_calls", [])
            assert (text is not None and text.strip()) or calls, message
            asked = [(one["id"], one["function"]["name"], json.loads(one["function"]["arguments"])) for one in calls]
            lines.append(Line("model", text or "", tuple(asked)))
        else:
            assert text.strip(), message
            lines.append(Line("system" if role == "system" else "user", text))
    check_pairs(lines)
    return lines


def chat_events(spoken: Spoken, asked: int) -> bytes:
    """The chunks of a chat."""
    made: list[Any] = []

    def chunk(finish: str | None = None, **delta: Any) -> None:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        made.append({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], "usage": None})

    chunk(role="assistant", content="")
    for piece in pieces(spoken.thought):
        chunk(reasoning_content=piece)
    for piece in pieces(spoken.text):
        chunk(content=piece)
    if spoken.hangs:
        return sse(*made, names=False)
    for at, (name, arguments) in enumerate(spoken.calls):
        function = {"name": name, "arguments": ""}
        chunk(tool_calls=[{"index": at, "id": call_id(asked, at), "type": "function", "function": function}])
        for piece in pieces(json.dumps(arguments)):
            chunk(tool_calls=[{"index": at, "function": {"arguments": piece}}])
    chunk("tool_calls" if spoken.calls else "stop")
    details = {"cached_tokens": USED["cached"]}
    usage = {"prompt_tokens": USED["input"], "completion_tokens": USED["output"], "prompt_tokens_details": details}
    made.append({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [], "usage": usage})
    return sse(*made, "[DONE]", names=False)


# -- Messages ----------------------------------------------------------------------------------------------------------


def messages_lines(body: Any) -> list[Line]:
    """The lines of a Messages request: roles alternate, results open the message behind their calls."""
    check_types("messages", body["messages"])
    assert body["max_tokens"] > 0
    system = body.get("system") or ""
    lines = [Line("system", system if isinstance(system, str) else "\n".join(one["text"] for one in system))]
    lines = [line for line in lines if line.text]
    roles = [message["role"] for message in body["messages"]]
    assert roles[::2] == ["user"] * len(roles[::2]), roles
    assert roles[1::2] == ["assistant"] * len(roles[1::2]), roles
    assert roles[-1] == "user", roles
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        assert blocks, message
        lines += (_model_lines if message["role"] == "assistant" else _user_lines)(blocks)
    check_pairs(lines)
    return lines


def _user_lines(blocks: list[Any]) -> list[Line]:
    lines: list[Line] = []
    for block in blocks:
        if block["type"] == "tool_result":
            assert not lines or lines[-1].who == "result", "results come first"
            content = block.get("content", "")
            text = content if isinstance(content, str) else "".join(one["text"] for one in content)
            lines.append(Line("result", text, id=block["tool_use_id"]))
        else:
            assert block["type"] == "text"
            assert block["text"].strip(), block
            lines.append(Line("user", block["text"]))
    return lines


def _model_lines(blocks: list[Any]) -> list[Line]:
    text, calls = list[str](), list[tuple[str, str, Any]]()
    for block in blocks:
        if block["type"] in ("thinking", "redacted_thinking"):
            assert block.get("data") or block["signature"].startswith("sealed:"), block
        elif block["type"] == "tool_use":
            calls.append((block["id"], block["name"], block["input"]))
        else:
            assert block["type"] == "text"
            assert block["text"].strip(), block
            assert not calls, "a text behind a call"
            text.append(block["text"])
    assert text or calls, "an answer of thoughts alone"
    return [Line("model", "".join(text), tuple(calls))]


def messages_events(spoken: Spoken, asked: int) -> bytes:
    """The events of a Messages stream."""
    usage = {
        "input_tokens": USED["input"] - USED["cached"],
        "cache_read_input_tokens": USED["cached"],
        "cache_creation_input_tokens": 0,
        "output_tokens": 1,
    }
    begun = {"id": f"msg_{asked}", "type": "message", "role": "assistant", "model": "m", "content": []}
    made: list[Any] = [
        {"type": "message_start", "message": {**begun, "stop_reason": None, "stop_sequence": None, "usage": usage}},
        {"type": "ping"},
    ]
    place = 0

    def block(start: dict[str, Any], deltas: list[dict[str, Any]], *, stops: bool = True) -> None:
        nonlocal place
        made.append({"type": "content_block_start", "index": place, "content_block": start})
        made.extend({"type": "content_block_delta", "index": place, "delta": delta} for delta in deltas)
        if stops:
            made.append({"type": "content_block_stop", "index": place})
        place += 1

    if spoken.thought:
        said = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(spoken.thought)]
        sealed = {"type": "signature_delta", "signature": f"sealed:{asked}"}
        block({"type": "thinking", "thinking": "", "signature": ""}, [*said, sealed])
    if spoken.text:
        texts = [{"type": "text_delta", "text": piece} for piece in pieces(spoken.text)]
        block({"type": "text", "text": ""}, texts, stops=not spoken.hangs)
    if spoken.hangs:
        return sse(*made)
    for at, (name, arguments) in enumerate(spoken.calls):
        written = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(json.dumps(arguments))]
        start = {"type": "tool_use", "id": call_id(asked, at), "name": name, "input": {}}
        block(start, [{"type": "input_json_delta", "partial_json": ""}, *written])
    reason = "tool_use" if spoken.calls else "end_turn"
    ended = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}}
    made += [{**ended, "usage": {"output_tokens": USED["output"]}}, {"type": "message_stop"}]
    return sse(*made)


WIRES = {
    "responses": Wire(
        "responses", "openai:gpt-x", "/v1/responses", "/v1", {"api": "responses"}, responses_lines, responses_events
    ),
    "chat": Wire("chat", "openai:gpt-x", "/v1/chat/completions", "/v1", {"api": "chat"}, chat_lines, chat_events),
    "messages": Wire("messages", "anthropic:claude-x", "/v1/messages", "", {}, messages_lines, messages_events),
}

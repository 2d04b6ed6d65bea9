"""Anthropic models in a runtime: thoughts through the log and back, failed calls, pauses, and errors in mid-stream."""

from typing import Any

import pytest
from tests.sse_server import Answer, Heard, sse, sse_server

from callboard.actors import ToolError, tool
from callboard.runtime import ModelConfig, RuntimeConfig, open_runtime
from callboard.runtime.models.anthropic_input import GO_ON

SEALED = {"type": "thinking", "thinking": "", "signature": ""}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted key."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-planted-0123456789")


@tool
async def look(where: str) -> str:
    """Look there."""
    raise ToolError(f"nothing to see in the {where}")


def part(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of one part of an answer."""
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def thought(index: int, text: str) -> list[dict[str, Any]]:
    """A thought with its seal."""
    thinking = {"type": "thinking_delta", "thinking": text}
    return part(index, SEALED, thinking, {"type": "signature_delta", "signature": f"seal of {text}"})


def said(index: int, text: str) -> list[dict[str, Any]]:
    """A text."""
    return part(index, {"type": "text", "text": ""}, {"type": "text_delta", "text": text})


def whole(*events: dict[str, Any], reason: str = "end_turn") -> Answer:
    """A stream with these events between its first and its last."""
    usage = {"input_tokens": 3, "cache_creation_input_tokens": 4, "cache_read_input_tokens": 5, "output_tokens": 1}
    first = {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": usage}}
    last = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 6}}
    return Answer(pieces=(sse(first, {"type": "ping"}, *events, last, {"type": "message_stop"}),))


def sent(heard: Heard, at: int) -> list[dict[str, Any]]:
    """What one message of a request says, without its marks."""
    blocks: list[dict[str, Any]] = heard.json["messages"][at]["content"]
    return [{name: value for name, value in block.items() if name != "cache_control"} for block in blocks]


def config_for(url: str) -> RuntimeConfig:
    """A runtime whose model is at this address."""
    return RuntimeConfig(model=ModelConfig(name="anthropic:claude-x", base_url=url))


async def test_a_loop_of_tools_is_thought_through_and_opened_again(tmp_path):
    """Thoughts go back exactly and in place, a failed call says so, and after a restart the history is the same."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    asking = whole(
        *(*thought(0, "first"), *said(1, "I look"), *thought(2, "then"), *said(3, "north")),
        *part(4, call, {"type": "input_json_delta", "partial_json": '{"where":"north"}'}),
        reason="tool_use",
    )
    script = [asking, whole(*thought(0, "so"), *said(1, "Nothing.")), whole(*said(0, "Bye."))]
    with sse_server(script) as server:
        config, store = config_for(server.url), f"sqlite:///{tmp_path / 's.db'}"
        async with open_runtime(config, store=store, tools=[look]) as rt:
            first = await (await rt.create("s")).run("go")
        async with open_runtime(config, store=store, tools=[look]) as rt:
            second = await (await rt.open("s")).run("bye")
    assert (first.last_message, second.last_message) == ("Nothing.", "Bye.")
    loop = [
        {"type": "thinking", "thinking": "first", "signature": "seal of first"},
        {"type": "text", "text": "I look"},
        {"type": "thinking", "thinking": "then", "signature": "seal of then"},
        {"type": "text", "text": "north"},
        {**call, "input": {"where": "north"}},
    ]
    failed = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "nothing to see in the north"}
    for heard in server.heard[1:]:
        assert sent(heard, 1) == loop
        assert sent(heard, 2) == [{**failed, "is_error": True}]
    assert sent(server.heard[2], 3)[0] == {"type": "thinking", "thinking": "so", "signature": "seal of so"}


async def test_a_pause_goes_on():
    """The turn goes on with what was said so far, and the user's word stands last."""
    with sse_server([whole(*said(0, "Wait."), reason="pause_turn"), whole(*said(0, "Done."))]) as server:
        async with open_runtime(config_for(server.url), store="memory") as rt:
            ended = await (await rt.create()).run("go")
    assert (ended.reason, ended.last_message) == ("completed", "Done.")
    assert [sent(server.heard[1], at)[0]["text"] for at in range(3)] == ["go", "Wait.", GO_ON]


@pytest.mark.parametrize(
    ("kind", "requests"), [("overloaded_error", 2), ("api_error", 2), ("invalid_request_error", 1)]
)
async def test_an_error_in_mid_stream(kind: str, requests: int):
    """What may pass is asked again and the call before it never ran; what cannot pass ends the turn."""
    call = part(0, {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"where": "north"}})
    error = {"type": "error", "error": {"type": kind, "message": "Broken."}}
    with sse_server([Answer(pieces=(sse(*call, error),)), whole(*said(0, "Done."))]) as server:
        async with open_runtime(config_for(server.url), store="memory", tools=[look]) as rt:
            ended = await (await rt.create()).run("go")
    assert (len(server.heard), ended.receipts) == (requests, ())
    if requests == 2:
        assert (ended.error, ended.last_message) == (None, "Done.")
    else:
        assert ended.error is not None
        assert ended.error.endswith("did not take the request: Broken.")

"""From chat chunks to replies, in the dialects of servers that speak like OpenAI."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.errors import ModelError
from callboard.actors.events import Call, Usage
from callboard.actors.model import STREAM_CLOSED, Reply
from callboard.runtime.models.wire import CUT_ARGUMENTS

from .openai_samples import VALUES, Said, asks, chatted, chunk

ONE = Call("cut", '{"path":"x"}', "c1")
TWO = Call("look.up", '{"path":"y"}', "c2")
LOOK_UP = "look_up_c2199496"
STOP = chunk("stop")
COUNTS = {
    "prompt_tokens": 50,
    "completion_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 20},
    "completion_tokens_details": {"reasoning_tokens": 4},
}

DIALECTS: dict[str, tuple[tuple[Any, ...], Reply]] = {
    "openai": (
        (
            chunk(role="assistant", content=""),
            chunk(content="he"),
            chunk(content="llo"),
            STOP,
            {"choices": [], "usage": COUNTS},
            "[DONE]",
        ),
        Reply("hello", [], Usage(50, 20, 9, 4)),
    ),
    "no last word": ((chunk(content="hello"), STOP), Reply("hello", [])),
    "no reason, but a last word": ((chunk(content="hello"), "[DONE]"), Reply("hello", [])),
    "an empty reason": ((chunk(content="hello"), chunk(""), "[DONE]"), Reply("hello", [])),
    "a role in every delta": (
        (chunk(role="assistant", content="he"), chunk(role="assistant", content="llo"), STOP, "[DONE]"),
        Reply("hello", []),
    ),
    "content in parts": ((chunk(content=[{"type": "text", "text": "hello"}]), STOP), Reply("hello", [])),
    "an answer in one piece": (
        ({"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}},),
        Reply("hello", [], Usage(3)),
    ),
    "usage in every chunk": (
        ({**chunk(content="hello"), "usage": {"prompt_tokens": 3, "completion_tokens": 1}}, {**STOP, "usage": None}),
        Reply("hello", [], Usage(3, 0, 1)),
    ),
    "another name for cached tokens": (
        (STOP, {"choices": [], "usage": {"prompt_tokens": 9, "prompt_cache_hit_tokens": 4, "completion_tokens": 1}}),
        Reply("", [], Usage(9, 4, 1)),
    ),
    "no choices": (({"choices": None}, {"choices": []}, {}, chunk(content="hello"), STOP), Reply("hello", [])),
    "deltas of nothing": (
        (chunk(), {"choices": [{"index": 0, "delta": None}]}, {"choices": [None]}, chunk(content=None), STOP),
        Reply("", []),
    ),
    "a refusal": ((chunk(refusal="I "), chunk(refusal="won't."), STOP), Reply("I won't.", [])),
    "a call in pieces": (
        (
            asks((0, "c1", "cut", "")),
            asks((0, None, None, '{"path"')),
            asks((0, None, None, ':"x"}')),
            chunk("tool_calls"),
        ),
        Reply("", [ONE]),
    ),
    "parallel calls": (
        (
            asks((0, "c1", "cut", "")),
            asks((1, "c2", LOOK_UP, "")),
            asks((1, None, None, '{"path":'), (0, None, None, '{"path":')),
            asks((0, None, None, '"x"}'), (1, None, None, '"y"}')),
            chunk("tool_calls"),
        ),
        Reply("", [ONE, TWO]),
    ),
    "calls in one piece": (
        (asks((0, "c1", "cut", '{"path":"x"}'), (1, "c2", LOOK_UP, '{"path":"y"}'), finish="tool_calls"),),
        Reply("", [ONE, TWO]),
    ),
    "the same place for each call": (
        (asks((0, "c1", "cut", '{"path":"x"}')), asks((0, "c2", LOOK_UP, '{"path":"y"}')), STOP),
        Reply("", [ONE, TWO]),
    ),
    "no places": (
        (
            asks((None, "c1", "cut", '{"path"')),
            asks((None, None, None, ':"x"}')),
            asks((None, "c2", LOOK_UP, '{"path":"y"}')),
            STOP,
        ),
        Reply("", [ONE, TWO]),
    ),
    "no places and no ids": (
        (asks((None, None, "cut", '{"path":"x"}')), asks((None, None, LOOK_UP, '{"path":"y"}')), STOP),
        Reply("", [Call("cut", '{"path":"x"}'), Call("look.up", '{"path":"y"}')]),
    ),
    "the id and the name in every delta": (
        (asks((0, "c1", "cut", '{"path"')), asks((0, "c1", "cut", ':"x"}')), STOP),
        Reply("", [ONE]),
    ),
    "the id and the name in every delta, no places": (
        (asks((None, "c1", "cut", '{"path"')), asks((None, "c1", "cut", ':"x"}')), STOP),
        Reply("", [ONE]),
    ),
    "an empty id later": ((asks((0, "c1", "cut", '{"path"')), asks((0, "", "", ':"x"}')), STOP), Reply("", [ONE])),
    "arguments as an object": (
        (
            chunk(
                "tool_calls", tool_calls=[{"index": 0, "id": "c1", "function": {"name": "cut", "arguments": {"a": 1}}}]
            ),
        ),
        Reply("", [Call("cut", {"a": 1}, "c1")]),
    ),
    "no arguments at all": ((asks((0, "c1", "cut", None)), STOP), Reply("", [Call("cut", "", "c1")])),
    "calls and the reason stop": ((asks((0, "c1", "cut", '{"path":"x"}')), STOP), Reply("", [ONE])),
    "the reason tool_calls and none": ((chunk(content="hi"), chunk("tool_calls")), Reply("hi", [])),
    "the old form of a call": (
        (
            chunk(function_call={"name": "cut", "arguments": '{"path":'}),
            chunk("function_call", function_call={"arguments": '"x"}'}),
        ),
        Reply("", [Call("cut", '{"path":"x"}')]),
    ),
    "a call in both forms": (
        (
            chunk(role="assistant", content=None, function_call=None, tool_calls=None),
            *(
                chunk(
                    function_call={"name": "cut", "arguments": piece},
                    tool_calls=[
                        {"index": 0, "id": "c1", "type": "function", "function": {"name": "cut", "arguments": piece}}
                    ],
                )
                for piece in ('{"path":', '"x"}')
            ),
            chunk("tool_calls", function_call={"name": "cut", "arguments": ""}),
        ),
        Reply("", [ONE]),
    ),
    "a custom call": (
        (
            chunk(
                "tool_calls",
                tool_calls=[{"index": 0, "id": "c1", "type": "custom", "custom": {"name": "sh", "input": "ls"}}],
            ),
        ),
        Reply("", [Call("sh", "ls", "c1", "custom")]),
    ),
    "a call without a name": ((asks((0, "c1", None, "{}")), STOP), Reply("", [])),
    "cut at its limit": ((chunk(content="hel"), chunk("length")), Reply("hel", [], truncated=True)),
    "a call cut at its limit": (
        (asks((0, "c1", "cut", '{"path":"x"}')), asks((1, "c2", "cut", '{"pa')), chunk("length")),
        Reply("", [ONE, Call("cut", '{"pa', "c2", flaw=CUT_ARGUMENTS)], truncated=True),
    ),
    "cut behind a whole call": (
        (asks((0, "c1", "cut", '{"path":"x"}')), chunk("length")),
        Reply("", [ONE], truncated=True),
    ),
    "several choices": (
        ({"choices": [*chunk(content="hi")["choices"], *chunk(content="ho")["choices"]]}, STOP),
        Reply("hi", []),
    ),
}


@pytest.mark.parametrize(("chunks", "reply"), DIALECTS.values(), ids=DIALECTS)
def test_dialects(chunks, reply):
    """Every way of writing an answer gives the answer that was meant."""
    assert reply == chatted(*chunks)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_thoughts_are_shown_and_are_no_text(name):
    """Whatever a server calls what its model thinks, it is shown as reasoning."""
    said = Said()
    reply = chatted(chunk(**{name: "Hm."}, content=""), chunk(**{name: None}, content="hi"), STOP, said=said)
    assert ("hi", [("Hm.", "reasoning"), ("hi", "text")]) == (reply.text, said)


def test_thoughts_under_two_names_are_shown_once():
    """Servers that write both names write the same under them."""
    said = Said()
    chatted(chunk(reasoning="Hm.", reasoning_content="Hm."), STOP, said=said)
    assert [("Hm.", "reasoning")] == said


FAILED: dict[str, tuple[Any, str, bool]] = {
    "an error object": (
        {"error": {"message": "Boom", "type": "server_error", "code": None}},
        "api.openai.com failed: Boom",
        True,
    ),
    "an error text": ({"error": "upstream is gone"}, "api.openai.com broke off its answer: upstream is gone", True),
    "an error in an answer": (
        {**chunk(content=""), "error": {"code": 429, "message": "Slow down", "type": "rate_limit_error"}},
        "api.openai.com limits how often it is asked: Slow down",
        True,
    ),
    "an object that is an error": (
        {"object": "error", "message": "the context length is 4096", "code": 40303},
        "the conversation does not fit the window of gpt-x: the context length is 4096",
        False,
    ),
    "filtered": (chunk("content_filter"), "api.openai.com cut this answer on grounds of its content.", False),
    "ended by an error": (chunk("error"), "api.openai.com failed: it says no more", True),
}


@pytest.mark.parametrize(("event", "text", "retryable"), FAILED.values(), ids=FAILED)
def test_answers_that_fail_on_the_way(event, text, retryable):
    """Each says in a sentence why, and whether it is asked again."""
    with pytest.raises(ModelError) as failed:
        chatted(chunk(content="half"), event)
    assert (text, retryable) == (str(failed.value), failed.value.retryable)


def test_a_stream_without_its_end_has_no_calls():
    """Without a reason and a last word an answer was cut, and is asked for again."""
    chunks = [chunk(content="see"), asks((0, "c1", "cut", "{}")), asks((0, None, None, "")), {"choices": []}]
    for at in range(len(chunks) + 1):
        with pytest.raises(ModelError) as failed:
            chatted(*chunks[:at])
        assert (STREAM_CLOSED, True) == (str(failed.value), failed.value.retryable)


FUNCTIONS = st.fixed_dictionaries({}, optional={"name": VALUES, "arguments": VALUES, "input": VALUES})
CALLS = st.fixed_dictionaries(
    {}, optional={"index": VALUES, "id": VALUES, "type": VALUES, "function": FUNCTIONS | VALUES, "custom": FUNCTIONS}
)
DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "content": VALUES,
        "tool_calls": st.lists(CALLS | VALUES, max_size=3) | VALUES,
        "function_call": FUNCTIONS,
        "reasoning": VALUES,
    },
)
CHOICES = st.fixed_dictionaries({}, optional={"delta": DELTAS | VALUES, "finish_reason": VALUES, "message": DELTAS})
CHUNKS = st.fixed_dictionaries(
    {}, optional={"choices": st.lists(CHOICES | VALUES, max_size=2) | VALUES, "usage": VALUES, "error": VALUES}
)


@given(chunks=st.lists(CHUNKS | VALUES, max_size=6))
def test_no_server_brings_it_down(chunks):
    """Whatever a server sends is a reply, or a ModelError."""
    try:
        assert isinstance(chatted(*chunks, "[DONE]"), Reply)
    except ModelError:
        return

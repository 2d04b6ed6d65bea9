"""From prompts to requests: whatever wrote a history, both protocols take it."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from openai.types.responses.response_input_item_param import ResponseInputItemParam
from pydantic import TypeAdapter

from callboard.actors.events import Call, Thought
from callboard.actors.model import Assistant, Developer, Result, User
from callboard.runtime.models.history import NO_RESULT, NOTHING_ASKED, arguments_text, paired
from callboard.runtime.models.openai_catalogue import Catalogues, catalogue
from callboard.runtime.models.openai_dialect import Dialect
from callboard.runtime.models.openai_input import (
    chat_request,
    responses_request,
)
from callboard.runtime.models.provider import encoded
from callboard.runtime.models.wire import ID_PATTERN, plain_id

from .openai_samples import CUT, FREE, LOOK, TOOLS, prompt

PLAIN = Dialect(plain=True, cache_key=False, strict=False, tokens="max_tokens")
ITEM: TypeAdapter[Any] = TypeAdapter(ResponseInputItemParam)
RESPONSES: TypeAdapter[Any] = TypeAdapter(ResponseCreateParamsStreaming)
CHAT: TypeAdapter[Any] = TypeAdapter(CompletionCreateParamsStreaming)


def responses(*messages: Any, dialect: Dialect = Dialect(), **more: Any) -> Any:  # noqa: B008
    """The body of a Responses request."""
    asked = prompt(*messages, **more)
    return responses_request(asked, "gpt-x", catalogue(asked.tools, "responses", strict=dialect.strict), dialect).body


def chat(*messages: Any, dialect: Dialect = Dialect(), **more: Any) -> Any:  # noqa: B008
    """The body of a chat request."""
    asked = prompt(*messages, **more)
    return chat_request(asked, "gpt-x", catalogue(asked.tools, "chat", strict=dialect.strict), dialect).body


def item(role: str, content: str, **more: Any) -> dict[str, Any]:
    """A message item."""
    return {"type": "message", "role": role, "content": content, **more}


def called(id_: str, name: str = "look_up", arguments: str = "{}") -> dict[str, Any]:
    """A call item."""
    return {"type": "function_call", "call_id": id_, "name": name, "arguments": arguments}


def gave(id_: str, output: str) -> dict[str, Any]:
    """A result item."""
    return {"type": "function_call_output", "call_id": id_, "output": output}


def encrypted(place: int) -> dict[str, Any]:
    """A reasoning item as it is sent back."""
    return {"type": "reasoning", "id": f"rs_{place}", "summary": [], "encrypted_content": "e"}


def thought(place: int, at: int, model: str = "gpt-x", provider: str = "openai") -> Thought:
    """A thought as it is kept."""
    return Thought(provider, "", {"model": model, "item": encrypted(place)}, at)


A, B = Call("f", "{}", "a"), Call("f", '{"x":1}', "b")
HISTORIES = {
    "nothing": ((), [item("user", NOTHING_ASKED)]),
    "roles": (
        (User("hi"), Assistant("yo"), Developer("note")),
        [item("user", "hi"), item("assistant", "yo"), item("developer", "note")],
    ),
    "empty texts": (
        (User(""), Developer(" \n"), Assistant(""), Assistant("  "), User("x")),
        [item("user", "x")],
    ),
    "calls": (
        (Assistant("see", (A, B)), Result("a", "f", "1"), Result("b", "f", "2")),
        [item("assistant", "see"), called("a", "f"), called("b", "f", '{"x":1}'), gave("a", "1"), gave("b", "2")],
    ),
    "results late and in another order": (
        (Assistant("", (A, B)), User("wait"), Result("b", "f", "2"), Developer("note"), Result("a", "f", "1")),
        [
            *(called("a", "f"), called("b", "f", '{"x":1}'), gave("a", "1"), gave("b", "2")),
            *(item("user", "wait"), item("developer", "note")),
        ],
    ),
    "a call without a result": (
        (Assistant("", (A,)), User("next")),
        [called("a", "f"), gave("a", NO_RESULT), item("user", "next")],
    ),
    "a result without a call": ((Result("a", "f", "1"), User("x")), [item("user", "x")]),
    "a second result": (
        (Assistant("", (A,)), Result("a", "f", "1"), Result("a", "f", "2")),
        [called("a", "f"), gave("a", "1")],
    ),
    "an id in two turns": (
        (Assistant("", (A,)), Result("a", "f", "1"), Assistant("", (A,)), Result("a", "f", "2")),
        [called("a", "f"), gave("a", "1"), called("a_2", "f"), gave("a_2", "2")],
    ),
    "an empty result": ((Assistant("", (A,)), Result("a", "f", "")), [called("a", "f"), gave("a", "")]),
    "odd names and ids": (
        (Assistant("", (Call("a b", {"x": 1}, "t1s1 c1"),)), Result("t1s1 c1", "a b", "1")),
        [called(plain_id("t1s1 c1"), "a_b_c8687a08", '{"x":1}'), gave(plain_id("t1s1 c1"), "1")],
    ),
    "a custom call": (
        (Assistant("", (Call("sh", "ls", "a", "custom"),)), Result("a", "sh", "1")),
        [
            {"type": "custom_tool_call", "call_id": "a", "name": "sh", "input": "ls"},
            {"type": "custom_tool_call_output", "call_id": "a", "output": "1"},
        ],
    ),
    "thoughts in their places": (
        (
            Assistant("text", (A, B), thoughts=(thought(0, 0), thought(1, 1), thought(2, 2), thought(3, 3))),
            Result("a", "f", "1"),
            Result("b", "f", "2"),
        ),
        [
            *(encrypted(0), item("assistant", "text"), encrypted(1), called("a", "f")),
            *(encrypted(2), called("b", "f", '{"x":1}'), gave("a", "1"), gave("b", "2")),
        ],
    ),
    "a thought before nothing": ((User("x"), Assistant("", thoughts=(thought(0, 0),))), [item("user", "x")]),
    "thoughts of others": (
        (
            Assistant("t", thoughts=(thought(0, 0, "gpt-y"), thought(1, 0, provider="anthropic"), Thought("openai"))),
            User("x"),
        ),
        [item("assistant", "t"), item("user", "x")],
    ),
    "an answer that was cut": (
        (Assistant("half", interrupted=True, thoughts=(thought(0, 0),)), User("x")),
        [item("assistant", "half"), item("user", "x")],
    ),
    "the phase of an answer": (
        (Assistant("t", thoughts=(Thought("openai", "", {"model": "gpt-x", "phase": "commentary"}),)), User("x")),
        [item("assistant", "t", phase="commentary"), item("user", "x")],
    ),
}


@pytest.mark.parametrize(("messages", "items"), HISTORIES.values(), ids=HISTORIES)
def test_a_history_as_items(messages, items):
    """Calls stand before their results, nothing is unpaired, empty or twice, and thoughts stand where they were."""
    assert items == responses(*messages)["input"]


def test_the_rest_of_a_responses_request():
    """Nothing is stored there, reasoning comes back encrypted, and options are sent only where they are asked for."""
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    asked = prompt(User("x"), system="sys", tools=(CUT,), schema=schema, effort="high")
    body = responses_request(asked, "gpt-x", catalogue((CUT,), "responses", strict=True), Dialect(), 100).body
    strict = {
        **CUT.parameters,
        "properties": {"path": {"type": "string"}, "limit": {"type": ["integer", "null"], "minimum": 1}},
        "required": ["path", "limit"],
    }
    assert {
        "model": "gpt-x",
        "input": [item("user", "x")],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "043a718774c572bd8a25adbeb1bfcd5c",
        "instructions": "sys",
        "reasoning": {"summary": "auto", "effort": "high"},
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}},
        "max_output_tokens": 100,
        "tools": ({"type": "function", "name": "cut", "description": "Cut.", "parameters": strict, "strict": True},),
    } == body


def test_what_a_server_does_not_know_is_left_out():
    """A dialect without options sends a model, its input, and nothing that it could refuse."""
    bare = Dialect(encrypted=False, summary=False, effort=False, cache_key=False, store=False, strict=False)
    assert {"model": "gpt-x", "input": [item("user", "x")], "stream": True} == responses(
        User("x"), dialect=bare, effort="high"
    )


def test_tools_that_strict_mode_cannot_say_are_offered_without_it():
    """Strict is said of each tool in Responses, and names get the letters that are allowed."""
    entries = responses(User("x"), tools=TOOLS)["tools"]
    assert [("look_up_c2199496", True), ("cut", True), ("free", False)] == [(e["name"], e["strict"]) for e in entries]
    assert FREE.parameters == entries[2]["parameters"]
    assert LOOK.parameters == entries[0]["parameters"]


def test_a_chat_with_openai():
    """Developers keep their role, results follow their calls at once, and usage is asked for."""
    body = chat(
        User("hi"),
        Developer("note"),
        Assistant("", (A, B)),
        User("wait"),
        Result("a", "f", "1"),
        Assistant("yo"),
        system="sys",
        tools=(CUT,),
        effort="low",
    )
    assert [
        {"role": "system", "content": "sys"},
        {"role": "user", "content": "hi"},
        {"role": "developer", "content": "note"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "b", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": NO_RESULT},
        {"role": "user", "content": "wait"},
        {"role": "assistant", "content": "yo"},
    ] == body["messages"]
    assert (True, {"include_usage": True}, "low") == (
        body["tools"][0]["function"]["strict"],
        body["stream_options"],
        body["reasoning_effort"],
    )


def test_a_chat_with_a_server_that_only_speaks_like_openai():
    """Roles alternate there: developers are users with a mark, users in a row are one; nothing is strict."""
    asked = prompt(User("hi"), Developer("note"), User("more"), Assistant("yo"), Developer("end"), tools=(CUT,))
    body = chat_request(asked, "m", catalogue((CUT,), "chat", strict=False), PLAIN, 100).body
    assert {
        "model": "m",
        "messages": [
            {"role": "user", "content": "hi\n\n<note>\nnote\n</note>\n\nmore"},
            {"role": "assistant", "content": "yo"},
            {"role": "user", "content": "<note>\nend\n</note>"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 100,
        "tools": (
            {
                "type": "function",
                "function": {"name": "cut", "description": "Cut.", "parameters": CUT.parameters},
            },
        ),
    } == body
    assert [{"role": "user", "content": NOTHING_ASKED}] == chat(dialect=PLAIN)["messages"]
    assert ["", "1"] == [
        one["content"] for one in chat(Assistant("", (A,)), Result("a", "f", "1"), dialect=PLAIN)["messages"]
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ({"a": 1}, '{"a":1}'),
        ("", "{}"),
        ('{"a":', '{"arguments":"{\\"a\\":"}'),
        ("[1]", '{"arguments":"[1]"}'),
        ([1], '{"arguments":[1]}'),
        (None, '{"arguments":null}'),
        ("[" * 5000, '{"arguments":"' + "[" * 5000 + '"}'),
    ],
)
def test_arguments_are_always_an_object(arguments, text):
    """Servers parse the arguments of calls in a history: what is no JSON object is shown inside one."""
    assert text == arguments_text(Call("f", arguments))


IDS = st.sampled_from(["a", "b", "c", "call_" + "x" * 60, "id with spaces", "é", ""])
ARGUMENTS = st.sampled_from(["{}", "{", "", '{"x":null}']) | st.dictionaries(st.text(max_size=2), st.integers())
CALLS = st.builds(Call, st.text(max_size=8), ARGUMENTS, IDS, st.sampled_from(["function", "custom"]))
THOUGHTS = st.builds(thought, st.integers(0, 3), st.integers(-1, 4), st.sampled_from(["gpt-x", "other"]))
MESSAGES = (
    st.builds(User, st.text(max_size=3))
    | st.builds(Developer, st.text(max_size=3))
    | st.builds(Result, IDS, st.just("f"), st.text(max_size=3))
    | st.builds(
        Assistant,
        st.text(max_size=3),
        st.lists(CALLS, max_size=3, unique_by=lambda call: call.id).map(tuple),
        st.booleans(),
        st.lists(THOUGHTS, max_size=3).map(tuple),
    )
)


@given(messages=st.lists(MESSAGES, max_size=12))
def test_any_history_is_a_valid_responses_request(messages):
    """The SDK's own types take it, each call has one output behind it, and a thought is followed by its answer."""
    items = responses(*messages, tools=TOOLS)["input"]
    for one in items:
        ITEM.validate_python(one)
    calls = [one["call_id"] for one in items if one["type"].endswith("_call")]
    outputs = [one["call_id"] for one in items if one["type"].endswith("_output")]
    assert len(calls) == len(set(calls))
    assert sorted(calls) == sorted(outputs)
    assert all(ID_PATTERN.fullmatch(id_) for id_ in calls)
    waiting = set()
    for before, one in zip([{}, *items], [*items, {}], strict=True):
        if before.get("type") == "reasoning":
            assert one.get("role") == "assistant" or one.get("type") in (
                *("reasoning", "function_call", "custom_tool_call"),
            )
        if one.get("type", "").endswith("_call"):
            waiting.add(one["call_id"])
        elif one.get("type", "").endswith("_output"):
            waiting.remove(one["call_id"])
        elif one.get("type") == "message" and one["role"] != "assistant":
            assert not waiting


@given(messages=st.lists(MESSAGES, max_size=12), plain=st.booleans())
def test_any_history_is_a_valid_chat(messages, plain):
    """The SDK's own types take it, tool messages follow their calls at once, and plain servers see roles alternate."""
    body = chat(*messages, tools=TOOLS, system="sys", dialect=PLAIN if plain else Dialect())
    CHAT.validate_python({**body, "tools": list(body["tools"])})
    waiting: list[str] = []
    roles = []
    for one in body["messages"]:
        if waiting:
            assert (waiting.pop(0), "tool") == (one["tool_call_id"], one["role"])
            continue
        assert one["role"] != "tool"
        waiting = [call["id"] for call in one.get("tool_calls", ())]
        roles.append(one["role"])
    assert not waiting
    if plain:
        assert "developer" not in roles
        assert all((a, b) != ("user", "user") for a, b in itertools.pairwise(roles))


def test_the_same_tools_are_written_once():
    """Tools that were asked with lately are not written again, and what is kept has a bound."""
    kept = Catalogues(kept_max=2)
    one = kept.of(TOOLS, "responses", strict=True)
    assert one is kept.of(tuple(TOOLS), "responses", strict=True)
    assert one is not kept.of(TOOLS, "chat", strict=True)
    kept.of((CUT,), "responses", strict=True)
    assert one == (again := kept.of(TOOLS, "responses", strict=True))
    assert one is not again


def test_texts_that_utf8_cannot_say():
    """A lone half of a character becomes a mark, and the request goes out."""
    assert b'{"a": "x?y"}' == encoded({"a": "x\ud800y"})


def test_the_sdks_types_take_whole_requests():
    """A request with every option is one of the SDK's."""
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    more: Any = {"system": "sys", "tools": TOOLS, "schema": schema, "effort": "low"}
    body = responses(User("x"), **more)
    taken = RESPONSES.validate_python({**body, "tools": list(body["tools"])})
    assert body.keys() == taken.keys()
    body = chat(User("x"), **more)
    assert body.keys() == CHAT.validate_python({**body, "tools": list(body["tools"])}).keys()


def test_pairing_keeps_the_order_of_what_is_said():
    """Users, notes and answers stay in the order in which they came."""
    messages = (User("1"), Assistant("2", (A,)), User("3"), Developer("4"), Result("a", "f", "r"), Assistant("5"))
    texts = [getattr(one, "text", None) or one.message.text for one in paired(messages)]  # type: ignore[union-attr]
    assert ["1", "2", "3", "4", "5"] == texts

"""From prompts to Messages requests: whatever wrote a history, the protocol takes it."""

import json
from typing import Any

import pytest
from anthropic.types import MessageParam, ToolParam
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from tests.wires import messages_lines, whole

from callboard.actors.events import Call, Thought
from callboard.actors.model import Assistant, Developer, Result, ToolSpec, User
from callboard.runtime.models.anthropic_dialect import OUTPUT_LEAST_TOKENS, OUTPUT_TOKENS, Dialect, output_of
from callboard.runtime.models.anthropic_input import CACHED, GO_ON, NO_WORD, messages_request
from callboard.runtime.models.history import NO_RESULT, NOTHING_ASKED
from callboard.runtime.models.provider import encoded

from .openai_samples import CUT, TOOLS, VALUES, prompt

REQUEST: TypeAdapter[Any] = TypeAdapter(MessageCreateParamsStreaming)
MESSAGE: TypeAdapter[Any] = TypeAdapter(MessageParam)
TOOL: TypeAdapter[Any] = TypeAdapter(ToolParam)
BARE = Dialect(cache=False)
A, B = Call("f", "{}", "a"), Call("f", '{"x":1}', "b")


def asked(*messages: Any, dialect: Dialect = BARE, most: int | None = None, **more: Any) -> Any:
    """The body of a request as it arrives."""
    body = json.loads(encoded(messages_request(prompt(*messages, **more), "claude-x", dialect, most).body))
    whole(REQUEST.validate_python(body))
    for message in body["messages"]:
        whole(MESSAGE.validate_python(message))
    for spec in body.get("tools", ()):
        whole(TOOL.validate_python(spec))
    return body


def text(words: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": words}


def own(text: str = "so", at: int = 0, model: str = "claude-x", provider: str = "anthropic", **block: Any) -> Thought:
    """A thought, by default of the model that is asked."""
    kept = block or {"type": "thinking", "thinking": text, "signature": "sealed:1"}
    return Thought(provider, text, {"model": model, "block": kept}, at)


def test_a_whole_conversation():
    """System, notes, calls and results each in their place; roles alternate."""
    body = asked(
        User("hi"),
        Developer("note"),
        Assistant("I look.", (A, B), thoughts=(own(),)),
        User("wait"),
        Result("a", "f", "1"),
        Assistant("yo"),
        User("end"),
        system="sys",
        tools=(CUT,),
    )
    assert body == {
        "model": "claude-x",
        "max_tokens": OUTPUT_TOKENS,
        "stream": True,
        "system": [text("sys")],
        "tools": [{"name": "cut", "description": "Cut.", "input_schema": CUT.parameters}],
        "messages": [
            {"role": "user", "content": [text("hi"), text("<note>\nnote\n</note>")]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "so", "signature": "sealed:1"},
                    text("I look."),
                    {"type": "tool_use", "id": "a", "name": "f", "input": {}},
                    {"type": "tool_use", "id": "b", "name": "f", "input": {"x": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                    {"type": "tool_result", "tool_use_id": "b", "content": NO_RESULT, "is_error": True},
                    text("wait"),
                ],
            },
            {"role": "assistant", "content": [text("yo")]},
            {"role": "user", "content": [text("end")]},
        ],
    }


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ((), [("user", NOTHING_ASKED)]),
        ((Assistant("a"),), [("user", NOTHING_ASKED), ("assistant", "a"), ("user", GO_ON)]),
        ((User(" \n"), User("b")), [("user", "b")]),
        ((User("b"), Assistant(" ")), [("user", "b")]),
        ((User("b"), Assistant("", thoughts=(own(),))), [("user", "b")]),
        (
            (User("b"), Assistant("x"), Assistant("y")),
            [("user", "b"), ("assistant", "x"), ("assistant", "y"), ("user", GO_ON)],
        ),
        ((User("b"), Result("none", "f", "x")), [("user", "b")]),
    ],
)
def test_roles_alternate_whatever_is_there(messages, said):
    """From the user to the user: what is missing is made up, what says nothing is left out."""
    body = asked(*messages)
    assert [(one["role"], block["text"]) for one in body["messages"] for block in one["content"]] == said
    assert [one["role"] for one in body["messages"]] == ["user", "assistant", "user"][: len(body["messages"])]


def test_only_thoughts_of_this_model_go_back_and_in_their_place():
    """Those of others, and of answers that were interrupted, stay behind; sealed ones keep their data."""
    sealed = own(at=2, type="redacted_thinking", data="x")
    others = (own(model="claude-y"), own(provider="openai"), Thought("anthropic", "bare"))
    body = asked(User("hi"), Assistant("", (A, B), thoughts=(own(), *others, own("again", 1), sealed)), User("end"))
    kinds = [block["type"] for block in body["messages"][1]["content"]]
    assert kinds == ["thinking", "thinking", "tool_use", "redacted_thinking", "tool_use"]
    cut = asked(User("hi"), Assistant("half", interrupted=True, thoughts=(own(),)), User("end"))
    assert cut["messages"][1]["content"] == [text("half")]
    without = asked(
        User("hi"), Assistant("x", thoughts=(own(),)), User("end"), dialect=Dialect(cache=False, thoughts=False)
    )
    assert without["messages"][1]["content"] == [text("x")]


def test_what_was_sent_before_is_read_from_the_cache():
    """The last tool, the system and the last two messages of the user: four marks, which is all that may be."""
    messages = [
        one for number in range(3) for one in (User(f"u{number}"), Assistant(f"a{number}", (), thoughts=(own(),)))
    ]
    body = asked(*messages, User("end"), system="sys", dialect=Dialect(), tools=TOOLS)
    marked = [block for one in body["messages"] for block in one["content"] if "cache_control" in block]
    assert marked == [{**text("u2"), "cache_control": CACHED}, {**text("end"), "cache_control": CACHED}]
    assert body["system"] == [{**text("sys"), "cache_control": CACHED}]
    assert [spec.get("cache_control") for spec in body["tools"]] == [None, None, CACHED]
    plain = asked(*messages, system="sys", tools=TOOLS)
    assert "cache_control" not in json.dumps(plain)


def test_results_that_failed_say_so():
    """An error without a word gets one; a result without a word has none."""
    calls = tuple(Call("f", "{}", id_) for id_ in "abc")
    results = (Result("a", "f", "no", failed=True), Result("b", "f", " ", failed=True), Result("c", "f", ""))
    body = asked(User("hi"), Assistant("", calls), *results)
    assert body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": "no", "is_error": True},
        {"type": "tool_result", "tool_use_id": "b", "content": NO_WORD, "is_error": True},
        {"type": "tool_result", "tool_use_id": "c"},
    ]


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ([3], ["one", "t3", "two", "use"]),
        ([3, 3], ["one", "t3", "t3", "two", "use"]),
        ([0], ["one\n\ntwo", "t0", "use"]),
        ([8], ["one\n\ntwo", "t8", "use"]),
        ([-1], ["one\n\ntwo", "t-1", "use"]),
        (["3"], ["one\n\ntwo", "t3", "use"]),
        ([5, 3], ["one\n\n", "t5", "t3", "two", "use"]),
    ],
)
def test_a_thought_between_two_texts_goes_back_between_them(after, said):
    """It stands where it was thought; a place that the text does not have is the one before the call."""
    thoughts = tuple(
        Thought(
            "anthropic",
            "",
            {"model": "claude-x", "block": {"type": "thinking", "thinking": f"t{at}", "signature": "s"}, "after": at},
            1,
        )
        for at in after
    )
    body = asked(User("hi"), Assistant("one\n\ntwo", (A,), thoughts=thoughts))
    blocks = body["messages"][1]["content"]
    assert said == [block.get("text") or block.get("thinking") or "use" for block in blocks]
    alone = asked(User("hi"), Assistant("one\n\ntwo", thoughts=thoughts))["messages"][1]["content"]
    assert alone[-1]["type"] == "text"


@pytest.mark.parametrize(
    ("effort", "dialect", "most", "thinking", "named"),
    [
        (None, Dialect(), None, None, None),
        ("none", Dialect(), None, {"type": "disabled"}, None),
        ("none", Dialect(off=False), None, None, None),
        ("minimal", Dialect(), None, {"type": "adaptive", "display": "summarized"}, "low"),
        ("high", Dialect(), None, {"type": "adaptive", "display": "summarized"}, "high"),
        ("high", Dialect(adaptive=False), None, {"type": "enabled", "budget_tokens": 16_384}, "high"),
        ("max", Dialect(adaptive=False), None, {"type": "enabled", "budget_tokens": 24_576}, "max"),
        ("high", Dialect(adaptive=False, effort=False), 4_000, {"type": "enabled", "budget_tokens": 2_976}, None),
        ("high", Dialect(adaptive=False, effort=False), 2_000, None, None),
        ("high", Dialect(adaptive=False, budget=False), None, None, "high"),
    ],
)
def test_how_hard_it_thinks(effort, dialect, most, thinking, named):
    """In the words that the model knows, with room for an answer beside the thoughts."""
    body = asked(User("hi"), dialect=dialect, effort=effort, most=most)
    assert (body.get("thinking"), body.get("output_config", {}).get("effort")) == (thinking, named)


def test_a_model_with_a_budget_does_not_think_in_a_loop_that_began_without():
    """Since the user's last words each answer with calls has to begin with a thought of its own."""
    old = Dialect(adaptive=False)
    loop = (User("hi"), Assistant("", (A,)), Result("a", "f", "1"))
    assert "thinking" not in asked(*loop, dialect=old, effort="high")
    assert "thinking" in asked(*loop, User("more"), dialect=old, effort="high")
    thought = (User("hi"), Assistant("", (A,), thoughts=(own(),)), Result("a", "f", "1"))
    assert "thinking" in asked(*thought, dialect=old, effort="high")
    assert "thinking" in asked(*loop, effort="high")


def test_the_schema_of_an_answer():
    """As a format where there are formats, else in words."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    body = asked(User("hi"), schema=schema)
    assert body["output_config"]["format"]["type"] == "json_schema"
    assert body["output_config"]["format"]["schema"]["properties"].keys() == {"a"}
    words = asked(User("hi"), schema=schema, system="sys", dialect=Dialect(schema=False))
    assert "output_config" not in words
    assert words["system"][0]["text"].startswith("sys\n\nThe last answer is one JSON value")
    assert json.dumps(schema, separators=(",", ":")) in words["system"][0]["text"]


@pytest.mark.parametrize(
    ("parameters", "sent"),
    [
        ({}, {"type": "object"}),
        ({"type": "object", "anyOf": [{}], "properties": {}}, {"type": "object", "properties": {}}),
        ({"oneOf": [{}], "$defs": {}}, {"$defs": {}, "type": "object"}),
    ],
)
def test_a_schema_is_an_object_at_its_top(parameters, sent):
    """Other schemas are refused; arguments are checked by the runtime in any case."""
    (tool,) = asked(User("hi"), tools=(ToolSpec("f.g", "F.", parameters),))["tools"]
    assert tool["input_schema"] == sent
    assert tool["name"] != "f.g"


@pytest.mark.parametrize(
    ("said", "tokens"),
    [
        ("max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for claude-x", 8192),
        ("max_tokens: 32000 > 999999, which is the maximum allowed number of output tokens", OUTPUT_TOKENS - 1),
        ("the maximum allowed number of output tokens is smaller", OUTPUT_LEAST_TOKENS),
    ],
)
def test_a_bound_is_learned_from_its_refusal(said, tokens):
    """The number it names, which is always a smaller one."""
    assert output_of(said) == tokens


IDS = st.sampled_from(["a", "b", "x y", "", "é" * 50])
ARGUMENTS = st.one_of(st.just("{}"), st.text(max_size=8), st.dictionaries(st.text(max_size=3), VALUES, max_size=2))
KINDS = st.sampled_from(["function", "custom"])
CALLS = st.builds(Call, st.sampled_from(["f", "f.g", ""]), ARGUMENTS, IDS, KINDS)
WORDS = st.one_of(st.sampled_from(["", " ", "hi", "\ud800"]), st.text(max_size=5))
THOUGHTS = st.builds(
    own, WORDS, st.integers(-1, 4), st.sampled_from(["claude-x", "other"]), st.sampled_from(["anthropic", "openai"])
)
MESSAGES = st.lists(
    st.one_of(
        st.builds(User, WORDS),
        st.builds(Developer, WORDS),
        st.builds(Result, IDS, st.just("f"), WORDS),
        st.builds(
            Assistant,
            WORDS,
            st.lists(CALLS, max_size=3).map(tuple),
            st.booleans(),
            thoughts=st.lists(THOUGHTS, max_size=2).map(tuple),
        ),
    ),
    max_size=8,
)


@given(messages=MESSAGES, cache=st.booleans(), adaptive=st.booleans(), effort=st.sampled_from([None, "low", "max"]))
def test_every_history_is_a_valid_request(messages, cache, adaptive, effort):
    """Roles, pairs, ids, names and blocks are what the protocol takes, whatever stands in a log."""
    body = asked(*messages, dialect=Dialect(cache=cache, adaptive=adaptive), effort=effort, tools=TOOLS)
    lines = messages_lines(body)
    assert sum(len(line.calls) for line in lines) == sum(
        len(one.calls) for one in messages if isinstance(one, Assistant)
    )

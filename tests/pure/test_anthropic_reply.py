"""From Messages events to replies: what counts, in which order, and what an end that is none means."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.wires import USED, Spoken, messages_events

from callboard.actors.errors import ModelError
from callboard.actors.events import Call, Thought, Usage
from callboard.actors.model import STREAM_CLOSED, Assistant, Reply, User
from callboard.runtime.models.anthropic_dialect import Dialect
from callboard.runtime.models.anthropic_input import messages_request
from callboard.runtime.models.anthropic_reply import MessagesReply
from callboard.runtime.models.refusals import Asked
from callboard.runtime.models.stream import Events
from callboard.runtime.models.wire import CUT_ARGUMENTS

from .openai_samples import VALUES, Said, prompt

ASKED = Asked(model="claude-x", host="api.anthropic.com", variable="ANTHROPIC_API_KEY", secrets=("sk-planted-key",))
STOP = {"type": "message_stop"}


def taken(*events: Any, said: Said | None = None) -> MessagesReply:
    """Events, one after the other."""
    made = MessagesReply("claude-x", {"look_up": "look.up"}, ASKED, Said() if said is None else said)
    for event in events:
        made.feed(event)
    return made


def heard(*events: Any, said: Said | None = None) -> Reply:
    """The reply of these events."""
    return taken(*events, said=said).reply()


def block(index: int, kind: str, *deltas: Any, stops: bool = True, **start: Any) -> list[Any]:
    """The events of a block; its deltas are texts of the kind that it has."""
    field, name = {
        "text": ("text", "text_delta"),
        "thinking": ("thinking", "thinking_delta"),
        "tool_use": ("partial_json", "input_json_delta"),
    }.get(kind, ("x", "x_delta"))
    made = [delta if isinstance(delta, dict) else {"type": name, field: delta} for delta in deltas]
    return [
        {"type": "content_block_start", "index": index, "content_block": {"type": kind, **start}},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in made),
        *([{"type": "content_block_stop", "index": index}] if stops else []),
    ]


def ended(reason: str = "end_turn", **more: Any) -> dict[str, Any]:
    """The event that says why it ended."""
    return {"type": "message_delta", "delta": {"stop_reason": reason, **more}, "usage": {"output_tokens": 9}}


def signed(text: str) -> dict[str, Any]:
    """The delta of a seal."""
    return {"type": "signature_delta", "signature": text}


def test_everything_that_an_answer_may_hold():
    """Thoughts, texts and calls in their places, and what it cost, the cache included."""
    said = Said()
    start = {
        "usage": {
            "input_tokens": 3,
            "cache_read_input_tokens": 20,
            "cache_creation_input_tokens": 7,
            "output_tokens": 1,
        }
    }
    reply = heard(
        {"type": "message_start", "message": start},
        {"type": "ping"},
        *block(0, "thinking", "so ", "so", signed("s1"), signed("s2")),
        *block(1, "text", "hel", "lo"),
        *block(2, "redacted_thinking", data="sealed"),
        *block(3, "tool_use", "", '{"a"', ":1}", id="c1", name="look_up", input={}),
        *block(4, "server_tool_use", id="s", name="web", input={}),
        *block(5, "tool_use", id="c2", name="free", input={"b": 2}),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}},
        },
        STOP,
        said=said,
    )
    first = {"type": "thinking", "thinking": "so so", "signature": "s1s2"}
    second = {"type": "redacted_thinking", "data": "sealed"}
    assert reply == Reply(
        "hello",
        [Call("look.up", '{"a":1}', "c1"), Call("free", '{"b":2}', "c2")],
        Usage(30, 20, 9, 4),
        thoughts=[
            Thought("anthropic", "so so", {"model": "claude-x", "block": first}),
            Thought("anthropic", "", {"model": "claude-x", "block": second}, 1),
        ],
    )
    assert said == [("so ", "reasoning"), ("so", "reasoning"), ("hel", "text"), ("lo", "text")]


def test_what_was_thought_goes_back_as_it_came():
    """A thought without its seal stays behind."""
    reply = heard(
        *block(0, "thinking", "a", signed("s")), *block(1, "thinking", "b"), *block(2, "text", "x"), ended(), STOP
    )
    answer = Assistant(reply.text, tuple(reply.calls), thoughts=tuple(reply.thoughts))
    body = messages_request(prompt(User("hi"), answer, User("on")), "claude-x", Dialect(cache=False)).body
    assert body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "a", "signature": "s"},
        {"type": "text", "text": "x"},
    ]


def test_what_was_thought_between_two_texts_goes_back_between_them():
    """Also where the answer has no call; what was thought after the last word is kept, and not sent."""
    seal = {"model": "claude-x", "block": {"type": "redacted_thinking", "data": "d"}}
    reply = heard(
        *block(0, "redacted_thinking", data="d"),
        *block(1, "text", "one"),
        *block(2, "redacted_thinking", data="d"),
        *block(3, "text", "two"),
        *block(4, "redacted_thinking", data="d"),
        *(ended(), STOP),
    )
    assert reply.thoughts == [
        Thought("anthropic", "", seal),
        Thought("anthropic", "", {**seal, "after": 3}, 1),
        Thought("anthropic", "", seal, 1),
    ]
    answer = Assistant(reply.text, thoughts=tuple(reply.thoughts))
    sent = messages_request(prompt(User("hi"), answer, User("on")), "claude-x", Dialect(cache=False)).body
    assert sent["messages"][1]["content"] == [
        *(seal["block"], {"type": "text", "text": "one"}),
        *(seal["block"], {"type": "text", "text": "two"}),
    ]


def test_counts_never_shrink():
    """Later counts hold the earlier ones, and a server that leaves some at zero takes nothing back."""
    start = {"usage": {"input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 1}}
    last = {"input_tokens": 0, "cache_read_input_tokens": None, "output_tokens": 9}
    reply = heard(
        {"type": "message_start", "message": start},
        *block(0, "text", "x"),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last},
        STOP,
    )
    assert reply.usage == Usage(12, 7, 9)


@pytest.mark.parametrize(
    ("between", "text"),
    [((), "onetwo"), (block(1, "thinking", "hm"), "one\n\ntwo"), (block(1, "web_search_tool_result"), "one\n\ntwo")],
)
def test_texts_stand_apart_where_something_stands_between(between, text):
    """Parts with citations are one text, and what it says behind a thought is a paragraph of its own."""
    said = Said()
    reply = heard(*block(0, "text", "one"), *between, *block(2, "text", "two"), ended(), STOP, said=said)
    assert (reply.text, "".join(piece for piece, part in said if part == "text")) == (text, text)


@pytest.mark.parametrize(
    ("arguments", "reason", "call", "cut"),
    [
        (['{"a": 1}'], "max_tokens", Call("f", '{"a": 1}', "c"), True),
        (['{"a": '], "max_tokens", Call("f", '{"a": ', "c", flaw=CUT_ARGUMENTS), True),
        (['{"a": '], "model_context_window_exceeded", Call("f", '{"a": ', "c", flaw=CUT_ARGUMENTS), True),
        (['{"a": '], "tool_use", Call("f", '{"a": ', "c"), False),
        ([], "tool_use", Call("f", "", "c"), False),
        ([], "max_tokens", Call("f", "", "c", flaw=CUT_ARGUMENTS), True),
    ],
)
def test_a_call_that_was_cut_says_so(arguments, reason, call, cut):
    """Only the last part can have been cut; what is broken otherwise is found where calls are taken in."""
    reply = heard(*block(0, "tool_use", *arguments, id="c", name="f", input={}), ended(reason), STOP)
    assert (reply.calls, reply.truncated) == ([call], cut)
    behind = heard(
        *block(0, "tool_use", *arguments, id="c", name="f", input={}), *block(1, "text", "x"), ended(reason), STOP
    )
    assert [one.flaw for one in behind.calls] == [""]


@pytest.mark.parametrize(
    ("reason", "more"), [("pause_turn", True), ("end_turn", False), ("stop_sequence", False), ("new", False)]
)
def test_why_it_ended(reason, more):
    """A pause goes on, every other end is one."""
    reply = heard(*block(0, "text", "x"), ended(reason), STOP)
    assert (reply.more, reply.truncated, reply.text) == (more, False, "x")


def test_a_reason_without_a_last_word_is_an_end_and_nothing_else_is():
    """A stream that was cut is asked for again, and no call of it is kept."""
    assert "x" == heard(*block(0, "text", "x"), ended()).text
    for events in ((), block(0, "text", "x"), block(0, "tool_use", "{}", id="c", name="f")):
        with pytest.raises(ModelError, match=STREAM_CLOSED) as failed:
            heard(*events)
        assert failed.value.retryable


@pytest.mark.parametrize(
    ("details", "text"),
    [
        (
            {"type": "refusal", "explanation": "No sk-planted-key here."},
            "api.anthropic.com refused this on grounds of its content: No [key] here.",
        ),
        ({"type": "refusal", "category": "cyber"}, "api.anthropic.com refused this on grounds of its content: cyber"),
        (None, "api.anthropic.com refused this on grounds of its content."),
    ],
)
def test_a_refusal_is_told(details, text):
    """What was said until then does not count, and it is not asked again."""
    with pytest.raises(ModelError) as failed:
        heard(*block(0, "text", "Well"), ended("refusal", stop_details=details), STOP)
    assert (str(failed.value), failed.value.retryable) == (text, False)


@pytest.mark.parametrize(
    ("error", "text", "retryable"),
    [
        (
            {"type": "overloaded_error", "message": "Overloaded"},
            "api.anthropic.com has too much to do: Overloaded",
            True,
        ),
        ({"type": "api_error", "message": "Internal"}, "api.anthropic.com failed: Internal", True),
        ({"type": "invalid_request_error", "message": "no"}, "api.anthropic.com did not take the request: no", False),
        ("broken", "api.anthropic.com broke off its answer: broken", True),
    ],
)
def test_an_error_in_the_middle(error, text, retryable):
    """It ends the answer, whatever came before."""
    for event in ({"type": "error", "error": error}, {"error": error}):
        with pytest.raises(ModelError) as failed:
            taken(*block(0, "text", "x"), event)
        assert (str(failed.value), failed.value.retryable) == (text, retryable)


def test_an_answer_in_one_piece():
    """Where a server does not stream, the whole is taken as if it had."""
    made = taken()
    content = [
        {"type": "thinking", "thinking": "so", "signature": "s"},
        {"type": "text", "text": "x"},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
    ]
    made.feed_whole(
        {
            "type": "message",
            "content": content,
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 3, "output_tokens": 2},
        }
    )
    reply = made.reply()
    assert (reply.text, reply.calls, reply.usage) == ("x", [Call("f", '{"a":1}', "c")], Usage(3, 0, 2))
    assert [one.body["block"]["signature"] for one in reply.thoughts] == ["s"]
    with pytest.raises(ModelError, match="too much to do"):
        taken().feed_whole({"type": "error", "error": {"type": "overloaded_error", "message": "x"}})


def test_what_a_server_of_ours_says_comes_back():
    """The events of the stories, through bytes."""
    spoken = Spoken(text="a long text, in pieces", thought="hm", calls=(("f", {"a": [1, "é"]}), ("g", {})))
    events = Events()
    reply = heard(*events.feed(messages_events(spoken, 3)), *events.finish())
    assert (reply.text, [(one.name, one.arguments) for one in reply.calls]) == (
        spoken.text,
        [("f", '{"a": [1, "\\u00e9"]}'), ("g", "{}")],
    )
    assert reply.usage == Usage(USED["input"], USED["cached"], USED["output"])


KINDS = ("message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", "ping", "new")
ANY = st.dictionaries(
    st.sampled_from(["index", "delta", "content_block", "message", "usage"]),
    VALUES
    | st.fixed_dictionaries(
        {
            "type": st.sampled_from(
                ["text", "thinking", "tool_use", "text_delta", "thinking_delta", "signature_delta", "input_json_delta"]
            )
        },
        optional={
            "text": VALUES,
            "thinking": VALUES,
            "partial_json": VALUES,
            "name": VALUES,
            "id": VALUES,
            "input": VALUES,
            "signature": VALUES,
            "stop_reason": VALUES,
        },
    ),
)


@example(events=[{"index": [], "type": "content_block_delta"}])
@given(
    events=st.lists(
        st.builds(lambda kind, rest: {**rest, "type": kind}, st.sampled_from(KINDS), ANY) | VALUES, max_size=12
    )
)
def test_nothing_that_comes_breaks_it(events):
    """Events of any shape give a reply or a ModelError."""
    try:
        reply = heard(*events)
    except ModelError:
        return
    assert all(isinstance(call.arguments, str) for call in reply.calls)

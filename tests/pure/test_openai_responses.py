"""From Responses events to replies: what counts, in which order, and what an end that is none means."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.errors import ModelError
from callboard.actors.events import Call, Thought, Usage
from callboard.actors.model import STREAM_CLOSED, Assistant, Reply, Result, User
from callboard.runtime.models.openai_catalogue import catalogue
from callboard.runtime.models.openai_dialect import Dialect
from callboard.runtime.models.openai_input import responses_request
from callboard.runtime.models.wire import CUT_ARGUMENTS

from .openai_samples import TOOLS, VALUES, Said, ended, function, heard, message, prompt, reasoning

USED = Usage(50, 20, 9, 4)


def test_text_is_said_as_it_comes():
    """Deltas are said one by one, and together they are the text."""
    said = Said()
    reply = heard({"type": "response.created"}, *message("hello"), ended(), said=said)
    assert Reply("hello", [], USED, thoughts=[]) == reply
    assert [("he", "text"), ("llo", "text")] == said


def test_two_messages_are_kept_apart():
    """A second message stands below the first, and one that came in one piece is said whole."""
    said = Said()
    whole = [message("two", 1)[-1]]
    reply = heard(*message("one"), *whole, ended(), said=said)
    assert ("one\n\ntwo", "one\n\ntwo") == (reply.text, "".join(piece for piece, _ in said))


def test_an_answer_that_stands_only_in_the_last_event():
    """A server may send all items with the end alone."""
    output = [message("hello")[-1]["item"], function("cut", "{}", 1, "c1")[-1]["item"]]
    said = Said()
    assert Reply("hello", [Call("cut", "{}", "c1")], USED, thoughts=[]) == heard(ended(output=output), said=said)
    assert [("hello", "text")] == said


def test_parallel_calls_in_the_order_of_their_places():
    """Calls whose events are mixed come out in the order the model gave them, under our names, without strict nulls."""
    one, two = (
        function("look_up_c2199496", '{"path":"x"}', 1, "c1"),
        function("cut", '{"path":"y","limit":null}', 2, "c2"),
    )
    reply = heard(*message("see"), one[0], two[0], two[1], one[1], two[2], one[2], ended())
    assert [Call("look.up", '{"path":"x"}', "c1"), Call("cut", '{"path":"y"}', "c2")] == reply.calls


def test_a_custom_call_keeps_its_kind():
    """A custom call is one: the session refuses what none of its tools takes."""
    item = {"type": "custom_tool_call", "name": "sh", "input": "ls", "call_id": "c1"}
    events = [
        {"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": "ls"},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]
    assert [Call("sh", "ls", "c1", "custom")] == heard(*events, ended()).calls


def test_a_call_that_only_its_pieces_told():
    """A server may leave out that an item is done: its announcement and its arguments are enough."""
    begun = function("cut", '{"path":"x"}', 0, "c1")[:2]
    whole = {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": '{"path":"x"}'}
    assert [Call("cut", '{"path":"x"}', "c1")] == heard(*begun, ended()).calls
    assert [Call("cut", '{"path":"x"}', "c1")] == heard(*begun, whole, ended()).calls


def test_thoughts_are_shown_and_kept_in_their_places():
    """Summaries are shown as reasoning, parts apart; encrypted items are kept where they stood."""
    said = Said()
    reply = heard(
        *reasoning(0, "e0", "Hm.", "So."),
        *message("see", 1),
        *reasoning(2, "e2", "Then."),
        *function("cut", "{}", 3, "c1"),
        *reasoning(4, ""),
        ended(),
        said=said,
    )
    shown = "".join(piece for piece, part in said if part == "reasoning")
    assert "Hm.\n\nSo.\n\nThen." == shown
    assert [(0, "Hm.\n\nSo.", "e0"), (1, "Then.", "e2")] == [
        (one.at, one.text, one.body["item"]["encrypted_content"]) for one in reply.thoughts
    ]
    assert {"gpt-x"} == {one.body["model"] for one in reply.thoughts}


def test_what_was_thought_goes_back_as_it_came():
    """The items of an answer with thoughts and calls are those of the next request, in the same order."""
    reply = heard(
        *reasoning(0, "e0", "Hm."),
        *message("see", 1, phase="commentary"),
        *reasoning(2, "e2"),
        *function("cut", "{}", 3, "c1"),
        *reasoning(4, "e4"),
        *function("cut", "{}", 5, "c2"),
        ended(),
    )
    answer = Assistant(reply.text, tuple(reply.calls), thoughts=tuple(reply.thoughts))
    asked = prompt(User("x"), answer, Result("c1", "cut", "1"), Result("c2", "cut", "2"))
    items = responses_request(asked, "gpt-x", catalogue(TOOLS, "responses", strict=True), Dialect()).body["input"]
    shapes = [one.get("encrypted_content") or one.get("phase") or one.get("call_id") or one["role"] for one in items]
    assert ["user", "e0", "commentary", "e2", "c1", "e4", "c2", "c1", "c2"] == shapes


def test_a_refusal_is_text():
    """What a model says when it refuses is what it says."""
    events = [{"type": "response.refusal.delta", "output_index": 0, "delta": delta} for delta in ("I ", "won't.")]
    assert "I won't." == heard(*events, ended()).text
    item = {"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}
    assert "No." == heard({"type": "response.output_item.done", "output_index": 0, "item": item}, ended()).text


def test_an_answer_cut_at_its_token_limit():
    """It is truncated; a call that was cut says so, instead of being run with half its arguments."""
    whole, cut = function("cut", '{"path":"x"}', 0, "c1"), function("cut", '{"path":"', 1, "c2")
    end = ended("incomplete", incomplete_details={"reason": "max_output_tokens"})
    reply = heard(*whole, *cut[:2], end)
    calls = [Call("cut", '{"path":"x"}', "c1"), Call("cut", '{"path":"', "c2", flaw=CUT_ARGUMENTS)]
    assert Reply("", calls, USED, truncated=True, thoughts=[]) == reply
    cut[2]["item"]["status"] = "incomplete"
    assert reply == heard(*whole, *cut, end)


FAILED: dict[str, tuple[Any, str, bool, float | None]] = {
    "filtered": (
        ended("incomplete", incomplete_details={"reason": "content_filter"}),
        "api.openai.com cut this answer on grounds of its content.",
        False,
        None,
    ),
    "server error": (
        {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "Boom sk-planted-key"}}},
        "api.openai.com failed: Boom [key]",
        True,
        None,
    ),
    "rate limit": (
        {
            "type": "response.failed",
            "response": {"error": {"code": "rate_limit_exceeded", "message": "Please try again in 1.5s."}},
        },
        "api.openai.com limits how often it is asked: Please try again in 1.5s.",
        True,
        1.5,
    ),
    "bad prompt": (
        {"type": "response.failed", "response": {"error": {"code": "invalid_prompt", "message": "No."}}},
        "api.openai.com did not take the request: No.",
        False,
        None,
    ),
    "no reason": (
        {"type": "response.failed", "response": {}},
        "api.openai.com broke off its answer: it failed without a reason",
        True,
        None,
    ),
    "error event": (
        {"type": "error", "code": "server_error", "message": "Boom", "sequence_number": 3},
        "api.openai.com failed: Boom",
        True,
        None,
    ),
    "error inside": (
        {"type": "error", "error": {"type": "insufficient_quota", "message": "Pay."}},
        "api.openai.com has no quota left for this account: add credit or raise its limit, then ask again.",
        False,
        None,
    ),
    "a status as its code": (
        {"error": {"message": "Odd", "code": 502}},
        "api.openai.com failed: Odd",
        True,
        None,
    ),
    "an error alone": ({"error": {"message": "Odd"}}, "api.openai.com broke off its answer: Odd", True, None),
}


@pytest.mark.parametrize(("event", "text", "retryable", "wait_s"), FAILED.values(), ids=FAILED)
def test_answers_that_fail_on_the_way(event, text, retryable, wait_s):
    """Each says in a sentence why, whether it is asked again and when; no key is in it."""
    with pytest.raises(ModelError) as failed:
        heard(*message("half"), event)
    assert (text, retryable, wait_s) == (str(failed.value), failed.value.retryable, failed.value.retry_after_s)


def test_a_stream_without_its_end_has_no_calls():
    """An answer that was cut before its last event is asked for again."""
    events = [*message("see"), *function("cut", "{}", 1, "c1"), ended()]
    for at in range(len(events)):
        with pytest.raises(ModelError) as failed:
            heard(*events[:at])
        assert (STREAM_CLOSED, True) == (str(failed.value), failed.value.retryable)


def test_unknown_events_are_nothing():
    """Kinds that come later than this code change nothing."""
    odd = [{"type": "response.new.delta", "delta": "x"}, {"type": 7}, {}, [], None, "x", {"type": "response.steer"}]
    assert heard(*message("hi"), ended()) == heard(*odd, *message("hi"), *odd, ended())


@pytest.mark.parametrize("usage", [None, 7, {}, {"input_tokens": -3, "output_tokens": "x", "input_tokens_details": []}])
def test_a_usage_that_is_missing_or_odd_counts_nothing(usage):
    """No answer is lost for the sake of its usage."""
    assert heard(*message("hi"), ended(usage=usage)).usage in (None, Usage())


KINDS = st.sampled_from(
    [
        *("response.output_text.delta", "response.output_item.added", "response.output_item.done", "response.failed"),
        *("response.function_call_arguments.delta", "response.completed", "response.incomplete", "error"),
        "response.reasoning_summary_text.delta",
    ]
)
ITEM_FIELDS = ("name", "arguments", "call_id", "content", "summary", "encrypted_content", "status", "phase")
ITEMS = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "function_call", "reasoning", "custom_tool_call"]) | VALUES},
    optional=dict.fromkeys(ITEM_FIELDS, VALUES),
)
EVENTS = st.fixed_dictionaries(
    {"type": KINDS},
    optional={
        "delta": VALUES,
        "output_index": VALUES,
        "item": ITEMS | VALUES,
        "response": VALUES | st.fixed_dictionaries({"output": st.lists(ITEMS, max_size=2), "usage": VALUES}),
    },
)


@given(events=st.lists(EVENTS, max_size=6))
def test_no_server_brings_it_down(events):
    """Whatever a server sends is a reply, or a ModelError."""
    try:
        reply = heard(*events)
    except ModelError:
        return
    assert all(isinstance(thought, Thought) for thought in reply.thoughts)

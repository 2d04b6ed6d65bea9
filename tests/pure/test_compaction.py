"""Compaction decided: what stays, how full a window is, what a request that is too large does without."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.books import HISTORY
from callboard.actors.compaction import (
    CUT,
    KEPT_MAX_TOKENS,
    MESSAGE_TOKENS,
    REQUEST,
    TOKEN_CHARS,
    filled,
    limit_tokens,
    recent,
    request,
    tokens_of,
    tokens_of_text,
    window_of,
    without_oldest,
)
from callboard.actors.events import Call, Compacted, MessageQueued, MessagesClaimed, UserText
from callboard.actors.fold import replay
from callboard.actors.model import Assistant, Developer, Prompt, PromptMessage, Result, ToolSpec, User
from callboard.actors.testing import ScriptedModel

from .event_samples import TEXTS

SOURCES = ("user", "steer", "schedule", "goal", "agent:/root", "agent:/root/a", "notice", "marker", "shell", "hook")
CALL = Call("grep", {"pattern": "shed"}, "c1")


def exchanges() -> st.SearchStrategy[list[PromptMessage]]:
    """One thing that was said, or an answer with its calls and their results."""
    said = st.one_of(st.builds(User, TEXTS, st.sampled_from(SOURCES)), st.builds(Developer, TEXTS))
    counts = st.integers(0, 3)
    called = counts.map(
        lambda count: [
            Assistant("calling", tuple(Call("grep", {}, f"c{n}") for n in range(count))),
            *(Result(f"c{n}", "grep", "found") for n in range(count)),
        ]
    )
    return st.one_of(said.map(lambda message: [message]), called)


HISTORIES = st.lists(exchanges(), max_size=12).map(lambda parts: [message for part in parts for message in part])


def check_results(messages: Iterable[PromptMessage]) -> None:
    """Each result stands behind its call."""
    owed: list[str] = []
    for message in messages:
        if isinstance(message, Result):
            assert owed.pop(0) == message.call
        else:
            assert not owed
            owed = [call.id for call in message.calls] if isinstance(message, Assistant) else []
    assert not owed


def prompt_of(messages: Any, system: str = "", tools: tuple[ToolSpec, ...] = ()) -> Prompt:
    """A prompt with these messages."""
    return Prompt("s", 1, 1, system, messages, tools)


@pytest.mark.parametrize(
    ("configured", "window", "limit"),
    [(None, None, None), (None, 1000, 900), (500, None, 500), (500, 1000, 500), (950, 1000, 900), (None, 1, 0)],
)
def test_the_limit_is_the_smaller_one(configured, window, limit):
    """A prompt is too large from what is configured, or 90 % of the window, whichever comes first."""
    assert limit == limit_tokens(configured, window)


@pytest.mark.parametrize(("own", "window"), [(None, None), (7, 7), (0, None), (-1, None), (True, None), ("8k", None)])
def test_a_window_is_what_the_model_says(own, window):
    """A window that is no count of tokens is no window, and what is configured goes before what the model says."""
    assert (window, 5) == (window_of(ScriptedModel(context_window=own), None), window_of(ScriptedModel(), 5))
    assert window_of(object(), None) is None


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (User(""), 0),
        (User("x"), 1),
        (User("x" * 4), 1),
        (Developer("x" * 5), 2),
        (Result("c1", "grep", "x" * 40), 10),
        (Assistant("x" * 4, (Call("grep", '{"a": 12}'),)), 1 + MESSAGE_TOKENS + 1 + 3),
        (Assistant("", (Call("grep", {"a": 1}),)), MESSAGE_TOKENS + 1 + 2),
    ],
)
def test_a_message_is_estimated_by_its_characters(message, tokens):
    """Four characters are a token, begun ones count, and calls count with their names and arguments."""
    assert MESSAGE_TOKENS + tokens == tokens_of(message)


def test_a_prompt_is_estimated_whole_until_it_was_counted():
    """Without a count all of the prompt is estimated; with one, what came after the last whole answer is added."""
    tools = (ToolSpec("grep", "x" * 400, {}),)
    messages = [User("x" * 400), Assistant("x" * 400), Assistant("cut", interrupted=True), User("x" * 40)]
    assert 100 + 100 + 100 + 1 + 10 + 4 * MESSAGE_TOKENS + 100 < filled(prompt_of(messages, "x" * 400, tools), 0) < 450
    assert 5000 + 1 + 10 + 2 * MESSAGE_TOKENS == filled(prompt_of(messages, "x" * 400, tools), 5000)
    assert 7 == filled(prompt_of([]), 7)


@given(HISTORIES)
def test_what_comes_after_an_answer_is_what_the_count_grows_by(messages):
    """Adding a message to a counted prompt adds its estimate."""
    more = [*messages, User("x" * 33)]
    assert filled(prompt_of(more), 10) == filled(prompt_of(messages), 10) + tokens_of(more[-1])


KEPT = {
    "nothing of nothing": ([], "/root", 100, ()),
    "the user's words in order": (
        [User("a"), Assistant("b"), User("c", "steer"), Developer("d"), User("e")],
        "/root",
        100,
        (UserText("a"), UserText("c", "steer"), UserText("e")),
    ),
    "no other's": ([User("x", source) for source in SOURCES[2:]], "/root", 100, ()),
    "a parent's to its child": (
        [User("dig", "agent:/root/a"), User("hi", "agent:/root"), User("hey", "agent:/root/a/b/c")],
        "/root/a/b",
        100,
        (UserText("dig", "agent:/root/a"),),
    ),
    "the newest first": ([User("x" * 40), User("y" * 40)], "/root", 10, (UserText("y" * 40),)),
    "the oldest cut": (
        [User("w"), User("x" * 400), User("y" * 40)],
        "/root",
        60,
        (UserText("x" * (200 - len(CUT)) + CUT), UserText("y" * 40)),
    ),
    "nothing too short to be cut": ([User("x" * 80), User("y" * 40)], "/root", 12, (UserText("y" * 40),)),
}


@pytest.mark.parametrize(("messages", "path", "most", "kept"), KEPT.values(), ids=KEPT)
def test_what_is_kept(messages, path, most, kept):
    """What the user said lately stays, within its bound, the oldest of it cut."""
    assert kept == recent(messages, path, most)


@given(HISTORIES, st.integers(0, 40))
def test_what_is_kept_is_bounded_and_said(messages, most):
    """It is within the bound, whole but for the oldest, a run of the user's last words, and the same each time."""
    kept = recent(messages, "/root", most)
    assert sum(tokens_of_text(one.text) for one in kept) <= most
    said = [UserText(m.text, m.source) for m in messages if isinstance(m, User) and m.source in ("user", "steer")]
    tail = said[len(said) - len(kept) :]
    assert list(kept[1:]) == tail[1:]
    assert not kept or kept[0] == tail[0] or kept[0].text == tail[0].text[: len(kept[0].text) - len(CUT)] + CUT
    assert kept == recent(messages, "/root", most)
    assert len(said) == len(recent(messages))  # the default has room for all of these


def test_the_default_bound():
    """20,000 tokens of the user's words are kept."""
    (kept,) = recent([User("x" * TOKEN_CHARS * 30_000)])
    assert (KEPT_MAX_TOKENS, TOKEN_CHARS * KEPT_MAX_TOKENS) == (20_000, len(kept.text))


@given(HISTORIES, st.text(max_size=5))
def test_a_compacted_history_is_valid_and_compacts_again(messages, summary):
    """It has the kept words and one message, no result without a call, and no summary is taken for the user's word."""
    kept = recent(messages)
    event = Compacted(summary, "briefing: ", kept)
    before = (MessageQueued("m", "old"), MessagesClaimed(("m",)))
    after = replay(HISTORY, (*before, event)).messages
    check_results(after)
    assert [*(User(k.text, k.source) for k in kept), User(f"briefing: {summary}", "notice")] == list(after)
    assert kept == recent(after)


@given(HISTORIES, st.integers(0, 20))
def test_dropping_the_oldest_leaves_a_valid_request(messages, count):
    """As many as asked for go, with the results of what went; the request itself stays, whatever is asked."""
    whole = request(messages)
    shorter = without_oldest(whole, count)
    check_results(shorter)
    assert User(REQUEST, "notice") == shorter[-1]
    assert shorter == whole[len(whole) - len(shorter) :]
    assert len(shorter) <= max(1, len(whole) - count)
    gone = whole[count : len(whole) - len(shorter)]
    assert all(isinstance(message, Result) for message in gone)


def test_results_go_with_their_call():
    """Without its call a result is dropped too."""
    messages = (Assistant("", (CALL,)), Result("c1", "grep", "x"), User("y"))
    assert (User("y"),) == without_oldest(messages, 1)

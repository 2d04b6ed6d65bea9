"""Questions, approvals and permissions as the log tells them, and which answers a question takes."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.asked import (
    ANSWERS,
    APPROVALS,
    PERMISSIONS,
    QUESTIONS,
    TEXT_MAX_CHARS,
    Permissions,
    flaw_of,
    key_of,
)
from callboard.actors.events import Event, ToolCalled, TurnEnded, TurnStarted, Usage
from callboard.actors.facts import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalPolicySet,
    Option,
    PlanModeSet,
    QuestionAnswered,
    QuestionAsked,
)
from callboard.actors.fold import replay

KEY = key_of("rm", {"path": "x"})
ASKED = ApprovalAsked("1.c", "c", 1, "rm", {"path": "x"}, KEY)
QUESTION = QuestionAsked("1.q", "q", 1, "ask", "Head", "Which?", (Option("a"), Option("b", "the other")))
CALLED = ToolCalled("c", "rm", {"path": "x"}, "once")
ENDED = TurnEnded(1, "completed", None, "", None, (), Usage(), 1, 1, 0, 0)
ENTERED, LEFT = PlanModeSet(active=True), PlanModeSet(active=False)


def permitted(*events: Event) -> Permissions:
    """What these leave permitted."""
    return replay(PERMISSIONS, events)


def test_questions_and_approvals_are_open_until_they_are_settled():
    """Each is there from its asking to its one end, in the order asked; other ids settle nothing."""
    other = QuestionAsked("2.q", "q", 2, "ask", "", "Other?", (Option("a"),))
    assert (QUESTION, other) == replay(QUESTIONS, (QUESTION, other, QuestionAnswered("x", "answered")))
    assert (other,) == replay(QUESTIONS, (QUESTION, other, QuestionAnswered("1.q", "dismissed")))
    assert (ASKED,) == replay(APPROVALS, (ASKED, ApprovalDecided("1.q", "deny")))
    assert () == replay(APPROVALS, (ASKED, ApprovalDecided("1.c", "cancelled")))


def test_answers_are_kept_for_one_turn():
    """How things ended can be read until the next turn begins."""
    ends = (QuestionAnswered("1.q", "answered", ("a",)), ApprovalDecided("1.c", "deny", "no"))
    assert ends == replay(ANSWERS, (QUESTION, ASKED, *ends))
    assert () == replay(ANSWERS, (QUESTION, ASKED, *ends, TurnStarted(2, "regular", "user")))


def test_a_single_permission_is_used_once():
    """The call that it was given for takes it along, another call does not, and the end of the turn ends it."""
    allowed = (ASKED, ApprovalDecided("1.c", "allow_once"))
    assert Permissions(once=(KEY,)) == permitted(*allowed)
    assert Permissions(once=(KEY,)) == permitted(*allowed, ToolCalled("d", "rm", {"path": "y"}, "once"))
    assert Permissions() == permitted(*allowed, CALLED)
    assert Permissions(once=(KEY,)) == permitted(*allowed, *allowed, CALLED)
    assert Permissions() == permitted(*allowed, ENDED)


def test_a_tool_that_was_allowed_stays_allowed():
    """It is noted once, whatever call of it was asked for, and turns do not end it."""
    allowed = (ASKED, ApprovalDecided("1.c", "allow_session"))
    assert Permissions(tools=("rm",)) == permitted(*allowed, CALLED, ENDED, *allowed)


@pytest.mark.parametrize("decision", ["deny", "cancelled", "unavailable"])
def test_nothing_else_permits_anything(decision):
    """A request that was not allowed leaves nothing behind, nor does a decision about nothing."""
    assert Permissions() == permitted(ASKED, ApprovalDecided("1.c", decision))
    assert Permissions() == permitted(ApprovalDecided("1.c", "allow_session"))


def test_plan_mode_ends_with_what_was_permitted_before_it():
    """Policy and tools are kept at its entry, and are back at its exit; what is asked then stays open."""
    before = (ApprovalPolicySet("ask"), ASKED, ApprovalDecided("1.c", "allow_session"))
    during = (ApprovalPolicySet("off"), ApprovalAsked("2.d", "d", 2, "mv", {}, "mv:1"))
    inside = permitted(*before, ENTERED, *during, ApprovalDecided("2.d", "allow_session"))
    assert ("off", ("rm", "mv")) == (inside.policy, inside.tools)
    again = permitted(*before, ENTERED, *during, ApprovalDecided("2.d", "allow_session"), LEFT)
    assert Permissions("ask", ("rm",)) == again
    waiting = permitted(*before, ENTERED, *during, ENTERED, LEFT)
    assert Permissions("ask", ("rm",), asked=(during[1],)) == waiting
    later = permitted(*before, ENTERED, *during, LEFT, ApprovalDecided("2.d", "allow_session"))
    assert Permissions("ask", ("rm", "mv")) == later
    assert permitted(*before) == permitted(*before, LEFT)


ANSWERED: tuple[tuple[Sequence[str], str | None, str | None], ...] = (
    (("a",), None, None),
    (("b",), "but only today", None),
    ((), "something else", None),
    ((), None, None),
    ((), " \n", "the text is empty: leave it out"),
    (("c",), None, "'c' is none of its choices: a, b"),
    (("A",), None, "'A' is none of its choices: a, b"),
    (("a", "b"), None, "it takes one choice, got 2"),
    (("a", "a"), None, "it takes one choice, got 2"),
    ((), "x" * TEXT_MAX_CHARS, None),
    ((), "x" * (TEXT_MAX_CHARS + 1), "the text has 100,001 characters: at most 100,000 are taken"),
)


@pytest.mark.parametrize(("choices", "text", "flaw"), ANSWERED)
def test_which_answers_a_question_takes(choices, text, flaw):
    """At most one of its own labels, and a text that says something; what is wrong is said in one sentence."""
    assert flaw == flaw_of(QUESTION, tuple(choices), text)


def test_what_is_wrong_with_an_answer_is_said_in_bounds():
    """Neither a huge choice nor fifty huge labels make the sentence long."""
    options = tuple(Option(f"{n}{'y' * 500}") for n in range(50))
    asked = QuestionAsked("1.q", "q", 1, "ask", "", "Which?", options)
    flaw = flaw_of(asked, ("z" * 1_000_000,), None)
    assert flaw is not None
    assert len(flaw) < 700


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(arguments=st.dictionaries(st.text(), JSON))
def test_the_same_call_has_the_same_key(arguments):
    """The order of its arguments does not count; another tool, or other arguments, are another call."""
    again = dict(reversed(arguments.items()))
    assert key_of("rm", arguments) == key_of("rm", again)
    assert key_of("rm", arguments) != key_of("mv", arguments)
    assert key_of("rm", arguments) != key_of("rm", {**arguments, "more": 1})


@pytest.mark.parametrize("arguments", ["{", "\ud800", None, 1, [], ..., {"x": {1, 2}}], ids=repr)
def test_any_arguments_have_a_key(arguments):
    """What is no JSON, or no text, has a key all the same."""
    assert key_of("rm", arguments).startswith("rm:")

"""Questions and approvals as lines for people, and what the line that they type says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from callboard.actors.asked import flaw_of
from callboard.actors.facts import ApprovalAsked, Option, QuestionAsked
from callboard.plugins.handovers import Proposal
from callboard.runtime.doors.board import visible
from callboard.runtime.doors.prompts import answer_in, decision_in, lines_of, uptake_in, written

ASKED = QuestionAsked(
    "1.q.1", "q", 1, "ask", "Paint", "Which wall?", (Option("red"), Option("10"), Option("the sea: blue", "as it is"))
)
CALL = ApprovalAsked("1.c", "c", 1, "shell", {"command": "rm -r x"}, "k")

TYPED: tuple[tuple[str, tuple[str, ...], str | None], ...] = (
    ("1", ("red",), None),
    (" 1 ", ("red",), None),
    ("red", ("red",), None),
    ("RED", (), "RED"),
    ("10", ("10",), None),
    ("2", ("10",), None),
    ("3: but not today", ("the sea: blue",), "but not today"),
    ("1:", ("red",), None),
    ("the sea: blue", ("the sea: blue",), None),
    ("the sea: green", (), "the sea: green"),
    ("4", (), "4"),
    ("0", (), "0"),
    ("-1", (), "-1"),
    ("0001", (), "0001"),
    ("\u0661", (), "\u0661"),
    ("1 red", (), "1 red"),
    ("12:30", (), "12:30"),
    ("", (), None),
    ("  \t", (), None),
    ("none of them", (), "none of them"),
)


@pytest.mark.parametrize(("line", "choices", "text"), TYPED)
def test_what_a_line_answers(line, choices, text):
    """A number of a choice or its label, with a text behind a colon; anything else is a text; nothing is nothing."""
    assert (choices, text) == answer_in(ASKED, line)


@given(line=st.text())
def test_every_line_is_an_answer_that_the_question_takes(line):
    """Whatever is typed, the question takes it, or it is dismissed."""
    assert flaw_of(ASKED, *answer_in(ASKED, line)) is None


DECIDED: tuple[tuple[str, str, str | None], ...] = (
    *((line, "allow_once", None) for line in ("1", "y", "Y", " yes ", "Yes.")),
    *((line, "allow_session", None) for line in ("2", "a", "always")),
    *((line, "deny", None) for line in ("", " ", "3", "n", "No", "no.")),
    ("yse", "deny", "yse"),
    ("yes please", "deny", "yes please"),
    ("11", "deny", "11"),
    ("use mv instead", "deny", "use mv instead"),
)


@pytest.mark.parametrize(("line", "decision", "feedback"), DECIDED)
def test_what_a_line_decides(line, decision, feedback):
    """Only the words that allow do: any other line denies the call, and is told to the model."""
    assert (decision, feedback) == decision_in(line)


UPTAKES: tuple[tuple[str, str | None], ...] = (
    *((line, "implement") for line in ("1", "y", " Yes. ", "implement")),
    *((line, "clear") for line in ("2", "c", "Clear")),
    *((line, "stay") for line in ("", " \t", "3", "n", "NO", "stay.")),
    *((line, None) for line in ("4", "0", "11", "1 2", "\u0661", "yes please", "\x1b[A", "x" * 100_000)),
)


@pytest.mark.parametrize(("line", "uptake"), UPTAKES, ids=lambda value: repr(value)[:20])
def test_what_a_line_makes_of_a_plan(line, uptake):
    """Only the words that say so carry a plan out; nothing at all stays in Plan mode; the rest is no choice."""
    assert uptake == uptake_in(line)


def test_a_proposed_plan_as_lines():
    """Three numbered choices and what can be typed; the plan itself, however hostile, is not told again."""
    assert [
        "? Implement this plan?",
        "  1. yes, here, in the default mode",
        "  2. yes, with a cleared context: in a new session that is given the plan",
        "  3. no, stay in Plan mode",
        "  a number; Enter alone stays in Plan mode",
    ] == [str(line) for line in lines_of(Proposal("1-plan", "\x1b[2J"), 100)]


def test_a_question_as_lines():
    """Header and question, then its numbered choices, then what can be typed; who asks, and a detail, above."""
    assert [
        "? Paint - Which wall?",
        "  1. red",
        "  2. 10",
        "  3. the sea: blue - as it is",
    ] == [str(line) for line in lines_of(ASKED, 100)][:-1]
    detailed = QuestionAsked("1.q", "q", 1, "p", "", "Go?", (Option("Yes"),), "# Plan\n\n1. look")
    assert ["? a/b:", "  # Plan", "  ", "  1. look", "? Go?", "  1. Yes"] == [
        str(line) for line in lines_of(detailed, 100, "a/b")
    ][:-1]


def test_an_approval_shows_the_whole_call():
    """Nothing of what would run is left out, however long its line is."""
    lines = [str(line) for line in lines_of(CALL, 100)]
    assert ["? shell needs your approval:", "  {", '    "command": "rm -r x"', "  }", "  1. allow this call"] == lines[
        :5
    ]
    long = ApprovalAsked("1.c", "c", 1, "shell", {"command": "echo " + "x" * 9_000 + " && rm -r /"}, "k")
    shown = "".join(str(line).strip() for line in lines_of(long, 100))
    assert ("&& rm -r /" in shown, 9_000) == (True, shown.count("x"))


@pytest.mark.parametrize("arguments", ["{", "rm \x1b[2J", None, [1], {"a": {"b": "\U0001f600"}}, 5], ids=repr)
def test_any_arguments_are_shown(arguments):
    """What is no JSON is shown as it came."""
    assert isinstance(written(arguments), str)


NASTY = st.text(st.characters(codec="utf-8"), max_size=60) | st.just("\x1b]0;x\x07\u202e\x00\r\n")


@given(text=NASTY, label=NASTY, room=st.integers(12, 60))
def test_hostile_texts_become_harmless_lines(text, label, room):
    """No line is wider than the room, and none holds anything that a terminal would obey."""
    options = (Option(label, text),)
    asked: tuple[Any, ...] = (
        QuestionAsked("1.q", "q", 1, "p", label, text, options, text),
        ApprovalAsked("1.c", "c", 1, "save", {"text": text, label: 1}, "k"),
        ApprovalAsked("1.c", "c", 1, "save", text, "k"),
        Proposal(label, text),
    )
    for one in asked:
        for line in map(str, lines_of(one, room, "child")):
            assert (line, True) == (visible(line), cell_len(line) <= max(room, 12))

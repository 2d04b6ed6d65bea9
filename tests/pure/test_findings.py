"""What a reviewer's answer is read as, and how the result reads."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.facts import Finding, ReviewEnded
from callboard.actors.findings import REVIEWER, fragment, read, result, summary

ONE = {"title": "Close it", "body": "It leaks.", "confidence": 0.9, "priority": 1, "file": "a.py"}
GOOD = {"findings": [{**ONE, "first_line": 3, "last_line": 5}], "explanation": "Nearly right."}
TEXT = msgspec.json.encode(GOOD).decode()
FOUND = Finding("Close it", "It leaks.", 0.9, 1, "a.py", 3, 5)


@pytest.mark.parametrize(
    "text", [TEXT, f"  {TEXT}\n", f"Here it is:\n```json\n{TEXT}\n```\nBye.", TEXT.replace('"a.py"', '"a.py","x":1')]
)
def test_findings_are_read(text):
    """As JSON, with words around it, and with fields nobody asked for."""
    assert ((FOUND,), "Nearly right.") == read(text)


@pytest.mark.parametrize(
    "text",
    [
        "All is well.",
        "{}",
        "} {",
        "[1, 2]",
        TEXT.replace("0.9", "1.5"),
        TEXT.replace('"priority":1', '"priority":"high"'),
        TEXT.replace('"first_line":3', '"first_line":0'),
        TEXT.replace('"Close it"', '""'),
        TEXT[:-5],
        "{" * 10_000,
    ],
)
def test_what_is_no_review_is_an_explanation(text):
    """Nothing is guessed: an answer that does not fit is kept whole, as words."""
    assert ((), text) == read(text)


def test_lines_the_wrong_way_round():
    """A range never ends before it begins."""
    assert 7 == read(TEXT.replace('"first_line":3', '"first_line":7'))[0][0].last_line


def test_no_finding_is_a_good_answer():
    """An empty list with an explanation, or with none."""
    assert ((), "Right.") == read('{"findings": [], "explanation": "Right."}')
    assert ((), "") == read('{"findings": []}')


@given(st.text())
def test_any_text_is_read(text):
    """Whatever a model says, it is a review or words, and can be written."""
    findings, explanation = read(text)
    msgspec.json.encode((findings, explanation))


def test_the_form_the_reviewer_is_told_is_the_one_that_is_read():
    """The example in the instructions, made whole, is a review."""
    example = REVIEWER[REVIEWER.index('{"findings"') :]
    assert 1 == len(read(example)[0])


def test_how_it_reads():
    """Priority, title, place and confidence in one line; then the body, then the explanation."""
    ended = ReviewEnded(1, "s.r", "completed", (FOUND,), "Nearly right.")
    head = "[P1] Close it (a.py:3-5, confidence 0.9)"
    assert f"{head}\nIt leaks.\n\nNearly right." == result(ended)
    assert f"The review has 1 finding:\n- {head}\nNearly right." == summary(ended)
    assert "made of: the last commit" in fragment("the last commit", ended)
    assert "The review found nothing.\nRight." == summary(ReviewEnded(1, "s.r", "completed", (), "Right."))
    assert "No." == summary(ReviewEnded(1, "s.r", "failed", (), "No."))

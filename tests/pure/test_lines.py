"""Slash and `!` lines, how a command of the user's own reads in history, and the checks of what callers hand over."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.answered import VERBS
from callboard.actors.books import QUEUE
from callboard.actors.checks import SCHEMA_MAX_BYTES, check_schema, same_json
from callboard.actors.claim import first_claim, left_over, next_start, next_task, owner_of
from callboard.actors.errors import UsageError
from callboard.actors.events import Message, MessageEdited, MessageQueued, QueueParked, TurnEnded, TurnStarted
from callboard.actors.messages import Compact, ModeAnswer, Refused, Replace, Review, Shell, Told, Writes
from callboard.actors.plugin import Command, Did, View
from callboard.actors.stage import Ran
from callboard.actors.usershell import Heard, fragment
from callboard.actors.verbs import decide
from callboard.runtime.lines import KNOWN, Line, mode_text, parse

from .event_samples import log_of

LINES = {
    "hello": Line("submit", "hello"),
    "": Line("submit", ""),
    " /compact": Line("submit", " /compact"),
    "/home/me/x is broken": Line("submit", "/home/me/x is broken"),
    "/ what": Line("submit", "/ what"),
    "/compact": Line("compact"),
    "/Compact ": Line("compact"),
    "/review the last commit\nand more": Line("review", "the last commit\nand more"),
    "/plan": Line("set_mode", "plan"),
    "/plan on": Line("set_mode", "plan"),
    "/plan  off ": Line("set_mode", "default"),
    "/plan OFF": Line("plan", "OFF"),
    "/plan off the road\nand on": Line("plan", "off the road\nand on"),
    "!ls -l": Line("shell", "ls -l"),
    "! echo '!'": Line("shell", "echo '!'"),
}


@pytest.mark.parametrize(("line", "expected"), LINES.items())
def test_lines(line, expected):
    """Each line is one verb; what is no command is a message, taken as it is."""
    assert expected == parse(line)


@pytest.mark.parametrize("line", ["/nope", "/nope with more", "/compact now", "/review", "!", "! "])
def test_a_wrong_line_is_one_sentence(line):
    """It names what was wrong; a command that is not there names those that are."""
    with pytest.raises(UsageError) as raised:
        parse(line)
    text = str(raised.value)
    assert "\n" not in text
    assert text.endswith(".")
    assert ", ".join(KNOWN) in text or not line.startswith("/nope")


def test_a_command_of_a_plugin():
    """It is given what stands behind it; what is for programs is unknown to people, and not named to them."""
    commands = {c.name: c for c in (Command("tell", _acts, "[WHAT]"), Command("secret", _acts, hidden=True))}
    assert Line("use", "a  b", "tell") == parse("/TELL  a  b ", commands)
    with pytest.raises(UsageError) as raised:
        parse("/secret", commands)
    assert str(raised.value).endswith("known are " + ", ".join((*KNOWN, "/tell [WHAT]")) + ".")


def _acts(view: View, rest: Any) -> Did:
    return Did((), Told(""))


@given(st.text())
def test_any_text_is_a_verb_or_a_clear_error(line):
    """Nothing else is raised, whatever is typed."""
    if line[:1] in ("/", "!"):
        with contextlib.suppress(UsageError):
            assert parse(line).verb in (*VERBS.values(), "plan")
    else:
        assert Line("submit", line) == parse(line)


# -- how a command reads in history


def test_a_fragment():
    """The shape that models were trained on, to the letter."""
    expected = (
        "<user_shell_command>\n<command>\nls\n</command>\n<result>\nExit code: 2\nDuration: 1.5000 seconds\n"
        "Output:\nno\n</result>\n</user_shell_command>"
    )
    assert expected == fragment("ls", Ran(2), 1.5, "no")


def test_a_long_output_is_cut_in_the_middle():
    """400 numbers in 100 tokens: head and tail, the counts of all, and the mark inside the line that is broken."""
    heard = Heard(100)
    for n in range(1, 401):
        heard.add(f"{n}\n")
    numbers = [str(n) for n in range(1, 401)]
    expected = "Warning: truncated output (original token count: 373)\nTotal output lines: 400\n\n" + "\n".join(
        [*numbers[:69], "70\u2026273 tokens truncated\u2026351", *numbers[351:]]
    )
    assert expected == heard.text()


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=30), max_size=30), st.integers(1, 40))
def test_what_is_heard_is_bounded(pieces, tokens_max):
    """Whole when it fits; else it begins and ends as the output does, and no character is broken."""
    heard = Heard(tokens_max)
    for piece in pieces:
        heard.add(piece)
    whole = "".join(pieces)
    if len(whole.encode()) <= 4 * tokens_max:
        assert whole.removesuffix("\n") == heard.text()
    else:
        assert len(heard.text().encode()) <= 4 * tokens_max + 200
        assert "\ufffd" not in heard.text() or "\ufffd" in whole


# -- schemas


@pytest.mark.parametrize("schema", ["x", 1, [1], {"x": object()}, {"x": "y" * SCHEMA_MAX_BYTES}])
def test_a_schema_is_a_json_object(schema):
    """Anything else, and one that is too large, is the caller's mistake."""
    with pytest.raises(UsageError, match="schema"):
        check_schema(schema)


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=5,
)


@given(JSON, JSON)
def test_json_values_are_the_same_or_not(left, right):
    """The order of keys does not count; a number, a float and a truth value are never the same."""
    assert same_json(left, left)
    assert not same_json(left, right) or left == right
    assert (same_json({"a": 1, "b": 2}, {"b": 2, "a": 1}), same_json([1], [True]), same_json(1, 1.0)) == (
        True,
        False,
        False,
    )


# -- the queue of tasks

U, R1, R2 = Message("u", "x"), Message("r1", "x", task="replace"), Message("r2", "x", task="replace")
C, BACK = Message("c", "", task="compact"), Message("b", "x", "steer", returned=True)
OUT = Message("o", "x", "shell")


def test_what_asks_for_a_task_goes_before_all_other_input():
    """Behind what came back from the turn before and behind those before it; an edit keeps the place."""
    log = log_of(TurnStarted(1), MessageQueued("b", "x", "steer"), MessageQueued("u", "x"), TurnEnded(1, "aborted"))
    log.append(
        MessageQueued("r1", "y", task="replace"), MessageQueued("c", "", task="compact"), MessageEdited("r1", "x")
    )
    assert (BACK, R1, C, U) == log[QUEUE]


@pytest.mark.parametrize(
    ("queue", "parked", "task", "start"),
    [
        ((R1, C, U), False, None, "user"),
        ((C, R1, U), False, C, "user"),
        ((R1, C, U), True, C, None),
        ((C,), True, C, None),
        ((C,), False, C, None),
        ((OUT,), False, None, None),
    ],
)
def test_which_task_is_next(queue, parked, task, start):
    """The oldest that asks for one; parking holds texts back, but no other task; printed output starts nothing."""
    assert (task, start) == (next_task(queue, parked=parked), next_start(queue, parked=parked, plan_mode=False))


def test_all_that_replaced_a_turn_is_the_next_one():
    """The claim takes every text that replaced, none that waited, and never what asks for another task."""
    assert ((BACK, R1, R2, OUT), (U,)) == (first_claim((BACK, R1, C, R2, U, OUT), "user"), first_claim((C, U), "user"))
    assert ("task", (OUT,), (OUT,)) == (owner_of(C), left_over((C, OUT)), left_over((C, OUT), aborted=True))


REFUSALS: dict[str, tuple[Writes, str]] = {
    "compact": (Compact("x"), "unsupported"),
    "review before its text": (Review(""), "unsupported"),
    "shell before its text": (Shell(""), "unsupported"),
    "replace": (Replace(""), "empty_input"),
}


@pytest.mark.parametrize(("letter", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_refusals_in_order(letter, reason):
    """What a runtime does not have comes before what is wrong with the text."""
    events, answer = decide(
        log_of(QueueParked(parked=True)), letter, idle=True, joins=False, can=lambda t: t == "replace"
    )
    assert isinstance(answer, Refused)
    assert ((), reason) == (events, answer.reason)


# -- what people read of the mode

REPLIES = (
    (True, "committed", True, "Plan mode is on."),
    (True, "queued", False, "Plan mode begins with the next step."),
    (True, "cancelled", True, "Plan mode stays on."),
    (True, "noop", True, "Plan mode is on already, or begins with the next step."),
    (False, "committed", False, "Plan mode is off."),
    (False, "queued", True, "Plan mode ends with the next step."),
    (False, "cancelled", False, "Plan mode does not begin: the switch was taken back."),
    (False, "noop", True, "Plan mode ends with the next step."),
    (False, "noop", False, "Plan mode is off already."),
)


@pytest.mark.parametrize(("on", "result", "active", "expected"), REPLIES)
def test_a_switch_is_told_to_people(on, result, active, expected):
    """Each answer has a sentence; off again, when that is chosen already, reads as it did the first time."""
    assert expected == mode_text(ModeAnswer(result), on=on, active=active)

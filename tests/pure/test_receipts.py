"""What is written about calls that did not simply complete; the repair after a crash; texts that fit."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.books import TURN
from callboard.actors.events import (
    Call,
    CallReceipt,
    Cause,
    ControlCallEnded,
    Effect,
    Ending,
    Event,
    ModelSaid,
    Receipt,
    StepEnded,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    Usage,
)
from callboard.actors.receipts import (
    CONTROL_TOOLS,
    MAY_REPEAT,
    NAME_MAX_CHARS,
    OUTCOMES,
    UNKNOWN,
    aborted_text,
    clean_text,
    cut_middle,
    ending_of,
    marker_text,
    repair,
    shown_name,
)

from .event_samples import CODEC, Book
from .stories import books

NEVER_RAN = "not started: the program ended before this call ran. Nothing of it ran; it may be called again."
ANY_TEXT = st.text(st.characters(), max_size=300)  # lone surrogates too

# -- repair


def crashed(*events: Event) -> Book:
    """A log that ends in the first step of its first turn."""
    return Book(TurnStarted(1, started_ms=5), StepStarted(1, 1), *events)


EFFECTS: tuple[tuple[Effect | None, str, Receipt, str], ...] = (
    (None, "grep", "not_started", NEVER_RAN),
    ("none", "grep", "interrupted", MAY_REPEAT),
    ("idempotent", "grep", "interrupted", MAY_REPEAT),
    ("once", "grep", "outcome_unknown", UNKNOWN),
)


@pytest.mark.parametrize(("effect", "name", "receipt", "text"), EFFECTS, ids=[str(row[0]) for row in EFFECTS])
def test_repair_gives_an_open_call_its_result(effect, name, receipt, text):
    """A call that never ran says so; one that did is judged by its declared effect."""
    book = crashed(ModelSaid("on it", (Call(name, {}, "c1"),), usage=Usage(3)))
    if effect is not None:
        book.add(ToolCalled("c1", name, {}, effect))
    ended = TurnEnded(
        1,
        "interrupted",
        last_message="on it",
        receipts=(CallReceipt("c1", name, receipt),),
        usage=Usage(3),
        steps=1,
        tool_calls=1,
        started_ms=5,
        ended_ms=99,
    )
    expected = (ToolReturned("c1", receipt, OUTCOMES[receipt], text, name=name), StepEnded(1, 1), ended)
    assert expected == repair(book[TURN], 99)


@pytest.mark.parametrize("name", sorted(CONTROL_TOOLS))
def test_repair_closes_an_open_control_call_as_interrupted(name):
    """A control call that ran gets its one fact; one that never ran gives none."""
    book = crashed(ModelSaid("", (Call(name, {}, "c1"), Call(name, {}, "c2"))), ToolCalled("c1", name, {}, "none"))
    facts = [event for event in repair(book[TURN], 99) if isinstance(event, ControlCallEnded)]
    assert [ControlCallEnded("c1", None, name, 99, 99, "interrupted")] == facts


def test_repair_keeps_the_results_that_are_there():
    """Calls that had returned keep their receipts, in front of the ones that the repair writes."""
    book = crashed(ModelSaid("", (Call("grep", {}, "c1"), Call("grep", {}, "c2"))))
    book.add(ToolReturned("c1", "completed", "completed", "ok", 0.5, "grep"))
    ended = repair(book[TURN], 99)[-1]
    assert isinstance(ended, TurnEnded)
    assert (CallReceipt("c1", "grep", "completed", 0.5), CallReceipt("c2", "grep", "not_started")) == ended.receipts


def test_repair_of_a_turn_between_steps_is_its_end_alone():
    """Without an open step or call only the turn is closed."""
    book = Book(TurnStarted(1, "review", started_ms=5))
    expected = (TurnEnded(1, "interrupted", started_ms=5, ended_ms=7, kind="review"),)
    assert expected == repair(book[TURN], 7)


@given(books(), st.integers(0, 10**13))
def test_repair_closes_whatever_a_crash_left_and_only_once(book, at_ms):
    """The repair is legal after every log, the same each time, and leaves nothing for a second one."""
    was_open = book[TURN].open
    closing = repair(book[TURN], at_ms)
    assert closing == repair(book[TURN], at_ms)
    assert was_open == bool(closing)
    book.add(*closing)
    assert (False, ()) == (book[TURN].open, repair(book[TURN], at_ms + 1))


@given(books(), st.integers(0, 10**13))
def test_repair_writes_the_same_bytes_for_a_log_that_was_read(book, at_ms):
    """A log that was lived and the same log read from its bytes are repaired alike, byte for byte."""
    again = Book(*(CODEC.decode(CODEC.encode(event)) for event in book.events))
    assert [CODEC.encode(event) for event in repair(book[TURN], at_ms)] == [
        CODEC.encode(event) for event in repair(again[TURN], at_ms)
    ]


@given(books(), st.integers(0, 10**13))
def test_repair_cut_short_goes_on_where_it_was(book, at_ms):
    """A crash in the middle of a repair is repaired to the same results, and no control call is counted twice."""
    whole = repair(book[TURN], at_ms)
    for upto in range(len(whole)):
        half = Book(*book.events, *whole[:upto])
        rest = repair(half[TURN], at_ms)
        returned = [event for event in (*whole[:upto], *rest) if isinstance(event, ToolReturned | TurnEnded)]
        assert [event for event in whole if isinstance(event, ToolReturned | TurnEnded)] == returned
        facts = [event.call for event in (*whole[:upto], *rest) if isinstance(event, ControlCallEnded)]
        assert len(facts) == len(set(facts))


# -- words


OUTCOME_OF = (
    ("completed", "completed"),
    ("failed", "failed"),
    ("rejected", "rejected"),
    ("interrupted", "interrupted"),
    ("abandoned", "interrupted"),
    ("not_started", None),
    ("outcome_unknown", "interrupted"),
)


def test_each_receipt_has_its_outcome():
    """A receipt decides what is counted of a control call."""
    assert dict(OUTCOME_OF) == dict(OUTCOMES)
    assert {receipt for receipt, _ in OUTCOME_OF} == set(get_args(Receipt))


LEFT = " It did not stop in time and was left behind; what it may still do is not reported."
TEXTS: tuple[tuple[tuple[Cause, Receipt, float, str], str], ...] = (
    (("interrupted", "interrupted", 1.23, ""), "aborted by user after 1.2s"),
    (("interrupted", "interrupted", 0.0, ""), "aborted by user after 0.1s"),
    (("interrupted", "interrupted", 1.23, "so far"), "aborted by user after 1.2s\nso far"),
    (("interrupted", "abandoned", 0.1, ""), f"aborted by user after 0.1s.{LEFT}"),
    (
        ("interrupted", "not_started", 5.0, ""),
        "not started: aborted by user. Nothing of it ran; it may be called again.",
    ),
    (("replaced", "interrupted", 2.0, ""), "aborted because a new task replaced this one after 2.0s"),
    (("parent", "interrupted", 2.0, ""), "aborted together with the parent agent after 2.0s"),
    (("budget", "interrupted", 2.0, ""), "aborted because a budget is used up after 2.0s"),
    (("shutdown", "interrupted", 2.0, ""), "aborted because the runtime is shutting down after 2.0s"),
    (("review_ended", "interrupted", 2.0, ""), "aborted because the review ended after 2.0s"),
)


@pytest.mark.parametrize(("given", "text"), TEXTS)
def test_what_the_model_reads_of_an_aborted_call(given, text):
    """The text says who ended the call, after how long, and what was captured."""
    assert text == aborted_text(*given)


def test_every_cause_has_words():
    """No cause is left without a text."""
    assert set(get_args(Cause)) == {given[0] for given, _ in TEXTS}


def test_the_marker_speaks_of_the_user_only_as_a_user_message():
    """Both markers are wrapped the same; the developer's does not put words into the user's mouth."""
    user, developer = marker_text("user"), marker_text("developer")
    assert developer == user.replace("The user stopped", "Somebody stopped")
    assert ("<turn_aborted>", "</turn_aborted>") == (user.split("\n")[0], user.split("\n")[-1])
    assert "user" not in developer.replace("turn_aborted", "")


ENDINGS: tuple[tuple[tuple[Receipt, ...], bool, Ending], ...] = (
    ((), False, "cancelled"),
    ((), True, "graceful"),
    (("completed", "interrupted"), False, "cancelled"),
    (("completed", "interrupted"), True, "graceful"),
    (("interrupted", "abandoned"), False, "abandoned"),
    (("interrupted", "abandoned"), True, "abandoned"),
)


@pytest.mark.parametrize(("receipts", "told", "ending"), ENDINGS)
def test_an_abort_is_named_by_its_worst_call(receipts, told, ending):
    """Abandoned comes before graceful, graceful before cancelled."""
    assert ending == ending_of(receipts, told)


# -- texts that fit


CUTS = (
    ("hello", 5, "hello"),
    ("hello", 4, "he\n[... 1 bytes cut ...]\nlo"),
    ("hello", 1, "\n[... 5 bytes cut ...]\n"),
    ("hello", 0, "\n[... 5 bytes cut ...]\n"),
    ("hello", -7, "\n[... 5 bytes cut ...]\n"),
    ("", 0, ""),
    ("éééé", 6, "é\n[... 4 bytes cut ...]\né"),
    ("a" * 5_000, 4, "aa\n[... 4,996 bytes cut ...]\naa"),
)


@pytest.mark.parametrize(("text", "limit", "expected"), CUTS)
def test_cut_middle(text, limit, expected):
    """What is too long keeps its head and tail, and the cut says how much is gone."""
    assert expected == cut_middle(text, limit)


@given(st.text(st.characters(codec="utf-8"), max_size=200), st.integers(0, 300))
def test_a_cut_text_fits_and_loses_nothing_unsaid(text, limit):
    """What is kept fits the limit, stands at both ends of the text, and with what is gone makes the whole."""
    cut = cut_middle(text, limit)
    size = len(text.encode())
    if size <= limit:
        assert text == cut
        return
    begin, end = cut.rindex("\n[... "), cut.rindex(" bytes cut ...]\n")
    head, tail = cut[:begin], cut[end + len(" bytes cut ...]\n") :]
    gone = int(cut[begin + len("\n[... ") : end].replace(",", ""))
    kept = len(head.encode()) + len(tail.encode())
    assert (True, True, size) == (text.startswith(head), text.endswith(tail), kept + gone)
    assert kept <= limit


@given(ANY_TEXT)
def test_clean_text_can_always_be_written(text):
    """A cleaned text is valid UTF-8, stays as it is when cleaned again, and a clean one is not touched."""
    clean = clean_text(text)
    assert (clean, clean) == (clean.encode().decode(), clean_text(clean))
    if all(not "\ud800" <= char <= "\udfff" for char in text):
        assert text is clean


def test_clean_text_mends_pairs_and_replaces_halves():
    """Two halves of one character become it; a half alone becomes U+FFFD."""
    assert "\N{GRINNING FACE} \ufffd." == clean_text("\ud83d\ude00 \ud83d.")


def test_clean_text_makes_plain_text():
    """Another library's own kind of text becomes a plain str, without asking how it shows itself."""

    class Loud(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "LOUD"

    assert ("quiet", str) == (clean_text(Loud("quiet")), type(clean_text(Loud("quiet"))))


@given(ANY_TEXT)
def test_a_shown_name_is_short_and_printable(name):
    """Whatever the name, it can be quoted on one line."""
    shown = shown_name(name)
    assert (True, True) == (shown.isprintable(), len(shown) <= NAME_MAX_CHARS)
    assert shown.encode().decode() == shown
    if name.isprintable() and len(name) <= NAME_MAX_CHARS:
        assert name == shown


NAMES = (
    ("grep", "grep"),
    ("a\nb\x1b[31m", "a\ufffdb\ufffd[31m"),
    ("x" * 64, "x" * 64),
    ("x" * 65, "x" * 63 + "…"),
    ("\ud800", "\ufffd"),
    ("", ""),
)


@pytest.mark.parametrize(("name", "shown"), NAMES)
def test_shown_name(name, shown):
    """Control characters are replaced and a long name is cut with a mark."""
    assert shown == shown_name(name)

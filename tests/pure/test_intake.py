"""Hostile replies: whatever a model answers, it is a ModelError or something the log keeps and gives back equal."""

import datetime as dt
import decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.errors import ModelError
from callboard.actors.events import (
    Call,
    ModelSaid,
    StepEnded,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnStarted,
    Usage,
)
from callboard.actors.intake import (
    CALLS_MAX,
    DEPTH_MAX,
    HEAD_KEPT_CHARS,
    ID_MAX_CHARS,
    TOKENS_MAX,
    provider_label,
    take,
)
from callboard.actors.model import Reply
from callboard.actors.receipts import NAME_MAX_CHARS
from callboard.actors.tool import ARGUMENTS_MAX_BYTES

from .event_samples import CODEC, JSON, Book


class Odd:
    """An object that hurts whoever looks at it."""

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __repr__(self) -> str:
        return "Odd()"  # Hypothesis and pytest look at it


class Shout(str):
    """A text of another library's own type."""

    __slots__ = ()


ODD: Any = Odd()


def nested(depth: int) -> Any:
    """A list in a list in a list."""
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def cycle() -> Any:
    """A value that contains itself."""
    value: dict[str, Any] = {"a": 1}
    value["self"] = value
    return value


def kept(reply: Any, used: set[str] | None = None) -> Reply:
    """The reply as it was taken in, after the log has shown that it can keep it."""
    taken = take(reply, set() if used is None else used, "t1s1")
    said = ModelSaid(taken.text, tuple(taken.calls), usage=taken.usage or Usage(), truncated=taken.truncated)
    assert said == CODEC.decode(CODEC.encode(said))
    for call in said.calls:
        called = ToolCalled(call.id, call.name, call.arguments)
        assert called == CODEC.decode(CODEC.encode(called))
    return taken


def one(*fields: Any, **named: Any) -> Call:
    """The call that becomes of a call with these fields."""
    (call,) = kept(Reply("", [Call(*fields, **named)])).calls
    return call


# -- what passes


def test_an_ordinary_reply_passes_as_it_is():
    """A reply with nothing wrong comes out equal, with its usage and its calls."""
    calls = (Call("grep", {"pattern": "x"}, "c1"), Call("shell", '{"command":"ls"}', "c2", "custom"))
    expected = Reply("hi", calls, Usage(1, 2, 3, 4, 0.5), truncated=True, more=True)
    used: set[str] = set()
    assert (expected, {"c1", "c2"}) == (kept(expected, used), used)


def test_an_empty_reply_passes():
    """Nothing said is a reply too, and no usage counts as none."""
    assert Reply("", (), Usage()) == kept(Reply())


@given(JSON)
def test_arguments_that_are_json_pass_as_they_are(arguments):
    """Decoded arguments come out equal, and as text they are not touched at all."""
    text = msgspec.json.encode(arguments).decode()
    assert [Call("f", arguments, "c1"), Call("f", text, "c1")] == [one("f", arguments, "c1"), one("f", text, "c1")]


def test_a_reply_does_not_share_its_arguments():
    """What the model's side does with its object later reaches neither the log nor the tool."""
    arguments = {"a": [1]}
    call = one("f", arguments)
    arguments["a"].append(2)
    assert {"a": [1]} == call.arguments


# -- arguments

# What a model may send as arguments: what is kept of it, and what is wrong with it.
ARGUMENTS: dict[str, tuple[Any, Any, str]] = {
    "bytes are text": (b'{"a":1}', '{"a":1}', ""),
    "a bytearray is text": (bytearray(b"{}"), "{}", ""),
    "another kind of text": (Shout("{}"), "{}", ""),
    "text that is no JSON, for the tool to refuse": ("{", "{", ""),
    "nothing": (None, None, ""),
    "a tuple is a list": ((1, (2,)), [1, [2]], ""),
    "numbers as keys are text": ({1: 2}, {"1": 2}, ""),
    "a date is text": (dt.date(2030, 1, 2), "2030-01-02", ""),
    "a decimal is text": ({"a": decimal.Decimal("1.50")}, {"a": "1.50"}, ""),
    "a struct is an object": (Usage(input=3), {"input": 3}, ""),
    "another kind of text inside": ({"a": Shout("x")}, {"a": "x"}, ""),
    "deep text": ("[" * 10_000, "[" * 10_000, ""),
    "deep, but not too deep": (nested(DEPTH_MAX - 1), nested(DEPTH_MAX - 1), ""),
    "invalid UTF-8": (b'{"a":"\xff"}', '{"a":"\\xff"}', "invalid UTF-8 at byte 6"),
    "a lone surrogate": ('{"a":"\ud800"}', '{"a":"\ufffd"}', "invalid UTF-8 at character 6"),
    "NaN": ({"a": [float("nan")]}, {}, "the arguments hold NaN or infinity, which JSON cannot say"),
    "infinity": ((1.0, {"a": float("-inf")}), {}, "the arguments hold NaN or infinity, which JSON cannot say"),
    "a null is no NaN": ({"a": None, "b": 1.5}, {"a": None, "b": 1.5}, ""),
}


@pytest.mark.parametrize(("given", "arguments", "flaw"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments(given, arguments, flaw):
    """Arguments become what their JSON says, or what can be kept of them together with what is wrong."""
    assert Call("f", arguments, "c1", "function", flaw) == one("f", given, "c1")


UNWRITABLE: dict[str, tuple[Any, str]] = {
    "a cycle": (cycle(), "the arguments cannot be written as JSON: nested too deep"),
    "very deep": (nested(10_000), "the arguments cannot be written as JSON: nested too deep"),
    "too deep": ([nested(DEPTH_MAX + 1), "x" * 600], "nested deeper than 64 levels"),
    "an object": (ODD, "the arguments cannot be written as JSON: Odd has no written form"),
    "a lone surrogate inside": ({"a": "\ud800"}, "the arguments cannot be written as JSON: 'utf-8' codec can't encode"),
    "a lone surrogate as a key": ({"\ud800": 1}, "the arguments cannot be written as JSON: 'utf-8' codec can't encode"),
    "raw bytes": (msgspec.Raw(b"{{"), "the arguments cannot be written as JSON: JSON is malformed"),
    "an endless number": (10**5_000, "the arguments cannot be written as JSON: "),
    "a key that is none": ({None: {(1,): 2}}, "the arguments cannot be written as JSON: "),
    "a large object": ({"a": "x" * 10_000_000}, "the arguments are 10,000,008 bytes; at most 4,194,304 are taken"),
}


@pytest.mark.parametrize(("given", "flaw"), UNWRITABLE.values(), ids=UNWRITABLE)
def test_arguments_that_cannot_be_written(given, flaw):
    """Arguments that no log can keep become none, with what was wrong, in a short text."""
    call = one("f", given, "c1")
    assert ({}, True, True) == (call.arguments, call.flaw.startswith(flaw), len(call.flaw) < 300)


def test_ten_megabytes_of_text_keep_their_head():
    """Of arguments over the limit only the beginning is kept, and the size is said."""
    call = one("f", "x" * 10_000_000, "c1")
    flaw = "the arguments are 10,000,000 bytes; at most 4,194,304 are taken"
    assert Call("f", "x" * HEAD_KEPT_CHARS, "c1", "function", flaw) == call


def test_arguments_at_the_limit_are_taken():
    """The largest arguments that are taken are taken whole."""
    text = "x" * ARGUMENTS_MAX_BYTES
    assert Call("f", text, "c1") == one("f", text, "c1")


# -- names, ids and the rest of a call

CALLS: dict[str, tuple[tuple[Any, ...], Call]] = {
    "control characters in a name": (("a\nb\x00", {}, "c1"), Call("a\ufffdb\ufffd", {}, "c1")),
    "a long name": (("x" * 100_000, {}, "c1"), Call("x" * (NAME_MAX_CHARS - 1) + "…", {}, "c1")),
    "no name": (("", {}, "c1"), Call("", {}, "c1")),
    "a lone surrogate in a name": (("\ud800", {}, "c1"), Call("\ufffd", {}, "c1")),
    "a name that is none": ((None, {}, "c1"), Call("NoneType", {}, "c1")),
    "a name that hurts": ((ODD, {}, "c1"), Call("Odd", {}, "c1")),
    "another kind of text": ((Shout("f"), {}, Shout("c1"), Shout("custom")), Call("f", {}, "c1", "custom")),
    "no id": (("f",), Call("f", {}, "t1s1c1")),
    "an id with a newline": (("f", {}, "a\nb"), Call("f", {}, "t1s1c1")),
    "an id with a lone surrogate": (("f", {}, "\udfff"), Call("f", {}, "t1s1c1")),
    "a long id": (("f", {}, "x" * (ID_MAX_CHARS + 1)), Call("f", {}, "t1s1c1")),
    "the longest id": (("f", {}, "x" * ID_MAX_CHARS), Call("f", {}, "x" * ID_MAX_CHARS)),
    "an id that is none": (("f", {}, 5), Call("f", {}, "t1s1c1")),
    "a kind that is none": (("f", {}, "c1", 5), Call("f", {}, "c1")),
    "a kind with control characters": (("f", {}, "c1", "a\n"), Call("f", {}, "c1", "a\ufffd")),
    "a flaw of the provider": (("f", "{", "c1", "function", "torn"), Call("f", "{", "c1", "function", "torn")),
    "a flaw that is none": (("f", {}, "c1", "function", ODD), Call("f", {}, "c1")),
    "a flaw with a lone surrogate": (("f", {}, "c1", "function", "\ud800"), Call("f", {}, "c1", "function", "\ufffd")),
    "a long flaw": (("f", {}, "c1", "function", "x" * 10_000), Call("f", {}, "c1", "function", "x" * HEAD_KEPT_CHARS)),
}


@pytest.mark.parametrize(("fields", "call"), CALLS.values(), ids=CALLS)
def test_a_call_is_made_fit_for_the_log(fields, call):
    """Each field of a call becomes text that can be kept and quoted, and the id is one that can be used."""
    assert call == one(*fields)


def test_every_call_has_an_id_of_its_own():
    """A repeated or missing id is replaced by the place of the call, also when it was used in an earlier step."""
    used = {"c1", "t1s1c4"}
    names = ["c1", "c2", "c2", "", "t1s1c3"]
    taken = kept(Reply("", [Call("f", {}, id) for id in names]), used)
    assert ["t1s1c1", "c2", "t1s1c3", "t1s1c4.2", "t1s1c5"] == [call.id for call in taken.calls]
    assert {"c1", "c2", "t1s1c1", "t1s1c3", "t1s1c4", "t1s1c4.2", "t1s1c5"} == used


def test_a_thousand_calls_of_one_id_are_told_apart():
    """The most calls that are taken get ids of their own even if they all came with the same one."""
    taken = kept(Reply("", [Call("f", {}, "same")] * CALLS_MAX))
    assert CALLS_MAX == len({call.id for call in taken.calls})


@given(st.lists(st.sampled_from(["", "a", "t1s1c1", "t1s1c2", "t1s1c2.2", "\n", "t1s1c3"]), max_size=8), st.data())
def test_ids_never_repeat_in_a_turn(names, data):
    """Whatever ids come, in whatever steps, no two calls of a turn share one."""
    used: set[str] = set()
    cut = data.draw(st.integers(0, len(names)))
    ids = [
        call.id
        for part in (names[:cut], names[cut:])
        for call in take(Reply("", [Call("f", {}, id) for id in part]), used, "t1s1").calls
    ]
    assert (len(names), set(ids)) == (len(set(ids)), used)


# -- the whole reply

NO_REPLIES: dict[str, tuple[Any, str]] = {
    "nothing": (None, "the model answered NoneType, not a Reply."),
    "text": ("hi", "the model answered str, not a Reply."),
    "an object that hurts": (ODD, "the model answered Odd, not a Reply."),
    "no text": (Reply(None), "the model's text is NoneType, not str."),  # type: ignore[arg-type]
    "bytes": (Reply(b"hi"), "the model's text is bytes, not str."),  # type: ignore[arg-type]
    "calls that are a number": (Reply("", 5), "the model's calls are int, not a list of Call."),  # type: ignore[arg-type]
    "calls that are text": (Reply("", "ab"), "the model's calls are str, not a list of Call."),  # type: ignore[arg-type]
    "calls that are an object": (Reply("", {"a": 1}), "the model's calls are dict, not a list of Call."),  # type: ignore[arg-type]
    "calls that hurt": (Reply("", ODD), "the model's calls are Odd, not a list of Call."),
    "a call that is none": (Reply("", [Call("f"), None]), "call 2 of the reply is NoneType, not a Call."),  # type: ignore[list-item]
    "a call that is an object": (Reply("", [{"name": "f"}]), "call 1 of the reply is dict, not a Call."),  # type: ignore[list-item]
    "too many calls": (
        Reply("", [Call("f")] * (CALLS_MAX + 1)),
        "the model asked for more than 1,000 calls at once; none was taken.",
    ),
    "endless calls": (
        Reply("", range(10**18)),  # type: ignore[arg-type]
        "the model asked for more than 1,000 calls at once; none was taken.",
    ),
    "usage that is none": (Reply("", (), {"input": 1}), "the model's usage is dict, not Usage."),  # type: ignore[arg-type]
    "a count that is text": (Reply("", (), Usage("3")), "a count in the model's usage is str, not int."),  # type: ignore[arg-type]
    "a count that is a fraction": (Reply("", (), Usage(1.5)), "a count in the model's usage is float, not int."),  # type: ignore[arg-type]
    "a count that is true": (Reply("", (), Usage(True)), "a count in the model's usage is bool, not int."),  # noqa: FBT003
    "a price that is text": (
        Reply("", (), Usage(cost_usd="3")),  # type: ignore[arg-type]
        "a price in the model's usage is str, not float.",
    ),
}


@pytest.mark.parametrize(("reply", "text"), NO_REPLIES.values(), ids=NO_REPLIES)
def test_what_is_no_reply_is_the_models_error(reply, text):
    """Something that is no reply ends the request with a text that says what it was."""
    with pytest.raises(ModelError) as refused:
        kept(reply)
    assert (text, False) == (str(refused.value), refused.value.retryable)


USAGES: dict[str, tuple[Any, Usage]] = {
    "below zero": (Usage(-5, -1, 3), Usage(output=3)),
    "beyond counting": (Usage(2**200), Usage(TOKENS_MAX)),
    "NaN": (Usage(1, cost_usd=float("nan")), Usage(1)),
    "infinity": (Usage(1, cost_usd=float("inf")), Usage(1)),
    "a price below zero": (Usage(1, cost_usd=-0.5), Usage(1)),
    "a whole price": (Usage(1, cost_usd=3), Usage(1, cost_usd=3.0)),
    "an endless price": (Usage(1, cost_usd=10**5_000), Usage(1)),
}


@pytest.mark.parametrize(("given", "usage"), USAGES.values(), ids=USAGES)
def test_usage_can_be_summed_and_written(given, usage):
    """Counts and prices that make no sense count as nothing, and the answer is kept."""
    assert Reply("hi", (), usage) == kept(Reply("hi", (), given))


def test_flags_are_flags():
    """A flag counts only when it is true itself."""
    assert Reply("", (), Usage()) == kept(Reply("", (), None, "yes", ODD))  # type: ignore[arg-type]
    assert (True, True) == (kept(Reply("", truncated=True)).truncated, kept(Reply("", more=True)).more)


TEXTS = (("\x00\x1b[31m", "\x00\x1b[31m"), ("a\ud800", "a\ufffd"), ("\ud83d\ude00", "\N{GRINNING FACE}"))


@pytest.mark.parametrize(("given", "text"), TEXTS)
def test_a_text_is_kept_as_utf_8_can(given, text):
    """Control characters are the model's to say; half characters are replaced."""
    assert text == kept(Reply(given)).text


PROVIDERS = (
    ("openai", "openai"),
    (Shout("x"), "x"),
    ("", "other"),
    (None, "other"),
    (ODD, "other"),
    ("a\n", "a\ufffd"),
)


@pytest.mark.parametrize(("provider", "label"), PROVIDERS)
def test_a_provider_is_a_label(provider, label):
    """Whatever a model says of its provider, it is a short text that can be kept."""
    assert label == provider_label(provider)


# -- whatever goes in

LOOSE_TEXT = st.text(st.characters(), max_size=10)
WILD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | LOOSE_TEXT
    | LOOSE_TEXT.map(Shout)
    | st.binary(max_size=10)
    | st.decimals()
    | st.dates()
    | st.complex_numbers()
    | st.just(ODD)
    | st.builds(cycle)
    | st.builds(nested, st.integers(1, 200))
    | st.builds(msgspec.Raw, st.binary(max_size=5)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(LOOSE_TEXT | st.integers() | st.floats() | st.none(), inner, max_size=3)
        | st.frozensets(st.integers() | LOOSE_TEXT, max_size=3)
    ),
    max_leaves=6,
)
WILD_CALLS = st.builds(Call, LOOSE_TEXT | WILD, WILD, LOOSE_TEXT | WILD, LOOSE_TEXT | WILD, LOOSE_TEXT | WILD)
WILD_USAGE = st.builds(Usage, WILD, WILD, WILD, WILD, WILD)
WILD_REPLIES = st.builds(
    Reply, LOOSE_TEXT | WILD, st.lists(WILD_CALLS | WILD, max_size=3) | WILD, st.none() | WILD_USAGE | WILD, WILD, WILD
)
TIDIER_REPLIES = st.builds(Reply, LOOSE_TEXT, st.lists(WILD_CALLS, max_size=3), st.none(), WILD, WILD)


@given(TIDIER_REPLIES | WILD_REPLIES | WILD)
def test_whatever_goes_in_is_kept_or_is_the_models_error(reply):
    """No answer raises anything but ModelError, and what is taken is written and read back equal."""
    try:
        taken = kept(reply)
    except ModelError as refused:
        str(refused).encode()
        return
    again = take(taken, set(), "t1s1")
    assert taken == again


@given(st.lists(TIDIER_REPLIES, max_size=3))
def test_whatever_was_taken_is_legal_on_the_log(replies):
    """The calls of any answers can follow each other in a turn."""
    book, used = Book(TurnStarted(1)), set[str]()
    for step, reply in enumerate(replies, 1):
        taken = take(reply, used, f"t1s{step}")
        book.add(StepStarted(1, step), ModelSaid(taken.text, tuple(taken.calls)))
        book.add(*(ToolReturned(call.id, "failed", "failed", "", name=call.name) for call in taken.calls))
        book.add(StepEnded(1, step))

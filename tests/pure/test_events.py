"""Events and their written form: what is written is read back equal, and what is read is an event or refused."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.codec import Codec
from callboard.actors.envelope import CORE_EVENTS, Envelope, Unknown
from callboard.actors.errors import LogError, UsageError
from callboard.actors.events import (
    Call,
    Event,
    HookFailed,
    Message,
    MessageQueued,
    MessagesClaimed,
    MessageWithdrawn,
    ModelSaid,
    NoteAdded,
    StepEnded,
    ToolCalled,
    TurnEnded,
    TurnStarted,
    Usage,
    kind_of,
)
from callboard.actors.facts import PLUGIN_EVENTS, PlanUpdated, Todo, TodosWritten

from .event_kinds import REQUIRED, TAGS
from .event_samples import CODEC, EVENTS, TEXTS, events_of, same_bytes_after_one_reading

# Tags stand in logs that are kept for ever: this list only grows.


class Rained(Event, frozen=True):
    """An event of a plugin."""

    mm: int
    where: str = "here"


class Drizzled(Event, frozen=True):
    """An event that other builds may read past."""

    ignorable = True
    mm: int


class Snowed(Event, frozen=True):
    """An event that no codec here knows."""


WEATHER = Codec((Rained, Drizzled))
QUEUED = MessageQueued("a", "hello", seq=3, turn=1)


def both_ways(event: Event) -> Event:
    """An event after it was written and read."""
    return CODEC.decode(CODEC.encode(event))


# -- round trips


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_event_is_read_back_equal(kind, data):
    """An event of any type, with any values its fields can have, is equal after it was written and read."""
    event = data.draw(events_of(kind))
    assert event == both_ways(event)


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_an_event_that_was_read_is_written_the_same_for_ever(kind, data):
    """Reading and writing again changes no byte after the first time."""
    once, twice = same_bytes_after_one_reading(data.draw(events_of(kind)))
    assert once == twice


@given(events_of(ModelSaid), TEXTS, st.integers(0, 2**62), st.integers(0, 2**62), st.none() | st.integers(0, 2**62))
def test_an_envelope_is_one_line_and_comes_back_equal(event, session, seq, at_ms, turn):
    """An envelope is written without a newline inside, whatever its texts hold, and is read back equal."""
    envelope = Envelope(session or "s", seq, at_ms, turn, event)
    line = CODEC.to_line(envelope)
    assert (False, envelope) == (b"\n" in line, CODEC.from_line(line))


def test_the_line_of_an_envelope():
    """A line has the number, the time, the event, the turn and the session, in this order."""
    expected = (
        b'{"seq":7,"at_ms":1000,"event":{"type":"message_queued","id":"a","text":"hello","seq":3,"turn":1},'
        b'"turn":1,"session":"s"}'
    )
    assert expected == CODEC.to_line(Envelope("s", 7, 1000, 1, QUEUED))


def test_a_line_can_be_read_into_another_session():
    """The id that is given replaces the recorded one, and a line may lack its session and turn."""
    line = CODEC.to_line(Envelope("s", 7, 1000, 1, QUEUED))
    short = b'{"seq":0,"at_ms":5,"event":{"type":"message_withdrawn","id":"a"}}'
    assert [Envelope("t", 7, 1000, 1, QUEUED), Envelope("", 0, 5, None, MessageWithdrawn("a"))] == [
        CODEC.from_line(line, "t"),
        CODEC.from_line(short),
    ]


WRITTEN: tuple[tuple[Event, bytes], ...] = (
    (QUEUED, b'{"type":"message_queued","id":"a","text":"hello","seq":3,"turn":1}'),
    (TurnStarted(1), b'{"type":"turn_started","turn":1}'),
    (StepEnded(1, 2), b'{"type":"step_ended","turn":1,"step":2}'),
    (
        ModelSaid("hi", (Call("f", {"a": 1}, "c1"),), usage=Usage(3)),
        b'{"type":"model_said","text":"hi","calls":[{"name":"f","arguments":{"a":1},"id":"c1"}],"usage":{"input":3}}',
    ),
    (ToolCalled("c1", "f", '{"a":1}'), b'{"type":"tool_called","call":"c1","name":"f","arguments":"{\\"a\\":1}"}'),
    (
        PlanUpdated(None, ()),
        b'{"type":"plan_updated","explanation":null,"plan":[]}',
    ),
    (
        TodosWritten((Todo("x", "pending"),)),
        b'{"type":"todos_written","todos":[{"content":"x","status":"pending"}]}',
    ),
    (TurnEnded(1, "completed"), b'{"type":"turn_ended","turn":1,"reason":"completed"}'),
)


@pytest.mark.parametrize(("event", "body"), WRITTEN, ids=lambda value: getattr(type(value), "__name__", ""))
def test_the_written_form(event, body):
    """The type comes first, then the fields in order; fields at their defaults are left out."""
    assert (body, body) == (CODEC.encode(event), CODEC.encode(CODEC.decode(body)))


def test_subclasses_of_plain_values_are_written_as_what_they_are():
    """Texts and numbers of other libraries' own types are written like plain ones."""

    class Shout(str):
        __slots__ = ()

    class Seconds(float):
        __slots__ = ()

    class Count(int):
        __slots__ = ()

    events = (NoteAdded(Shout("hey")), StepEnded(1, Count(2), Seconds(0.5)))
    assert [NoteAdded("hey"), StepEnded(1, 2, 0.5)] == [both_ways(event) for event in events]


# -- kinds


def test_tags_are_stable():
    """The tags of the events are the ones that stand in kept logs."""
    assert {kind_of(kind.__name__) for kind in (*CORE_EVENTS, *PLUGIN_EVENTS)} == TAGS
    assert set(Codec().kinds) == TAGS


def test_a_new_field_has_a_default():
    """The fields an event cannot do without are the ones it was born with."""
    required = {
        kind.__name__: [f.name for f in msgspec.structs.fields(kind) if f.required]
        for kind in (*CORE_EVENTS, *PLUGIN_EVENTS)
    }
    assert required == REQUIRED


def test_an_unknown_kind_is_refused_by_name():
    """A kind this build does not know is named, with what to install."""
    with pytest.raises(LogError) as refused:
        CODEC.decode(WEATHER.encode(Rained(3)))
    assert str(refused.value) == (
        "event kind 'rained' is unknown: install the plugin or the newer version that wrote it."
    )


def test_an_ignorable_kind_is_read_past_and_kept():
    """An unknown kind that says so is kept as its bytes, and written again as those bytes."""
    body = WEATHER.encode(Drizzled(3))
    kept = CODEC.decode(body)
    assert (b'{"type":"drizzled","mm":3,"ignorable":true}', Drizzled(3)) == (body, WEATHER.decode(body))
    assert (Unknown("drizzled", body), body) == (kept, CODEC.encode(kept))
    assert kept == CODEC.from_line(CODEC.to_line(Envelope("s", 0, 1, None, kept))).event


def test_a_later_build_may_add_fields():
    """Fields that a later build added are read past."""
    assert MessageWithdrawn("a") == CODEC.decode(b'{"type":"message_withdrawn","id":"a","why":"changed my mind"}')


REFUSED_KINDS: tuple[tuple[Any, str], ...] = (
    ((type("QueueParked", (Event,), {}),), "event kind 'queue_parked' is taken by QueueParked: rename QueueParked."),
    ((str,), "Plugin.events takes subclasses of Event, got <class 'str'>."),
    ((Rained(1),), "Plugin.events takes subclasses of Event, got Rained(mm=1, where='here')."),
    ((type("Numbered", (Event,), {}, tag=5),), "the tag of Numbered must be text, got 5: leave it out."),
)


@pytest.mark.parametrize(("kinds", "text"), REFUSED_KINDS)
def test_a_codec_refuses_kinds_that_cannot_live_together(kinds, text):
    """A taken tag, a tag that is no text, and what is no event are the caller's mistakes."""
    with pytest.raises(UsageError) as refused:
        Codec(kinds)
    assert text == str(refused.value)


def test_a_codec_refuses_a_field_that_cannot_be_read():
    """A field of a type that JSON cannot carry is found when the codec is made."""

    class Odd(Event, frozen=True):
        """Cannot be told apart when it is read."""

        both: list[int] | tuple[int, ...]

    with pytest.raises(UsageError, match="an event has a field that cannot be read back"):
        Codec((Odd,))


def test_listing_an_event_twice_is_harmless():
    """Two plugins may list the same event."""
    assert set(Codec((Rained, Rained, PlanUpdated)).kinds) == {*TAGS, "rained"}


# -- what must not reach a log


MISFITS: tuple[tuple[Event, str], ...] = (
    (Snowed(), "Snowed is no event of this runtime: list it in the events of its Plugin."),
    (Rained("much"), "Rained could not be read back: Expected `int`, got `str` - at `$.mm`."),  # type: ignore[arg-type]
    (MessageQueued("a", 5), "MessageQueued could not be read back: Expected `str`, got `int` - at `$.text`."),  # type: ignore[arg-type]
    (NoteAdded("a", "boss"), "NoteAdded could not be read back: Invalid enum value 'boss' - at `$.role`."),  # type: ignore[arg-type]
    (
        MessagesClaimed((), (Message("a", None),)),  # type: ignore[arg-type]
        "MessagesClaimed could not be read back: Expected `str`, got `null` - at `$.messages[0].text`.",
    ),
    (HookFailed(5, "no"), "HookFailed could not be read back: Expected `str`, got `int` - at `$.hook`."),  # type: ignore[arg-type]
    (TodosWritten("x"), "TodosWritten could not be read back: Expected `array`, got `str` - at `$.todos`."),  # type: ignore[arg-type]
)


@pytest.mark.parametrize(("event", "text"), MISFITS, ids=lambda value: getattr(type(value), "__name__", ""))
def test_an_event_of_a_plugin_that_could_not_be_read_back_is_refused(event, text):
    """No plugin can write a log that nobody can open again."""
    with pytest.raises(UsageError) as refused:
        WEATHER.encode(event)
    assert text == str(refused.value)


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_a_lone_surrogate_has_no_written_form(text):
    """A text that UTF-8 cannot carry is refused before anything is written."""
    with pytest.raises(UnicodeEncodeError):
        CODEC.encode(NoteAdded(text))


# -- damage


@given(events_of(ModelSaid), st.data())
def test_a_torn_record_is_refused(event, data):
    """Every proper beginning of a record is refused as damage."""
    body = CODEC.encode(event)
    with pytest.raises(LogError):
        CODEC.decode(body[: data.draw(st.integers(0, len(body) - 1))])


@given(st.sampled_from(EVENTS).flatmap(events_of), st.data())
def test_a_damaged_record_is_an_event_or_refused(event, data):
    """Bytes changed anywhere make another event or a LogError, and nothing else."""
    body = bytearray(CODEC.encode(event))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    for read in (CODEC.decode, CODEC.from_line):
        with suppress(LogError):
            read(bytes(body))


@given(st.binary(max_size=60))
def test_garbage_is_refused(garbage):
    """Bytes that are no event are a LogError, as a record and as a line."""
    for read in (CODEC.decode, CODEC.from_line):
        with pytest.raises(LogError):
            read(garbage)


HOSTILE = {
    "nothing": b"",
    "null": b"null",
    "a list": b"[]",
    "no type": b"{}",
    "type is no text": b'{"type":5}',
    "two types": b'{"type":"note_added","text":"a","type":"turn_started"}',
    "missing field": b'{"type":"note_added"}',
    "wrong type": b'{"type":"step_started","turn":"1","step":1}',
    "a fraction": b'{"type":"step_started","turn":1.5,"step":1}',
    "not a number": b'{"type":"step_ended","turn":1,"step":1,"overhead_s":NaN}',
    "not in the list": b'{"type":"turn_started","turn":1,"kind":"odd"}',
    "two values": b'{"type":"note_added","text":"a"}{"type":"note_added","text":"a"}',
    "invalid UTF-8": b'{"type":"note_added","text":"\xff"}',
    "a lone surrogate": b'{"type":"note_added","text":"\\ud800"}',
    "an endless number": b'{"type":"tool_called","call":"a","name":"f","arguments":' + b"9" * 10_000 + b"}",
    "very deep": b'{"type":"tool_called","call":"a","name":"f","arguments":' + b"[" * 100_000 + b"}",
    "very deep, ignorable": b'{"type":"new","ignorable":true,"x":' + b"[" * 100_000 + b"}",
    "ignorable without a type": b'{"ignorable":true}',
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_are_refused(body):
    """Bytes made to hurt are a LogError with a short text, as a record and inside a line."""
    for read in (CODEC.decode, CODEC.from_line, lambda it: CODEC.from_line(b'{"seq":0,"at_ms":1,"event":' + it + b"}")):
        with pytest.raises(LogError) as refused:
            read(body)
        assert len(str(refused.value)) < 1_000


LINES = {
    "a number below zero": b'{"seq":-1,"at_ms":1,"event":{"type":"message_withdrawn","id":"a"}}',
    "a stranger's field": b'{"seq":0,"at_ms":1,"event":{"type":"message_withdrawn","id":"a"},"extra":1}',
    "no event": b'{"seq":0,"at_ms":1}',
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_line_that_is_no_envelope_is_refused(line):
    """The envelope never changes, so a line with another form is not ours."""
    with pytest.raises(LogError):
        CODEC.from_line(line)

"""Server-sent events from bytes: the same events wherever the bytes are cut."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.runtime.models import stream
from callboard.runtime.models.stream import DONE, Events, Unreadable

STREAM = (
    '\ufeffdata: {"n":0}\n\n: hello\n\nevent: a\ndata: {"n":1}\n\n'
    'data:{"n":\r\ndata: 2}\r\n\r\n'
    ': keepalive\r\rid: 7\rretry: 5\rdata: {"t":"é😀"}\r\r'
    "event: nothing\n\ndata: \n\nunknown: field\ndata: [DONE]\n\n"
).encode()
EVENTS = [{"n": 0}, {"n": 1}, {"n": 2}, {"t": "é😀"}, DONE]


def read(*chunks):
    """All events of these chunks."""
    events = Events()
    return [*itertools.chain.from_iterable(events.feed(one) for one in chunks), *events.finish()]


def test_every_cut_in_two():
    """The events are the same at every place of one cut."""
    for at in range(len(STREAM) + 1):
        assert EVENTS == read(STREAM[:at], STREAM[at:]), at


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=40))
def test_every_cut_in_many(cuts):
    """The events are the same at all places of many cuts, and byte by byte."""
    ends = [0, *sorted(cuts), len(STREAM)]
    assert EVENTS == read(*(STREAM[a:b] for a, b in itertools.pairwise(ends)))
    assert EVENTS == read(*(STREAM[at : at + 1] for at in range(len(STREAM))))


@pytest.mark.parametrize(
    ("rest", "events"),
    [
        (b'data: {"n":3}', [{"n": 3}]),
        (b'data: {"n":3}\n', [{"n": 3}]),
        (b'data: {"n":', []),
        (b"data: [DONE]", [DONE]),
        (b"event: x", []),
        (b": x", []),
    ],
)
def test_what_no_empty_line_ends(rest, events):
    """The last event counts without the empty line behind it where it is whole."""
    assert events == read(rest)


def test_bytes_that_are_no_text_become_marks():
    """Invalid UTF-8 inside a text is shown as marks and the event is kept."""
    assert [{"t": "a\ufffdb"}] == read(b'data: {"t":"a\xffb"}\n\n')


@pytest.mark.parametrize("data", [b"{", b"nope", b"[" * 100_000])
def test_what_is_no_json_is_told(data):
    """An event that is no JSON says so, and not what it holds."""
    with pytest.raises(Unreadable, match=r"^one event of its answer is no JSON$"):
        read(b"data: " + data + b"\n\n")


def test_an_event_has_a_bound(monkeypatch):
    """An event without an end, in one line or in many, is refused before it fills the memory."""
    monkeypatch.setattr(stream, "EVENT_BYTES_MAX", 1000)
    for chunk in (b"data: " + b"x" * 60, b"data: xxxxxxxxxxxxxxxxxxxx\n"):
        with pytest.raises(Unreadable, match="larger than 1,000 bytes"):
            read(*[chunk] * 100)
    assert [{"n": 1}] * 500 == read(*[b'data: {"n":1}\n\n: ' + b"x" * 500 + b"\n"] * 500)


@given(text=st.text(max_size=200), end=st.sampled_from(["\n", "\r\n", "\r"]))
def test_any_text_comes_through(text, end):
    """Whatever an event says comes out as it went in."""
    assert [{"t": text}] == read(f"data: {json.dumps({'t': text})}{end}{end}".encode())

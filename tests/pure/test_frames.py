"""Frames from a program that may write anything: calls come out whole however they were cut, or a named refusal."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.plugins.frames import FRAME_MAX_BYTES, LENGTH_BYTES, Asked, BadFrame, Unframer, framed

from .event_samples import JSON, TEXTS

ASKED = st.builds(Asked, st.integers(0, 2**53 - 1), TEXTS, st.dictionaries(TEXTS, JSON, max_size=3))


@given(st.lists(ASKED, max_size=5), st.lists(st.integers(1, 40), max_size=30))
def test_calls_come_out_as_they_went_in(asked, cuts):
    """Whatever pieces the bytes arrive in, the same calls come out in the same order, and nothing is held back."""
    data, unframer, found = b"".join(framed(one) for one in asked), Unframer(), []
    for cut in [*cuts, len(data) + 1]:
        found.extend(unframer.feed(data[:cut]))
        data = data[cut:]
    expected = [msgspec.json.decode(msgspec.json.encode(one), type=Asked) for one in asked]
    assert (expected, bytearray()) == (found, unframer._held)


@given(st.lists(st.binary(max_size=200), max_size=10))
def test_no_bytes_break_the_reader(pieces):
    """Garbage is held up to one frame, or refused as a BadFrame; nothing else is raised."""
    unframer = Unframer()
    try:
        for piece in pieces:
            unframer.feed(piece)
    except BadFrame:
        return
    assert len(unframer._held) <= LENGTH_BYTES + FRAME_MAX_BYTES


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff\xff\xff\xff", "a frame of 4,294,967,295 bytes; at most 4,198,400 are taken"),
        (framed([1]), "a frame that is no call: Expected `object`, got `array`"),
        (framed({"id": 1}), "a frame that is no call: Object missing required field `name`"),
        (framed({"id": -1, "name": "x", "arguments": {}}), "a frame that is no call: Expected `int` >= 0"),
        (
            framed({"id": 1, "name": "x", "arguments": {}, "more": 1}),
            "a frame that is no call: Object contains unknown",
        ),
        ((3).to_bytes(4, "big") + b"\xff\xff\xff", "a frame that is no call: "),
        ((200_000).to_bytes(4, "big") + b"[" * 200_000, "a frame that is no call: "),
    ],
)
def test_what_is_no_call_is_refused_by_name(data, why):
    """A length beyond the limit is refused before its bytes come, and anything but a call once it is there."""
    with pytest.raises(BadFrame) as refused:
        Unframer().feed(data)
    assert str(refused.value).startswith(why)

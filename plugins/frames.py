"""Frames between this program and one that runs a model's code: four bytes of length, then JSON."""

from typing import Annotated, Any

import msgspec

from callboard.actors.tool import ARGUMENTS_MAX_BYTES

LENGTH_BYTES = 4
FRAME_MAX_BYTES = ARGUMENTS_MAX_BYTES + 4096  # the longest arguments that any call may have, and what stands around

TOO_LONG = "a frame of {length:,} bytes; at most {most:,} are taken"
NO_CALL = "a frame that is no call: {why}"


class BadFrame(Exception):
    """What came is no frame, or no call; nothing after it can be understood."""


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that the code makes; the answer says `id` again."""

    id: Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
    name: str
    arguments: dict[str, Any]


def framed(value: Any) -> bytes:
    """One frame."""
    body = msgspec.json.encode(value)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


class Unframer:
    """Bytes in, calls out; holds at most one frame and the piece it was fed last."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, piece: bytes) -> list[Asked]:
        """The calls that are complete with this piece; `BadFrame` as soon as one cannot be."""
        held = self._held
        held += piece
        found, at = [], 0
        while len(held) - at >= LENGTH_BYTES:
            length = int.from_bytes(held[at : at + LENGTH_BYTES], "big")
            if length > FRAME_MAX_BYTES:
                raise BadFrame(TOO_LONG.format(length=length, most=FRAME_MAX_BYTES))
            end = at + LENGTH_BYTES + length
            if len(held) < end:
                break
            found.append(_asked(bytes(held[at + LENGTH_BYTES : end])))
            at = end
        del held[:at]
        return found


def _asked(body: bytes) -> Asked:
    try:
        return msgspec.json.decode(body, type=Asked)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrame(NO_CALL.format(why=str(error) or type(error).__name__)) from None

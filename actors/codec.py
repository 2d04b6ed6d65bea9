"""Codec: events to bytes and back, and envelopes to JSON lines; the only place that knows the written form."""

from typing import Annotated, Any

import msgspec

from callboard.actors.envelope import CORE_EVENTS, Envelope, Unknown
from callboard.actors.errors import LogError, UsageError
from callboard.actors.events import (
    AbortRequested,
    CellCalled,
    ControlCallEnded,
    Event,
    MessageWithdrawn,
    ModelFailed,
    ModelSaid,
    QueueParked,
    StepEnded,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnRecovered,
    TurnStarted,
)
from callboard.actors.facts import PLUGIN_EVENTS

# What the session writes of values that it made or checked itself; all other events are read back before they are
# believed. A step has a dozen of these, and reading each would cost a tenth of its appends.
_OURS: frozenset[type[Event]] = frozenset(
    {
        *(
            TurnStarted,
            TurnRecovered,
            TurnEnded,
            AbortRequested,
            StepStarted,
            StepEnded,
            ModelSaid,
            ModelFailed,
            ToolCalled,
        ),
        *(ToolReturned, ControlCallEnded, QueueParked, MessageWithdrawn, CellCalled),
    }
)
_IGNORABLE = b',"ignorable":true}'


class _Head(msgspec.Struct):
    type: str
    ignorable: bool = False


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    seq: Annotated[int, msgspec.Meta(ge=0)]
    at_ms: int
    event: msgspec.Raw
    turn: int | None = None
    session: str = ""


def plain(value: Any) -> Any:
    """How msgspec is told to write subclasses of str, int and float: as what they are underneath."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"{type(value).__name__} has no written form")


class Codec:
    """Encodes each event once, as JSON tagged with its `type`; refuses kinds it does not know.

    Unknown kinds are read as `Unknown` when the record says `ignorable`. Raises `LogError` on any other bytes.
    """

    def __init__(self, extra: tuple[type[Event], ...] = ()) -> None:
        kinds: dict[str, type[Event]] = {}
        for event in (*CORE_EVENTS, *PLUGIN_EVENTS, *extra):
            loose: Any = event
            if not (isinstance(loose, type) and issubclass(loose, Event)):
                raise UsageError(f"Plugin.events takes subclasses of Event, got {loose!r}.")
            tag = event.__struct_config__.tag
            if not isinstance(tag, str):
                raise UsageError(f"the tag of {event.__name__} must be text, got {tag!r}: leave it out.")
            if kinds.setdefault(tag, event) is not event:
                raise UsageError(f"event kind {tag!r} is taken by {kinds[tag].__name__}: rename {event.__name__}.")
        self.kinds = kinds
        self._known = frozenset(kinds.values())
        union: Any = None
        for event in kinds.values():
            union = event if union is None else union | event
        try:
            self._decode = msgspec.json.Decoder(union).decode
        except (TypeError, NameError, NotImplementedError) as error:
            raise UsageError(f"an event has a field that cannot be read back: {error}.") from None
        self._encode = msgspec.json.Encoder(enc_hook=plain).encode
        self._head = msgspec.json.Decoder(_Head).decode
        self._line = msgspec.json.Decoder(_Line).decode

    def encode(self, event: Event) -> bytes:
        """The written form; raises whatever msgspec raises for a value that has none.

        An event with values of a plugin's is read back before it is believed, since a Struct checks no types when it
        is made: a `UsageError` says what does not fit, so that no plugin can write a log that nobody can open.
        """
        kind = type(event)
        if kind in _OURS:
            return self._encode(event)
        if isinstance(event, Unknown):
            return event.body
        if kind not in self._known:
            raise UsageError(f"{kind.__name__} is no event of this runtime: list it in the events of its Plugin.")
        body = self._encode(event)
        try:
            self._decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UsageError(f"{kind.__name__} could not be read back: {error}.") from None
        return body[:-1] + _IGNORABLE if event.ignorable else body

    def decode(self, body: bytes) -> Event:
        """The event; `LogError` names the kind when it is unknown and not ignorable."""
        try:
            event: Event = self._decode(body)
            return event
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, TypeError) as error:
            return self._unknown(body, error)

    def _unknown(self, body: bytes, error: Exception) -> Event:
        try:
            head = self._head(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise LogError(f"a record is not an event: {error}; first bytes {body[:60]!r}.") from None
        except TypeError:  # a damaged file may hold a number in its place
            raise LogError(f"a record is not an event: {error}, got {body!r:.60}.") from None
        if head.type in self.kinds:
            raise LogError(f"a {head.type} record does not fit its event: {error}.") from None
        if head.ignorable:
            return Unknown(head.type, body)
        raise LogError(
            f"event kind {head.type!r} is unknown: install the plugin or the newer version that wrote it."
        ) from None

    def to_line(self, envelope: Envelope) -> bytes:
        """One JSON object without a newline: session, seq, at_ms, turn, event."""
        body = msgspec.Raw(self.encode(envelope.event))
        line = _Line(envelope.seq, envelope.at_ms, body, envelope.turn, envelope.session)
        return self._encode(line)

    def from_line(self, line: bytes, session: str = "") -> Envelope:
        """The envelope of one exported line; `session` replaces the recorded id when given."""
        recorded, seq, at_ms, turn, body = self.split_line(line)
        return Envelope(session or recorded, seq, at_ms, turn, self.decode(body))

    def split_line(self, line: bytes) -> tuple[str, int, int, int | None, bytes]:
        """What one exported line says: session, seq, at_ms, turn, and the event as the bytes it came in."""
        try:
            raw = self._line(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise LogError(f"a line is not an envelope: {error}; first bytes {line[:60]!r}.") from None
        return raw.session, raw.seq, raw.at_ms, raw.turn, bytes(raw.event)

    def join_line(self, session: str, seq: int, at_ms: int, turn: int | None, body: bytes) -> bytes:
        """The line of an event that is written already: `body` goes in as it is."""
        return self._encode(_Line(seq, at_ms, msgspec.Raw(body), turn, session))

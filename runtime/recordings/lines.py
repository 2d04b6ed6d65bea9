"""From untrusted bytes to JSON values: what can be repaired is, what cannot is counted, nothing raises."""

import json
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec

KINDS_MAX: Final = 50
"""Most distinct reasons whose name comes out of the file; the rest are counted as OTHER_KINDS."""
KIND_CHARS_MAX: Final = 60
OTHER_KINDS: Final = "other kinds"
_BLANK: Final = b" \t\r\n\x00"
_TEXT_TYPES: Final = ("text", "input_text", "output_text")
_MEDIA: Final = ("image", "input_image", "document", "file", "audio")

Line = TypeVar("Line")


class Tally:
    """Counts by reason. `note` is for our own reasons, `kind` for names read from the file (bounded)."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._kinds: set[str] = set()

    def note(self, reason: str, count: int = 1) -> None:
        """Count one of a fixed set of reasons."""
        self.counts[reason] = self.counts.get(reason, 0) + count

    def kind(self, prefix: str, value: object) -> None:
        """Count a reason named by the file itself, shortened; too many different ones fold into one."""
        name = " ".join(f"{prefix} {value if isinstance(value, str) else ''}".split())[:KIND_CHARS_MAX]
        if name not in self._kinds and len(self._kinds) >= KINDS_MAX - 1:
            name = OTHER_KINDS
        else:
            self._kinds.add(name)
        self.note(name)


def load(raw: bytes | msgspec.Raw) -> object:
    """The JSON value in `raw`, or None. Broken UTF-8 and lone surrogates are replaced, not refused."""
    try:
        return msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        repaired = _repaired(bytes(raw))
    try:
        return msgspec.json.decode(repaired)
    except (ValueError, RecursionError):
        return None


def read_lines(data: bytes, decoder: msgspec.json.Decoder[Line], tally: Tally) -> Iterator[tuple[bytes, Line]]:
    """Each non-blank line as its bytes and its envelope; unreadable ones are counted and left out."""
    lines = [line for line in (piece.strip(_BLANK) for piece in data.split(b"\n")) if line]
    for number, line in enumerate(lines, 1):
        envelope = _envelope(line, decoder, tally)
        if envelope is not None:
            yield line, envelope
        elif number == len(lines):
            tally.note("torn last line")
        else:
            tally.note("unreadable line")


def _envelope(line: bytes, decoder: msgspec.json.Decoder[Line], tally: Tally) -> Line | None:
    try:
        return decoder.decode(line)
    except (ValueError, RecursionError):
        pass
    try:
        envelope = decoder.decode(_repaired(line))
    except (ValueError, RecursionError):
        return None
    tally.note("repaired line")
    return envelope


def _repaired(raw: bytes) -> bytes:
    """The same JSON with what msgspec refuses (NUL, control characters, bad UTF-8, lone surrogates) replaced."""
    try:
        value = json.loads(raw.replace(b"\x00", b"").decode(errors="replace"), strict=False)
        return json.dumps(value, ensure_ascii=False).encode(errors="replace")
    except (ValueError, RecursionError):
        return b""


def text_of(value: object, default: str = "") -> str:
    """The value if it is a string that is not empty, else the default."""
    return value if isinstance(value, str) and value else default


def dict_of(value: object) -> dict[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """The value if it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []


def compact(value: object) -> str:
    """The value as JSON text; a string stays itself, nothing becomes the empty string."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return msgspec.json.encode(value).decode()
    except (ValueError, RecursionError):
        return ""


def block_text(block: object) -> str:
    """What one content block says: its text, a mark such as `[image]`, or its JSON."""
    fields = dict_of(block)
    kind = text_of(fields.get("type"))
    if kind in _TEXT_TYPES or (not kind and "text" in fields):
        return text_of(fields.get("text"))
    if kind in _MEDIA:
        return f"[{kind.removeprefix('input_')}]"
    return compact(block)


def has_content(message: dict[str, Any]) -> bool:
    """True when a message holds content at all: a string or a list of blocks."""
    return isinstance(message.get("content"), str | list)


def content_text(content: object) -> str:
    """What a message's content says: a string as it is, blocks one under the other."""
    if isinstance(content, list):
        return "\n".join(filter(None, map(block_text, content)))
    return block_text(content) if isinstance(content, dict) else compact(content)


def arguments_of(value: object) -> dict[str, Any] | str:
    """Call arguments: a JSON object, also when it was recorded as a string; any other text stays text."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, str):
        return {} if value is None else compact(value)
    if not value.strip():
        return {}
    parsed = load(value.encode(errors="replace")) if value.lstrip().startswith("{") else None
    return parsed if isinstance(parsed, dict) else value

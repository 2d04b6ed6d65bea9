"""What a server answers to a call, as text: what a model can read of it, and what the rest is."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from callboard.plugins.mcp_tools import plain_line

RESOURCE_TEXT_MAX_CHARS = 16 * 1024  # of a resource that comes along; more of it has to be asked for
LINE_MAX_CHARS = 300
BLOCKS_MAX = 1_000
BASE64_RATIO = 0.75  # bytes for each character

EMPTY = "(no output)"
FAILED = "The tool failed and said nothing."
BINARY = "[{what}{name}, {kind}, {size:,} bytes: not shown]"
LINK = "[resource {name}: {uri}{kind}]"
RESOURCE = "[resource {uri}]\n{text}"
CUT = "[{left:,} more characters]"
UNKNOWN = "[content of the kind {kind!r}: not shown]"
MORE = "[{count:,} more parts of the result: not shown]"


def text_of(result: Mapping[str, Any]) -> str:
    """The text of a result as it came over the wire; structured content where there is no text."""
    blocks = result.get("content")
    blocks = blocks if isinstance(blocks, list) else []
    parts = [part for block in blocks[:BLOCKS_MAX] for part in _parts(block)]
    if len(blocks) > BLOCKS_MAX:
        parts.append(MORE.format(count=len(blocks) - BLOCKS_MAX))
    structured = result.get("structuredContent")
    if structured is not None and not any(isinstance(b, Mapping) and b.get("type") == "text" for b in blocks):
        parts.append(_json(structured))
    return "\n".join(parts)


def has_failed(result: Mapping[str, Any]) -> bool:
    """Whether it says that the tool failed."""
    return result.get("isError") is True


def _parts(block: Any) -> Iterator[str]:
    if not isinstance(block, Mapping):
        return
    kind = block.get("type")
    if kind == "text":
        yield str(block.get("text", ""))
    elif kind in ("image", "audio"):
        yield _binary(kind, "", block.get("mimeType"), block.get("data"))
    elif kind == "resource_link":
        mime = block.get("mimeType")
        about = f" ({_line(mime)})" if isinstance(mime, str) else ""
        yield LINK.format(name=_line(block.get("name")), uri=_line(block.get("uri")), kind=about)
    elif kind == "resource" and isinstance(block.get("resource"), Mapping):
        yield _resource(block["resource"])
    else:
        yield UNKNOWN.format(kind=_line(kind))


def _resource(resource: Mapping[str, Any]) -> str:
    uri, text = _line(resource.get("uri")), resource.get("text")
    if not isinstance(text, str):
        return _binary("resource", f" {uri}", resource.get("mimeType"), resource.get("blob"))
    left = len(text) - RESOURCE_TEXT_MAX_CHARS
    if left > 0:
        text = f"{text[:RESOURCE_TEXT_MAX_CHARS]}\n{CUT.format(left=left)}"
    return RESOURCE.format(uri=uri, text=text)


def _binary(what: str, name: str, mime: Any, data: Any) -> str:
    encoded = data if isinstance(data, str) else ""
    size = int(len(encoded.rstrip("=")) * BASE64_RATIO)
    return BINARY.format(what=what, name=name, kind=_line(mime) or "of no stated kind", size=size)


def _line(value: Any) -> str:
    return plain_line(value, LINE_MAX_CHARS) if isinstance(value, str) else ""


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return UNKNOWN.format(kind="structured content")

"""The schema of an answer as Anthropic's formats say one, or that they cannot say it."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

DEPTH_MAX = 32
KINDS: Final = frozenset({"object", "array", "string", "integer", "number", "boolean", "null"})
CHOICES: Final = ("anyOf", "oneOf", "allOf")
NOTES: Final = frozenset({"title", "default", "examples", "$schema", "$id", "$comment", "discriminator", "deprecated"})
FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"},
)
# What a format does not know, but words can say.
BOUNDS: Final = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
        *("pattern", "format", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    }
)
READ: Final = frozenset({"type", "properties", "required", "additionalProperties", "items", "enum", "const", "$ref"})


class Unfit(Exception):
    """A format cannot say this schema."""


def answer_schema(schema: Any) -> dict[str, Any] | None:
    """The schema as a format takes it, None where it takes none that says the same.

    Objects are closed, and bounds that a format does not know stand in the description of what they bound.
    """
    try:
        return _node(schema, 1)
    except (Unfit, RecursionError):
        return None


def _node(node: Any, depth: int) -> dict[str, Any]:
    if not isinstance(node, Mapping) or depth > DEPTH_MAX:
        raise Unfit
    if node.keys() - READ - BOUNDS - NOTES - {"description", "$defs", *CHOICES}:
        raise Unfit
    made: dict[str, Any] = {key: node[key] for key in ("const", "enum", "$ref") if key in node}
    for key in CHOICES:
        if key in node:
            if not isinstance(node[key], list) or not node[key]:
                raise Unfit
            made["allOf" if key == "allOf" else "anyOf"] = [_node(one, depth + 1) for one in node[key]]
    if "type" in node and "const" not in made and "enum" not in made:
        made["type"] = _kind(node["type"])
    if not made:
        raise Unfit  # anything goes, and a format has to say what
    _add_parts(made, node, depth)
    if "$defs" in node:
        made["$defs"] = {name: _node(part, depth + 1) for name, part in _parts(node, "$defs").items()}
    _describe(made, node)
    return made


def _kind(kind: Any) -> Any:
    kinds = kind if isinstance(kind, list) else [kind]
    if not kinds or not all(isinstance(one, str) and one in KINDS for one in kinds):
        raise Unfit
    return kind


def _add_parts(made: dict[str, Any], node: Mapping[str, Any], depth: int) -> None:
    """What is inside an object and a list."""
    kind = made.get("type", ())
    if "object" in (kind if isinstance(kind, list) else (kind,)):
        fields = _parts(node, "properties")
        more = node.get("additionalProperties", True)
        if more is not False and not (more is True and fields):
            raise Unfit
        made["properties"] = {name: _node(field, depth + 1) for name, field in fields.items()}
        made["additionalProperties"] = False
        if "required" in node:
            made["required"] = node["required"]
    elif "properties" in node:
        raise Unfit
    if "items" in node:
        made["items"] = _node(node["items"], depth + 1)


def _parts(node: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    parts = node.get(key, {})
    if not isinstance(parts, Mapping):
        raise Unfit
    return parts


def _describe(made: dict[str, Any], node: Mapping[str, Any]) -> None:
    """Its description, with the bounds in words that a format does not take."""
    bounds = {key: node[key] for key in node if key in BOUNDS}
    if isinstance(bounds.get("format"), str) and bounds["format"] in FORMATS:
        made["format"] = bounds.pop("format")
    if type(bounds.get("minItems")) is int and bounds["minItems"] in (0, 1):
        made["minItems"] = bounds.pop("minItems")
    said = [node["description"]] if isinstance(node.get("description"), str) else []
    if bounds:
        said.append("; ".join(f"{key}: {msgspec.json.encode(value).decode()}" for key, value in bounds.items()))
    if said and "$ref" not in made:
        made["description"] = "\n".join(said)

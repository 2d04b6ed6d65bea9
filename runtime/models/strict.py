"""Strict schemas: a JSON schema as strict mode wants it, and arguments back from what that made of them."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

DEPTH_MAX = 10
PROPERTIES_MAX = 5_000
CHOICES_MAX = 1_000

# What strict mode reads; of the others, notes can go, and bounds can go where something else checks them.
READ: Final = frozenset(
    {
        *("type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const", "description"),
        *("pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minItems", "maxItems", "$ref", "$defs"),
    }
)
NOTES: Final = frozenset({"title", "default", "examples", "$schema", "$id", "$comment", "discriminator", "deprecated"})
BOUNDS: Final = frozenset({"minLength", "maxLength", "uniqueItems", "minProperties", "maxProperties"})
FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"},
)


class Unfit(Exception):
    """Strict mode cannot say this schema."""


def strict_schema(schema: Any, *, checked: bool) -> dict[str, Any] | None:
    """The schema for strict mode, or None where that cannot say it.

    `checked` says that what comes back is decoded by a stricter reader: then fields that may be missing become fields
    that may be null (`without_nulls` takes those out again), and bounds that strict mode does not know are left out.
    """
    if not isinstance(schema, Mapping) or schema.get("type") != "object" or "anyOf" in schema:
        return None
    counts = [0, 0]
    try:
        return _object({"properties": {}, **schema}, checked, 1, counts)
    except (Unfit, RecursionError):
        return None


def _node(node: Any, checked: bool, depth: int, counts: list[int]) -> dict[str, Any]:
    if not isinstance(node, Mapping) or depth > DEPTH_MAX:
        raise Unfit
    kinds = node.get("type")
    if kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
        return _object(node, checked, depth, counts)
    made = _plain(node, checked)
    if "$ref" in made:
        if checked:
            raise Unfit
        return made
    if "anyOf" in node:
        made["anyOf"] = [_node(one, checked, depth, counts) for one in _list(node, "anyOf")]
    if "items" in node:
        made["items"] = _node(node["items"], checked, depth + 1, counts)
    elif kinds == "array" or (isinstance(kinds, list) and "array" in kinds):
        raise Unfit
    if "const" in made:
        made["enum"] = [made.pop("const")]
    if "enum" in made:
        _count(counts, 1, len(_list(made, "enum")), CHOICES_MAX)
        made.setdefault("type", _kinds(made["enum"]))
    if "type" not in made and "anyOf" not in made:
        raise Unfit
    return made


def _object(node: Mapping[str, Any], checked: bool, depth: int, counts: list[int]) -> dict[str, Any]:
    fields, needed = node.get("properties"), _list(node, "required")
    if node.get("additionalProperties", False) is not False or not isinstance(fields, Mapping):
        raise Unfit
    if not checked and ("additionalProperties" not in node or not set(fields) <= set(needed)):
        raise Unfit
    _count(counts, 0, len(fields), PROPERTIES_MAX)
    made = _plain(node, checked)
    made["properties"] = {
        name: part if name in needed else _or_null(part)
        for name, field in fields.items()
        for part in (_node(field, checked, depth + 1, counts),)
    }
    made["required"], made["additionalProperties"] = list(fields), False
    if "$defs" in made:
        if checked:
            raise Unfit
        parts = node["$defs"]
        if not isinstance(parts, Mapping):
            raise Unfit
        made["$defs"] = {name: _node(part, checked, depth, counts) for name, part in parts.items()}
    return made


def _list(node: Mapping[str, Any], key: str) -> list[Any]:
    """The list under this key, an empty one where the key is missing; `Unfit` for anything else."""
    value = node.get(key, [])
    if not isinstance(value, list):
        raise Unfit
    return value


def _plain(node: Mapping[str, Any], checked: bool) -> dict[str, Any]:
    """The node without what can go; `Unfit` for what cannot."""
    made = {key: value for key, value in node.items() if key in READ}
    gone = node.keys() - made.keys() - NOTES
    if gone - BOUNDS or (gone and not checked):
        raise Unfit
    odd = [key for key, fits in (("format", made.get("format") in FORMATS), ("pattern", _simple(made))) if not fits]
    for key in odd:
        if key in made:
            if not checked:
                raise Unfit
            del made[key]
    return made


def _simple(node: Mapping[str, Any]) -> bool:
    return "(?" not in str(node.get("pattern", ""))


def _count(counts: list[int], at: int, more: int, most: int) -> None:
    counts[at] += more
    if counts[at] > most:
        raise Unfit


def _kinds(values: list[Any]) -> str | list[str]:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    kinds = list(dict.fromkeys(names.get(type(value), "") for value in values))
    if not all(kinds) or not kinds:
        raise Unfit
    return kinds[0] if len(kinds) == 1 else kinds


def _or_null(node: dict[str, Any]) -> dict[str, Any]:
    if _nullable(node):
        return node
    if "anyOf" in node:
        return {**node, "anyOf": [*node["anyOf"], {"type": "null"}]}
    kinds = node["type"]
    made = {**node, "type": [*([kinds] if isinstance(kinds, str) else kinds), "null"]}
    if "enum" in node:
        made["enum"] = [*node["enum"], None]
    return made


def _nullable(node: Any) -> bool:
    if not isinstance(node, Mapping):
        return True
    kinds = node.get("type")
    if kinds == "null" or (isinstance(kinds, list) and "null" in kinds):
        return "enum" not in node or None in _several(node, "enum")
    return any(_nullable(one) for one in _several(node, "anyOf"))


def _several(node: Mapping[str, Any], key: str) -> list[Any]:
    value = node.get(key)
    return value if isinstance(value, list) else []


def has_optional(schema: Any) -> bool:
    """Whether a schema has a field that strict mode makes nullable."""
    if isinstance(schema, list):
        return any(has_optional(one) for one in schema)
    if not isinstance(schema, Mapping):
        return False
    fields, needed = schema.get("properties"), _several(schema, "required")
    if isinstance(fields, Mapping):
        if any(name not in needed and not _nullable(field) for name, field in fields.items()):
            return True
        if any(has_optional(field) for field in fields.values()):
            return True
    return any(has_optional(schema[key]) for key in ("items", "anyOf") if key in schema)


def without_nulls(text: str, schema: Mapping[str, Any]) -> str:
    """Arguments without the nulls that stand for fields that were left out; what is no JSON object stays as it is."""
    if "null" not in text:
        return text
    try:
        value = msgspec.json.decode(text)
        return msgspec.json.encode(_pruned(value, schema)).decode()
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return text


def _pruned(value: Any, schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return value
    for branch in _several(schema, "anyOf"):
        if _takes(branch, value):
            return _pruned(value, branch)
    if isinstance(value, list):
        return [_pruned(one, schema.get("items")) for one in value]
    fields, needed = schema.get("properties"), _several(schema, "required")
    if not isinstance(value, dict) or not isinstance(fields, Mapping):
        return value
    return {
        name: _pruned(one, fields.get(name))
        for name, one in value.items()
        if one is not None or name in needed or name not in fields or _nullable(fields[name])
    }


def _takes(branch: Any, value: Any) -> bool:
    """Whether this branch of a choice is the one a value was written for, as far as names and tags tell."""
    if not isinstance(branch, Mapping):
        return False
    if isinstance(value, list):
        return "items" in branch
    fields = branch.get("properties")
    if not isinstance(value, dict) or not isinstance(fields, Mapping) or not value.keys() <= fields.keys():
        return False
    tags = ((field, value.get(name)) for name, field in fields.items() if isinstance(field, Mapping))
    return all("enum" not in field or said is None or said in _several(field, "enum") for field, said in tags)

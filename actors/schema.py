"""One type, two uses: the decoder that checks a tool call and the strict JSON schema the model sees."""

import typing
from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.actors.errors import UsageError

_DROPPED = frozenset({"title", "default", "discriminator"})


def struct_schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of a Struct: inlined, `additionalProperties: false` at every level, no titles, no defaults.

    Recursive types raise `UsageError`: a schema without references cannot say them.
    """
    (root,), parts = msgspec.json.schema_components((arguments,), ref_template="{name}")
    schema: dict[str, Any] = _inline(root, parts, ())
    schema.setdefault("properties", {})
    return schema


def _inline(node: Any, parts: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    if isinstance(node, list):
        return [_inline(part, parts, within) for part in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"]
        if name in within:
            raise UsageError(f"{name} contains itself: tool arguments must not be recursive.")
        inlined = _inline(parts[name], parts, (*within, name))
        beside = {key: value for key, value in node.items() if key not in ("$ref", *_DROPPED)}
        return {**inlined, **beside}
    fields = {
        key: (
            {field: _inline(part, parts, within) for field, part in value.items()}
            if key == "properties"
            else value
            if key in ("enum", "const", "required")
            else _inline(value, parts, within)
        )
        for key, value in node.items()
        if key not in _DROPPED
    }
    if fields.get("type") == "object" and "properties" in fields:
        fields["additionalProperties"] = False
    return fields


def forbid_unknown(arguments: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The same Struct, refusing unknown fields; a nested Struct that accepts them is a `UsageError`."""
    for nested in _nested(arguments, set()):
        if nested is not arguments and not nested.__struct_config__.forbid_unknown_fields:
            raise UsageError(
                f"{nested.__name__} inside {arguments.__name__} accepts unknown fields: "
                f"write class {nested.__name__}(msgspec.Struct, forbid_unknown_fields=True)."
            )
    if arguments.__struct_config__.forbid_unknown_fields:
        return arguments
    return msgspec.defstruct(
        arguments.__name__,
        (),
        bases=(arguments,),
        forbid_unknown_fields=True,
        namespace={"__doc__": arguments.__doc__},
    )


def _nested(kind: Any, seen: set[Any]) -> set[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind not in seen:
            seen.add(kind)
            for hint in typing.get_type_hints(kind, include_extras=True).values():
                _nested(hint, seen)
    else:
        for part in typing.get_args(kind):
            _nested(part, seen)
    return seen

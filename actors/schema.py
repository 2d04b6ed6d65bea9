"""One type, two uses: the decoder that checks a tool call and the strict JSON schema the model sees."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect

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
    """The same Struct, refusing unknown fields.

    A type inside that would accept them is a `UsageError`: the schema says they are forbidden, and a decoder that takes
    them would silently drop what the model meant.
    """
    if arguments.__struct_config__.array_like:
        raise UsageError(f"{arguments.__name__} is array_like: the arguments of a tool are an object.")
    for part in _parts(inspect.type_info(arguments)):
        loose = _accepts_unknown(part)
        if loose is not None and loose is not arguments:
            raise UsageError(
                f"{loose.__name__} inside {arguments.__name__} accepts unknown fields: "
                f"write class {loose.__name__}(msgspec.Struct, forbid_unknown_fields=True)."
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


def _accepts_unknown(part: inspect.Type) -> type | None:
    match part:
        case inspect.StructType(cls=kind, forbid_unknown_fields=forbids):
            return None if forbids else kind
        case inspect.DataclassType(cls=kind) | inspect.TypedDictType(cls=kind):
            return kind
    return None


def _parts(root: inspect.Type) -> Iterator[inspect.Type]:
    """A type and all types inside it, each once."""
    todo: list[Any] = [root]
    seen: set[int] = set()
    while todo:
        one = todo.pop()
        if isinstance(one, tuple):
            todo.extend(one)
        elif isinstance(one, inspect.Type | inspect.Field) and id(one) not in seen:
            seen.add(id(one))
            todo.extend(getattr(one, name) for name in one.__struct_fields__)
            if isinstance(one, inspect.Type):
                yield one

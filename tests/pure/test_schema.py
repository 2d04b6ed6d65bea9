"""The schema of a tool's arguments: strict at every level, and never apart from the decoder of the same type."""

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypedDict, TypeVar

import attrs
import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.errors import ToolError, UsageError
from callboard.actors.schema import forbid_unknown, struct_schema

from .event_samples import JSON
from .tool_samples import SPOT, Box, Edit, Spot, made_of, made_with

T = TypeVar("T")


class Pair(NamedTuple):
    left: int
    right: int


def tagged(name: str, field: str, kind: str) -> dict[str, Any]:
    """The schema of one half of a tagged union."""
    fields = {"type": {"enum": [name]}, field: {"type": kind}}
    return {"type": "object", "properties": fields, "required": ["type", field], "additionalProperties": False}


# -- the schema


def test_the_schema_is_strict_and_whole():
    """Everything stands in its place, nothing more than declared may come, and neither titles nor defaults are said."""
    expected = {
        "description": "Change a file.",
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "From the root.", "minLength": 1},
            "spots": {"type": "array", "items": SPOT},
            "last": {"anyOf": [SPOT, {"type": "null"}]},
            "named": {"type": "object", "additionalProperties": SPOT},
            "mode": {"enum": ["fast", "slow"]},
            "color": {"description": "What it says.", "enum": ["blue", "red"]},
            "where": {
                "anyOf": [
                    {"anyOf": [tagged("ByName", "name", "string"), tagged("ByLine", "line", "integer")]},
                    {"type": "null"},
                ]
            },
            "size": {
                "type": "array",
                "minItems": 2,
                "maxItems": 2,
                "items": False,
                "prefixItems": [{"type": "integer"}, {"type": "number"}],
            },
            "properties": {"type": "integer"},
            "extra": {},
        },
        "required": ["path"],
        "additionalProperties": False,
    }
    assert expected == struct_schema(forbid_unknown(Edit))


class Empty(msgspec.Struct, forbid_unknown_fields=True):
    pass


SCHEMAS: dict[str, tuple[Any, Any]] = {
    "nothing inside": (
        list[Empty],
        {
            "type": "array",
            "items": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
        },
    ),
    "a generic": (
        Box[int],
        {
            "type": "object",
            "properties": {"value": {"type": "integer"}},
            "required": ["value"],
            "additionalProperties": False,
        },
    ),
    "a named tuple": (
        Pair,
        {
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"type": "integer"}],
            "minItems": 2,
            "maxItems": 2,
        },
    ),
    "a choice": (Literal["a", 1], {"enum": [1, "a"]}),
    "a time": (dt.timedelta, {"type": "string", "format": "duration"}),
    "an optional": (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045 - the old spelling
    "bounds": (Annotated[int, msgspec.Meta(ge=1, le=5)], {"type": "integer", "minimum": 1, "maximum": 5}),
}


@pytest.mark.parametrize(("hint", "schema"), SCHEMAS.values(), ids=SCHEMAS)
def test_the_schema_of_a_parameter(hint, schema):
    """The type of a plain parameter is inlined under its name."""
    expected = {"type": "object", "properties": {"x": schema}, "required": ["x"], "additionalProperties": False}
    assert expected == made_with(hint).spec.parameters


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object schema inside a schema."""
    if isinstance(schema, dict):
        if "properties" in schema and schema.get("type") == "object":
            yield schema
        for part in schema.values():
            yield from objects(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from objects(part)


def test_no_level_of_a_schema_is_open():
    """At every level with declared fields, others are forbidden, and nothing refers to anything."""
    schema = struct_schema(forbid_unknown(Edit))
    assert len(list(objects(schema))) > 4
    assert {False} == {one["additionalProperties"] for one in objects(schema)}
    assert "$ref" not in repr(schema)
    jsonschema.Draft202012Validator.check_schema(schema)


@given(
    st.fixed_dictionaries(
        {"path": st.text(max_size=3)},
        optional={
            "spots": st.lists(st.fixed_dictionaries({"line": st.integers()}, optional={"title": JSON}), max_size=2),
            "last": JSON,
            "mode": st.sampled_from(["fast", "slow", "odd"]),
            "where": st.fixed_dictionaries({"type": st.sampled_from(["ByName", "ByLine"])}, optional={"line": JSON}),
            "size": st.tuples(st.integers(), st.floats(allow_nan=False, allow_infinity=False)).map(list),
            "extra": JSON,
            "other": JSON,
        },
    )
)
def test_what_the_decoder_takes_the_schema_allows(arguments):
    """The two uses of the type never part: nothing is accepted that the model was told not to send."""
    schema = struct_schema(forbid_unknown(Edit))
    try:
        made_of(Edit).parse(arguments)
    except ToolError:
        return
    jsonschema.Draft202012Validator(schema).validate(arguments)


# -- what may not be inside


class Loose(msgspec.Struct):
    x: int


class LooseBox(msgspec.Struct, Generic[T]):
    x: T


@dataclasses.dataclass
class Plain:
    x: int


@attrs.define
class Attrs:
    x: int


class Typed(TypedDict):
    x: int


class Knot(msgspec.Struct, forbid_unknown_fields=True):
    inner: Optional["Knot"] = None


class There(msgspec.Struct, forbid_unknown_fields=True):
    back: Optional["Back"] = None


class Back(msgspec.Struct, forbid_unknown_fields=True):
    there: There | None = None


class Row(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    x: int


LOOSE = {
    "a struct": (list[Loose], "Loose"),
    "in an optional": (Loose | None, "Loose"),
    "in a dict": (dict[str, Loose], "Loose"),
    "in a generic": (Box[Loose], "Loose"),
    "a generic itself": (LooseBox[int], "LooseBox"),
    "a dataclass": (Plain, "Plain"),
    "an attrs class": (Attrs, "Attrs"),
    "a typed dict": (Typed, "Typed"),
    "in a named tuple": (tuple[int, Loose], "Loose"),
}


@pytest.mark.parametrize(("hint", "name"), LOOSE.values(), ids=LOOSE)
def test_a_type_inside_that_takes_unknown_fields_is_refused(hint, name):
    """What would silently drop what the model meant is the author's mistake, with the line to write."""
    with pytest.raises(UsageError) as refused:
        made_with(hint)
    expected = (
        f"{name} inside made accepts unknown fields: write class {name}(msgspec.Struct, forbid_unknown_fields=True)."
    )
    assert expected == str(refused.value)


def test_the_arguments_themselves_are_made_strict():
    """The Struct that is the argument need not say it: a strict one of the same name and fields takes its place."""
    strict = made_of(Loose)
    assert ("Loose", True, Loose(3)) == (
        strict.arguments.__name__,
        issubclass(strict.arguments, Loose),
        Loose(strict.parse('{"x":3}').x),  # type: ignore[attr-defined]
    )
    with pytest.raises(ToolError, match="Object contains unknown field `y`"):
        strict.parse('{"x":3,"y":4}')
    assert Spot is forbid_unknown(Spot)


@pytest.mark.parametrize(("kind", "name"), [(Knot, "Knot"), (There, "There"), (Box[Back], "(There|Back)")])
def test_recursive_types_are_refused(kind, name):
    """A type that contains itself, directly or not, cannot be written without references."""
    with pytest.raises(UsageError, match=f"^{name} contains itself: tool arguments must not be recursive.$"):
        made_with(kind)


UNREADABLE: dict[str, Any] = {
    "any object": object,
    "a class": type("Other", (), {}),
    "a function": Callable[[], int],
    "two kinds of arrays": list[int] | tuple[int, ...],
    "bounds of something else": Annotated[str, msgspec.Meta(ge=1)],
    "a type variable of nothing": list["Nowhere"],  # type: ignore[name-defined]  # noqa: F821
}


@pytest.mark.parametrize("hint", UNREADABLE.values(), ids=UNREADABLE)
def test_a_type_that_cannot_come_from_json_is_refused(hint):
    """A parameter no JSON can fill is found when the tool is made."""
    with pytest.raises(UsageError, match=r"^made: its (parameter types|annotations) cannot "):
        made_with(hint)


def test_arguments_are_an_object():
    """A Struct that reads arrays cannot be the arguments of a tool."""
    with pytest.raises(UsageError, match=r"^Row is array_like: the arguments of a tool are an object.$"):
        made_of(Row)

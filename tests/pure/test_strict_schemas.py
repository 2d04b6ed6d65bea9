"""Strict schemas: what strict mode can say, what it cannot, and arguments back from what it made of them."""

import itertools
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.schema import struct_schema
from callboard.runtime.models.strict import (
    DEPTH_MAX,
    PROPERTIES_MAX,
    has_optional,
    strict_schema,
    without_nulls,
)

from .openai_samples import VALUES
from .tool_samples import Color, Spot

TEXT = {"type": "string"}


def closed(needed: Any = (), **fields: Any) -> dict[str, Any]:
    """An object that takes these fields alone."""
    return {"type": "object", "properties": fields, "required": list(needed), "additionalProperties": False}


def deep(levels: int) -> dict[str, Any]:
    """Objects in objects."""
    made: dict[str, Any] = TEXT
    for _ in range(levels):
        made = closed(["a"], a=made)
    return made


SAID = {
    "all needed": (closed(["a"], a=TEXT), closed(["a"], a=TEXT)),
    "nothing at all": ({"type": "object"}, closed()),
    "may be missing": (closed(a=TEXT), closed(["a"], a={"type": ["string", "null"]})),
    "a list of kinds": (closed(a={"type": ["string", "null"]}), closed(["a"], a={"type": ["string", "null"]})),
    "a choice of values": (
        closed(a={"enum": ["x", "y"]}),
        closed(["a"], a={"enum": ["x", "y", None], "type": ["string", "null"]}),
    ),
    "one value": (closed(["a"], a={"const": 3}), closed(["a"], a={"enum": [3], "type": "integer"})),
    "a choice of kinds": (
        closed(a={"anyOf": [TEXT, {"type": "integer"}]}),
        closed(["a"], a={"anyOf": [TEXT, {"type": "integer"}, {"type": "null"}]}),
    ),
    "notes and bounds go": (
        closed(["a"], a={**TEXT, "title": "A", "default": "x", "minLength": 1}),
        closed(["a"], a=TEXT),
    ),
    "odd formats and patterns go": (
        closed(["a", "b"], a={**TEXT, "format": "uri"}, b={**TEXT, "pattern": "(?=x)"}),
        closed(["a", "b"], a=TEXT, b=TEXT),
    ),
    "within a list": (
        closed(["a"], a={"type": "array", "items": closed(b=TEXT), "minItems": 1}),
        closed(["a"], a={"type": "array", "items": closed(["b"], b={"type": ["string", "null"]}), "minItems": 1}),
    ),
}


@pytest.mark.parametrize(("schema", "strict"), SAID.values(), ids=SAID)
def test_strict_mode_says_it(schema, strict):
    """All fields are needed, what may be missing may be null, and nothing is left that strict mode does not read."""
    assert strict == strict_schema(schema, checked=True)


UNSAID = {
    "a map": closed(["a"], a={"type": "object", "additionalProperties": TEXT}),
    "open": {"type": "object", "properties": {"a": TEXT}, "additionalProperties": True},
    "anything": closed(["a"], a={}),
    "a list of anything": closed(["a"], a={"type": "array"}),
    "all of": closed(["a"], a={"allOf": [TEXT]}),
    "not": closed(["a"], a={"not": TEXT}),
    "patterns of names": {**closed(), "patternProperties": {"x": TEXT}},
    "a reference": {**closed(["a"], a={"$ref": "#/$defs/A"}), "$defs": {"A": TEXT}},
    "no object": {"type": "array", "items": TEXT},
    "a choice at the root": {**closed(), "anyOf": [closed()]},
    "mixed values": closed(["a"], a={"enum": [{}, []]}),
    "too deep": deep(DEPTH_MAX + 1),
    "too wide": closed([], **{f"f{n}": TEXT for n in range(PROPERTIES_MAX + 1)}),
    "no schema": ["object"],
    "a field that is none": closed(["a"], a=True),
}


@pytest.mark.parametrize("schema", UNSAID.values(), ids=UNSAID)
def test_strict_mode_cannot_say_it(schema):
    """Such a tool is offered as it is, without strict mode."""
    assert strict_schema(schema, checked=True) is None


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (closed(["a"], a=TEXT), closed(["a"], a=TEXT)),
        (closed(a=TEXT), None),
        (closed(["a"], a={**TEXT, "minLength": 1}), None),
        (closed(["a"], a={**TEXT, "format": "uri"}), None),
        ({"type": "object", "properties": {"a": TEXT}, "required": ["a"]}, None),
        (
            {**closed(["a"], a={"$ref": "#/$defs/A"}), "$defs": {"A": closed(["b"], b=TEXT)}},
            {**closed(["a"], a={"$ref": "#/$defs/A"}), "$defs": {"A": closed(["b"], b=TEXT)}},
        ),
    ],
)
def test_the_schema_of_an_answer_is_strict_only_as_it_stands(schema, strict):
    """Nobody undoes what strict mode makes of an answer, so nothing is rewritten in its schema."""
    assert strict == strict_schema(schema, checked=False)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"a":null,"b":null}', '{"b":null}'),
        ('{"a":"x","b":"null"}', '{"a":"x","b":"null"}'),
        ('{"a": 1}', '{"a": 1}'),
        ('{"b":1,"c":{"d":null},"e":[{"f":null},{"f":1}]}', '{"b":1,"c":{},"e":[{},{"f":1}]}'),
        ('{"b":1,"x":null}', '{"b":1,"x":null}'),
        ('{"a":null', '{"a":null'),
        ("null", "null"),
        ("[null]", "[null]"),
        ('{"k":{"type":"two","g":null}}', '{"k":{"type":"two"}}'),
    ],
)
def test_nulls_for_fields_left_out_go(text, left):
    """Null goes where it means left out, and stays where it is a value; what is no JSON stays as it came."""
    kinds = [
        closed(["type", "f"], type={"enum": ["one"]}, f=TEXT, g={"type": ["string", "null"]}),
        closed(["type"], type={"enum": ["two"]}, g=TEXT),
    ]
    rows = {"type": "array", "items": closed(f={"type": "integer"})}
    nullable = {"type": ["integer", "null"]}
    schema = closed(["b"], a=TEXT, b=nullable, c=closed(d=TEXT), e=rows, k={"anyOf": kinds})
    assert left == without_nulls(text, schema)


class Sample(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Arguments of every kind that strict mode can say."""

    path: str
    color: Color = Color.RED
    spot: Spot | None = None
    rows: tuple[Spot, ...] = ()
    limit: int = 7
    name: str | None = None


@given(given=st.from_type(Sample), left_out=st.sets(st.sampled_from(["color", "rows", "limit"])))
def test_arguments_come_back_as_they_were_meant(given, left_out):
    """Whatever fits the strict schema, with null for what is left out, decodes to what was meant."""
    schema = struct_schema(Sample)
    strict = strict_schema(schema, checked=True)
    assert strict is not None
    assert has_optional(schema)
    said = {**msgspec.json.decode(msgspec.json.encode(given)), **dict.fromkeys(left_out)}
    for spot in itertools.chain([said["spot"]] if said["spot"] else [], said["rows"] or []):
        if spot["title"] == "here":
            spot["title"] = None
    jsonschema.validate(said, strict)
    back = msgspec.json.decode(without_nulls(msgspec.json.encode(said).decode(), schema), type=Sample)
    assert msgspec.structs.replace(given, **{name: getattr(Sample("x"), name) for name in left_out}) == back


KEYS = st.sampled_from(
    ["type", "properties", "items", "anyOf", "enum", "required", "additionalProperties", "$ref", "$defs", "x"]
)


def loose() -> st.SearchStrategy[Any]:
    """What a server may call a schema."""
    made: st.SearchStrategy[Any] = VALUES | st.sampled_from(["object", "array", "string"])
    for _ in range(3):
        made = VALUES | st.dictionaries(KEYS | st.just("a"), made | st.lists(made, max_size=2), max_size=4)
    return made


@given(schema=loose(), value=VALUES, checked=st.booleans())
def test_no_schema_of_a_foreign_server_brings_it_down(schema, value, checked):
    """Whatever a server calls a schema is strict, or it is not; arguments come back either way."""
    schema = {"type": "object", **schema} if isinstance(schema, dict) else schema
    made = strict_schema(schema, checked=checked)
    assert made is None or made["additionalProperties"] is False
    if isinstance(schema, dict):
        assert isinstance(without_nulls(msgspec.json.encode(value).decode(), schema), str)
    assert isinstance(has_optional(schema), bool)

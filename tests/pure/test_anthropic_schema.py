"""Schemas of answers: what Anthropic's formats can say, and what has to be said in words."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.model import User
from callboard.runtime.models.anthropic_dialect import Dialect
from callboard.runtime.models.anthropic_input import messages_request
from callboard.runtime.models.anthropic_schema import DEPTH_MAX, answer_schema

from .openai_samples import VALUES, nested, prompt

TEXT = {"type": "string"}
CLOSED = {"type": "object", "properties": {"a": TEXT}, "required": ["a"], "additionalProperties": False}
SAID: dict[str, tuple[Any, Any]] = {
    "as it is": (CLOSED, CLOSED),
    "an open object is closed": ({"type": "object", "properties": {"a": TEXT}, "required": ["a"]}, CLOSED),
    "an object that may have more": ({**CLOSED, "additionalProperties": True}, CLOSED),
    "nothing at all": (
        {"type": "object", "additionalProperties": False},
        {"type": "object", "properties": {}, "additionalProperties": False},
    ),
    "bounds in words": (
        {"type": "integer", "minimum": 1, "maximum": 9, "description": "How many."},
        {"type": "integer", "description": "How many.\nminimum: 1; maximum: 9"},
    ),
    "a format that is known": ({**TEXT, "format": "date"}, {**TEXT, "format": "date"}),
    "a format that is not": ({**TEXT, "format": "isbn"}, {**TEXT, "description": 'format: "isbn"'}),
    "at least one": (
        {"type": "array", "items": TEXT, "minItems": 1},
        {"type": "array", "items": TEXT, "minItems": 1},
    ),
    "at least two": (
        {"type": "array", "items": TEXT, "minItems": 2},
        {"type": "array", "items": TEXT, "description": "minItems: 2"},
    ),
    "notes go": ({**TEXT, "title": "A", "default": "x"}, TEXT),
    "choices": ({"oneOf": [TEXT, {"type": "null"}]}, {"anyOf": [TEXT, {"type": "null"}]}),
    "words": ({"type": "string", "enum": ["a", "b"]}, {"enum": ["a", "b"]}),
    "parts by name": (
        {"$ref": "#/$defs/P", "$defs": {"P": {"type": "object", "properties": {"a": TEXT}, "required": ["a"]}}},
        {"$ref": "#/$defs/P", "$defs": {"P": CLOSED}},
    ),
    "one of two kinds": ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
}


@pytest.mark.parametrize(("schema", "said"), SAID.values(), ids=SAID)
def test_what_a_format_says(schema, said):
    """Objects are closed, and bounds become words."""
    assert said == answer_schema(schema)


def deep(levels: int) -> Any:
    """Lists in lists."""
    made: Any = TEXT
    for _ in range(levels):
        made = {"type": "array", "items": made}
    return made


UNFIT: dict[str, Any] = {
    "no schema": "x",
    "always": True,
    "anything": {},
    "any object": {"type": "object"},
    "a table": {"type": "object", "additionalProperties": TEXT},
    "one field and a table": {**CLOSED, "additionalProperties": TEXT},
    "what nobody knows": {**TEXT, "contentEncoding": "base64"},
    "a kind that is none": {"type": "text"},
    "no kinds": {"type": []},
    "no choices": {"anyOf": []},
    "fields of a text": {**TEXT, "properties": {"a": TEXT}},
    "fields in a list": {"type": "object", "properties": [TEXT]},
    "an odd part": {"type": "array", "items": {"type": "object"}},
    "too deep": deep(DEPTH_MAX),
}


@pytest.mark.parametrize("schema", UNFIT.values(), ids=UNFIT)
def test_what_no_format_says_is_said_in_words(schema):
    """Then the request has no format, and the schema stands whole in the system."""
    assert answer_schema(schema) is None
    body = messages_request(prompt(User("hi"), schema=schema), "claude-x", Dialect()).body
    assert "output_config" not in body
    assert msgspec.json.encode(schema).decode() in body["system"][0]["text"]


KEYS = ["type", "properties", "items", "anyOf", "enum", "additionalProperties", "$defs", "required", "minimum"]
ODD = nested(VALUES | st.sampled_from(["object", "string"]), 1) | st.dictionaries(st.sampled_from(KEYS), VALUES)


@given(schema=ODD | st.dictionaries(st.sampled_from(KEYS), ODD, max_size=4))
def test_a_schema_of_any_shape(schema):
    """It fits or it does not, and nothing breaks."""
    made = answer_schema(schema)
    assert made is None or msgspec.json.decode(msgspec.json.encode(made)) == made

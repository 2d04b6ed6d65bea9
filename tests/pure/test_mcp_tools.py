"""What servers say of their tools, and what is made of it: names, texts, schemas, effects."""

import jsonschema  # type: ignore[import-untyped]
import pytest
from tests.mcp_server import lies

from callboard.actors.catalogue import Offer
from callboard.actors.errors import ToolError
from callboard.actors.tool import NAME_PATTERN
from callboard.plugins.approvals import rule_of
from callboard.plugins.code import signature
from callboard.plugins.mcp_tools import (
    DESCRIPTION_MAX_CHARS,
    TOOLS_MAX,
    Arguments,
    Belief,
    Listed,
    cleaned,
    effect_of,
    list_tools,
    plain_text,
    tool_name,
)


def check(schema):
    """What the real one answers, shorter."""
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        return error.message
    return None


async def body(arguments, view):
    """A call."""
    return str(arguments.given)


def listed(found, **belief) -> Listed:
    return list_tools("srv", found, Belief(**belief), lambda name: body, check)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("read_file", "mcp__srv__read_file"),
        ("get-sum", "mcp__srv__get-sum"),
        ("a.b", "mcp__srv__a_b_2e9bf02c"),
        ("x" * 100, f"mcp__srv__{'x' * 45}_09ecb663"),
        ("x" * 99 + "y", f"mcp__srv__{'x' * 45}_5ca8f6aa"),
    ],
)
def test_names(name, ours):
    """A name fits every provider, and two that differ stay different."""
    found = tool_name("srv", name)
    assert NAME_PATTERN.fullmatch(found)
    assert (ours[:10], len(ours)) == (found[:10], len(found))
    assert found == ours if name in ("read_file", "get-sum") else found != tool_name("srv", name + "z")


def test_texts_are_what_people_see():
    """Control, format and tag characters, which only a model reads, are left out, and the rest is cut."""
    assert "a[2J b\n\tcé😀" == plain_text("a\x1b[2J\u202e\U000e0041\x00 b\n\tc\ufeffé😀\ud800"[:-1], 100)
    assert "xxx…" == plain_text("x" * 10, 4)


def test_a_list_of_lies():
    """Of a list in which little is true, what can be used is used, and each flaw is told."""
    found = listed(lies())
    assert [
        "mcp__srv__fine",
        "mcp__srv__no_schema",
        "mcp__srv__no_object",
        "mcp__srv__bad_type",
        "mcp__srv__deep",
        "mcp__srv__large",
        "mcp__srv__outward",
        "mcp__srv__loud",
        "mcp__srv__sp_ace__",
        f"mcp__srv__{'y' * 45}",
        "mcp__srv__z",
    ] == [tool.name if len(tool.name) < 24 else tool.name[:-9] for tool in found.tools]
    assert 11 == len(found.flaws)
    for tool in found.tools:
        assert check(tool.spec.parameters) is None
        assert "object" == tool.spec.parameters["type"]
        assert len(tool.description) <= DESCRIPTION_MAX_CHARS + 200
        assert signature(tool).startswith("tools")
        assert ("once", True, "mcp") == (tool.effect, tool.mutates, tool.external)


def test_too_many_tools():
    """A server has a bounded number of tools."""
    found = listed([{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(TOOLS_MAX + 5)])
    assert TOOLS_MAX == len(found.tools)
    assert 1 == len(found.flaws)


SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$id": "http://example.com/a",
    "type": "object",
    "title": "T\x1b",
    "x-hidden": {"a": 1},
    "properties": {
        "title": {"type": "string", "description": "d\x00"},
        "pattern": {"type": "string", "pattern": "^a+$"},
        "bad": {"type": "string", "pattern": "(" * 500},
        "$ref": True,
        "never": False,
        "item": {"$ref": "#/$defs/Item"},
        "kind": {"enum": ["a", "b"], "default": {"$ref": "kept as data"}},
    },
    "required": ["title"],
    "$defs": {"Item": {"type": "object", "properties": {"more": {"$ref": "#/$defs/Item"}}}},
}


def test_a_schema_is_kept_without_what_does_not_belong():
    """Properties of any name stay, and what is about the schema itself, hidden, unreadable or broken goes."""
    made, flaw = cleaned(SCHEMA, check)
    assert flaw is None
    assert {
        "type": "object",
        "title": "T",
        "properties": {
            "title": {"type": "string", "description": "d"},
            "pattern": {"type": "string", "pattern": "^a+$"},
            "bad": {"type": "string"},
            "$ref": {},
            "never": {"not": {}},
            "item": {"$ref": "#/$defs/Item"},
            "kind": {"enum": ["a", "b"], "default": {"$ref": "kept as data"}},
        },
        "required": ["title"],
        "$defs": {"Item": {"type": "object", "properties": {"more": {"$ref": "#/$defs/Item"}}}},
    } == made


READS, AGAIN, HARMS = {"readOnlyHint": True}, {"idempotentHint": True}, {"readOnlyHint": True, "destructiveHint": True}


@pytest.mark.parametrize(
    ("hints", "trust", "effect"),
    [
        (READS, False, ("once", True)),
        (READS, True, ("none", False)),
        (AGAIN, True, ("idempotent", True)),
        (HARMS, True, ("once", True)),
        ({"readOnlyHint": "yes"}, True, ("once", True)),
        (None, True, ("once", True)),
        ([], True, ("once", True)),
    ],
)
def test_hints(hints, trust, effect):
    """Hints count where the server is trusted, and then only plain ones that do not contradict each other."""
    assert effect == effect_of(hints, trust=trust)


def test_what_a_server_is_believed():
    """Tools that only read may run side by side; the configuration says it for all."""
    found = [{"name": "a", "inputSchema": {"type": "object"}, "annotations": READS}]
    assert [False, True, True] == [
        listed(found, **how).tools[0].parallel for how in ({}, {"trust": True}, {"parallel": True})
    ]


def test_arguments_are_any_object():
    """The server checks arguments, but what is no object goes nowhere."""
    (tool,) = listed([{"name": "a", "inputSchema": SCHEMA}]).tools
    assert [Arguments({"q": [1]}), Arguments({"a": 1}), Arguments({}), Arguments({})] == [
        tool.parse(given) for given in ('{"q":[1]}', {"a": 1}, None, "")
    ]
    for given in ("[1]", "{", [1], 5, "[" * 100_000):
        with pytest.raises(ToolError, match="failed to parse function arguments"):
            tool.parse(given)


def test_a_turn_keeps_what_it_was_offered():
    """What a server brings is offered behind what there is, and an earlier offer stays as it was."""
    (tool,) = listed([{"name": "a", "description": "A.", "inputSchema": SCHEMA}]).tools
    before = Offer.of({})
    after = Offer.of({**before.tools, tool.name: tool})
    assert ((), ("mcp__srv__a",)) == (before.specs_for(()), tuple(spec.name for spec in after.specs_for(())))
    assert ["title"] == after.specs[0].parameters["required"]


@pytest.mark.parametrize(
    ("name", "rule"),
    [("a", "deny"), ("mcp__srv__a", "allow"), ("mcp__srv__b", "deny"), ("mcp__other__a", "ask"), ("b", "ask")],
)
def test_rules_for_all_tools_of_a_server(name, rule):
    """A rule by name counts first, then the longest beginning, then that for all."""
    rules = {"a": "deny", "mcp__srv__*": "deny", "mcp__srv__a*": "allow", "*": "ask"}
    assert rule == rule_of(name, rules)  # type: ignore[arg-type]
    assert "ask" == rule_of(name + "z", {})

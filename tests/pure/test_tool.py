"""Tools made of functions: what they declare, which mistakes are named at the start, and arguments that do not fit."""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.errors import ToolError, UsageError
from callboard.actors.events import Call
from callboard.actors.model import ToolSpec
from callboard.actors.plugin import View
from callboard.actors.schema import forbid_unknown, struct_schema
from callboard.actors.tool import DETAIL_MAX_CHARS, DETAIL_TAIL_CHARS, OUTPUT_MAX_BYTES, Tool, payload_fits, tool

from .event_samples import JSON
from .tool_samples import SPOT, Edit, Spot, made_of, made_with

ERROR_MAX_CHARS = DETAIL_MAX_CHARS + 100


def test_a_plain_function():
    """Typed parameters become the arguments; a def runs in a thread and is taken to change things."""

    @tool
    def grep(pattern: str, limit: int = 10) -> str:
        """Find text.

        Slowly.
        """
        return f"{pattern} {limit}"

    schema = {
        "type": "object",
        "properties": {"pattern": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["pattern"],
        "additionalProperties": False,
    }
    assert ToolSpec("grep", "Find text.\n\nSlowly.", schema) == grep.spec
    declared = (grep.runs_on, grep.effect, grep.mutates, grep.parallel, grep.graceful, grep.control, grep.view)
    assert ("thread", "once", True, False, False, False, None) == declared
    assert ("direct", None, OUTPUT_MAX_BYTES, None) == (grep.exposure, grep.timeout_s, grep.output_max, grep.external)
    args, kwargs = grep.bind(grep.parse('{"pattern":"x"}'), "the view")
    assert ("x 10", "y 3") == (grep.fn(*args, **kwargs), grep("y", limit=3))


def test_an_async_function_with_a_view():
    """An async def runs on Trio, and its View comes by name whatever the other parameters are."""

    @tool(parallel=True, effect="none", graceful=True, timeout_s=2.5, output_max=100, exposure="hidden")
    async def look(view: View, where: Spot, deep: bool = False) -> None: ...

    declared = (look.runs_on, look.effect, look.mutates, look.parallel, look.graceful, look.timeout_s, look.output_max)
    assert ("trio", "none", False, True, True, 2.5, 100) == declared
    args, kwargs = look.bind(look.parse({"where": {"line": 3}}), "the view")
    assert ((), {"where": Spot(3), "deep": False, "view": "the view"}) == (args, kwargs)
    assert look.spec.parallel


@pytest.mark.parametrize("name", ["view", "ctx"])
def test_a_view_needs_no_type(name):
    """A parameter called view or ctx without a type is the View."""
    made: dict[str, Any] = {}
    exec(f"def peek({name}, a: int): ...", made)
    peek = tool(made["peek"])
    assert (name, ["a"]) == (peek.view, list(peek.spec.parameters["properties"]))


def test_a_struct_is_the_argument_itself():
    """One Struct parameter is the arguments, and the function gets it whole."""

    @tool
    def edit(change: Edit, view: View) -> None: ...

    args, kwargs = edit.bind(edit.parse({"path": "a"}), "the view")
    assert (Edit("a"), {"view": "the view"}) == (Edit(args[0].path), kwargs)
    assert isinstance(args[0], Edit)
    assert struct_schema(forbid_unknown(Edit)) == edit.spec.parameters


def test_a_struct_beside_other_parameters_is_one_of_them():
    """With a second parameter both stand under their names."""

    @tool
    def both(spot: Spot, again: bool = False) -> None: ...

    assert {"spot": SPOT, "again": {"type": "boolean"}} == both.spec.parameters["properties"]


def test_no_parameters():
    """A function without parameters takes an empty object."""

    @tool
    def stop() -> None: ...

    expected = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert (expected, ((), {})) == (stop.spec.parameters, stop.bind(stop.parse(""), None))


def test_options_that_are_none_are_left_out():
    """None means the default, so that a configuration can pass all options."""

    @tool(name=None, description="Said here.", runs_on=None, mutates=None, timeout_s=None, refuse=None)
    def f() -> None:
        """Said there."""

    assert ("f", "Said here.", "thread", True) == (f.name, f.description, f.runs_on, f.mutates)


MUTATES: tuple[tuple[dict[str, Any], bool], ...] = (
    ({}, True),
    ({"effect": "idempotent"}, True),
    ({"effect": "none"}, False),
    ({"control": True}, False),
    ({"effect": "none", "mutates": True}, True),
    ({"mutates": False}, False),
)


@pytest.mark.parametrize(("options", "mutates"), MUTATES)
def test_mutates(options, mutates):
    """A tool is held to change things unless its effect is none, it is a control tool, or it says so itself."""

    def f() -> None: ...

    assert mutates == tool(**options)(f).mutates


def plain(x: int) -> None: ...


async def waiting(x: int) -> None: ...


def generator(x: int) -> Iterator[int]:
    yield x


async def streaming(x: int) -> AsyncIterator[int]:
    yield x


def starred(*x: int) -> None: ...


def keywords(**x: int) -> None: ...


def positional(x: int, /) -> None: ...


def untyped(x, y: int) -> None: ...


def misspelt(x: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


def broken(x: "in t") -> None: ...  # type: ignore[valid-type]  # noqa: F722


def viewed(a: View, b: View) -> None: ...


def risky(x: list[int] = [1]) -> None: ...  # noqa: B006


MISTAKES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a class": (Spot, {}, "@tool goes on a function, got "),
    "a number": (5, {}, "@tool goes on a function, got 5."),
    "a partial": (partial(plain, 1), {}, "@tool goes on a function, got "),
    "a method": (Tool.parse.__get__(made_of(Spot)), {}, "@tool goes on a function, got "),
    "a builtin": (len, {}, "@tool goes on a function, got "),
    "a lambda": (lambda: 1, {}, "'<lambda>' cannot name a tool: use letters, digits, _ . - and at most 64 characters."),
    "a bad name": (plain, {"name": "two words"}, "'two words' cannot name a tool: "),
    "a long name": (plain, {"name": "x" * 65}, "'xxx"),
    "an empty name": (plain, {"name": ""}, "'' cannot name a tool: "),
    "a name that is none": (plain, {"name": 5}, "5 cannot name a tool: "),
    "a generator": (generator, {}, "generator: a generator has no one result; collect it and return it."),
    "an async generator": (streaming, {}, "streaming: a generator has no one result; collect it and return it."),
    "an unknown option": (plain, {"colour": "red"}, "plain: @tool has no option 'colour'; it takes control, "),
    "an option of the inside": (plain, {"fields": ()}, "plain: @tool has no option 'fields'; it takes "),
    "runs_on": (plain, {"runs_on": "moon"}, "plain: runs_on must be trio, thread or asyncio, got 'moon'."),
    "effect": (plain, {"effect": "never"}, "plain: effect must be none, idempotent or once, got 'never'."),
    "exposure": (
        plain,
        {"exposure": "x"},
        "plain: exposure must be direct, direct_model_only, code_only, deferred or ",
    ),
    "async in a thread": (waiting, {"runs_on": "thread"}, "waiting: an async def cannot run in a thread; "),
    "plain on asyncio": (plain, {"runs_on": "asyncio"}, "plain: runs_on='asyncio' needs an async def."),
    "no time": (plain, {"timeout_s": 0}, "plain: timeout_s must be above 0, got 0."),
    "negative time": (plain, {"timeout_s": -1.5}, "plain: timeout_s must be above 0, got -1.5."),
    "NaN time": (plain, {"timeout_s": float("nan")}, "plain: timeout_s must be above 0, got nan."),
    "time as text": (plain, {"timeout_s": "5"}, "plain: timeout_s must be above 0, got '5'."),
    "time as truth": (plain, {"timeout_s": True}, "plain: timeout_s must be above 0, got True."),
    "no output": (plain, {"output_max": 0}, "plain: output_max must be a whole number above 0, got 0."),
    "half a byte": (plain, {"output_max": 1.5}, "plain: output_max must be a whole number above 0, got 1.5."),
    "parallel": (plain, {"parallel": "no"}, "plain: parallel must be True or False, got 'no'."),
    "graceful": (plain, {"graceful": 1}, "plain: graceful must be True or False, got 1."),
    "mutates": (plain, {"mutates": "x"}, "plain: mutates must be True or False, got 'x'."),
    "any number": (starred, {}, "starred: parameter *x: int cannot come from a JSON object; give it a plain name."),
    "any keywords": (keywords, {}, "keywords: parameter **x: int cannot come from a JSON object; "),
    "positional only": (positional, {}, "positional: parameter x: int cannot come from a JSON object; "),
    "no type": (untyped, {}, "untyped: parameter 'x' has no type; annotate it."),
    "a type of nowhere": (misspelt, {}, "misspelt: its annotations cannot be read (name 'Nowhere' is not defined); "),
    "a type that is no Python": (broken, {}, "broken: its annotations cannot be read ("),
    "two views": (viewed, {}, "viewed: a and b are both the View; take it once."),
    "a shared default": (risky, {}, "risky: its parameter types cannot come from JSON: Using a non-empty mutable"),
}


@pytest.mark.parametrize(("fn", "options", "text"), MISTAKES.values(), ids=MISTAKES)
def test_a_function_that_cannot_be_a_tool_is_refused(fn, options, text):
    """Each mistake is a UsageError that says what to write, when the tool is made and not when it is called."""
    with pytest.raises(UsageError) as refused:
        tool(**options)(fn)
    assert text == str(refused.value)[: len(text)]


@pytest.mark.parametrize(("kind", "fits"), [("function", True), ("custom", False), ("", False)])
def test_payload_fits(kind, fits):
    """Our tools take calls of the kind function."""
    assert fits == payload_fits(Call("f", {}, "c1", kind))


# -- arguments that do not fit

EDIT = made_of(Edit)

BAD: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "Input data was truncated"),
    "malformed": ("{x}", "JSON is malformed: object keys must be strings (byte 1)"),
    "two values": ('{"path":"a"}{}', "JSON is malformed: trailing characters (byte 13)"),
    "no object": ("[]", "Expected `object`, got `array`"),
    "null as text": ("null", "Expected `object`, got `null`"),
    "a number": (5, "Expected `object`, got `int`"),
    "a missing field": ("", "Object missing required field `path`"),
    "none at all": (None, "Object missing required field `path`"),
    "a wrong type": ('{"path":5}', "Expected `str`, got `int` - at `$.path`"),
    "a wrong type inside": ({"path": "a", "spots": [{"line": 1}, {"line": "2"}]}, "at `$.spots[1].line`"),
    "an unknown field": ('{"path":"a","x":1}', "Object contains unknown field `x`"),
    "an unknown field inside": (
        '{"path":"a","last":{"line":1,"x":1}}',
        "Object contains unknown field `x` - at `$.last`",
    ),
    "another word": ('{"path":"a","mode":"odd"}', "Invalid enum value 'odd' - at `$.mode`"),
    "a limit": ('{"path":""}', "Expected `str` of length >= 1 - at `$.path`"),
    "invalid UTF-8": (b'{"path":"\xff"}', "Invalid UTF-8"),
    "a lone surrogate": ('{"path":"\ud800"}', "'utf-8' codec can't encode character '\\ud800'"),
    "deep text": ('{"extra":' * 10_000, "nested too deep - at `$`"),
    "NaN": ('{"path":"a","size":[1,NaN]}', "JSON is malformed: invalid character (byte 22)"),
}


@pytest.mark.parametrize(("arguments", "detail"), BAD.values(), ids=BAD)
def test_arguments_that_do_not_fit_say_where(arguments, detail):
    """The model reads what was wrong, with the path of the value."""
    with pytest.raises(ToolError) as refused:
        EDIT.parse(arguments)
    text = str(refused.value)
    assert text.startswith("failed to parse function arguments: ")
    assert detail in text


def test_a_huge_value_is_not_repeated():
    """Of a long detail the model reads what was wrong and where, not its own megabytes."""
    with pytest.raises(ToolError) as refused:
        EDIT.parse(msgspec.json.encode({"path": "a", "mode": "x" * 1_000_000}))
    text = str(refused.value).removeprefix("failed to parse function arguments: ")
    assert text.startswith("Invalid enum value 'xxx")
    assert text.endswith("xxx' - at `$.mode`")
    assert DETAIL_MAX_CHARS + len(" [...] ") == len(text)
    assert text.index(" [...] ") == DETAIL_MAX_CHARS - DETAIL_TAIL_CHARS


class Picky(msgspec.Struct, forbid_unknown_fields=True):
    """Raises what it was told to."""

    kind: str

    def __post_init__(self) -> None:
        raise {"key": KeyError("gone"), "zero": ZeroDivisionError(), "value": ValueError("no\ud800")}.get(
            self.kind, RuntimeError("x" * 10_000)
        )


@pytest.mark.parametrize(("kind", "detail"), [("key", "'gone'"), ("zero", "ZeroDivisionError"), ("value", "no")])
def test_what_a_type_raises_about_itself_is_the_models_to_read(kind, detail):
    """A check of the arguments' own type may raise anything: the model reads it, and the turn goes on."""
    with pytest.raises(ToolError, match=f"^failed to parse function arguments: {detail}"):
        made_of(Picky).parse({"kind": kind})


def cycle() -> Any:
    """A value that contains itself."""
    value: dict[str, Any] = {"path": "a"}
    value["extra"] = value
    return value


ARGUMENTS = (
    JSON
    | JSON.map(lambda value: msgspec.json.encode(value).decode())
    | st.text(st.characters(), max_size=20)
    | st.binary(max_size=20)
    | st.builds(cycle)
    | st.dictionaries(
        st.text(st.characters(), max_size=3) | st.integers() | st.none(), st.floats() | st.text(st.characters())
    )
    | st.complex_numbers()
    | st.just(object())
    | st.just(Spot(1))
    | st.sampled_from([bytearray(b"{}"), memoryview(b"{}"), {1}, range(3), msgspec.UNSET, msgspec.Raw(b"{{"), ...])
)


@given(st.sampled_from([EDIT, made_of(Spot), made_of(Picky), made_with(dict[str, Any]), made_with(Any)]), ARGUMENTS)
def test_parsing_raises_nothing_but_tool_errors(made, arguments):
    """Whatever arrives as arguments, it is the typed arguments or a short ToolError."""
    for given_arguments in (arguments, {"x": arguments}, {"kind": arguments}, {"path": "a", "extra": arguments}):
        try:
            parsed = made.parse(given_arguments)
        except ToolError as refused:
            parsed = str(refused)
        assert isinstance(parsed, made.arguments) or len(parsed) <= ERROR_MAX_CHARS

"""Who may call which tool: the table of exposures, what a model is offered, and how tools get their names."""

from collections.abc import Mapping
from typing import Any, get_args

import pytest

from callboard.actors.catalogue import BY_MODEL, exposed, specs_of
from callboard.actors.errors import UsageError
from callboard.actors.plugin import Plugin
from callboard.actors.tool import Exposure, Tool, tool
from callboard.plugins.code import CODE, callable_in_code, code_plugin, signature
from callboard.plugins.search import matching
from callboard.runtime.assembly import assemble
from callboard.runtime.config import config_of

EXPOSURES: tuple[Exposure, ...] = get_args(Exposure)

# exposure -> offered to the model, callable in code; both without and with having been found
TABLE = {
    "direct": (True, True, True, True),
    "direct_model_only": (True, False, True, False),
    "code_only": (False, True, False, True),
    "deferred": (False, False, True, True),
    "hidden": (False, False, False, False),
}


def made(name: str, exposure: Exposure = "direct", external: str | None = None) -> Tool:
    """A tool of this name."""
    options = {} if external is None else {"external": external}

    @tool(name=name, exposure=exposure, effect="none", **options)  # type: ignore[call-overload,untyped-decorator]
    async def one(text: str, count: int = 1) -> str:
        """Does one thing.

        And says more of it.
        """
        return text

    return one  # type: ignore[no-any-return]


TOOLS: dict[str, Tool] = {exposure: made(exposure, exposure) for exposure in EXPOSURES}


@pytest.mark.parametrize("exposure", EXPOSURES)
def test_exposure_decides_who_may_call(exposure):
    """Each exposure says whether the model and code may call a tool, before and after it was found."""
    found = (exposure,)
    seen = (
        exposure in exposed(TOOLS, BY_MODEL),
        exposure in callable_in_code(TOOLS),
        exposure in exposed(TOOLS, BY_MODEL, found),
        exposure in callable_in_code(TOOLS, found),
    )
    assert TABLE[exposure] == seen


def test_what_was_found_comes_last_in_the_order_of_finding():
    """Found tools follow the others, so that the beginning of a request stays as it was; unknown names are nothing."""
    tools = {"b": made("b", "deferred"), "a": made("a"), "c": made("c", "deferred")}
    assert ["a", "c", "b"] == [spec.name for spec in specs_of(exposed(tools, BY_MODEL, ("c", "gone", "b")))]


def test_code_lists_what_it_can_call_by_name():
    """The description names each callable tool once, sorted, with its parameters; never code itself."""
    tools = {**TOOLS, "a-b": made("a-b"), "code": made("code")}
    lines = code_plugin().tools[0].describe(tools).splitlines()[-3:]  # type: ignore[misc]
    assert [
        "tools['a-b'](text: str, count: int = ...)  # Does one thing.",
        "tools.code_only(text: str, count: int = ...)  # Does one thing.",
        "tools.direct(text: str, count: int = ...)  # Does one thing.",
    ] == lines


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("update_plan", "plan: list[dict(step: str, status: 'completed' | 'in_progress' | 'pending')]"),
        ("update_plan", "explanation: str | None = ..."),
        ("wait_agent", "targets: list[str] | None = ..."),
    ],
)
def test_signatures_say_types(name, shown):
    """Enumerations, lists, objects and what may be null are written as a programmer reads them."""
    assert shown in signature(assemble(config_of({}), assembled(), (), ()).tools[name])


def assembled() -> tuple[Plugin, ...]:
    """Some of the shipped plugins."""
    from callboard.plugins import AGENTS_PLUGIN, PLAN_PLUGIN

    return (PLAN_PLUGIN, AGENTS_PLUGIN, CODE)


# -- putting a runtime together


def catalogue(table: Mapping[str, Any], *tools: Tool) -> dict[str, Exposure]:
    """The exposures by name in a runtime with this configuration."""
    return {name: one.exposure for name, one in assemble(config_of(table), (), tools, ()).tools.items()}


def test_gates_remove_and_expose():
    """A tool that is not enabled is in no catalogue; an exposure in the configuration beats the tool's own."""
    table = {"tools": {"a": {"enabled": False}, "b": {"exposure": "hidden"}}}
    assert {"b": "hidden", "c": "direct"} == catalogue(table, made("a"), made("b"), made("c"))


def test_search_exists_only_with_something_to_find():
    """`tool_search` is there when any tool is deferred, by itself or by the configuration; nobody else has its name."""
    assert "tool_search" not in catalogue({}, made("a"))
    assert "tool_search" in catalogue({}, made("a", "deferred"))
    assert "tool_search" in catalogue({"tools": {"a": {"exposure": "deferred"}}}, made("a"))
    with pytest.raises(UsageError, match="tool_search finds deferred tools: rename yours"):
        catalogue({}, made("a", "deferred"), made("tool_search"))


def test_names_are_taken_once(caplog):
    """Two tools of ours with one name are a mistake; an external one gives way, whoever came first, and is reported."""
    with pytest.raises(UsageError, match="two tools are named 'a'"):
        catalogue({}, made("a"), made("a"))
    theirs, ours, later = made("a", external="mcp"), made("a"), made("a", external="dynamic")
    found = assemble(config_of({}), (), (theirs, ours, later, made("b", external="mcp"), made("b", external="mcp")), ())
    assert (ours, ["a", "a", "b"]) == (found.tools["a"], [one.name for one in found.skipped])
    assert "the mcp tool 'a' is left out: another tool has its name" in caplog.text


@pytest.mark.parametrize(
    ("query", "limit", "names"),
    [
        ("read file", 5, ["read_file", "write_file"]),
        ("write_file", 5, ["write_file", "read_file"]),
        ("FILE", 1, ["read_file"]),
        ("", 5, ["fetch", "read_file", "write_file"]),
        ("thing", 5, ["fetch", "read_file", "write_file"]),
        ("nothing such", 5, []),
    ],
)
def test_search_ranks_by_words(query, limit, names):
    """Words in a name count more than in a description; equals stand by name; what is not deferred is not found."""
    tools = {name: made(name, "deferred") for name in ("write_file", "read_file", "fetch")} | {"file": made("file")}
    assert names == [one.name for one in matching(tools, query, limit)]

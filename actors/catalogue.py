"""Who may call which tool, and what a model is offered: exposure in one place.

    exposure            offered to the model    inside code
    direct              yes                     yes
    direct_model_only   yes                     no
    code_only           no                      yes
    deferred            once it was found       once it was found
    hidden              no                      no

A plugin's own code may call any of them (`View.call`). A call of what a caller may not call is a call of nothing:
`unsupported call: NAME`.
"""

from collections.abc import Iterable, Mapping

import attrs

from callboard.actors.events import SessionOpened
from callboard.actors.model import ToolSpec
from callboard.actors.tool import Exposure, Tool

BY_MODEL: frozenset[Exposure] = frozenset({"direct", "direct_model_only"})
IN_CODE: frozenset[Exposure] = frozenset({"direct", "code_only"})


def described(tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """The tools, those that describe others with their description made."""
    return {
        name: tool if tool.describe is None else attrs.evolve(tool, description=tool.describe(tools))
        for name, tool in tools.items()
    }


def exposed(tools: Mapping[str, Tool], exposures: Iterable[Exposure], found: Iterable[str] = ()) -> dict[str, Tool]:
    """The tools of these exposures in their order, then the deferred ones that were found, in the order of that."""
    chosen = {name: tool for name, tool in tools.items() if tool.exposure in exposures}
    for name in found:
        tool = tools.get(name)
        if tool is not None and tool.exposure == "deferred":
            chosen[name] = tool
    return chosen


def specs_of(tools: Mapping[str, Tool]) -> tuple[ToolSpec, ...]:
    """As the model sees them."""
    return tuple(tool.spec for tool in tools.values())


def has_tool(opened: SessionOpened, name: str) -> bool:
    """Whether a session has a tool at all: what its parent and its role left it."""
    return name not in opened.withheld and (opened.only is None or name in opened.only)


def permitted(opened: SessionOpened | None, tools: Mapping[str, Tool]) -> Mapping[str, Tool]:
    """The tools that a session may call."""
    if opened is None or not (opened.withheld or opened.only is not None):
        return tools
    return {name: tool for name, tool in tools.items() if has_tool(opened, name)}


def untold(opened: SessionOpened | None, tools: Mapping[str, Tool]) -> frozenset[str]:
    """The names of the tools that the model of a session is not told of: those it has not, or that are for others."""
    if opened is None:
        return frozenset()
    others = "root" if opened.parent is not None else "below"
    return frozenset(n for n, tool in tools.items() if tool.offered == others or not has_tool(opened, n))

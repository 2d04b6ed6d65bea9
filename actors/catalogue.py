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


@attrs.frozen(eq=False)
class Offer:
    """The tools of a runtime at one moment, and what of them a model is offered; a turn keeps the one it began with."""

    tools: Mapping[str, Tool]
    offered: Mapping[str, Tool]  # what the model may call, without what it has to find
    specs: tuple[ToolSpec, ...]
    has_deferred: bool

    @classmethod
    def of(cls, tools: Mapping[str, Tool]) -> "Offer":
        """These tools, those that describe others with their description made."""
        tools = described(tools)
        offered = exposed(tools, BY_MODEL)
        return cls(tools, offered, specs_of(offered), any(tool.exposure == "deferred" for tool in tools.values()))

    def callable_by_model(self, found: tuple[str, ...]) -> Mapping[str, Tool]:
        """What the model may call in a session that found these."""
        return exposed(self.tools, BY_MODEL, found) if found and self.has_deferred else self.offered

    def specs_for(self, found: tuple[str, ...]) -> tuple[ToolSpec, ...]:
        """The same as the model sees it; what was found comes last, so that all before it stays as it was."""
        return specs_of(self.callable_by_model(found)) if found and self.has_deferred else self.specs

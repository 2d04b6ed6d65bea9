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

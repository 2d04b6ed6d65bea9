"""search: finds deferred tools, which a model is offered only once they were found; the tool `tool_search`."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from callboard.actors.books import FOUND
from callboard.actors.facts import ToolsFound
from callboard.actors.plugin import View
from callboard.actors.tool import Tool, tool

DESCRIPTION = """\
Find tools that are not in your list yet. Search by words of what you want to do, or by a tool's name; an empty query \
lists them all. What is found is in your list from your next answer on, and stays there.\
"""
QUERY_FIELD = "Words of a name or of a description; more of them found means further up."
LIMIT_FIELD = "How many tools at most; 5 by default."
LIMIT, LIMIT_MAX = 5, 20  # every tool found stays in each later request
LINE_MAX_CHARS = 200  # of a description in the answer; all of it comes with the tool

NOTHING = "No tool matches {query!r:.100}. There are: {names}."
NAMES_MAX_CHARS = 4_000


class ToolSearch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `tool_search` takes."""

    query: Annotated[str, msgspec.Meta(description=QUERY_FIELD)]
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX, description=LIMIT_FIELD)] = LIMIT


def matching(tools: Mapping[str, Tool], query: str, limit: int) -> list[Tool]:
    """The deferred tools for a query, best first and by name among equals: a word counts thrice in a name."""
    words = query.lower().replace("_", " ").split()
    ranked: list[tuple[int, str]] = []
    for name, one in tools.items():
        if one.exposure == "deferred":
            spoken, text = name.lower().replace("_", " "), one.description.lower()
            ranked.append((-sum(3 * (word in spoken) + (word in text) for word in words), name))
    return [tools[name] for rank, name in sorted(ranked) if rank or not words][:limit]


@tool(runs_on="trio", effect="none", exposure="direct_model_only", description=DESCRIPTION)
def tool_search(arguments: ToolSearch, view: View) -> str:
    """Find deferred tools."""
    tools = view.tools
    found = matching(tools, arguments.query, arguments.limit)
    if not found:
        names = ", ".join(sorted(name for name, one in tools.items() if one.exposure == "deferred"))
        return NOTHING.format(query=arguments.query, names=names[:NAMES_MAX_CHARS])
    fresh = tuple(one.name for one in found if one.name not in view[FOUND])
    if fresh:
        view.append(ToolsFound(fresh))
    return "\n".join(f"{one.name}: {first_line(one)}" for one in found)


def first_line(one: Tool) -> str:
    """What a tool does, in a line."""
    return one.description.strip().partition("\n")[0][:LINE_MAX_CHARS]

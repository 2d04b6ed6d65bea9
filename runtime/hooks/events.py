"""The events a command may be configured for, and the names by which tools are matched."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from callboard.actors.verdict import Moment

MOMENTS: Mapping[str, Moment] = MappingProxyType(
    {
        "PreToolUse": "before_tool",
        "PostToolUse": "after_tool",
        "TurnStart": "on_turn_start",
        "TurnEnd": "on_turn_end",
        "Interrupt": "on_interrupt",
        "Stop": "on_stop",
    }
)
TOOL_EVENTS = ("PreToolUse", "PostToolUse")

# What commands written for other agents call our tools: the first name is what they are told.
KNOWN_AS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "shell": ("Bash", "shell"),
        "read_file": ("read_file", "Read"),
        "write_file": ("write_file", "Write", "apply_patch"),
        "edit_file": ("edit_file", "Edit", "apply_patch"),
        "spawn_agent": ("spawn_agent", "Agent"),
    }
)
NAMES = re.compile(r"[\w-]+(\|[\w-]+)*")


def names_of(tool: str) -> Sequence[str]:
    """The names a tool goes by."""
    return KNOWN_AS.get(tool, (tool,))


def matches(matcher: str | None, tool: str) -> bool:
    """Whether a matcher means this tool: nothing or `*` is all, `Edit|Write` these names, else a regular expression."""
    if matcher in (None, "", "*"):
        return True
    if NAMES.fullmatch(matcher):
        return not set(matcher.split("|")).isdisjoint(names_of(tool))
    pattern = re.compile(matcher)
    return any(pattern.search(name) for name in names_of(tool))

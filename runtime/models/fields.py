"""What stands in decoded JSON that nobody vouches for: nothing in here raises."""

from typing import Any

import msgspec


def field(value: Any, *path: str) -> Any:
    """What is in there, or None."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None  # decoded JSON has no other
    return value


def text_of(value: Any, *path: str) -> str:
    """The text in there, or an empty one."""
    found = field(value, *path)
    return found if isinstance(found, str) else ""


def count_of(value: Any, *path: str) -> int:
    """The count in there, or 0."""
    found = field(value, *path)
    return found if type(found) is int and found > 0 else 0


def is_whole(arguments: Any) -> bool:
    """Whether the arguments of a call are a JSON object from its first brace to its last."""
    if not isinstance(arguments, str):
        return True
    try:
        msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True

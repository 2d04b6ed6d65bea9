"""What plan and todo share: items with their progress, as text that is bounded and can be stored; and checks."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from callboard.actors.errors import UsageError
from callboard.actors.facts import Progress

MORE = "- (and {count} more)"
ITEMS_MAX = 200  # of one list in a note; the log holds all of them
ITEM_MAX_CHARS = 500
CUT = "..."


def listing(items: Iterable[tuple[str, Progress]]) -> str:
    """`- [status] text` for each item, one line each whatever the text holds; at most `ITEMS_MAX` of them."""
    rest = iter(items)
    lines = [f"- [{status}] {_one_line(text)}" for text, status in islice(rest, ITEMS_MAX)]
    more = sum(1 for _ in rest)
    return "\n".join([*lines, MORE.format(count=more)] if more else lines)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= ITEM_MAX_CHARS else line[: ITEM_MAX_CHARS - len(CUT)] + CUT


def check_text(text: str, where: str) -> None:
    """Raise ValueError, naming the place, for text that has no written form: a lone surrogate inside."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{where} holds a lone surrogate {text[error.start]!a}: send valid Unicode text") from None


def check_switch(value: Any, where: str) -> None:
    """`UsageError` for a setting that is neither True nor False: the text "no" would be a yes."""
    if not isinstance(value, bool):
        raise UsageError(f"{where} is True or False, got {value!r:.80}.")

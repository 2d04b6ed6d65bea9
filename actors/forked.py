"""Forked: what a new agent is given of its parent's history, as notes on its own log."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from callboard.actors.events import NoteAdded
from callboard.actors.model import Assistant, Developer, PromptMessage, Result, User

Turns: TypeAlias = int | Literal["all"]

BEGINS = frozenset({"user", "plan", "schedule", "goal"})  # sources of what starts a turn, beside mail between turns


def forked(messages: Sequence[PromptMessage], turns: Turns) -> tuple[NoteAdded, ...]:
    """What is copied of the last `turns` turns: what system, developers and users said, and the final answers.

    Calls and their results, what was said along with calls or cut off, and mail between agents stay behind. A history
    that was compacted begins with its summary, which belongs to its oldest turn.
    """
    first = 0 if turns == "all" else _start(messages, turns)
    return tuple(_notes(messages[first:]))


def _start(messages: Sequence[PromptMessage], turns: int) -> int:
    """Where the last `turns` turns begin."""
    begins = list(_beginnings(messages))
    return begins[-turns] if turns < len(begins) else 0


def _beginnings(messages: Iterable[PromptMessage]) -> Iterator[int]:
    """Where turns begin: at what only a turn takes, and at mail to a session that rested.

    What joined its first step stands around it, so a run of input is one beginning at its first message, unless the
    user speaks in it again.
    """
    run: int | None = None  # where the input began that nothing was answered to yet
    begun = False  # whether that input has started a turn
    resting = True
    for place, message in enumerate(messages):
        if isinstance(message, Developer):
            continue
        if not isinstance(message, User) or message.source == "marker":  # the marker of an abort ends its turn
            run, begun = None, False
            resting = isinstance(message, User) or (isinstance(message, Assistant) and not message.calls)
            continue
        run = place if run is None else run
        if message.source in BEGINS:
            yield place if begun else run
            begun = True
        elif resting and not begun and message.source.startswith("agent:"):
            yield run
            begun = True


def _notes(messages: Iterable[PromptMessage]) -> Iterator[NoteAdded]:
    for message in messages:
        match message:
            case User(text, source) if not source.startswith("agent:"):
                yield NoteAdded(text, "user", source)
            case Developer(text):
                yield NoteAdded(text, "developer")
            case Assistant(text, calls, interrupted) if text and not calls and not interrupted:
                yield NoteAdded(text, "assistant")
            case Result() | User() | Assistant():
                pass

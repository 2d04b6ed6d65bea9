"""What a supervisor says of its children: records of them, how they ended, and a crash as one line."""

from typing import Any, get_args

import attrs

from callboard.actors.childspec import Exit, Restart, Strategy
from callboard.runtime.crossing import Outcome

EXITS: tuple[Exit, ...] = get_args(Exit)


@attrs.frozen
class ChildRecord:
    """One child at one moment; `alive` is False while it waits for its restart. `about` is what its spec's answers."""

    id: str
    kind: str
    restart: Restart
    restarts: int
    alive: bool
    about: Any = None


@attrs.frozen
class SupervisorRecord:
    """A supervisor at one moment: its children in start order, and `left`, those given up that still live."""

    id: str
    strategy: Strategy
    restarts: int
    children: tuple[ChildRecord, ...]
    left: tuple[str, ...]


def exit_of(outcome: Outcome) -> Exit:
    """How a child ended: an `Exit` that it returned, else what its outcome says."""
    if outcome.cancelled:
        return "shutdown"
    if outcome.error is not None:
        return "crashed"
    value = outcome.value
    return next((how for how in EXITS if isinstance(value, str) and how == value), "normal")


def crash_text(error: BaseException) -> str:
    """One line for an error; of a group its leaves, the first three."""
    if not isinstance(error, BaseExceptionGroup):
        return f"{type(error).__name__}: {error}"
    leaves = [crash_text(inner) for inner in error.exceptions[:3]]
    more = len(error.exceptions) - len(leaves)
    return "; ".join((*leaves, f"and {more} more") if more > 0 else leaves)

"""What a supervisor keeps and says of its children: books, records, how they ended, a crash as one line."""

import logging
from typing import Any, Literal, Protocol, get_args

import attrs
import trio

from callboard.actors.childspec import Exit, Restart, Spec, Strategy
from callboard.actors.errors import Expected
from callboard.runtime.crossing import Outcome, Spawned

LOGGER = logging.getLogger("callboard")

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


class Owner(Protocol):
    """The supervisor, as a child's books need it."""

    def backed_off(self, child: "Child") -> None:
        """The wait before a restart is over."""
        ...

    def child_ended(self, child: "Child", outcome: Outcome) -> None:
        """The child itself has ended."""
        ...


@attrs.define(eq=False)
class Child:
    """A child's books: its spec, and what runs for it (the child itself, or the back-off before it)."""

    spec: Spec
    owner: Owner
    phase: Literal["alive", "waiting", "ended"] = "ended"
    running: Spawned | None = None
    asked: bool = False
    restarts: int = 0
    past: tuple[float, ...] = ()  # its own restarts, where each child is counted for itself
    over: trio.Event | None = None

    def ended(self, outcome: Outcome) -> None:
        """What ran has ended; whoever waits for that is told last."""
        waited = self.phase == "waiting"
        self.phase, self.running = "ended", None
        if waited:
            self.owner.backed_off(self)
        else:
            self.owner.child_ended(self, outcome)
        if self.over is not None and trio.lowlevel.in_trio_run():
            self.over.set()

    def record(self) -> ChildRecord:
        """The child at this moment."""
        spec = self.spec
        about = spec.about() if spec.about else None
        return ChildRecord(spec.id, spec.kind, spec.restart, self.restarts, self.phase == "alive", about)


def exit_of(outcome: Outcome) -> Exit:
    """How a child ended: an `Exit` that it returned, else what its outcome says."""
    if outcome.cancelled:
        return "shutdown"
    if outcome.error is not None:
        return "crashed"
    value = outcome.value
    return next((how for how in EXITS if isinstance(value, str) and how == value), "normal")


def log_crash(child: str, supervisor: str, error: BaseException) -> None:
    """Tell of an error that ended a child; one that its work may well end in is a warning, in its own words."""
    if isinstance(error, Expected):
        LOGGER.warning("%s", error)
        return
    LOGGER.error("child %s of %s crashed: %s", child, supervisor, crash_text(error))
    LOGGER.debug("child %s of %s crashed", child, supervisor, exc_info=error)


def crash_text(error: BaseException) -> str:
    """One line for an error; of a group its leaves, the first three."""
    if not isinstance(error, BaseExceptionGroup):
        return f"{type(error).__name__}: {error}"
    leaves = [crash_text(inner) for inner in error.exceptions[:3]]
    more = len(error.exceptions) - len(leaves)
    return "; ".join((*leaves, f"and {more} more") if more > 0 else leaves)

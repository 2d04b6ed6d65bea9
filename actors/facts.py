"""The events of the shipped plugins: plan, plan mode, todo, agents, tool search and reviews."""

from typing import Literal, TypeAlias

from callboard.actors.events import Event, Value

Progress: TypeAlias = Literal["pending", "in_progress", "completed"]
ReviewEnding: TypeAlias = Literal["completed", "interrupted", "failed"]
ChildStatus: TypeAlias = Literal["pending", "running", "interrupted", "completed", "failed", "stopped"]


class PlanStep(Value, frozen=True, forbid_unknown_fields=True, omit_defaults=False):
    """One step of a plan: what is to be done, and how far it is."""

    step: str
    status: Progress


class Todo(Value, frozen=True, forbid_unknown_fields=True, omit_defaults=False):
    """One item of the current turn's work."""

    content: str
    status: Progress


class PlanUpdated(Event, frozen=True):
    """The checklist of a longer job, whole; replaces the last one."""

    explanation: str | None
    plan: tuple[PlanStep, ...]


class PlanModeRequested(Event, frozen=True):
    """A mode was chosen while a turn runs (`active`), or the choice was taken back (None)."""

    active: bool | None
    narrate: bool = True


class PlanModeSet(Event, frozen=True):
    """Plan mode is on or off from here."""

    active: bool


class TodosWritten(Event, frozen=True):
    """The current turn's list, whole; replaces the last one."""

    todos: tuple[Todo, ...]


class ChildSpawned(Event, frozen=True):
    """A subagent was started: its session id, its path in the tree, its task, whether its ends are told as mail."""

    child: str
    path: str
    task: str
    mail: bool = True


class ChildEnded(Event, frozen=True):
    """A turn of a subagent ended: exactly one for each child and turn, never before the end."""

    child: str
    status: ChildStatus
    text: str
    turn: int = 1


class ToolsFound(Event, frozen=True):
    """Deferred tools were found: they are offered from the next step on."""

    names: tuple[str, ...]


class Finding(Value, frozen=True, omit_defaults=False):
    """Something a reviewer found: confidence 0 to 1, priority 0 (at once) to 3, and where it shows."""

    title: str
    body: str
    confidence: float
    priority: int
    file: str
    first_line: int
    last_line: int


class ReviewEnded(Event, frozen=True):
    """A review is over: what `child` found, and what it says of the whole; or in `explanation` why there is nothing."""

    turn: int
    child: str
    ending: ReviewEnding
    findings: tuple[Finding, ...] = ()
    explanation: str = ""


PLUGIN_EVENTS: tuple[type[Event], ...] = (
    PlanUpdated,
    PlanModeRequested,
    PlanModeSet,
    TodosWritten,
    ChildSpawned,
    ChildEnded,
    ToolsFound,
    ReviewEnded,
)

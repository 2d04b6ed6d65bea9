"""The facts of a session: Event, and the core events."""

import re
from typing import Any, ClassVar

import msgspec

from callboard.actors.values import (
    Call,
    CallReceipt,
    Cause,
    Effect,
    Ending,
    Message,
    Outcome,
    Policy,
    Receipt,
    Role,
    ShellEnding,
    StartKind,
    TaskName,
    Thought,
    TurnKind,
    TurnReason,
    Usage,
    Value,
    WithdrawnReason,
)

__all__ = [
    "AbortRequested",
    "Call",
    "CallReceipt",
    "Cause",
    "CellCalled",
    "Compacted",
    "ControlCallEnded",
    "Effect",
    "Ending",
    "Event",
    "HookFailed",
    "HookWarned",
    "Message",
    "MessageEdited",
    "MessageQueued",
    "MessageWithdrawn",
    "MessagesClaimed",
    "ModelChosen",
    "ModelFailed",
    "ModelSaid",
    "NoteAdded",
    "Outcome",
    "Policy",
    "QueueParked",
    "Receipt",
    "Role",
    "SessionForked",
    "SessionOpened",
    "ShellEnded",
    "ShellEnding",
    "ShellStarted",
    "StartKind",
    "StepEnded",
    "StepStarted",
    "TaskName",
    "Thought",
    "ToolCalled",
    "ToolReturned",
    "TurnEnded",
    "TurnKind",
    "TurnReason",
    "TurnStarted",
    "Usage",
    "UserText",
    "Value",
    "VerbAnswered",
    "WithdrawnReason",
    "kind_of",
]


def kind_of(name: str) -> str:
    """`TurnStarted` -> `turn_started`: the tag of an event on the log."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Event(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="type", tag=kind_of):
    """One fact on a session's log; past tense, whole new values, fields only ever added with a default.

    `ignorable = True` on a subclass lets a build that does not know the event read past it.
    """

    ignorable: ClassVar[bool] = False


class SessionOpened(Event, frozen=True):
    """First event of every log: the session's place in its tree, what it was created with, which tools it has not.

    With `only` it has no other tools than these, and none of those `withheld`.
    """

    parent: str | None = None
    root: str = ""
    depth: int = 0
    path: str = "/root"
    policy: Policy = Policy()
    system: str | None = None
    model: str | None = None
    title: str | None = None
    withheld: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None


class ModelChosen(Event, frozen=True):
    """Another model answers from the next turn on: the one of this name, None for the runtime's own."""

    model: str | None


class SessionForked(Event, frozen=True):
    """All before came from `source`, its events up to `at`; what waited or worked there is not this session's."""

    source: str
    at: int


class MessageQueued(Event, frozen=True):
    """Input was accepted and waits for a turn; `given` when the sender chose the id (a repeat is dropped).

    `seq` is the event's own number and `turn` the turn it starts at once, or joins when it was steered: the answer the
    sender got. Without `wake` it starts no turn by itself. `schema` and `task` are as in `Message`.
    """

    id: str
    text: str
    source: str = "user"
    given: bool = False
    seq: int = -1
    turn: int | None = None
    wake: bool = True
    schema: Any = None
    task: TaskName = ""


class MessageWithdrawn(Event, frozen=True):
    """Queued input was taken back before any turn claimed it.

    `reason` is `asked` when somebody took it back. It is `crashes` when the session crashed twice while it was being
    claimed: it was set aside, so that the session goes on.
    """

    id: str
    reason: WithdrawnReason = "asked"


class MessagesClaimed(Event, frozen=True):
    """Queued input left the queue and entered history; `messages` when a hook changed what enters."""

    ids: tuple[str, ...]
    messages: tuple[Message, ...] | None = None


class QueueParked(Event, frozen=True):
    """After an interrupt or an error queued input waits (`parked`) until the user speaks again, or has since."""

    parked: bool


class NoteAdded(Event, frozen=True):
    """A message entered history that nobody queued: the abort marker, a hook's context, a plugin's note."""

    text: str
    role: Role = "developer"
    source: str = "notice"


class TurnStarted(Event, frozen=True):
    """A task began; turns are numbered from 1 and never nest.

    `schema` is that of its final answer, `task` what was asked for where that was no text for the model.
    """

    turn: int
    kind: TurnKind = "regular"
    start: StartKind = "user"
    started_ms: int = 0
    schema: Any = None
    task: TaskName = ""


class TurnRecovered(Event, frozen=True):
    """A turn that a crash left open in `step` (0 before its first) goes on; for the `times`th time in that step.

    What of its calls is open runs again, under the same keys.
    """

    turn: int
    step: int
    times: int = 1


class StepStarted(Event, frozen=True):
    """One model request and its tools began; steps are numbered from 1 inside a turn."""

    turn: int
    step: int


class StepEnded(Event, frozen=True):
    """A step is over; `overhead_s` is its time without model and tools, in seconds."""

    turn: int
    step: int
    overhead_s: float = 0.0


class ModelSaid(Event, frozen=True):
    """What the model answered; `interrupted` marks text that was cut, `seconds` how long the request took."""

    text: str
    calls: tuple[Call, ...] = ()
    interrupted: bool = False
    usage: Usage = Usage()
    seconds: float = 0.0
    provider: str = "scripted"
    truncated: bool = False
    thoughts: tuple[Thought, ...] = ()


class ModelFailed(Event, frozen=True):
    """A model request ended in an error after `seconds`; `retryable` when another attempt may follow."""

    error: str
    retryable: bool = False
    seconds: float = 0.0
    provider: str = "scripted"


class ToolCalled(Event, frozen=True):
    """A call passed hooks and policy; its handler runs next. `arguments` are what the handler gets.

    `cell` is the call whose body made this one; None for what the model asked for.
    """

    call: str
    name: str
    arguments: Any
    effect: Effect = "once"
    cell: str | None = None


class ToolReturned(Event, frozen=True):
    """The one result of a call: its receipt, what the model reads, and how many seconds it took.

    With a `cell` the body of that call reads it, and the model does not.
    """

    call: str
    receipt: Receipt
    outcome: Outcome | None
    text: str
    seconds: float = 0.0
    name: str = ""
    cell: str | None = None


class ControlCallEnded(Event, frozen=True):
    """The one fact of an admitted control-tool call: who, when, how it ended; never an argument or an output."""

    call: str
    cell: str | None
    tool: str
    started_ms: int
    completed_ms: int
    outcome: Outcome


class AbortRequested(Event, frozen=True):
    """Somebody asked for the end of the running turn; the first cause wins."""

    turn: int
    cause: Cause


class TurnEnded(Event, frozen=True):
    """The one end of a turn: why, what was said last, one receipt for each call, and what it used.

    With the cause `budget`, `error` says which one is used up. `tree_usage` is what the session used so far, with all
    below it as far as their ends were told.

    `started_ms` and `ended_ms` are wall milliseconds UTC, `first_token_ms` milliseconds since the start; that,
    `abort_s` (seconds from request to closed books) and `ending` are None where there was none.
    """

    turn: int
    reason: TurnReason
    cause: Cause | None = None
    last_message: str | None = None
    error: str | None = None
    receipts: tuple[CallReceipt, ...] = ()
    usage: Usage = Usage()
    steps: int = 0
    tool_calls: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    first_token_ms: int | None = None
    open_steps: int = 0
    live_children: int = 0
    truncated: bool = False
    kind: TurnKind = "regular"
    abort_s: float | None = None
    ending: Ending | None = None
    tree_usage: Usage = Usage()


class HookFailed(Event, frozen=True):
    """A hook broke; `blocked` when its configuration makes that a refusal."""

    hook: str
    error: str
    blocked: bool = False


class HookWarned(Event, frozen=True):
    """A hook has a warning for whoever reads the session; the model does not see it."""

    hook: str
    text: str


class CellCalled(Event, frozen=True):
    """The body of the call `cell` makes a call of its own, which is owed a result like any other."""

    cell: str
    call: Call


class UserText(Value, frozen=True):
    """A message of the user that a compaction left in history; the oldest one may be cut."""

    text: str
    source: str = "user"


class Compacted(Event, frozen=True):
    """History became what the user said lately (`kept`), then one message: `prefix` and `summary`.

    The rest is about the request that summarised; `dropped` is how many of the oldest messages it had to leave out, and
    `automatic` says that nobody asked for it.
    """

    summary: str
    prefix: str = ""
    kept: tuple[UserText, ...] = ()
    usage: Usage = Usage()
    seconds: float = 0.0
    provider: str = "scripted"
    dropped: int = 0
    automatic: bool = False


class MessageEdited(Event, frozen=True):
    """Queued input reads differently now; it keeps its place."""

    id: str
    text: str


class VerbAnswered(Event, frozen=True):
    """What a verb was answered under the id that its sender chose, where no message on the log says so already."""

    id: str
    verb: str
    answer: Any


class ShellStarted(Event, frozen=True):
    """A command of the user's own (`!`) runs next: in a turn of its own, or beside the turn that runs."""

    id: str
    command: str
    turn: int


class ShellEnded(Event, frozen=True):
    """The end of a command of the user's own; `code` None when it did not exit. What it printed is in history."""

    id: str
    ending: ShellEnding
    code: int | None = None
    seconds: float = 0.0

"""The words and plain values that events are made of."""

from typing import Any, Literal, TypeAlias

import msgspec

Receipt: TypeAlias = Literal[
    "completed", "failed", "rejected", "interrupted", "abandoned", "not_started", "outcome_unknown"
]
Outcome: TypeAlias = Literal["completed", "failed", "rejected", "interrupted"]
Cause: TypeAlias = Literal["interrupted", "replaced", "parent", "budget", "shutdown", "review_ended"]
TurnKind: TypeAlias = Literal["regular", "compact", "review"]
StartKind: TypeAlias = Literal["user", "automatic", "recovery"]
TurnReason: TypeAlias = Literal["completed", "aborted", "blocked", "interrupted"]
Effect: TypeAlias = Literal["none", "idempotent", "once"]
Ending: TypeAlias = Literal["graceful", "cancelled", "abandoned"]
WithdrawnReason: TypeAlias = Literal["asked", "crashes"]
TaskName: TypeAlias = Literal["", "replace", "compact", "review", "shell"]
ShellEnding: TypeAlias = Literal["exited", "timed_out", "interrupted", "failed"]
Role: TypeAlias = Literal["user", "developer", "assistant"]


class Value(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A plain immutable value inside events: no identity, compared whole."""


class Usage(Value, frozen=True):
    """Tokens of model requests, and their price in US dollars where a price is known."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0
    cost_usd: float = 0.0

    @property
    def total(self) -> int:
        """Input and output tokens together."""
        return self.input + self.output

    def plus(self, other: "Usage") -> "Usage":
        """Field by field sum."""
        return Usage(
            self.input + other.input,
            self.cached + other.cached,
            self.output + other.output,
            self.reasoning + other.reasoning,
            self.cost_usd + other.cost_usd,
        )

    def minus(self, other: "Usage") -> "Usage":
        """Field by field difference, never below zero."""
        return Usage(
            max(0, self.input - other.input),
            max(0, self.cached - other.cached),
            max(0, self.output - other.output),
            max(0, self.reasoning - other.reasoning),
            max(0.0, self.cost_usd - other.cost_usd),
        )


NOTHING_USED = Usage()


class Call(Value, frozen=True):
    """One tool call a model asked for.

    `arguments` is the model's JSON text, or the decoded object. An empty `id` is filled in by the turn.
    `kind` is `function` or `custom`. `flaw` says why the arguments could not be taken as they came.
    """

    name: str
    arguments: Any = msgspec.field(default_factory=dict)
    id: str = ""
    kind: str = "function"
    flaw: str = ""


class Message(Value, frozen=True):
    """One input to a session; `source` is user, steer, schedule, goal, agent:PATH, notice, marker or shell.

    `returned` marks what was steered into a turn that was cut off before it took it. `task` names what it starts before
    all other input: a turn with this text (`replace`), or a task of another kind. `schema` is that of the final answer.
    """

    id: str
    text: str
    source: str = "user"
    wake: bool = True
    returned: bool = False
    schema: Any = None
    task: TaskName = ""


class Thought(Value, frozen=True):
    """What a model thought before it answered, as its provider wants it back; other providers are not shown it.

    `provider` says whose it is, `text` is what may be shown of it, `body` the provider's own item. `at` is its place in
    the answer: 0 before the text, n before the n-th call, one more behind the last.
    """

    provider: str
    text: str = ""
    body: Any = None
    at: int = 0


class CallReceipt(Value, frozen=True):
    """What became of one call: `receipt` says how it ended, after `seconds`."""

    call: str
    tool: str
    receipt: Receipt
    seconds: float = 0.0


class Policy(Value, frozen=True):
    """What a session hands down to its children; a child can only be stricter."""

    depth_max: int = 3
    running_max: int = 8
    breadth_max: int = 16
    spawned_max: int = 256

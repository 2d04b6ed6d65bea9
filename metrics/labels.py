"""Closed label sets: a value that is not in the set becomes `other`, so nothing that comes in makes a label value."""

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias, get_args

import attrs

from callboard.actors.events import Cause, Ending, Outcome, Receipt, TurnKind, TurnReason
from callboard.actors.facts import AnswerEnding, ChildStatus, Decision, GoalOperation

OTHER = "other"

# A name given from outside becomes a label value only if it looks like this: no quote, space or control character.
NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@+-]{0,63}")

External: TypeAlias = Callable[[str], str | None]


@attrs.frozen
class Label:
    """A label and the only values it takes, besides `other`; `external` may fold an unknown value into one of them."""

    name: str
    values: frozenset[str]
    external: External | None = None

    def of(self, value: str) -> str:
        """The value itself if it is in the set, else what `external` folds it into, else `other`."""
        if value in self.values:
            return value
        folded = self.external(value) if self.external is not None else None
        return folded if folded is not None and folded in self.values else OTHER


def closed(name: str, values: Iterable[str]) -> Label:
    """A label with a closed set; names that could not stand in an exposition as they are do not get in."""
    return Label(name, frozenset(value for value in values if NAME_PATTERN.fullmatch(value)))


def by_prefix(name: str) -> str | None:
    """How a tool from outside folds when nothing better is known: `mcp__SERVER__TOOL`, `dynamic__TOOL`."""
    kind, separator, _ = name.partition("__")
    return kind if separator else None


def tool_label(known_tools: Iterable[str], external: External) -> Label:
    """The label `tool`: the known names, and `mcp` and `dynamic` for what `external` says so of."""
    return attrs.evolve(closed("tool", (*known_tools, "mcp", "dynamic")), external=external)


CONTROL_TOOLS = (
    *("update_plan", "todo_write", "exit_plan_mode", "request_user_input"),
    *("schedule_create", "schedule_list", "schedule_delete"),
    *("get_goal", "create_goal", "update_goal"),
)
LIMITS = (
    *("depth_max", "running_max", "breadth_max", "spawned_max"),
    *("tokens_max", "cost_usd_max", "seconds_max"),
)  # of a tree of agents
PROVIDERS = ("scripted", "replay", "openai", "anthropic")
RESULTS = ("completed", "truncated", "interrupted", "retryable", "failed")
TOKEN_TYPES = ("input", "cached", "output", "reasoning")  # cached is a part of input, reasoning of output
PHASES = ("starting", "idle", "running", "aborting", "stopping", "stopped", "passivated")

CONTROL_TOOL = closed("tool", CONTROL_TOOLS)
OUTCOME = closed("outcome", get_args(Outcome))
RECEIPT = closed("receipt", get_args(Receipt))
TURN_KIND = closed("kind", get_args(TurnKind))
CRASH = "crash"  # `interrupted` is what the user did
REASON = closed("reason", (*get_args(TurnReason), *get_args(Cause), CRASH))
ENDING = closed("ending", get_args(Ending))
RUNS_ON = closed("runs_on", ("trio", "thread", "asyncio"))
CHILD_OUTCOME = closed("outcome", get_args(ChildStatus))
LIMIT = closed("limit", LIMITS)
DECISION = closed("decision", ("restart", "forget", "give_up", "escalate"))
PROVIDER = closed("provider", PROVIDERS)
RESULT = closed("result", RESULTS)
TOKEN_TYPE = closed("token_type", TOKEN_TYPES)
STORE_ERROR = closed("kind", ("retrying", "failed", "fenced"))
LOOP = closed("loop", ("asyncio", "trio"))
ANSWER = closed("ending", get_args(AnswerEnding))
APPROVAL = closed("decision", get_args(Decision))
REMINDER = closed("result", ("set", "deleted", "fired"))
GOAL_OPERATION = closed("operation", get_args(GoalOperation))
ROUND = closed("result", ("failed", *get_args(TurnReason), *get_args(Cause)))
HOOK_STATUS = closed("status", ("ok", "blocked", "rewrote", "context", "continued", "failed"))
PHASE = closed("phase", PHASES)

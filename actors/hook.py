"""Hook: what a hook is asked, and all that it may answer."""

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import attrs

from callboard.actors.errors import UsageError
from callboard.actors.events import Cause, Message, Outcome, Receipt, StartKind, TurnEnded, TurnKind


@attrs.frozen
class HookTurn:
    """A turn as hooks see it, with the path of the agent whose turn it is.

    `messages` is the input that starts it, told to `on_turn_start` alone; `continued` counts how often a stop hook
    reopened it.
    """

    session: str
    path: str
    turn: int
    kind: TurnKind = "regular"
    start: StartKind = "user"
    folder: str = "."
    model: str | None = None
    plan_mode: bool = False
    messages: tuple[Message, ...] = ()
    continued: int = 0


@attrs.frozen
class ToolCall:
    """A call as hooks see it, with the path of the agent that makes it; `during` is its turn."""

    session: str
    path: str
    turn: int
    call: str
    name: str
    arguments: Any
    cell: str | None = None
    during: HookTurn | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen
class ToolResult:
    """What a handler came to, as hooks see it."""

    outcome: Outcome
    receipt: Receipt
    text: str


@attrs.frozen
class Allow:
    """Go on; the same as None."""


@attrs.frozen
class Skip:
    """The hook has nothing to do with this: go on, and count no run of it."""


@attrs.frozen
class Block:
    """A hook's refusal.

    Before a turn it ends the turn, before a tool it keeps the handler from running, after it it replaces what the model
    reads.
    """

    reason: str


@attrs.frozen
class Rewrite:
    """A `before_tool` answer: go on with these arguments instead of all the old ones."""

    arguments: Any


@attrs.frozen
class AddContext:
    """An answer at a turn's start or around a tool: the model reads this too."""

    text: str


@attrs.frozen
class Continue:
    """An `on_stop` answer: the turn is not over, the model reads this and goes on."""

    text: str


@attrs.frozen
class Warn:
    """An answer of any hook: a warning to whoever reads the session; the model does not see it."""

    text: str


Answer: TypeAlias = Allow | Skip | Block | Rewrite | AddContext | Continue | Warn | None
BeforeTool: TypeAlias = Callable[[ToolCall], Any]
AfterTool: TypeAlias = Callable[[ToolCall, ToolResult], Any]
OnTurnStart: TypeAlias = Callable[[HookTurn], Any]
OnTurnEnd: TypeAlias = Callable[[HookTurn, TurnEnded], Any]
OnInterrupt: TypeAlias = Callable[[HookTurn, Cause], Any]
OnStop: TypeAlias = Callable[[HookTurn, str | None], Any]


@attrs.frozen
class Hook:
    """Callables around the turns and tool calls of the whole agent tree; plain or async (Trio).

    `on_turn_start(turn) -> AddContext | Block | None` before the first step: a block ends the turn as `blocked`.
    `before_tool(call) -> Block | Rewrite | AddContext | None`; `after_tool(call, result) -> AddContext | Block | None`,
    only after success. `on_stop(turn, last_message) -> Continue | None` before a turn ends completed; so often at most
    as `hooks.STOPS_MAX` says. `on_turn_end(turn, ended)` and `on_interrupt(turn, cause)` are told, beside whatever
    comes next; the second has the abort window's time and no more. Allow is the same as None, Warn may come from all of
    them, and a tuple is several answers at once.

    A hook that raises, answers something else, or takes over `timeout_s` seconds fails: `on_failure` "open" goes on
    without it, "block" refuses what could be refused.
    """

    name: str
    before_tool: BeforeTool | None = None
    after_tool: AfterTool | None = None
    on_failure: Literal["open", "block"] = "open"
    timeout_s: float = 60.0
    on_turn_start: OnTurnStart | None = None
    on_turn_end: OnTurnEnd | None = None
    on_interrupt: OnInterrupt | None = None
    on_stop: OnStop | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse what would be found out only when the hook fails."""
        check_name("hook", self.name)
        if self.on_failure not in ("open", "block"):
            raise UsageError(f"hook {self.name}: on_failure must be open or block, got {self.on_failure!r}.")
        if not self.timeout_s > 0:
            raise UsageError(f"hook {self.name}: timeout_s must be above 0, got {self.timeout_s!r}.")


@attrs.frozen
class Slots:
    """The hooks of a runtime by the moment they take part in, each in order."""

    before_tool: tuple[Hook, ...] = ()
    after_tool: tuple[Hook, ...] = ()
    on_turn_start: tuple[Hook, ...] = ()
    on_turn_end: tuple[Hook, ...] = ()
    on_interrupt: tuple[Hook, ...] = ()
    on_stop: tuple[Hook, ...] = ()

    @classmethod
    def of(cls, hooks: Iterable[Hook]) -> "Slots":
        """Sort them."""
        given = tuple(hooks)
        names = (field.name for field in attrs.fields(cls))
        return cls(**{name: tuple(one for one in given if getattr(one, name) is not None) for name in names})


def check_name(what: str, name: object) -> None:
    """Refuse a name that cannot be quoted."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise UsageError(f"a {what} has a name of printable characters, got {name!r:.80}.")

"""All that a plugin author imports: Plugin, tool, View, Hook and what hooks answer, Alarm."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import attrs

from callboard.actors.errors import UsageError
from callboard.actors.events import Call, Event, Message, Outcome, Receipt
from callboard.actors.fold import Projection
from callboard.actors.tool import Tool

S = TypeVar("S")


class Interrupted(Protocol):
    """Whether the running turn is being aborted: true, `is_set()`, or `await wait()` (on Trio)."""

    def __bool__(self) -> bool: ...
    def is_set(self) -> bool:
        """True once the interrupt came."""
        ...

    async def wait(self) -> None:
        """(Trio) Return once the interrupt came."""
        ...


class Closable(Protocol):
    """Anything with a `close()` that does not wait."""

    def close(self) -> None:
        """Let go; harmless when repeated."""
        ...


class View(Protocol):
    """What a plugin sees and may do; lent for one call or one hook, after which every method raises `CallOver`."""

    @property
    def session(self) -> str:
        """The session's id."""
        ...

    @property
    def path(self) -> str:
        """The session's place in its tree: /root, /root/a ..."""
        ...

    @property
    def depth(self) -> int:
        """0 for a root session."""
        ...

    @property
    def turn(self) -> int:
        """The running turn's number, 0 between turns before the first."""
        ...

    @property
    def call(self) -> str:
        """The call's id; empty in a hook."""
        ...

    @property
    def key(self) -> str:
        """SESSION/TURN/CALL: the same key again when an idempotent call is repeated after a crash."""
        ...

    @property
    def folder(self) -> str:
        """The session's working directory."""
        ...

    @property
    def window_s(self) -> float:
        """Seconds between an interrupt and the end of its abort window."""
        ...

    @property
    def interrupted(self) -> Interrupted:
        """Whether the turn is being aborted."""
        ...

    def __getitem__(self, projection: Projection[S]) -> S: ...

    def append(self, *events: Event) -> None:
        """Put events of a plugin on the log, in one write; core events are a `UsageError`."""
        ...

    def now_ms(self) -> int:
        """Wall time in milliseconds UTC."""
        ...

    def output(self, text: str) -> None:
        """Show a piece of output to subscribers while the tool runs; it is not kept."""
        ...

    async def spawn(
        self, name: str, task: str, *, role: str | None = None, model: str | None = None, notify: bool = True
    ) -> str:
        """Start a subagent and return its path; a `ToolError` names the limit that refused it.

        `notify` False queues the news of its end for the next turn instead of waking an idle session.
        """
        ...

    async def until(self, met: Callable[[], bool]) -> None:
        """Return once `met()` is true; it is asked again after every append to this session's log."""
        ...

    @property
    def steered(self) -> bool:
        """Whether input arrived for the running turn that no step has claimed yet."""
        ...

    @property
    def fresh(self) -> bool:
        """True at the first step after the session was opened from its store, forked or compacted."""
        ...

    @property
    def belongings(self) -> MutableMapping[str, Closable]:
        """Things that live as long as the session; it closes each at its end."""
        ...

    def start_soon(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """(Trio) Run `fn` beside the session until it returns or the session ends; its errors are logged."""
        ...


@attrs.frozen
class Partial:
    """What a graceful tool returns when it was interrupted: the exact text for the model."""

    text: str


@attrs.frozen
class Failed:
    """A result that says the tool failed; the model reads the text, the outcome is `failed`."""

    text: str


@attrs.frozen
class Enter:
    """A `before_step` answer: the step goes on with these messages."""

    messages: tuple[Message, ...]


@attrs.frozen
class Reject:
    """A `before_step` answer: no step, the turn ends as blocked."""

    reason: str


BeforeStep: TypeAlias = Callable[[View, tuple[Message, ...]], Awaitable[Enter | Reject]]


@attrs.frozen
class ToolCall:
    """A call as hooks see it, with the path of the agent that makes it."""

    session: str
    path: str
    turn: int
    call: str
    name: str
    arguments: Any
    cell: str | None = None


@attrs.frozen
class ToolResult:
    """What a handler came to, as hooks see it."""

    outcome: Outcome
    receipt: Receipt
    text: str


@attrs.frozen
class Allow:
    """A `before_tool` answer: go on."""


@attrs.frozen
class Block:
    """A hook's refusal; before a tool it keeps the handler from running, after it it replaces what the model reads."""

    reason: str


@attrs.frozen
class Rewrite:
    """A `before_tool` answer: go on with these arguments instead of all the old ones."""

    arguments: Any


@attrs.frozen
class AddContext:
    """An `after_tool` answer: the model reads this too."""

    text: str


BeforeTool: TypeAlias = Callable[[ToolCall], Any]
AfterTool: TypeAlias = Callable[[ToolCall, ToolResult], Any]


@attrs.frozen
class Hook:
    """Callables around every tool call of the whole agent tree; plain or async (Trio).

    `before_tool(call) -> Allow | Block | Rewrite | None`; `after_tool(call, result) -> AddContext | Block | None`, only
    after success. A hook that raises, answers something else, or takes over `timeout_s` seconds fails: `on_failure`
    "open" lets the call go on, "block" refuses it.
    """

    name: str
    before_tool: BeforeTool | None = None
    after_tool: AfterTool | None = None
    on_failure: Literal["open", "block"] = "open"
    timeout_s: float = 60.0

    def __attrs_post_init__(self) -> None:
        """Refuse what would be found out only when the hook fails."""
        _check_name("hook", self.name)
        if self.on_failure not in ("open", "block"):
            raise UsageError(f"hook {self.name}: on_failure must be open or block, got {self.on_failure!r}.")
        if not self.timeout_s > 0:
            raise UsageError(f"hook {self.name}: timeout_s must be above 0, got {self.timeout_s!r}.")


@attrs.frozen
class Alarm:
    """Something of a plugin's that comes due.

    `next_ms(state) -> wall milliseconds or None` and `fire(view) -> messages to queue and events, in one write`.
    """

    projection: Projection[Any]
    next_ms: Callable[[Any], int | None]
    fire: Callable[[View], Sequence[Event]]


@attrs.frozen
class Plugin:
    """A value with optional slots; it keeps nothing between calls and asks neither time nor disk.

    `before_step` hooks run in plugin order before each step. `on_idle(view)` may return a Message that starts an
    automatic turn. `prompt_section(view)` gives text of the system prompt. `open_steps(view)` counts work left at a
    turn's end. `holds(view)` keeps a resting session in memory while it is true. `state(projection value)` renders each
    projection for `state()`, by its key.
    """

    name: str
    events: tuple[type[Event], ...] = ()
    projections: tuple[Projection[Any], ...] = ()
    tools: tuple[Tool, ...] = ()
    before_step: BeforeStep | None = None
    on_idle: Callable[[View], Message | None] | None = None
    alarms: tuple[Alarm, ...] = ()
    prompt_section: Callable[[View], str | None] | None = None
    open_steps: Callable[[View], int] | None = None
    holds: Callable[[View], bool] | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse a name that cannot be quoted, and a hook that could not be awaited."""
        _check_name("plugin", self.name)
        if inspect.isfunction(self.before_step) and not inspect.iscoroutinefunction(self.before_step):
            raise UsageError(f"plugin {self.name}: before_step must be an async def.")


def _check_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise UsageError(f"a {what} has a name of printable characters, got {name!r:.80}.")


def check_plugins(plugins: Sequence[Plugin]) -> Mapping[str, Plugin]:
    """The plugins by name; a name used twice, or something that is no Plugin, is a `UsageError`."""
    by_name: dict[str, Plugin] = {}
    for plugin in plugins:
        if not isinstance(plugin, Plugin):
            raise UsageError(f"plugins must be Plugin values, got {plugin!r}.")
        if by_name.setdefault(plugin.name, plugin) is not plugin:
            raise UsageError(f"two plugins are named {plugin.name!r}: rename or remove one.")
    return by_name


__all__ = [
    "AddContext",
    "Alarm",
    "Allow",
    "Block",
    "Call",
    "Enter",
    "Failed",
    "Hook",
    "Message",
    "Partial",
    "Plugin",
    "Reject",
    "Rewrite",
    "ToolCall",
    "ToolResult",
    "View",
]

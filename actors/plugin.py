"""All that a plugin author imports: Plugin, tool, View, Hook and what hooks answer, Alarm."""

import inspect
from collections.abc import Awaitable, Callable, Container, Mapping, MutableMapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import attrs

from callboard.actors.errors import UsageError
from callboard.actors.events import Call, Event, Message
from callboard.actors.facts import ApprovalAsked, ApprovalDecided, Option, QuestionAnswered, QuestionAsked
from callboard.actors.fold import Projection
from callboard.actors.forked import Turns
from callboard.actors.hook import (
    AddContext,
    Allow,
    Block,
    Continue,
    Hook,
    HookTurn,
    Rewrite,
    ToolCall,
    ToolResult,
    Warn,
    check_name,
)
from callboard.actors.lent import Agents, Closable, Interrupted, Query
from callboard.actors.messages import Answer, Refused
from callboard.actors.tool import Tool

S = TypeVar("S")


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

    async def flush(self) -> None:
        """(Trio) Return once all that is on the log is durable; `LogError` when the store refuses."""
        ...

    async def commit(self, *events: Event) -> None:
        """(Trio) As `append`, but at once also in a control tool, and on the disk on return.

        `LogError` when the store refuses: then it is not known whether the events are kept.
        """
        ...

    def lineage(self, projection: Projection[S]) -> tuple[S, ...]:
        """This session's value of a fold, then its parent's, up to the root's."""
        ...

    @property
    def planning(self) -> bool:
        """Whether this session or one above it is in Plan mode, by its log."""
        ...

    async def ask_user(
        self,
        question: str,
        options: Sequence[Option],
        *,
        by: str,
        id: str = "",
        header: str = "",
        detail: str = "",
    ) -> QuestionAnswered:
        """(Trio) Put a question to the user and wait for the answer, however long that takes.

        `by` is the name of the plugin that asks: its `answered` hears of the answer, also after a restart. `id` tells
        several questions of one call apart. It is durable before anybody can answer it; an interrupt cancels it.
        """
        ...

    async def ask_users(self, queries: Sequence[Query], *, by: str) -> tuple[QuestionAnswered, ...]:
        """(Trio) As `ask_user` for several at once: one write, side by side; the answers in the order asked."""
        ...

    async def ask_approval(self, call: ToolCall) -> ApprovalDecided:
        """(Trio) Ask the user whether a call may run, and wait; `unavailable` at once when nobody could answer."""
        ...

    def hand_over(self, plan: str, text: str) -> None:
        """Have another session opened, whose first message is `text`; the same `plan` (an id) opens it once.

        It is at the root of a tree of its own, with this session's instructions and model. Once it exists this session
        has a PlanHandedOver on its log.
        """
        ...

    def now_ms(self) -> int:
        """Wall time in milliseconds UTC."""
        ...

    def output(self, text: str) -> None:
        """Show a piece of output to subscribers while the tool runs; it is not kept."""
        ...

    async def spawn(
        self,
        name: str,
        task: str,
        *,
        role: str | None = None,
        model: str | None = None,
        notify: bool = True,
        turns: Turns = 0,
        awaited: bool = False,
        detached: bool = False,
    ) -> str:
        """Start a subagent and return its path; a `ToolError` names the limit that refused it.

        `notify` False queues the news of its end for the next turn instead of waking an idle session; `awaited`: this
        call waits for its first turn, and answers with it. It knows the last `turns` of this session's history. A
        `detached` one works on when this session is interrupted.
        """
        ...

    @property
    def agents(self) -> Agents:
        """The agents of this session's tree."""
        ...

    async def mail(self, to: str, text: str, *, trigger: bool = True, id: str | None = None) -> None:
        """Send mail to another agent of the tree, by path or session id; it is on the receiver's disk on return.

        With `trigger` it starts a turn if the receiver is idle; under the same `id` (`key`, say) it is taken once. A
        `ToolError` says why it was not taken; `MailboxFull` and `SessionClosed` come at once.
        """
        ...

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Every tool of the runtime by its name, whoever may call it (see `catalogue`)."""
        ...

    async def use_tool(self, name: str, arguments: Any, *, allowed: Container[str] | None = None) -> ToolResult:
        """(Trio) Call another tool from the body of this call: gate, hooks, log and result are those of any call.

        It may call every tool, or those in `allowed`; any other answers as failed, `unsupported call: NAME`. Arguments
        are JSON text or what it says. The model does not see the call. Raises `CallOver` once the turn is being
        aborted, `FatalToolError` when the tool did, and `ToolError` from inside such a call: they do not nest further.
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
class Concluded:
    """What a tool returns when the turn has nothing more to do: its calls are run, and the model is not asked again."""

    value: Any


@attrs.frozen
class Did:
    """What a command did: the events it puts on the log (messages among them), and the answer to whoever used it.

    `answer` a text is told to people; None answers `Accepted`.
    """

    events: tuple[Event, ...] = ()
    answer: Answer | str | None = None


class TextFilter(Protocol):
    """Reads the text of one model request, and takes out of it what is no text for the user."""

    def feed(self, piece: str) -> Sequence[tuple[str, str]]:
        """Parts to show now, as (`text` or `plan`, the piece); what may still become something else is held back."""
        ...

    def end(self) -> Sequence[tuple[str, str]]:
        """What was held back."""
        ...

    def read(self, text: str) -> tuple[str, Sequence[Event]]:
        """Of the whole text of the answer: what is said to the user, and what it brings on the log before that."""
        ...

    def cut(self, text: str) -> str:
        """Of a text that was cut off: what is said to the user; nothing comes on the log."""
        ...


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
class Alarm:
    """Something of a plugin's that comes due.

    `next_ms(state) -> wall milliseconds or None` and `fire(view) -> messages to queue and events, in one write`.
    """

    projection: Projection[Any]
    next_ms: Callable[[Any], int | None]
    fire: Callable[[View], Sequence[Event]]


RunCommand: TypeAlias = Callable[[View, Any], Did | Refused]
Guard: TypeAlias = Callable[[View, ToolCall, Tool], Awaitable[str | None]]
Answered: TypeAlias = Callable[[View, QuestionAsked, QuestionAnswered], Sequence[Event]]
Approved: TypeAlias = Callable[[View, ApprovalAsked, ApprovalDecided], Sequence[Event]]


@attrs.frozen
class Command:
    """What people type as `/NAME ...`; `run(view, rest)` decides at once, whatever the session does just then.

    It appends nothing itself: what it answers goes on the log in one write. `hint` is shown in help; a `hidden` one is
    for programs.
    """

    name: str
    run: RunCommand
    hint: str = ""
    hidden: bool = False


@attrs.frozen
class Plugin:
    """A value with optional slots; it keeps nothing between calls and asks neither time nor disk.

    `before_step` hooks run in plugin order before each step. `on_idle(view)` may return a Message that starts an
    automatic turn. `prompt_section(view)` gives text of the system prompt. `open_steps(view)` counts work left at a
    turn's end. `holds(view)` keeps a resting session in memory while it is true. `hooks` are asked before those given
    to the runtime. `commands` are what people type as `/NAME`. `guard(view, call, tool)` says why a call may not run
    (None: it may), after all hooks and before it begins; what it says is the call's `rejected` result.
    `answered(view, question, answer)` gives what an answer to a question of this plugin brings, on the log in one write
    with it; `approved(view, request, decision)` the same for every approval. `reads(view)` may give a filter for the
    text of a model request. `effort(view)` is how hard a model that can choose should think, None where the plugin has
    no wish.
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
    hooks: tuple[Hook, ...] = ()
    commands: tuple[Command, ...] = ()
    guard: Guard | None = None
    answered: Answered | None = None
    approved: Approved | None = None
    reads: Callable[[View], TextFilter | None] | None = None
    effort: Callable[[View], str | None] | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse a name that cannot be quoted, and a hook that could not be awaited."""
        check_name("plugin", self.name)
        if inspect.isfunction(self.before_step) and not inspect.iscoroutinefunction(self.before_step):
            raise UsageError(f"plugin {self.name}: before_step must be an async def.")


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
    "Closable",
    "Command",
    "Concluded",
    "Continue",
    "Did",
    "Enter",
    "Failed",
    "Hook",
    "HookTurn",
    "Interrupted",
    "Message",
    "Option",
    "Partial",
    "Plugin",
    "Query",
    "Reject",
    "Rewrite",
    "ToolCall",
    "ToolResult",
    "View",
    "Warn",
]

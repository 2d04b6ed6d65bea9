"""Settings: what the tables of a configuration may hold, one class for each, with its bounds."""

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import attrs

from callboard.actors.abort import ABORT_WINDOW_S
from callboard.actors.facts import ApprovalPolicy, Execution
from callboard.actors.recovery import Recover
from callboard.actors.tool import NAME_PATTERN, Exposure
from callboard.plugins.code import CPU_SECONDS_MAX, FILE_BYTES_MAX, MEMORY_BYTES_MAX, PRINT_BYTES_MAX, SECONDS_MAX
from callboard.plugins.goals import ROUNDS_MAX, ROUNDS_USUAL_MAX

NOTHING: Mapping[str, Any] = MappingProxyType({})
IDLE_EVICT_S_MIN = 0.01
OURS = frozenset({"model", "stream", "messages", "input", "system", "instructions", "tools"})
ROLE_NAME = re.compile(r"[a-z0-9_-]{1,64}")
SERVER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


def _at_least(low: float) -> Any:
    def check(instance: object, attribute: "attrs.Attribute[Any]", value: Any) -> None:
        if value is not None and not low <= value < math.inf:
            raise ValueError(f"{attribute.name} must be at least {low:g}, got {value}")

    return check


def _between(low: float, high: float) -> Any:
    def check(instance: object, attribute: "attrs.Attribute[Any]", value: Any) -> None:
        if not low <= value <= high:
            raise ValueError(f"{attribute.name} must be {low:g} to {high:g}, got {value}")

    return check


def _seconds_or_never(instance: object, attribute: "attrs.Attribute[Any]", value: float | None) -> None:
    if value is not None and not value >= IDLE_EVICT_S_MIN:
        raise ValueError(f"{attribute.name} must be at least {IDLE_EVICT_S_MIN:g}, or inf for never, got {value}")


def _says_something(instance: object, attribute: "attrs.Attribute[Any]", value: str | None) -> None:
    if value is not None and not value.strip():
        raise ValueError(f"{attribute.name} must say something, or be left out, got {value!r:.80}")


def _not_ours(instance: object, attribute: "attrs.Attribute[Any]", value: Mapping[str, Any]) -> None:
    for name in sorted(OURS & value.keys()):
        raise ValueError(f"{attribute.name} takes what requests do not have already, and they have {name}")


def _port(instance: object, attribute: "attrs.Attribute[Any]", value: int) -> None:
    if not 0 <= value <= 65535:
        raise ValueError(f"{attribute.name} must be 0 to 65535, got {value}")


@attrs.frozen(kw_only=True)
class Bounds:
    """[runtime]: the bounds of sessions; seconds. `idle_evict_s` None or inf: no session ever leaves memory.

    `gc_policy` is about the whole process: "manage" keeps full garbage collections out of the way of interrupts,
    "leave" changes nothing. The command line manages unless it is told to leave, an embedded runtime leaves.
    `recover`: what becomes of a turn that a crash left open, once its session is opened: "close" ends it, "continue"
    goes on under its number, with calls that were cut off run again under their keys, unless their effect is "once".
    `tree_socket`: whether `callboard tree` can look at this program; the command line lets it, an embedded runtime not.
    """

    abort_window_s: float = attrs.field(default=ABORT_WINDOW_S, validator=_at_least(0.001))
    mailbox_max: int = attrs.field(default=1024, validator=_at_least(1))
    steps_max: int = attrs.field(default=200, validator=_at_least(1))
    turn_seconds_max: float | None = attrs.field(default=None, validator=_at_least(0.001))
    idle_evict_s: float | None = attrs.field(default=300.0, validator=_seconds_or_never)
    shutdown_s: float = attrs.field(default=10.0, validator=_at_least(0.0))
    flush_stall_s: float = attrs.field(default=5.0, validator=_at_least(0.001))
    threads_max: int = attrs.field(default=64, validator=_at_least(1))
    threads_abandoned_max: int = attrs.field(default=32, validator=_at_least(1))
    keep_partial_text: bool = True
    recover: Recover = "close"
    gc_policy: Literal["manage", "leave"] | None = None
    tree_socket: bool | None = None


@attrs.frozen(kw_only=True)
class ModelConfig:
    """[model]: which model answers, `scripted:demo` or `replay:FILE`, and what it is given.

    `context_window` (tokens) and `idle_timeout_s` take the place of what the model says of itself. History is compacted
    at 90 % of the window, or at `compact_tokens_max` when that is less. A request is made at most `retries_max` times
    more. `base_url`, `api` and `api_key_env` (the variable that holds the key) are for models of the provider that
    `name` names; `output_tokens_max` bounds one answer; `extra_body` goes into each of their requests as it is.
    """

    name: str | None = None
    base_url: str | None = attrs.field(default=None, validator=_says_something)
    api: Literal["responses", "chat"] | None = None
    api_key_env: str | None = attrs.field(default=None, validator=_says_something)
    output_tokens_max: int | None = attrs.field(default=None, validator=_at_least(1))
    extra_body: Mapping[str, Any] = attrs.field(factory=dict, validator=_not_ours)
    context_window: int | None = attrs.field(default=None, validator=_at_least(1))
    compact_tokens_max: int | None = attrs.field(default=None, validator=_at_least(1))
    idle_timeout_s: float | None = attrs.field(default=None, validator=_at_least(0.001))
    retries_max: int = attrs.field(default=2, validator=_at_least(0))


@attrs.frozen(kw_only=True)
class Budget:
    """[budget]: what a session may use, in tokens and in US dollars; what is used up aborts its turn.

    The session stays, and goes on where it is opened with more. Dollars need a provider that tells them, or `[prices]`.
    """

    tokens_max: int | None = attrs.field(default=None, validator=_at_least(0))
    cost_usd_max: float | None = attrs.field(default=None, validator=_at_least(0.0))


@attrs.frozen(kw_only=True)
class PriceConfig:
    """[prices."provider:model"]: US dollars for a million tokens, used where the provider tells no price.

    `cached` input costs as much as `input`, and `reasoning` as much as `output`, unless it is given. A table named by
    the provider alone is for its models that have none.
    """

    input: float = attrs.field(default=0.0, validator=_at_least(0.0))
    cached: float | None = attrs.field(default=None, validator=_at_least(0.0))
    output: float = attrs.field(default=0.0, validator=_at_least(0.0))
    reasoning: float | None = attrs.field(default=None, validator=_at_least(0.0))


@attrs.frozen(kw_only=True)
class StoreConfig:
    """[store]: where the logs are; a record is durable on the disk (`full`), or in its cache (`normal`)."""

    url: str | None = None
    durability: Literal["full", "normal"] = "full"


def _role_tools(instance: object, attribute: "attrs.Attribute[Any]", value: tuple[str, ...] | None) -> None:
    for name in value or ():
        if not NAME_PATTERN.fullmatch(name):
            raise ValueError(f"tools must be names of tools, got {name!r:.80}")


@attrs.frozen(kw_only=True)
class RoleConfig:
    """[agents.roles.NAME]: what an agent of this role is told, which model it has, and which of its parent's tools.

    Its instructions follow those of its parent; without `tools` it has all that its parent has.
    """

    instructions: str | None = attrs.field(default=None, validator=_says_something)
    model: str | None = attrs.field(default=None, validator=_says_something)
    tools: tuple[str, ...] | None = attrs.field(default=None, validator=_role_tools)


def _role_names(instance: object, attribute: "attrs.Attribute[Any]", value: Mapping[str, Any]) -> None:
    for name in value:
        if not ROLE_NAME.fullmatch(name):
            raise ValueError(f"a role is named with 1 to 64 of a-z, 0-9, _ and -, got {name!r:.80}")


@attrs.frozen(kw_only=True)
class Agents:
    """[agents]: limits of a tree of agents, what an interrupt says in their history, which model reviews, the roles.

    `tokens_max`, `cost_usd_max` and `seconds_max` are of a root session and all agents below it together, over their
    whole life; the last tenth of each is the root's alone. Seconds are the lengths of all turns, added up. An interrupt
    goes down the tree with `cascade`; agents that are started detached, or all with `detach`, work on.
    """

    depth_max: int = attrs.field(default=3, validator=_at_least(0))
    running_max: int = attrs.field(default=8, validator=_at_least(0))
    breadth_max: int = attrs.field(default=16, validator=_at_least(0))
    spawned_max: int = attrs.field(default=256, validator=_at_least(0))
    tokens_max: int | None = attrs.field(default=None, validator=_at_least(0))
    cost_usd_max: float | None = attrs.field(default=None, validator=_at_least(0.0))
    seconds_max: float | None = attrs.field(default=None, validator=_at_least(0.001))
    cascade: bool = True
    notify: Literal["wake", "queue"] = "wake"
    interrupt_message: bool = True
    marker_role: Literal["user", "developer"] = "user"
    review_model: str | None = None
    detach: bool = False
    roles: Mapping[str, RoleConfig] = attrs.field(default=NOTHING, validator=_role_names)


@attrs.frozen(kw_only=True)
class Supervision:
    """[supervisor]: at most `restarts_max` restarts within `period_s` seconds, then it gives up."""

    restarts_max: int = attrs.field(default=3, validator=_at_least(0))
    period_s: float = attrs.field(default=5.0, validator=_at_least(0.001))


@attrs.frozen(kw_only=True)
class ToolConfig:
    """[tools.NAME]: whether a tool exists at all, and who sees it (None: as the tool declares)."""

    enabled: bool = True
    exposure: Exposure | None = None


def _matcher(instance: object, attribute: "attrs.Attribute[Any]", value: str | None) -> None:
    try:
        re.compile(value or "")
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"matcher {value!r:.80} is no regular expression: {error}") from None


def _command(instance: object, attribute: "attrs.Attribute[Any]", value: str) -> None:
    if not value.strip() or "\0" in value:
        raise ValueError(f"command must be a command line, got {value!r:.80}")


def _web_address(like: str) -> Any:
    def check(instance: object, attribute: "attrs.Attribute[Any]", value: str | None) -> None:
        if value is None:
            return
        try:
            parts = urlsplit(value)
            fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            fits = False
        if not fits or "@" in value or not value.isascii() or not value.isprintable() or " " in value:
            raise ValueError(f"{attribute.name} must be like {like}, without a user: secrets come with headers")

    return check


def _variables(instance: object, attribute: "attrs.Attribute[Any]", value: Mapping[str, str]) -> None:
    for name, text in value.items():
        if not name or "=" in name or "\0" in name + text:
            raise ValueError(f"env maps names of variables to texts without NUL, got {name!r:.80}")


@attrs.frozen(kw_only=True)
class McpConfig:
    """[mcp.NAME]: a server of tools: a `command` (split into words, no shell runs it) with `args`, or a `url`.

    In `env` and `headers` `$NAME` stands for a variable of this program, or for the text of the file that NAME_FILE
    names. `trust`: what the server says of its tools is believed (that one only reads, that one may be repeated); else
    each of them counts as one that changes something. `parallel`: its tools may run side by side. A runtime that starts
    waits `wait_s` for its first list of tools; one that comes later counts from the next turn.
    """

    command: str | None = attrs.field(default=None, validator=_says_something)
    args: tuple[str, ...] = ()
    url: str | None = attrs.field(default=None, validator=_web_address("https://host/mcp"))
    env: Mapping[str, str] = attrs.field(default=NOTHING, validator=_variables)
    headers: Mapping[str, str] = NOTHING
    cwd: str | None = attrs.field(default=None, validator=_says_something)
    trust: bool = False
    parallel: bool = False
    exposure: Exposure = "direct"
    timeout_s: float | None = attrs.field(default=300.0, validator=_at_least(0.001))
    connect_s: float = attrs.field(default=30.0, validator=_at_least(0.001))
    wait_s: float = attrs.field(default=10.0, validator=_at_least(0.0))
    enabled: bool = True


def mcp_servers(instance: object, attribute: "attrs.Attribute[Any]", value: Mapping[str, McpConfig]) -> None:
    """Each has a name that fits into those of its tools, and one way to be reached."""
    for name, one in value.items():
        if not SERVER_NAME.fullmatch(name) or "__" in name:
            raise ValueError(f"a server is named with 1 to 32 of a-z, 0-9, _ and -, and no two _, got {name!r:.80}")
        if (one.command is None) == (one.url is None):
            raise ValueError(f"mcp.{name} needs either a command or a url")
        if one.command is None and (one.args or one.env or one.cwd):
            raise ValueError(f"mcp.{name} has a url: args, env and cwd are for a command")
        if one.url is None and one.headers:
            raise ValueError(f"mcp.{name} has a command: headers are for a url")


Rule: TypeAlias = Literal["ask", "allow", "deny"]
HookEvent: TypeAlias = Literal["PreToolUse", "PostToolUse", "TurnStart", "TurnEnd", "Interrupt", "Stop"]


@attrs.frozen(kw_only=True)
class HookConfig:
    """[hooks.NAME]: a command that is asked at an event, with JSON on its standard input; /bin/sh runs it.

    `matcher` says which tools a PreToolUse or PostToolUse hook is asked about: names as in `Edit|Write`, or a regular
    expression; none means all. It is ended after `timeout_s`.
    """

    event: HookEvent
    command: str = attrs.field(validator=_command)
    on_failure: Literal["open", "block"] = "open"
    timeout_s: float = attrs.field(default=60.0, validator=_at_least(0.001))
    matcher: str | None = attrs.field(default=None, validator=_matcher)


@attrs.frozen(kw_only=True)
class PlanConfig:
    """[plugins.plan]: whether at most one step may be in progress."""

    one_in_progress: bool = False


@attrs.frozen(kw_only=True)
class TodoConfig:
    """[plugins.todo]: whether several items may be in progress."""

    allow_parallel_in_progress: bool = True


@attrs.frozen(kw_only=True)
class PlanModeConfig:
    """[plugins.plan_mode]: instructions (None: ours), what is refused, how plans are carried out, the effort.

    `gate` "hard" refuses every tool that changes something, in the whole tree; "soft" only asks the model.
    """

    section: str | None = attrs.field(default=None, validator=_says_something)
    gate: Literal["soft", "hard"] = "soft"
    execution: Execution = "keep"
    effort: str | None = "medium"


@attrs.frozen(kw_only=True)
class AskConfig:
    """[plugins.ask]: whether the model may ask outside Plan mode, and which calls need the user's approval.

    `policy` "off": none; "ask": every call that changes something; "never": such calls are refused without asking;
    "rules": as the table `rules` says by tool, `mcp__SERVER__*` for all of a server, `*` for the others. With
    `children` subagents may ask too.
    """

    default_mode: bool = False
    policy: ApprovalPolicy = "off"
    rules: Mapping[str, Rule] = NOTHING
    children: bool = False


@attrs.frozen(kw_only=True)
class GoalConfig:
    """[plugins.goal]: how many rounds a goal has that names no number of its own."""

    rounds_max: int = attrs.field(default=ROUNDS_USUAL_MAX, validator=_between(1, ROUNDS_MAX))


@attrs.frozen(kw_only=True)
class ScheduleConfig:
    """[plugins.schedule]: whether subagents may have reminders too."""

    children: bool = False


@attrs.frozen(kw_only=True)
class CodeConfig:
    """[plugins.code]: what one run of code may use; see `code_plugin` for each."""

    seconds_max: float = attrs.field(default=SECONDS_MAX, validator=_at_least(0.1))
    cpu_seconds_max: int = attrs.field(default=CPU_SECONDS_MAX, validator=_at_least(1))
    memory_bytes_max: int = attrs.field(default=MEMORY_BYTES_MAX, validator=_at_least(64 * 1024 * 1024))
    file_bytes_max: int = attrs.field(default=FILE_BYTES_MAX, validator=_at_least(0))
    print_bytes_max: int = attrs.field(default=PRINT_BYTES_MAX, validator=_at_least(1024))


@attrs.frozen(kw_only=True)
class Plugins:
    """[plugins.*]: settings of the shipped plugins."""

    plan_mode: PlanModeConfig = attrs.field(factory=PlanModeConfig)
    ask: AskConfig = attrs.field(factory=AskConfig)
    goal: GoalConfig = attrs.field(factory=GoalConfig)
    schedule: ScheduleConfig = attrs.field(factory=ScheduleConfig)
    plan: PlanConfig = attrs.field(factory=PlanConfig)
    todo: TodoConfig = attrs.field(factory=TodoConfig)
    code: CodeConfig = attrs.field(factory=CodeConfig)


@attrs.frozen(kw_only=True)
class Otel:
    """[otel]: which OpenTelemetry collector spans go to, over HTTP; without `endpoint` to none.

    They are the spans of the GenAI conventions. `content` adds what models said, arguments and results to them. Headers
    come from `OTEL_EXPORTER_OTLP_HEADERS`, as the SDK reads it.
    """

    endpoint: str | None = attrs.field(default=None, validator=_web_address("http://127.0.0.1:4318/v1/traces"))
    service_name: str = attrs.field(default="callboard", validator=_says_something)
    content: bool = False


@attrs.frozen(kw_only=True)
class Metrics:
    """[metrics]: where the command line serves /metrics; no port, no endpoint."""

    host: str = "127.0.0.1"
    port: int | None = attrs.field(default=None, validator=attrs.validators.optional(_port))

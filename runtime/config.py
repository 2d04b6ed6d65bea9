"""RuntimeConfig: from TOML through cattrs, unknown keys forbidden, all mistakes at once as `what @ $.path`."""

import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args, get_origin

import attrs
import cattrs
import cattrs.errors
import cattrs.gen
import cattrs.v

from callboard.actors.abort import ABORT_WINDOW_S
from callboard.actors.errors import ConfigError
from callboard.actors.tool import Exposure
from callboard.plugins.code import CPU_SECONDS_MAX, FILE_BYTES_MAX, MEMORY_BYTES_MAX, PRINT_BYTES_MAX, SECONDS_MAX

NOTHING: Mapping[str, Any] = MappingProxyType({})
IDLE_EVICT_S_MIN = 0.01
TEXT_MAX_BYTES = 1024 * 1024  # of a configuration file; a larger one is some other file


def _at_least(low: float) -> Any:
    def check(instance: object, attribute: "attrs.Attribute[Any]", value: Any) -> None:
        if value is not None and not low <= value < math.inf:
            raise ValueError(f"{attribute.name} must be at least {low:g}, got {value}")

    return check


def _seconds_or_never(instance: object, attribute: "attrs.Attribute[Any]", value: float | None) -> None:
    if value is not None and not value >= IDLE_EVICT_S_MIN:
        raise ValueError(f"{attribute.name} must be at least {IDLE_EVICT_S_MIN:g}, or inf for never, got {value}")


def _port(instance: object, attribute: "attrs.Attribute[Any]", value: int) -> None:
    if not 0 <= value <= 65535:
        raise ValueError(f"{attribute.name} must be 0 to 65535, got {value}")


@attrs.frozen(kw_only=True)
class Bounds:
    """[runtime]: the bounds of sessions; seconds. `idle_evict_s` None or inf: no session ever leaves memory.

    `gc_policy` is about the whole process: "manage" keeps full garbage collections out of the way of interrupts,
    "leave" changes nothing. The command line manages unless it is told to leave, an embedded runtime leaves.
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
    gc_policy: Literal["manage", "leave"] | None = None


@attrs.frozen(kw_only=True)
class ModelConfig:
    """[model]: which model answers, `scripted:demo` or `replay:FILE`, and what it is given.

    `context_window` (tokens) and `idle_timeout_s` take the place of what the model says of itself. History is compacted
    at 90 % of the window, or at `compact_tokens_max` when that is less. A request is made at most `retries_max` times
    more.
    """

    name: str | None = None
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


@attrs.frozen(kw_only=True)
class Agents:
    """[agents]: limits of a tree of agents, what an interrupt says in their history, and which model reviews."""

    depth_max: int = attrs.field(default=3, validator=_at_least(0))
    running_max: int = attrs.field(default=8, validator=_at_least(0))
    breadth_max: int = attrs.field(default=16, validator=_at_least(0))
    spawned_max: int = attrs.field(default=256, validator=_at_least(0))
    cascade: bool = True
    notify: Literal["wake", "queue"] = "wake"
    interrupt_message: bool = True
    marker_role: Literal["user", "developer"] = "user"
    review_model: str | None = None


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

    plan: PlanConfig = attrs.field(factory=PlanConfig)
    todo: TodoConfig = attrs.field(factory=TodoConfig)
    code: CodeConfig = attrs.field(factory=CodeConfig)


@attrs.frozen(kw_only=True)
class Metrics:
    """[metrics]: where the command line serves /metrics; no port, no endpoint."""

    host: str = "127.0.0.1"
    port: int | None = attrs.field(default=None, validator=attrs.validators.optional(_port))


@attrs.frozen(kw_only=True)
class RuntimeConfig:
    """All settings of a runtime, each with its default."""

    runtime: Bounds = attrs.field(factory=Bounds)
    model: ModelConfig = attrs.field(factory=ModelConfig)
    store: StoreConfig = attrs.field(factory=StoreConfig)
    agents: Agents = attrs.field(factory=Agents)
    supervisor: Supervision = attrs.field(factory=Supervision)
    tools: Mapping[str, ToolConfig] = NOTHING
    hooks: Mapping[str, HookConfig] = NOTHING
    plugins: Plugins = attrs.field(factory=Plugins)
    metrics: Metrics = attrs.field(factory=Metrics)
    budget: Budget = attrs.field(factory=Budget)
    prices: Mapping[str, PriceConfig] = NOTHING


def load_config(path: str | Path) -> RuntimeConfig:
    """Read a TOML file; a `ConfigError` names the file and every mistake in it."""
    source = str(path)
    try:
        with Path(path).open("rb") as file:
            data = file.read(TEXT_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(source, (f"cannot be read: {reason}",)) from None
    if len(data) > TEXT_MAX_BYTES:
        raise ConfigError(source, (f"is larger than {TEXT_MAX_BYTES:,} bytes; name a configuration file",))
    try:
        table = tomllib.loads(data.decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(source, (f"is not TOML: {error}",)) from None
    return config_of(table, source)


def config_of(table: Mapping[str, Any], source: str = "configuration") -> RuntimeConfig:
    """Settings from a mapping as TOML gives it; a `ConfigError` lists every mistake."""
    if not isinstance(table, Mapping):
        raise ConfigError(source, (f"expected a table, got {type(table).__name__} @ $",))
    try:
        return _converter().structure(table, RuntimeConfig)
    except cattrs.errors.BaseValidationError as error:
        mistakes = cattrs.v.transform_error(error, format_exception=_what)
        raise ConfigError(source, tuple(mistakes)) from None


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook_factory(attrs.has, lambda kind: _checking(converter, kind))
    for kind in (bool, int, float, str):
        converter.register_structure_hook(kind, _exactly(kind))
    for named in (ToolConfig, HookConfig, PriceConfig):
        converter.register_structure_hook_func(_is_named(named), _each_named(converter, named))
    converter.register_structure_hook_func(_is_literal, _one_of)
    converter.register_structure_hook_func(_is_optional, lambda value, kind: _optional(converter, value, kind))
    return converter


def _checking(converter: cattrs.Converter, kind: Any) -> Any:
    """Each key of a table with its own check, so that every mistake shows, whatever else is wrong beside it."""
    checks: dict[str, Any] = {
        field.name: cattrs.gen.override(struct_hook=_checked(converter, field))
        for field in attrs.fields(kind)
        if field.validator is not None
    }
    structure = cattrs.gen.make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True, **checks)
    return lambda value, _: structure(_table(value), kind)


def _table(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise TypeError(f"expected a table, got {type(value).__name__}")
    return value


def _checked(converter: cattrs.Converter, field: "attrs.Attribute[Any]") -> Any:
    def hook(value: Any, _: Any) -> Any:
        kind: Any = field.type
        found = converter.structure(value, kind)
        if field.validator is not None:
            field.validator(None, field, found)
        return found

    return hook


def _exactly(kind: type) -> Any:
    def hook(value: Any, _: Any) -> Any:
        fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
        if not fits or (isinstance(value, bool) and kind is not bool):
            raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
        return float(value) if kind is float else value

    return hook


def _is_literal(kind: Any) -> bool:
    return bool(get_origin(kind) == Literal)


def _one_of(value: Any, kind: Any) -> Any:
    if value not in get_args(kind):
        raise ValueError(f"expected one of {', '.join(map(repr, get_args(kind)))}, got {value!r:.80}")
    return value


def _is_optional(kind: Any) -> bool:
    return type(None) in get_args(kind)


def _optional(converter: cattrs.Converter, value: Any, kind: Any) -> Any:
    (inner,) = (part for part in get_args(kind) if part is not type(None))
    return None if value is None else converter.structure(value, inner)


def _is_named(kind: type) -> Any:
    return lambda asked: asked == Mapping[str, kind]  # type: ignore[valid-type]


def _each_named(converter: cattrs.Converter, kind: type) -> Any:
    """A table of tables, each under a name of its own."""

    def hook(value: Any, _: Any) -> Mapping[str, Any]:
        found: dict[str, Any] = converter.structure(_table(value), dict[str, kind])  # type: ignore[valid-type]
        return MappingProxyType(found)

    return hook


def _what(error: BaseException, _: type | None) -> str:
    if isinstance(error, cattrs.errors.ForbiddenExtraKeysError):
        return f"unknown key {', '.join(repr(key) for key in sorted(error.extra_fields))}"
    return str(error) or type(error).__name__

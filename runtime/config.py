"""RuntimeConfig: from TOML through cattrs, unknown keys forbidden, all mistakes at once as `what @ $.path`."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin

import attrs
import cattrs
import cattrs.errors
import cattrs.gen
import cattrs.v

from callboard.actors.errors import ConfigError
from callboard.runtime.settings import (
    NOTHING,
    Agents,
    Bounds,
    Budget,
    HookConfig,
    McpConfig,
    Metrics,
    ModelConfig,
    Otel,
    Plugins,
    PriceConfig,
    RoleConfig,
    Rule,
    StoreConfig,
    Supervision,
    ToolConfig,
    mcp_servers,
)

TEXT_MAX_BYTES = 1024 * 1024  # of a configuration file; a larger one is some other file


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
    otel: Otel = attrs.field(factory=Otel)
    budget: Budget = attrs.field(factory=Budget)
    prices: Mapping[str, PriceConfig] = NOTHING
    mcp: Mapping[str, McpConfig] = attrs.field(default=NOTHING, validator=mcp_servers)


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
    converter.register_structure_hook_func(
        lambda kind: kind == Mapping[str, Any], lambda value, kind: dict(_table(value))
    )
    for named in (ToolConfig, HookConfig, McpConfig, PriceConfig, RoleConfig, Rule, str):
        converter.register_structure_hook_func(_is_named(named), _each_named(converter, named))
    converter.register_structure_hook_func(_is_literal, _one_of)
    converter.register_structure_hook_func(lambda kind: kind == tuple[str, ...], _texts)
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


def _texts(value: Any, _: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise TypeError(f"expected a list of texts, got {value!r:.80}")
    return tuple(value)


def _is_optional(kind: Any) -> bool:
    return type(None) in get_args(kind)


def _optional(converter: cattrs.Converter, value: Any, kind: Any) -> Any:
    (inner,) = (part for part in get_args(kind) if part is not type(None))
    return None if value is None else converter.structure(value, inner)


def _is_named(kind: Any) -> Any:
    return lambda asked: asked == Mapping[str, kind]


def _each_named(converter: cattrs.Converter, kind: Any) -> Any:
    """A table of tables or values, each under a name of its own."""

    def hook(value: Any, _: Any) -> Mapping[str, Any]:
        found: dict[str, Any] = converter.structure(_table(value), dict[str, kind])
        return MappingProxyType(found)

    return hook


def _what(error: BaseException, _: type | None) -> str:
    if isinstance(error, cattrs.errors.ForbiddenExtraKeysError):
        return f"unknown key {', '.join(repr(key) for key in sorted(error.extra_fields))}"
    return str(error) or type(error).__name__

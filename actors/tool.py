"""A tool: a function, the type of its arguments, and what it declares about itself."""

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, overload

import attrs
import msgspec

from callboard.actors.errors import ToolError, UsageError
from callboard.actors.events import Call, Effect
from callboard.actors.model import ToolSpec
from callboard.actors.schema import forbid_unknown, struct_schema

RunsOn: TypeAlias = Literal["trio", "thread", "asyncio"]
Exposure: TypeAlias = Literal["direct", "direct_model_only", "code_only", "deferred", "hidden"]

OUTPUT_MAX_BYTES = 64 * 1024  # what a model reads of one result; head and tail are kept
ARGUMENTS_MAX_BYTES = 4 * 1024 * 1024  # a larger call is refused unread, and only its head is kept on the log
NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")  # what the providers accept


@attrs.frozen(eq=False)
class Tool:
    """A tool as the runtime sees it; made by `tool`.

    `runs_on` trio, thread or asyncio; a plain `def` on trio runs in one piece on the loop. `parallel`: safe beside others.
    `graceful`: told of an interrupt and given the window to return a partial result. `effect` none, idempotent or
    once. `mutates` for the plan gate. `refuse(view)` is asked before the arguments are parsed and answers why not.
    """

    name: str
    description: str
    fn: Callable[..., Any]
    arguments: type[msgspec.Struct]
    fields: tuple[str, ...] | None  # plain parameters in order; None when the Struct itself is the argument
    view: str | None  # the name of the parameter that takes the View
    runs_on: RunsOn = "trio"
    parallel: bool = False
    graceful: bool = False
    effect: Effect = "once"
    control: bool = False
    exposure: Exposure = "direct"
    mutates: bool = True
    timeout_s: float | None = None
    output_max: int = OUTPUT_MAX_BYTES
    refuse: Callable[[Any], str | None] | None = None
    external: str | None = None  # mcp or dynamic: folds the name in metrics
    decoder: msgspec.json.Decoder[Any] = attrs.field(init=False, repr=False)
    spec: ToolSpec = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "decoder", msgspec.json.Decoder(self.arguments))
        spec = ToolSpec(self.name, self.description, struct_schema(self.arguments), self.parallel)
        object.__setattr__(self, "spec", spec)

    def parse(self, arguments: Any) -> msgspec.Struct:
        """The typed arguments from JSON text or a decoded object; a `ToolError` names the path of what is wrong."""
        try:
            if isinstance(arguments, str | bytes):
                parsed: msgspec.Struct = self.decoder.decode(arguments or "{}")
            else:
                parsed = msgspec.convert({} if arguments is None else arguments, self.arguments)
        except RecursionError:
            raise ToolError("failed to parse function arguments: nested too deep - at `$`") from None
        except (msgspec.DecodeError, UnicodeError, ValueError, TypeError) as error:
            raise ToolError(f"failed to parse function arguments: {error}") from None
        return parsed

    def bind(self, arguments: msgspec.Struct, view: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments for `fn`."""
        keywords = {} if self.view is None else {self.view: view}
        if self.fields is None:
            return (arguments,), keywords
        return (), {**{name: getattr(arguments, name) for name in self.fields}, **keywords}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The plain function, for tests of a tool by itself."""
        return self.fn(*args, **kwargs)


@overload
def tool(fn: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    runs_on: RunsOn | None = None,
    parallel: bool = False,
    graceful: bool = False,
    effect: Effect = "once",
    control: bool = False,
    exposure: Exposure = "direct",
    mutates: bool | None = None,
    timeout_s: float | None = None,
    output_max: int = OUTPUT_MAX_BYTES,
    refuse: Callable[[Any], str | None] | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a Tool of a function with typed parameters, or with one msgspec Struct parameter.

    A parameter annotated `View` (or named view or ctx) gets the View. The docstring is the description the model reads.
    Defaults: `runs_on` is trio for `async def` and thread for `def`; `mutates` is true unless the effect is none.
    Raises `UsageError` for a function that cannot be a tool.
    """
    if fn is None:
        return lambda function: _make(function, options)
    return _make(fn, options)


def _make(fn: Callable[..., Any], options: Mapping[str, Any]) -> Tool:
    if not inspect.isfunction(fn):
        raise UsageError(f"@tool goes on a function, got {fn!r}.")
    chosen = {key: value for key, value in options.items() if value is not None}
    name = chosen.pop("name", fn.__name__)
    if not NAME_PATTERN.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a tool: use letters, digits, _ . - and at most 64 characters.")
    is_async = inspect.iscoroutinefunction(fn)
    runs_on = chosen.setdefault("runs_on", "trio" if is_async else "thread")
    if runs_on not in ("trio", "thread", "asyncio"):
        raise UsageError(f"{name}: runs_on must be trio, thread or asyncio, got {runs_on!r}.")
    if runs_on == "thread" and is_async:
        raise UsageError(f"{name}: an async def cannot run in a thread; use runs_on='trio' or 'asyncio'.")
    if runs_on == "asyncio" and not is_async:
        raise UsageError(f"{name}: runs_on='asyncio' needs an async def.")
    if chosen.get("timeout_s", 1.0) <= 0:
        raise UsageError(f"{name}: timeout_s must be above 0, got {chosen['timeout_s']}.")
    chosen.setdefault("mutates", chosen.get("effect", "once") != "none" and not chosen.get("control", False))
    arguments, fields, view = _parameters(fn, name)
    description = chosen.pop("description", inspect.cleandoc(fn.__doc__ or ""))
    return Tool(name, description, fn, arguments, fields, view, **chosen)


def _parameters(fn: Callable[..., Any], name: str) -> tuple[type[msgspec.Struct], tuple[str, ...] | None, str | None]:
    try:
        hints = typing.get_type_hints(fn, include_extras=True)
    except (NameError, TypeError) as error:
        raise UsageError(
            f"{name}: its annotations cannot be read ({error}); annotate with module-level types."
        ) from None
    view, plain = None, []
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise UsageError(f"{name}: parameter {parameter} cannot come from a JSON object; give it a plain name.")
        hint = hints.get(parameter.name)
        if getattr(hint, "__name__", "") == "View" or (hint is None and parameter.name in ("view", "ctx")):
            view = parameter.name
        elif hint is None:
            raise UsageError(f"{name}: parameter {parameter.name!r} has no type; annotate it.")
        else:
            plain.append((parameter.name, hint, parameter.default))
    if len(plain) == 1 and isinstance(plain[0][1], type) and issubclass(plain[0][1], msgspec.Struct):
        return forbid_unknown(plain[0][1]), None, view
    fields = [(n, hint) if default is inspect.Parameter.empty else (n, hint, default) for n, hint, default in plain]
    try:
        made = msgspec.defstruct(name, fields, forbid_unknown_fields=True, frozen=True, kw_only=True)
        forbid_unknown(made)
        msgspec.json.Decoder(made)
    except (TypeError, NotImplementedError) as error:
        raise UsageError(f"{name}: its parameter types cannot come from JSON: {error}.") from None
    return made, tuple(n for n, _, _ in plain), view


def payload_fits(call: Call) -> bool:
    """Whether a call's payload is of the kind our tools take."""
    return call.kind == "function"

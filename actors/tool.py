"""A tool: a function, the type of its arguments, and what it declares about itself."""

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, overload

import attrs
import msgspec

from callboard.actors.errors import ToolError, UsageError
from callboard.actors.events import Call, Effect
from callboard.actors.model import ToolSpec
from callboard.actors.schema import forbid_unknown, struct_schema

RunsOn: TypeAlias = Literal["trio", "thread", "asyncio"]
Where: TypeAlias = Literal["everywhere", "root", "below"]
Exposure: TypeAlias = Literal["direct", "direct_model_only", "code_only", "deferred", "hidden"]

OUTPUT_MAX_BYTES = 64 * 1024  # what a model reads of one result; head and tail are kept
ARGUMENTS_MAX_BYTES = 4 * 1024 * 1024  # a larger call is refused unread, and only its head is kept on the log
DETAIL_MAX_CHARS = 500  # of what a model reads about arguments that do not fit
DETAIL_TAIL_CHARS = 200
_MISFITS = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, AssertionError, RuntimeError)
NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")  # what the providers accept
_NO_DEFAULT = inspect.Parameter.empty
_CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "runs_on": typing.get_args(RunsOn),
        "effect": typing.get_args(Effect),
        "exposure": typing.get_args(Exposure),
        "offered": typing.get_args(Where),
    }
)
_OPTIONS = frozenset(
    {
        *("description", "runs_on", "parallel", "graceful", "effect", "control", "exposure", "mutates", "timeout_s"),
        *("output_max", "refuse", "external", "describe", "offered"),
    }
)


@attrs.frozen(eq=False)
class Tool:
    """A tool as the runtime sees it; made by `tool`.

    `runs_on` trio, thread or asyncio; a plain `def` on trio runs in one piece on the loop. `parallel`: safe beside
    others. `graceful`: told of an interrupt and given the window to return a partial result. `effect` none, idempotent
    or once. `mutates` for the plan gate. `refuse(view)` is asked before the arguments are parsed; it answers why not.
    `describe(tools)` makes the description of all tools by name, once, when a runtime is put together. `exposure`: see
    `catalogue`. `offered` says whether sessions without a parent are told of it, those with one, or both.
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
    external: str | None = None  # mcp or dynamic: folds the name in metrics, and gives way to ours of the same name
    describe: Callable[[Mapping[str, "Tool"]], str] | None = None
    offered: Where = "everywhere"
    decoder: msgspec.json.Decoder[Any] = attrs.field(init=False, repr=False)
    spec: ToolSpec = attrs.field(init=False, repr=False)
    in_place: bool = attrs.field(init=False, repr=False)  # a plain `def` on trio: no task, nothing to cancel

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "decoder", msgspec.json.Decoder(self.arguments))
        spec = ToolSpec(self.name, self.description, struct_schema(self.arguments), self.parallel)
        object.__setattr__(self, "spec", spec)
        in_place = self.runs_on == "trio" and not inspect.iscoroutinefunction(self.fn)
        object.__setattr__(self, "in_place", in_place)

    def parse(self, arguments: Any) -> msgspec.Struct:
        """The typed arguments from JSON text or a decoded object; a `ToolError` names the path of what is wrong.

        Whatever the arguments are, and whatever a `__post_init__` of their type raises, nothing else comes out.
        """
        try:
            if isinstance(arguments, str | bytes):
                parsed: msgspec.Struct = self.decoder.decode(arguments or "{}")
            else:
                parsed = msgspec.convert({} if arguments is None else arguments, self.arguments)
        except RecursionError:
            raise ToolError("failed to parse function arguments: nested too deep - at `$`") from None
        except (msgspec.MsgspecError, *_MISFITS) as error:
            detail = str(error) or type(error).__name__
            raise ToolError(f"failed to parse function arguments: {_clipped(detail)}") from None
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


def _clipped(detail: str) -> str:
    """A detail may repeat what the model wrote, however long: its head says what is wrong, its tail says where."""
    if len(detail) <= DETAIL_MAX_CHARS:
        return detail
    return f"{detail[: DETAIL_MAX_CHARS - DETAIL_TAIL_CHARS]} [...] {detail[-DETAIL_TAIL_CHARS:]}"


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
    describe: Callable[[Mapping[str, Tool]], str] | None = None,
    offered: Where = "everywhere",
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
    if not (isinstance(name, str) and NAME_PATTERN.fullmatch(name)):
        raise UsageError(f"{name!r} cannot name a tool: use letters, digits, _ . - and at most 64 characters.")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise UsageError(f"{name}: a generator has no one result; collect it and return it.")
    _check_options(name, chosen)
    is_async = inspect.iscoroutinefunction(fn)
    runs_on = chosen.setdefault("runs_on", "trio" if is_async else "thread")
    if runs_on == "thread" and is_async:
        raise UsageError(f"{name}: an async def cannot run in a thread; use runs_on='trio' or 'asyncio'.")
    if runs_on == "asyncio" and not is_async:
        raise UsageError(f"{name}: runs_on='asyncio' needs an async def.")
    chosen.setdefault("mutates", chosen.get("effect", "once") != "none" and not chosen.get("control", False))
    arguments, fields, view = _parameters(fn, name)
    description = chosen.pop("description", inspect.cleandoc(fn.__doc__ or ""))
    return Tool(name, description, fn, arguments, fields, view, **chosen)


def _check_options(name: str, chosen: Mapping[str, Any]) -> None:
    """Refuse options that no tool has, and values that would be found out only when the tool is called."""
    unknown = sorted(chosen.keys() - _OPTIONS)
    if unknown:
        raise UsageError(f"{name}: @tool has no option {unknown[0]!r}; it takes {', '.join(sorted(_OPTIONS))}.")
    for option, allowed in _CHOICES.items():
        if option in chosen and chosen[option] not in allowed:
            one_of = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
            raise UsageError(f"{name}: {option} must be {one_of}, got {chosen[option]!r}.")
    for option in ("parallel", "graceful", "control", "mutates"):
        if not isinstance(chosen.get(option, False), bool):
            raise UsageError(f"{name}: {option} must be True or False, got {chosen[option]!r}.")
    for option, kind in (("timeout_s", int | float), ("output_max", int)):
        value = chosen.get(option, 1)
        if not isinstance(value, kind) or isinstance(value, bool) or not value > 0:
            raise UsageError(f"{name}: {option} must be {'a whole number ' * (kind is int)}above 0, got {value!r}.")


def _parameters(fn: Callable[..., Any], name: str) -> tuple[type[msgspec.Struct], tuple[str, ...] | None, str | None]:
    try:
        hints = typing.get_type_hints(fn, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise UsageError(
            f"{name}: its annotations cannot be read ({error}); annotate with module-level types."
        ) from None
    view, plain = None, []
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise UsageError(f"{name}: parameter {parameter} cannot come from a JSON object; give it a plain name.")
        hint = hints.get(parameter.name)
        if getattr(hint, "__name__", "") == "View" or (hint is None and parameter.name in ("view", "ctx")):
            if view is not None:
                raise UsageError(f"{name}: {view} and {parameter.name} are both the View; take it once.")
            view = parameter.name
        elif hint is None:
            raise UsageError(f"{name}: parameter {parameter.name!r} has no type; annotate it.")
        else:
            plain.append((parameter.name, hint, parameter.default))
    whole = len(plain) == 1 and isinstance(plain[0][1], type) and issubclass(plain[0][1], msgspec.Struct)
    try:
        if whole:
            made = forbid_unknown(plain[0][1])
        else:
            fields = [(n, hint) if default is _NO_DEFAULT else (n, hint, default) for n, hint, default in plain]
            struct = msgspec.defstruct(name, fields, forbid_unknown_fields=True, frozen=True, kw_only=True)
            made = forbid_unknown(struct)
        msgspec.json.Decoder(made)
        struct_schema(made)
    except (TypeError, ValueError, NameError, NotImplementedError) as error:
        raise UsageError(f"{name}: its parameter types cannot come from JSON: {error}.") from None
    return made, None if whole else tuple(n for n, _, _ in plain), view


def payload_fits(call: Call) -> bool:
    """Whether a call's payload is of the kind our tools take."""
    return call.kind == "function"

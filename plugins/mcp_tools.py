"""What a server says of its tools, as tools of ours: names, texts and schemas that nobody vouches for, bounded."""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import attrs
import msgspec

from callboard.actors.errors import ToolError
from callboard.actors.events import Effect
from callboard.actors.model import ToolSpec
from callboard.actors.receipts import clean_text
from callboard.actors.tool import Exposure, Tool

TOOLS_MAX = 256  # of one server
NAME_MAX_CHARS = 64  # what the providers accept
FOREIGN_NAME_MAX_CHARS = 512
DESCRIPTION_MAX_CHARS = 4_000
WORDS_MAX_CHARS = 1_000  # of a description inside a schema
SCHEMA_MAX_BYTES = 32 * 1024
DEPTH_MAX = 16
PATTERN_MAX_CHARS = 200

TOO_LARGE = f"its schema is larger than {SCHEMA_MAX_BYTES:,} bytes"
TOO_DEEP = f"its schema is nested deeper than {DEPTH_MAX} levels"
NO_OBJECT = "its schema is not that of an object"
NO_SCHEMA = "its schema is not valid ({why:.120})"
OUTWARD = "its schema refers to something outside of itself"
NO_NAME = "it has no name"
TOO_MANY = f"the server has more than {TOOLS_MAX} tools"
NAME_TWICE = "another of its tools has that name"
ANYTHING = " (Its arguments are not described: {why}.)"
UNDESCRIBED = "{tool}, a tool of the server {server}."
NOT_AN_OBJECT = "failed to parse function arguments: expected `object` - at `$`"

_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_ABOUT_ITSELF: Final = frozenset({"$id", "$schema", "$anchor", "$vocabulary"})
_TEXT_KEYS: Final = frozenset({"description", "title", "$comment"})
_NAMED: Final = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
_DATA: Final = frozenset({"enum", "const", "required", "default", "examples", "type", "dependentRequired"})


class Arguments(msgspec.Struct, frozen=True):
    """What a tool of a server is called with; the server checks it."""

    given: dict[str, Any]


Body = Callable[..., Any]


@attrs.frozen(eq=False)
class ServerTool(Tool):
    """A tool of a server, under a schema that the server gave."""

    schema: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True)
    server: str = attrs.field(default="", kw_only=True)

    def __attrs_post_init__(self) -> None:
        """As every tool, but for what the model is told of its arguments."""
        super().__attrs_post_init__()
        object.__setattr__(self, "spec", ToolSpec(self.name, self.description, self.schema, self.parallel))

    def parse(self, arguments: Any) -> msgspec.Struct:
        """Any object."""
        if isinstance(arguments, str | bytes):
            try:
                arguments = msgspec.json.decode(arguments or "{}")
            except (msgspec.DecodeError, RecursionError, ValueError) as error:
                raise ToolError(f"failed to parse function arguments: {error!s:.300}") from None
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            raise ToolError(NOT_AN_OBJECT)
        return Arguments(arguments)


@attrs.frozen(kw_only=True)
class Belief:
    """What is believed of a server's tools: its hints with `trust`, and that they may run side by side."""

    trust: bool = False
    parallel: bool = False
    exposure: Exposure = "direct"
    timeout_s: float | None = None


@attrs.frozen
class Listed:
    """A list of tools as it came: those that can be used, and why others cannot, or not as they are described."""

    tools: tuple[ServerTool, ...]
    flaws: tuple[str, ...] = ()


def tool_name(server: str, name: str) -> str:
    """`mcp__SERVER__TOOL` as every provider takes it; one that does not fit ends in a digest of itself."""
    plain = f"mcp__{server}__{_UNFIT.sub('_', name)}"
    if plain == f"mcp__{server}__{name}" and len(plain) <= NAME_MAX_CHARS:
        return plain
    digest = sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{plain[: NAME_MAX_CHARS - len(digest) - 1]}_{digest}"


def plain_text(text: str, most: int) -> str:
    """A text without control, format and private characters, which people do not see and models read; cut."""
    kept = "".join(
        c for c in clean_text(text[: 4 * most]) if c in "\n\t" or (c.isascii() and c.isprintable()) or _is_shown(c)
    )
    return kept if len(kept) <= most else kept[: most - 1] + "…"


def _is_shown(character: str) -> bool:
    return not character.isascii() and unicodedata.category(character)[0] != "C"


def plain_line(text: str, most: int) -> str:
    """The same on one line."""
    return " ".join(plain_text(text, most).split())


def cleaned(schema: Any, check: Callable[[Any], str | None]) -> tuple[dict[str, Any], str | None]:
    """A schema that a provider can be shown, and None, or why it is one for any object instead.

    `check` answers what is wrong with a schema by the rules of JSON schema.
    """
    anything: dict[str, Any] = {"type": "object", "properties": {}}
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return anything, NO_OBJECT
    try:
        if len(msgspec.json.encode(schema)) > SCHEMA_MAX_BYTES:
            return anything, TOO_LARGE
        made = _copied(schema, 0)
    except _Unfit as unfit:
        return anything, str(unfit)
    except (RecursionError, TypeError, ValueError, msgspec.MsgspecError):
        return anything, TOO_DEEP
    wrong = check(made)
    if wrong is not None:
        return anything, NO_SCHEMA.format(why=plain_line(wrong, 120))
    made.setdefault("properties", {})
    return made, None


class _Unfit(Exception):
    """A schema cannot be taken; the text says why."""


def _copied(node: Any, depth: int) -> Any:
    """A copy with clean texts, without what reaches outside, and with `{}` where a schema is just `true`."""
    if depth > DEPTH_MAX:
        raise _Unfit(TOO_DEEP)
    if isinstance(node, list):
        return [_copied(part, depth + 1) for part in node]
    if not isinstance(node, dict):
        return node
    return {key: _copied_value(key, value, depth) for key, value in node.items() if _is_kept(key, value)}


def _is_kept(key: str, value: Any) -> bool:
    if key in _TEXT_KEYS:
        return isinstance(value, str)
    if key == "pattern":
        return _is_pattern(value)
    return key not in _ABOUT_ITSELF and not key.startswith("x-")


def _copied_value(key: str, value: Any, depth: int) -> Any:
    if key in _TEXT_KEYS:
        return plain_text(value, WORDS_MAX_CHARS)
    if key in _REFERENCES:
        if not isinstance(value, str) or not value.startswith("#"):
            raise _Unfit(OUTWARD)
        return value
    if key == "pattern" or key in _DATA:
        return value
    if key in _NAMED and isinstance(value, dict):
        return {name: _schema(part, depth + 2) for name, part in value.items()}
    return _copied(value, depth + 1)


def _schema(node: Any, depth: int) -> Any:
    if isinstance(node, bool):
        return {} if node else {"not": {}}
    return _copied(node, depth)


def _is_pattern(value: Any) -> bool:
    if not isinstance(value, str) or len(value) > PATTERN_MAX_CHARS:
        return False
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def list_tools(
    server: str,
    found: Sequence[Any],
    belief: Belief,
    body: Callable[[str], Body],
    check: Callable[[Any], str | None],
) -> Listed:
    """The tools of a list that a server sent; `body(name)` makes what a call of one does."""
    made: dict[str, ServerTool] = {}
    flaws: list[str] = []
    for one in found:
        name = one.get("name") if isinstance(one, Mapping) else None
        if not isinstance(name, str) or not name or len(name) > FOREIGN_NAME_MAX_CHARS:
            flaws.append(f"a tool is left out: {NO_NAME}")
            continue
        shown = plain_line(name, 80)
        if len(made) == TOOLS_MAX:
            flaws.append(f"{shown!r} and what follows it are left out: {TOO_MANY}")
            break
        ours = tool_name(server, name)
        if ours in made:
            flaws.append(f"{shown!r} is left out: {NAME_TWICE}")
            continue
        schema, wrong = cleaned(one.get("inputSchema"), check)
        if wrong is not None:
            flaws.append(f"{shown!r} takes anything: {wrong}")
        made[ours] = _made(server, ours, one, schema, wrong, belief, body(name))
    return Listed(tuple(made.values()), tuple(flaws))


def _made(
    server: str,
    name: str,
    one: Mapping[str, Any],
    schema: Mapping[str, Any],
    wrong: str | None,
    belief: Belief,
    body: Body,
) -> ServerTool:
    effect, mutates = effect_of(one.get("annotations"), trust=belief.trust)
    said = one.get("description")
    text = plain_text(said, DESCRIPTION_MAX_CHARS).strip() if isinstance(said, str) else ""
    text = text or UNDESCRIBED.format(tool=name, server=server)
    if wrong is not None:
        text += ANYTHING.format(why=wrong)
    return ServerTool(
        name,
        text,
        body,
        Arguments,
        None,
        "view",
        parallel=belief.parallel or not mutates,
        effect=effect,
        exposure=belief.exposure,
        mutates=mutates,
        timeout_s=belief.timeout_s,
        external="mcp",
        schema=schema,
        server=server,
    )


def effect_of(hints: Any, *, trust: bool) -> tuple[Effect, bool]:
    """What a call does, and whether that changes something: by the hints of a server that is trusted, else the worst.

    A hint makes nothing safer that another one calls destructive.
    """
    if not trust or not isinstance(hints, Mapping):
        return "once", True
    if hints.get("readOnlyHint") is True and hints.get("destructiveHint") is not True:
        return "none", False
    return ("idempotent" if hints.get("idempotentHint") is True else "once"), True

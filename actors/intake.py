"""What a model's reply becomes before it reaches the log: every text fit for UTF-8, every call with an id of its own."""

from collections.abc import Iterable
from typing import Any

import msgspec

from callboard.actors.errors import ModelError
from callboard.actors.events import Call, Usage
from callboard.actors.model import Reply
from callboard.actors.receipts import clean_text, shown_name
from callboard.actors.tool import ARGUMENTS_MAX_BYTES

CALLS_MAX = 1_000  # calls of one reply; a model that asks for more gets an error, not a queue
ID_MAX_CHARS = 200
DEPTH_MAX = 64  # nesting of decoded arguments; JSON text is never walked
HEAD_KEPT_CHARS = 200  # of arguments that cannot be kept
_PLAIN_BYTES = 512  # decoded arguments below this size cannot be nested dangerously deep


def take(reply: object, used: set[str], prefix: str) -> Reply:
    """The reply with clean texts and calls; `used` are the ids taken in this turn and gains the new ones.

    Raises `ModelError` for something that is no reply at all.
    """
    if not isinstance(reply, Reply):
        raise ModelError(f"the model answered {type(reply).__name__}, not a Reply.")
    text: Any = reply.text
    if not isinstance(text, str):
        raise ModelError(f"the model's text is {type(text).__name__}, not str.")
    if not reply.calls:
        return Reply(clean_text(reply.text), (), reply.usage or _NO_USAGE, reply.truncated, reply.more)
    calls = tuple(reply.calls)
    if len(calls) > CALLS_MAX:
        raise ModelError(f"the model asked for {len(calls):,} calls at once; at most {CALLS_MAX:,} are taken.")
    taken = tuple(_call(call, at, used, prefix) for at, call in enumerate(calls, 1))
    return Reply(clean_text(reply.text), taken, reply.usage or _NO_USAGE, reply.truncated, reply.more)


_NO_USAGE = Usage()


def _call(call: Any, at: int, used: set[str], prefix: str) -> Call:
    if not isinstance(call, Call):
        raise ModelError(f"call {at} of the reply is {type(call).__name__}, not a Call.")
    loose: Any = call  # a Struct checks no types when it is made
    name = loose.name if isinstance(loose.name, str) else str(loose.name)
    arguments, flaw = _arguments(call.arguments)
    own = _own_id(call.id, f"{prefix}c{at}", used)
    kind = loose.kind if isinstance(loose.kind, str) else "function"
    if own == call.id and name is call.name and arguments is call.arguments and not flaw and name.isprintable():
        return call
    return Call(shown_name(name), arguments, own, shown_name(kind), flaw or call.flaw)


def _own_id(id_: Any, fallback: str, used: set[str]) -> str:
    wanted = id_ if isinstance(id_, str) and 0 < len(id_) <= ID_MAX_CHARS and id_.isprintable() else fallback
    own, again = wanted, 1
    while own in used:
        again += 1
        own = f"{wanted}.{again}"
    used.add(own)
    return own


def _arguments(arguments: Any) -> tuple[Any, str]:
    """The arguments as the log can keep them, and what is wrong with them."""
    if isinstance(arguments, bytes | bytearray):
        try:
            arguments = bytes(arguments).decode()
        except UnicodeDecodeError as error:
            shown = bytes(arguments[:HEAD_KEPT_CHARS]).decode("utf-8", "backslashreplace")
            return shown, f"invalid UTF-8 at byte {error.start}"
    if isinstance(arguments, str):
        return _text(arguments)
    return _object(arguments)


def _text(arguments: str) -> tuple[str, str]:
    try:
        size = len(arguments.encode())
    except UnicodeEncodeError as error:
        return clean_text(arguments[:HEAD_KEPT_CHARS]), f"invalid UTF-8 at character {error.start}"
    if size > ARGUMENTS_MAX_BYTES:
        return arguments[:HEAD_KEPT_CHARS], _too_large(size)
    return arguments, ""


def _object(arguments: Any) -> tuple[Any, str]:
    try:
        body = msgspec.json.encode(arguments)
    except (RecursionError, UnicodeEncodeError, TypeError, ValueError, msgspec.EncodeError) as error:
        return {}, f"the arguments cannot be written as JSON: {_reason(error)}"
    if len(body) > ARGUMENTS_MAX_BYTES:
        return {}, _too_large(len(body))
    if len(body) > _PLAIN_BYTES and _deeper_than(arguments, DEPTH_MAX):
        return {}, f"nested deeper than {DEPTH_MAX} levels"
    return arguments, ""


def _reason(error: Exception) -> str:
    return "nested too deep" if isinstance(error, RecursionError) else str(error)[:HEAD_KEPT_CHARS]


def _too_large(size: int) -> str:
    return f"the arguments are {size:,} bytes; at most {ARGUMENTS_MAX_BYTES:,} are taken"


def _deeper_than(value: Any, depth_max: int) -> bool:
    level: list[Any] = [value]
    for _ in range(depth_max):
        level = [part for one in level for part in _parts(one)]
        if not level:
            return False
    return True


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()

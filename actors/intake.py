"""What a model's reply becomes before it reaches the log: texts fit for UTF-8, calls that have an id of their own."""

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec

from callboard.actors.codec import plain
from callboard.actors.errors import ModelError
from callboard.actors.events import Call, Thought, Usage
from callboard.actors.model import Reply
from callboard.actors.receipts import clean_text, shown_name
from callboard.actors.tool import ARGUMENTS_MAX_BYTES

CALLS_MAX = 1_000  # calls of one reply; a model that asks for more gets an error, not a queue
ID_MAX_CHARS = 200
DEPTH_MAX = 64  # nesting of decoded arguments; JSON text is never walked
THOUGHTS_MAX = 1_000
THOUGHT_MAX_BYTES = 1 << 20
HEAD_KEPT_CHARS = 200  # of arguments that cannot be kept, and of what is wrong with them
TOKENS_MAX = 10**15  # a larger count is a mistake, and sums of larger ones could not be written
_PLAIN_BYTES = 512  # decoded arguments below this size cannot be nested dangerously deep


def take(reply: object, used: set[str], prefix: str) -> Reply:
    """The reply as the log can keep it and give it back equal; `used` are the ids of this turn and gains the new ones.

    Raises `ModelError` for something that is no reply at all. Arguments that cannot be kept become a call with a
    `flaw`; decoded ones become what their JSON says, so that a replayed session sees what the live one saw.
    """
    if not isinstance(reply, Reply):
        raise ModelError(f"the model answered {type(reply).__name__}, not a Reply.")
    text: Any = reply.text
    if not isinstance(text, str):
        raise ModelError(f"the model's text is {type(text).__name__}, not str.")
    calls = tuple(_call(call, at, used, prefix) for at, call in enumerate(_asked(reply.calls), 1))
    thoughts = _thoughts(reply.thoughts, len(calls)) if reply.thoughts else ()
    return Reply(clean_text(text), calls, _usage(reply.usage), reply.truncated is True, reply.more is True, thoughts)


def _thoughts(thoughts: Any, calls: int) -> tuple[Thought, ...]:
    """Those that the log can keep and give back equal; too many or too large ones are left out, all of them."""
    if type(thoughts) not in (list, tuple) or len(thoughts) > THOUGHTS_MAX:
        return ()
    kept = tuple(one for thought in thoughts if (one := _thought(thought, calls)) is not None)
    return kept if len(kept) == len(thoughts) else ()


def _thought(thought: Any, calls: int) -> Thought | None:
    if type(thought) is not Thought or (type(thought.text), type(thought.at)) != (str, int):
        return None
    try:
        written = msgspec.json.encode(thought.body, enc_hook=plain)
        body = msgspec.json.decode(written)
    except (RecursionError, TypeError, ValueError, msgspec.MsgspecError):
        return None
    if len(written) + len(thought.text) > THOUGHT_MAX_BYTES or _deeper_than(body, DEPTH_MAX):
        return None
    at = min(max(0, thought.at), calls + 1)
    return Thought(provider_label(thought.provider), clean_text(thought.text), body, at)


def take_nested(name: str, arguments: Any, used: set[str], cell: str, number: int) -> Call:
    """A call that the body of the call `cell` makes, as the log can keep it; `used` gains its id."""
    kept, flaw = _arguments(arguments)
    return Call(shown_name(name), kept, _own_id("", f"{cell}.{number}", used), flaw=flaw)


def provider_label(provider: object) -> str:
    """What a model calls its provider, as text that can be kept; `other` for anything that is no text."""
    return shown_name(provider) if isinstance(provider, str) and provider else "other"


_NO_USAGE = Usage()


def _asked(calls: Any) -> tuple[Any, ...]:
    if calls is None:
        return ()
    if type(calls) in (list, tuple) and len(calls) <= CALLS_MAX:  # what it nearly always is; the rest costs 1 us
        return tuple(calls)
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes | bytearray | memoryview):
        raise ModelError(f"the model's calls are {type(calls).__name__}, not a list of Call.")
    asked = tuple(islice(calls, CALLS_MAX + 1))
    if len(asked) > CALLS_MAX:
        raise ModelError(f"the model asked for more than {CALLS_MAX:,} calls at once; none was taken.")
    return asked


def _usage(usage: Any) -> Usage:
    """Counts that can be summed and written: what is below zero, or no number at all, counts as nothing."""
    if usage is None or usage is _NO_USAGE:
        return _NO_USAGE
    if not isinstance(usage, Usage):
        raise ModelError(f"the model's usage is {type(usage).__name__}, not Usage.")
    if type(usage) is Usage and type(usage.cost_usd) is float and _plain_counts(usage):
        return usage
    counts = (_count(usage.input), _count(usage.cached), _count(usage.output), _count(usage.reasoning))
    loose: Any = usage.cost_usd
    if type(loose) not in (int, float):
        raise ModelError(f"a price in the model's usage is {type(loose).__name__}, not float.")
    return Usage(*counts, float(loose) if 0 < loose < TOKENS_MAX else 0.0)


def _plain_counts(usage: Usage) -> bool:
    """Whether nothing has to be changed; most usages are so, and this is a third of the way round."""
    a, b, c, d = usage.input, usage.cached, usage.output, usage.reasoning
    if not (type(a) is type(b) is type(c) is type(d) is int):
        return False
    return min(a, b, c, d) >= 0 and max(a, b, c, d) <= TOKENS_MAX and 0.0 <= usage.cost_usd < TOKENS_MAX


def _count(count: Any) -> int:
    if type(count) is not int:
        raise ModelError(f"a count in the model's usage is {type(count).__name__}, not int.")
    return min(max(0, count), TOKENS_MAX)


def _call(call: Any, at: int, used: set[str], prefix: str) -> Call:
    if not isinstance(call, Call):
        raise ModelError(f"call {at} of the reply is {type(call).__name__}, not a Call.")
    loose: Any = call  # a Struct checks no types when it is made
    name = shown_name(loose.name if isinstance(loose.name, str) else type(loose.name).__name__)
    arguments, flaw = _arguments(loose.arguments)
    own = _own_id(loose.id, f"{prefix}c{at}", used)
    kind = loose.kind
    if kind != "function":
        kind = shown_name(kind) if isinstance(kind, str) else "function"
    if not flaw and isinstance(loose.flaw, str):
        flaw = clean_text(loose.flaw[:HEAD_KEPT_CHARS])
    return Call(name, arguments, own, kind, flaw)


def _own_id(id_: Any, place: str, used: set[str]) -> str:
    """The model's id if it is usable and new in this turn, else one by its place in the reply."""
    fits = isinstance(id_, str) and 0 < len(id_) <= ID_MAX_CHARS and id_.isprintable()
    own, again = str.__str__(id_) if fits and id_ not in used else place, 1
    while own in used:
        again += 1
        own = f"{place}.{again}"
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
        return _text(str.__str__(arguments))
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
        body = msgspec.json.encode(arguments, enc_hook=plain)
        if len(body) > ARGUMENTS_MAX_BYTES:
            return {}, _too_large(len(body))
        kept = msgspec.json.decode(body)
    except (RecursionError, TypeError, ValueError, msgspec.MsgspecError) as error:
        return {}, f"the arguments cannot be written as JSON: {_reason(error)}"
    if len(body) > _PLAIN_BYTES and _deeper_than(kept, DEPTH_MAX):
        return {}, f"nested deeper than {DEPTH_MAX} levels"
    if b"null" in body and _holds_no_number(arguments):
        return {}, "the arguments hold NaN or infinity, which JSON cannot say"
    return kept, ""


def _reason(error: Exception) -> str:
    return "nested too deep" if isinstance(error, RecursionError) else clean_text(str(error)[:HEAD_KEPT_CHARS])


def _too_large(size: int) -> str:
    return f"the arguments are {size:,} bytes; at most {ARGUMENTS_MAX_BYTES:,} are taken"


def _deeper_than(value: Any, depth_max: int) -> bool:
    level: list[Any] = [value]
    for _ in range(depth_max):
        level = [part for one in level for part in _parts(one)]
        if not level:
            return False
    return True


def _holds_no_number(value: Any) -> bool:
    """Whether a NaN or an infinity is inside; `value` was encoded before, so it has no cycle."""
    level: list[Any] = [value]
    while level:
        if any(isinstance(one, float) and not math.isfinite(one) for one in level):
            return True
        level = [part for one in level for part in _parts(one)]
    return False


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()

"""A history as a provider takes it: every call with its one result behind it, ids that are accepted and never twice."""

from collections.abc import Iterable
from typing import Final, TypeAlias

import attrs
import msgspec

from callboard.actors.events import Call
from callboard.actors.model import Assistant, Developer, PromptMessage, Result, User
from callboard.runtime.models.wire import plain_id

NOTHING_ASKED: Final = "(there is no message yet)"
NOTE: Final = "<note>\n{text}\n</note>"  # a developer's words where there are no developers
NO_RESULT: Final = "no result of this call was kept"


@attrs.frozen
class Answered:
    """A call under the id it is sent with, and what it gave."""

    call: Call
    id: str
    text: str
    failed: bool = False


@attrs.frozen
class Said:
    """An answer of the model, with its calls and their results."""

    message: Assistant
    calls: tuple[Answered, ...] = ()


Entry: TypeAlias = User | Developer | Said


def paired(messages: Iterable[PromptMessage]) -> list[Entry]:
    """The history in order, results moved to their calls.

    A call without a result gets one that says so, a result without a call is left out, and so is what says nothing.
    """
    entries: list[User | Developer | Assistant] = []
    results: dict[int, dict[str, Result]] = {}  # by the place of the answer that asked
    waiting: dict[str, int] = {}  # the id of an open call, and the place of the answer that asked
    for message in messages:
        if isinstance(message, Result):
            place = waiting.pop(message.call, None)
            if place is not None:
                results.setdefault(place, {})[message.call] = message
            continue
        if isinstance(message, Assistant):
            waiting.update((call.id, len(entries)) for call in message.calls)
        elif not message.text.strip():
            continue
        entries.append(message)
    used: set[str] = set()
    made: list[Entry] = []
    for place, entry in enumerate(entries):
        if not isinstance(entry, Assistant):
            made.append(entry)
        elif entry.calls or entry.text.strip() or entry.thoughts:
            given = results.get(place, {})
            calls = (_answered(call, _own(call.id, used), given.get(call.id)) for call in entry.calls)
            made.append(Said(entry, tuple(calls)))
    return made


def _answered(call: Call, id_: str, result: Result | None) -> Answered:
    if result is None:
        return Answered(call, id_, NO_RESULT, failed=True)
    return Answered(call, id_, result.text, result.failed)


def _own(id_: str, used: set[str]) -> str:
    """An id that no other call of the request has: turns may repeat the ids of turns before."""
    plain = own = plain_id(id_)
    again = 1
    while own in used:
        again += 1
        own = f"{plain[:30]}_{again}"
    used.add(own)
    return own


def arguments_text(call: Call) -> str:
    """The arguments as the JSON object that they have to be; what is none is shown inside one."""
    arguments = call.arguments
    if not isinstance(arguments, str):
        return msgspec.json.encode(arguments if isinstance(arguments, dict) else {"arguments": arguments}).decode()
    try:
        msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return msgspec.json.encode({"arguments": arguments} if arguments.strip() else {}).decode()
    return arguments

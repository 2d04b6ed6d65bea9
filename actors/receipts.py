"""What is written about a call that did not simply complete: receipts, outcomes, and the words the model reads."""

from collections.abc import Mapping
from types import MappingProxyType

from callboard.actors.books import Turn
from callboard.actors.calls import OpenCall
from callboard.actors.events import (
    CallReceipt,
    Cause,
    ControlCallEnded,
    Ending,
    Event,
    Outcome,
    Receipt,
    StepEnded,
    ToolReturned,
    TurnEnded,
    Usage,
)
from callboard.actors.values import NOTHING_USED

CONTROL_TOOLS = frozenset(
    {
        "update_plan",
        "todo_write",
        "exit_plan_mode",
        "request_user_input",
        "schedule_create",
        "schedule_list",
        "schedule_delete",
        "get_goal",
        "create_goal",
        "update_goal",
    }
)

NAME_MAX_CHARS = 64  # of a tool name that is quoted; no tool has a longer one

OUTCOMES: Mapping[Receipt, Outcome | None] = MappingProxyType(
    {
        "completed": "completed",
        "failed": "failed",
        "rejected": "rejected",
        "interrupted": "interrupted",
        "abandoned": "interrupted",
        "not_started": None,
        "outcome_unknown": "interrupted",
    }
)

_BY_CAUSE: Mapping[Cause, str] = MappingProxyType(
    {
        "interrupted": "aborted by user",
        "replaced": "aborted because a new task replaced this one",
        "parent": "aborted together with the parent agent",
        "budget": "aborted because a budget is used up",
        "shutdown": "aborted because the runtime is shutting down",
        "review_ended": "aborted because the review ended",
    }
)

MARKER = (
    "<turn_aborted>\n"
    "{who} stopped the previous turn on purpose. Commands that were started in the background may still be running, "
    "and tools that were cut off may have done part of their work: check before you repeat or rely on any of it.\n"
    "</turn_aborted>"
)

NOT_STARTED = "not started: {why}. Nothing of it ran; it may be called again."
MAY_REPEAT = "interrupted: the program ended while this ran. It is safe to run it again."
UNKNOWN = (
    "outcome unknown: the program ended while this ran, so its effect may or may not have happened. "
    "Verify before you repeat it."
)
STILL_RUNNING = "It did not stop in time and was left behind; what it may still do is not reported."


def aborted_by(cause: Cause) -> str:
    """The words that say who or what ended a call."""
    return _BY_CAUSE[cause]


def aborted_text(cause: Cause, receipt: Receipt, seconds: float, partial: str = "") -> str:
    """What the model reads for a call that an abort ended after `seconds`."""
    if receipt == "not_started":
        return NOT_STARTED.format(why=_BY_CAUSE[cause])
    text = f"{_BY_CAUSE[cause]} after {max(0.1, seconds):.1f}s"
    if receipt == "abandoned":
        text = f"{text}. {STILL_RUNNING}"
    return f"{text}\n{partial}" if partial else text


def marker_text(role: str) -> str:
    """The abort marker; as a developer's note it does not speak of the user."""
    return MARKER.format(who="The user" if role == "user" else "Somebody")


def cut_middle(text: str, limit_bytes: int) -> str:
    """`text` in `limit_bytes` of UTF-8 and a line between head and tail that says how many bytes are gone."""
    if len(text) * 4 <= limit_bytes:
        return text
    data = text.encode("utf-8", "replace")
    if len(data) <= limit_bytes:
        return text
    half = max(0, limit_bytes) // 2
    head = data[:half].decode("utf-8", "ignore")
    tail = data[len(data) - half :].decode("utf-8", "ignore")
    gone = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[... {gone:,} bytes cut ...]\n{tail}"


def clean_text(text: str) -> str:
    """`text` as UTF-8 can carry it: lone surrogates become U+FFFD; a subclass of str becomes a plain one."""
    plain = str.__str__(text)
    if plain.isascii():
        return plain
    try:
        plain.encode()
    except UnicodeEncodeError:
        return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return plain


def shown_name(name: str) -> str:
    """A tool name that came from outside, fit to be quoted: no control characters, at most 64 characters."""
    text = clean_text(name[: NAME_MAX_CHARS + 1])
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return text if len(text) <= NAME_MAX_CHARS else text[: NAME_MAX_CHARS - 1] + "\N{HORIZONTAL ELLIPSIS}"


def ending_of(receipts: tuple[Receipt, ...], told: bool) -> Ending:
    """How an abort ended, at its worst: abandoned, else graceful when a tool was told, else cancelled."""
    if "abandoned" in receipts:
        return "abandoned"
    return "graceful" if told else "cancelled"


def repair(turn: Turn, at_ms: int, tree_usage: Usage = NOTHING_USED) -> tuple[Event, ...]:
    """The events that close a turn which a crash left open; deterministic, adds only, empty for a closed turn.

    Each open call gets one result: never dispatched `not_started`; dispatched, by its effect, `interrupted` (may be
    repeated) or `outcome_unknown`. A control call that was dispatched gets its one fact.
    """
    if not turn.open:
        return ()
    events: list[Event] = []
    receipts = list(turn.receipts)
    for one in turn.open_calls():
        returned = repaired(one)
        events.append(returned)
        if one.started and one.call.name in CONTROL_TOOLS:
            events.append(ControlCallEnded(one.call.id, one.cell, one.call.name, at_ms, at_ms, "interrupted"))
        receipts.append(_receipt(returned))
    if turn.in_step:
        events.append(StepEnded(turn.number, turn.step))
    events.append(
        TurnEnded(
            turn.number,
            "interrupted",
            last_message=turn.last_message,
            receipts=tuple(receipts),
            usage=turn.usage,
            steps=turn.step,
            tool_calls=turn.tool_calls,
            started_ms=turn.started_ms,
            ended_ms=at_ms,
            truncated=turn.truncated,
            kind=turn.kind,
            tree_usage=tree_usage,
        )
    )
    return tuple(events)


def found(one: OpenCall) -> tuple[Receipt, str]:
    """What became of a call that the end of its program cut off, and what the model reads of it."""
    if not one.started:
        return "not_started", NOT_STARTED.format(why="the program ended before this call ran")
    return ("interrupted", MAY_REPEAT) if one.repeatable else ("outcome_unknown", UNKNOWN)


def repaired(one: OpenCall) -> ToolReturned:
    """Its result."""
    receipt, text = found(one)
    return ToolReturned(one.call.id, receipt, OUTCOMES[receipt], text, name=one.call.name, cell=one.cell)


def _receipt(returned: ToolReturned) -> CallReceipt:
    return CallReceipt(returned.call, returned.name, returned.receipt, returned.seconds)

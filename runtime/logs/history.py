"""History: a recorded session of another agent as the events of a whole log."""

from collections.abc import Iterator
from typing import Final

from callboard.actors.events import (
    AbortRequested,
    Call,
    CallReceipt,
    Event,
    MessageQueued,
    MessagesClaimed,
    ModelSaid,
    Receipt,
    SessionOpened,
    StepEnded,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    Usage,
)
from callboard.actors.receipts import clean_text
from callboard.runtime.recordings import RecordedCall, RecordedReply, RecordedTurn, Recording

ABORTED: Final = "aborted"
"""What a call without output is given."""
TITLE_MAX_CHARS: Final = 60
NO_TITLE: Final = "imported from {format}"


def events_of(recording: Recording, session: str) -> Iterator[Event]:
    """All events, from the opening on; each turn is closed and each call has its one result."""
    yield SessionOpened(root=session, title=_title(recording))
    seq = 1
    for number, turn in enumerate(recording.turns, 1):
        for event in _turn(turn, number, seq, recording.format):
            yield event
            seq += 1


def _title(recording: Recording) -> str:
    first = " ".join(recording.turns[0].prompt.split()) if recording.turns else ""
    shown = "".join(char for char in first if char.isprintable())[:TITLE_MAX_CHARS].strip()
    return shown or NO_TITLE.format(format=recording.format)


def _turn(turn: RecordedTurn, number: int, seq: int, provider: str) -> Iterator[Event]:
    id_, receipts, said, usage = f"auto:{number}", list[CallReceipt](), "", Usage()
    yield MessageQueued(id_, clean_text(turn.prompt), seq=seq, turn=number)
    yield TurnStarted(number)
    yield MessagesClaimed((id_,))
    for step, reply in enumerate(turn.replies, 1):
        used = _usage(reply)
        usage, said = usage.plus(used), reply.text or said
        calls = tuple(Call(clean_text(call.name), _arguments(call), clean_text(call.id)) for call in reply.calls)
        yield StepStarted(number, step)
        yield ModelSaid(clean_text(reply.text), calls, usage=used, provider=provider)
        for call in reply.calls:
            receipt: Receipt = "interrupted" if call.result is None else "failed" if call.failed else "completed"
            receipts.append(CallReceipt(clean_text(call.id), clean_text(call.name), receipt))
            yield from _called(call, receipt)
        yield StepEnded(number, step)
    if turn.interrupted:
        yield AbortRequested(number, "interrupted")
    yield TurnEnded(
        number,
        "aborted" if turn.interrupted else "completed",
        "interrupted" if turn.interrupted else None,
        clean_text(said) or None,
        receipts=tuple(receipts),
        usage=usage,
        steps=len(turn.replies),
        tool_calls=len(receipts),
    )


def _called(call: RecordedCall, receipt: Receipt) -> Iterator[Event]:
    id_, name = clean_text(call.id), clean_text(call.name)
    yield ToolCalled(id_, name, _arguments(call))
    outcome = None if receipt not in ("completed", "failed", "interrupted") else receipt
    yield ToolReturned(id_, receipt, outcome, clean_text(ABORTED if call.result is None else call.result), name=name)


def _arguments(call: RecordedCall) -> object:
    return clean_text(call.arguments) if isinstance(call.arguments, str) else call.arguments


def _usage(reply: RecordedReply) -> Usage:
    """The tokens as far as they were counted; the names are Codex's, and those that others share with it."""
    counted = reply.usage or {}

    def tokens(*names: str) -> int:
        found = (counted.get(name) for name in names)
        return next((one for one in found if type(one) is int and 0 <= one < 2**53), 0)

    cached = tokens("cached_input_tokens", "cache_read_input_tokens", "cacheRead")
    return Usage(
        tokens("input_tokens", "input"),
        cached,
        tokens("output_tokens", "output"),
        tokens("reasoning_output_tokens"),
    )

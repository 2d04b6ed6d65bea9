"""The built-in folds: opening, queue, history, the open turn, usage, mode, children, seen ids."""

from typing import TypeAlias

import msgspec

from callboard.actors.events import (
    AbortRequested,
    Call,
    CallReceipt,
    Cause,
    Effect,
    Event,
    Message,
    MessageQueued,
    MessagesClaimed,
    MessageWithdrawn,
    ModelSaid,
    NoteAdded,
    QueueParked,
    SessionOpened,
    StartKind,
    StepEnded,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnKind,
    TurnStarted,
    Usage,
    Value,
)
from callboard.actors.facts import ChildEnded, ChildSpawned, ChildStatus, PlanModeRequested, PlanModeSet
from callboard.actors.fold import Index, Projection, Trail
from callboard.actors.model import Assistant, Developer, PromptMessage, Result, User

Queue: TypeAlias = tuple[Message, ...]


def _opened(state: SessionOpened | None, event: SessionOpened) -> SessionOpened | None:
    return event


OPENED: Projection[SessionOpened | None] = Projection("opened", None, _opened, on=(SessionOpened,))


def queued(queue: Queue, event: Event) -> Queue:
    """The input that waits, oldest first."""
    match event:
        case MessageQueued():
            return (*queue, Message(event.id, event.text, event.source, event.wake))
        case MessageWithdrawn():
            return tuple(message for message in queue if message.id != event.id)
        case MessagesClaimed():
            return tuple(message for message in queue if message.id not in event.ids)
    return queue


_QUEUE_EVENTS = (MessageQueued, MessageWithdrawn, MessagesClaimed)
QUEUE: Projection[Queue] = Projection("queue", (), queued, on=_QUEUE_EVENTS)


def _parked(state: bool, event: QueueParked) -> bool:
    return state if state == event.parked else event.parked


PARKED: Projection[bool] = Projection("parked", False, _parked, on=(QueueParked,))


class History(Value, frozen=True):
    """What the model has seen, and the queued input that may still enter."""

    messages: Trail[PromptMessage] = msgspec.field(default_factory=Trail)
    queue: Queue = ()


def _history(state: History, event: Event) -> History:
    match event:
        case ToolReturned():
            failed = event.receipt != "completed"
            added: PromptMessage = Result(event.call, event.name, event.text, failed)
        case ModelSaid():
            if not event.text and not event.calls:
                return state
            added = Assistant(event.text, event.calls, event.interrupted)
        case NoteAdded():
            added = User(event.text, event.source) if event.role == "user" else Developer(event.text)
        case MessagesClaimed():
            return _claimed(state, event)
        case MessageQueued() | MessageWithdrawn():
            return History(state.messages, queued(state.queue, event))
        case _:
            return state
    return History(state.messages.plus(added), state.queue)


def _claimed(state: History, event: MessagesClaimed) -> History:
    entering = event.messages
    if entering is None:
        by_id = {message.id: message for message in state.queue}
        entering = tuple(by_id[id] for id in event.ids if id in by_id)
    users = (User(message.text, message.source) for message in entering)
    return History(state.messages.plus(*users), queued(state.queue, event))


HISTORY: Projection[History] = Projection(
    "history", History(), _history, on=(ToolReturned, ModelSaid, NoteAdded, *_QUEUE_EVENTS)
)


class OpenCall(Value, frozen=True):
    """A call without its result; `started` once its ToolCalled is on the log."""

    call: Call
    started: bool = False
    effect: Effect = "once"


class Turn(Value, frozen=True):
    """The running turn, or the last one; `number` 0 before the first, `open` while it runs."""

    number: int = 0
    open: bool = False
    kind: TurnKind = "regular"
    start: StartKind = "user"
    step: int = 0
    in_step: bool = False
    calls: tuple[OpenCall, ...] = ()
    receipts: tuple[CallReceipt, ...] = ()
    tool_calls: int = 0
    cause: Cause | None = None
    last_message: str | None = None
    truncated: bool = False
    started_ms: int = 0
    usage: Usage = Usage()


def _turn(state: Turn, event: Event) -> Turn:
    replace = msgspec.structs.replace
    match event:
        case ToolCalled():
            calls = tuple(
                OpenCall(one.call, True, event.effect) if one.call.id == event.call else one for one in state.calls
            )
            return replace(state, calls=calls)
        case ToolReturned():
            receipt = CallReceipt(event.call, event.name, event.receipt, event.seconds)
            calls = tuple(one for one in state.calls if one.call.id != event.call)
            return replace(state, calls=calls, receipts=(*state.receipts, receipt))
        case ModelSaid():
            opened = tuple(OpenCall(call) for call in event.calls)
            return replace(
                state,
                calls=state.calls + opened,
                tool_calls=state.tool_calls + len(opened),
                last_message=event.text or state.last_message,
                truncated=state.truncated or event.truncated,
                usage=state.usage.plus(event.usage),
            )
        case StepStarted():
            return replace(state, step=event.step, in_step=True)
        case StepEnded():
            return replace(state, in_step=False)
        case AbortRequested():
            return state if state.cause is not None else replace(state, cause=event.cause)
        case TurnStarted():
            return Turn(event.turn, open=True, kind=event.kind, start=event.start, started_ms=event.started_ms)
        case TurnEnded():
            return replace(state, open=False, in_step=False, calls=())
    return state


TURN: Projection[Turn] = Projection(
    "turn",
    Turn(),
    _turn,
    on=(ToolCalled, ToolReturned, ModelSaid, StepStarted, StepEnded, AbortRequested, TurnStarted, TurnEnded),
)


def _usage(state: Usage, event: ModelSaid) -> Usage:
    return state if event.usage == _NO_USAGE else state.plus(event.usage)


_NO_USAGE = Usage()
USAGE: Projection[Usage] = Projection("usage", _NO_USAGE, _usage, on=(ModelSaid,))


class Mode(Value, frozen=True, omit_defaults=False):
    """Plan mode: `active` by the log, and a selection that waits for the next step (None without one)."""

    active: bool = False
    pending: bool | None = None
    narrate: bool = True


def _mode(state: Mode, event: Event) -> Mode:
    match event:
        case PlanModeRequested():
            return Mode(state.active, event.active, event.narrate)
        case PlanModeSet():
            return Mode(event.active)
    return state


MODE: Projection[Mode] = Projection("plan_mode", Mode(), _mode, on=(PlanModeRequested, PlanModeSet))


class Child(Value, frozen=True, omit_defaults=False):
    """A subagent as its parent knows it; `text` is its last message or its error."""

    id: str
    path: str
    task: str
    status: ChildStatus = "running"
    text: str = ""
    turn: int = 0


def _children(state: tuple[Child, ...], event: Event) -> tuple[Child, ...]:
    match event:
        case ChildSpawned():
            return (*state, Child(event.child, event.path, event.task))
        case ChildEnded():
            return tuple(_ended(child, event) if child.id == event.child else child for child in state)
    return state


def _ended(child: Child, event: ChildEnded) -> Child:
    return Child(child.id, child.path, child.task, event.status, event.text, event.turn)


CHILDREN: Projection[tuple[Child, ...]] = Projection("children", (), _children, on=(ChildSpawned, ChildEnded))


class Seen(Value, frozen=True):
    """Ids that senders chose, each with the answer it got (seq, turn); and how many messages were ever queued."""

    ids: Index[tuple[int, int | None]] = msgspec.field(default_factory=Index)
    count: int = 0


def _seen(state: Seen, event: MessageQueued) -> Seen:
    ids = state.ids.plus(event.id, (event.seq, event.turn)) if event.given else state.ids
    return Seen(ids, state.count + 1)


SEEN: Projection[Seen] = Projection("seen", Seen(), _seen, on=(MessageQueued,))


BUILT_IN: tuple[Projection[object], ...] = (
    OPENED,
    QUEUE,
    PARKED,
    HISTORY,
    TURN,
    USAGE,
    MODE,
    CHILDREN,
    SEEN,
)  # type: ignore[assignment]  # a tuple of projections of many states

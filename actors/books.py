"""The built-in folds: opening, queue, history, the open turn, usage, the window, found tools; all of them together."""

from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from callboard.actors.asked import ANSWERS, APPROVALS, PERMISSIONS, QUESTIONS
from callboard.actors.calls import NO_CALLS, Calls, OpenCall
from callboard.actors.children import CHILDREN
from callboard.actors.events import (
    AbortRequested,
    CallReceipt,
    Cause,
    CellCalled,
    Compacted,
    Message,
    MessageEdited,
    MessageQueued,
    MessagesClaimed,
    MessageWithdrawn,
    ModelChosen,
    ModelSaid,
    NoteAdded,
    QueueParked,
    SessionForked,
    SessionOpened,
    StartKind,
    StepEnded,
    StepStarted,
    TaskName,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnKind,
    TurnRecovered,
    TurnStarted,
    Usage,
    Value,
)
from callboard.actors.facts import PlanProposed, ToolsFound
from callboard.actors.fold import Projection, Trail, table
from callboard.actors.line import Line
from callboard.actors.mode import MODE
from callboard.actors.model import Assistant, Developer, PromptMessage, Result, User
from callboard.actors.seen import SEEN, SHELLS
from callboard.actors.values import NOTHING_USED

Queue: TypeAlias = tuple[Message, ...]


def _model_chosen(opened: SessionOpened | None, event: ModelChosen) -> SessionOpened | None:
    return None if opened is None else replace(opened, model=event.model)


OPENED: Projection[SessionOpened | None] = table(
    "opened", None, {SessionOpened: lambda _, event: event, ModelChosen: _model_chosen}, state=SessionOpened | None
)


def _queue_grew(queue: Queue, event: MessageQueued) -> Queue:
    message = Message(event.id, event.text, event.source, event.wake, schema=event.schema, task=event.task)
    if not event.task:
        return Line.of(queue).grown(message)
    ahead = sum(bool(other.returned or other.task) for other in queue)  # they stand together at the front
    return Line.of((*queue[:ahead], message, *queue[ahead:]))


def _queue_edited(queue: Queue, event: MessageEdited) -> Queue:
    return Line.of(tuple(replace(message, text=event.text) if message.id == event.id else message for message in queue))


def _queue_lost(queue: Queue, event: MessageWithdrawn) -> Queue:
    return Line.of(tuple(message for message in queue if message.id != event.id))


def _queue_returned(queue: Queue, event: TurnEnded) -> Queue:
    """What was steered into a turn that was cut off before it took it: back to the front, marked."""
    if not queue or event.reason in ("completed", "blocked"):
        return queue
    steered = tuple(message for message in queue if message.source == "steer")
    if not steered:
        return queue
    rest = tuple(message for message in queue if message.source != "steer")
    return Line.of((*(replace(message, returned=True) for message in steered), *rest))


def _queue_claimed(queue: Queue, event: MessagesClaimed) -> Queue:
    ids = frozenset(event.ids)
    return Line.of(tuple(message for message in queue if message.id not in ids)) if ids else queue


QUEUE: Projection[Queue] = table(
    "queue",
    (),
    {
        MessageQueued: _queue_grew,
        MessageEdited: _queue_edited,
        MessageWithdrawn: _queue_lost,
        MessagesClaimed: _queue_claimed,
        TurnEnded: _queue_returned,
        SessionForked: lambda _, event: (),
    },
    state=Queue,
)
"""The input that waits: what came back from a turn that was cut off, what starts a task, then the oldest."""


PARKED: Projection[bool] = table(
    "parked", zero=False, cases={QueueParked: lambda _, event: event.parked, SessionForked: lambda _, event: False}
)


class History(Value, frozen=True):
    """What the model has seen, and the queued input that may still enter."""

    messages: Trail[PromptMessage] = msgspec.field(default_factory=Trail)
    queue: Queue = ()


def _returned(state: History, event: ToolReturned) -> History:
    if event.cell is not None:
        return state
    result = Result(event.call, event.name, event.text, event.receipt != "completed")
    return History(state.messages.plus(result), state.queue)


def _said(state: History, event: ModelSaid) -> History:
    if not event.text and not event.calls:
        return state
    return History(
        state.messages.plus(Assistant(event.text, event.calls, event.interrupted, event.thoughts)), state.queue
    )


def _proposed(state: History, event: PlanProposed) -> History:
    ended = "" if event.text.endswith("\n") else "\n"  # the block was open at the end of what was said
    plan = Assistant(f"<proposed_plan>\n{event.text}{ended}</proposed_plan>")
    return History(state.messages.plus(plan), state.queue)


def _noted(state: History, event: NoteAdded) -> History:
    role, text = event.role, event.text
    note = User(text, event.source) if role == "user" else Assistant(text) if role == "assistant" else Developer(text)
    return History(state.messages.plus(note), state.queue)


def _grew(state: History, event: MessageQueued) -> History:
    return History(state.messages, _queue_grew(state.queue, event))


def _edited(state: History, event: MessageEdited) -> History:
    return History(state.messages, _queue_edited(state.queue, event))


def _lost(state: History, event: MessageWithdrawn) -> History:
    return History(state.messages, _queue_lost(state.queue, event))


def _over(state: History, event: TurnEnded) -> History:
    queue = _queue_returned(state.queue, event)
    return state if queue is state.queue else History(state.messages, queue)


def _claimed(state: History, event: MessagesClaimed) -> History:
    entering = event.messages
    if entering is None:
        by_id = {message.id: message for message in state.queue}
        entering = tuple(by_id[id] for id in event.ids if id in by_id)
    users = (User(message.text, message.source) for message in entering)
    return History(state.messages.plus(*users), _queue_claimed(state.queue, event))


def _shrank(state: History, event: Compacted) -> History:
    """What the user said lately, then the summary of everything else; what is queued stays queued."""
    users = (User(kept.text, kept.source) for kept in event.kept)
    return History(Trail((*users, User(event.prefix + event.summary, "notice"))), state.queue)


HISTORY: Projection[History] = table(
    "history",
    History(),
    {
        ToolReturned: _returned,
        ModelSaid: _said,
        PlanProposed: _proposed,
        NoteAdded: _noted,
        MessageQueued: _grew,
        MessageEdited: _edited,
        MessageWithdrawn: _lost,
        MessagesClaimed: _claimed,
        TurnEnded: _over,
        Compacted: _shrank,
        SessionForked: lambda state, _: History(state.messages),
    },
)


class Turn(Value, frozen=True):
    """The running turn, or the last one; `number` 0 before the first, `open` while it runs.

    `calls` are the model's, `nested` the open ones that bodies of those made. These and `results` are empty once it has
    ended: its TurnEnded has them. `answer` is what the model said in the newest step, None until it has, `acts` whether
    that asked for calls; `recoveries` counts how often the turn went on in that step after a crash.
    """

    number: int = 0
    open: bool = False
    kind: TurnKind = "regular"
    start: StartKind = "user"
    step: int = 0
    in_step: bool = False
    calls: Calls = NO_CALLS
    nested: tuple[OpenCall, ...] = ()
    results: Trail[CallReceipt] = msgspec.field(default_factory=Trail)
    tool_calls: int = 0
    cause: Cause | None = None
    spoken: bool = False  # the user said something since it was asked to abort
    last_message: str | None = None
    truncated: bool = False
    started_ms: int = 0
    usage: Usage = Usage()
    schema: Any = None
    task: TaskName = ""
    answer: str | None = None
    acts: bool = False
    recoveries: int = 0

    @property
    def receipts(self) -> tuple[CallReceipt, ...]:
        """What became of the calls so far, in the order of their results."""
        return tuple(self.results)

    def open_calls(self) -> tuple[OpenCall, ...]:
        """The calls without a result: first the nested ones, which must have theirs before the call they are in."""
        return (*self.nested, *self.calls.open())

    def find_nested(self, id: str) -> OpenCall | None:
        """The open nested call of that id."""
        return next((one for one in self.nested if one.call.id == id), None)


def _turn_started(_: Turn, event: TurnStarted) -> Turn:
    kind, start, at_ms, schema, task = event.kind, event.start, event.started_ms, event.schema, event.task
    return Turn(event.turn, open=True, kind=kind, start=start, started_ms=at_ms, schema=schema, task=task)


def _turn_ended(state: Turn, _: TurnEnded) -> Turn:
    return replace(
        state,
        open=False,
        in_step=False,
        calls=NO_CALLS,
        nested=(),
        results=Trail(),
        answer=None,
        acts=False,
        recoveries=0,
    )


def _recovered(state: Turn, event: TurnRecovered) -> Turn:
    return replace(state, recoveries=event.times)


def _step_started(state: Turn, event: StepStarted) -> Turn:
    return replace(state, step=event.step, in_step=True, answer=None, acts=False, recoveries=0)


def _step_ended(state: Turn, _: StepEnded) -> Turn:
    return replace(state, in_step=False)


def _answered(state: Turn, event: ModelSaid) -> Turn:
    calls = event.calls
    return replace(
        state,
        calls=state.calls.ask(calls) if calls else state.calls,
        tool_calls=state.tool_calls + len(calls),
        last_message=event.text or state.last_message,
        truncated=state.truncated or event.truncated,
        usage=state.usage.plus(event.usage),
        answer=state.answer if event.interrupted else event.text,
        acts=state.acts or bool(calls),
    )


def _nested(state: Turn, event: CellCalled) -> Turn:
    made = OpenCall(event.call, cell=event.cell)
    calls, nested = state.calls.nest(event.cell), (*state.nested, made)
    return replace(state, calls=calls, nested=nested, tool_calls=state.tool_calls + 1)


def _nested_started(one: OpenCall, event: ToolCalled) -> OpenCall:
    if one.call.id != event.call:
        return one
    return OpenCall(one.call, started=True, repeatable=event.effect != "once", cell=one.cell)


def _summarised(state: Turn, event: Compacted) -> Turn:
    return replace(state, usage=state.usage.plus(event.usage))


def _call_started(state: Turn, event: ToolCalled) -> Turn:
    if event.cell is not None:
        return replace(state, nested=tuple(_nested_started(one, event) for one in state.nested))
    return replace(state, calls=state.calls.start(event.call, event.effect, event.arguments))


def _call_ended(state: Turn, event: ToolReturned) -> Turn:
    receipt = CallReceipt(event.call, event.name, event.receipt, event.seconds)
    if event.cell is not None:
        nested = tuple(one for one in state.nested if one.call.id != event.call)
        return replace(state, nested=nested, results=state.results.plus(receipt))
    return replace(state, calls=state.calls.finish(event.call), results=state.results.plus(receipt))


def _heard(state: Turn, event: MessageQueued) -> Turn:
    speaks = event.source in ("user", "steer") and event.task in ("", "replace")
    spoken = speaks and state.open and state.cause is not None
    return replace(state, spoken=True) if spoken else state


def _released(state: Turn, event: QueueParked) -> Turn:
    spoken = state.open and state.cause is not None and not event.parked
    return replace(state, spoken=True) if spoken else state


def _abort_requested(state: Turn, event: AbortRequested) -> Turn:
    return state if state.cause is not None else replace(state, cause=event.cause)


TURN: Projection[Turn] = table(
    "turn",
    Turn(),
    {
        TurnStarted: _turn_started,
        TurnEnded: _turn_ended,
        TurnRecovered: _recovered,
        StepStarted: _step_started,
        StepEnded: _step_ended,
        ModelSaid: _answered,
        CellCalled: _nested,
        ToolCalled: _call_started,
        ToolReturned: _call_ended,
        AbortRequested: _abort_requested,
        MessageQueued: _heard,
        QueueParked: _released,
        Compacted: _summarised,
    },
    version=2,
)


def _usage(state: Usage, event: ModelSaid | Compacted) -> Usage:
    return state if event.usage == NOTHING_USED else state.plus(event.usage)


USAGE: Projection[Usage] = table("usage", NOTHING_USED, {ModelSaid: _usage, Compacted: _usage})


def _filled(state: int, event: ModelSaid) -> int:
    usage = event.usage
    return usage.input + usage.output or state


FILLED: Projection[int] = table("filled", 0, {ModelSaid: _filled, Compacted: lambda _, event: 0})
"""Tokens of the last request and its answer, as the provider counted them; 0 when none was counted since the start or
the last compaction."""


def _found(state: tuple[str, ...], event: ToolsFound) -> tuple[str, ...]:
    return (*state, *(name for name in dict.fromkeys(event.names) if name not in state))


FOUND: Projection[tuple[str, ...]] = table("found", (), {ToolsFound: _found}, state=tuple[str, ...])
"""The deferred tools that were found, in that order."""


BUILT_IN: tuple[Projection[object], ...] = (
    OPENED,
    QUEUE,
    PARKED,
    HISTORY,
    TURN,
    USAGE,
    FILLED,
    MODE,
    CHILDREN,
    SEEN,
    FOUND,
    SHELLS,
    QUESTIONS,
    APPROVALS,
    ANSWERS,
    PERMISSIONS,
)  # type: ignore[assignment]  # a tuple of projections of many states

"""Envelope: an event in its place on a log; with the kinds of events that every log may hold."""

import msgspec

from callboard.actors.events import (
    AbortRequested,
    CellCalled,
    Compacted,
    ControlCallEnded,
    Event,
    HookFailed,
    HookWarned,
    MessageEdited,
    MessageQueued,
    MessagesClaimed,
    MessageWithdrawn,
    ModelChosen,
    ModelFailed,
    ModelSaid,
    NoteAdded,
    QueueParked,
    SessionForked,
    SessionOpened,
    ShellEnded,
    ShellStarted,
    StepEnded,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnRecovered,
    TurnStarted,
    VerbAnswered,
)


class Unknown(Event, frozen=True):
    """An ignorable event of a kind this build does not know; kept as the bytes it came in."""

    name: str
    body: bytes


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """An event in its place: the session's id, its number from 0, wall milliseconds UTC, and the turn it fell in."""

    session: str
    seq: int
    at_ms: int
    turn: int | None
    event: Event


CORE_EVENTS: tuple[type[Event], ...] = (
    SessionOpened,
    MessageQueued,
    MessageWithdrawn,
    MessagesClaimed,
    QueueParked,
    NoteAdded,
    TurnStarted,
    TurnRecovered,
    StepStarted,
    StepEnded,
    ModelSaid,
    ModelFailed,
    ToolCalled,
    ToolReturned,
    ControlCallEnded,
    AbortRequested,
    TurnEnded,
    HookFailed,
    HookWarned,
    CellCalled,
    Compacted,
    MessageEdited,
    VerbAnswered,
    ShellStarted,
    ShellEnded,
    SessionForked,
    ModelChosen,
)

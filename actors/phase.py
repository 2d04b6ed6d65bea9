"""The phase table: what a message does in each phase of a session, and the phase that follows.

Rules: this is the only place that decides what a message does; it knows no clock, no log and no task. A pair that is
not in the table cannot happen, and `on` says so loudly.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType

from callboard.actors.messages import (
    AnswerQuestion,
    Approve,
    Await,
    ChildDone,
    Compact,
    Edit,
    HandedOver,
    Inject,
    Interrupt,
    Letter,
    Mail,
    Passivate,
    Replace,
    ResumeQueue,
    Review,
    SetMode,
    Shell,
    Steer,
    Stop,
    StopOnce,
    Submit,
    SubmitOrSteer,
    TaskDone,
    UseCommand,
    Wake,
    Withdraw,
)


class Phase(enum.Enum):
    """What a session's slot holds."""

    STARTING = "starting"  # the log is being read; nothing runs yet
    IDLE = "idle"  # the slot is empty
    RUNNING = "running"  # one task runs
    ABORTING = "aborting"  # the task is ending; the slot stays taken until the end is flushed
    STOPPING = "stopping"  # aborting, and the session ends with it
    STOPPED = "stopped"
    PASSIVATED = "passivated"  # it left memory; its log is in the store, and a message brings it back as a new actor


class Do(enum.Enum):
    """What the session does about a message."""

    START = enum.auto()  # queue it and start a turn with it
    QUEUE = enum.auto()  # queue it
    REPLACE = enum.auto()  # queue it before all other input, and end the running task
    BESIDE = enum.auto()  # run it beside the running task, if that still runs
    JOIN = enum.auto()  # queue it for the running turn, if that still takes input
    DECLINE = enum.auto()  # answer that no turn is active
    LATER = enum.auto()  # keep the message until the log is read
    ABORT = enum.auto()  # open the abort window
    REPEAT = enum.auto()  # answer as the first interrupt was answered
    NOTHING = enum.auto()  # answer Idle
    EDIT = enum.auto()  # change or release queued input, settle what was asked, use a command, note a stop that follows
    MODE = enum.auto()  # commit or select the mode
    FIRE = enum.auto()  # let what is due append, then start if that queued something
    WATCH = enum.auto()  # answer when the turn has ended
    NEXT = enum.auto()  # the slot is free: start what is queued, or rest
    CLOSE = enum.auto()  # flush and end the actor
    END = enum.auto()  # the task is over and so is the session
    LEAVE = enum.auto()  # flush and leave memory, unless something holds it
    REFUSE = enum.auto()  # SessionClosed
    IGNORE = enum.auto()


_S, _I, _R, _A, _G, _X, _P = (
    Phase.STARTING,
    Phase.IDLE,
    Phase.RUNNING,
    Phase.ABORTING,
    Phase.STOPPING,
    Phase.STOPPED,
    Phase.PASSIVATED,
)
Row = Mapping[type[Letter], tuple[Do, Phase]]

TABLE: Mapping[Phase, Row] = MappingProxyType(
    {
        _S: {
            Submit: (Do.LATER, _S),
            Steer: (Do.LATER, _S),
            SubmitOrSteer: (Do.LATER, _S),
            Replace: (Do.LATER, _S),
            Compact: (Do.LATER, _S),
            Review: (Do.LATER, _S),
            Shell: (Do.LATER, _S),
            Inject: (Do.LATER, _S),
            Mail: (Do.LATER, _S),
            Withdraw: (Do.LATER, _S),
            Edit: (Do.LATER, _S),
            ResumeQueue: (Do.LATER, _S),
            Interrupt: (Do.NOTHING, _S),
            Stop: (Do.LATER, _S),
            SetMode: (Do.LATER, _S),
            StopOnce: (Do.LATER, _S),
            AnswerQuestion: (Do.LATER, _S),
            Approve: (Do.LATER, _S),
            UseCommand: (Do.LATER, _S),
            HandedOver: (Do.LATER, _S),
            ChildDone: (Do.LATER, _S),
            Wake: (Do.LATER, _S),
            Passivate: (Do.LATER, _S),
            Await: (Do.LATER, _S),
        },
        _I: {
            Submit: (Do.START, _R),
            Steer: (Do.DECLINE, _I),
            SubmitOrSteer: (Do.START, _R),
            Replace: (Do.START, _R),
            Compact: (Do.START, _R),
            Review: (Do.START, _R),
            Shell: (Do.START, _R),
            Inject: (Do.QUEUE, _I),
            Mail: (Do.QUEUE, _I),
            Withdraw: (Do.EDIT, _I),
            Edit: (Do.EDIT, _I),
            ResumeQueue: (Do.EDIT, _I),
            Interrupt: (Do.NOTHING, _I),
            Stop: (Do.CLOSE, _X),
            SetMode: (Do.MODE, _I),
            StopOnce: (Do.EDIT, _I),
            AnswerQuestion: (Do.EDIT, _I),
            Approve: (Do.EDIT, _I),
            UseCommand: (Do.EDIT, _I),
            HandedOver: (Do.EDIT, _I),
            ChildDone: (Do.QUEUE, _I),
            Wake: (Do.FIRE, _I),
            Passivate: (Do.LEAVE, _P),
            Await: (Do.WATCH, _I),
        },
        _R: {
            Submit: (Do.QUEUE, _R),
            Steer: (Do.JOIN, _R),
            SubmitOrSteer: (Do.JOIN, _R),
            Replace: (Do.REPLACE, _A),
            Compact: (Do.REPLACE, _A),
            Review: (Do.REPLACE, _A),
            Shell: (Do.BESIDE, _R),
            Inject: (Do.QUEUE, _R),
            Mail: (Do.QUEUE, _R),
            Withdraw: (Do.EDIT, _R),
            Edit: (Do.EDIT, _R),
            ResumeQueue: (Do.EDIT, _R),
            Interrupt: (Do.ABORT, _A),
            Stop: (Do.ABORT, _G),
            SetMode: (Do.MODE, _R),
            StopOnce: (Do.EDIT, _R),
            AnswerQuestion: (Do.EDIT, _R),
            Approve: (Do.EDIT, _R),
            UseCommand: (Do.EDIT, _R),
            HandedOver: (Do.EDIT, _R),
            ChildDone: (Do.QUEUE, _R),
            Wake: (Do.IGNORE, _R),
            Passivate: (Do.IGNORE, _R),
            Await: (Do.WATCH, _R),
            TaskDone: (Do.NEXT, _I),
        },
        _A: {
            Submit: (Do.QUEUE, _A),
            Steer: (Do.DECLINE, _A),
            SubmitOrSteer: (Do.QUEUE, _A),
            Replace: (Do.QUEUE, _A),
            Compact: (Do.QUEUE, _A),
            Review: (Do.QUEUE, _A),
            Shell: (Do.QUEUE, _A),
            Inject: (Do.QUEUE, _A),
            Mail: (Do.QUEUE, _A),
            Withdraw: (Do.EDIT, _A),
            Edit: (Do.EDIT, _A),
            ResumeQueue: (Do.EDIT, _A),
            Interrupt: (Do.REPEAT, _A),
            Stop: (Do.REPEAT, _G),
            SetMode: (Do.MODE, _A),
            StopOnce: (Do.EDIT, _A),
            AnswerQuestion: (Do.EDIT, _A),
            Approve: (Do.EDIT, _A),
            UseCommand: (Do.EDIT, _A),
            HandedOver: (Do.EDIT, _A),
            ChildDone: (Do.QUEUE, _A),
            Wake: (Do.IGNORE, _A),
            Passivate: (Do.IGNORE, _A),
            Await: (Do.WATCH, _A),
            TaskDone: (Do.NEXT, _I),
        },
        _G: {
            Submit: (Do.REFUSE, _G),
            Steer: (Do.REFUSE, _G),
            SubmitOrSteer: (Do.REFUSE, _G),
            Replace: (Do.REFUSE, _G),
            Compact: (Do.REFUSE, _G),
            Review: (Do.REFUSE, _G),
            Shell: (Do.REFUSE, _G),
            Inject: (Do.REFUSE, _G),
            Mail: (Do.REFUSE, _G),
            Withdraw: (Do.EDIT, _G),
            Edit: (Do.EDIT, _G),
            ResumeQueue: (Do.REFUSE, _G),
            Interrupt: (Do.REPEAT, _G),
            Stop: (Do.REPEAT, _G),
            SetMode: (Do.REFUSE, _G),
            StopOnce: (Do.REFUSE, _G),
            AnswerQuestion: (Do.REFUSE, _G),
            Approve: (Do.REFUSE, _G),
            UseCommand: (Do.REFUSE, _G),
            HandedOver: (Do.REFUSE, _G),
            ChildDone: (Do.QUEUE, _G),
            Wake: (Do.IGNORE, _G),
            Passivate: (Do.IGNORE, _G),
            Await: (Do.WATCH, _G),
            TaskDone: (Do.END, _X),
        },
        _X: {
            Submit: (Do.REFUSE, _X),
            Steer: (Do.REFUSE, _X),
            SubmitOrSteer: (Do.REFUSE, _X),
            Replace: (Do.REFUSE, _X),
            Compact: (Do.REFUSE, _X),
            Review: (Do.REFUSE, _X),
            Shell: (Do.REFUSE, _X),
            Inject: (Do.REFUSE, _X),
            Mail: (Do.REFUSE, _X),
            Withdraw: (Do.REFUSE, _X),
            Edit: (Do.REFUSE, _X),
            ResumeQueue: (Do.REFUSE, _X),
            Interrupt: (Do.NOTHING, _X),
            Stop: (Do.NOTHING, _X),
            SetMode: (Do.REFUSE, _X),
            StopOnce: (Do.REFUSE, _X),
            AnswerQuestion: (Do.REFUSE, _X),
            Approve: (Do.REFUSE, _X),
            UseCommand: (Do.REFUSE, _X),
            HandedOver: (Do.REFUSE, _X),
            ChildDone: (Do.REFUSE, _X),
            Wake: (Do.IGNORE, _X),
            Passivate: (Do.IGNORE, _X),
            Await: (Do.REFUSE, _X),
        },
        _P: {
            Submit: (Do.REFUSE, _P),
            Steer: (Do.REFUSE, _P),
            SubmitOrSteer: (Do.REFUSE, _P),
            Replace: (Do.REFUSE, _P),
            Compact: (Do.REFUSE, _P),
            Review: (Do.REFUSE, _P),
            Shell: (Do.REFUSE, _P),
            Inject: (Do.REFUSE, _P),
            Mail: (Do.REFUSE, _P),
            Withdraw: (Do.REFUSE, _P),
            Edit: (Do.REFUSE, _P),
            ResumeQueue: (Do.REFUSE, _P),
            Interrupt: (Do.NOTHING, _P),
            Stop: (Do.NOTHING, _P),
            SetMode: (Do.REFUSE, _P),
            StopOnce: (Do.REFUSE, _P),
            AnswerQuestion: (Do.REFUSE, _P),
            Approve: (Do.REFUSE, _P),
            UseCommand: (Do.REFUSE, _P),
            HandedOver: (Do.REFUSE, _P),
            ChildDone: (Do.REFUSE, _P),
            Wake: (Do.IGNORE, _P),
            Passivate: (Do.IGNORE, _P),
            Await: (Do.REFUSE, _P),
        },
    }
)


def on(phase: Phase, letter: type[Letter]) -> tuple[Do, Phase]:
    """What this message does in this phase, and the phase after; an impossible pair is a broken promise."""
    row = TABLE[phase]
    assert letter in row, f"{letter.__name__} cannot arrive in phase {phase.value}"
    return row[letter]

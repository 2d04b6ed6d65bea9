"""What can be put into a session's mailbox, and the answers that come back; answers are values, not errors."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import attrs
import msgspec

from callboard.actors.events import Cause, TurnEnded, Usage
from callboard.actors.facts import ChildStatus
from callboard.actors.values import NOTHING_USED

RefusedReason: TypeAlias = Literal[
    "turn_mismatch",
    "store_stalled",
    "plan_mode",
    "already_claimed",
    "no_active_turn",
    "not_steerable",
    "empty_input",
    "schema_mismatch",
    "id_taken",
    "unsupported",
    "not_pending",
    "invalid_answer",
    "invalid_command",
    "limit_reached",
]


UserDecision: TypeAlias = Literal["allow_once", "allow_session", "deny"]


class Answer(msgspec.Struct, frozen=True, tag=True):
    """What a control verb answers."""


class Accepted(Answer, frozen=True):
    """The input is durable as event `seq`; it starts turn `turn`, or waits in the queue (None)."""

    seq: int
    turn: int | None = None

    @property
    def turn_id(self) -> int | None:
        """The same as `turn`."""
        return self.turn


class Steered(Answer, frozen=True):
    """The input is durable, and turn `turn` takes it at its next model request."""

    turn: int


class Interrupting(Answer, frozen=True):
    """Turn `turn` is being aborted."""

    turn: int


class Idle(Answer, frozen=True):
    """No turn of the session itself had to be interrupted; `agents` below it are being aborted."""

    agents: int = 0


class Withdrawn(Answer, frozen=True):
    """The queued message was taken back."""


class Edited(Answer, frozen=True):
    """The queued message reads as it was told."""


class Stopped(Answer, frozen=True):
    """The session has ended."""


class ModeAnswer(Answer, frozen=True):
    """What `set_mode` did: committed, queued, cancelled or noop."""

    result: Literal["committed", "queued", "cancelled", "noop"]


class Told(Answer, frozen=True):
    """A command did what it says in `text`, for people."""

    text: str


class Refused(Answer, frozen=True):
    """The verb did nothing: `reason` from a closed set, `detail` for people."""

    reason: RefusedReason
    detail: str = ""


Reply: TypeAlias = Callable[[Any], None]


def _nobody(answer: Any) -> None:
    """Takes the answer of a tell."""


@attrs.frozen(eq=False)
class Ask:
    """A message in a mailbox; `reply` is called once, with an answer or an exception, on the loop's thread."""

    reply: Reply = attrs.field(default=_nobody, kw_only=True)


@attrs.frozen(eq=False)
class Input(Ask):
    """Text for the model; it counts against `mailbox_max`. `id` None lets the session choose one."""

    text: str
    id: str | None = None

    @property
    def quiet(self) -> bool:
        """Whether it starts nothing: the last place of a mailbox is kept for what does, or nobody could empty it."""
        return False


@attrs.frozen(eq=False)
class Submit(Input):
    """A turn of its own: now if idle, else queued in order."""

    source: str = "user"
    ended: Reply | None = None  # told when the turn that claims it has ended
    schema: object = None  # of the final answer


@attrs.frozen(eq=False)
class Steer(Input):
    """Join the running turn at its next model request; with `expected_turn` only that turn."""

    expected_turn: int | None = None
    schema: object = None  # of the final answer: it has to be the running turn's


@attrs.frozen(eq=False)
class SubmitOrSteer(Input):
    """Join the running turn, or be a turn of its own when none takes input."""


@attrs.frozen(eq=False)
class Replace(Input):
    """End the running task, and be the next turn. Several that wait for the same end are one turn."""

    schema: object = None


@attrs.frozen(eq=False)
class Compact(Input):
    """End the running task, and make the history shorter next; its text is empty."""


@attrs.frozen(eq=False)
class Review(Input):
    """End the running task, and review next what the text names."""


@attrs.frozen(eq=False)
class Shell(Input):
    """Run a command of the user's own: in a turn of its own, or beside the one that runs."""


@attrs.frozen(eq=False)
class Inject(Input):
    """Input of the next step, whichever turn that is in; wakes nobody and releases nothing."""

    @property
    def quiet(self) -> bool:
        """Always."""
        return True


@attrs.frozen(eq=False)
class Mail(Input):
    """Mail of the agent at `author`: input of the next step; with `trigger` it starts a turn in an idle session."""

    author: str = "/root"
    trigger: bool = True

    @classmethod
    def signed(cls, author: str, text: str, id: str | None, *, trigger: bool, reply: Reply) -> "Mail":
        """Mail under the sender's own id, so two senders may choose the same."""
        return cls(text, f"mail:{author}:{id}" if id else None, author, trigger, reply=reply)

    @property
    def quiet(self) -> bool:
        """Without a trigger."""
        return not self.trigger


@attrs.frozen(eq=False)
class Withdraw(Ask):
    """Take back a message that is queued and not claimed; `verb_id` is the verb's own id."""

    id: str
    verb_id: str | None = None


@attrs.frozen(eq=False)
class Edit(Ask):
    """Change the text of a message that is queued and not claimed; it keeps its place."""

    id: str
    text: str
    verb_id: str | None = None


@attrs.frozen(eq=False)
class ResumeQueue(Ask):
    """Release parked input without new text."""

    id: str | None = None


@attrs.frozen(eq=False)
class Interrupt(Ask):
    """Abort the running task; with `turn` only that turn. The same `id` again is answered again and does nothing."""

    turn: int | None = None
    cause: Cause = "interrupted"
    id: str | None = None


@attrs.frozen(eq=False)
class Stop(Ask):
    """Interrupt, close, flush, end the actor."""

    cause: Cause = "shutdown"


@attrs.frozen(eq=False)
class SetMode(Ask):
    """Switch Plan mode on or off, now or at the next step."""

    active: bool
    id: str | None = None


@attrs.frozen(eq=False)
class AnswerQuestion(Ask):
    """Settle a question: with a choice, a text or both; with neither the user dismisses it."""

    question: str
    choices: tuple[str, ...] = ()
    text: str | None = None
    id: str | None = None


@attrs.frozen(eq=False)
class Approve(Ask):
    """Settle a request for approval, by its id or that of its call."""

    call: str
    decision: UserDecision
    feedback: str | None = None
    id: str | None = None


@attrs.frozen(eq=False)
class UseCommand(Ask):
    """Have a plugin's command act on what was written behind its name."""

    name: str
    argument: Any = ""
    id: str | None = None


@attrs.frozen(eq=False)
class HandedOver(Ask):
    """The approved plan `plan` has been given to the session `session`."""

    plan: str
    session: str


@attrs.frozen(eq=False)
class StopOnce(Ask):
    """A stop with an id is about to follow: `Accepted` the first time, and `Stopped` when it was asked before."""

    id: str


@attrs.frozen(eq=False)
class ChildDone(Ask):
    """A turn of a subagent ended: recorded once and told to the model as mail."""

    child: str
    path: str
    status: ChildStatus
    text: str
    turn: int
    wake: bool = True
    used: Usage = NOTHING_USED


@attrs.frozen(eq=False)
class Wake(Ask):
    """Something of a plugin's is due."""


@attrs.frozen(eq=False)
class Passivate(Ask):
    """Leave memory, if nothing holds the session: flush, then `leave(actor)` decides in one piece. Else `reply`."""

    leave: Callable[[Any], bool]


@attrs.frozen(eq=False)
class Await(Ask):
    """Tell me when this turn has ended; without `turn`, when the session is idle.

    A turn that ended too long ago to be remembered answers None: look it up in the store.
    """

    turn: int | None = None


@attrs.frozen(eq=False)
class TaskDone(Ask):
    """The running task reports its own end, after the flush of its TurnEnded."""

    ended: TurnEnded


Verbs: TypeAlias = (
    Submit
    | Steer
    | SubmitOrSteer
    | Replace
    | Compact
    | Review
    | Shell
    | Inject
    | Mail
    | ChildDone
    | Withdraw
    | Edit
    | ResumeQueue
    | SetMode
    | StopOnce
)
Plugged: TypeAlias = AnswerQuestion | Approve | UseCommand | HandedOver
Writes: TypeAlias = Verbs | Plugged
Letter: TypeAlias = Writes | Interrupt | Stop | Wake | Passivate | Await | TaskDone

# Tuples made once: `A | B` in an isinstance is built anew at each message, a tenth of what a tell costs.
URGENT = (Interrupt, Stop, TaskDone, ChildDone, Wake, HandedOver)  # always find room in a mailbox
QUIET = (Await, Interrupt, Steer, Inject, Passivate, Edit, StopOnce)  # after these an idle session has nothing to start
PLUGGED = (AnswerQuestion, Approve, UseCommand, HandedOver)  # verbs that plugins take part in
RELEASING = (
    *(Submit, SubmitOrSteer, Replace, Compact, Review, Shell, ChildDone, ResumeQueue),
    *(AnswerQuestion, Approve, UseCommand),
)  # end what is held back

"""What each control verb writes and answers: decisions over the folds, without a clock, a task or a wait."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from callboard.actors.answered import answered, record
from callboard.actors.books import PARKED, QUEUE, TURN, Turn
from callboard.actors.checks import same_json
from callboard.actors.children import CHILDREN, Child, child_of, news_of
from callboard.actors.claim import USERS
from callboard.actors.eventlog import EventLog
from callboard.actors.events import (
    Event,
    MessageEdited,
    MessageQueued,
    MessageWithdrawn,
    QueueParked,
    ShellStarted,
    TaskName,
)
from callboard.actors.facts import ChildEnded, PlanModeRequested, PlanModeSet
from callboard.actors.messages import (
    Accepted,
    Answer,
    ChildDone,
    Compact,
    Edit,
    Edited,
    Inject,
    Input,
    Interrupt,
    Mail,
    ModeAnswer,
    Refused,
    Replace,
    ResumeQueue,
    Review,
    SetMode,
    Shell,
    Steer,
    Steered,
    StopOnce,
    Stopped,
    Submit,
    SubmitOrSteer,
    Verbs,
    Withdraw,
    Withdrawn,
)
from callboard.actors.mode import MODE
from callboard.actors.seen import SEEN

CHILD_TEXT_MAX_CHARS = 20_000
ANSWER_MAX_CHARS = 200_000  # of one that a task waits for and reads

NO_SHELL = "shell is unavailable in this session"
TASK_OF: Mapping[type[Input], TaskName] = MappingProxyType(
    {Replace: "replace", Compact: "compact", Review: "review", Shell: "shell"}
)

Can: TypeAlias = Callable[[TaskName], bool]
Decision: TypeAlias = tuple[tuple[Event, ...], Answer]


def decide(log: EventLog, letter: Verbs, *, idle: bool, joins: bool, can: Can = lambda task: True) -> Decision:
    """What a verb writes and answers; an id that was answered before writes nothing and is answered the same.

    `idle` when a turn may start, `joins` while the running one takes input (a command: while it can stand beside it),
    `can(task)` whether this runtime has such a task.
    """
    again = answered(log[SEEN], letter)
    if again is not None:
        return (), again
    events, answer = _decide(log, letter, idle, joins, can)
    if not any(isinstance(event, MessageQueued) for event in events):
        events = (*events, *record(letter, Stopped() if isinstance(letter, StopOnce) else answer))
    return events, answer


def _decide(log: EventLog, letter: Verbs, idle: bool, joins: bool, can: Can) -> Decision:
    match letter:
        case Submit():
            return submit(log, letter, idle=idle)
        case Steer():
            return steer(log, letter, joins=joins)
        case SubmitOrSteer() if joins or not letter.text.strip():
            return steer(log, Steer(letter.text, letter.id), joins=True)
        case SubmitOrSteer():
            return submit(log, Submit(letter.text, letter.id), idle=idle)
        case Replace() | Compact() | Review() | Shell():
            return task(log, letter, beside=joins, can=can)
        case Inject():
            return inject(log, letter)
        case Mail():
            return mail(log, letter)
        case ChildDone():
            return child_done(log, letter)
        case _:
            return _about(log, letter)


def _about(log: EventLog, letter: Withdraw | Edit | ResumeQueue | SetMode | StopOnce) -> Decision:
    """Verbs that bring no input."""
    match letter:
        case Withdraw():
            return withdraw(log, letter)
        case Edit():
            return edit(log, letter)
        case ResumeQueue():
            return resume(log)
        case SetMode():
            return set_mode(log, letter)
        case StopOnce():
            return (), Accepted(log.seq)


def submit(log: EventLog, letter: Submit, *, idle: bool) -> Decision:
    """The message queued under its id."""
    at_once = idle and letter.source == "user" and not any(message.source in ("user", "plan") for message in log[QUEUE])
    turn = log[TURN].number + 1 if at_once else None
    events, seq = _queued(log, letter, letter.source, turn, schema=letter.schema)
    return events, Accepted(seq, turn)


def steer(log: EventLog, letter: Steer, *, joins: bool) -> Decision:
    """The message queued for the running turn, or the first reason in the way."""
    turn = log[TURN]
    if not joins:
        return (), Refused("no_active_turn", "no turn takes input now: submit starts one")
    if letter.expected_turn not in (None, turn.number):
        return (), Refused("turn_mismatch", f"turn {turn.number} is running, not turn {letter.expected_turn}")
    if turn.kind != "regular":
        return (), Refused("not_steerable", f"turn {turn.number} is a {turn.kind} turn, which takes no input")
    if not letter.text.strip():
        return (), Refused("empty_input", "there is no text to join the turn")
    if letter.schema is not None and not same_json(letter.schema, turn.schema):
        how = "without a schema" if turn.schema is None else "with another schema"
        return (), Refused("schema_mismatch", f"turn {turn.number} was started {how} for its answer")
    return _queued(log, letter, "steer", turn.number)[0], Steered(turn.number)


def task(log: EventLog, letter: Replace | Compact | Review | Shell, *, beside: bool, can: Can) -> Decision:
    """What starts a task, queued before all other input; a command that runs beside a turn starts there and then."""
    name, turn = TASK_OF[type(letter)], log[TURN]
    if not can(name):
        return (), Refused("unsupported", NO_SHELL if name == "shell" else f"this runtime has no {name} task")
    if name != "compact" and not letter.text.strip():
        return (), Refused("empty_input", f"{name} needs a text")
    if name == "shell" and beside:
        started = ShellStarted(_new_id(log, letter.id), letter.text, turn.number)
        return (started,), Accepted(log.seq, turn.number)
    ahead = [message for message in log[QUEUE] if message.task]
    is_next = not ahead or (name == "replace" and all(message.task == "replace" for message in ahead))
    number = turn.number + 1 if is_next else None
    schema = letter.schema if isinstance(letter, Replace) else None
    events, seq = _queued(log, letter, "user", number, schema=schema, task=name)
    return events, Accepted(seq, number)


def inject(log: EventLog, letter: Inject) -> Decision:
    """The message queued for the next step, without a start or a release."""
    events, seq = _queued(log, letter, "notice", None, wake=False)
    return events, Accepted(seq)


def mail(log: EventLog, letter: Mail) -> Decision:
    """The mail queued under the sender's id, once however often it is sent; in Plan mode it waits like any other."""
    kept = Input(f"Mail from agent {letter.author}:\n{letter.text}", letter.id)
    events, seq = _queued(log, kept, f"agent:{letter.author}", None, wake=letter.trigger)
    return events, Accepted(seq)


def _new_id(log: EventLog, given: str | None) -> str:
    seen, queue = log[SEEN], log[QUEUE]
    id_ = given or f"auto:{seen.count + 1}"
    while id_ in seen.ids or any(message.id == id_ for message in queue):
        id_ += "'"
    return id_


def _queued(
    log: EventLog,
    letter: Input,
    source: str,
    turn: int | None,
    *,
    wake: bool = True,
    schema: object = None,
    task: TaskName = "",
) -> tuple[tuple[Event, ...], int]:
    """The message under an id of its own, behind the release of a parked queue if the user speaks; and its number."""
    speaks = source in USERS and task in ("", "replace")
    release = (QueueParked(parked=False),) if speaks and log[PARKED] else ()
    id_, seq = _new_id(log, letter.id), log.seq + len(release)
    return (*release, MessageQueued(id_, letter.text, source, bool(letter.id), seq, turn, wake, schema, task)), seq


def withdraw(log: EventLog, letter: Withdraw) -> Decision:
    """Take a message off the queue while no turn has claimed it."""
    if any(message.id == letter.id for message in log[QUEUE]):
        return (MessageWithdrawn(letter.id),), Withdrawn()
    return (), Refused("already_claimed", f"message {letter.id!r} is not in the queue")


def edit(log: EventLog, letter: Edit) -> Decision:
    """Another text for a message that no turn has claimed, in its old place."""
    if any(message.id == letter.id for message in log[QUEUE]):
        return (MessageEdited(letter.id, letter.text),), Edited()
    return (), Refused("already_claimed", f"message {letter.id!r} is not in the queue")


def resume(log: EventLog) -> Decision:
    """Release the queue that is parked, or would be at the end of the turn that is being cut off."""
    turn = log[TURN]
    ending = turn.open and turn.cause is not None and not turn.spoken
    events = (QueueParked(parked=False),) if log[PARKED] or ending else ()
    return events, Accepted(log.seq - 1 + len(events))


def child_done(log: EventLog, letter: ChildDone) -> Decision:
    """The end of a child's turn, once, with the mail that tells the model where it is told; a repeat writes nothing."""
    known = child_of(log[CHILDREN], letter.child)
    if known is None or known.turn >= letter.turn:
        return (), Accepted(log.seq - 1)
    text = letter.text[: CHILD_TEXT_MAX_CHARS if known.mail else ANSWER_MAX_CHARS]
    ended = ChildEnded(letter.child, letter.status, text, letter.turn, letter.used)
    if not known.mail or _is_awaited(log[TURN], known):
        return (ended,), Accepted(log.seq)
    id_, seq = f"child:{letter.child}:{letter.turn}", log.seq + 1
    mail = MessageQueued(
        id_, news_of(letter.path, letter.status, text), f"agent:{letter.path}", given=True, seq=seq, wake=letter.wake
    )
    return (ended, mail), Accepted(seq)


def _is_awaited(turn: Turn, known: Child) -> bool:
    """Whether a call waits for this end and will answer with it: a call that is being aborted answers nothing more."""
    if not known.call or not turn.open or turn.number != known.called or turn.cause is not None:
        return False
    return any(one.call.id == known.call for one in turn.open_calls())


def set_mode(log: EventLog, letter: SetMode) -> Decision:
    """Plan mode on or off: at once between turns, as a selection while a turn is open."""
    mode, turn_open = log[MODE], log[TURN].open
    target = mode.active if mode.pending is None else mode.pending
    if letter.active == target:
        return (), ModeAnswer("noop")
    if letter.active == mode.active:
        return (PlanModeRequested(letter.active if turn_open else None),), ModeAnswer("cancelled")
    if turn_open:
        return (PlanModeRequested(letter.active),), ModeAnswer("queued")
    return (PlanModeSet(letter.active),), ModeAnswer("committed")


def wrong_turn(log: EventLog, letter: Interrupt) -> Refused | None:
    """The refusal of an interrupt that names a turn which is not running."""
    turn = log[TURN]
    if letter.turn is None or (turn.open and turn.number == letter.turn):
        return None
    running = f"turn {turn.number} is running" if turn.open else "no turn is running"
    return Refused("turn_mismatch", f"turn {letter.turn} is not running: {running}")

"""What each control verb writes and answers: decisions over the folds, without a clock, a task or a wait."""

from typing import Any, TypeAlias

from callboard.actors.books import CHILDREN, MODE, PARKED, QUEUE, SEEN, TURN
from callboard.actors.claim import USERS
from callboard.actors.errors import UsageError
from callboard.actors.eventlog import EventLog
from callboard.actors.events import Event, MessageQueued, MessageWithdrawn, QueueParked
from callboard.actors.facts import ChildEnded, PlanModeRequested, PlanModeSet
from callboard.actors.messages import (
    Accepted,
    Answer,
    ChildDone,
    Inject,
    Input,
    Interrupt,
    Mail,
    ModeAnswer,
    Refused,
    ResumeQueue,
    SetMode,
    Steer,
    Steered,
    Submit,
    SubmitOrSteer,
    Withdraw,
    Withdrawn,
    Writes,
)
from callboard.actors.receipts import clean_text

ID_MAX_CHARS = 200
CHILD_TEXT_MAX_CHARS = 20_000

OWN_PREFIXES = ("auto:", "child:", "mail:", "schedule:", "goal:")  # of ids that are given here and by plugins

Decision: TypeAlias = tuple[tuple[Event, ...], Answer]


def decide(log: EventLog, letter: Writes, *, idle: bool, joins: bool) -> Decision:
    """What a verb writes and answers; `idle` when a turn may start, `joins` while the running one takes input."""
    match letter:
        case Submit():
            return submit(log, letter, idle=idle)
        case Steer():
            return steer(log, letter, joins=joins)
        case SubmitOrSteer() if joins or not letter.text.strip():
            return steer(log, Steer(letter.text, letter.id), joins=True)
        case SubmitOrSteer():
            return submit(log, Submit(letter.text, letter.id), idle=idle)
        case Inject():
            return inject(log, letter)
        case Mail():
            return mail(log, letter)
        case ChildDone():
            return child_done(log, letter)
        case Withdraw():
            return withdraw(log, letter)
        case ResumeQueue():
            return resume(log)
        case SetMode():
            return set_mode(log, letter)


def submit(log: EventLog, letter: Submit, *, idle: bool) -> Decision:
    """The message queued under its id; a repeated id writes nothing and answers as the first time."""
    if (again := _answered(log, letter)) is not None:
        return (), again
    at_once = idle and letter.source == "user" and not any(message.source == "user" for message in log[QUEUE])
    turn = log[TURN].number + 1 if at_once else None
    events, seq = _queued(log, letter, letter.source, turn)
    return events, Accepted(seq, turn)


def steer(log: EventLog, letter: Steer, *, joins: bool) -> Decision:
    """The message queued for the running turn, or the first reason in the way."""
    if (again := _answered(log, letter)) is not None:
        return (), again
    turn = log[TURN]
    if not joins:
        return (), Refused("no_active_turn", "no turn takes input now: submit starts one")
    if letter.expected_turn not in (None, turn.number):
        return (), Refused("turn_mismatch", f"turn {turn.number} is running, not turn {letter.expected_turn}")
    if turn.kind != "regular":
        return (), Refused("not_steerable", f"turn {turn.number} is a {turn.kind} turn, which takes no input")
    if not letter.text.strip():
        return (), Refused("empty_input", "there is no text to join the turn")
    if letter.schema is not None:
        return (), Refused("schema_mismatch", f"turn {turn.number} was started without a schema for its answer")
    return _queued(log, letter, "steer", turn.number)[0], Steered(turn.number)


def inject(log: EventLog, letter: Inject) -> Decision:
    """The message queued for the next step, without a start or a release."""
    if (again := _answered(log, letter)) is not None:
        return (), again
    events, seq = _queued(log, letter, "notice", None, wake=False)
    return events, Accepted(seq)


def mail(log: EventLog, letter: Mail) -> Decision:
    """The mail queued under the sender's id, once however often it is sent; in Plan mode it waits like any other."""
    id_ = f"mail:{letter.author}:{letter.id}" if letter.id else None
    kept = Input(f"Mail from agent {letter.author}:\n{letter.text}", id_)
    if (again := _answered(log, kept)) is not None:
        return (), again
    events, seq = _queued(log, kept, f"agent:{letter.author}", None, wake=letter.trigger)
    return events, Accepted(seq)


def _answered(log: EventLog, letter: Input) -> Accepted | Steered | None:
    """What this id was answered when its message was queued, None for a new one."""
    seen = log[SEEN].ids.get(letter.id) if letter.id else None
    if seen is None:
        return None
    return Steered(*seen) if len(seen) == 1 else Accepted(*seen)


def _queued(
    log: EventLog, letter: Input, source: str, turn: int | None, *, wake: bool = True
) -> tuple[tuple[Event, ...], int]:
    """The message under an id of its own, behind the release of a parked queue if the user speaks; and its number."""
    seen, queue = log[SEEN], log[QUEUE]
    id_ = letter.id or f"auto:{seen.count + 1}"
    while id_ in seen.ids or any(message.id == id_ for message in queue):
        id_ += "'"
    release = (QueueParked(parked=False),) if source in USERS and log[PARKED] else ()
    seq = log.seq + len(release)
    return (*release, MessageQueued(id_, letter.text, source, bool(letter.id), seq, turn, wake)), seq


def withdraw(log: EventLog, letter: Withdraw) -> Decision:
    """Take a message off the queue while no turn has claimed it."""
    if any(message.id == letter.id for message in log[QUEUE]):
        return (MessageWithdrawn(letter.id),), Withdrawn()
    return (), Refused("already_claimed", f"message {letter.id!r} is not in the queue")


def resume(log: EventLog) -> Decision:
    """Release the queue that is parked, or would be at the end of the turn that is being cut off."""
    turn = log[TURN]
    ending = turn.open and turn.cause is not None and not turn.spoken
    events = (QueueParked(parked=False),) if log[PARKED] or ending else ()
    return events, Accepted(log.seq - 1 + len(events))


def child_done(log: EventLog, letter: ChildDone) -> Decision:
    """The end of a child's turn, once, together with the mail that tells the model; a repeat writes nothing."""
    known = next((child for child in log[CHILDREN] if child.id == letter.child), None)
    if known is None or known.turn >= letter.turn:
        return (), Accepted(log.seq - 1)
    text = letter.text[:CHILD_TEXT_MAX_CHARS]
    ended = ChildEnded(letter.child, letter.status, text, letter.turn)
    id_, seq = f"child:{letter.child}:{letter.turn}", log.seq + 1
    mail = MessageQueued(id_, child_news(letter, text), f"agent:{letter.path}", given=True, seq=seq, wake=letter.wake)
    return (ended, mail), Accepted(seq)


def child_news(letter: ChildDone, text: str) -> str:
    """How the end of a subagent reads as mail."""
    words = {"completed": "finished", "failed": "failed", "interrupted": "was interrupted"}
    head = f"Agent {letter.path} {words.get(letter.status, 'ended')}."
    return f"{head}\n{text}" if text else head


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


def check_submit(text: Any, id_: Any, text_max_chars: int, verb: str = "submit") -> str:
    """The text as it can be kept; `UsageError` for one that is empty, too long, or no text, and for a bad id."""
    checked = check_steer(text, id_, text_max_chars, verb)
    if not checked.strip():
        raise UsageError(f"{verb} got an empty text: write what the session should do.")
    return checked


def check_steer(given: Any, id_: Any, text_max_chars: int, verb: str = "steer") -> str:
    """The same for verbs that answer an empty text with a refusal."""
    if not isinstance(given, str):
        raise UsageError(f"{verb} takes text, got {type(given).__name__}.")
    if len(given) > text_max_chars:
        raise UsageError(
            f"{verb} got {len(given):,} characters: at most {text_max_chars:,}; put it into a file instead."
        )
    check_id(id_)
    if id_ is not None and id_.startswith(OWN_PREFIXES):
        raise UsageError(f"message ids that begin with {id_.split(':')[0]}: are given by the session; choose another.")
    return clean_text(given)


def check_id(id_: Any) -> None:
    """`UsageError` for an id that is neither None nor fit to be kept."""
    if id_ is not None and not (isinstance(id_, str) and 0 < len(id_) <= ID_MAX_CHARS and id_.isprintable()):
        raise UsageError(f"a message id is 1 to {ID_MAX_CHARS} printable characters, got {id_!r:.80}.")

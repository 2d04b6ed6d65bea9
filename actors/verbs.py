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
    Interrupt,
    ModeAnswer,
    Refused,
    ResumeQueue,
    SetMode,
    Submit,
    Withdraw,
    Withdrawn,
)
from callboard.actors.receipts import clean_text

ID_MAX_CHARS = 200
CHILD_TEXT_MAX_CHARS = 20_000

OWN_PREFIXES = ("auto:", "child:", "schedule:", "goal:")  # of ids that are given here and by plugins

Decision: TypeAlias = tuple[tuple[Event, ...], Answer]


def submit(log: EventLog, letter: Submit, *, idle: bool) -> tuple[tuple[Event, ...], Accepted, str]:
    """The message queued under its id; a repeated id writes nothing and answers as the first time."""
    seen = log[SEEN]
    if letter.id:
        answered = seen.ids.get(letter.id)
        if answered is not None:
            return (), Accepted(*answered), letter.id
    queue = log[QUEUE]
    id_ = letter.id or f"auto:{seen.count + 1}"
    while id_ in seen.ids or any(message.id == id_ for message in queue):
        id_ += "'"
    release = (QueueParked(parked=False),) if letter.source in USERS and log[PARKED] else ()
    at_once = idle and letter.source == "user" and not any(message.source == "user" for message in queue)
    turn = log[TURN].number + 1 if at_once else None
    seq = log.seq + len(release)
    queued = MessageQueued(id_, letter.text, letter.source, bool(letter.id), seq, turn)
    return (*release, queued), Accepted(seq, turn), id_


def withdraw(log: EventLog, letter: Withdraw) -> Decision:
    """Take a message off the queue while no turn has claimed it."""
    if any(message.id == letter.id for message in log[QUEUE]):
        return (MessageWithdrawn(letter.id),), Withdrawn()
    return (), Refused("already_claimed", f"message {letter.id!r} is not in the queue")


def resume(log: EventLog) -> Decision:
    """Release the parked queue."""
    events = (QueueParked(parked=False),) if log[PARKED] else ()
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


def decide(log: EventLog, letter: ChildDone | Withdraw | ResumeQueue | SetMode) -> Decision:
    """What a verb other than `submit` writes and answers."""
    match letter:
        case ChildDone():
            return child_done(log, letter)
        case Withdraw():
            return withdraw(log, letter)
        case ResumeQueue():
            return resume(log)
        case SetMode():
            return set_mode(log, letter)


def wrong_turn(log: EventLog, letter: Interrupt) -> Refused | None:
    """The refusal of an interrupt that names a turn which is not running."""
    turn = log[TURN]
    if letter.turn is None or (turn.open and turn.number == letter.turn):
        return None
    running = f"turn {turn.number} is running" if turn.open else "no turn is running"
    return Refused("turn_mismatch", f"turn {letter.turn} is not running: {running}")


def check_submit(text: Any, id_: Any, text_max_chars: int) -> str:
    """The text as it can be kept; `UsageError` for one that is empty, too long, or no text, and for a bad id."""
    if not isinstance(text, str):
        raise UsageError(f"submit takes text, got {type(text).__name__}.")
    if not text.strip():
        raise UsageError("submit got an empty text: write what the session should do.")
    if len(text) > text_max_chars:
        raise UsageError(
            f"submit got {len(text):,} characters: at most {text_max_chars:,}; put it into a file instead."
        )
    check_id(id_)
    if id_ is not None and id_.startswith(OWN_PREFIXES):
        raise UsageError(f"message ids that begin with {id_.split(':')[0]}: are given by the session; choose another.")
    return clean_text(text)


def check_id(id_: Any) -> None:
    """`UsageError` for an id that is neither None nor fit to be kept."""
    if id_ is not None and not (isinstance(id_, str) and 0 < len(id_) <= ID_MAX_CHARS and id_.isprintable()):
        raise UsageError(f"a message id is 1 to {ID_MAX_CHARS} printable characters, got {id_!r:.80}.")

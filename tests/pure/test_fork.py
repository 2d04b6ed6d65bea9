"""A fork in the folds: what comes along from the log it was copied from, and what does not."""

import pytest
from msgspec.structs import replace

from callboard.actors.asked import ANSWERS, APPROVALS, PERMISSIONS, QUESTIONS, Permissions
from callboard.actors.books import FILLED, FOUND, HISTORY, OPENED, PARKED, QUEUE, TURN, USAGE
from callboard.actors.children import CHILDREN
from callboard.actors.events import (
    Event,
    MessageQueued,
    MessagesClaimed,
    ModelSaid,
    NoteAdded,
    QueueParked,
    SessionForked,
    SessionOpened,
    ShellStarted,
    StepEnded,
    StepStarted,
    TurnEnded,
    TurnStarted,
    Usage,
    VerbAnswered,
)
from callboard.actors.facts import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalPolicySet,
    ChildSpawned,
    Option,
    PlanModeSet,
    QuestionAnswered,
    QuestionAsked,
    ToolsFound,
)
from callboard.actors.fold import Trail
from callboard.actors.invariants import InvariantBroken
from callboard.actors.mode import MODE
from callboard.actors.model import Developer, User
from callboard.actors.seen import SEEN, SHELLS, Seen

from .event_samples import Book

FORKED = SessionForked("other", 30)
TURN_OVER: tuple[Event, ...] = (
    MessageQueued("mine", "go", given=True, seq=1),
    TurnStarted(1),
    MessagesClaimed(("mine",)),
    StepStarted(1, 1),
    ModelSaid("said", usage=Usage(7, output=2)),
    StepEnded(1, 1),
    TurnEnded(1, "completed"),
)
WAITING: tuple[Event, ...] = (
    MessageQueued("waits", "later", given=True, seq=9),
    QueueParked(parked=True),
    ChildSpawned("s.a", "/root/a", "work"),
    VerbAnswered("v", "interrupt", {"type": "Idle"}),
    ShellStarted("auto:3", "ls", 1),
    QuestionAsked("q", "c", 1, "plan_mode", "h", "really?", (Option("yes"),)),
    QuestionAsked("q2", "c", 1, "plan_mode", "h", "really?", (Option("yes"),)),
    QuestionAnswered("q2", "answered", ("yes",)),
    ApprovalAsked("a", "c", 1, "shell", {}, "shell:1"),
    ApprovalAsked("b", "c", 1, "shell", {}, "shell:2"),
    ApprovalDecided("b", "allow_once"),
    ApprovalAsked("d", "c", 1, "write", {}, "write:1"),
    ApprovalDecided("d", "allow_session"),
    ApprovalPolicySet("ask"),
)


def whole() -> Book:
    """A session with something in every fold."""
    return Book(SessionOpened(root="s"), *TURN_OVER, *WAITING, PlanModeSet(active=True), ToolsFound(("deep",)))


@pytest.mark.parametrize("fold", [QUEUE, PARKED, CHILDREN, SHELLS, QUESTIONS, APPROVALS, ANSWERS], ids=lambda f: f.key)
def test_what_waits_or_works_stays_behind(fold):
    """What is queued, parked, asked, answered or running in the source is nothing of the fork's."""
    book = whole()
    before = book[fold]
    assert (True, fold.zero) == (before != fold.zero, book.add(FORKED)[fold])


@pytest.mark.parametrize("fold", [OPENED, USAGE, FILLED, MODE, FOUND, TURN], ids=lambda f: f.key)
def test_what_was_reached_comes_along(fold):
    """The mode, found tools, the number of the last turn and what was used are the fork's too, untouched."""
    book = whole()
    before = book[fold]
    assert (True, True) == (before != fold.zero, book.add(FORKED)[fold] is before)


def test_history_comes_along_without_the_queue():
    """The model of a fork reads what was said, and later input of the source's queue never enters its history."""
    book = whole()
    messages = book[HISTORY].messages
    book.add(FORKED)
    assert (messages, ()) == (book[HISTORY].messages, book[HISTORY].queue)
    book.add(MessageQueued("waits", "of the fork"), NoteAdded("note"), TurnStarted(2), MessagesClaimed(("waits",)))
    assert Trail((*messages, Developer("note"), User("of the fork", "user"))) == book[HISTORY].messages


def test_used_ids_are_free_again_and_the_count_goes_on():
    """A sender's ids and answers are the source's; ids that are made from the count stay new on this log."""
    book = whole()
    assert ((1, None), 3) == (book[SEEN].ids.get("mine"), book[SEEN].count)
    assert Seen(count=3) == book.add(FORKED)[SEEN]


def test_permissions_come_along_without_open_requests():
    """A policy and tools that were allowed for the session stay so; single calls and open requests do not."""
    allowed = Permissions("ask", ("write",))
    assert replace(allowed, before=allowed) == whole().add(FORKED)[PERMISSIONS]


def test_a_message_of_the_source_cannot_be_claimed_in_a_fork():
    """What was queued before the fork is on its log and not in its queue: no turn can claim it."""
    book = whole().add(FORKED, TurnStarted(2))
    with pytest.raises(InvariantBroken, match="waits"):
        book.add(MessagesClaimed(("waits",)))

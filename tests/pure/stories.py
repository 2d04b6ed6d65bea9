"""Event sequences that a log accepts: any of them, drawn one legal event after the other."""

from typing import Any, get_args

from hypothesis import strategies as st

from callboard.actors.books import QUEUE, TURN, Turn
from callboard.actors.calls import OpenCall
from callboard.actors.events import (
    AbortRequested,
    Call,
    Cause,
    CellCalled,
    Compacted,
    Effect,
    Event,
    MessageQueued,
    MessagesClaimed,
    MessageWithdrawn,
    ModelFailed,
    ModelSaid,
    NoteAdded,
    QueueParked,
    Receipt,
    SessionOpened,
    StartKind,
    StepEnded,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnKind,
    TurnReason,
    TurnStarted,
    Usage,
    UserText,
)
from callboard.actors.facts import ChildEnded, ChildSpawned, PlanModeRequested, PlanModeSet
from callboard.actors.receipts import OUTCOMES

from .event_samples import TEXTS, Book

NAMES = ("grep", "shell", "update_plan", "todo_write")
RECEIPTS: tuple[Receipt, ...] = get_args(Receipt)


def legal(book: Book) -> list[st.SearchStrategy[Any]]:
    """What may follow, each with all its variety."""
    turn: Turn = book[TURN]
    ids = [message.id for message in book[QUEUE]]
    found: list[st.SearchStrategy[Any]] = [
        st.builds(MessageQueued, st.just(f"m{len(book.events)}"), TEXTS, st.sampled_from(["user", "steer", "goal"])),
        st.builds(NoteAdded, TEXTS, st.sampled_from(["user", "developer"])),
        st.builds(QueueParked, st.booleans()),
        st.builds(PlanModeRequested, st.none() | st.booleans()),
        st.builds(PlanModeSet, st.booleans()),
        st.builds(ChildSpawned, st.just(f"k{len(book.events)}"), TEXTS, TEXTS),
        st.builds(ChildEnded, st.just("k3"), st.sampled_from(["completed", "failed"]), TEXTS),
    ]
    if ids:
        found.append(st.builds(MessageWithdrawn, st.sampled_from(ids)))
        found.append(st.builds(MessagesClaimed, st.lists(st.sampled_from(ids), unique=True).map(tuple)))
    if not turn.open:
        kinds, starts = st.sampled_from(get_args(TurnKind)), st.sampled_from(get_args(StartKind))
        return [*found, *[st.builds(TurnStarted, st.just(turn.number + 1), kinds, starts, st.integers(0, 9))] * 8]
    found.append(st.builds(AbortRequested, st.just(turn.number), st.sampled_from(get_args(Cause))))
    if not turn.calls:
        texts = st.lists(st.builds(UserText, TEXTS), max_size=2).map(tuple)
        found.append(st.builds(Compacted, TEXTS, TEXTS, texts, st.builds(Usage, st.integers(0, 9))))
    if not turn.in_step:
        reasons = st.sampled_from(get_args(TurnReason))
        return [
            *found,
            *[st.just(StepStarted(turn.number, turn.step + 1))] * 8,
            *[st.builds(TurnEnded, st.just(turn.number), reasons)] * 3,
        ]
    return [*found, *_in_step(book, turn)]


def _in_step(book: Book, turn: Turn) -> list[st.SearchStrategy[Any]]:
    usage = st.builds(Usage, st.integers(0, 9), st.integers(0, 9))
    at = len(book.events)
    calls = st.lists(st.sampled_from(NAMES), max_size=4).map(
        lambda names: tuple(Call(name, {}, f"c{at}.{n}") for n, name in enumerate(names))
    )
    found: list[st.SearchStrategy[Any]] = [
        *[st.builds(ModelSaid, TEXTS, calls, st.booleans(), usage, truncated=st.booleans())] * 4,
        st.builds(ModelFailed, TEXTS),
    ]
    for one in turn.open_calls():
        name = one.call.name
        if not one.started:
            found.append(_starts(one))
        elif one.cell is None:
            inner = Call("grep", {}, f"{one.call.id}.{at}")
            found.append(st.just(CellCalled(one.call.id, inner)))
        if all(inner.cell != one.call.id for inner in turn.nested):
            cell = one.cell
            found.append(
                st.sampled_from([ToolReturned(one.call.id, r, OUTCOMES[r], "", 0.5, name, cell) for r in RECEIPTS])
            )
    if not turn.calls:
        found.extend([st.just(StepEnded(turn.number, turn.step))] * 4)
    return found


def _starts(one: OpenCall) -> st.SearchStrategy[Any]:
    effects, cell = st.sampled_from(get_args(Effect)), st.just(one.cell)
    return st.builds(ToolCalled, st.just(one.call.id), st.just(one.call.name), st.just({}), effects, cell)


@st.composite
def books(draw: st.DrawFn, max_size: int = 25) -> Book:
    """A log that was appended to legally, from its opening to anywhere."""
    book = Book(SessionOpened(root="s"))
    for _ in range(draw(st.integers(0, max_size))):
        choices = legal(book)
        book.add(draw(choices[draw(st.integers(0, len(choices) - 1))]))
    return book


def prefixes(events: list[Event]) -> list[Book]:
    """The book after each event."""
    return [Book(*events[:upto]) for upto in range(len(events) + 1)]

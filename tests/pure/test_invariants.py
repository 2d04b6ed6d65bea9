"""What may follow what: a table of states and events, and what every log that was accepted keeps for sure."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.books import QUEUE, TURN
from callboard.actors.events import (
    AbortRequested,
    Call,
    CellCalled,
    Compacted,
    Event,
    Message,
    MessageEdited,
    MessageQueued,
    MessagesClaimed,
    MessageWithdrawn,
    ModelFailed,
    ModelSaid,
    NoteAdded,
    QueueParked,
    SessionOpened,
    StepEnded,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnRecovered,
    TurnStarted,
)
from callboard.actors.facts import ChildEnded, ChildSpawned, PlanModeRequested, PlanModeSet
from callboard.actors.invariants import PROMISES, InvariantBroken, check

from .event_samples import EVENTS, Book, events_of
from .stories import books

ONE, TWO = Call("grep", {}, "c1"), Call("grep", {}, "c2")
DONE, DONE_TWO = (ToolReturned(id, "completed", "completed", "") for id in ("c1", "c2"))
CALLED = ToolCalled("c1", "grep", {})
INNER = CellCalled("c1", Call("grep", {}, "c1.1"))
INNER_CALLED = ToolCalled("c1.1", "grep", {}, cell="c1")
INNER_DONE = ToolReturned("c1.1", "completed", "completed", "", cell="c1")

STATES: dict[str, tuple[Event, ...]] = {"new": ()}
STATES["queued"] = (MessageQueued("a", "x"), MessageQueued("b", "y"))
STATES["turn"] = (TurnStarted(1),)
STATES["step"] = (TurnStarted(1), StepStarted(1, 1))
STATES["asked"] = (*STATES["step"], ModelSaid("", (ONE, TWO)))
STATES["started"] = (*STATES["asked"], CALLED)
STATES["inside"] = (*STATES["started"], INNER)
STATES["inside started"] = (*STATES["inside"], INNER_CALLED)
STATES["half done"] = (*STATES["started"], DONE)
STATES["done"] = (*STATES["half done"], DONE_TWO)
STATES["between"] = (*STATES["done"], StepEnded(1, 1))
STATES["ended"] = (*STATES["between"], TurnEnded(1, "completed"))

INSIDE = {"inside", "inside started"}
IN_TURN = {"turn", "step", "asked", "started", *INSIDE, "half done", "done", "between"}
IN_STEP = {"step", "asked", "started", *INSIDE, "half done", "done"}
EVERYWHERE = set(STATES)

# Each event, and the states after which it may follow; after all others it may not.
LEGAL: tuple[tuple[str, Event, set[str]], ...] = (
    ("the first turn", TurnStarted(1), {"new", "queued"}),
    ("the second turn", TurnStarted(2), {"ended"}),
    ("a later turn", TurnStarted(3), set()),
    ("turn 0", TurnStarted(0), set()),
    ("the end of the turn", TurnEnded(1, "completed"), {"turn", "between"}),
    ("the end of another turn", TurnEnded(2, "completed"), set()),
    ("an abort of the turn", AbortRequested(1, "interrupted"), IN_TURN),
    ("an abort of another turn", AbortRequested(2, "interrupted"), set()),
    ("the first step", StepStarted(1, 1), {"turn"}),
    ("the second step", StepStarted(1, 2), {"between"}),
    ("a later step", StepStarted(1, 3), set()),
    ("a step of another turn", StepStarted(2, 1), set()),
    ("the end of the step", StepEnded(1, 1), {"step", "done"}),
    ("the end of another step", StepEnded(1, 2), set()),
    ("the end of a step of another turn", StepEnded(2, 1), set()),
    ("another life of the turn before its first step", TurnRecovered(1, 0), {"turn"}),
    ("another life of the turn in its first step", TurnRecovered(1, 1), IN_TURN - {"turn"}),
    ("a third life of the turn where there was no second", TurnRecovered(1, 1, 2), set()),
    ("another life of another turn", TurnRecovered(2, 0), set()),
    ("an answer", ModelSaid("hi"), IN_STEP),
    ("an answer with a new call", ModelSaid("", (Call("grep", {}, "c9"),)), IN_STEP),
    ("an answer with a call that was named before", ModelSaid("", (ONE,)), {"step", "done"}),
    ("an answer with a call without an id", ModelSaid("", (Call("grep"),)), set()),
    ("an answer with one id twice", ModelSaid("", (Call("a", {}, "c9"), Call("b", {}, "c9"))), set()),
    ("a failed request", ModelFailed("no"), IN_TURN),
    ("a compaction", Compacted("so far"), {"turn", "step", "done", "between"}),
    ("the start of the first call", CALLED, {"asked"}),
    ("the start of the second call", ToolCalled("c2", "grep", {}), {"asked", "started", *INSIDE, "half done"}),
    ("a call inside the first call", INNER, {"started"}),
    ("another call inside the first call", CellCalled("c1", Call("grep", {}, "c1.2")), {"started", *INSIDE}),
    ("a call inside one that does not run", CellCalled("c2", Call("grep", {}, "c2.1")), set()),
    ("a call inside with the name of another", CellCalled("c1", Call("grep", {}, "c2")), set()),
    ("a call inside without an id", CellCalled("c1", Call("grep")), set()),
    ("the start of a call inside", INNER_CALLED, {"inside"}),
    ("the start of a call inside another cell", ToolCalled("c1.1", "grep", {}, cell="c2"), set()),
    ("the start of a call inside as if the model had asked", ToolCalled("c1.1", "grep", {}), set()),
    ("the result of a call inside", INNER_DONE, INSIDE),
    ("the result of a call inside another cell", ToolReturned("c1.1", "completed", None, "", cell="c2"), set()),
    ("the result of a call inside as if the model had asked", ToolReturned("c1.1", "completed", None, ""), set()),
    ("the start of a call nobody asked for", ToolCalled("c9", "grep", {}), set()),
    ("the result of the first call", DONE, {"asked", "started"}),
    ("the result of the second call", DONE_TWO, {"asked", "started", *INSIDE, "half done"}),
    ("the result of a call nobody asked for", ToolReturned("c9", "completed", "completed", ""), set()),
    ("a message that waits already", MessageQueued("a", "z"), EVERYWHERE - {"queued"}),
    ("a new message", MessageQueued("c", "z"), EVERYWHERE),
    ("a claim", MessagesClaimed(("b", "a")), {"queued"}),
    ("a claim of nothing", MessagesClaimed(()), EVERYWHERE),
    ("a claim of nothing with a note", MessagesClaimed((), (Message("n", "note"),)), EVERYWHERE),
    ("a claim of one message twice", MessagesClaimed(("a", "a")), set()),
    ("a claim of one message that waits and one that does not", MessagesClaimed(("a", "c")), set()),
    ("a withdrawal", MessageWithdrawn("a"), {"queued"}),
    ("a withdrawal of what does not wait", MessageWithdrawn("c"), set()),
    ("another text", MessageEdited("a", "z"), {"queued"}),
    ("another text for what does not wait", MessageEdited("c", "z"), set()),
    ("a note", NoteAdded("x"), EVERYWHERE),
    ("parking", QueueParked(parked=True), EVERYWHERE),
    ("a mode", PlanModeSet(active=True), EVERYWHERE),
    ("a choice of mode", PlanModeRequested(active=True), EVERYWHERE),
    ("a child", ChildSpawned("k", "/root/k", "t"), EVERYWHERE),
    ("the end of a child", ChildEnded("k", "completed", ""), EVERYWHERE),
)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("event", "after"), [row[1:] for row in LEGAL], ids=[row[0] for row in LEGAL])
def test_what_may_follow(event, after, state):
    """After each state each event is taken or refused as the table says, and a refusal changes nothing."""
    book = Book(*STATES[state])
    before = list(book.states)
    if state in after:
        book.add(event)
        assert [*STATES[state], event] == book.events
    else:
        with pytest.raises(InvariantBroken, match=f"{type(event).__name__} refused: "):
            book.add(event)
        assert before == book.states


def test_the_table_has_every_event_with_a_promise():
    """No promise stands in the code that the table above does not try."""
    assert set(PROMISES) <= {type(event) for _, event, _ in LEGAL}


def test_each_event_is_legal_and_illegal_somewhere():
    """Every event with a promise is taken after one state at least, and refused after another."""
    taken = {type(event) for _, event, after in LEGAL if after}
    refused = {type(event) for _, event, after in LEGAL if after != EVERYWHERE}
    assert (set(PROMISES), set(PROMISES)) == (taken & set(PROMISES), refused & set(PROMISES))


REASONS = (
    ("turn", TurnStarted(2), "TurnStarted refused: turn 1 is still open."),
    ("ended", TurnStarted(3), "TurnStarted refused: the next turn is 2."),
    ("step", TurnEnded(1, "completed"), "TurnEnded refused: step 1 is still open."),
    ("half done", StepEnded(1, 1), "StepEnded refused: call 'c2' has no result."),
    ("started", CALLED, "ToolCalled refused: call 'c1' was started before."),
    ("half done", DONE, "ToolReturned refused: call 'c1' is not open."),
    ("inside", DONE, "ToolReturned refused: call 'c1.1' inside it has no result."),
    ("asked", INNER, "CellCalled refused: call 'c1' does not run."),
    ("inside", INNER, "CellCalled refused: each call needs an id of its own."),
    ("inside started", INNER_CALLED, "ToolCalled refused: call 'c1.1' was started before."),
    ("started", INNER_DONE, "ToolReturned refused: call 'c1.1' is not open in call 'c1'."),
    ("queued", MessageQueued("a", "x"), "MessageQueued refused: message 'a' is queued already."),
    ("queued", MessagesClaimed(("a", "a")), "MessagesClaimed refused: message 'a' is not queued, or claimed twice."),
)


@pytest.mark.parametrize(("state", "event", "text"), REASONS, ids=[text for *_, text in REASONS])
def test_a_refusal_says_why(state, event, text):
    """The text names the event and the promise it would break."""
    with pytest.raises(InvariantBroken) as refused:
        Book(*STATES[state]).add(event)
    assert text == str(refused.value)


# -- what follows from it


def results_of(events: list[Event]) -> Counter[str]:
    """How many results each call of the model has."""
    return Counter(event.call for event in events if isinstance(event, ToolReturned) and event.cell is None)


@given(books())
def test_one_result_a_call(book):
    """No call has two results, and outside a step none is without."""
    asked = Counter(call.id for event in book.events if isinstance(event, ModelSaid) for call in event.calls)
    results = results_of(book.events)
    assert not results - asked
    if not book[TURN].in_step:
        assert asked == results


@given(books())
def test_turns_and_steps_nest(book):
    """Turns follow one another, numbered from 1, and so do the steps inside each."""
    depth: list[tuple[int, ...]] = []
    turns = 0
    for event in book.events:
        match event:
            case TurnStarted():
                assert ([], turns + 1) == (depth, event.turn)
                turns, steps = event.turn, 0
                depth.append((turns,))
            case StepStarted():
                assert ([(turns,)], (turns, steps + 1)) == (depth, (event.turn, event.step))
                steps = event.step
                depth.append((turns, steps))
            case StepEnded():
                assert (turns, steps) == (event.turn, event.step) == depth.pop()
            case TurnEnded():
                assert ((turns,), turns) == (depth.pop(), event.turn)
            case ModelSaid() | ToolCalled() | ToolReturned() | ModelFailed():
                assert 2 == len(depth)


@given(books())
def test_every_message_has_one_fate(book):
    """A message is still queued, was claimed once, or was withdrawn once."""
    queued = Counter(event.id for event in book.events if isinstance(event, MessageQueued))
    fates = Counter(message.id for message in book[QUEUE])
    for event in book.events:
        if isinstance(event, MessagesClaimed):
            fates.update(event.ids)
        elif isinstance(event, MessageWithdrawn):
            fates[event.id] += 1
    assert queued == fates


@given(books(), st.sampled_from(EVENTS).flatmap(events_of))
def test_any_event_at_all_is_taken_or_refused(book, event):
    """Whatever an event says, a log answers with nothing but the refusal."""
    try:
        check(book[TURN], book[QUEUE], event)
    except InvariantBroken:
        return
    book.add(event)


def test_a_session_is_opened_by_its_first_event():
    """The opening may stand at the beginning of a log."""
    assert [SessionOpened()] == Book(SessionOpened()).events

"""The built-in folds: what each makes of its events, and that folding on is the same as folding anew."""

import pytest
from hypothesis import given

from callboard.actors.books import BUILT_IN, FILLED, HISTORY, OPENED, PARKED, QUEUE, TURN, USAGE, Turn
from callboard.actors.calls import NO_CALLS, Calls, OpenCall
from callboard.actors.children import CHILDREN, Child
from callboard.actors.codec import Codec
from callboard.actors.eventlog import EventLog
from callboard.actors.events import (
    AbortRequested,
    Call,
    CallReceipt,
    Compacted,
    Event,
    Message,
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
    Usage,
    UserText,
)
from callboard.actors.facts import ChildEnded, ChildSpawned, PlanModeRequested, PlanModeSet
from callboard.actors.fold import Folds, Trail, replay
from callboard.actors.memory import MemoryStore
from callboard.actors.mode import MODE, Mode
from callboard.actors.model import Assistant, Developer, Result, User
from callboard.actors.seen import SEEN

from .event_samples import CODEC, Book
from .stories import books

ONE, TWO = Call("grep", {"a": 1}, "c1"), Call("shell", {}, "c2")
OPEN = (TurnStarted(1, started_ms=5), StepStarted(1, 1))


def test_opened_is_the_opening():
    """The fold of the opening is the event itself, None before it."""
    opening = SessionOpened(root="s", depth=2, path="/root/a")
    assert (None, opening) == (replay(OPENED, []), replay(OPENED, [opening]))


QUEUES = {
    "in order": ([MessageQueued("a", "x"), MessageQueued("b", "y", "goal", wake=False)], ["a", "b"]),
    "withdrawn": ([MessageQueued("a", "x"), MessageQueued("b", "y"), MessageWithdrawn("a")], ["b"]),
    "claimed in any order": (
        [MessageQueued("a", "x"), MessageQueued("b", "y"), MessageQueued("c", "z"), MessagesClaimed(("c", "a"))],
        ["b"],
    ),
    "nothing claimed": ([MessageQueued("a", "x"), MessagesClaimed(())], ["a"]),
    "an id may come again later": ([MessageQueued("a", "x"), MessageWithdrawn("a"), MessageQueued("a", "x")], ["a"]),
}


@pytest.mark.parametrize(("events", "ids"), QUEUES.values(), ids=QUEUES)
def test_queue(events, ids):
    """The queue is what came in and neither was withdrawn nor claimed, oldest first."""
    assert ids == [message.id for message in replay(QUEUE, events)]


def test_a_queued_message_keeps_all_it_came_with():
    """A message in the queue has the id, text, source and wake of its event."""
    assert (Message("b", "y", "goal", wake=False),) == replay(QUEUE, [MessageQueued("b", "y", "goal", wake=False)])


def test_parked_is_the_last_word():
    """The queue is parked as the last event said, not before the first."""
    park, release = QueueParked(parked=True), QueueParked(parked=False)
    assert [False, True, False] == [replay(PARKED, events) for events in ([], [park], [park, release])]


HISTORIES = {
    "what was claimed, in the order of the claim": (
        [MessageQueued("a", "x"), MessageQueued("b", "y", "steer"), MessagesClaimed(("b", "a"))],
        [User("y", "steer"), User("x")],
    ),
    "what a hook let in instead": (
        [MessageQueued("a", "x"), MessagesClaimed(("a",), (Message("n", "note", "notice"), Message("a", "X")))],
        [User("note", "notice"), User("X")],
    ),
    "nothing of a claim that a hook emptied": ([MessageQueued("a", "x"), MessagesClaimed(("a",), ())], []),
    "nothing of what was withdrawn": ([MessageQueued("a", "x"), MessageWithdrawn("a")], []),
    "an answer with its calls": ([ModelSaid("hi", (ONE,))], [Assistant("hi", (ONE,))]),
    "an answer that was cut": ([ModelSaid("hi", interrupted=True)], [Assistant("hi", interrupted=True)]),
    "calls without a text": ([ModelSaid("", (ONE,))], [Assistant("", (ONE,))]),
    "no empty answer": ([ModelSaid("")], []),
    "a result": ([ToolReturned("c1", "completed", "completed", "ok", 1.0, "grep")], [Result("c1", "grep", "ok")]),
    "a failure": (
        [ToolReturned("c1", "failed", "failed", "no", 1.0, "grep")],
        [Result("c1", "grep", "no", failed=True)],
    ),
    "a call that never ran": (
        [ToolReturned("c1", "not_started", None, "no", name="grep")],
        [Result("c1", "grep", "no", failed=True)],
    ),
    "notes by their role": ([NoteAdded("a"), NoteAdded("b", "user", "marker")], [Developer("a"), User("b", "marker")]),
    "no failed request": ([ModelFailed("no")], []),
    "what a compaction keeps, and what was queued before it": (
        [
            *(MessageQueued("a", "x"), MessageQueued("b", "y"), MessagesClaimed(("a",)), ModelSaid("hi")),
            *(Compacted("we met", "briefing: ", (UserText("x"), UserText("z", "steer"))), MessagesClaimed(("b",))),
        ],
        [User("x"), User("z", "steer"), User("briefing: we met", "notice"), User("y")],
    ),
}


@pytest.mark.parametrize(("events", "messages"), HISTORIES.values(), ids=HISTORIES)
def test_history(events, messages):
    """The history is what the model has seen, in order."""
    assert messages == list(replay(HISTORY, events).messages)


TURNS: dict[str, tuple[tuple[Event, ...], Turn]] = {
    "none": ((), Turn()),
    "started": (
        (TurnStarted(1, "review", "automatic", 5),),
        Turn(1, open=True, kind="review", start="automatic", started_ms=5),
    ),
    "in a step": (OPEN, Turn(1, open=True, step=1, in_step=True, started_ms=5)),
    "between steps": ((*OPEN, StepEnded(1, 1)), Turn(1, open=True, step=1, started_ms=5)),
    "asked": (
        (*OPEN, ModelSaid("hi", (ONE, TWO), usage=Usage(3), truncated=True)),
        Turn(
            1,
            open=True,
            step=1,
            in_step=True,
            calls=Calls((ONE, TWO), {"c1": 0, "c2": 1}),
            tool_calls=2,
            last_message="hi",
            truncated=True,
            started_ms=5,
            usage=Usage(3),
            answer="hi",
            acts=True,
        ),
    ),
    "half done": (
        (
            *(
                *OPEN,
                ModelSaid("", (ONE, TWO)),
                ToolCalled("c1", "grep", ONE.arguments, "none"),
                ToolCalled("c2", "shell", TWO.arguments),
            ),
            ToolReturned("c1", "completed", "completed", "ok", 0.5, "grep"),
        ),
        Turn(
            1,
            open=True,
            step=1,
            in_step=True,
            calls=Calls((ONE, TWO), {"c1": 0, "c2": 1}, started=0b11, repeatable=0b01, returned=0b01),
            results=Trail([CallReceipt("c1", "grep", "completed", 0.5)]),
            tool_calls=2,
            started_ms=5,
            answer="",
            acts=True,
        ),
    ),
    "the last message stays": (
        (*OPEN, ModelSaid("a"), ModelSaid("")),
        Turn(1, open=True, step=1, in_step=True, last_message="a", started_ms=5, answer=""),
    ),
    "gone on with after a crash, once in this step": (
        (*OPEN, TurnRecovered(1, 1), StepEnded(1, 1), StepStarted(1, 2), TurnRecovered(1, 2), TurnRecovered(1, 2, 2)),
        Turn(1, open=True, step=2, in_step=True, started_ms=5, recoveries=2),
    ),
    "the first cause wins": (
        (*OPEN, AbortRequested(1, "replaced"), AbortRequested(1, "shutdown")),
        Turn(1, open=True, step=1, in_step=True, cause="replaced", started_ms=5),
    ),
    "ended, with what it said": (
        (
            *(*OPEN, ModelSaid("a", (ONE,), usage=Usage(3)), ToolReturned("c1", "failed", "failed", "", 0.5, "grep")),
            *(StepEnded(1, 1), TurnEnded(1, "completed")),
        ),
        Turn(1, step=1, tool_calls=1, last_message="a", started_ms=5, usage=Usage(3)),
    ),
    "a compaction is used up tokens": (
        (*OPEN, ModelSaid("a", usage=Usage(3)), Compacted("so far", usage=Usage(4, output=1))),
        Turn(1, open=True, step=1, in_step=True, last_message="a", started_ms=5, usage=Usage(7, output=1), answer="a"),
    ),
    "the next one begins anew": (
        (*OPEN, ModelSaid("a", usage=Usage(3)), StepEnded(1, 1), TurnEnded(1, "completed"), TurnStarted(2)),
        Turn(2, open=True),
    ),
}


@pytest.mark.parametrize(("events", "turn"), TURNS.values(), ids=TURNS)
def test_turn(events, turn):
    """The turn is what its events say, from the start of the last one."""
    assert turn == Book(*events)[TURN]


def test_calls_are_open_from_the_answer_to_their_result():
    """A call is open from the answer that names it, started by its ToolCalled, and gone with its result."""
    asked = NO_CALLS.ask((ONE, TWO))
    started = asked.start("c1", "idempotent", ONE.arguments).start("c2", "once", TWO.arguments)
    returned = started.finish("c1")
    both, left = OpenCall(ONE, started=True, repeatable=True), OpenCall(TWO, started=True)
    assert [(), (OpenCall(ONE), OpenCall(TWO)), (both, left), (left,), ()] == [
        calls.open() for calls in (NO_CALLS, asked, started, returned, returned.finish("c2"))
    ]
    assert [False, True, True, True, False] == [
        bool(calls) for calls in (NO_CALLS, asked, started, returned, returned.finish("c2"))
    ]
    assert [(False, False), (True, False), (True, True), (False, True)] == [
        (calls.is_open("c1"), calls.is_started("c1")) for calls in (NO_CALLS, asked, started, returned)
    ]


def test_calls_that_nobody_asked_for_change_nothing():
    """A start or a result of an unknown call leaves the batch as it is."""
    asked = NO_CALLS.ask((ONE,))
    assert asked is asked.start("c9", "once", {})
    assert asked is asked.finish("c9")
    assert (False, False) == (asked.is_open("c9"), asked.is_started("c9"))


def test_a_second_answer_adds_its_calls():
    """More calls in one step join the open ones, behind them."""
    calls = NO_CALLS.ask((ONE,)).start("c1", "once", ONE.arguments).ask((TWO,))
    assert (OpenCall(ONE, started=True), OpenCall(TWO)) == calls.open()


def test_no_answer_of_a_turn_is_kept_after_its_end():
    """An idle session keeps neither calls nor receipts: they are in the TurnEnded."""
    events = TURNS["ended, with what it said"][0]
    assert ((), ()) == (Book(*events)[TURN].receipts, Book(*events)[TURN].calls.open())
    assert (CallReceipt("c1", "grep", "failed", 0.5),) == Book(*events[:-1])[TURN].receipts


def test_usage_is_the_sum_over_all_turns():
    """Usage grows with every answer and never starts anew."""
    events = (ModelSaid("", usage=Usage(1, 2, 3, 4, 0.5)), TurnStarted(2), ModelSaid("", usage=Usage(1, 1, 1, 1, 0.25)))
    assert Usage(2, 3, 4, 5, 0.75) == replay(USAGE, events)
    assert Usage(1).minus(Usage(3, 1)) == Usage(0)
    assert 4 == Usage(1, 2, 3, 4).total


def test_usage_has_what_compactions_used():
    """A compaction's tokens count like those of an answer."""
    assert Usage(3, output=1) == replay(USAGE, (ModelSaid("", usage=Usage(1)), Compacted("", usage=Usage(2, output=1))))


def test_filled_is_what_was_counted_last():
    """The window holds what the last answer that was counted read and said, and nothing known after a compaction."""
    counted, uncounted = ModelSaid("", usage=Usage(100, 50, 7, 3)), ModelSaid("")
    assert (107, 107, 0, 0) == tuple(
        replay(FILLED, events)
        for events in ((counted,), (counted, uncounted), (uncounted,), (counted, Compacted("", usage=Usage(90))))
    )


MODES = {
    "off": ([], Mode()),
    "chosen": ([PlanModeRequested(active=True, narrate=False)], Mode(pending=True, narrate=False)),
    "taken back": ([PlanModeRequested(active=True), PlanModeRequested(None)], Mode()),
    "set": ([PlanModeRequested(active=True), PlanModeSet(active=True)], Mode(active=True)),
    "off again": ([PlanModeSet(active=True), PlanModeSet(active=False)], Mode()),
}


@pytest.mark.parametrize(("events", "mode"), MODES.values(), ids=MODES)
def test_mode(events, mode):
    """Plan mode is what was set last, beside the selection that waits."""
    assert mode == replay(MODE, events)


def test_children():
    """Children stand in the order of their start, each with its last end."""
    events = (
        *(ChildSpawned("k1", "/root/a", "dig"), ChildSpawned("k2", "/root/b", "fill")),
        *(ChildEnded("k2", "failed", "no shovel", 1), ChildEnded("k2", "completed", "done", 2)),
        ChildEnded("k9", "completed", "who?"),
    )
    expected = (Child("k1", "/root/a", "dig"), Child("k2", "/root/b", "fill", "completed", "done", 2))
    assert expected == replay(CHILDREN, events)


def test_seen_keeps_the_first_answer_to_each_given_id():
    """Only ids that senders chose are kept, with the answer they got; all messages are counted."""
    events = (
        MessageQueued("auto:1", "x", seq=1),
        MessageQueued("a", "x", given=True, seq=2, turn=1),
        MessageQueued("a", "y", given=True, seq=9),
    )
    seen = replay(SEEN, events)
    assert (3, 1, (2, 1), None) == (seen.count, len(seen.ids), seen.ids.get("a"), seen.ids.get("auto:1"))


@given(books())
def test_replaying_a_log_gives_the_state_it_had(book):
    """Folding all events anew, from their bytes, gives what was folded one by one."""
    again = [CODEC.decode(CODEC.encode(event)) for event in book.events]
    assert book.states == [replay(projection, again) for projection in BUILT_IN]


@given(books(max_size=20))
def test_reading_a_log_half_way_is_the_same_as_having_lived_it(book):
    """A log loaded from its store has the states of the one that wrote it, and both go on alike."""
    store = MemoryStore()
    store.open(lambda fn: fn())
    live = EventLog("s", store, Codec(), Folds(BUILT_IN), lambda: 5, lambda event, session, turn: None)
    for event in book.events:
        live.append(event)
        loaded = EventLog("s", store, Codec(), Folds(BUILT_IN), lambda: 5, lambda event, session, turn: None)
        loaded.load(store.read("s", -1, 1_000))
        assert (live.states, live.seq, live.at_ms) == (loaded.states, loaded.seq, loaded.at_ms)


def test_a_step_of_a_thousand_calls_and_a_turn_of_two_thousand():
    """Every call gets its receipt, in order, however many there are."""
    book = Book(TurnStarted(1))
    for step in (1, 2):
        calls = tuple(Call("grep", {}, f"c{step}.{at}") for at in range(1_000))
        book.add(StepStarted(1, step), ModelSaid("", calls), *(ToolCalled(c.id, "grep", {}) for c in calls))
        book.add(*(ToolReturned(c.id, "completed", "completed", "", 0.0, "grep") for c in calls), StepEnded(1, step))
    expected = [f"c{step}.{at}" for step in (1, 2) for at in range(1_000)]
    assert (expected, 2_000) == ([receipt.call for receipt in book[TURN].receipts], book[TURN].tool_calls)

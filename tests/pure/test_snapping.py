"""Snapshots: from any of them and the rest of its log a session stands where its whole log leads."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.asked import key_of
from callboard.actors.books import TURN
from callboard.actors.eventlog import EventLog
from callboard.actors.events import (
    Call,
    Compacted,
    Event,
    MessageQueued,
    MessagesClaimed,
    ModelSaid,
    SessionOpened,
    ShellEnded,
    ShellStarted,
    StepEnded,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from callboard.actors.facts import (
    ApprovalAsked,
    ApprovalDecided,
    Goal,
    GoalChanged,
    Option,
    PlanApproved,
    PlanHandedOver,
    PlanModeRequested,
    PlanModeSet,
    PlanProposed,
    PlanStep,
    PlanUpdated,
    QuestionAnswered,
    QuestionAsked,
    Reminder,
    ReminderDeleted,
    ReminderSet,
    Todo,
    TodosWritten,
    ToolsFound,
)
from callboard.actors.fold import Index, Projection, Trail
from callboard.actors.memory import MemoryStore
from callboard.actors.seen import IDS_MAX, SEEN
from callboard.actors.snapping import LOG_KEY, Mark, dump, start
from callboard.actors.store import Record, Snapshot
from callboard.plugins import DEFAULT
from callboard.plugins.ask import NAME as ASK
from callboard.plugins.goalbook import after
from callboard.runtime.assembly import Assembly, assemble
from callboard.runtime.config import RuntimeConfig

from .test_golden import GOLDEN, LOGS

ASSEMBLY: Assembly = assemble(RuntimeConfig(), DEFAULT, (), ())
FOLDS = ASSEMBLY.folds


def records_of(name: str) -> list[Record]:
    """A golden log as a store has it."""
    lines = (ASSEMBLY.codec.from_line(line) for line in (GOLDEN / name).read_bytes().splitlines())
    return [Record(one.seq, one.at_ms, one.turn, ASSEMBLY.codec.encode(one.event)) for one in lines]


def empty(records: Sequence[Record] = ()) -> EventLog:
    """A log with nothing on it, whose store has these records."""
    store = MemoryStore()
    if records:
        store.append("s", records)
    return EventLog("s", store, ASSEMBLY.codec, FOLDS, lambda: 0, lambda event, session, turn: None)


def loaded(records: Sequence[Record], kept: Sequence[Snapshot] = ()) -> EventLog:
    """A log as it is opened: from what was kept, then what came since."""
    log = empty(records)
    log.resume(log.start_of(kept))
    log.load(record for record in records if record.seq >= log.seq)
    return log


def taken(log: EventLog) -> list[Snapshot]:
    """The snapshots of a log as it stands."""
    return dump(FOLDS, log.states, log.seq - 1, Mark(log.at_ms, log.last_end))


@pytest.mark.parametrize("name", LOGS)
def test_a_log_from_any_snapshot_on_is_the_same(name):
    """At every event: the states come back equal, and with the rest they lead to the same end."""
    records = records_of(name)
    whole = loaded(records)
    log = empty()
    for record in records:
        log.load([record])
        kept = taken(log)
        again = loaded(records[: record.seq + 1], kept)
        assert (log.states, log.seq, log.at_ms, log.last_end) == (again.states, again.seq, again.at_ms, again.last_end)
        assert log.due_ms == again.due_ms
        assert log.states == loaded(records[: record.seq + 1], taken(again)).states
        on = loaded(records, kept)
        assert (whole.states, whole.seq, whole.last_end) == (on.states, on.seq, on.last_end)


@pytest.mark.parametrize("name", LOGS)
def test_behind_a_snapshot_appends_are_the_same(name):
    """What is appended to a log that was resumed gives the same states as to one that was read."""
    records = records_of(name)
    for cut in range(1, len(records)):
        log = loaded(records[:cut])
        again = loaded(records[:cut], taken(log))
        for one in (log, again):
            one.append(ASSEMBLY.codec.decode(records[cut].body), at_ms=1)
        assert log.states == again.states


def usable(*changed: Snapshot, without: str = "") -> bool:
    """Whether a set of snapshots with these changes is used."""
    kept = {one.key: one for one in taken(loaded(records_of(LOGS[0])))} | {one.key: one for one in changed}
    kept.pop(without, None)
    return start(FOLDS, list(kept.values())) is not None


LAST_SEQ = len(records_of(LOGS[0])) - 1


@pytest.mark.parametrize("key", ["turn", LOG_KEY, "goal"])
@pytest.mark.parametrize(
    "spoilt",
    [
        {"version": 99},
        {"seq": LAST_SEQ - 1},
        {"body": b""},
        {"body": b"\xff\0"},
        {"body": b"{"},
        {"body": b"null"},
        {"body": b"[" * 100_000},
        {"body": b"7"},
        {"body": 7},
        {"body": None},
        {"version": "1"},
        {"seq": None},
    ],
    ids=repr,
)
def test_a_spoilt_snapshot_is_no_snapshot(key, spoilt: dict[str, Any]):
    """Another version or moment, damage, and what somebody else wrote there: the log is read from its beginning."""
    (whole,) = (one for one in taken(loaded(records_of(LOGS[0]))) if one.key == key)
    assert usable(whole)
    assert not usable(msgspec.structs.replace(whole, **spoilt))


@pytest.mark.parametrize("key", [LOG_KEY, *(one.key for one in FOLDS.projections)])
def test_a_changed_byte_is_no_snapshot(key):
    """Whatever byte of one is another or missing, also where it could still be read as a state: it is not used."""
    (whole,) = (one for one in taken(loaded(records_of(LOGS[0]))) if one.key == key)
    step = max(1, len(whole.body) // 64)
    for at in range(0, len(whole.body), step):
        changed = bytes((*whole.body[:at], whole.body[at] ^ 1, *whole.body[at + 1 :]))
        assert not usable(msgspec.structs.replace(whole, body=changed))
        assert not usable(msgspec.structs.replace(whole, body=whole.body[:at]))


@pytest.mark.parametrize("by", [-9, -1, 1])
def test_snapshots_moved_in_the_log_are_none(by):
    """All of them at another event, however well they agree: what stands between would count twice or never."""
    kept = [msgspec.structs.replace(one, seq=one.seq + by) for one in taken(loaded(records_of(LOGS[0])))]
    assert start(FOLDS, kept) is None


@pytest.mark.parametrize("body", [b"", b"[]", 7, None, "text"], ids=repr)
def test_a_snapshot_of_a_plugin_that_is_gone_is_no_matter(body: Any):
    """Whatever stands in it, the others are used: nobody reads it."""
    assert usable(Snapshot("a plugin of before", 1, 3, body))


def test_a_missing_snapshot_spoils_all():
    """Each projection must have its own, and the log too."""
    assert not usable(without="turn")
    assert not usable(without=LOG_KEY)
    assert start(FOLDS, []) is None


def test_a_projection_without_a_written_form_is_told():
    """A plain zero says its type; a tuple says nothing, and its plugin has no snapshots until it names one."""
    assert (int, None) == tuple(Projection("x", zero, lambda state, event: state).state for zero in (0, ()))
    named: Projection[tuple[str, ...]] = Projection("x", (), lambda state, event: state, state=tuple[str, ...])
    assert tuple[str, ...] == named.state
    codec = assemble(RuntimeConfig(), DEFAULT, (), ())
    assert codec.folds.written


def test_no_snapshot_inside_a_turn():
    """A log is written down between turns alone, and only once enough has come."""
    store = MemoryStore()
    records = records_of(LOGS[0])
    log = EventLog("s", store, ASSEMBLY.codec, FOLDS, lambda: 0, lambda event, session, turn: None)
    seen = set()
    for record in records:
        log.append(ASSEMBLY.codec.decode(record.body), at_ms=1)
        log.snap(0)
        for one in store.snapshots("s"):
            seen.add(one.seq)
        assert log.seq - 1 not in seen or not log[TURN].open
    assert seen
    before = store.snapshots("s")
    log.snap(1 << 30)
    assert before == store.snapshots("s")


@given(st.lists(st.text(max_size=3), max_size=30), st.integers(0, 40))
def test_an_index_of_its_newest(keys, count):
    """The newest keys alone, in order, each with its value; more than there are is all."""
    index = Index[int]()
    for at, key in enumerate(keys):
        index = index.plus(key, at)
    assert index.items()[max(0, len(index) - count) :] == index.newest(count).items() if count else True
    assert index == Index.of(index.items())


def test_trails_in_a_state_share_nothing_with_the_old_one():
    """A state that was read back grows by itself."""
    log = loaded(records_of(LOGS[0]))
    found = start(FOLDS, taken(log))
    assert found is not None
    for mine, theirs in zip(log.states, found.states, strict=True):
        assert mine == theirs
        assert not isinstance(mine, Trail) or mine is not theirs


WIDER_BYTES_MAX = 64
"""Counts grow wider."""


def busy_turn(number: int) -> Iterator[Event]:
    """A turn in which everything happens that may happen in a session again and again."""
    of = number + 10_000  # in ids, so that none is wider than another
    call, goal = f"t{of}", Goal(f"goal-{number}", 1, "dig", "active", 5)
    question = QuestionAsked(f"q{of}", call, number, ASK, "Where", "Here?", (Option("yes"),))
    reminder = Reminder(f"schedule-{of}", "after", "look", "1", 2, 1)
    yield MessageQueued(f"m{of}", "Go on.")
    yield TurnStarted(number)
    if number % 50 == 0:
        yield Compacted("All is well.")
    yield MessagesClaimed((f"m{of}",))
    yield from (PlanModeSet(active=True), PlanModeRequested(active=False), PlanModeSet(active=False))
    yield StepStarted(number, 1)
    yield ModelSaid("I do.", (Call("grep", {}, call),))
    yield question
    yield QuestionAnswered(question.id, "answered", ("yes",))
    yield ApprovalAsked(f"a{of}", call, number, "grep", {}, key_of("grep", {}))
    yield ApprovalDecided(f"a{of}", "allow_session" if number % 2 else "allow_once")
    yield ToolCalled(call, "grep", {})
    yield from (GoalChanged("create", goal), GoalChanged("complete", after(goal, "complete")))
    yield from (ReminderSet(reminder, f"k{of}"), ReminderDeleted(reminder.id, f"d{of}"))
    yield TodosWritten((Todo("dig", "pending"),))
    yield PlanUpdated(None, (PlanStep("dig", "pending"),))
    yield from (PlanProposed(f"{of}-plan", "Dig."), PlanApproved(f"{of}-plan", "clear", "Dig."))
    yield PlanHandedOver(f"{of}-plan", "other")
    yield ToolsFound(("grep", "dig"))
    yield from (ShellStarted(f"s{of}", "ls", number), ShellEnded(f"s{of}", "exited", 0))
    yield ToolReturned(call, "completed", "completed", "found", name="grep")
    yield StepEnded(number, 1)
    yield TurnEnded(number, "completed", last_message="I do.")


def test_the_snapshot_of_a_long_log_is_no_larger():
    """However many turns a session has had, with compactions no state of a fold is larger than it was."""
    log, sizes_bytes = empty(), list[dict[str, int]]()
    log.append(SessionOpened())
    for number in range(1, 1_501):
        log.append(*busy_turn(number))
        if number % 500 == 449:  # after many compactions, and before one, when it is largest
            sizes_bytes.append({one.key: len(one.body) for one in taken(log)})
    assert {} == {key: size for key, size in sizes_bytes[-1].items() if size > sizes_bytes[0][key] + WIDER_BYTES_MAX}


def test_everything_happens_in_a_busy_turn():
    """So that the test above means all folds: each has another state at some time, but for a few that cannot grow."""
    log, touched = empty(), set[str]()
    log.append(SessionOpened())
    for event in busy_turn(1):
        log.append(event)
        touched |= {p.key for p, state in zip(FOLDS.projections, log.states, strict=True) if state != p.zero}
    assert {"parked", "usage", "filled", "children"} == {one.key for one in FOLDS.projections} - touched


def test_ids_are_known_for_long_and_not_for_ever():
    """The newest ids are known, at most twice IDS_MAX; one that is older is a new one."""
    state, total = SEEN.zero, 2 * IDS_MAX + 5
    for number in range(total):
        state = SEEN.apply(state, MessageQueued(f"id{number}", "x", given=True, seq=number))
    assert (total, IDS_MAX + 5) == (state.count, len(state.ids))
    assert (total - 1, None) == state.ids.get(f"id{total - 1}")
    assert state.ids.get("id0") is None
    assert all(f"id{number}" in state.ids for number in range(total - IDS_MAX, total))

"""Logs of the past: every build reads them, writes them back byte for byte, and folds them to what they meant.

The files in `tests/golden/` are never changed. A new form of log is a new file, with its digest in the table.
"""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from callboard.actors.asked import APPROVALS, PERMISSIONS, QUESTIONS
from callboard.actors.books import BUILT_IN, HISTORY, OPENED, PARKED, QUEUE, TURN, USAGE
from callboard.actors.children import CHILDREN
from callboard.actors.codec import Codec
from callboard.actors.envelope import CORE_EVENTS, Envelope, Unknown
from callboard.actors.eventlog import EventLog
from callboard.actors.events import Event, ToolReturned
from callboard.actors.facts import PLUGIN_EVENTS
from callboard.actors.fold import Folds
from callboard.actors.memory import MemoryStore
from callboard.actors.mode import MODE
from callboard.actors.receipts import repair
from callboard.actors.seen import SEEN
from callboard.plugins.goalbook import GOAL
from callboard.plugins.handovers import HANDOVERS, PROPOSED
from callboard.plugins.plan import PLAN
from callboard.plugins.reminders import SCHEDULE
from callboard.plugins.todo import TODOS

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
DIGESTS = {
    "agents-1.jsonl": "28b6a1de16b23f4da82d69a074dc37796e6fac4be28e28442eeb683ba5f1effc",
    "cells-1.jsonl": "30ab8e4fe45f80970882745693a28339b3f1534bc90b13120e3854f408af41ed",
    "compacted-1.jsonl": "48e1de4b886b3e83548f61b990031a297d9fa69907c77d43fef76032ed9f5f88",
    "compacted-1.state.json": "0eeea719e38b86e80a124a5d13f9711e8c5efc416b35babc6b55ceb6666ea5fa",
    "crash-1.jsonl": "aaaecab41a407366aeb490a7cd9bf18636eee3364be52fbd5bcaf8058bb01b12",
    "crash-1.repaired.jsonl": "7a09f28521f78e866ce69e95a9e0606011984e3492f958ba5446a080b29feaf8",
    "hooks-1.jsonl": "9612d690fecd56b128dcd56e79d264e5645f77de2a2b702eaefe220e2078add4",
    "models-1.jsonl": "42297f827e0af0583f197667fdaff53dbaafee7502dee4c0518379895e8a56ad",
    "models-1.state.json": "627b5a7f5b6b66c95e2f65510a342901bbdfd9348af900fdaa2fd6a4b3b49e73",
    "neighbours-1.jsonl": "45a79e41267d4f4cd603487a3ba45cc01e079c967c6687672fccb4a5a59b9670",
    "neighbours-1.state.json": "dfac3dc762c894b25f359d04bb44745d3828b43a060601def17a4e54b768a94b",
    "recovered-1.jsonl": "a804f3f5a6c85ea0deefcf5aaf022a760fa082f09b677e5f9f02e8a97605add4",
    "review-1.jsonl": "b76bd416b758f2803f45c7d3169a27cedd43a945b09b6e6665e110dd189b0eed",
    "story-1.jsonl": "47a691b2f2bcfd7266937fef0fb78c89a055827c4f3563d44e7ec42a5e9230b6",
    "verbs-1.jsonl": "372842de41db6973b3acd197833296ce9395e9ef5f825967ba70d572251ff0fb",
    "story-1.state.json": "9d9fafcb7ecee397864653e483c506bfcce7aec881ebbd3254576a46d642570a",
}
LOGS = [name for name in DIGESTS if name.endswith(".jsonl")]
CODEC = Codec()
FOLDS = Folds((*BUILT_IN, PLAN, TODOS, PROPOSED, HANDOVERS, SCHEDULE, GOAL))


def envelopes(name: str) -> list[Envelope]:
    """The envelopes of a golden log."""
    return [CODEC.from_line(line) for line in (GOLDEN / name).read_bytes().splitlines()]


def replayed(name: str) -> EventLog:
    """A log that was given the events of a golden one, checked as they come."""
    store = MemoryStore()
    store.open(lambda fn: fn())
    log = EventLog("s", store, CODEC, FOLDS, lambda: 0, lambda event, session, turn: None)
    for envelope in envelopes(name):
        log.append(envelope.event, at_ms=envelope.at_ms)
    return log


def meaning(log: EventLog) -> dict[str, Any]:
    """What a log says, in plain values that do not depend on how the folds keep it."""
    turn, seen = log[TURN], log[SEEN]
    values = {
        "opened": log[OPENED],
        "queue": log[QUEUE],
        "parked": log[PARKED],
        "messages": list(log[HISTORY].messages),
        "turn": {"number": turn.number, "open": turn.open, "step": turn.step, "calls": turn.tool_calls},
        "said_last": turn.last_message,
        "usage": log[USAGE],
        "plan_mode": log[MODE],
        "children": log[CHILDREN],
        "ids": {id: seen.ids.get(id) for id in ("mine", "later", "again", "child:golden-story.1:1", "auto:1")},
        "messages_queued": seen.count,
        "plan": log[PLAN],
        "todos": log[TODOS],
    }
    plain: dict[str, Any] = whole(values | {name: value for name, value in neighbours(log).items() if value})
    return plain


def neighbours(log: EventLog) -> dict[str, Any]:
    """What a log says of plans, questions, approvals, reminders and goals; empty where it says nothing."""
    permitted, book = log[PERMISSIONS], log[GOAL]
    return {
        "proposed": log[PROPOSED],
        "handovers": log[HANDOVERS],
        "questions": log[QUESTIONS],
        "approvals": log[APPROVALS],
        "policy": permitted.policy,
        "allowed": permitted.tools,
        "reminders": log[SCHEDULE].active,
        "goal": book.goal,
        "rounds": book.rounds,
    }


def whole(value: Any) -> Any:
    """A value as JSON has it: of a Struct its name if it has a tag, and the fields that are not at their defaults."""
    if isinstance(value, msgspec.Struct):
        named = {"is": type(value).__name__} if value.__struct_config__.tag else {}
        fields = {f.name: (getattr(value, f.name), f.default) for f in msgspec.structs.fields(value)}
        return {**named, **{name: whole(given) for name, (given, default) in fields.items() if given != default}}
    if isinstance(value, dict):
        return {key: whole(part) for key, part in value.items()}
    return [whole(part) for part in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("name", DIGESTS)
def test_a_golden_file_never_changes(name):
    """What was written once stays as it is."""
    assert DIGESTS[name] == hashlib.sha256((GOLDEN / name).read_bytes()).hexdigest()


def test_every_golden_file_is_watched():
    """No file lies there without its digest."""
    assert set(DIGESTS) == {path.name for path in GOLDEN.iterdir() if path.is_file()}


@pytest.mark.parametrize("name", LOGS)
def test_a_golden_log_is_written_back_byte_for_byte(name):
    """Reading a line and writing it gives the same bytes, whatever fields events gained since."""
    lines = (GOLDEN / name).read_bytes().splitlines()
    assert lines == [CODEC.to_line(envelope) for envelope in envelopes(name)]


@pytest.mark.parametrize("name", LOGS)
def test_a_golden_log_keeps_every_promise(name):
    """Its events still may follow each other, numbered from 0, each in the turn that its line names."""
    log = replayed(name)
    turns = [record.turn for record in log._store.read("s", -1, 1_000)]
    lines = envelopes(name)
    assert (list(range(len(lines))), turns) == ([line.seq for line in lines], [line.turn for line in lines])


@pytest.mark.parametrize("name", [name.removesuffix(".state.json") for name in DIGESTS if name.endswith(".state.json")])
def test_a_golden_log_means_what_it_meant(name):
    """Replayed to its end, a log gives the state that was recorded when it was written."""
    expected = msgspec.json.decode((GOLDEN / f"{name}.state.json").read_bytes())
    assert expected == meaning(replayed(f"{name}.jsonl"))


def test_a_golden_crash_is_repaired_as_it_was():
    """The repair gives the calls the results it gave then, at the same time; only its words may have changed."""
    log = replayed("crash-1.jsonl")
    repaired = [envelope.event for envelope in envelopes("crash-1.jsonl")] + list(repair(log[TURN], log.at_ms))
    assert [wordless(line.event) for line in envelopes("crash-1.repaired.jsonl")] == [wordless(e) for e in repaired]


def wordless(event: Event) -> Event:
    """A result without its text."""
    return msgspec.structs.replace(event, text="") if isinstance(event, ToolReturned) else event


def test_the_golden_logs_have_every_kind():
    """Every event of the core and of the shipped facts stands in a log that is kept, and one that nobody knows."""
    kinds = {type(envelope.event) for name in LOGS for envelope in envelopes(name)}
    assert {*CORE_EVENTS, *PLUGIN_EVENTS, Unknown} == kinds

"""MemoryStore beside the simplest store there could be: any sequence of calls gives the same answers."""

from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from callboard.actors.errors import Fenced, LogError
from callboard.actors.memory import MemoryStore
from callboard.actors.notices import Flushed, Notice
from callboard.actors.store import Header, Record, Store

SESSIONS = st.sampled_from(["a", "b", "ü"])
KINDS = ("note_added", "turn_started", "turn_ended")


def record(seq: int, kind: str = "note_added", at_ms: int = 0) -> Record:
    """A record whose body begins as events do."""
    return Record(seq, at_ms, None, b'{"type":"' + kind.encode() + b'","seq":' + str(seq).encode() + b"}")


@attrs.define
class Kept:
    """What one session should have in the store."""

    records: list[Record] = attrs.field(factory=list)
    header: Header | None = None


class MemoryMachine(RuleBasedStateMachine):
    """A store, and the lists it should equal."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.kept: dict[str, Kept] = {}
        self.closed = False
        self.clock_ms = 0

    def _records(self, session: str, kinds: list[str]) -> list[Record]:
        first = len(self.kept[session].records) if session in self.kept else 0
        self.clock_ms += 1
        return [record(seq, kind, self.clock_ms) for seq, kind in enumerate(kinds, first)]

    @precondition(lambda self: not self.closed)
    @rule(session=SESSIONS, kinds=st.lists(st.sampled_from(KINDS), max_size=4), title=st.none() | st.sampled_from("xy"))
    def append(self, session, kinds, title):
        """Records in order, with a header or without."""
        records = self._records(session, kinds)
        header = None if title is None else Header(session, title=title, created_ms=self.clock_ms)
        self.store.append(session, records, header)
        if records or header is not None:
            kept = self.kept.setdefault(session, Kept())
            kept.records.extend(records)
            kept.header = header or kept.header or Header(session, created_ms=self.clock_ms)

    @precondition(lambda self: not self.closed)
    @rule(session=SESSIONS, off=st.sampled_from([-2, -1, 1, 2]))
    def append_out_of_order(self, session, off):
        """A record that is not the next one changes nothing; one that is taken already is another owner's."""
        (right,) = self._records(session, ["note_added"])
        with pytest.raises(Fenced if off < 0 else LogError):
            self.store.append(session, [msgspec.structs.replace(right, seq=right.seq + off)])

    @precondition(lambda self: self.closed)
    @rule(session=SESSIONS)
    def append_when_closed(self, session):
        """A closed store takes nothing."""
        with pytest.raises(LogError):
            self.store.append(session, self._records(session, ["note_added"]))

    @rule(session=SESSIONS, after=st.integers(-3, 8), limit=st.integers(-1, 5))
    def read(self, session, after, limit):
        """A page of what is there."""
        records = self.kept.get(session, Kept()).records
        expected = [one for one in records if one.seq > after][: max(0, limit)]
        assert expected == self.store.read(session, after, limit)

    @rule(session=SESSIONS, kinds=st.lists(st.sampled_from(KINDS)), before=st.integers(-1, 8), limit=st.integers(0, 4))
    def last(self, session, kinds, before, limit):
        """The newest of some kinds."""
        heads = tuple(f'{{"type":"{kind}"'.encode() for kind in kinds)
        records = reversed(self.kept.get(session, Kept()).records)
        found = [one for one in records if one.seq < before and one.body.startswith(heads)]
        assert found[:limit] == self.store.last(session, kinds, before, limit)

    @rule(closing=st.booleans())
    def open_or_close(self, closing):
        """Closing and opening again, each harmless when repeated."""
        if closing:
            self.store.close()
        else:
            self.store.open(lambda fn: fn())
        self.closed = closing

    @rule()
    def sync(self):
        """The answer comes before the call returns."""
        answers: list[Any] = []
        self.store.sync(answers.append)
        assert [True] == [isinstance(one, LogError) if self.closed else one is None for one in answers]

    @invariant()
    def headers_tell_the_truth(self):
        """Each session has its header, with the number of its records and the time of the last."""
        for session, kept in self.kept.items():
            header = self.store.header(session)
            assert header is not None
            assert kept.header is not None
            last_ms = max((one.at_ms for one in kept.records), default=0)
            expected = (kept.header.title, kept.header.created_ms, len(kept.records), last_ms)
            assert expected == (header.title, header.created_ms, header.events, header.updated_ms)
        assert set(self.kept) == {header.id for header in self.store.headers()}
        updated = [header.updated_ms for header in self.store.headers()]
        assert sorted(updated, reverse=True) == updated


TestMemory = MemoryMachine.TestCase


def test_an_unknown_session_is_empty():
    """Nothing is known of a session that never was."""
    store: Store = MemoryStore()
    assert ([], None, [], []) == (store.read("x", -1, 9), store.header("x"), store.headers(), store.last("x", (), 9, 9))


def test_a_batch_with_a_gap_is_refused_whole():
    """Records that are not numbered one by one are none of them taken."""
    store = MemoryStore()
    with pytest.raises(LogError):
        store.append("a", [record(0), record(2)])
    assert [] == store.read("a", -1, 9)


def test_flushed_events_are_counted_once():
    """Each sync tells of the events since the last one, and a sync with nothing new tells nothing."""
    store, notices = MemoryStore(), list[Notice]()
    store.on_notice = notices.append
    store.append("a", [record(0), record(1)])
    store.sync(lambda error: None)
    store.sync(lambda error: None)
    assert [Flushed(0.0, 2)] == notices

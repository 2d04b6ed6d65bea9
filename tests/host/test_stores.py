"""What every store promises: one suite for the memory store, and for SQLite and PostgreSQL in both durabilities."""

import asyncio
from typing import Any

import pytest

from callboard.actors.errors import LogError, UsageError
from callboard.actors.memory import MemoryStore
from callboard.actors.notices import Flushed
from callboard.actors.store import Header, Record
from callboard.runtime.stores import open_store
from callboard.runtime.stores.sqlite import SqliteStore

from .stored import opened, record, records, schema_of, synced


@pytest.fixture(params=["memory", "full", "normal", "postgres full", "postgres normal"])
def make(request, tmp_path):
    """Makes the store under test; the second one it makes sees what the first one kept."""
    memory = MemoryStore()
    kind, _, durability = request.param.rpartition(" ")
    if kind == "postgres":
        url = schema_of(request.getfixturevalue("postgres"))
        return lambda: open_store(url, durability)
    return lambda: memory if request.param == "memory" else SqliteStore(tmp_path / "log.db", durability=request.param)


async def test_records_come_back_in_order_and_whole(make):
    """What was appended is read back equal and in order, with None and any bytes in it."""
    with opened(make()) as store:
        kept = [
            Record(0, 0, None, b'{"type":"a"}'),
            Record(1, 2**53, 7, '{"type":"é"}'.encode()),
            Record(2, -1, 1, b"\0"),
        ]
        store.append("s", kept[:1])
        store.append("s", kept[1:])
        assert await synced(store) is None
        assert kept == store.read("s", -1, 100)


async def test_reading_goes_page_by_page(make):
    """`after` and `limit` cut the log into pages without gap or repeat."""
    with opened(make()) as store:
        store.append("s", records(0, 25))
        await synced(store)
        pages, after = [], -1
        while page := store.read("s", after, 10):
            pages.append(len(page))
            after = page[-1].seq
        assert ([10, 10, 5], 24) == (pages, after)
        assert [] == store.read("s", -1, 0) == store.read("unknown", -1, 5)


async def test_a_sync_with_nothing_new_answers_at_once(make):
    """`done` is called before `sync` returns when all that was appended is durable already."""
    with opened(make()) as store:
        answers: list[Any] = []
        store.sync(answers.append)
        store.append("s", records(0, 1))
        await synced(store)
        store.sync(answers.append)
        assert [None, None] == answers


async def test_each_done_is_called_once(make):
    """A hundred syncs between a hundred appends get one answer each, in the order they asked."""
    with opened(make()) as store:
        answers: list[Any] = []
        for seq in range(100):
            store.append("s", records(seq, 1))
            store.sync(lambda error, seq=seq: answers.append((seq, error)))
        await synced(store)
        await asyncio.sleep(0.01)
        assert [(seq, None) for seq in range(100)] == answers


async def test_what_is_acknowledged_can_be_read(make):
    """The moment a sync is answered, its records are there for readers, whoever else appends meanwhile."""
    with opened(make()) as store:

        async def live(session):
            for seq in range(40):
                store.append(session, records(seq, 1))
                assert await synced(store) is None
                assert [seq] == [one.seq for one in store.read(session, seq - 1, 9)]

        await asyncio.gather(*(live(f"s{n}") for n in range(20)))


async def test_a_sync_covers_appends_of_all_sessions(make):
    """Once a sync is answered, every session's earlier records can be read."""
    with opened(make()) as store:
        for session in ("a", "b", "c"):
            store.append(session, records(0, 3))
        assert await synced(store) is None
        assert [3, 3, 3] == [len(store.read(session, -1, 9)) for session in ("a", "b", "c")]


async def test_a_thousand_sessions_interleave(make):
    """A thousand sessions that append and sync at once all find their own records, in order."""
    with opened(make()) as store:

        async def live(session):
            for seq in range(3):
                store.append(session, records(seq, 1), Header(session, status=str(seq)) if seq != 1 else None)
                assert await synced(store, session) is None

        names = [f"session {n}" for n in range(1_000)]
        await asyncio.gather(*(live(name) for name in names))
        assert all(records(0, 3) == store.read(name, -1, 9) for name in names)
        assert {(name, "2", 3) for name in names} == {(one.id, one.status, one.events) for one in store.headers()}


async def test_a_header_is_replaced_as_a_whole(make):
    """The last header given is the one read back, with the number of events counted by the store."""
    with opened(make()) as store:
        store.append("s", records(0, 1), Header("s", title="first", due_ms=5, created_ms=1, updated_ms=2_000))
        store.append("s", (), Header("s", "p", "r", "/r/s", None, "running", None, 1, 3_000, 99))
        await synced(store)
        assert Header("s", "p", "r", "/r/s", None, "running", None, 1, 3_000, 1) == store.header("s")
        store.append("s", [record(1, at_ms=4_000)])
        await synced(store)
        assert Header("s", "p", "r", "/r/s", None, "running", None, 1, 4_000, 2) == store.header("s")
        assert store.header("unknown") is None


async def test_records_without_a_header_make_one(make):
    """A session that never had a header is known by its records."""
    with opened(make()) as store:
        store.append("s", [record(0, at_ms=10), record(1, at_ms=20)])
        await synced(store)
        assert [Header("s", created_ms=10, updated_ms=20, events=2)] == store.headers()


async def test_a_header_without_records_is_kept(make):
    """A session may have a header before it has any record."""
    with opened(make()) as store:
        store.append("s", (), Header("s", title="early"))
        assert await synced(store) is None
        assert (Header("s", title="early"), []) == (store.header("s"), store.read("s", -1, 9))
        store.append("s", records(0, 1))
        assert await synced(store) is None
        assert 1 == len(store.read("s", -1, 9))


async def test_sessions_are_listed_newest_first(make):
    """The session that changed last comes first, and of equals the one that came last."""
    with opened(make()) as store:
        for session, at_ms in (("a", 5), ("b", 9), ("c", 5), ("d", 7)):
            store.append(session, [record(0, at_ms=at_ms)])
        await synced(store)
        assert ["b", "d", "c", "a"] == [one.id for one in store.headers()]


async def test_last_finds_events_of_some_kinds_backwards(make):
    """`last` gives the newest records of the named kinds before a seq, and those whose kind cannot be seen."""
    kinds = ["turn_started", "turn_ended", "turn_ended_early", "note_added"] * 3
    with opened(make()) as store:
        store.append("s", [record(seq, kind) for seq, kind in enumerate(kinds)])
        store.append("s", [Record(12, 0, None, b'{"n":1,"type":"turn_ended"}')])
        await synced(store)

        def found(wanted, before, limit):
            return [one.seq for one in store.last("s", wanted, before, limit)]

        assert [12, 9, 5, 1] == found(["turn_ended"], 100, 10)
        assert [9, 8] == found(["turn_started", "turn_ended"], 12, 2)
        assert ([12], []) == (found([], 100, 10), found(["turn_ended"], 1, 10))


async def test_any_text_is_an_id(make):
    """Ids and titles may hold quotes, wild cards, line breaks, NUL and characters of every plane."""
    names = ["", "'; DROP TABLE events; --", "100%_", "a\nb", "a\0b", "a", "\u00e9", "e\u0301", "🎭", " "]
    with opened(make()) as store:
        for at, name in enumerate(names):
            store.append(name, records(0, at + 1), Header(name, title=name))
        await synced(store)
        expected = [(at + 1, name, name) for at, name in enumerate(names)]
        assert expected == [(len(store.read(n, -1, 99)), store.header(n).id, store.header(n).title) for n in names]


async def test_half_a_surrogate_pair_is_no_id(make):
    """An id that cannot be written is refused, for appending and for reading."""
    with opened(make()) as store:
        for use in (lambda: store.append("\ud800", records(0, 1)), lambda: store.read("\ud800", -1, 1)):
            with pytest.raises(UsageError, match="surrogate"):
                use()


async def test_records_out_of_order_are_refused(make):
    """A gap and a repeat raise `LogError` at append, and what was there goes on."""
    with opened(make()) as store:
        store.append("s", records(0, 2))
        for wrong in ([record(3)], [record(1)], [record(2), record(4)]):
            with pytest.raises(LogError, match="'s'"):
                store.append("s", wrong)
        store.append("s", records(2, 1))
        assert await synced(store) is None
        assert records(0, 3) == store.read("s", -1, 9)


async def test_another_store_reads_what_was_closed(make):
    """Everything appended before `close`, synced or not, is there for the next store, which appends after it."""
    first = make()
    with opened(first):
        first.append("s", records(0, 2), Header("s", title="t"))
        await synced(first)
        first.append("s", records(2, 1))
    with opened(make()) as second:
        assert records(0, 3) == second.read("s", -1, 9)
        second.append("s", records(3, 1))
        assert await synced(second) is None
        assert "t" == second.header("s").title
        assert records(0, 4) == second.read("s", -1, 9)


async def test_a_closed_store_takes_nothing(make):
    """After `close`, which may be repeated, append raises and sync answers `LogError`."""
    store = make()
    with opened(store):
        store.append("s", records(0, 1))
    store.close()
    with pytest.raises(LogError, match="closed"):
        store.append("s", records(1, 1))
    assert isinstance(await synced(store), LogError)


async def test_close_answers_who_still_waits(make):
    """A sync in flight when the store closes is answered once, and what it waited for is kept."""
    store, answers = make(), list[Any]()
    with opened(store):
        for seq in range(50):
            store.append("s", records(seq, 1))
            store.sync(answers.append)
    await asyncio.sleep(0.01)
    assert [None] * 50 == answers
    with opened(make()) as again:
        assert 50 == len(again.read("s", -1, 99))


async def test_a_store_opens_again(make):
    """A closed store can be opened again and goes on where it was."""
    store = make()
    for seq in range(3):
        with opened(store):
            store.append("s", records(seq, 1))
            assert await synced(store) is None
    with opened(store):
        assert records(0, 3) == store.read("s", -1, 9)


async def test_flushed_counts_every_event_once(make):
    """The notices of commits add up to the events appended."""
    with opened(make()) as store:
        told: list[Any] = []
        store.on_notice = told.append
        for seq in range(20):
            store.append("s", records(3 * seq, 3))
            await synced(store)
        await asyncio.sleep(0.01)
        assert all(isinstance(one, Flushed) and one.seconds >= 0 for one in told)
        assert 60 == sum(one.events for one in told)


async def test_readers_in_threads_see_whole_commits(make):
    """Threads that read while others append never see a gap, and never more than was appended."""
    with opened(make()) as store:

        def follow():
            seen = 0
            for _ in range(60):
                page = store.read("s", -1, 10_000)
                assert list(range(len(page))) == [one.seq for one in page]
                assert seen <= len(page)
                seen = len(page)

        reading = [asyncio.create_task(asyncio.to_thread(follow)) for _ in range(6)]
        seq = 0
        while not all(task.done() for task in reading) and seq < 5_000:
            store.append("s", records(seq, 2))
            seq += 2
            await synced(store)
            await asyncio.sleep(0)
        await asyncio.gather(*reading)


async def test_a_done_that_raises_takes_nobody_along(make):
    """When one answer raises, the loop hears of it and the others are still called."""
    loop, heard, answers = asyncio.get_running_loop(), list[str](), list[Any]()
    loop.set_exception_handler(lambda _, what: heard.append(str(what["exception"])))

    def bad(error):
        raise RuntimeError("from a done")

    with opened(make()) as store:
        store.append("s", records(0, 1))
        try:
            store.sync(bad)
        except RuntimeError as error:  # a store that answers inside `sync` raises it there
            heard.append(str(error))
        store.append("s", records(1, 1))
        store.sync(answers.append)
        await synced(store)
        await asyncio.sleep(0.01)
    assert (["from a done"], [None]) == (heard, answers)

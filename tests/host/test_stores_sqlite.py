"""What the SQLite store adds: several writers on one file, and commits for groups."""

import asyncio
import contextlib
import sqlite3
from typing import Any

import pytest

from callboard.actors.errors import Fenced, LogError
from callboard.actors.store import Header, Record
from callboard.runtime.stores.sqlite import SqliteStore

from .stored import claimed, opened, records, stopped, synced, until


async def test_a_stale_first_append_is_fenced(tmp_path):
    """A store that never saw a session cannot begin in the middle or at the start of what is there."""
    path = tmp_path / "log.db"
    with opened(SqliteStore(path)) as one:
        one.append("s", records(0, 3))
        await synced(one)
    with opened(SqliteStore(path)) as two:
        two.append("s", records(1, 1))
        assert isinstance(await synced(two), Fenced)
    with opened(SqliteStore(path)) as three:
        three.append("s", records(4, 1))
        error = await synced(three)
        assert (True, False) == (isinstance(error, LogError), isinstance(error, Fenced))
        assert "gap" in str(error)


async def test_a_conflict_takes_no_other_session_along(tmp_path):
    """In one group the fenced session's waiter hears it, the others' records are kept, also of the same waiter."""
    path = tmp_path / "log.db"
    with opened(SqliteStore(path, lease_s=0.1)) as one, opened(SqliteStore(path)) as two:
        one.append("s", records(0, 1))
        assert await synced(one) is None
        with stopped(one):
            await asyncio.sleep(0.15)
            assert await claimed(two, "s") is None
        two.append("s", records(1, 1))
        assert await synced(two) is None
        for session in ("a", "s", "b"):
            one.append(session, records(0 if session != "s" else 1, 2))
        for_a, for_s, for_all = await asyncio.gather(synced(one, "a"), synced(one, "s"), synced(one))
        assert (None, Fenced, Fenced) == (for_a, type(for_s), type(for_all))
        assert [2, 2, 2] == [len(one.read(session, -1, 9)) for session in ("a", "b", "s")]
        one.append("a", records(2, 1))
        assert await synced(one) is None


async def test_a_record_no_file_can_hold_stops_its_session_alone(tmp_path):
    """A number beyond 64 bits is refused by name while the rest of the group is kept."""
    with opened(SqliteStore(tmp_path / "log.db")) as store:
        store.append("bad", [Record(0, 2**70, None, b"{}")])
        store.append("good", records(0, 1))
        bad, good = await asyncio.gather(synced(store, "bad"), synced(store, "good"))
        assert good is None
        assert "'bad'" in str(bad)
        assert ["good"] == [one.id for one in store.headers()]


async def test_a_title_with_half_a_surrogate_pair_is_written_with_a_question_mark(tmp_path):
    """A text of a header that has no written form loses the piece, not the header."""
    with opened(SqliteStore(tmp_path / "log.db")) as store:
        store.append("s", records(0, 1), Header("s", title="a\ud800b"))
        assert await synced(store) is None
        assert "a?b" == store.header("s").title


# Group commit.


async def test_waiters_share_a_commit(tmp_path):
    """Two hundred sessions that sync in one turn of the loop take a few commits, not two hundred."""
    told: list[Any] = []
    with opened(SqliteStore(tmp_path / "log.db"), told) as store:
        for n in range(200):
            store.append(f"s{n}", records(0, 1))
        assert [None] * 200 == await asyncio.gather(*(synced(store, f"s{n}") for n in range(200)))
        assert (True, 200) == (len(told) <= 3, sum(one.events for one in told))


async def test_one_wake_up_of_the_loop_serves_a_group(tmp_path):
    """The loop is woken once for a commit, however many wait for it."""
    woken, loop = list[Any](), asyncio.get_running_loop()

    def run_soon(fn):
        woken.append(fn)
        loop.call_soon_threadsafe(fn)

    told: list[Any] = []
    store = SqliteStore(tmp_path / "log.db")
    store.on_notice = told.append
    store.open(run_soon)
    for n in range(100):
        store.append(f"s{n}", records(0, 1))
    await asyncio.gather(*(synced(store) for _ in range(100)))
    assert 1 <= len(told) <= len(woken) <= 3
    store.close()


async def test_a_single_writer_commits_inline_at_normal(tmp_path):
    """With NORMAL and one session the answer comes before `sync` returns, and what it covers is durable."""
    with opened(SqliteStore(tmp_path / "log.db", durability="normal")) as store:
        store.append("s", records(0, 1))
        await synced(store)
        inline = 0
        for seq in range(1, 51):
            store.append("s", records(seq, 1))
            answers: list[Any] = []
            store.sync(answers.append)
            if answers:
                inline += 1
                assert seq + 1 == len(store.read("s", -1, 999))
            else:
                await synced(store)
        assert inline > 10


@pytest.mark.parametrize("durability", ["full", "normal"])
async def test_an_answer_may_append_and_sync_again(tmp_path, durability):
    """Two thousand appends, each made by the answer to the one before, do not pile up on the stack."""
    with opened(SqliteStore(tmp_path / "log.db", durability=durability)) as store:
        ended = asyncio.get_running_loop().create_future()

        def go_on(error, seq=1):
            if seq == 2_000:
                ended.set_result(error)
                return
            store.append("s", records(seq, 1))
            store.sync(lambda error: go_on(error, seq + 1))

        store.append("s", records(0, 1))
        store.sync(go_on)
        assert await asyncio.wait_for(ended, 20) is None
        assert 2_000 == len(store.read("s", -1, 9_999))


async def test_full_never_commits_on_the_loop(tmp_path):
    """With FULL no answer comes before `sync` returns."""
    with opened(SqliteStore(tmp_path / "log.db")) as store:
        for seq in range(20):
            store.append("s", records(seq, 1))
            answers: list[Any] = []
            store.sync(answers.append)
            assert [] == answers
            await synced(store)


async def test_a_big_group_is_kept_whole(tmp_path):
    """Thousands of records in one append, over many statements, come back in order."""
    with opened(SqliteStore(tmp_path / "log.db")) as store:
        store.append("s", records(0, 5_003))
        store.append("t", records(0, 517))
        assert await synced(store) is None
        assert (records(0, 5_003), records(0, 517)) == (store.read("s", -1, 9_999), store.read("t", -1, 9_999))


async def test_what_nobody_waits_for_is_written_anyway(tmp_path):
    """Beyond a thousand events the store writes without being asked."""
    with opened(SqliteStore(tmp_path / "log.db")) as store:
        for seq in range(1_500):
            store.append("s", records(seq, 1))
        await until(lambda: len(store.read("s", -1, 9_999)) > 1_000)


async def test_the_log_beside_the_file_stays_bounded(tmp_path):
    """Checkpoints keep the write-ahead log short while events go on, and closing removes it."""
    path = tmp_path / "log.db"
    with opened(SqliteStore(path, durability="normal")) as store:
        for round_ in range(300):
            for n in range(40):
                store.append(f"s{n}", records(round_, 1, size=1_000))
            assert await synced(store) is None
        wal = path.with_name("log.db-wal").stat().st_size
        assert wal < 6_000 * 4_096 < 300 * 40 * 5_000
    assert [path] == list(tmp_path.iterdir())


async def test_closing_leaves_everything_in_the_file_itself(tmp_path):
    """After `close` the write-ahead log is empty, also when another program still has the file open."""
    path = tmp_path / "log.db"
    with opened(SqliteStore(path)) as store:
        store.append("s", records(0, 3))
        await synced(store)
        with contextlib.closing(sqlite3.connect(path)) as other:
            assert (3,) == other.execute("SELECT count(*) FROM events").fetchone()
            store.close()
            assert 0 == path.with_name("log.db-wal").stat().st_size

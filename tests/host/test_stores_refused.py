"""What happens while the disk refuses, or the store's thread or loop is gone."""

import asyncio
import contextlib
import sqlite3
import threading
from typing import Any

import pytest

from callboard.actors.errors import LogError
from callboard.actors.notices import Flushed, StoreFailed
from callboard.actors.store import Record
from callboard.runtime.stores.sqlite import SqliteStore

from .stored import full_disk, locking, mounted, opened, records, synced, until


async def test_a_short_lock_is_waited_for_in_silence(tmp_path):
    """Another program's short transaction delays a commit and is no news."""
    path, told = tmp_path / "log.db", list[Any]()
    with opened(SqliteStore(path), told) as store:
        with locking(path) as other:
            asyncio.get_running_loop().call_later(0.05, other.execute, "ROLLBACK")
            store.append("s", records(0, 1))
            assert await synced(store) is None
        assert [Flushed] == [type(one) for one in told]


@pytest.mark.parametrize("durability", ["full", "normal"])
async def test_a_long_lock_is_told_and_then_mended(tmp_path, durability):
    """A lock beyond the bound is `LogError` by name; the records stay in order and the next sync writes them."""
    path, told = tmp_path / "log.db", list[Any]()
    with opened(SqliteStore(path, durability=durability, retry_s=0.3), told) as store:
        store.append("s", records(0, 1))
        assert await synced(store) is None
        with locking(path):
            store.append("s", records(1, 1))
            error = await synced(store)
            assert isinstance(error, LogError)
            assert str(path) in str(error)
            assert "another program holds the file" in str(error)
            store.append("s", records(2, 1))
            assert 1 == len(store.read("s", -1, 9))
        assert await synced(store) is None
        assert records(0, 3) == store.read("s", -1, 9)
    failed = [one for one in told if isinstance(one, StoreFailed)]
    assert [(str(error), True), (str(error), False)] == [(one.error, one.retrying) for one in failed]


async def test_a_full_disk_is_told_and_then_mended(tmp_path):
    """A full disk is `LogError` by name after the bound, reads go on, and freed space mends everything."""
    with opened(SqliteStore(tmp_path / "log.db", retry_s=0.2)) as store:
        store.append("s", records(0, 3))
        await synced(store)
        with full_disk(store):
            store.append("s", records(3, 100, size=500))
            store.append("t", records(0, 1))
            for error in await asyncio.gather(synced(store, "s"), synced(store, "t")):
                assert "the disk is full; free some space" in str(error)
            assert records(0, 3) == store.read("s", -1, 9)
            assert isinstance(await synced(store), LogError)
        assert await synced(store) is None
        assert (103, 1) == (store.header("s").events, store.header("t").events)


async def test_a_group_that_does_not_fit_is_not_written_in_part(tmp_path):
    """When the disk is full in the middle of a group nothing of it is there, and later all of it."""
    with opened(SqliteStore(tmp_path / "log.db", retry_s=0.1)) as store:
        store.append("s", records(0, 1))
        await synced(store)
        with full_disk(store, spare_pages=250):
            store.append("s", records(1, 3_000, size=500))
            assert isinstance(await synced(store), LogError)
            assert records(0, 1) == store.read("s", -1, 9)
        assert await synced(store) is None
        assert 3_001 == store.headers()[0].events


async def test_a_disk_that_comes_back_in_time_is_no_error(tmp_path):
    """Space freed within the bound: the waiter hears of nothing but success."""
    told: list[Any] = []
    with opened(SqliteStore(tmp_path / "log.db"), told) as store:
        store.append("s", records(0, 1))
        await synced(store)
        db = store._commits._rows.db
        with store._commits._disk:
            db.execute(f"PRAGMA max_page_count={db.execute('PRAGMA page_count').fetchone()[0]}")
        threading.Timer(0.2, db.execute, ["PRAGMA max_page_count=1073741823"]).start()
        store.append("s", records(1, 50, size=1_000))
        assert await synced(store) is None
        assert [StoreFailed, Flushed] == [type(one) for one in told[1:]]
        assert told[1].retrying


async def test_memory_is_bounded_while_the_disk_refuses(tmp_path):
    """Beyond `pending_max` append raises `LogError` and takes nothing; after recovery it goes on."""
    store = SqliteStore(tmp_path / "log.db", retry_s=0.1, pending_max=200, pending_bytes_max=1 << 20)
    with opened(store):
        with full_disk(store):
            store.append("s", records(0, 150, size=200))
            assert isinstance(await synced(store), LogError)
            store.append("s", records(150, 50))
            with pytest.raises(LogError, match="201 events"):
                store.append("s", records(200, 1))
            with pytest.raises(LogError, match="nothing more is taken"):
                store.append("t", records(0, 1, size=2 << 20))
        assert await synced(store) is None
        store.append("s", records(200, 300))
        assert await synced(store) is None
        assert 500 == store.headers()[0].events


async def test_a_full_tmpfs_is_survived(tmp_path):
    """On a real disk without space everything acknowledged is there and reading works."""
    with mounted(tmp_path, "size=1m"):
        kept = 0
        with opened(SqliteStore(tmp_path / "log.db", retry_s=0.1)) as store:
            while kept < 3_000:
                store.append("s", records(kept, 10, size=1_000))
                if (error := await synced(store)) is not None:
                    break
                kept += 10
            assert "disk is full" in str(error)
            assert kept <= store.headers()[0].events
        with contextlib.closing(sqlite3.connect(tmp_path / "log.db")) as db:
            assert [("ok",)] == db.execute("PRAGMA integrity_check").fetchall()
            assert kept <= db.execute("SELECT count(*) FROM events").fetchone()[0]


async def test_closing_over_a_disk_that_refuses_answers_who_waits(tmp_path):
    """When the last commit fails too, each waiter gets `LogError` once and the file is let go."""
    path, answers = tmp_path / "log.db", list[Any]()
    with opened(SqliteStore(path, retry_s=0.2)) as store, locking(path):
        for seq in range(5):
            store.append("s", records(seq, 1))
            store.sync(answers.append)
        store.close()
        await asyncio.sleep(0.01)
        assert [LogError] * 5 == [type(one) for one in answers]
    with opened(SqliteStore(path)) as again:
        assert [] == again.headers()


async def test_a_locked_file_does_not_open(tmp_path):
    """A new file that another program holds beyond the bound is `LogError`, and opens when it lets go."""
    path = tmp_path / "log.db"
    path.touch()
    store = SqliteStore(path, retry_s=0.2)
    with locking(path), pytest.raises(LogError, match="another program holds the file"):
        store.open(lambda fn: fn())
    with opened(store):
        store.append("s", records(0, 1))
        assert await synced(store) is None


async def test_the_loop_stays_free_while_the_disk_refuses(tmp_path):
    """With a locked file neither append nor sync waits on the loop."""
    path, loop = tmp_path / "log.db", asyncio.get_running_loop()
    with opened(SqliteStore(path, durability="normal", retry_s=0.3)) as store, locking(path):
        began, answers = loop.time(), list[Any]()
        for seq in range(100):
            store.append("s", records(seq, 1))
            store.sync(answers.append)
        assert loop.time() - began < 0.25
        await until(lambda: len(answers) == 100)


async def test_the_end_of_the_thread_is_told(tmp_path, monkeypatch):
    """Should the store's thread break, waiters and callers get `LogError` instead of silence."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with opened(SqliteStore(tmp_path / "log.db")) as store:
        store.append("s", [Record(0, 0, None, b"{}")])
        monkeypatch.setattr(store._commits._rows, "write", None)
        assert isinstance(await synced(store), LogError)
        with pytest.raises(LogError, match="ended"):
            store.append("s", records(1, 1))
        assert isinstance(await synced(store), LogError)


async def test_a_closed_loop_does_not_hang_close(tmp_path):
    """`close` returns when the loop that would be told is gone."""

    def gone(fn):
        raise RuntimeError("Event loop is closed")

    store = SqliteStore(tmp_path / "log.db")
    store.open(gone)
    store.append("s", records(0, 1))
    store.sync(lambda error: None)
    await asyncio.to_thread(store.close)
    with opened(SqliteStore(tmp_path / "log.db")) as again:
        assert 1 == again.header("s").events

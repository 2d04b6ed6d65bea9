"""A SQLite file that is removed, moved or replaced under the program that writes to it; and a program that moves."""

import asyncio
import shutil

import pytest

from callboard.actors.errors import LogError
from callboard.runtime import open_runtime
from callboard.runtime.stores import look_into, open_store
from callboard.runtime.stores.sqlite import SqliteStore

from .hosted import echo, until
from .stored import opened, records, synced

RETRY_S = 0.1


def removed(path):
    """The file is gone, its log stays."""
    path.unlink()


def without_log(path):
    """The write-ahead log is gone, the file stays."""
    path.with_name(f"{path.name}-wal").unlink()


def replaced(path):
    """A copy takes its place, as some editors and synchronizers do."""
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def moved(path):
    """The folder has another name."""
    path.parent.rename(path.parent.with_name("elsewhere"))


@pytest.mark.parametrize("durability", ["full", "normal"])
@pytest.mark.parametrize("happens", [removed, without_log, replaced, moved])
async def test_nothing_is_acknowledged_into_a_file_without_a_name(tmp_path, happens, durability):
    """What is written after the file went away is not called durable: the error names the file and what to do."""
    path = tmp_path / "there" / "log.db"
    with opened(SqliteStore(path, durability=durability, retry_s=RETRY_S)) as store:
        store.append("s", records(0, 1))
        assert await synced(store) is None
        happens(path)
        await asyncio.sleep(RETRY_S)
        store.append("s", records(1, 2))
        error = await synced(store)
        assert isinstance(error, LogError)
        assert str(error).startswith(f"{path} was removed, moved or replaced while this program writes to it")


async def test_a_file_that_comes_back_takes_what_waited(tmp_path):
    """When the file is put back, what was appended meanwhile is written, and the runtime is well again."""
    path = tmp_path / "there" / "log.db"
    async with open_runtime(model=echo(), store=SqliteStore(path, retry_s=RETRY_S)) as rt:
        s = await rt.create("s")
        await s.run("one")
        moved(path)
        with pytest.raises(LogError, match="put the file and its -wal back"):
            await s.run("two")
        assert not rt.health()["ok"]
        path.parent.with_name("elsewhere").rename(path.parent)
        await until(lambda: rt.health()["ok"])
        assert 3 == (await s.run("three")).turn
    reading = look_into(f"sqlite:///{path}")
    ends = [record for record in reading.records("s", -1, 999) if b'"type":"turn_ended"' in record.body]
    reading.close()
    assert 3 == len(ends)


async def test_a_relative_path_is_one_of_where_the_store_was_made(tmp_path, monkeypatch):
    """A program that changes its folder goes on reading and writing the same file."""
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///log.db")
    monkeypatch.chdir(tmp_path / "other")
    with opened(store):
        store.append("s", records(0, 1))
        assert await synced(store) is None
        monkeypatch.chdir(tmp_path)
        assert 1 == len(store.read("s", -1, 9))
        store.append("s", records(1, 2))
        assert await synced(store) is None
    assert ["log.db", "other"] == sorted(one.name for one in tmp_path.iterdir())
    assert [] == list((tmp_path / "other").iterdir())

"""FaultyStore under a whole runtime, before a store on a disk: it fails, stalls and dies there as in a lab."""

import asyncio

import pytest

from callboard.actors import Reply
from callboard.actors.errors import LogError
from callboard.actors.testing import FaultyStore, ScriptedModel
from callboard.runtime import open_runtime
from callboard.runtime.stores.sqlite import SqliteStore


def says(write):
    """Whether an append queues a message."""
    return "message_queued" in write.kinds


def opened(store):
    return open_runtime(model=ScriptedModel(lambda prompt: Reply("ok")), plugins=(), store=store)


async def messages(path, session):
    """What a runtime that finds the file sees of a session: the texts that were queued."""
    store = SqliteStore(path)
    async with opened(store) as rt:
        await rt.open("s")
        found = await asyncio.to_thread(store.last, session, ("message_queued",), 1_000, 10)
        codec = rt._ground.stage.codec
        return [codec.decode(one.body).text for one in found][::-1]


async def test_an_append_that_fails_turns_its_message_away(tmp_path):
    """The message is refused, the next one is taken, and the disk has that one alone."""
    store = FaultyStore(SqliteStore(tmp_path / "log.db"), fail_at=says)
    async with opened(store) as rt:
        session = await rt.create("s")
        with pytest.raises(LogError, match="as its test asked for"):
            await session.submit("lost")
        store.fail_at = None
        assert "completed" == (await session.run("kept")).reason
    assert ["kept"] == await messages(tmp_path / "log.db", "s")


async def test_a_stalled_disk_acknowledges_nothing(tmp_path):
    """A message is accepted once its sync is let go on, and no sooner."""
    store = FaultyStore(SqliteStore(tmp_path / "log.db"), stall_at=says)
    async with opened(store) as rt:
        session = await rt.create("s")
        asked = asyncio.ensure_future(session.submit("wait"))
        done, _ = await asyncio.wait([asked], timeout=0.1)
        assert (set(), True) == (done, store.waiting > 0)
        store.stall_at = None
        store.release()
        assert 0 < (await asked).seq
        await session.wait_idle()


@pytest.mark.parametrize(("kept", "texts"), [("synced", ["one"]), ("before", ["one"]), ("after", ["one", "two"])])
async def test_a_death_leaves_what_was_asked_for(tmp_path, kept, texts):
    """The message during whose append the store died is on the disk or not, as asked; the one before it always is."""

    def second(write):
        return says(write) and b"two" in write.records[0].body

    store = FaultyStore(SqliteStore(tmp_path / "log.db"), tear_at=second, kept=kept)
    async with opened(store) as rt:
        session = await rt.create("s")
        await session.run("one")
        with pytest.raises(LogError, match="the store died at append"):
            await session.submit("two")
    assert texts == await messages(tmp_path / "log.db", "s")

"""Snapshots in a whole runtime: a session is opened from its last one, and none of them is ever needed."""

import sqlite3

import pytest

from callboard.actors import Envelope
from callboard.actors.testing import ScriptedModel
from callboard.plugins import DEFAULT
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.settings import Bounds
from callboard.runtime.stores.sqlite import SqliteStore

from .hosted import echo, until

TEXT = "x" * 100_000
TURNS_MAX = 4


class Counting(SqliteStore):
    """Says how many records of logs were read."""

    def __init__(self, path):
        super().__init__(path, durability="normal")
        self.records_read = 0

    def read(self, session, after, limit):
        """As ever, counted."""
        found = super().read(session, after, limit)
        self.records_read += len(found)
        return found


async def grown(path):
    """A session with a long log in a file; its state, and how many events it has."""
    async with open_runtime(model=echo(), store=Counting(path)) as rt:
        s = await rt.create("s")
        for number in range(TURNS_MAX):
            await s.run(TEXT, id=f"id{number}")
        state = s.state()
    return state, state["seq"] + 1


def changed(path, statement):
    """Change the file as somebody else might."""
    with sqlite3.connect(path) as db:
        db.execute(statement)
    db.close()


async def test_a_session_is_opened_from_its_snapshot(tmp_path):
    """Of a long log only what came after the snapshot is read, the state is the same, and the next turn works."""
    path = tmp_path / "log.db"
    state, events = await grown(path)
    store = Counting(path)
    async with open_runtime(model=echo(), store=store) as rt:
        s = await rt.open("s")
        assert store.records_read < events / 4
        assert {**state, "queue": s.state()["queue"]} == s.state()
        assert "re: hi" == (await s.run("hi")).last_message
        assert 1 == getattr(await s.submit(TEXT, "id0"), "turn", None)  # sent once before
        seqs = []
        async for item in s.events():
            assert isinstance(item, Envelope)
            seqs.append(item.seq)
            if item.seq == s.state()["seq"]:
                break
        assert list(range(len(seqs))) == seqs


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM snapshots",
        "DELETE FROM snapshots WHERE key = 'turn'",
        "UPDATE snapshots SET body = x'00ff'",
        "UPDATE snapshots SET body = 'text' WHERE key = 'history'",
        "UPDATE snapshots SET version = 'one' WHERE key = 'log'",
        "UPDATE snapshots SET seq = seq - 1 WHERE key = 'queue'",
        "UPDATE snapshots SET seq = 99999",
        "UPDATE snapshots SET seq = seq - 9",
        "UPDATE snapshots SET body = CAST(replace(CAST(body AS TEXT), 're: ', 'no: ') AS BLOB) WHERE key = 'history'",
    ],
)
async def test_no_snapshot_is_needed(tmp_path, statement):
    """Whatever becomes of them, the log says the same, and new ones take their place."""
    path = tmp_path / "log.db"
    state, events = await grown(path)
    changed(path, statement)
    store = Counting(path)
    async with open_runtime(model=echo(), store=store) as rt:
        s = await rt.open("s")
        assert events <= store.records_read
        assert {**state, "queue": s.state()["queue"]} == s.state()
    async with open_runtime(model=echo(), store=(store := Counting(path))) as rt:
        await rt.open("s")
        assert store.records_read < events / 4


async def test_a_session_that_left_memory_comes_back_from_its_snapshot(tmp_path):
    """Neither its state while it is away nor its return reads its log from the beginning."""
    config = RuntimeConfig(runtime=Bounds(idle_evict_s=0.1))
    store = Counting(tmp_path / "log.db")
    async with open_runtime(config, model=echo(), store=store) as rt:
        s = await rt.create("s")
        for _ in range(TURNS_MAX):
            await s.run(TEXT)
        await until(lambda: s.state()["phase"] == "passivated")
        await until(lambda: store._rows is not None and store.snapshots("s") and not store._rows.wants_rest())
        store.records_read = 0
        events = s.state()["seq"] + 1
        assert "re: hi" == (await s.run("hi")).last_message
        assert store.records_read < events / 2


async def test_plugins_of_before_and_after(tmp_path):
    """A runtime with fewer plugins, and one with all of them again, read the log where the snapshot is not theirs."""
    path = tmp_path / "log.db"
    state, _ = await grown(path)
    async with open_runtime(model=ScriptedModel(), plugins=(), store=Counting(path)) as rt:
        assert state["usage"] == (await rt.open("s")).state()["usage"]
    async with open_runtime(model=ScriptedModel(), plugins=DEFAULT, store=Counting(path)) as rt:
        s = await rt.open("s")
        assert {**state, "queue": s.state()["queue"]} == s.state()

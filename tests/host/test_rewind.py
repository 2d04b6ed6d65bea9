"""Rewinding: a fork takes the id at one moment, the old log is read under another, and what hung on it ends."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest

from callboard.actors import LogError, Reply, SessionClosed, SessionForked, UsageError
from callboard.actors.books import QUEUE, TURN
from callboard.actors.children import CHILDREN
from callboard.actors.memory import MemoryStore
from callboard.actors.store import FORKING, Change, Header
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime
from callboard.runtime.stores import SqliteStore, open_store

from .hosted import echo, events, read_to_end, slow, until
from .parents import Parent, spawn, wait
from .stored import opened, record, schema_of, synced
from .test_fork import ends, planner, records


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request, tmp_path):
    """Each kind of store."""
    if request.param == "postgres":
        return schema_of(request.getfixturevalue("postgres"))
    return "memory" if request.param == "memory" else f"sqlite:///{tmp_path / 'x.db'}"


async def renamed(store, *changes):
    """What `rename` answers, once it does."""
    answer = asyncio.get_running_loop().create_future()
    store.rename(changes, answer.set_result)
    return await asyncio.wait_for(answer, 20)


# -- the verb of the stores --------------------------------------------------------------------------------------------


async def test_names_change_all_at_once(store):
    """Two sessions may swap ids with all their records, headers change whole, and writing goes on under the new id."""
    with opened(open_store(store)) as it:
        it.append("a", [record(0), record(1)], Header("a", title="A", due_ms=5))
        it.append("b", [record(0)], Header("b", status=FORKING))
        assert await synced(it) is None
        done = await renamed(
            it, Change("a", Header("b", title="was a", status="rewound")), Change("b", Header("a", due_ms=7))
        )
        assert done is None
        assert [("a", None, "idle", 7, 1), ("b", "was a", "rewound", None, 2)] == sorted(
            (one.id, one.title, one.status, one.due_ms, one.events) for one in it.headers()
        )
        assert [(7, "a")] == it.due(10, (0, ""), 9)
        it.append("a", [record(1)])
        it.append("b", [record(2)])
        assert await synced(it) is None
        assert ([0, 1], [0, 1, 2]) == tuple([one.seq for one in it.read(name, -1, 9)] for name in ("a", "b"))


async def test_what_is_half_made_can_be_removed(store):
    """A change to nothing removes an unfinished session with its records, and its id can be used again."""
    with opened(open_store(store)) as it:
        it.append("half", [record(0), record(1)], Header("half", status=FORKING))
        assert await synced(it) is None
        assert await renamed(it, Change("half", None)) is None
        assert (None, []) == (it.header("half"), it.read("half", -1, 9))
        it.append("half", [record(0)], Header("half"))
        assert (await synced(it), 1) == (None, len(it.read("half", -1, 9)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ((Change("a", Header("b")),), "'b' exists already"),
        ((Change("a", Header("z")), Change("nobody", Header("y"))), "there is no session 'nobody'"),
        ((Change("a", Header("z")), Change("b", Header("z"))), "'z' exists already"),
        ((Change("a", None),), "is whole"),
        ((Change("a", Header("y")), Change("a", Header("z"))), "twice"),
    ],
)
async def test_changes_that_cannot_be_are_refused_whole(store, changes, said):
    """Where one change cannot be none is made, and the answer says which and why."""
    with opened(open_store(store)) as it:
        it.append("a", [record(0)], Header("a"))
        it.append("b", [record(0)], Header("b"))
        assert await synced(it) is None
        error = await renamed(it, *changes)
        assert (True, True) == (isinstance(error, LogError), said in str(error))
        assert ["a", "b"] == sorted(one.id for one in it.headers())
        it.append("a", [record(1)])
        assert await synced(it) is None


async def test_a_session_of_another_owner_keeps_its_name(tmp_path):
    """What another program has open is not renamed under it."""
    path = tmp_path / "x.db"
    with opened(SqliteStore(path)) as theirs, opened(SqliteStore(path)) as ours:
        theirs.append("a", [record(0)], Header("a"))
        assert await synced(theirs) is None
        assert "is held" in str(await renamed(ours, Change("a", Header("z")))) or theirs.header("a") is not None
        assert theirs.header("z") is None


# -- rewinding ---------------------------------------------------------------------------------------------------------


async def test_a_rewound_session_goes_on_from_there(store):
    """Its id leads to the fork, handles that were there go on, and the old log is read under the id in the answer."""
    model = planner()
    async with open_runtime(model=model, store=store) as rt:
        s = await rt.create("s", title="A title")
        for text in ("one", "two", "three"):
            await s.run(text)
        whole, at = records(rt, "s"), ends(rt, "s")[0]
        rewound = await s.rewind(at)
        assert ("s", "s~1", at) == (rewound.session.id, rewound.old, rewound.at)
        assert whole == records(rt, "s~1")
        assert (whole[1 : at + 1], SessionForked("s~1", at)) == (records(rt, "s")[1 : at + 1], events(rt, "s")[at + 1])
        ended = await s.run("two again")
        assert (2, "turn 2") == (ended.turn, ended.last_message)
        assert {("s", "A title", "idle"), ("s~1", "A title", "rewound")} == {
            (one.id, one.title, one.status) for one in await rt.stored()
        }
        with pytest.raises(UsageError, match="read it, or fork it"):
            await rt.open("s~1")
        assert len(whole) == len(await read_to_end(rt.read("s~1")))
        again = await s.rewind(0)
        assert ("s~2", 1) == (again.old, (await s.run("from the beginning")).turn)


async def test_without_a_point_the_running_turn_is_undone(store):
    """Rewinding while a turn runs ends it, tells who waits, and goes on from before it; readers end."""
    async with open_runtime(model=slow(), store=store) as rt:
        s = await rt.create("s")
        reading = asyncio.ensure_future(read_to_end(s.events()))
        waiting = asyncio.ensure_future(s.run("go"))
        await until(lambda: rt.actor("s").log[TURN].open)
        await s.inject("later")
        rewound = await s.rewind()
        assert "aborted" == (await waiting).reason
        assert rewound.at < len(await asyncio.wait_for(reading, 5))
        assert ((), 0) == (rt.actor("s").log[QUEUE], rt.actor("s").log[TURN].number)


async def test_agents_of_the_old_log_end_and_go_along_with_it(store):
    """Agents are read beside the old log, the new one has none, and may give them the same names again."""
    play = Parent(spawn("a"), wait(), Reply("one"), spawn("a"), wait(), Reply("two"))
    async with open_runtime(model=ScriptedModel(play), store=store) as rt:
        s = await rt.create("s")
        await s.run("go")
        agent = await rt.open("s.a")
        rewound = await s.rewind(1)
        with pytest.raises(SessionClosed):
            await agent.wait_idle()
        assert () == rt.actor("s").log[CHILDREN]
        assert {("s~1", None, "s~1"), ("s~1.a", "s~1", "s~1"), ("s", None, "s")} == {
            (one.id, one.parent, one.root) for one in await rt.stored()
        }
        assert ("two", ("s.a",)) == ((await s.run("go")).last_message, s.children())
        with pytest.raises(UsageError, match="read it, or fork it"):
            await rt.open(f"{rewound.old}.a")
        assert "s~1.a" in {one.id for one in await rt.stored()}
        with pytest.raises(UsageError, match="is an agent"):
            await (await rt.open("s.a")).rewind()


async def test_a_stopped_session_can_be_rewound_and_a_way_back_leads_through_a_fork(store):
    """A session need not be open for it; a fork of the old log is what was before."""
    async with open_runtime(model=echo(), store=store) as rt:
        s = await rt.create("s")
        await s.run("one")
        await s.run("two")
        await s.stop()
        rewound = await s.rewind(1)
        assert "s" in {one.id for one in rt.sessions()}
        back = await rt._sessions.forks.fork(rewound.old, None, "back")
        assert (3, "re: three") == ((ended := await back.run("three")).turn, ended.last_message)
        with pytest.raises(UsageError, match="was rewound"):
            await rt._sessions.forks.rewind(rewound.old, None)


@pytest.mark.parametrize("at", [-1, True, 1.5, "1", 10**30])
async def test_a_point_that_is_none_changes_nothing(at):
    """A wrong point is a UsageError, and the session goes on undisturbed."""
    async with open_runtime(model=echo()) as rt:
        s = await rt.create("s")
        await s.run("one")
        with pytest.raises(UsageError, match="takes"):
            await s.rewind(at)
        assert (["s"], 2) == ([one.id for one in await rt.stored()], (await s.run("two")).turn)


class Stopping(MemoryStore):
    """A store that dies at a chosen write or rename: nothing after it is taken."""

    def __init__(self):
        super().__init__()
        self.left = 10**9

    def _count(self):
        self.left -= 1
        if self.left < 0:
            raise LogError("the machine has stopped.")

    def append(self, session, records, header=None, due=None):
        """One write."""
        self._count()
        super().append(session, records, header, due)

    def rename(self, changes, done):
        """One write too."""
        try:
            self._count()
        except LogError as error:
            done(error)
            return
        super().rename(changes, done)


async def test_a_rewind_that_breaks_off_at_any_write_is_made_or_not():
    """Whichever write is the last, the id leads to the whole old log or to the whole fork, and it can be done again."""
    writes = 0
    for left in range(20):
        dying = Stopping()
        async with open_runtime(model=echo(), store=dying) as rt:
            s = await rt.create("s")
            await s.run("one")
            await s.run("two")
            at, whole = ends(rt, "s")[0], records(rt, "s")
            dying.left = left
            done = await asyncio.gather(s.rewind(at), return_exceptions=True)
            made = not isinstance(done[0], Exception) or dying.header("s~1") is not None
            writes += dying.left < 0
            dying.left = 10**9
        async with open_runtime(model=echo(), store=dying) as rt:
            ids = {one.id for one in await rt.stored()}
            again = await rt.open("s")
            if made:
                assert ({"s", "s~1"}, at + 2, whole) == (ids, len(records(rt, "s")), records(rt, "s~1")[: len(whole)])
            else:
                assert ({"s"}, whole) == (ids, records(rt, "s")[: len(whole)])
                assert "s~1" == (await again.rewind(at)).old
            assert 2 == (await again.run("again")).turn
        if dying.left > 0 and not isinstance(done[0], Exception):
            break
    assert 3 <= writes


async def test_every_state_of_the_disk_is_before_or_after(tmp_path):
    """Copies of the file and its log, taken all the time while it is rewound, are the old session or the new one."""
    path, copies = tmp_path / "x.db", list[Path]()
    async with open_runtime(model=echo(), store=f"sqlite:///{path}") as rt:
        s = await rt.create("s")
        await s.run("one")
        await s.run("two")
        at, whole = ends(rt, "s")[0], len(records(rt, "s"))
        rewinding = asyncio.ensure_future(s.rewind(at))
        while not rewinding.done():
            copies.append(_copy(path, tmp_path / f"c{len(copies)}.db"))
            await asyncio.sleep(0)
        copies.append(_copy(path, tmp_path / "last.db"))
        await rewinding
    seen = set()
    for copy in dict.fromkeys((*copies[:: len(copies) // 12 + 1], copies[-1])):
        async with open_runtime(model=echo(), store=f"sqlite:///{copy}") as rt:
            ids = {one.id for one in await rt.stored()}
            s = await rt.open("s")
            assert (at + 2 if "s~1" in ids else whole) == len(records(rt, "s"))
            seen.add(len(ids))
            await s.run("on")
    assert 2 in seen


def _copy(path: Path, to: Path) -> Path:
    """Both files as they are at one moment: read until a second reading finds the same."""
    files = (path, path.with_name(f"{path.name}-wal"))
    read = [one.read_bytes() if one.exists() else b"" for one in files]
    while (again := [one.read_bytes() if one.exists() else b"" for one in files]) != read:
        read = again
    for one, data in zip((to, to.with_name(f"{to.name}-wal")), read, strict=True):
        if data:
            one.write_bytes(data)
    with contextlib.closing(sqlite3.connect(to)) as db:
        db.execute("DELETE FROM owners")  # this program lives on, the one that the copy is of does not
        db.commit()
    return to


async def test_a_session_with_the_name_of_the_fork_is_in_the_way(store):
    """A session that somebody called ID~rewind is never touched: rewinding ID says that it is in the way."""
    async with open_runtime(model=echo(), store=store) as rt:
        s, other = await rt.create("s"), await rt.create("s~rewind")
        await s.run("one")
        await other.run("mine")
        with pytest.raises(UsageError, match="'s~rewind' is in the way"):
            await s.rewind(0)
        assert (2, 2) == ((await s.run("two")).turn, (await other.run("mine")).turn)

"""Sessions in SQLite: what is opened again is what was there, after a clean end and after none."""

import asyncio
import contextlib
import shutil
import sqlite3

import pytest
import trio

from callboard.actors import (
    Call,
    ChildEnded,
    LogError,
    MessageQueued,
    Prompt,
    Reply,
    SessionNotFound,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    tool,
)
from callboard.actors.memory import MemoryStore
from callboard.actors.testing import ScriptedModel
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.settings import Agents

from .hosted import echo, slow, until
from .parents import Parent, of, spawn, wait

PLAN = {"explanation": "why", "plan": [{"step": "one", "status": "completed"}, {"step": "two", "status": "pending"}]}
TODOS = {"todos": [{"content": "x", "status": "in_progress"}]}


def folds(rt, session):
    """Every fold of a session."""
    log = rt.actor(session).log
    return {one.key: log[one] for one in rt._ground.stage.folds.projections}


def bodies(rt, session):
    """The bytes of a log."""
    return [(one.seq, one.at_ms, one.turn, one.body) for one in rt.store.read(session, -1, 10**9)]


def play(prompt: Prompt) -> Reply:
    """A little of everything."""
    if "." in prompt.session:
        return Reply("child done")
    first = [Call("update_plan", PLAN), Call("todo_write", TODOS), Call("nothing")]
    second = [Call("spawn_agent", {"task_name": f"t{prompt.turn}", "message": "work"}), Call("wait_agent")]
    return {1: Reply("a", first), 2: Reply("b", second)}.get(prompt.step, Reply(f"end of {prompt.turn} é \U0001f600"))


async def test_every_fold_is_the_same(tmp_path):
    """After a clean end each session opens with the same folds, the same state and the same bytes, and goes on."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    names = ("p", "p.t1", "p.t2")
    async with open_runtime(model=ScriptedModel(play), store=url) as rt:
        s = await rt.create("p", system="be nice", title="A title")
        for text in ("one", "two"):
            await s.run(text)
            await s.wait_idle()
        await s.set_mode("plan")
        before = {name: (folds(rt, name), (await rt.open(name)).state(), bodies(rt, name)) for name in names}
    for _ in range(2):
        async with open_runtime(model=ScriptedModel(play), store=url) as rt:
            for name in names:
                handle = await rt.open(name)
                assert before[name] == (folds(rt, name), handle.state(), bodies(rt, name))
            assert 2 == (await (await rt.open("p")).wait(2)).turn
            assert [("p", "A title")] == [(one.id, one.title) for one in await rt.stored() if one.parent is None]
    async with open_runtime(model=ScriptedModel(play), store=url) as rt:
        s = await rt.open("p")
        await s.set_mode("default")
        assert "end of 3 é \U0001f600" == (await s.run("three")).last_message


async def test_plan_of_the_past_is_known_to_the_model(tmp_path):
    """The model of a reopened session sees the whole history."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    async with open_runtime(model=echo(), store=url) as rt:
        await (await rt.create("x", system="be nice")).run("one")
    model = echo()
    async with open_runtime(model=model, store=url) as rt:
        await (await rt.open("x")).run("two")
    (prompt,) = model.prompts
    assert "be nice" in prompt.system
    assert ["one", "re: one", "two"] == [message.text for message in prompt.messages if hasattr(message, "text")][-3:]


async def copy_in_the_middle(url, path, target, made):
    """Run a turn that hangs in the tools `made` makes, and copy the store's file as a kill would leave it."""
    began: list[str] = []
    tools = made(began)

    def calling(prompt):
        return Reply("", [Call(one.name) for one in tools]) if prompt.step == 1 else Reply("ok")

    async with open_runtime(model=ScriptedModel(calling), tools=tools, store=url) as rt:
        s = await rt.create("x")
        await s.submit("go")
        await s.submit("queued", id="q")
        await until(lambda: len(began) >= sum(one.parallel for one in tools))
        await asyncio.sleep(0.05)
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{target}{suffix}")
        disown(target)


async def test_open_calls_are_closed_by_their_effect(tmp_path):
    """Calls that ran when the program was killed get the receipt of their effect, and those that did not, another."""

    def made(began):
        @tool(effect="none", parallel=True)
        async def looks() -> str:
            """Only looks."""
            began.append("looks")
            await trio.sleep(60)
            return "late"

        @tool(effect="idempotent", parallel=True)
        async def repeats() -> str:
            """May be repeated."""
            began.append("repeats")
            await trio.sleep(60)
            return "late"

        @tool(effect="once", parallel=True)
        async def sends() -> str:
            """Sends something."""
            began.append("sends")
            await trio.sleep(60)
            return "late"

        @tool
        async def later() -> str:
            """Has to wait for the others."""
            return "never"

        return [looks, repeats, sends, later]

    path, copy = tmp_path / "x.db", tmp_path / "copy.db"
    await copy_in_the_middle(f"sqlite:///{path}", path, copy, made)
    loaded = []
    for _ in range(2):
        async with open_runtime(model=slow(60), store=f"sqlite:///{copy}") as rt:
            s = await rt.open("x")
            ended = await s.wait(1)
            loaded.append(bodies(rt, "x"))
            assert ("interrupted", None) == (ended.reason, ended.cause)
            assert {
                "looks": "interrupted",
                "repeats": "interrupted",
                "sends": "outcome_unknown",
                "later": "not_started",
            } == {one.tool: one.receipt for one in ended.receipts}
            texts = {one.name: one.text for one in of(ToolReturned, rt, "x")}
            assert "safe to run it again" in texts["repeats"]
            assert "Verify before" in texts["sends"]
            assert "Nothing of it ran" in texts["later"]
            assert ["queued"] == [one["text"] for one in s.state()["queue"]]
            last = of(TurnEnded, rt, "x")[-1]
            assert last.ended_ms <= max(at_ms for _, at_ms, _, _ in loaded[-1])
    assert loaded[0] == loaded[1]
    async with open_runtime(model=echo(), store=f"sqlite:///{copy}") as rt:
        s = await rt.open("x")
        await s.run("next")
        await s.wait_idle()
        assert () == tuple(s.state()["queue"])
        assert 3 == len(of(TurnStarted, rt, "x"))


@pytest.mark.parametrize("known", [4, 2, 1, 0], ids=["worked", "had its task", "was opened", "was lost"])
async def test_parent_whose_child_had_not_ended(known, tmp_path):
    """A child that was cut off is closed, its parent is told once, nobody goes on by itself, and both work again."""
    path, copy = tmp_path / "x.db", tmp_path / "copy.db"

    async def hanging(prompt):
        if "." not in prompt.session and prompt.step == 1:
            return spawn("a", "b")
        await trio.sleep(60)
        return Reply("late")

    async with open_runtime(model=ScriptedModel(hanging), store=f"sqlite:///{path}") as rt:
        s = await rt.create("p")
        await s.submit("go")
        await until(lambda: len(s.children()) == 2)

        def written() -> bool:
            rt.store.sync(lambda error: None)  # nobody else asks for what the children do between their waits
            return all(len(rt.store.read(f"p.{n}", -1, 99)) >= max(1, known) for n in "ab")

        await until(written)
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    disown(copy)
    forget(copy, ("p.a", "p.b"), known)
    config = RuntimeConfig(agents=Agents(notify="wake"))
    for _ in range(2):
        async with open_runtime(config, model=echo(), store=f"sqlite:///{copy}") as rt:
            s = await rt.open("p")
            await until(lambda: len(of(ChildEnded, rt, "p")) == 2)
            await asyncio.sleep(0.05)
            assert {"p.a": 1, "p.b": 1} == {one.child: one.turn for one in of(ChildEnded, rt, "p")}
            assert {"interrupted" if known else "failed"} == {one.status for one in of(ChildEnded, rt, "p")}
            assert 1 == len(of(TurnStarted, rt, "p"))
            assert ["agent:/root/a", "agent:/root/b"] == sorted(one["source"] for one in s.state()["queue"])
    async with open_runtime(config, model=echo(), store=f"sqlite:///{copy}") as rt:
        s = await rt.open("p")
        await s.run("go on")
        assert () == tuple(s.state()["queue"])
        assert 2 == sum(one.source.startswith("agent:") for one in of(MessageQueued, rt, "p"))
        if known:
            assert "re: more" == (await (await rt.open("p.a")).run("more")).last_message


def disown(path):
    """As if the program that wrote this file were gone; it lives, and the file is a copy of its."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DELETE FROM owners")


def forget(path, sessions, known):
    """Take out what the store knows of these sessions, but for their first events."""
    db = sqlite3.connect(path)
    for session in sessions:
        number = "(SELECT number FROM sessions WHERE id = ?)"
        db.execute(f"DELETE FROM events WHERE session = {number} AND seq >= ?", (session, known or 0))
        if not known:
            db.execute("DELETE FROM sessions WHERE id = ?", (session,))
    db.commit()
    db.close()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("DELETE FROM events", "all its events are missing"),
        ("DELETE FROM events WHERE seq = 2", "event 2 is missing before 3"),
        ("UPDATE events SET body = 5 WHERE seq = 3", "a record is not an event"),
        ("UPDATE events SET body = 'text' WHERE seq = 3", "a record is not an event"),
    ],
)
async def test_log_that_was_changed_by_hand(tmp_path, damage, says):
    """A log with a hole, with nothing in it, or with a value of another kind is a `LogError` at who opens it."""
    path = tmp_path / "x.db"
    async with open_runtime(model=echo(), store=f"sqlite:///{path}") as rt:
        await (await rt.create("s")).run("one")
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(damage)
        db.commit()
    async with open_runtime(model=echo(), store=f"sqlite:///{path}") as rt:
        with pytest.raises(LogError, match=says):
            await rt.open("s")
        assert "completed" == (await (await rt.create("t")).run("two")).reason


async def test_schema_that_is_no_text(tmp_path):
    """A file so damaged that SQLite's own message about it is no text is a `LogError` like any other damage."""
    path = tmp_path / "x.db"
    async with open_runtime(model=echo(), store=f"sqlite:///{path}") as rt:
        await (await rt.create("s")).run("one")
    whole = path.read_bytes()
    assert b"CREATE TABLE events" in whole
    path.write_bytes(whole.replace(b"CREATE TABLE events", b"CREATE\xc8TABLE events"))
    with pytest.raises(LogError, match="the file is damaged"):
        await open_runtime(model=echo(), store=f"sqlite:///{path}").start()


async def test_damaged_child_does_not_keep_its_parent_closed():
    """A parent opens although a child's log is damaged, and is told that this child failed."""
    store = MemoryStore()

    async def hanging(prompt):
        if "." not in prompt.session and prompt.step == 1:
            return spawn("a")
        await trio.sleep(60)
        return Reply("late")

    async with open_runtime(model=ScriptedModel(hanging), store=store) as rt:
        s = await rt.create("p")
        await s.submit("go")
        await until(lambda: len(store.read("p.a", -1, 99)) >= 4)
        kept = {name: list(store._logs[name]) for name in ("p", "p.a")}
    store._logs.update(kept)
    store._logs["p.a"][1] = type(kept["p.a"][1])(1, 0, None, b'{"type":"nonsense"}')
    async with open_runtime(model=echo(), store=store) as rt:
        await rt.open("p")
        await until(lambda: of(ChildEnded, rt, "p"))
        (told,) = of(ChildEnded, rt, "p")
        assert "failed" == told.status
        assert "nonsense" in told.text


async def test_grandchildren_are_told_about_too():
    """After a kill every level of a tree hears of the ends below it."""
    store = MemoryStore()

    async def hanging(prompt):
        if prompt.step == 1 and prompt.session in ("p", "p.a"):
            return spawn("a" if prompt.session == "p" else "x")
        await trio.sleep(60)
        return Reply("late")

    async with open_runtime(model=ScriptedModel(hanging), store=store) as rt:
        await (await rt.create("p")).submit("go")
        await until(lambda: len(store.read("p.a.x", -1, 99)) >= 4)
        kept = {name: list(log) for name, log in store._logs.items()}
    store._logs.update(kept)
    async with open_runtime(model=echo(), store=store) as rt:
        await rt.open("p")
        await until(lambda: of(ChildEnded, rt, "p") and of(ChildEnded, rt, "p.a"))
        assert [("p.a", "interrupted")] == [(one.child, one.status) for one in of(ChildEnded, rt, "p")]
        assert [("p.a.x", "interrupted")] == [(one.child, one.status) for one in of(ChildEnded, rt, "p.a")]


async def test_limits_of_a_reopened_tree(tmp_path):
    """A reopened tree counts who works, and an ended child takes no slot."""
    url = f"sqlite:///{tmp_path / 'x.db'}"
    config = RuntimeConfig(agents=Agents(running_max=1))
    async with open_runtime(config, model=ScriptedModel(Parent(spawn("a"), wait())), store=url) as rt:
        await (await rt.create("p")).run("go")
    play = Parent(spawn("b"), wait())
    async with open_runtime(config, model=ScriptedModel(play), store=url) as rt:
        s = await rt.open("p")
        await s.run("go")
        await s.wait_idle()
        assert ["completed", "completed"] == [one["status"] for one in s.state()["children"]]


async def test_unknown_session_leaves_nothing(tmp_path):
    """Asking for sessions that are not there leaves no trace in the runtime or the store."""
    async with open_runtime(store=f"sqlite:///{tmp_path / 'x.db'}") as rt:
        asked = await asyncio.gather(*(rt.open(f"no{n}") for n in range(50)), return_exceptions=True)
        assert {SessionNotFound} == {type(one) for one in asked}
        assert (0, {}, []) == (len(rt._sessions._one), rt._sessions.registry.live, await rt.stored())

"""open_runtime: the names that others are written against, its arguments, opening and closing."""

import asyncio
import inspect
from typing import Any

import pytest
import trio
from prometheus_client import CollectorRegistry

import callboard.actors
import callboard.actors.testing
import callboard.plugins
import callboard.runtime
from callboard.actors import (
    Accepted,
    LogError,
    Plugin,
    SessionClosed,
    SessionNotFound,
    TurnEnded,
    UsageError,
)
from callboard.actors.memory import MemoryStore
from callboard.actors.testing import FakeWall, ScriptedModel
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.settings import Bounds

from .fair import Since
from .hosted import calls, count, echo, events, slow, until

QUICK = RuntimeConfig(runtime=Bounds(shutdown_s=2.0))


def test_names_are_where_the_documents_say():
    """Everything that programs import by name is there."""
    for module, names in (
        (callboard.runtime, "open_runtime RuntimeConfig ModelConfig run_sync serve_metrics DEFAULT"),
        (
            callboard.actors,
            """
            tool Plugin Reply Call Usage TurnEnded Envelope Hook Allow Block Rewrite AddContext Enter Reject Partial
            Failed UsageError MailboxFull SessionClosed SessionNotFound LogError Fenced IntensityReached ToolError
            ModelError Refused Accepted Interrupting Idle Withdrawn Stopped Prompt User Assistant Developer Result
            """,
        ),
        (callboard.actors.testing, "ScriptedModel FakeWall seeded_run"),
        (callboard.plugins, "DEFAULT"),
    ):
        assert [] == [name for name in names.split() if not hasattr(module, name)]


def test_signatures_are_as_the_documents_say():
    """Parameters have the documented names, in the documented order."""

    def names(function):
        return [name for name in inspect.signature(function).parameters if name != "self"]

    keywords = ["config", "model", "plugins", "tools", "hooks", "store", "registry", "clock"]
    assert keywords == names(open_runtime)[: len(keywords)]
    keyword_only = [p.name for p in inspect.signature(open_runtime).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert keywords[1:] == keyword_only[: len(keywords) - 1]
    runtime, handle = callboard.runtime.Runtime, callboard.runtime.SessionHandle
    assert ["session_id", "system", "model", "title"] == names(runtime.create)
    assert ["session_id"] == names(runtime.open)
    assert ["text", "id"] == names(handle.submit)[:2]
    assert ["text"] == names(handle.run)[:1]
    assert ["turn", "id"] == names(handle.interrupt)
    assert ["turn"] == names(handle.wait)
    assert ["id", "verb_id"] == names(handle.withdraw)
    assert ["id", "text", "verb_id"] == names(handle.edit)
    assert ["text", "id", "schema"] == names(handle.replace)
    assert ["mode", "id"] == names(handle.set_mode)
    assert ["id"] == names(handle.resume_queue)
    assert ["after", "deltas"] == names(handle.events)[:2]
    assert ["id"] == names(handle.stop)
    for verb in ("wait_idle", "state", "children"):
        assert [] == names(getattr(handle, verb))


@pytest.mark.parametrize(
    "options",
    [
        {"config": 42},
        {"config": ""},
        {"config": "/no/such/file.toml"},
        {"model": 42},
        {"model": "gpt-nothing"},
        {"model": "scripted:nothing"},
        {"model": "replay:"},
        {"model": "replay:/no/such/file"},
        {"model": ScriptedModel},
        {"plugins": 42},
        {"plugins": None},
        {"plugins": "plan"},
        {"plugins": [42]},
        {"plugins": [Plugin]},
        {"tools": 42},
        {"tools": [len]},
        {"tools": "shell"},
        {"hooks": [42]},
        {"hooks": None},
        {"store": 42},
        {"store": MemoryStore},
        {"store": ...},
        {"registry": "registry"},
        {"clock": 42},
        {"clock": FakeWall},
        {"folder": 42},
        {"folder": "/no/such/folder"},
        {"folder": __file__},
        {"folder": "a\0b"},
    ],
    ids=repr,
)
def test_argument_of_the_wrong_kind(options):
    """A wrong argument is a UsageError of one line, before anything runs."""
    with pytest.raises(UsageError) as raised:
        open_runtime(**options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("store", ["mysql://x", "sqlite:", "sqlite:///", "postgresql+x://x/y", "memory://"])
async def test_store_that_cannot_be(store):
    """A wrong store is a UsageError, nothing stays open, and the next runtime of the loop works."""
    rt = open_runtime(store=store)
    with pytest.raises(UsageError):
        await rt.start()
    await rt.close()
    with pytest.raises(UsageError, match="opened before"):
        await rt.start()
    async with open_runtime(model=echo()) as other:
        assert "re: hi" == (await (await other.create()).run("hi")).last_message


async def test_foreign_file_as_store(tmp_path):
    """A file that is no database of ours is a LogError that leaves it as it is."""
    path = tmp_path / "notes.txt"
    path.write_text("dear diary, " * 100)
    with pytest.raises(LogError):
        await open_runtime(store=f"sqlite:///{path}").start()
    assert path.read_text() == "dear diary, " * 100


@pytest.mark.parametrize(
    "arguments",
    [
        {"session_id": ""},
        {"session_id": 5},
        {"session_id": "a\nb"},
        {"session_id": "\ud800"},
        {"session_id": "x" * 201},
        {"session_id": b"bytes"},
        {"system": 5},
        {"system": "x" * 4_000_001},
        {"model": 5},
        {"model": "gpt-nothing"},
        {"model": ScriptedModel()},
        {"title": 5},
        {"title": "two\nlines"},
        {"title": "bell\a"},
        {"title": "\ud800"},
        {"title": ""},
        {"title": "x" * 201},
    ],
    ids=lambda arguments: repr(arguments)[:60],
)
async def test_create_with_a_wrong_argument(arguments):
    """A wrong argument of create is a UsageError, and no session is made."""
    async with open_runtime() as rt:
        with pytest.raises(UsageError):
            await rt.create(**arguments)
        assert ((), []) == (rt.sessions(), await rt.stored())


async def test_handle_arguments_of_the_wrong_kind():
    """Wrong arguments of a handle are UsageErrors, and the session goes on."""
    async with open_runtime(model=echo()) as rt:
        s = await rt.create()
        wrong: Any
        for wrong in ("", "  \n", 5, None, b"x", "x" * 4_000_001):
            with pytest.raises(UsageError):
                await s.submit(wrong)
            with pytest.raises(UsageError):
                await s.run(wrong)
        for wrong in ("", 5, "a\nb", "\ud800", "x" * 201):
            with pytest.raises(UsageError):
                await s.submit("text", id=wrong)
        for wrong in (0, -1, "1", None, True, 1.0):
            with pytest.raises(UsageError):
                await s.wait(wrong)
        for wrong in (0, -1, "1", True):
            with pytest.raises(UsageError):
                await s.interrupt(wrong)
        for wrong in (-2, "0", None, True):
            with pytest.raises(UsageError):
                s.events(after=wrong)
        for wrong in (0, "9"):
            with pytest.raises(UsageError):
                s.events(queue_max=wrong)
        with pytest.raises(UsageError):
            await s.set_mode("planning")
        with pytest.raises(UsageError):
            await s.withdraw(7)  # type: ignore[arg-type]
        for wrong in (5, None, ["x"]):
            with pytest.raises(UsageError):
                await rt.open(wrong)
        assert "re: hi" == (await s.run("hi")).last_message


async def test_open_create_open_close():
    """A session is found by its id, live or in the store, and only there."""
    async with open_runtime(model=echo()) as rt:
        s = await rt.create("one", title="The first")
        assert ("one", None, "/root") == (s.id, s.parent, s.path)
        again = await rt.open("one")
        assert "re: hi" == (await again.run("hi")).last_message
        with pytest.raises(UsageError, match="exists already"):
            await rt.create("one")
        with pytest.raises(SessionNotFound, match="no session 'two'"):
            await rt.open("two")
        with pytest.raises(KeyError):
            await rt.open("three")
        with pytest.raises(UsageError):
            await rt.open("\ud800")
        assert ["one"] == [one.id for one in rt.sessions()]
        assert [("one", "The first")] == [(header.id, header.title) for header in await rt.stored()]
    assert () == rt.left
    with pytest.raises(SessionClosed, match="closed"):
        await rt.create()
    with pytest.raises(SessionClosed):
        await s.submit("late")
    await rt.close()


async def test_same_id_from_many_tasks():
    """Of many that create one id at once exactly one succeeds, and all that open it get the same session."""
    async with open_runtime(model=echo()) as rt:
        made = await asyncio.gather(*(rt.create("x") for _ in range(20)), return_exceptions=True)
        assert 1 == sum(not isinstance(one, BaseException) for one in made)
        assert {UsageError} == {type(one) for one in made if isinstance(one, BaseException)}
        s = await rt.open("x")
        for _ in range(5):
            await s.stop()
            opened = await asyncio.gather(*(rt.open("x") for _ in range(20)))
            ended = await asyncio.gather(*(one.run("hi") for one in opened))
            assert 20 == len({one.turn for one in ended})
        assert 0 == len(rt._sessions._one)


async def test_start_and_close_as_a_notebook_does():
    """The runtime is opened in one task, used in others and closed in another one."""
    rt = open_runtime(model=echo())
    with pytest.raises(SessionClosed, match="new"):
        await rt.create()
    assert rt is await asyncio.create_task(rt.start())
    s = await asyncio.create_task(rt.create())
    assert "re: hi" == (await asyncio.create_task(s.run("hi"))).last_message
    with pytest.raises(UsageError, match="opened before"):
        await rt.start()
    await asyncio.gather(*(asyncio.create_task(rt.close()) for _ in range(3)))
    assert () == rt.left


async def test_two_runtimes_share_the_guest_and_nothing_else():
    """Two runtimes of one loop have one Trio run, and the end of one leaves the other working."""
    async with open_runtime(model=echo()) as one:
        async with open_runtime(model=calls("nothing")) as other:
            assert one._ground.guest is other._ground.guest
            a, b = await one.create("same"), await other.create("same")
            assert ("re: hi", "done") == ((await a.run("hi")).last_message, (await b.run("hi")).last_message)
        assert "re: still" == (await a.run("still")).last_message
        with pytest.raises(SessionClosed):
            await b.run("gone")
        assert () == other.left


async def test_registry_that_is_passed_in():
    """Metrics are in the registry that was passed in; a second runtime on it is a UsageError that spoils nothing."""
    registry = CollectorRegistry()
    async with open_runtime(model=echo(), registry=registry) as rt:
        await (await rt.create()).run("hi")
        turns = [one for one in registry.collect() if one.name == "callboard_turns"]
        assert 1.0 == sum(sample.value for one in turns for sample in one.samples if sample.name.endswith("_total"))
        with pytest.raises(UsageError, match="registry"):
            await open_runtime(registry=registry).start()
        await (await rt.create()).run("hi")


async def test_store_object_that_is_passed_in():
    """A Store object is used as it is, and a second runtime on it finds the sessions of the first."""
    store = MemoryStore()
    async with open_runtime(model=echo(), store=store) as rt:
        await (await rt.create("kept")).run("hi")
        before = (await rt.open("kept")).state()
    async with open_runtime(model=echo(), store=store) as rt:
        assert before == (await rt.open("kept")).state()


async def test_config_from_a_file(tmp_path):
    """A TOML file configures the runtime, and arguments beat it."""
    path = tmp_path / "callboard.toml"
    store = tmp_path / "from_file.db"
    path.write_text(
        f'[store]\nurl = "sqlite:///{store}"\n[model]\nname = "scripted:demo"\n[tools.todo_write]\nenabled = false\n'
    )
    async with open_runtime(path) as rt:
        await rt.create("x")
        assert "todo_write" not in rt._ground.stage.tools
    assert store.exists()
    async with open_runtime(str(path), store="memory", model=echo()) as rt:
        with pytest.raises(SessionNotFound):
            await rt.open("x")
        assert "re: a" == (await (await rt.create()).run("a")).last_message


async def test_wait_returns_when_closed():
    """Whoever waits for the runtime is let go when it is closed."""
    rt = open_runtime()
    with pytest.raises(SessionClosed, match="new"):
        await rt.wait()
    await rt.start()
    waiting = asyncio.create_task(rt.wait())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await rt.close()
    await asyncio.wait_for(waiting, 1)
    await asyncio.wait_for(rt.wait(), 1)


async def test_wait_can_be_cancelled():
    """Cancelling who waits for the runtime cancels nothing else."""
    async with open_runtime(model=echo()) as rt:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(rt.wait(), 0.02)
        assert "re: hi" == (await (await rt.create()).run("hi")).last_message


async def test_close_while_things_go_on():
    """Closing ends what runs, and everybody who waits hears of it."""
    rt = await open_runtime(QUICK, model=slow()).start()
    busy, idle = await rt.create(), await rt.create()
    accepted = await busy.submit("go")
    assert isinstance(accepted, Accepted)
    waiting = [
        asyncio.create_task(busy.wait(1)),
        asyncio.create_task(busy.wait_idle()),
        asyncio.create_task(busy.run("queued")),
        asyncio.create_task(idle.wait(9)),
        asyncio.create_task(count(busy.events())),
    ]
    await until(lambda: busy.state()["phase"] == "running")
    await asyncio.sleep(0.02)
    began = Since()
    await rt.close()
    assert began.own_s() < 1.5
    told = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 1)
    assert isinstance(told[0], TurnEnded)
    assert ("aborted", "shutdown") == (told[0].reason, told[0].cause)
    assert None is told[1]
    assert [SessionClosed, SessionClosed] == [type(one) for one in told[2:4]]
    assert len(events(rt, busy.id)) == told[4]


async def test_an_opening_that_is_cancelled_ends_at_once():
    """Wherever the opening is cut, nobody waits for what it was trying out, and the next one works."""
    began = Since()
    for turns in range(40):
        opening = asyncio.create_task(open_runtime(QUICK, model=slow()).start())
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        (rt,) = await asyncio.gather(opening, return_exceptions=True)
        if not isinstance(rt, BaseException):
            await rt.close()
    assert not trio.lowlevel.in_trio_run()
    assert began.own_s() < 8  # one whole second for each, before


async def test_cancelled_close_closes_all_the_same():
    """A close that is cancelled has closed the runtime before it raises."""
    rt = await open_runtime(QUICK, model=slow()).start()
    s = await rt.create()
    await s.submit("go")
    closing = asyncio.create_task(rt.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert "closed" == rt._phase
    assert not trio.lowlevel.in_trio_run()

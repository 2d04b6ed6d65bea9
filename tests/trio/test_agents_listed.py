"""Lists of agents after a restart, on virtual time: those below agents that are not open are there, as they ended."""

from contextlib import suppress
from typing import Any

import trio

from callboard.actors.codec import Codec
from callboard.actors.facts import ChildEnded
from callboard.actors.memory import MemoryStore
from callboard.actors.model import Prompt, Reply
from callboard.actors.plugin import Call
from callboard.actors.stage import SpawnRequest
from callboard.actors.store import Record
from callboard.actors.testing import ScriptedModel
from callboard.plugins import AGENTS_PLUGIN
from callboard.runtime.config import RuntimeConfig
from callboard.runtime.settings import Agents

from .grove import Grove, open_grove
from .strict import until

CONFIG = RuntimeConfig(agents=Agents(notify="queue", depth_max=5))


class Killed(Exception):
    """The program ended without a word."""


async def play(prompt: Prompt) -> Reply:
    """Agents called `long` work for ever; a root asks for what its user says."""
    if prompt.session.endswith("long"):
        await trio.sleep_forever()
    if prompt.session == "p" and prompt.step == 1:
        calls = [Call("list_agents", {"scope": scope}) for scope in ("children", "below")]
        return Reply("", [*calls, Call("wait_agent", {"targets": ["a/b", "a/b/long"]})])
    return Reply(f"{prompt.session} did it")


async def grow(store: MemoryStore, *ids: str) -> None:
    """Start these agents one below the other, the last ones first to be waited for, and kill the program."""
    with suppress(Killed):
        try:
            async with open_grove(ScriptedModel(play), config=CONFIG, store=store, plugins=[AGENTS_PLUGIN]) as grove:
                await grove.create("p")
                for id_ in ids:
                    parent, _, name = id_.rpartition(".")
                    await grove.sessions.spawn(SpawnRequest(parent, name, f"the task of {name}"))
                    handle = await grove.sessions.open(id_)
                    if name == "long":
                        await until(lambda h=handle: h.state()["phase"] == "running")  # type: ignore[misc]
                    else:
                        await handle.wait(1)
                await trio.sleep(1)
                raise Killed
        except* Killed:
            raise Killed from None


async def seen(grove: Grove, viewer: str = "p") -> dict[str, tuple[str, str]]:
    """What a session is told of its tree: statuses and texts by path."""
    agents = await grove.sessions.spawner.seen_by(viewer).all()
    return {one.path: (one.status, one.text) for one in agents}


async def test_agents_below_one_that_is_not_open_are_listed():
    """The list has all levels though nobody opened them, with what they said, and opens nobody itself."""
    store = MemoryStore()
    await grow(store, "p.a", "p.a.b", "p.a.b.c")
    async with open_grove(ScriptedModel(play), config=CONFIG, store=store, plugins=[AGENTS_PLUGIN]) as grove:
        await grove.sessions.open("p")
        expected = {
            f"/root/{path}": ("completed", f"p.{path.replace('/', '.')} did it") for path in ("a", "a/b", "a/b/c")
        }
        assert {"/root": ("idle", ""), **expected} == await seen(grove)
        company = grove.sessions.spawner.seen_by("p")
        found = await company.find("/root/a/b/c")
        assert found is not None
        assert ("p.a.b.c", "completed", "the task of c") == (found.id, found.status, found.task)
        assert await company.find("/root/a/b/x") is None
        assert ["/root/a"] == [one.path for one in company.own()]
        assert {"p"} == set(grove.sessions.registry.live)


async def test_agent_that_was_cut_off_below_one_that_is_not_open():
    """What no program works on any more is interrupted, not running, so that nobody waits for it; replies agree."""
    store = MemoryStore()
    await grow(store, "p.a", "p.a.b", "p.a.b.long")
    async with open_grove(ScriptedModel(play), config=CONFIG, store=store, plugins=[AGENTS_PLUGIN]) as grove:
        handle = await grove.sessions.open("p")
        assert ("interrupted", "") == (await seen(grove))["/root/a/b/long"]
        began_s = trio.current_time()
        await handle.run("look around")
        assert trio.current_time() - began_s < 1
        assert {"p"} == set(grove.sessions.registry.live)
        await grove.sessions.open("p.a.b")
        await until(lambda: handle.state()["phase"] == "idle")
        assert ("interrupted", "") == (await seen(grove))["/root/a/b/long"]


def without(store: MemoryStore, id_: str, kind: type[Any]) -> MemoryStore:
    """The same store as if the program had died before `id_` wrote the first event of this kind."""
    after = MemoryStore()
    for header in store.headers():
        records = store.read(header.id, -1, 10_000)
        if header.id == id_:
            cut = next(at for at, one in enumerate(records) if type(Codec().decode(one.body)) is kind)
            records = records[:cut]
        after.append(header.id, records, header)
    return after


async def test_end_that_the_parent_has_not_heard_of():
    """An agent that ended, while its parent is not open and has not heard, stands as its own log says."""
    store = MemoryStore()
    await grow(store, "p.a", "p.a.b")
    after = without(store, "p.a", ChildEnded)
    async with open_grove(ScriptedModel(play), config=CONFIG, store=after, plugins=[AGENTS_PLUGIN]) as grove:
        await grove.sessions.open("p")
        assert ("completed", "p.a.b did it") == (await seen(grove))["/root/a/b"]
        assert {"p"} == set(grove.sessions.registry.live)


async def test_agent_that_no_store_knows():
    """An agent that was lost before it was durable is a failure, and keeps nobody else from being listed."""
    store = MemoryStore()
    await grow(store, "p.a", "p.d", "p.a.b")
    cut, after = without(store, "p.a", ChildEnded), MemoryStore()
    for header in cut.headers():
        if header.id != "p.a.b":
            after.append(header.id, cut.read(header.id, -1, 10_000), header)
    async with open_grove(ScriptedModel(play), config=CONFIG, store=after, plugins=[AGENTS_PLUGIN]) as grove:
        await grove.sessions.open("p")
        listed = await seen(grove)
        assert ["/root", "/root/a", "/root/a/b", "/root/d"] == list(listed)
        assert ("failed", "the agent was lost before it began") == listed["/root/a/b"]


async def test_log_that_cannot_be_read_hides_those_below_it_alone():
    """A damaged log of an agent leaves out those below it, and the others are listed."""
    store = MemoryStore()
    await grow(store, "p.a", "p.a.b", "p.a.b.c", "p.d")
    after = MemoryStore()
    for header in store.headers():
        records = store.read(header.id, -1, 10_000)
        if header.id == "p.a.b":
            records[0] = Record(0, records[0].at_ms, None, b"no event")
        after.append(header.id, records, header)
    async with open_grove(ScriptedModel(play), config=CONFIG, store=after, plugins=[AGENTS_PLUGIN]) as grove:
        await grove.sessions.open("p")
        assert ["/root", "/root/a", "/root/a/b", "/root/d"] == list(await seen(grove))

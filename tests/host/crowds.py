"""Many sessions at once, idle and busy, and a tree of fifty agents, to be ended: what tests and the script share."""

import asyncio
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import trio

from callboard.actors import (
    AbortRequested,
    Call,
    ChildEnded,
    Event,
    Prompt,
    Reply,
    Tool,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    tool,
)
from callboard.actors.testing import ScriptedModel
from callboard.plugins import DEFAULT, SHELL
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.clock import steady_s
from callboard.runtime.guest import Guest
from callboard.runtime.settings import Agents, Bounds

from .hosted import events, until

KINDS = ("model", "tool", "thread", "shell")
LEVELS = (2, 4, 5)  # agents below each one, level by level: 2 + 8 + 40
COMMAND = "sleep 61.7"
AT_REST = ("Trio thread", "asyncio_")  # threads that wait for work; one that has some has its name


@attrs.frozen
class Left:
    """What is there of tasks, threads and programs at one moment."""

    tasks: int
    asyncio_tasks: int
    threads: tuple[str, ...]
    children: int


def living(guest: Guest) -> Left:
    """What lives now."""
    tasks = Path(f"/proc/{os.getpid()}/task")
    children = sum(len((task / "children").read_text().split()) for task in tasks.iterdir())
    threads = sorted(one.name for one in threading.enumerate() if not one.name.startswith(AT_REST))
    return Left(len(guest.living()), len(asyncio.all_tasks()), tuple(threads), children)


@attrs.define
class Ended:
    """How an ending went: seconds, who was left, and what was there before and after."""

    seconds: float
    left: tuple[str, ...]
    before: Left
    after: Left
    ends: Counter[str]


class Busy:
    """A model whose sessions are busy by the kind that their ids begin with, and the tool they are busy in."""

    def __init__(self) -> None:
        self.began = 0
        self.over = threading.Event()
        busy = self

        @tool(effect="none", parallel=True, name="tool")
        async def lasting() -> None:
            """Lasts."""
            busy.began += 1
            await trio.sleep_forever()

        @tool(effect="none", parallel=True, name="thread")
        def threaded() -> None:
            """Sits in a thread that looks whether it shall end."""
            busy.began += 1
            busy.over.wait(0.02)

        self.tools = (lasting, threaded)

    async def reply(self, prompt: Prompt) -> Reply:
        """By the kind."""
        kind = prompt.session.partition("-")[0]
        if kind == "thread":
            return Reply("", [Call("thread")])
        if prompt.step > 1 or kind == "model":
            self.began += 1
            await trio.sleep_forever()
        return Reply("", [Call("shell", {"command": COMMAND})] if kind == "shell" else [Call(kind)])


async def close_many(idle: int, busy: int, *, shells: int, shutdown_s: float) -> Ended:
    """Close a runtime with so many sessions; of the busy ones `shells` run a command."""
    play = Busy()
    config = RuntimeConfig(runtime=Bounds(shutdown_s=shutdown_s, steps_max=1_000_000))
    guest = await Guest.enter()
    await asyncio.sleep(0.05)
    before = living(guest)
    rt = await open_runtime(
        config, model=ScriptedModel(play.reply), tools=play.tools, plugins=(*DEFAULT, SHELL)
    ).start()
    ids = [f"{KINDS[n % 3]}-{n}" for n in range(busy - shells)] + [f"shell-{n}" for n in range(shells)]
    for _ in range(idle):
        await rt.create()
    for id_ in ids:
        await (await rt.create(id_)).submit("go")
    await until(lambda: rt.statistics()["sessions"].get("running") == busy and play.began >= busy - shells, 60)
    await until(lambda: all(any(type(e) is ToolCalled for e in events(rt, f"shell-{n}")) for n in range(shells)), 30)
    await asyncio.sleep(0.3)
    began_s = steady_s()
    await rt.close()
    seconds = steady_s() - began_s
    play.over.set()
    ends = Counter[str]()
    for id_ in ids:
        check_whole(events(rt, id_))
        (last,) = [event for event in events(rt, id_) if isinstance(event, TurnEnded)]
        ends[f"{last.reason} {last.cause}"] += 1
    await until(lambda: living(guest).children <= before.children, 5)
    after = living(guest)
    await guest.leave()
    return Ended(seconds, rt.left, before, after, ends)


def check_whole(log: list[Any]) -> None:
    """Every turn and every call has exactly one end."""
    count = Counter(type(event) for event in log)
    assert count[TurnStarted] == count[TurnEnded], log
    called = [event.call for event in log if isinstance(event, ToolCalled)]
    returned = [event.call for event in log if isinstance(event, ToolReturned)]
    assert sorted(called) == sorted(returned), log


@attrs.define
class Interrupted:
    """How the interrupt of a tree went: seconds until the last was asked and until all had ended, and what they say."""

    seconds: float
    agents: int
    receipts: Counter[str]
    asked_s: float
    ends_at_parents: Counter[str]


class Tree:
    """A model of a root with agents below agents, whose leaves sit in a tool, and that tool."""

    def __init__(self, body: Any) -> None:
        self.leaves = 0
        tree = self

        @tool(effect="none", name="leaf")
        async def leaf() -> None:
            """Lasts, in its own way."""
            tree.leaves += 1
            await body()

        self.tool: Tool = leaf

    async def reply(self, prompt: Prompt) -> Reply:
        """Agents by the level, then a request that lasts; in later turns a word."""
        depth = prompt.session.count(".")
        if prompt.turn > 1:
            return Reply("again")
        if prompt.step > 1:
            await trio.sleep_forever()
        if depth == len(LEVELS):
            return Reply("", [Call("leaf")])
        names = [f"n{n}" for n in range(LEVELS[depth])]
        return Reply("", [Call("spawn_agent", {"task_name": name, "message": "work"}) for name in names])


async def interrupt_tree(body: Any) -> Interrupted:
    """Interrupt the root of a tree of fifty busy agents, and look at every log."""
    play = Tree(body)
    asked: list[float] = []

    def hear(event: Event, session: str, turn: int | None) -> None:
        if isinstance(event, AbortRequested):
            asked.append(steady_s())

    config = RuntimeConfig(agents=Agents(running_max=64))
    async with open_runtime(config, model=ScriptedModel(play.reply), tools=[play.tool]) as rt:
        root = await rt.create("p")
        await root.submit("go")
        leaves = LEVELS[0] * LEVELS[1] * LEVELS[2]
        await until(lambda: play.leaves == leaves, 30)
        await until(lambda: rt.statistics()["sessions"].get("running") == 51, 10)
        for actor in rt._sessions.registry.live.values():
            actor.log._listener = hear
        began_s = steady_s()
        ids = [one.id for one in rt.sessions()]
        waits = [asyncio.ensure_future(one.wait(1)) for one in rt.sessions()]
        await root.interrupt()
        await asyncio.wait(waits, timeout=10)
        seconds = steady_s() - began_s
        await until(lambda: all(_all_told(rt, id_) for id_ in ids), 5)
        result = Interrupted(seconds, len(ids) - 1, Counter(), max(asked) - began_s, Counter())
        for id_ in ids:
            log = events(rt, id_)
            check_whole(log)
            (ended,) = [event for event in log if isinstance(event, TurnEnded)]
            (told,) = [event for event in log if isinstance(event, AbortRequested)]
            assert ("aborted", "interrupted" if id_ == "p" else "parent") == (ended.reason, ended.cause), id_
            assert told.cause == ended.cause, id_
            result.receipts.update(receipt.receipt for receipt in ended.receipts)
            result.ends_at_parents.update(event.status for event in log if isinstance(event, ChildEnded))
        for id_ in ids:
            ended = await asyncio.wait_for((await rt.open(id_)).run("more"), 10)
            assert "again" == ended.last_message, id_
    return result


def _all_told(rt: Any, id_: str) -> bool:
    """Whether the ends of all agents of this one are on its log."""
    depth = id_.count(".")
    expected = LEVELS[depth] if depth < len(LEVELS) else 0
    return sum(isinstance(event, ChildEnded) for event in events(rt, id_)) == expected

"""Runtimes that have servers of tools: their catalogue, their turns, their ends."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from callboard.actors import Call, ControlCallEnded, Reply, ToolCalled, ToolReturned, tool
from callboard.actors.errors import MissingExtra, UsageError
from callboard.actors.testing import ScriptedModel
from callboard.plugins import mcp
from callboard.runtime import open_runtime
from callboard.runtime.config import config_of
from callboard.runtime.nodes import Node, tree_of

from .hosted import events, gauge, until
from .mcp_kit import PROGRAM, asking, configured, descendants, is_alive, raw


def names(rt, prefix: str = "mcp__") -> list[str]:
    """The tools of servers that turns which begin now are offered."""
    return [spec.name for spec in rt._ground.stage.offer.specs if spec.name.startswith(prefix)]


def calls_of(rt) -> int:
    """How many calls are under way."""
    assert rt._connections is not None
    return sum(one.record().calls for one in rt._connections.all)


def shown(rt) -> list[Node]:
    """The nodes below the servers' supervisor, as `callboard tree` shows them."""
    steps = tree_of(rt._looks._root)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return [node for part in done.value.children if part.id == "mcp" for node in part.children]


def phases(rt) -> dict[str, str]:
    """The connections by name, as the statistics tell of them."""
    (node,) = [one for one in rt.statistics()["tree"]["children"] if one["id"] == "mcp"]
    return {child["id"]: child["about"]["phase"] for child in node["about"]["children"]}


async def test_a_turn_with_the_tools_of_a_server():
    """They are there when the runtime is, are called like any other, and count as `mcp`."""
    registry = CollectorRegistry()
    model = asking(Call("mcp__raw__echo", {"text": "hello"}))
    async with open_runtime(configured(), model=model, registry=registry) as rt:
        assert {"mcp/raw": "ready"} == phases(rt)
        session = await rt.create()
        assert "hello" == (await session.run("go")).last_message
        (called,) = [one for one in events(rt, session.id) if isinstance(one, ToolCalled)]
        assert ("mcp__raw__echo", "once") == (called.name, called.effect)
        assert 1 == gauge(rt.metrics_text(), "callboard_tool_calls_total")
        assert 'tool="mcp"' in rt.metrics_text()
        assert "mcp__" not in rt.metrics_text()
        assert ("ready", 0) == next((one.phase, one.restarts) for one in shown(rt))
    assert not descendants()
    assert "tree" in rt.statistics()


async def test_hints_of_a_server_that_is_trusted():
    """Only then does a tool that says it only reads count as one."""
    tables = {"a": raw(trust=True), "b": raw()}
    async with open_runtime(configured(**tables)) as rt:
        tools = rt._ground.stage.offer.tools
        found = {name: (tools[name].effect, tools[name].mutates) for name in names(rt) if name[8:] in ("look", "put")}
    assert {
        "mcp__a__look": ("none", False),
        "mcp__a__put": ("idempotent", True),
        "mcp__b__look": ("once", True),
        "mcp__b__put": ("once", True),
    } == found


async def test_a_server_killed_in_a_call():
    """The call fails with one sentence, the session goes on, and the server is back for the next turn."""
    registry = CollectorRegistry()
    model = asking(Call("mcp__raw__die", {}))
    async with open_runtime(configured(), model=model, registry=registry) as rt:
        session = await rt.create()
        ended = await session.run("go")
        assert "completed" == ended.reason
        lost = r"The MCP server raw was lost during this call \(.*\): .* is not known\."
        assert re.fullmatch(lost, ended.last_message or "")
        (returned,) = [one for one in events(rt, session.id) if isinstance(one, ToolReturned)]
        assert "failed" == returned.outcome
        await until(lambda: phases(rt) == {"mcp/raw": "ready"}, 10)
        assert 1 == gauge(rt.metrics_text(), "callboard_restarts_total")


async def test_a_server_that_is_down_holds_nobody():
    """The runtime opens, tells of it, and calls of tools it once had answer at once."""
    config = configured(raw=raw(wait_s=5.0), gone={"command": "nowhere-at-all"})
    async with open_runtime(config, model=asking(Call("mcp__raw__echo", {"text": "x"}))) as rt:
        assert {"mcp/raw": "ready", "mcp/gone": "waiting"} == phases(rt)
        assert "x" == (await (await rt.create()).run("go")).last_message


async def test_a_server_that_is_slow_is_waited_for_only_so_long(caplog):
    """A runtime opens without it after `wait_s`, and says so."""
    silent = raw(wait_s=0.2)
    silent["args"] = [*silent["args"], "silent"]
    began_s = time.monotonic()
    async with open_runtime(configured(raw=silent)) as rt:
        assert time.monotonic() - began_s < 5
        assert {"mcp/raw": "connecting"} == phases(rt)
    assert "MCP server raw is not ready after 0.2 s (wait_s): its tools are there once it is" in caplog.text
    assert not descendants()


async def test_an_interrupt_ends_a_call():
    """The turn is over within its window, and the server goes on serving."""
    model = ScriptedModel(
        lambda prompt: (
            Reply("", [Call("mcp__raw__hang", {})])
            if prompt.step == 1 and prompt.turn == 1
            else Reply("", [Call("mcp__raw__cancelled", {})])
            if prompt.step == 1
            else Reply(prompt.messages[-1].text)
        )
    )
    async with open_runtime(configured(), model=model) as rt:
        session = await rt.create()
        await session.submit("go")
        await until(lambda: calls_of(rt))
        began_s = time.monotonic()
        await session.interrupt()
        await session.wait_idle()
        assert time.monotonic() - began_s < 0.5
        (receipt,) = [one.receipt for one in events(rt, session.id) if isinstance(one, ToolReturned)]
        assert "interrupted" == receipt
        assert 1 == len(json.loads((await session.run("again")).last_message or ""))


async def test_a_list_that_changes_counts_from_the_next_turn():
    """The turn in which it changed is offered the same tools to its end, so that its prompt stays in the cache."""
    offered: list[frozenset[str]] = []

    async def play(prompt) -> Reply:
        offered.append(frozenset(spec.name for spec in prompt.tools))
        if prompt.turn == 1 and prompt.step == 1:
            return Reply("", [Call("mcp__raw__grow", {})])
        if prompt.turn == 1:
            await until(lambda: "mcp__raw__extra" in names(rt))
            if prompt.step < 3:
                return Reply("", [Call("mcp__raw__echo", {})])
        return Reply("done")

    async with open_runtime(configured(), model=ScriptedModel(play)) as rt:
        session = await rt.create()
        await session.run("go")
        await session.run("again")
    assert 4 == len(offered)
    assert offered[0] == offered[1] == offered[2]
    assert {"mcp__raw__extra", "mcp__raw__many"} == offered[3] ^ offered[2]


async def test_names_that_are_taken():
    """A tool of ours keeps its name, and the one of the server is left out."""

    @tool(name="mcp__raw__echo")
    async def echo() -> str:
        return "ours"

    async with open_runtime(configured(), tools=[echo], model=asking(Call("mcp__raw__echo", {}))) as rt:
        assert "ours" == (await (await rt.create()).run("go")).last_message
        assert 1 == names(rt).count("mcp__raw__echo")


async def test_tools_of_servers_can_be_configured():
    """One can be switched off, one found by a search only, and a role may have some of them."""
    more = {
        "tools": {"mcp__raw__echo": {"enabled": False}, "mcp__raw__pid": {"exposure": "deferred"}},
        "agents": {"roles": {"a": {"tools": ["mcp__raw__data"]}}},
    }
    async with open_runtime(configured(more=more)) as rt:
        assert not {"mcp__raw__echo", "mcp__raw__pid"} & set(names(rt))
        assert "mcp__raw__pid" in rt._ground.stage.offer.tools
    wrong: tuple[dict[str, Any], ...] = (
        {"tools": {"mcp__other__a": {}}},
        {"agents": {"roles": {"a": {"tools": ["mcp__other__a"]}}}},
    )
    for table in wrong:
        with pytest.raises(UsageError, match="mcp__other__a"):
            open_runtime(configured(more=table))


async def test_deferred_tools_are_found():
    """A server whose tools are deferred is found by a search."""

    def play(prompt) -> Reply:
        if prompt.step == 1:
            return Reply("", [Call("tool_search", {"query": "echo"})])
        if prompt.step == 2:
            return Reply("", [Call("mcp__raw__echo", {"text": "found"})])
        return Reply(prompt.messages[-1].text)

    async with open_runtime(configured(raw=raw(exposure="deferred")), model=ScriptedModel(play)) as rt:
        assert [] == names(rt)
        assert "found" == (await (await rt.create()).run("go")).last_message


async def test_plan_mode_refuses_what_changes_something():
    """With a hard gate a tool of a server is refused in Plan mode, unless it is trusted and only reads."""
    more = {"plugins": {"plan_mode": {"gate": "hard"}}}
    calls = [Call("mcp__raw__echo", {"text": "x"}), Call("mcp__raw__look", {"text": "y"})]
    config = configured(raw=raw(trust=True), more=more)
    async with open_runtime(config, model=asking(*calls)) as rt:
        session = await rt.create()
        await session.set_mode("plan")
        await session.run("go")
        returned = [one for one in events(rt, session.id) if isinstance(one, ToolReturned)]
    assert [("rejected", False), ("completed", True)] == [(one.outcome, one.text == "y") for one in returned]
    assert not [one for one in returned if isinstance(one, ControlCallEnded)]


async def test_rules_for_a_whole_server():
    """`mcp__SERVER__*` denies them all but those that are named."""
    rules = {"mcp__raw__*": "deny", "mcp__raw__pid": "allow"}
    more = {"plugins": {"ask": {"policy": "rules", "rules": rules}}}
    calls = [Call("mcp__raw__echo", {"text": "x"}), Call("mcp__raw__pid", {})]
    async with open_runtime(configured(more=more), model=asking(*calls)) as rt:
        session = await rt.create()
        await session.run("go")
        returned = [one.outcome for one in events(rt, session.id) if isinstance(one, ToolReturned)]
    assert ["rejected", "completed"] == returned


async def test_agents_share_the_connections():
    """A subagent calls the same server as its parent."""

    def play(prompt) -> Reply:
        if prompt.step == 1 and prompt.session == root:
            return Reply("", [Call("mcp__raw__pid", {}), Call("spawn_agent", {"task_name": "a", "message": "do"})])
        if prompt.step == 1:
            return Reply("", [Call("mcp__raw__pid", {})])
        return Reply("done")

    async with open_runtime(configured(), model=ScriptedModel(play)) as rt:
        session = await rt.create()
        root = session.id
        await session.run("go")
        await until(session.children)
        (child,) = session.children()
        await until(lambda: any(isinstance(one, ToolReturned) for one in events(rt, child)))
        found = [
            one.text
            for id_ in (root, child)
            for one in events(rt, id_)
            if isinstance(one, ToolReturned) and one.text.isdigit()
        ]
    assert 2 == len(found)
    assert 1 == len(set(found))


@pytest.mark.limit_s(50)
async def test_twenty_servers_at_once():
    """They connect side by side, are called side by side, and none is left; the loops hardly wait for it."""
    tables = {f"s{n}": raw(wait_s=30.0, parallel=True) for n in range(20)}
    calls = [Call(f"mcp__s{n}__echo", {"text": str(n)}) for n in range(20)]
    async with open_runtime(configured(**tables), model=asking(*calls)) as rt:
        assert {"ready"} == set(phases(rt).values())
        session = await rt.create()
        await session.run("go")
        texts = [one.text for one in events(rt, session.id) if isinstance(one, ToolReturned)]
        assert [str(n) for n in range(20)] == texts
        began_s = time.monotonic()
    assert time.monotonic() - began_s < 8
    assert not descendants()


async def test_a_start_that_is_cancelled_leaves_nothing():
    """Whoever does not wait for the servers leaves none behind."""
    silent = raw(wait_s=30.0)
    silent["args"] = [*silent["args"], "silent"]
    starting = asyncio.ensure_future(open_runtime(configured(raw=silent)).start())
    await until(descendants, 20)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not descendants()


def test_without_the_library(monkeypatch):
    """A runtime that needs it says which extra to install, and one that does not is none the wiser."""
    monkeypatch.setattr(mcp, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"install callboard\[mcp\]"):
        open_runtime(configured())
    open_runtime(config_of({"mcp": {"raw": raw(enabled=False)}}))
    open_runtime()


PROGRAM_OF_A_HOST = """
import asyncio, sys
from callboard.runtime import open_runtime
from callboard.runtime.config import config_of
from callboard.runtime.nodes import Node, tree_of
async def main():
    table = {"command": sys.executable, "args": ["-I", "-S", sys.argv[1], "raw"]}
    async with open_runtime(config_of({"mcp": {"raw": table}})) as rt:
        connection = rt._connections.all[0]
        assert connection.phase == "ready"
        print(flush=True)
        await asyncio.sleep(3600)
asyncio.run(main())
"""


def test_a_program_that_is_killed_leaves_no_server():
    """Its servers go with it, although nobody told them to."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM_OF_A_HOST, PROGRAM], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        below = _below(program.pid)
        assert len(below) >= 2
        os.kill(program.pid, signal.SIGKILL)
        program.wait()
    ends_s = time.monotonic() + 5
    while any(is_alive(pid) for pid in below):
        assert time.monotonic() < ends_s
        time.sleep(0.01)


def _below(pid: int) -> list[int]:
    found = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    return found + [one for child in found for one in _below(child)]


def test_only_a_runtime_with_servers_knows_the_library():
    """Nothing of it is imported without a configured server."""
    code = "import sys; from callboard.runtime import open_runtime; open_runtime(); print('mcp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "False\n" == done.stdout

"""What tests of servers of tools share: connections to bad and good ones, and runtimes that have them."""

import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import trio

from callboard.actors import Call, Prompt, Reply
from callboard.actors.testing import ScriptedModel
from callboard.plugins.mcp import Connection, Sdk, ServerLost
from callboard.plugins.mcp_server import Server
from callboard.runtime.config import RuntimeConfig, config_of

PROGRAM = str(Path(__file__).resolve().parent.parent / "mcp_server.py")
RAW = (sys.executable, "-I", "-S", PROGRAM, "raw")
SDK = (sys.executable, PROGRAM, "sdk")
HTTP = (sys.executable, PROGRAM, "http")


class Kept:
    """A connection with what it does for a supervisor: it is run again, and how often it was lost is kept."""

    def __init__(self, server: Server) -> None:
        self.lost: list[str] = []
        self.shown: list[str] = []
        self.changes = 0
        self.of = Connection(server, Sdk(), "1", self._changed)

    def _changed(self) -> None:
        self.changes += 1

    async def live(self) -> None:
        while self.of.phase != "stopped":
            try:
                await self.of.run()
            except ServerLost as error:
                self.lost.append(str(error))

    async def ready(self) -> None:
        await self.met(lambda: self.of.phase == "ready")

    async def met(self, what: Callable[[], Any], seconds: float = 20.0) -> None:
        with trio.fail_after(seconds):
            while not what():
                await trio.sleep(0.002)

    async def call(self, name: str, **arguments: Any) -> Any:
        return await self.of.call(name, arguments, self.shown.append)


def kept(test: Callable[[Kept], Awaitable[None]], argv: Sequence[str] = RAW, *, wait: bool = True, **how: Any) -> Kept:
    """Run `test` with a connection to a server; it is stopped afterwards."""

    async def run() -> Kept:
        one = Kept(Server(name="srv", argv=tuple(argv) if "url" not in how else (), **how))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.live)
            if wait:
                await one.ready()
            await test(one)
            one.of.stop()
        return one

    return trio.run(run)


def configured(*variant: str, more: dict[str, Any] | None = None, **servers: dict[str, Any]) -> RuntimeConfig:
    """A configuration with one raw server `raw`, or those that are given."""
    raw = {"command": RAW[0], "args": [*RAW[1:], *variant]}
    return config_of({"mcp": servers or {"raw": raw}, **(more or {})})


def raw(**more: Any) -> dict[str, Any]:
    """The table of a raw server."""
    return {"command": RAW[0], "args": list(RAW[1:]), **more}


def asking(*calls: Call) -> ScriptedModel:
    """A model that makes these calls, and then says what the last one answered."""

    def play(prompt: Prompt) -> Reply:
        if prompt.step == 1:
            return Reply("", [*calls])
        return Reply(prompt.messages[-1].text)

    return ScriptedModel(play)


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False


def descendants() -> set[int]:
    """The processes below this one that live and have to do with a server of tools."""
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        try:
            tasks = list(Path(f"/proc/{waiting.pop()}/task").iterdir())
        except OSError:
            continue
        for task in tasks:
            try:
                below = [int(pid) for pid in (task / "children").read_text(encoding="ascii").split()]
            except OSError:
                continue
            found.update(below)
            waiting.extend(below)
    return {pid for pid in found if is_alive(pid) and _is_server(pid)}


def _is_server(pid: int) -> bool:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"mcp_server.py" in line or b"mcp-server-" in line

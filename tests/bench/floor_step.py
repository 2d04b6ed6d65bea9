"""A step by hand: cancel scope, five hooks, typed arguments, timeout scope, two events, counter, histogram.

It has its own group commit: events are put at once, and one task commits what all turns have put since the last time.
"""

import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import trio
from prometheus_client import CollectorRegistry, Counter, Histogram

from .measure import now_s
from .sides import CALLS_MAX, PLAN

HOOKS_MAX = 5
TOOL_SECONDS_MAX = 30


class Put(msgspec.Struct, array_like=True, gc=False):
    """An event of the floor."""

    session: str
    seq: int
    at_s: float
    kind: str
    call: str | None = None
    name: str | None = None
    body: bytes | str | None = None


class Add(msgspec.Struct):
    """The arguments of `add`."""

    a: int
    b: int


class Item(msgspec.Struct):
    """One step of a plan."""

    step: str
    status: str


class Plan(msgspec.Struct):
    """The arguments of the plan update."""

    plan: list[Item]


class GroupCommit:
    """Events are put at once; `durable` waits for the commit that has all that was put, with everyone's in it."""

    def __init__(self, store: str, folder: str) -> None:
        self._rows: list[tuple[str, bytes]] = []
        self._waiting: list[trio.Event] = []
        self._asked = trio.Event()
        self._encode = msgspec.msgpack.Encoder().encode
        self.events = 0
        self._db: sqlite3.Connection | None = None
        if store != "memory":
            self._db = sqlite3.connect(Path(folder) / "floor.db", isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(f"PRAGMA synchronous={store}")
            self._db.execute("CREATE TABLE events (at INTEGER PRIMARY KEY, session TEXT, body BLOB)")
            self._db.execute("CREATE INDEX of_session ON events (session)")

    def put(self, event: Put) -> None:
        """Take an event."""
        self._rows.append((event.session, self._encode(event)))

    async def durable(self) -> None:
        """Return when all that was put is committed."""
        done = trio.Event()
        self._waiting.append(done)
        self._asked.set()
        await done.wait()

    async def commits(self) -> None:
        """Commit whenever somebody waits, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            await trio.lowlevel.checkpoint()  # whoever can run puts what it has
            waiting, self._waiting = self._waiting, []
            self._commit()
            for done in waiting:
                done.set()

    def _commit(self) -> None:
        rows, self._rows = self._rows, []
        self.events += len(rows)
        if self._db is not None and rows:
            self._db.execute("BEGIN")
            self._db.executemany("INSERT INTO events (session, body) VALUES (?, ?)", rows)
            self._db.execute("COMMIT")

    def close(self) -> None:
        """Let go of the file."""
        if self._db is not None:
            self._db.close()


class Steps:
    """Turns by hand."""

    def __init__(self, store: GroupCommit, *, each_call: bool) -> None:
        self._store, self._each_call = store, each_call
        registry = CollectorRegistry()
        outcomes = Counter("outcomes", "By tool.", ["tool", "outcome"], registry=registry)
        seconds = Histogram("seconds", "By tool.", ["tool"], registry=registry)
        self._ok = {name: outcomes.labels(name, "ok") for name in ("add", "plan")}
        self._took = {name: seconds.labels(name) for name in ("add", "plan")}
        self._parse: dict[str, msgspec.json.Decoder[Any]] = {
            "add": msgspec.json.Decoder(Add),
            "plan": msgspec.json.Decoder(Plan),
        }
        self._write = msgspec.json.Encoder().encode
        self._tools: dict[str, Callable[..., Awaitable[str]]] = {"add": self._add, "plan": self._plan}
        self._hooks = [_hook] * HOOKS_MAX
        asked = [("plan", PLAN) if at == CALLS_MAX // 2 else ("add", {"a": at, "b": 2}) for at in range(CALLS_MAX)]
        self._script: list[Any] = [*asked, "done"]

    async def _add(self, state: dict[str, Any], arguments: Add) -> str:
        return str(arguments.a + arguments.b)

    async def _plan(self, state: dict[str, Any], arguments: Plan) -> str:
        state["plan"] = arguments.plan
        return "Plan updated"

    async def turn(self, session: str) -> int:
        """One turn of a new session; the number of its steps."""
        state: dict[str, Any] = {"messages": [("user", "go")]}
        messages, put, seq, at = state["messages"], self._store.put, 1, 0
        put(Put(session, 0, now_s(), "user", body="go"))
        with trio.CancelScope() as state["scope"]:
            while True:
                for hook in self._hooks:
                    await hook(state, at)
                await trio.lowlevel.checkpoint()
                said = self._script[at]
                at += 1
                if isinstance(said, str):
                    put(Put(session, seq, now_s(), "said", body=said))
                    messages.append(("assistant", said))
                    break
                result = await self._call(state, session, seq, f"c{at}", said)
                messages.append(("result", f"c{at}", result))
                seq += 2
        await self._store.durable()
        return at if len(messages) == 2 + 2 * CALLS_MAX and len(state["plan"]) == len(PLAN["plan"]) else 0

    async def _call(self, state: dict[str, Any], session: str, seq: int, call: str, said: tuple[str, Any]) -> str:
        name, body = said[0], self._write(said[1])
        state["messages"].append(("call", call, name, body))
        self._store.put(Put(session, seq, now_s(), "called", call, name, body))
        if self._each_call:
            await self._store.durable()
        begun_s = now_s()
        with trio.move_on_after(TOOL_SECONDS_MAX):
            result = await self._tools[name](state, self._parse[name].decode(body))
        self._took[name].observe(now_s() - begun_s)
        self._ok[name].inc()
        self._store.put(Put(session, seq + 1, now_s(), "returned", call, None, result))
        return result


async def _hook(state: dict[str, Any], step: int) -> None:
    return None


async def with_steps(store: str, fn: Callable[[Steps, trio.Nursery], Awaitable[Any]]) -> Any:
    """(Trio) Call `fn(steps, nursery)` with turns by hand on a store of their own."""
    with tempfile.TemporaryDirectory() as folder:
        commits = GroupCommit(store, folder)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commits.commits)
            result = await fn(Steps(commits, each_call=store != "memory"), nursery)
            nursery.cancel_scope.cancel()
        commits.close()
        return result

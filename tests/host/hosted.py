"""What tests of whole runtimes share: models that call what they are told, tools that are hard to end, a slow store."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import trio

from callboard.actors import Call, Envelope, Event, LogError, Prompt, Reply, tool
from callboard.actors.memory import MemoryStore
from callboard.actors.store import Done, Due, Header, Place, Record, Snapshot
from callboard.actors.testing import ScriptedModel

SLACK_S = 0.25  # what a busy machine may add to an abort window


def calls(*names: str, then: str = "done") -> ScriptedModel:
    """A model that calls these tools in its first step of each odd turn, and only talks in the even ones."""

    def play(prompt: Prompt) -> Reply:
        if prompt.step == 1 and prompt.turn % 2 == 1:
            return Reply("", [Call(name) for name in names])
        return Reply(then)

    return ScriptedModel(play)


def echo() -> ScriptedModel:
    """A model that answers with the last input."""
    return ScriptedModel(lambda prompt: Reply(f"re: {prompt.messages[-1].text[:80]}"))


def slow(delay_s: float = 30.0, text: str = "late") -> ScriptedModel:
    """A model that takes its time."""
    return ScriptedModel(lambda prompt: Reply(text), delay_s=delay_s)


async def until(met: Callable[[], Any], seconds: float = 5.0) -> None:
    """Poll from either loop until `met()` is true."""
    ends_at = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < ends_at, "it did not come to that"
        if trio.lowlevel.in_trio_task():
            await trio.sleep(0.002)
        else:
            await asyncio.sleep(0.002)


class Stubborn:
    """Four tools that do not end when they are told to; `release` ends them all, `began` counts who runs."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self._over = threading.Event()
        began, over = self.began, self._over

        @tool(effect="none", parallel=True)
        async def deaf() -> str:
            """Catches everything that is thrown at it."""
            began.append("deaf")
            while not over.is_set():
                try:
                    await trio.sleep(0.01)
                except BaseException:  # as a careless tool does
                    continue
            return "late"

        @tool(effect="none", parallel=True)
        def sleeper() -> str:
            """Sits in a blocking call."""
            began.append("sleeper")
            while not over.is_set():
                time.sleep(0.05)
            return "late"

        @tool(effect="none", parallel=True)
        def burner() -> str:
            """Burns a processor."""
            began.append("burner")
            while not over.is_set():
                sum(range(1000))
            return "late"

        @tool(runs_on="asyncio", effect="none", parallel=True)
        async def shielded() -> str:
            """Lets no cancellation through to its work."""
            began.append("shielded")
            work = asyncio.ensure_future(_until_over(over))
            while not work.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(work)
            return "late"

        self.tools = {"deaf": deaf, "sleeper": sleeper, "burner": burner, "shielded": shielded}

    def release(self) -> None:
        """Let all of them go."""
        self._over.set()


async def _until_over(over: threading.Event) -> None:
    while not over.is_set():
        await asyncio.sleep(0.01)


@contextlib.contextmanager
def stubborn() -> Iterator[Stubborn]:
    """Stubborn tools for the length of a block."""
    tools = Stubborn()
    try:
        yield tools
    finally:
        tools.release()


class StallingStore:
    """A memory store whose syncs are answered only while it is not `stalled`; readers see what was synced."""

    blocking = False

    def __init__(self) -> None:
        self.inner = MemoryStore()
        self.stalled = False
        self.on_notice: Callable[[Any], None] = lambda notice: None
        self._waiting: list[Done] = []
        self._ends: dict[str, int] = {}
        self._synced: dict[str, int] = {}

    def open(self, run_soon: Any) -> None:
        self.inner.open(run_soon)

    def append(
        self, session: str, records: Sequence[Record], header: Header | None = None, due: Due | None = None
    ) -> None:
        self.inner.append(session, records, header, due)
        if records:
            self._ends[session] = records[-1].seq

    def sync(self, done: Done, session: str | None = None) -> None:
        if self.stalled:
            self._waiting.append(done)
        else:
            self._synced.update(self._ends)
            done(None)

    def claim(self, session: str, done: Done) -> None:
        self.inner.claim(session, done)

    def release(self, session: str) -> None:
        self.inner.release(session)

    def snap(self, session: str, snapshots: Sequence[Snapshot]) -> None:
        self.inner.snap(session, snapshots)

    def snapshots(self, session: str) -> list[Snapshot]:
        return self.inner.snapshots(session)

    def resume(self) -> None:
        """Answer all who waited."""
        self.stalled = False
        waiting, self._waiting = self._waiting, []
        self._synced.update(self._ends)
        for done in waiting:
            done(None)

    def read(self, session: str, after: int, limit: int) -> list[Record]:
        synced = self._synced.get(session, -1)
        return [record for record in self.inner.read(session, after, limit) if record.seq <= synced]

    def header(self, session: str) -> Header | None:
        return self.inner.header(session)

    def headers(self) -> list[Header]:
        return self.inner.headers()

    def due(self, upto_ms: int, after: Place, limit: int) -> list[Place]:
        return self.inner.due(upto_ms, after, limit)

    def last(self, session: str, kinds: Sequence[str], before: int, limit: int) -> list[Record]:
        return self.inner.last(session, kinds, before, limit)

    def close(self) -> None:
        self.inner.close()
        for done in self._waiting:
            done(LogError("the store was closed before it confirmed this."))


def events(rt: Any, session: str) -> list[Event]:
    """All that the store holds of a session."""
    stage = rt._ground.stage
    return [stage.codec.decode(record.body) for record in stage.store.read(session, -1, 10**9)]


async def read_to_end(reading: Any) -> list[Any]:
    """All items of a reading that ends."""
    return [item async for item in reading]


async def count(reading: Any) -> int:
    """How many items a reading has that ends."""
    return len(await read_to_end(reading))


def envelopes(items: Sequence[Any]) -> list[int]:
    """The numbers of the events among what a reader got."""
    return [item.seq for item in items if isinstance(item, Envelope)]


def gauge(text: str, name: str) -> float:
    """The sum of a metric over its labels, from the exposition."""
    lines = (line for line in text.splitlines() if line.startswith(name) and line[len(name)] in " {")
    return sum(float(line.rpartition(" ")[2]) for line in lines)

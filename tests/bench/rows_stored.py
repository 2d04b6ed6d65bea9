"""Sessions that lie in a store: to open a thousand again, and one whose log is very long."""

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from callboard.actors import Reply
from callboard.actors.codec import Codec
from callboard.actors.eventlog import EventLog
from callboard.actors.events import (
    Call,
    Compacted,
    Event,
    MessageQueued,
    MessagesClaimed,
    ModelSaid,
    SessionOpened,
    StepEnded,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from callboard.actors.store import Header
from callboard.actors.testing import ScriptedModel
from callboard.plugins import DEFAULT
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.assembly import assemble
from callboard.runtime.stores import open_store

from .measure import Span, now_s, resident_bytes
from .row import Figures, Goal, Row

TURN_EVENTS = 9
TURNS_A_COMPACTION = 100
TEXT = "some words of a message or of an answer, as they are said in a session that somebody works with. " * 2


def turn(number: int) -> Iterator[Event]:
    """A turn of one step with one call; now and then a compaction first."""
    call = f"t{number}s1c1"
    yield MessageQueued(f"m{number}", TEXT, seq=number * TURN_EVENTS)
    yield TurnStarted(number, started_ms=1)
    if number % TURNS_A_COMPACTION == 0:
        yield Compacted(TEXT)
    yield MessagesClaimed((f"m{number}",))
    yield StepStarted(number, 1)
    yield ModelSaid(TEXT, (Call("grep", {"pattern": "a word"}, call),))
    yield ToolCalled(call, "grep", {"pattern": "a word"})
    yield ToolReturned(call, "completed", "completed", TEXT, name="grep")
    yield StepEnded(number, 1)
    yield TurnEnded(number, "completed", last_message=TEXT, started_ms=1, ended_ms=2)


def build(path: Path, sessions: int, events: int, *, snaps: bool) -> None:
    """A file with so many sessions of so many events each."""
    assembly = assemble(RuntimeConfig(), DEFAULT, (), ())

    async def main() -> None:
        loop = asyncio.get_running_loop()
        store = open_store(f"sqlite:///{path}?durability=normal")

        def soon(fn: Callable[[], None]) -> None:
            loop.call_soon_threadsafe(fn)

        store.open(soon)
        for one in range(sessions):
            log = EventLog(
                f"s{one}", store, assembly.codec, assembly.folds, lambda: 1, lambda event, session, turn: None
            )
            log.append(SessionOpened(root=log.session), header=Header(log.session, root=log.session))
            number = 0
            while log.seq < events:
                number += 1
                log.append(*turn(number))
                if number % TURNS_A_COMPACTION == 0:
                    synced = loop.create_future()
                    store.sync(synced.set_result)
                    await synced
            if snaps:
                log.snap(0)
        synced = loop.create_future()
        store.sync(synced.set_result)
        await synced
        store.close()

    asyncio.run(main())


def _nobody(event: Event, session: str, turn: int | None) -> None:
    """Hears nothing."""


def opened(sessions: int, events: int, *, snaps: bool) -> Figures:
    """Every session opened in a runtime, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stored.db"
        build(path, sessions, events, snaps=snaps)
        return asyncio.run(_opened(path, sessions))


async def _opened(path: Path, sessions: int) -> Figures:
    model = ScriptedModel(lambda prompt: Reply("on"))
    async with open_runtime(model=model, store=f"sqlite:///{path}?durability=normal") as rt:
        await rt.create()
        before = resident_bytes()
        with Span() as span:
            for one in range(sessions):
                await rt.open(f"s{one}")
        kb_each = (resident_bytes() - before) / sessions / 1024
        begun_s = now_s()
        assert "completed" == (await (await rt.open("s0")).run("on")).reason
        turn_ms = (now_s() - begun_s) * 1e3
    each = {"open_ms": span.wall_s / sessions * 1e3, "cpu_ms_open": span.cpu_s / sessions * 1e3}
    return {**each, "kb_each": kb_each, "turn_ms": turn_ms}


def read(sessions: int, events: int) -> Figures:
    """The same records read with bare SQLite, and decoded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stored.db"
        build(path, sessions, events, snaps=False)
        db, codec = sqlite3.connect(path), Codec()
        with Span() as span:
            for one in range(sessions):
                rows = db.execute(
                    "SELECT body FROM events WHERE session = (SELECT number FROM sessions WHERE id = ?) ORDER BY seq",
                    (f"s{one}",),
                ).fetchall()
                assert len(rows) >= events
                for (body,) in rows:
                    codec.decode(body)
        db.close()
    return {"open_ms": span.wall_s / sessions * 1e3, "cpu_ms_open": span.cpu_s / sessions * 1e3}


SHOWN = ("open_ms", "cpu_ms_open", "kb_each")
ROWS = (
    Row(
        "stored.thousand",
        "1,000 sessions of 1,000 events, each opened from its snapshot, beside reading them with bare SQLite",
        partial(opened, snaps=True),
        read,
        SHOWN,
        {"sessions": 1_000, "events": 1_000},
        {"sessions": 5, "events": 100},
        {"open_ms": Goal(3.0)},
    ),
    Row(
        "stored.whole",
        "100 sessions of 1,000 events without snapshots, beside reading them with bare SQLite",
        partial(opened, snaps=False),
        read,
        SHOWN,
        {"sessions": 100, "events": 1_000},
        {"sessions": 5, "events": 100},
        {"open_ms": Goal(7.0)},
    ),
    Row(
        "stored.long",
        "a session of 100,000 events, opened from its snapshot, beside reading it with bare SQLite",
        partial(opened, snaps=True),
        read,
        SHOWN,
        {"sessions": 1, "events": 100_000},
        {"sessions": 1, "events": 500},
        {"open_ms": Goal(0.05)},
    ),
)

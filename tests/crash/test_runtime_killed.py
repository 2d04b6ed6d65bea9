"""kill -9 at any moment: no acknowledged message is lost, every call is paired, and the next turn works."""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from callboard.actors import (
    ChildEnded,
    ChildSpawned,
    Event,
    MessageQueued,
    MessagesClaimed,
    ModelSaid,
    Reply,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime

PROGRAM = Path(__file__).with_name("killed.py")
KILLS_MAX = 12
PARKED = b'{"type":"queue_parked","parked":true}'
RECEIPTS = {"none": {"interrupted"}, "idempotent": {"interrupted"}, "once": {"outcome_unknown"}}


def killed(path: Path, seed: int) -> list[list[str]]:
    """Run the program, kill it at a moment that the seed chooses, and return what it had acknowledged."""
    after_s = random.Random(seed).uniform(0.02, 0.5)
    command = [sys.executable, str(PROGRAM), f"sqlite:///{path}", str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        first = running.stdout.readline()
        time.sleep(after_s)
        running.send_signal(signal.SIGKILL)
        lines = [first, *running.stdout.read().split("\n")[:-1]]
    return [line.split() for line in lines if line.strip()]


def check(events: list[Event], acknowledged: list[list[str]]) -> None:
    """What must hold of any log that was loaded again."""
    queued = [event.id for event in events if isinstance(event, MessageQueued)]
    assert not [one[2] for one in acknowledged if one[0] == "accepted" and one[2] not in queued]
    assert len(set(queued)) == len(queued)
    claimed = Counter(id_ for event in events if isinstance(event, MessagesClaimed) for id_ in event.ids)
    assert {1} >= set(claimed.values())
    ended = {event.turn: event for event in events if isinstance(event, TurnEnded)}
    started = [event.turn for event in events if isinstance(event, TurnStarted)]
    assert list(range(1, len(started) + 1)) == started == sorted(ended)
    assert len(ended) == sum(isinstance(event, TurnEnded) for event in events)
    told = {(int(one[2]), one[3]) for one in acknowledged if one[0] == "ended"}
    assert told <= {(turn, event.reason) for turn, event in ended.items()}
    check_calls(events)


def check_calls(events: list[Event]) -> None:
    """Each call has one result, and one that the crash cut has the receipt of its effect."""
    asked: list[Any] = [call for event in events if isinstance(event, ModelSaid) for call in event.calls]
    returned = {event.call: event for event in events if isinstance(event, ToolReturned)}
    called = {event.call: event for event in events if isinstance(event, ToolCalled)}
    assert sorted(call.id for call in asked) == sorted(returned)
    assert len(asked) == sum(isinstance(event, ToolReturned) for event in events)
    for event in events:
        if isinstance(event, TurnEnded) and event.reason == "interrupted":
            for receipt in event.receipts:
                text = returned[receipt.call].text
                if "the program ended" in text and receipt.call in called:
                    assert receipt.receipt in RECEIPTS[called[receipt.call].effect]
                elif "the program ended" in text:
                    assert "not_started" == receipt.receipt


async def reopened(path: Path) -> dict[str, list[bytes]]:
    """Open every session and wait until it rests; the bytes of all logs."""
    async with open_runtime(model=ScriptedModel(lambda prompt: Reply("never asked")), store=f"sqlite:///{path}") as rt:
        for header in await rt.stored():
            await (await rt.open(header.id)).wait_idle()
        for header in await rt.stored():
            turn = rt.actor(header.id).log.last_end
            if turn is not None:
                await (await rt.open(header.id)).wait(turn.turn)
    async with open_runtime(store=f"sqlite:///{path}") as rt:
        return {h.id: [one.body for one in rt.store.read(h.id, -1, 10**9)] for h in await rt.stored()}


@pytest.mark.parametrize("seed", range(KILLS_MAX))
def test_killed_at_any_moment(seed, tmp_path):
    """After kill -9 at a random moment everything that was acknowledged is there, closed, and goes on."""
    path = tmp_path / "x.db"
    acknowledged = killed(path, seed)
    logs = asyncio.run(reopened(path))
    assert {one[1] for one in acknowledged if one[0] == "created"} <= set(logs), f"seed {seed}"
    again = asyncio.run(reopened(path))
    for name, log in again.items():  # mail that came while the first loading went on may be parked by the second
        assert log in (logs[name], [*logs[name], PARKED]), f"seed {seed}"
    assert again == asyncio.run(reopened(path)), f"seed {seed}"
    asyncio.run(checked(path, acknowledged))


async def checked(path: Path, acknowledged: list[list[str]]) -> None:
    """Every log keeps its promises, and every session works on."""
    async with open_runtime(model=ScriptedModel(lambda prompt: Reply("fine")), store=f"sqlite:///{path}") as rt:
        codec = rt._ground.stage.codec
        logs = {}
        for header in await rt.stored():
            logs[header.id] = [codec.decode(one.body) for one in rt.store.read(header.id, -1, 10**9)]
            check(logs[header.id], [one for one in acknowledged if one[1] == header.id])
        for log in logs.values():
            spawned = [event.child for event in log if isinstance(event, ChildSpawned)]
            told = Counter((event.child, event.turn) for event in log if isinstance(event, ChildEnded))
            assert {1} >= set(told.values())
            assert sorted(spawned) == sorted({child for child, _ in told})
        for header in await rt.stored():
            assert "fine" == (await (await rt.open(header.id)).run("next")).last_message

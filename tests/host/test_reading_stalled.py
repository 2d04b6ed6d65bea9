"""A reader that stops taking costs nobody anything: memory stays flat, the others are not slowed, nothing is lost.

CALLBOARD_DELTAS=200000 python -m pytest tests/host/test_reading_stalled.py is the long form.
"""

import asyncio
import os
import time
import tracemalloc

import pytest
import trio

from callboard.actors import Delta, Envelope, Lagged, Reply, TurnEnded
from callboard.runtime import open_runtime

DELTAS_MAX = int(os.environ.get("CALLBOARD_DELTAS", "20000"))
TURNS_MAX = 20
A_BATCH_MAX = 100
GROWN_MAX_BYTES = 6 << 20
SLOWED_MAX_FACTOR = 2.0


class Talking:
    """Streams many small pieces in each turn."""

    provider = "scripted"

    async def reply(self, prompt, say):
        """A hundred pieces at a time."""
        for at in range(DELTAS_MAX // TURNS_MAX):
            say("w ")
            if at % A_BATCH_MAX == 0:
                await trio.lowlevel.checkpoint()
        return Reply("all said")


async def follow(s, turns, seen):
    """Read to the end of a turn, and count."""
    async for item in s.events(deltas=True):
        if isinstance(item, Delta):
            seen["deltas"] += 1
        elif isinstance(item, Lagged):
            seen["lagged"] += 1
        elif isinstance(item, Envelope):
            seen["seqs"].append(item.seq)
            if isinstance(item.event, TurnEnded) and item.event.turn == turns:
                return


def fresh():
    """What a reader has seen."""
    return {"deltas": 0, "lagged": 0, "seqs": []}


async def talk(*, stalled):
    """All turns with two readers, or with a third one that takes one item and no more; seconds, readers, memory."""
    async with open_runtime(model=Talking()) as rt:
        s = await rt.create()
        readers = [fresh(), fresh()]
        tasks = [asyncio.create_task(follow(s, TURNS_MAX, seen)) for seen in readers]
        third = s.events(deltas=True)
        if stalled:
            await anext(third)
        begun_s, most, base = time.process_time(), 0, 0
        for number in range(TURNS_MAX):
            await s.run("talk")
            if stalled:
                now, _ = tracemalloc.get_traced_memory()
                base = base or now  # after the first turn: what comes once
                most = max(most, now - base) if number else 0
        await asyncio.gather(*tasks)
        took_s = time.process_time() - begun_s
        left = fresh()
        if stalled:
            await s.submit("one more")
            left["seqs"].append(0)  # it took the first event before it stopped
            async for item in third:
                if isinstance(item, Envelope):
                    left["seqs"].append(item.seq)
                elif isinstance(item, Lagged):
                    left["lagged"] += 1
                if isinstance(item, Envelope) and isinstance(item.event, TurnEnded) and item.event.turn == TURNS_MAX:
                    break
    return took_s, readers, most, left


@pytest.mark.limit_s(300)
async def test_a_stalled_reader_among_three():
    """Memory flat, the others not slowed, and when it reads again it gets every event once and in order."""
    alone_s, *_ = await talk(stalled=False)
    beside_s, *_ = await talk(stalled=True)
    tracemalloc.start()
    try:
        _, readers, grown_bytes, left = await talk(stalled=True)
    finally:
        tracemalloc.stop()
    assert grown_bytes < GROWN_MAX_BYTES
    assert beside_s < SLOWED_MAX_FACTOR * alone_s + 0.2
    assert left["seqs"] == list(range(len(left["seqs"])))
    for seen in readers:
        assert seen["seqs"] == list(range(len(seen["seqs"])))
        assert seen["seqs"] == left["seqs"]
    print(f"{DELTAS_MAX} deltas: {alone_s:.2f} s alone, {beside_s:.2f} s beside; grown {grown_bytes} bytes")

"""kill -9 around an effect: when the call is logged, when the effect is done, when the result is logged."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from callboard.actors import Event, ToolReturned, TurnEnded, TurnRecovered
from callboard.actors.events import Effect
from callboard.actors.recovery import Recover
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.settings import Bounds

from .effective import POINTS, lines, model, tools

PROGRAM = Path(__file__).with_name("effective.py")
EFFECTS: tuple[Effect, ...] = ("none", "idempotent", "once")
KEY = "s/1/t1s1c1"


def killed(path: Path, effect: Effect, point: str) -> tuple[str, Path]:
    """The first life, killed at its point once all before it is on the disk; its store, and what it did."""
    url, file = f"sqlite:///{path / effect}.db?durability=full", path / f"{effect}.txt"
    command = [sys.executable, str(PROGRAM), url, str(file), effect, point]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert {"here\n", "durable\n"} == {running.stdout.readline() for _ in range(2)}
        running.send_signal(signal.SIGKILL)
    return url, file


async def next_life(url: str, file: Path, effect: Effect, recover: Recover) -> list[Event]:
    """The same session in another program, until it rests, and one turn more; its log before that."""
    config = RuntimeConfig(runtime=Bounds(recover=recover))
    async with open_runtime(config, model=model(), tools=tools(file, effect), store=url) as rt:
        s = await rt.open("s")
        await s.wait_idle()
        log = rt.actor("s").log
        events = [log._codec.decode(record.body) for record in rt.actor("s").stage.store.read("s", -1, 1_000)]
        before = len(lines(file))
        assert "completed" == (await s.run("again")).reason
        assert before + 1 == len(lines(file))  # another turn, another key
    return events


@pytest.mark.parametrize("recover", ["close", "continue"])
@pytest.mark.parametrize("point", POINTS)
def test_effects(tmp_path, point, recover):
    """`once`: at most one line, and a state that says so; `idempotent`: the same key again; `none`: repeated freely."""
    for effect in EFFECTS:
        url, file = killed(tmp_path, effect, point)
        done = lines(file)
        assert ([] if point == "called" else [KEY]) == done
        events = asyncio.run(next_life(url, file, effect, recover))
        now = [key for key in lines(file) if key.startswith("s/1/")]
        (returned,) = (event for event in events if isinstance(event, ToolReturned))
        ended = next(event for event in events if isinstance(event, TurnEnded))
        went_on = recover == "continue"
        assert went_on == any(isinstance(event, TurnRecovered) for event in events)
        assert (1, "completed" if went_on else "interrupted") == (ended.turn, ended.reason)
        if point == "returned":
            assert ([KEY], "completed") == (now, returned.receipt)
        elif effect == "once":
            assert (done, "outcome_unknown") == (now, returned.receipt)
        elif not went_on:
            assert (done, "interrupted") == (now, returned.receipt)
        else:
            again = [KEY] if effect == "idempotent" else [*done, KEY]
            assert (again, "completed") == (now, returned.receipt)

"""kill -9 while plans are approved and handed over: an approved plan is carried out once, and none is lost."""

import asyncio
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from callboard.actors import Event, MessageQueued, MessagesClaimed, TurnEnded
from callboard.actors.facts import PlanApproved, PlanHandedOver, QuestionAnswered
from callboard.actors.testing import ScriptedModel
from callboard.plugins.handovers import message_id, session_of
from callboard.runtime import open_runtime

from .plan_killed import CONFIG, play

PROGRAM = Path(__file__).with_name("plan_killed.py")
KILLS_MAX = 6
SECONDS_MAX = 10.0


def killed(path: Path, seed: int) -> list[str]:
    """Run the program, kill it at a moment that the seed chooses, and return the sessions whose approval it heard."""
    after_s = random.Random(seed).uniform(0.01, 0.25)
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), f"sqlite:///{path}"], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        first = running.stdout.readline()
        time.sleep(after_s)
        running.send_signal(signal.SIGKILL)
        lines = [first, *running.stdout.read().split("\n")[:-1]]
    return [line.split()[1] for line in lines if line.strip()]


def of(rt: Any, session: str, kind: type[Event]) -> list[Any]:
    """The events of one kind that the store holds of a session."""
    codec = rt._ground.stage.codec
    found = [codec.decode(record.body) for record in rt.store.read(session, -1, 10**9)]
    return [event for event in found if isinstance(event, kind)]


async def settled(rt: Any, source: str) -> None:
    """Open a session, and return once its approved plan, if it has one, was handed over."""
    s = await rt.open(source)
    if not of(rt, source, PlanApproved):
        return
    ends_s = time.monotonic() + SECONDS_MAX
    while not of(rt, source, PlanHandedOver):
        assert time.monotonic() < ends_s, f"the plan of {source} is not handed over"
        await asyncio.sleep(0.005)
    (approved,) = of(rt, source, PlanApproved)
    new = await rt.open(session_of(source, approved.id))
    await new.resume_queue()
    await new.wait_idle()
    await s.wait_idle()


def check(rt: Any, source: str) -> None:
    """All of an approval or nothing; one message in one session, which one turn took."""
    approved, handed = of(rt, source, PlanApproved), of(rt, source, PlanHandedOver)
    assert len(approved) == len(handed) == len([one for one in of(rt, source, QuestionAnswered) if one.selected])
    assert not [event for event in of(rt, source, MessageQueued) if event.source == "plan"]
    for one in approved:
        target = session_of(source, one.id)
        assert [PlanHandedOver(one.id, target)] == handed
        (queued,) = of(rt, target, MessageQueued)
        assert (message_id(one.id), True) == (queued.id, f"# Plan of {source}" in queued.text)
        assert [(queued.id,)] == [event.ids for event in of(rt, target, MessagesClaimed)]
        assert 1 == len([event for event in of(rt, target, TurnEnded) if event.steps])  # one may have been cut before


@pytest.mark.parametrize("seed", range(KILLS_MAX))
def test_a_kill_while_plans_are_handed_over(tmp_path, seed):
    """Whatever the moment: opened again, every plan whose approval was heard is carried out, and every plan once."""
    path = tmp_path / "x.db"
    heard = killed(path, seed)

    async def look() -> None:
        async with open_runtime(CONFIG, model=ScriptedModel(play), store=f"sqlite:///{path}") as rt:
            sources = [header.id for header in await rt.stored() if header.id.startswith("s")]
            assert set(heard) <= set(sources)
            for source in sources:
                await settled(rt, source)
            for source in sources:
                check(rt, source)
            assert all(of(rt, source, PlanApproved) for source in heard)

    asyncio.run(look())

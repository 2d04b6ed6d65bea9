"""`python -m tests.bench.soak --minutes 30`: many sessions on SQLite, used without pity; nothing may grow, or break.

Every session does random things under its seed, is checked, stopped and replaced. 1 when something grew or broke.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import Callable, Sequence, Sized
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import trio

from callboard.plugins import DEFAULT, SHELL
from callboard.runtime import open_runtime
from callboard.runtime.guest import Guest

from .measure import now_s
from .soak_life import ACTS_MIN, PATIENCE_S, TOOLS, Life, Player
from .soak_sample import Sample, grown, left, look

SESSIONS = 200
SAMPLES_MIN = 40
SAMPLE_S_MAX = 5.0
SAID_EVERY = 6  # samples
SETTLE_S = 15.0  # idle worker threads and threads that were left behind end within it
WRONG_MAX = 20  # after so many broken promises the rest is not told


@attrs.define
class Soak:
    """One run."""

    seconds: float
    sessions: int = SESSIONS
    seed: int = 1
    say: Callable[[str], None] = lambda line: None
    ended: int = attrs.field(init=False, default=0)
    wrong: list[str] = attrs.field(init=False, factory=list)
    samples: list[Sample] = attrs.field(init=False, factory=list)
    begun_s: float = attrs.field(init=False, factory=now_s)

    async def run(self) -> list[str]:
        """(asyncio) All that grew or broke; empty when nothing did."""
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{Path(folder) / 'soak.db'}?durability=normal"
            plugins = (*DEFAULT, SHELL)
            async with open_runtime(model=Player(), tools=TOOLS, plugins=plugins, store=url, folder=folder) as rt:
                guest = await Guest.enter()
                try:
                    return await self._run(rt, guest)
                finally:
                    await guest.leave()

    async def _run(self, rt: Any, guest: Guest) -> list[str]:
        idle = rt._ground.stage.pits
        await Life(rt, f"{self.seed}:warm", self._wrong, ACTS_MIN).live()  # whatever is made once is made here
        await guest.start(_begin_timers, rt._ground.stage)
        before = await look(guest, 0.0, 0, idle)
        self.begun_s = now_s()
        slots = [asyncio.ensure_future(self._slot(rt, number)) for number in range(self.sessions)]
        await self._watch(guest, idle)
        done, late = await asyncio.wait(slots, timeout=2 * PATIENCE_S)
        self.wrong += [f"a session did not end: {slot.get_name()}" for slot in late]
        self.wrong += [f"a session crashed: {slot.exception()!r}" for slot in done if slot.exception() is not None]
        after = await self._settled(guest, idle, before)
        self.say(str(after))
        return [*self.wrong[:WRONG_MAX], *grown(self.samples), *left(before, after)]

    async def _slot(self, rt: object, number: int) -> None:
        """One session after the other."""
        generation = 0
        while now_s() < self.begun_s + self.seconds:
            generation += 1
            await Life(rt, f"{self.seed}:{number}:{generation}", self._wrong).live()
            self.ended += 1

    async def _watch(self, guest: Guest, idle: Sized) -> None:
        pause_s = min(SAMPLE_S_MAX, self.seconds / SAMPLES_MIN)
        while (at_s := now_s() - self.begun_s) < self.seconds:
            self.samples.append(await look(guest, at_s, self.ended, idle))
            if len(self.samples) % SAID_EVERY == 1:
                self.say(str(self.samples[-1]))
            await asyncio.sleep(pause_s)

    async def _settled(self, guest: Guest, idle: Sized, before: Sample) -> Sample:
        """A look when everything has ended, or when it had time to."""
        until_s = now_s() + SETTLE_S
        while True:
            sample = await look(guest, now_s() - self.begun_s, self.ended, idle)
            if now_s() > until_s or not left(before, sample):
                return sample
            await asyncio.sleep(0.2)

    def _wrong(self, what: str) -> None:
        self.wrong.append(what)


async def _begin_timers(stage: Any) -> None:
    """(Trio) The task of a runtime's timers is made at the first one, which a quiet warm-up may not need."""
    stage.timers.at(trio.current_time(), lambda: None)
    await trio.lowlevel.checkpoint()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, say what grew or broke."""
    parser = argparse.ArgumentParser("soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)  # tools that are left behind are what this is about
    soak = Soak(options.minutes * 60, options.sessions, options.seed, lambda line: print(line, flush=True))
    with suppress(KeyboardInterrupt):
        found = asyncio.run(soak.run())
        print("\n".join(found) or f"{soak.ended} sessions ended; nothing grew and nothing broke.")
        return 1 if found else 0
    return 130


if __name__ == "__main__":
    sys.exit(main())

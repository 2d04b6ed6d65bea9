"""Back pressure: what one session, reader, store, model or tool holds up never holds up the others."""

import asyncio
import threading
import time

import pytest
import trio

from callboard.actors import Accepted, Call, Envelope, MailboxFull, Prompt, Refused, Reply, TurnEnded, tool
from callboard.actors.notices import Lagged
from callboard.actors.testing import ScriptedModel
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.settings import Bounds

from .hosted import StallingStore, events, until

OTHERS = 6
TURNS = 4
WATCHDOG_S = 30.0  # far more than the turns take, far less than what is stuck lasts


@tool(effect="none", parallel=True)
async def quick() -> str:
    """Answers at once."""
    await trio.lowlevel.checkpoint()
    return "ok"


@tool(effect="none", parallel=True)
def threaded() -> str:
    """The same in a thread."""
    return "ok"


class Holding:
    """A model that talks, calls these tools in its first step, and does something else in sessions named `stuck`."""

    def __init__(self, *names, stuck=lambda prompt: Reply("free")):
        self.names, self.stuck = names, stuck

    def __call__(self, prompt: Prompt):
        if prompt.session.startswith("stuck"):
            return self.stuck(prompt)
        if prompt.step == 1 and self.names:
            return Reply("", [Call(name) for name in self.names])
        return Reply("done")


async def others_work(rt):
    """Turns of other sessions, all side by side, each to its end."""

    async def one():
        s = await rt.create()
        return [(await s.run("go")).last_message for _ in range(TURNS)]

    ended = await asyncio.wait_for(asyncio.gather(*(one() for _ in range(OTHERS))), WATCHDOG_S)
    assert [["done"] * TURNS] * OTHERS == ended


async def forever(prompt: Prompt) -> Reply:
    """A model request that is never answered."""
    await trio.sleep(10 * WATCHDOG_S)
    return Reply("never")


async def test_full_mailbox():
    """A session whose mailbox is full says so to its senders; all others go on, and it does what it had taken."""
    over = trio.Event()

    async def held(prompt):
        await over.wait()
        return Reply("free")

    config = RuntimeConfig(runtime=Bounds(mailbox_max=5))
    async with open_runtime(config, model=ScriptedModel(Holding("quick", stuck=held)), tools=[quick]) as rt:
        s = await rt.create("stuck")
        await s.submit("go")
        await until(lambda: s.state()["phase"] == "running" and not s.state()["queue"])
        answers = await asyncio.gather(*(s.submit("more") for _ in range(100)), return_exceptions=True)
        assert [Accepted] * 5 + [MailboxFull] * 95 == [type(answer) for answer in answers]
        await others_work(rt)
        with pytest.raises(MailboxFull):
            await s.submit("still full")
        over.set()
        await s.wait_idle()
        assert 1 + 5 == sum(isinstance(event, TurnEnded) for event in events(rt, "stuck"))


async def test_slow_subscriber():
    """A reader that does not read holds up neither its session nor others, and finds all of it later, in order."""
    async with open_runtime(model=ScriptedModel(Holding("quick")), tools=[quick]) as rt:
        s = await rt.create("stuck")
        reading = s.events(queue_max=2, deltas=True)
        first = await anext(reading)
        for _ in range(20):
            await s.run("go")
        await others_work(rt)
        await s.stop()
        rest = [item async for item in reading]
        numbers = [item.seq for item in (first, *rest) if isinstance(item, Envelope)]
        assert list(range(len(events(rt, "stuck")))) == numbers
        assert any(isinstance(item, Lagged) for item in rest)


class OneStalls(StallingStore):
    """Confirms nothing of one session while it is stalled."""

    def sync(self, done, session=None):
        """Others are confirmed at once."""
        if session == "stuck" or not self.stalled:
            super().sync(done, session)
        else:
            self._synced.update({name: end for name, end in self._ends.items() if name != "stuck"})
            done(None)


async def test_store_that_stalls_for_one_session():
    """A session that the store does not confirm says so, its interrupt is answered, and all others go on."""
    store = OneStalls()
    config = RuntimeConfig(runtime=Bounds(flush_stall_s=0.05))
    model = ScriptedModel(Holding("quick", stuck=forever))
    async with open_runtime(config, model=model, tools=[quick], store=store) as rt:
        s = await rt.create("stuck")
        await s.submit("go")
        store.stalled = True
        await asyncio.wait_for(s.interrupt(), WATCHDOG_S)
        await until(lambda: rt.actor("stuck").log.last_end is not None)
        await others_work(rt)
        await until(lambda: rt.actor("stuck")._slot.stalled)
        answer = await asyncio.wait_for(s.submit("more"), WATCHDOG_S)
        assert isinstance(answer, Refused)
        assert "store_stalled" == answer.reason
        store.resume()
        assert "aborted" == (await asyncio.wait_for(s.wait(1), WATCHDOG_S)).reason


class Slow(StallingStore):
    """Takes its time for each confirmation, as a slow disk does, and confirms what came until then together."""

    def __init__(self, pause_s):
        super().__init__()
        self.pause_s, self.syncs = pause_s, 0

    def sync(self, done, session=None):
        """Later, on the host's loop."""
        self.syncs += 1
        ends = dict(self._ends)

        def confirm():
            self._synced.update(ends)
            done(None)

        asyncio.get_running_loop().call_later(self.pause_s, confirm)


async def test_slow_store():
    """Where each confirmation takes long sessions wait side by side, not one behind the other."""
    store, waiting, most = Slow(0.02), set(), [0]
    model = ScriptedModel(Holding("quick"))
    async with open_runtime(model=model, tools=[quick], store=store) as rt:

        async def one(name):
            s = await rt.create(name)
            for _ in range(TURNS):
                waiting.add(name)
                most[0] = max(most[0], len(waiting))
                assert "done" == (await s.run("go")).last_message
                waiting.discard(name)

        await asyncio.wait_for(asyncio.gather(*(one(f"s{at}") for at in range(OTHERS))), WATCHDOG_S)
        assert OTHERS == most[0]
        assert store.syncs >= OTHERS * TURNS


async def test_stalled_model():
    """A model that never answers holds its own session alone, which an interrupt ends."""
    async with open_runtime(model=ScriptedModel(Holding("quick", stuck=forever)), tools=[quick]) as rt:
        sessions = [await rt.create(f"stuck{at}") for at in range(3)]
        for s in sessions:
            await s.submit("go")
        await others_work(rt)
        assert ["running"] * 3 == [s.state()["phase"] for s in sessions]
        for s in sessions:
            await s.interrupt()
            assert "aborted" == (await asyncio.wait_for(s.wait(1), WATCHDOG_S)).reason


@pytest.mark.parametrize(("threads_max", "names"), [(4, ("quick", "threaded")), (2, ("quick",))])
async def test_tool_that_blocks_a_thread(threads_max, names):
    """A plain function that blocks takes one place in the pool; even with none left all but thread tools go on."""
    over, began = threading.Event(), []

    @tool(effect="none")
    def block() -> str:
        """Sits in a call that does not end."""
        began.append(1)
        over.wait(WATCHDOG_S)
        return "free"

    def stuck(prompt):
        return Reply("", [Call("block")]) if prompt.step == 1 else Reply("free")

    config = RuntimeConfig(runtime=Bounds(threads_max=threads_max))
    model = ScriptedModel(Holding(*names, stuck=stuck))
    async with open_runtime(config, model=model, tools=[quick, threaded, block]) as rt:
        try:
            sessions = [await rt.create(f"stuck{at}") for at in range(2)]
            for s in sessions:
                await s.submit("go")
            await until(lambda: len(began) == 2)
            await others_work(rt)
            assert ["running"] * 2 == [s.state()["phase"] for s in sessions]
        finally:
            over.set()
        assert ["free"] * 2 == [(await asyncio.wait_for(s.wait(1), WATCHDOG_S)).last_message for s in sessions]


async def test_tool_that_blocks_the_loops_shows():
    """A plain function that is declared for Trio and blocks stalls everybody, and the lag of the loops says so."""

    @tool(runs_on="trio", effect="none")
    def block() -> str:
        """Blocks where it must not."""
        time.sleep(0.8)  # longer than the probes wait
        return "done"

    def lag_s(rt, loop):
        """What all probes of one loop were late together."""
        head = f'callboard_loop_lag_seconds_sum{{loop="{loop}"}} '
        return sum(float(line.removeprefix(head)) for line in rt.metrics_text().splitlines() if line.startswith(head))

    async with open_runtime(model=ScriptedModel([Reply("", [Call("block")]), Reply("done")]), tools=[block]) as rt:
        s = await rt.create()
        assert "done" == (await s.run("go")).last_message
        await until(lambda: min(lag_s(rt, loop) for loop in ("trio", "asyncio")) >= 0.25)

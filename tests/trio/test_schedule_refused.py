"""The drive of reminders on a disk that stalls, refuses or is full: its order, its pauses, and that it fires once."""

import random

import trio

from callboard.actors.books import TURN
from callboard.actors.events import Event
from callboard.actors.fold import Projection
from callboard.actors.messages import SetMode
from callboard.actors.model import Reply
from callboard.actors.plugin import Alarm, Plugin
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.plugins.schedule import SCHEDULE_PLUGIN

from .disks import Disk
from .roughdisk import RoughDisk
from .scheduled import HOUR_S, once, told
from .strict import until
from .walled import Walled


def lab(store=None):
    """A lab with reminders."""
    return open_lab(ScriptedModel(lambda prompt: Reply("ok")), plugins=[SCHEDULE_PLUGIN], store=store)


async def test_order_of_a_drive():
    """All that is on the log is confirmed before the decision; the decision is confirmed before the next one."""
    walled, disk = Walled(), Disk()
    async with lab(disk) as here:
        walled.install(here)
        session = await here.session()
        await session.ask(lambda reply: SetMode(active=True, reply=reply))
        now = walled.now_ms()
        disk.stall()
        session.log.append(once(1, now + 1000, 1), once(2, now + 1000, 1))
        await trio.sleep(10)
        assert [] == told(session)
        waiting, disk._waiting = disk._waiting, []
        for done in waiting:
            done(None)
        await trio.sleep(10)
        assert 1 == len(told(session))
        assert session.log.durable < session.log.seq - 1
        disk.go()
        await trio.sleep(1)
        assert 2 == len(told(session))


async def test_disk_that_refuses_for_an_hour():
    """Preflight or barrier: it is tried again with longer and longer pauses, never in a circle, and fires once."""
    for count in (1, 2):
        walled, disk = Walled(), Disk()
        async with lab(disk) as here:
            walled.install(here)
            session = await here.session()
            await session.ask(lambda reply: SetMode(active=True, reply=reply))
            session.log.append(once(1, walled.now_ms() + 1000, 1))
            if count == 2:  # only what is fired is refused
                await session.log.flush()
                session.log.watch(lambda disk=disk: setattr(disk, "failing", True))
            else:
                disk.failing = True
            before = disk.syncs
            await trio.sleep(HOUR_S)
            assert count - 1 == len(told(session))
            assert 10 < disk.syncs - before < 80
            session.log._watchers = session.log._watchers[:1]
            disk.failing = False
            await trio.sleep(61)
            assert 1 == len(told(session))
            assert session.log.durable == session.log.seq - 1
            syncs = disk.syncs
            await trio.sleep(HOUR_S)
            assert syncs == disk.syncs


async def test_disk_that_is_full():
    """An append that is refused changes nothing, ends nothing, and is tried again."""
    walled, disk = Walled(), RoughDisk(random.Random(1))
    async with lab(disk) as here:
        walled.install(here)
        session = await here.session()
        session.log.append(once(1, walled.now_ms() + 1000, 1))
        await session.log.flush()
        disk._full = 3
        await trio.sleep(1.5)
        assert [] == told(session)
        await until(lambda: session.state(TURN).number == 1)
        await session.wait_idle()
        assert 1 == len(told(session))


async def test_session_stays_in_memory_while_the_disk_refuses():
    """Between two tries nobody may let it go: it would come due for nobody."""
    walled, disk = Walled(), Disk()
    async with lab(disk) as here:
        walled.install(here)
        session = await here.session()
        await session.ask(lambda reply: SetMode(active=True, reply=reply))
        session.log.append(once(1, walled.now_ms() + 1000, 1))
        disk.failing = True
        await trio.sleep(5)
        assert "dues" in session.actor.scene.owned
        disk.failing = False
        await until(lambda: len(told(session)) == 1)
        await trio.sleep(1)
        assert "dues" not in session.actor.scene.owned


class Stepped(Event, frozen=True):
    """A plugin got somewhere, but not on."""


STEPS: Projection[int] = Projection("steps", 0, lambda steps, _: steps + 1, on=(Stepped,))


async def test_plugin_that_never_gets_on_cannot_spin():
    """It changes its state at each firing and stays due: it is stopped after a bound, and the session works."""
    walled = Walled()
    stuck = Plugin(
        "stuck",
        events=(Stepped,),
        projections=(STEPS,),
        alarms=(Alarm(STEPS, lambda steps: 1 if steps else None, lambda view: (Stepped(),)),),
    )
    async with open_lab(ScriptedModel(lambda prompt: Reply("ok")), plugins=[stuck]) as here:
        walled.install(here)
        session = await here.session()
        session.log.append(Stepped())
        await trio.sleep(100)
        assert 256 <= session.state(STEPS) < 300
        assert "ok" == (await session.run("go")).last_message


def _fails(view):
    raise ZeroDivisionError


async def test_plugin_whose_alarm_fails_has_no_say_any_more(caplog):
    """It is told of once; the alarms of others go on, and so does the session."""
    walled = Walled()
    broken = Plugin(
        "broken",
        events=(Stepped,),
        projections=(STEPS,),
        alarms=(Alarm(STEPS, lambda steps: 1 if steps else None, _fails),),
    )
    async with open_lab(ScriptedModel(lambda prompt: Reply("ok")), plugins=[broken, SCHEDULE_PLUGIN]) as here:
        walled.install(here)
        session = await here.session()
        session.log.append(Stepped(), once(1, walled.now_ms() + 10_000, 1))
        await trio.sleep(100)
        assert (1, 1) == (len(told(session)), session.state(TURN).number)
        assert 1 == sum("failed" in one.message for one in caplog.records)

"""A supervisor on virtual time with children that end as they are told, for the tests of supervisors."""

import asyncio
import contextlib
import functools

import trio

from callboard.actors.childspec import ChildSpec
from callboard.actors.notices import ChildRestarted
from callboard.runtime.clock import SimClock
from callboard.runtime.guest import Guest
from callboard.runtime.supervisor import Supervisor

CRASH = KeyError("crash")
ENDS = {"normal": None, "crashed": CRASH, "shutdown": "shutdown", "passivated": "passivated"}


@contextlib.asynccontextmanager
async def entered():
    guest = await Guest.enter(SimClock())
    try:
        yield guest
    finally:
        assert await guest.leave() == ()


class Stage:
    """A supervisor with children that say when they start and end, and end when told how."""

    def __init__(self, guest, **options):
        self.guest, self.orders = guest, {}
        self.told: list[str] = []
        self.notices: list[ChildRestarted] = []
        self.supervisor = Supervisor(
            guest, **{"id": "top", "on_notice": self.notices.append, "jitter": lambda: 1.0, **options}
        )

    def add(self, id, *, clean_s=0.0, **fields):
        self.supervisor.start_child(self.spec(id, clean_s=clean_s, **fields))

    def spec(self, id, *, clean_s=0.0, **fields):
        return ChildSpec(id, functools.partial(self.live, id, clean_s), **fields)

    async def live(self, id, clean_s):
        self.told.append(f"+{id}")
        send, orders = trio.open_memory_channel(1)
        self.orders[id] = send
        try:
            how = await orders.receive()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + clean_s):
                if clean_s:
                    await trio.sleep_forever()
            self.told.append(f"-{id}")
        if isinstance(how, BaseException):
            raise how
        return how

    async def order(self, id, how):
        """Let a child end so, and wait until everything has settled (virtual time may pass)."""
        await quiet(self.guest)
        self.orders[id].send_nowait(how)
        await quiet(self.guest)

    def alive(self):
        return [record.id for record in self.supervisor.children() if record.alive]


async def quiet(guest):
    """Let everything that needs no time happen."""
    for _ in range(5):
        await guest.start(trio.lowlevel.checkpoint)
        for _ in range(5):
            await asyncio.sleep(0)

"""A day of an agent, played in a grove: tools, an interrupt, a subagent, a reminder, a plan that is approved."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from callboard.actors.asked import QUESTIONS
from callboard.actors.books import TURN
from callboard.actors.eventlog import EventLog
from callboard.actors.events import Event
from callboard.actors.memory import MemoryStore
from callboard.actors.messages import SetMode
from callboard.actors.model import Prompt, Reply, User
from callboard.actors.phase import Phase
from callboard.actors.plugin import Call
from callboard.actors.recovery import Recover
from callboard.actors.store import Store
from callboard.actors.testing import LabSession, ScriptedModel
from callboard.actors.tool import tool
from callboard.plugins import DEFAULT
from callboard.plugins.reminders import SCHEDULE
from callboard.runtime.config import RuntimeConfig
from callboard.runtime.settings import Bounds

from .grove import Grove, open_grove
from .planning import PLAN, answer
from .strict import until

DIG_S = 20.0
REMIND_S = 60


@tool(effect="none", mutates=False, parallel=True)
async def look(seconds: float) -> str:
    """Looks for a while."""
    await trio.sleep(seconds)
    return "looked"


@tool(effect="once")
async def send(text: str) -> str:
    """Sends a letter."""
    await trio.sleep(0.01)
    return f"sent {text}"


@tool(effect="idempotent")
async def dig() -> str:
    """Digs for long."""
    await trio.sleep(DIG_S)
    return "dug"


TOOLS = (look, send, dig)
TASKS: dict[str, Sequence[Sequence[Call]]] = {
    "look around": (
        [Call("look", {"seconds": 0.01}), Call("look", {"seconds": 0.02}), Call("send", {"text": "news"})],
    ),
    "dig": ([Call("dig")],),
    "split the work": (
        [Call("spawn_agent", {"task_name": "kid", "message": "half of it"})],
        [Call("wait_agent", {"timeout_ms": 60_000})],
    ),
    "half of it": ([Call("look", {"seconds": 0.5})],),
    "remind me": ([Call("schedule_create", {"prompt": "Feed the cat.", "after_seconds": REMIND_S})],),
    "make a plan": ([Call("exit_plan_mode", {"plan": PLAN})],),
    "[SCHEDULE REMINDER]": (),
    "approved the plan": (),
    "What now?": (),
}


def reply(prompt: Prompt) -> Reply:
    """The calls of the newest task that it knows, step by step."""
    for message in reversed(prompt.messages):
        task = next((one for one in TASKS if isinstance(message, User) and one in message.text), None)
        if task is not None:
            calls = TASKS[task]
            return Reply("now", calls[prompt.step - 1]) if prompt.step <= len(calls) else Reply("done")
    return Reply("done")


class GroveWorld:
    """A grove as `crash_at_each_append` wants it."""

    def __init__(self, grove: Grove) -> None:
        self.grove = grove
        self.accepted: list[tuple[str, int, bytes]] = []

    async def create(self) -> LabSession:
        """The session of the story."""
        await self.grove.create("s")
        return self._held("s")

    def _held(self, id_: str) -> LabSession:
        return LabSession(self.grove.sessions.registry.actor(id_), accepted=self.accepted)

    async def reopen(self) -> list[LabSession]:
        """Open all that is stored, parents first; from here on its user approves whatever is asked."""
        self.grove.stage.nursery.start_soon(self._approve)
        ids = sorted(one.id for one in self.grove.stage.store.headers() if not one.unfinished)
        for id_ in ids:
            await self.grove.sessions.open(id_)
        live = self.grove.sessions.registry.live
        with trio.fail_after(REMIND_S):
            while any(actor.phase is not Phase.IDLE for actor in live.values()):
                await trio.sleep(0.5)
        return [self._held(id_) for id_ in ids]

    async def _approve(self) -> None:
        while True:
            await trio.sleep(1.0)
            for actor in tuple(self.grove.sessions.registry.live.values()):
                if actor.log[QUESTIONS]:
                    await answer(self._held(actor.id), "Approve")

    def records(self, id: str = "s") -> list[Event]:
        """Everything on a session's log."""
        stage = self.grove.stage
        return [stage.codec.decode(one.body) for one in stage.store.read(id, -1, 1_000_000)]

    def check(self) -> None:
        """Every log replays to the state of its session."""
        stage = self.grove.stage
        for id_, actor in self.grove.sessions.registry.live.items():
            again = EventLog(id_, MemoryStore(), stage.codec, stage.folds, lambda: 0, lambda event, session, turn: None)
            for event in self.records(id_):
                again.append(event)
            assert again.states == actor.log.states, f"{id_}: replay gives another state"


@asynccontextmanager
async def opens(store: Store, recover: Recover = "close") -> AsyncIterator[GroveWorld]:
    """A grove with the default plugins, closed as a program does when nothing kills it."""
    model, config = ScriptedModel(reply, delay_s=0.01), RuntimeConfig(runtime=Bounds(recover=recover))
    async with open_grove(model, config=config, snap_bytes=0, store=store, plugins=[*DEFAULT], tools=TOOLS) as grove:
        yield GroveWorld(grove)
        assert await grove.close() == ()


async def day(world: GroveWorld) -> None:
    """Everything that a user sees in a day."""
    session = await world.create()
    await session.run("look around")
    await session.submit("dig")
    await until(lambda: session.state(TURN).tool_calls)
    await session.interrupt()
    await session.run("split the work")
    await session.wait_idle()
    await session.run("remind me")
    await trio.sleep(REMIND_S + 1)
    await session.wait_idle()
    assert not session.state(SCHEDULE).active
    await session.ask(lambda told: SetMode(active=True, reply=told))
    await session.submit("make a plan")
    await answer(session, "Approve")
    await session.wait_idle()
    assert not session.state(QUESTIONS)

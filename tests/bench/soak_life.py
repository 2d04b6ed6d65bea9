"""One session of the soak, from its creation to its end: its seed says what is done to it; then it is checked."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import trio

from callboard.actors import (
    Accepted,
    Call,
    Envelope,
    Lagged,
    MessageQueued,
    MessagesClaimed,
    MessageWithdrawn,
    ModelSaid,
    Partial,
    Refused,
    Reply,
    Resync,
    SessionClosed,
    Steered,
    ToolError,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    View,
    tool,
)
from callboard.actors.model import Prompt, Say

ACTS = {
    "submit": 4,
    "run": 4,
    "steer": 5,
    "submit_or_steer": 3,
    "inject": 1,
    "interrupt": 4,
    "withdraw": 2,
    "resume": 1,
    "read": 3,
}
ACTS_MIN, ACTS_MAX = 10, 60  # a session is replaced after so many, so that no log grows without end
PAUSE_S = 0.25
STEPS_MAX = 4
THINKS_S = 0.05
READS_S = 1.0
DEAF_LONGER = 4  # than what the model asks for: longer than the window
PATIENCE_S = 60.0  # for what has to come


@tool(parallel=True, effect="none")
async def nap(seconds: float) -> str:
    """Sleeps on Trio."""
    await trio.sleep(seconds)
    return "slept"


@tool
async def tidy(seconds: float) -> str:
    """Has an effect, and cleans up for 20 ms."""
    try:
        await trio.sleep(seconds)
    finally:
        with trio.move_on_after(0.02, shield=True):
            await trio.sleep_forever()
    return "tidied"


@tool(graceful=True, parallel=True, effect="none")
async def graceful(seconds: float, view: View) -> Any:
    """Returns what it has."""
    with trio.move_on_after(seconds):
        await view.interrupted.wait()
        return Partial("part")
    return "whole"


@tool(parallel=True, effect="none")
def work(seconds: float) -> str:
    """A thread; an interrupt leaves it behind for a while."""
    time.sleep(seconds)
    return "worked"


@tool(runs_on="asyncio", parallel=True, effect="none")
async def abroad(seconds: float) -> str:
    """A task of asyncio."""
    await asyncio.sleep(seconds)
    return "back"


@tool(effect="idempotent")
async def failing(seconds: float) -> None:
    """Fails after a while."""
    await trio.sleep(seconds / 2)
    raise ToolError("no luck")


@tool(effect="none")
async def deaf(seconds: float) -> str:
    """Lets no cancellation through, and has to be dropped."""
    with trio.move_on_after(seconds * DEAF_LONGER, shield=True):
        await trio.sleep_forever()
    return "heard nothing"


TOOLS = (nap, tidy, graceful, work, abroad, failing, deaf)
CALLED = {"nap": 6, "tidy": 4, "graceful": 4, "work": 4, "abroad": 4, "failing": 2, "deaf": 2, "shell": 1}


class Player:
    """A model that thinks a moment and then does what session, turn and step say; it keeps nothing."""

    provider = "scripted"

    async def reply(self, prompt: Prompt, say: Say) -> Reply:
        """Up to three calls of random tools, or a last word."""
        draw = random.Random(f"{prompt.session}:{prompt.turn}:{prompt.step}")
        say("hm ")
        await trio.sleep(draw.random() * THINKS_S)
        if prompt.step >= STEPS_MAX or draw.random() < 0.4:
            return Reply(f"done {prompt.turn}")
        names = draw.choices(list(CALLED), list(CALLED.values()), k=draw.randint(1, 3))
        return Reply("", [_call(name, draw.random() * 0.15) for name in names])


def _call(name: str, seconds: float) -> Call:
    return Call(name, {"command": "sleep 0.02 & echo here"} if name == "shell" else {"seconds": seconds})


@attrs.define(eq=False)
class Life:
    """One session; `wrong` is told of every broken promise."""

    rt: Any
    seed: str
    wrong: Callable[[str], None]
    acts_max: int = ACTS_MAX
    draw: random.Random = attrs.field(init=False)
    session: Any = attrs.field(init=False, default=None)
    accepted: list[str] = attrs.field(init=False, factory=list)
    sent: int = attrs.field(init=False, default=0)
    beside: set[asyncio.Task[None]] = attrs.field(init=False, factory=set)

    def __attrs_post_init__(self) -> None:
        self.draw = random.Random(self.seed)

    async def live(self) -> None:
        """All of it."""
        session = self.session = await self.rt.create()
        for _ in range(self.draw.randint(ACTS_MIN, self.acts_max)):
            await self._act()
            await asyncio.sleep(self.draw.expovariate(1 / PAUSE_S))
        async with asyncio.timeout(PATIENCE_S):
            await self._rest()
        await self._check()
        await session.stop()

    async def _act(self) -> None:
        name = self.draw.choices(list(ACTS), list(ACTS.values()))[0]
        match name:
            case "run" | "read":
                task = asyncio.ensure_future(self._run() if name == "run" else self._read())
                self.beside.add(task)
                task.add_done_callback(self.beside.discard)
            case "interrupt":
                await self.session.interrupt()
            case "resume":
                await self.session.resume_queue()
            case "withdraw":
                queue = self.session.state()["queue"]
                await self.session.withdraw(self.draw.choice(queue)["id"] if queue else "nothing")
            case _:
                id_ = self._id()
                self._took(id_, await getattr(self.session, name)("say something", id=id_))

    def _id(self) -> str:
        self.sent += 1
        return f"m{self.sent}"

    def _took(self, id_: str, answer: object) -> None:
        if isinstance(answer, Accepted | Steered):
            self.accepted.append(id_)
        elif not isinstance(answer, Refused) or answer.reason != "no_active_turn":
            self.wrong(f"{id_} was answered {answer}")

    async def _run(self) -> None:
        id_ = self._id()
        with contextlib.suppress(SessionClosed):  # withdrawn by another act
            await self.session.run("run", id_)
        self.accepted.append(id_)

    async def _read(self) -> None:
        """A reader that comes, reads for a while from anywhere, and goes: closed, dropped or cancelled."""
        draw, reading = self.draw, None
        last = draw.choice([-1, self.session.state()["seq"] // 2, self.session.state()["seq"]])
        reading = self.session.events(after=last, deltas=draw.random() < 0.5)
        polite, seconds = draw.random() < 0.7, draw.random() * READS_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for item in reading:
                    if isinstance(item, Envelope):
                        if item.seq != last + 1:
                            self.wrong(f"a reader got event {item.seq} after {last}")
                        last = item.seq
                    elif isinstance(item, Lagged | Resync):
                        self.wrong(f"a reader got {item}")
        if polite:
            await reading.aclose()

    async def _rest(self) -> None:
        """Let everything that was accepted have its turn; then the next turn works."""
        session = self.session
        while self.beside or any(message.get("wake", True) for message in session.state()["queue"]):
            await session.resume_queue()
            await session.wait_idle()
            if self.beside:
                await asyncio.wait(self.beside, timeout=0.1)
        ended = await session.run("final", "final")
        self.accepted.append("final")
        if (ended.reason, ended.error) != ("completed", None):
            self.wrong(f"the last turn ended {ended.reason}: {ended.error}")

    async def _check(self) -> None:
        """One fate for each message, one end for each turn, one result for each call: by what a reader sees."""
        last, events = self.session.state()["seq"], list[Any]()
        async with self.session.events() as reading:
            async for item in reading:
                if isinstance(item, Envelope):
                    events.append(item.event)
                    if item.seq == last:
                        break
        fates = Counter(id_ for one in _of(events, MessagesClaimed) for id_ in one.ids)
        fates.update(one.id for one in _of(events, MessageWithdrawn))
        fates.update(message["id"] for message in self.session.state()["queue"])
        queued = Counter(one.id for one in _of(events, MessageQueued))
        ends = _of(events, TurnEnded)
        asked = sum(len(one.calls) for one in _of(events, ModelSaid))
        for promise, kept in {
            "each message has one fate": fates == queued and set(queued.values()) <= {1},
            "all that was accepted is on the log": set(self.accepted) <= set(queued),
            "each turn ends once": [one.turn for one in ends] == [one.turn for one in _of(events, TurnStarted)],
            "each call has one result": asked == len(_of(events, ToolReturned)) == sum(len(e.receipts) for e in ends),
        }.items():
            if not kept:
                self.wrong(f"not true: {promise}")


def _of(events: list[Any], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]

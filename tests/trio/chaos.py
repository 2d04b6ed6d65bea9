"""Sessions driven in random order, with tools of every kind, crashes and a moody disk; all of it chosen by the seed."""

import random
from typing import Any

import attrs
import trio

from callboard.actors.books import HISTORY, QUEUE, TURN
from callboard.actors.errors import LogError, MailboxFull, SessionClosed, ToolError
from callboard.actors.events import (
    Call,
    Event,
    MessageQueued,
    MessagesClaimed,
    MessageWithdrawn,
    ModelSaid,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from callboard.actors.facts import ChildSpawned
from callboard.actors.fold import Projection
from callboard.actors.messages import Accepted, ChildDone, Interrupt, SetMode, Steered, Wake
from callboard.actors.model import Prompt, Reply
from callboard.actors.phase import Phase
from callboard.actors.plugin import Enter, Message, Partial, Plugin, View
from callboard.actors.stage import Limits
from callboard.actors.testing import Lab, LabSession, ScriptedModel, open_lab
from callboard.actors.tool import tool

from .disks import Disk
from .strict import check_history, check_log, of_kind

ACTIONS_MAX = 40


class Marked(Event, frozen=True):
    """What the tools of this file write."""

    mark: str


MARKS: Projection[tuple[str, ...]] = Projection(
    "marks", (), lambda marks, e: (*marks, e.mark), on=(Marked,), state=tuple[str, ...]
)


@tool(parallel=True)
async def willing(seconds: float) -> str:
    """Sleeps and lets itself be cancelled."""
    await trio.sleep(seconds)
    return "slept"


@tool
async def tidy(seconds: float, view: View) -> str:
    """Cleans up for 20 ms."""
    try:
        await trio.sleep(seconds)
    finally:
        with trio.move_on_after(0.02, shield=True):
            await trio.sleep_forever()
    view.append(Marked(view.key))
    return "tidied"


@tool(graceful=True, parallel=True)
async def graceful(seconds: float, view: View) -> Any:
    """Returns what it has."""
    with trio.move_on_after(seconds):
        await view.interrupted.wait()
        await trio.sleep(0.03)
        return Partial("part")
    return "whole"


@tool(parallel=True, effect="idempotent")
async def failing(seconds: float) -> None:
    """Fails after a while."""
    await trio.sleep(seconds / 2)
    raise ToolError("no luck")


@tool(parallel=True)
async def overlong(seconds: float) -> None:
    """Cleans up for longer than the window; ends by itself."""
    try:
        await trio.sleep(seconds)
    finally:
        with trio.move_on_after(0.3, shield=True):
            await trio.sleep_forever()


@tool(control=True, effect="none")
async def mark(seconds: float, view: View) -> str:
    """A control tool."""
    view.append(Marked(view.call))
    await trio.sleep(seconds / 3)
    return "marked"


@tool(runs_on="trio", effect="none", parallel=True)
def at_once(seconds: float) -> float:
    """In one piece on the loop."""
    return seconds


@tool(timeout_s=0.5)
async def limited(seconds: float) -> str:
    """Has half a second."""
    await trio.sleep(seconds)
    return "in time"


TOOLS = (willing, tidy, graceful, failing, overlong, mark, at_once, limited)


@attrs.define
class Chaos:
    """One story: what the random choices are drawn from, and what was promised on the way."""

    crashes: bool = False
    stalls: bool = False
    draw: random.Random = attrs.field(factory=lambda: random.Random(random.random()))  # seeded by `seeded_run`
    accepted: list[str] = attrs.field(factory=list)
    disk: Disk = attrs.field(factory=Disk)
    waited: list[Any] = attrs.field(factory=list)

    def reply(self, prompt: Prompt) -> Reply:
        """Up to four calls of random tools, at most three steps."""
        if prompt.step > 3 or self.draw.random() < 0.3:
            return Reply(f"done {prompt.turn}")
        names = [one.name for one in TOOLS] + ["nowhere"]
        count = self.draw.randint(1, 4)
        return Reply("", [Call(self.draw.choice(names), {"seconds": self.draw.random()}) for _ in range(count)])

    async def before_step(self, view: View, messages: tuple[Message, ...]) -> Enter:
        """Now and then a wait, or a bug."""
        if self.draw.random() < 0.2:
            await trio.sleep(self.draw.random())
        if self.crashes and self.draw.random() < 0.15:
            raise LookupError("a bug in a plugin")
        return Enter(messages)

    def on_idle(self, view: View) -> Message | None:
        """Seldom a round."""
        if view.turn and self.draw.random() < 0.1:
            return Message(f"goal:{view.turn}", "round", "goal")
        return None

    async def act(self, lab: Lab, session: LabSession) -> None:
        """One random thing."""
        draw = self.draw
        actor, nursery = session.actor, lab.stage.nursery
        match draw.randrange(20):
            case 0 | 1 | 2:
                nursery.start_soon(self.say, "submit", session)
            case 18:
                nursery.start_soon(self.say, draw.choice(["steer", "submit_or_steer"]), session)
            case 19:
                nursery.start_soon(self.say, draw.choice(["steer", "inject"]), session)
            case 3:
                nursery.start_soon(self.run, session)
            case 4 | 5:
                actor.tell(Interrupt(draw.choice([None, None, session.state(TURN).number])))
            case 6:
                actor.tell(ChildDone("kid", "/root/kid", "completed", "news", draw.randint(1, 3)))
            case 7:
                actor.tell(SetMode(active=draw.random() < 0.3))
            case 8:
                queue = session.state(QUEUE)
                nursery.start_soon(session.withdraw, draw.choice(queue).id if queue else "nothing")
            case 9:
                actor.tell(Wake())
            case 10 if self.stalls:
                self.disk.stalled = draw.random() < 0.5
                if not self.disk.stalled:
                    self.disk.go()
            case _:
                await trio.sleep(draw.choice([0.001, 0.01, 0.1, 0.1, 0.3, 0.3, 0.7, 2.0]))

    async def say(self, verb: str, session: LabSession) -> None:
        """Send something, sometimes under an id that was used before."""
        id_ = self.draw.choice([None, None, *(f"id{n}" for n in range(6))])
        try:
            answer = await getattr(session, verb)("say", id=id_)
        except (LogError, MailboxFull, SessionClosed):
            return
        if isinstance(answer, Accepted | Steered) and id_ is not None:
            self.accepted.append(id_)

    async def run(self, session: LabSession) -> None:
        """Send something and wait for its end."""
        self.waited.append(None)
        at = len(self.waited) - 1
        try:
            self.waited[at] = await session.run("run")
        except (LogError, MailboxFull, SessionClosed) as error:
            self.waited[at] = error

    async def story(self) -> None:
        """Random actions, then rest; then everything that was promised must be true."""
        plugin = Plugin(
            "chaos", events=(Marked,), projections=(MARKS,), before_step=self.before_step, on_idle=self.on_idle
        )
        model = ScriptedModel(self.reply, delay_s=self.draw.choice([0.0, 0.2]))
        limits = Limits(flush_stall_s=1.0)
        async with open_lab(model, tools=TOOLS, plugins=[plugin], limits=limits, store=self.disk) as lab:
            session = await lab.session(restarts_max=1000)
            session.log.append(ChildSpawned("kid", "/root/kid", "task"))
            for _ in range(self.draw.randint(1, ACTIONS_MAX)):
                await self.act(lab, session)
            self.crashes = self.stalls = False
            self.disk.go()
            await self.rest(session)
            self.check(lab, session)

    async def rest(self, session: LabSession) -> None:
        """Let everything that was accepted have its turn."""
        session.actor.tell(SetMode(active=False))
        with trio.fail_after(3600):
            await session.wait_idle()
            await session.resume_queue()
            await session.wait_idle()
            final = await session.run("final")
        assert final.reason == "completed"
        with trio.fail_after(3600):
            while None in self.waited or session.actor.phase is not Phase.IDLE:
                await trio.sleep(0.1)

    def check(self, lab: Lab, session: LabSession) -> None:
        """Every promise, once more."""
        records = lab.records()
        check_log(records)
        check_history(session.state(HISTORY).messages)
        fates = [id_ for e in records if isinstance(e, MessagesClaimed) for id_ in e.ids]
        fates += [e.id for e in records if isinstance(e, MessageWithdrawn)]
        fates += [m.id for m in session.state(QUEUE)]
        queued = [e.id for e in records if isinstance(e, MessageQueued)]
        assert sorted(fates) == sorted(queued)
        assert set(self.accepted) <= set(queued)
        assert len(queued) == len(set(queued))
        assert len(of_kind(records, TurnStarted)) == len(of_kind(records, TurnEnded)) == session.state(TURN).number
        calls = sum(len(e.calls) for e in records if isinstance(e, ModelSaid))
        ends = [e for e in records if isinstance(e, TurnEnded)]
        assert sum(len(e.receipts) for e in ends) == calls == len(of_kind(records, ToolReturned))
        assert all(e.abort_s is None or e.abort_s <= 0.1 + 1e-6 for e in ends)
        assert lab.stage.abandoned.count() == 0 or any(r.receipt == "abandoned" for e in ends for r in e.receipts)


async def calm() -> None:
    """A story without crashes, on a willing disk."""
    await Chaos().story()


async def moody() -> None:
    """A story whose disk stalls."""
    await Chaos(stalls=True).story()


async def crashing() -> None:
    """A story whose plugin has bugs."""
    await Chaos(crashes=True).story()


async def everything() -> None:
    """All of it."""
    await Chaos(crashes=True, stalls=True).story()

"""The whole machine under a seed: agents, clients with every verb, tools and models of all kinds, a bad disk, crashes.

`python -m tests.trio.machine --runs 10000 --first 0` runs it for long; a seed that fails gets a test of its own.
"""

import argparse
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import attrs
import trio

from callboard.actors.books import QUEUE, TURN
from callboard.actors.errors import LogError, MailboxFull, ModelError, SessionClosed, ToolError
from callboard.actors.events import MessageQueued
from callboard.actors.messages import Accepted, Await, Edit, Refused, Replace, Review, SetMode
from callboard.actors.model import Prompt, Reply, Say
from callboard.actors.phase import Phase
from callboard.actors.plugin import Call, Enter, Message, Plugin, View
from callboard.actors.snapping import SNAP_BYTES
from callboard.actors.stage import Limits
from callboard.actors.testing import Lab, LabSession, open_lab, seeded_run
from callboard.actors.tool import tool

from .chaos import MARKS, TOOLS, Marked
from .checks import check_counts, check_promises
from .roughdisk import RoughDisk

AGENTS = {"a": "/root", "a.b": "/root/b"}
CLIENTS_MAX = 3
ACTIONS_MAX = 14
LIVES_MAX = 3
BOUND_S = 3600.0  # of virtual time: whatever waits longer waits for ever


class Killed(Exception):
    """The program ended without a word."""


@tool
async def stubborn(seconds: float) -> None:
    """Does not let itself be cancelled for five seconds."""
    with trio.move_on_after(5 + seconds, shield=True):
        await trio.sleep_forever()


@tool(parallel=True, effect="idempotent")
async def write(seconds: float, view: View) -> str:
    """Sends mail to another agent, or to its own."""
    to = "/root/b" if seconds < 0.6 else "/root"
    try:
        await view.mail(to, "from a tool", trigger=seconds < 0.3, id=view.key)
    except (MailboxFull, SessionClosed, LogError) as error:
        raise ToolError("no mail today") from error
    return "sent"


KIT = (*TOOLS, stubborn, write)

Verb: TypeAlias = Callable[["Machine", LabSession], Awaitable[Any]]

# A verb of a session is one line here.
VERBS: Mapping[str, Verb] = {
    "submit": lambda m, s: s.submit("a task", m.id()),
    "submit again": lambda m, s: s.submit("a task", m.id()),
    "run": lambda m, s: s.run("a task"),
    "steer": lambda m, s: s.steer("left", m.turn(s), m.id()),
    "submit_or_steer": lambda m, s: s.submit_or_steer("right", m.id()),
    "inject": lambda m, s: s.inject("by the way", m.id()),
    "replace": lambda m, s: s.ask(lambda reply: Replace("instead", m.id(), reply=reply)),
    "review": lambda m, s: s.ask(lambda reply: Review("all of it", m.id(), reply=reply)),
    "edit": lambda m, s: s.ask(
        lambda reply: Edit(m.choose(*(one.id for one in s.state(QUEUE)), "nothing"), "better", m.id(), reply=reply)
    ),
    "mail": lambda m, s: s.mail("news", author=m.choose("/root", "/root/b"), trigger=m.chance(0.5), id=m.id()),
    "interrupt": lambda m, s: s.interrupt(m.turn(s), m.id()),
    "interrupt the running turn": lambda m, s: s.interrupt(),
    "withdraw": lambda m, s: s.withdraw(m.choose(*(one.id for one in s.state(QUEUE)), "nothing")),
    "resume_queue": lambda m, s: s.resume_queue(),
    "plan": lambda m, s: s.ask(lambda reply: SetMode(active=True, reply=reply)),
    "default": lambda m, s: s.ask(lambda reply: SetMode(active=False, reply=reply)),
    "wait": lambda m, s: s.ask(lambda reply: Await(m.turn(s), reply=reply)),
    "stop": lambda m, s: m.stop(s),
}


@attrs.define(eq=False)
class Machine:
    """One run: what its choices are drawn from, its disk, and what the clients were told."""

    seed: int = attrs.field(factory=lambda: random.getrandbits(32))  # seeded by `seeded_run`
    draw: random.Random = attrs.field(init=False)
    disk: RoughDisk = attrs.field(init=False)
    lab: Lab = attrs.field(init=False)
    open: dict[int, str] = attrs.field(factory=dict)  # verbs that wait for their answer
    asked: int = 0
    accepted: set[tuple[str, str]] = attrs.field(factory=set)  # the ids of what was said to be on the disk
    rough: bool = False  # whether plugins have bugs and models fail
    resting: bool = False  # whether models have nothing more to do
    mailbox_max: int = 1024
    _reopening: set[str] = attrs.field(factory=set)

    def __attrs_post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.disk = RoughDisk(self.draw)
        self.mailbox_max = self.choose(3, 1024)

    # -- choices -------------------------------------------------------------------------------------------------------

    def chance(self, of: float) -> bool:
        """Yes or no."""
        return self.draw.random() < of

    def choose(self, *from_: Any) -> Any:
        """One of these."""
        return self.draw.choice(from_)

    def id(self) -> str | None:
        """None, a new id, or one that may have been used."""
        found: str | None = self.choose(None, f"new{self.draw.getrandbits(40)}", *(f"id{n}" for n in range(4)))
        return found

    def turn(self, session: LabSession) -> int | None:
        """None, the running turn, or another one."""
        number = session.state(TURN).number
        found: int | None = self.choose(None, number or 1, max(1, number - 1))
        return found

    # -- foreign code --------------------------------------------------------------------------------------------------

    provider = "scripted"

    async def reply(self, prompt: Prompt, say: Say) -> Reply:
        """A model in every mood: quick, slow, cut in the middle, failing for good or for now."""
        await trio.sleep(self.choose(0.0, 0.001, 0.05, 0.3, 2.0 if self.chance(0.1) else 0.0))
        if self.rough and self.chance(0.15):
            if self.chance(0.5):
                say("half a sen")
            raise ModelError("cut", retryable=self.chance(0.7), retry_after_s=self.choose(None, 0.2))
        say("well ")
        if self.resting or prompt.step > 3 or self.chance(0.4):
            return Reply("well done", more=prompt.step < 3 and not self.resting and self.chance(0.1))
        names = [one.name for one in KIT] + ["nowhere"]
        calls = [Call(self.choose(*names), {"seconds": self.draw.random()}) for _ in range(self.draw.randint(1, 4))]
        return Reply("well ", calls)

    async def before_step(self, view: View, messages: tuple[Message, ...]) -> Enter:
        """Now and then a wait, or a bug that brings the actor down."""
        if self.chance(0.2):
            await trio.sleep(self.draw.random() / 5)
        if self.rough and self.chance(0.07):
            raise LookupError("a bug in a plugin")
        return Enter(messages)

    def on_idle(self, view: View) -> Message | None:
        """Seldom a round."""
        if view.turn and self.chance(0.05):
            return Message(f"goal:{view.session}:{view.turn}", "round", "goal")
        return None

    # -- clients -------------------------------------------------------------------------------------------------------

    async def client(self, actions: int) -> None:
        """Says this and that to this one and that one."""
        for _ in range(actions):
            await trio.sleep(self.choose(0.0, 0.0, 0.001, 0.01, 0.05, 0.1, 0.1, 0.3, 1.0))
            if self.chance(0.15):
                self.disk.change_mood()
            name, id_ = self.choose(*VERBS), self.choose(*AGENTS)
            if name == "stop" and self.chance(0.7):
                continue
            self.start(name, id_)

    def start(self, name: str, id_: str) -> None:
        """Send a verb, and do not wait for its answer."""
        self.asked += 1
        self.open[self.asked] = f"{name} to {id_}"
        self.lab.stage.nursery.start_soon(self.ask, self.asked, name, id_)

    async def ask(self, number: int, name: str, id_: str) -> None:
        """One verb; it must be answered, and what it was answered is remembered."""
        session = self.lab.sessions[id_]
        answer: Any = None
        with suppress(LogError, MailboxFull, SessionClosed):
            answer = await VERBS[name](self, session)
        self.open.pop(number)
        if isinstance(answer, Accepted) and name != "resume_queue":
            event = self.lab.stage.codec.decode(self.disk.of(id_)[answer.seq].body)
            assert isinstance(event, MessageQueued), f"{name} was answered with the number of {event}"
            self.accepted.add((id_, event.id))
        assert answer is None or not isinstance(answer, Refused) or answer.detail, "a refusal without a word to people"

    async def stop(self, session: LabSession) -> Any:
        """End a session, and open it again from the store."""
        id_ = session.actor.id
        if id_ in self._reopening:
            return None
        self._reopening.add(id_)
        try:
            answer = await session.stop()
            await self.reopen(id_)
        finally:
            self._reopening.discard(id_)
        return answer

    async def reopen(self, id_: str) -> None:
        """Open a session from the store, also while the disk is full."""
        with trio.fail_after(BOUND_S):
            await self.lab.session(id_, fresh=False, restarts_max=1000)

    # -- a run ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Some lives on one disk; each ends with a kill, or in peace and then all promises are checked."""
        lives = self.draw.randint(1, LIVES_MAX)
        for life in range(lives):
            killed = life < lives - 1 and self.chance(0.6)
            try:
                await self.live(killed=killed, first=life == 0)
            except* Killed:
                self.disk = self.disk.after_crash()
                self.open.clear()

    async def live(self, *, killed: bool, first: bool) -> None:
        """From opening to the end."""
        plugin = Plugin(
            "machine", events=(Marked,), projections=(MARKS,), before_step=self.before_step, on_idle=self.on_idle
        )
        seconds_max = self.choose(None, None, 3.0)
        limits = Limits(
            flush_stall_s=1.0,
            mailbox_max=self.mailbox_max,
            turn_seconds_max=seconds_max,
            snap_bytes=0 if self.seed % 2 else SNAP_BYTES,
            recover="continue" if self.seed // 2 % 2 else "close",
        )
        self.rough, self.resting = self.chance(0.5), False
        self.disk.calm()
        async with open_lab(self, tools=KIT, plugins=[plugin], limits=limits, store=self.disk) as lab:
            self.lab = lab
            before = {id_: len(self.disk.of(id_)) for id_ in AGENTS}
            for id_, path in AGENTS.items():
                new = first or not self.disk.of(id_)
                await lab.session(id_, fresh=new, restarts_max=1000, **({"path": path} if new else {}))
            async with trio.open_nursery() as clients:
                for _ in range(self.draw.randint(1, CLIENTS_MAX)):
                    clients.start_soon(self.client, self.draw.randint(1, ACTIONS_MAX))
            if killed:
                raise Killed
            await self.rest()
            for id_ in AGENTS:
                check_promises(lab.records(id_), lab.sessions[id_], {m for s, m in self.accepted if s == id_})
            grown = [event for id_ in AGENTS for event in lab.records(id_)[before[id_] :]]
            check_counts(lab.events, grown, [one.name for one in KIT])

    async def insist(self, verb: Callable[[], Awaitable[Any]]) -> Any:
        """Ask until there is room for it."""
        while True:
            with suppress(MailboxFull):
                return await verb()
            await trio.sleep(0.1)

    async def rest(self) -> None:
        """All is well again: everything accepted gets its turn, every verb its answer, and the next turn works."""
        self.rough, self.resting = False, True
        self.disk.calm()
        with trio.fail_after(BOUND_S):
            while any(verb.startswith("stop") for verb in self.open.values()):
                await trio.sleep(0.1)
        for id_ in AGENTS:
            session = self.lab.sessions[id_]
            with trio.fail_after(BOUND_S):
                for verb in ("default", "resume_queue", "default"):
                    await self.insist(partial(VERBS[verb], self, session))
                    await self.insist(session.wait_idle)
        for session in self.lab.sessions.values():
            with trio.fail_after(BOUND_S):
                ended = await self.insist(partial(session.run, "the last task"))
                await self.insist(session.wait_idle)
            assert (ended.reason, ended.error) == ("completed", None)
        with trio.move_on_after(BOUND_S):
            while self.open or any(one.actor.phase is not Phase.IDLE for one in self.lab.sessions.values()):
                await trio.sleep(0.1)
        assert not self.open, f"never answered: {sorted(self.open.values())}"


async def machine() -> None:
    """One run."""
    await Machine().run()


def main(scenario: Callable[[], Awaitable[None]], about: str | None) -> None:
    """Many runs, one after the other, from the command line."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    failed = 0
    for seed in range(asked.first, asked.first + asked.runs):
        try:
            seeded_run(scenario, [seed])
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            failed += 1
            print(f"seed {seed}: {_words(error)}", flush=True)
            if asked.runs == 1:
                raise
    print(f"{asked.runs} runs, {failed} failed")


def _words(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:300]


if __name__ == "__main__":
    main(machine, __doc__)

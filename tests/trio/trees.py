"""Whole trees of agents under a seed: clients, parents, children, a supervisor, a bad disk, kills at any append.

`python -m tests.trio.trees --runs 5000 --first 0` runs it for long; a seed that fails gets a test of its own.
"""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import attrs
import trio

from callboard.actors.asked import APPROVALS, QUESTIONS
from callboard.actors.books import QUEUE
from callboard.actors.envelope import Envelope
from callboard.actors.errors import (
    LogError,
    MailboxFull,
    ModelError,
    SessionClosed,
    SessionNotFound,
    ToolError,
    UsageError,
)
from callboard.actors.messages import Accepted
from callboard.actors.model import Prompt, Reply, Say
from callboard.actors.phase import Phase
from callboard.actors.plugin import Call, Enter, Message, Plugin, View
from callboard.actors.session import Session
from callboard.actors.snapping import SNAP_BYTES
from callboard.plugins import DEFAULT
from callboard.runtime.config import RuntimeConfig
from callboard.runtime.handle import SessionHandle
from callboard.runtime.post import address
from callboard.runtime.settings import (
    Agents,
    AskConfig,
    Bounds,
    GoalConfig,
    PlanModeConfig,
    Plugins,
    ScheduleConfig,
    Supervision,
)

from .chaos import MARKS, Marked
from .grove import Grove, open_grove
from .machine import main
from .treechecks import check_grove, orphans, untold
from .treedisk import TreeDisk
from .treeverbs import ARGUMENTS, KIT, OFTEN, SELDOM, UNQUEUED, VERBS

ROOTS = ("a", "b")
YES_OR_NO = (True, False)
CLIENTS_MAX = 3
ACTIONS_MAX = 16
LIVES_MAX = 4
APPENDS_MAX = 400  # after so many at most a kill comes
BOUND_S = 7200.0  # of virtual time: whatever waits longer waits for ever
QUIET_LOOKS = 4
LOOK_S, LOOKS_MAX = 3.0, 4  # orphans that are seen so often, so far apart, are orphans
REFUSALS = (LogError, MailboxFull, SessionClosed, SessionNotFound, ToolError, UsageError)


class Killed(Exception):
    """The program ended without a word."""


@attrs.define(eq=False)
class Trees:
    """One run: what its choices are drawn from, its disk, and what the clients were told."""

    seed: int = attrs.field(factory=lambda: random.getrandbits(32))  # seeded by `seeded_run`
    draw: random.Random = attrs.field(init=False)
    disk: TreeDisk = attrs.field(init=False)
    grove: Grove = attrs.field(init=False)
    open: dict[int, str] = attrs.field(factory=dict)  # verbs that wait for their answer
    asked: int = 0
    accepted: set[tuple[str, int]] = attrs.field(factory=set)  # sessions and numbers of what was said to be durable
    seen: dict[str, list[Any]] = attrs.field(factory=dict)  # what readers were told, by session
    rough: bool = False  # whether plugins have bugs and models fail
    resting: bool = False  # whether models have nothing more to do
    rested: bool = False  # whether all of it was checked at the end
    jumped_ms: int = 0
    _watched: set[str] = attrs.field(factory=set)

    def __attrs_post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.disk = TreeDisk(self.draw)

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

    def queued(self, session: SessionHandle) -> str:
        """The id of something in the queue, or of nothing."""
        log, _ = self.grove.sessions.registry.log(session.id)
        found: str = self.choose("nothing", *(message.id for message in log[QUEUE]))
        return found

    def ids(self) -> list[str]:
        """All sessions that the disk has."""
        return [one.id for one in self.disk.headers() if not one.unfinished]

    # -- foreign code --------------------------------------------------------------------------------------------------

    provider = "scripted"

    async def reply(self, prompt: Prompt, say: Say) -> Reply:
        """A model in every mood: quick, slow, cut in the middle, failing for good or for now."""
        await trio.sleep(self.choose(0.0, 0.0, 0.001, 0.05, 0.3, 2.0 if self.chance(0.1) else 0.0))
        if self.rough and self.chance(0.1):
            say("half a sen")
            raise ModelError("cut", retryable=self.chance(0.7), retry_after_s=self.choose(None, 0.2))
        if self.resting or prompt.step > 3 or self.chance(0.3):
            plan = "<proposed_plan>\n# Win\n</proposed_plan>" if self.chance(0.3) else ""
            return Reply(f"well done {plan}")
        offered = [one.name for one in prompt.tools]
        names = [name for name in (*offered, *OFTEN) if name in offered] + ["nowhere"]
        return Reply("well ", [self.call(self.choose(*names)) for _ in range(self.draw.randint(1, 3))])

    def call(self, name: str) -> Call:
        """A call with arguments that mostly fit."""
        arguments = ARGUMENTS.get(name, lambda t: {"seconds": t.draw.random()})
        return Call(name, arguments(self))

    async def before_step(self, view: View, messages: tuple[Message, ...]) -> Enter:
        """Now and then a wait, or a bug that brings the actor down."""
        if self.chance(0.2):
            await trio.sleep(self.draw.random() / 5)
        if self.rough and self.chance(0.04):
            raise LookupError("a bug in a plugin")
        return Enter(messages)

    # -- clients -------------------------------------------------------------------------------------------------------

    async def client(self, actions: int) -> None:
        """Says this and that to this one and that one."""
        for _ in range(actions):
            await trio.sleep(self.choose(0.0, 0.0, 0.001, 0.01, 0.05, 0.1, 0.1, 0.3, 1.0, 3.0))
            if self.chance(0.1):
                self.disk.change_mood()
            if self.chance(0.03):
                self.jumped_ms += self.choose(-2_000, 5_000, 400_000)
            name, id_ = self.choose(*VERBS), self.choose(*ROOTS, *ROOTS, *self.ids())
            if name not in SELDOM or self.chance(0.3):
                self.start(name, id_)

    def start(self, name: str, id_: str) -> None:
        """Send a verb, and do not wait for its answer."""
        self.asked += 1
        self.open[self.asked] = f"{name} to {id_}"
        self.grove.stage.nursery.start_soon(self.ask, self.asked, name, id_, self.disk)

    async def ask(self, number: int, name: str, id_: str, disk: TreeDisk) -> None:
        """One verb; it must be answered, and what it was answered is remembered."""
        answer: Any = None
        with suppress(*REFUSALS):
            answer = await VERBS[name](self, await self.session(id_))
        self.open.pop(number, None)
        if isinstance(answer, Accepted) and name not in UNQUEUED and not disk.is_dead():
            self.accepted.add((id_, answer.seq))

    async def mail(self, sender: SessionHandle) -> None:
        """Mail to somebody of its tree, whose log has it once it is accepted."""
        to, disk = self.choose("/root", "/root/x", "/root/y/z"), self.disk
        answer = await sender.mail(to, "news", trigger=self.chance(0.5), id=self.id())
        if isinstance(answer, Accepted) and not disk.is_dead():
            self.accepted.add((address(sender.id.partition(".")[0], to), answer.seq))

    async def session(self, id_: str) -> SessionHandle:
        """The session, opened or made; watched from then on."""
        sessions = self.grove.sessions
        if id_ in ROOTS and not await sessions.exists(id_):
            with suppress(UsageError):  # another client was quicker
                await self.grove.create(id_)
        handle = await sessions.open(id_) if id_ not in sessions.registry else self.handle(id_)
        if id_ not in self._watched and (id_ in ROOTS or self.chance(0.3)):
            self._watched.add(id_)
            self.grove.stage.nursery.start_soon(self.watch, id_, self.disk)
        return handle

    def handle(self, id_: str) -> SessionHandle:
        """The handle of a session that is open."""
        return next(one for one in self.grove.sessions.handles() if one.id == id_)

    async def watch(self, id_: str, disk: TreeDisk) -> None:
        """Read a session for as long as the program lives, and answer what it asks, late."""
        seen = self.seen.setdefault(id_, [])
        while not disk.is_dead():
            with suppress(LogError):
                async with self.grove.sessions.registry.read(id_, len(seen) - 1, deltas=False, queue_max=64) as reading:
                    async for item in reading:
                        if disk.is_dead():
                            return
                        if isinstance(item, Envelope):
                            assert item.seq == len(seen), f"{id_}: event {item.seq} was read behind {len(seen) - 1}"
                            seen.append(item.event)
                        if self.chance(0.2) or self.resting:
                            self.grove.stage.nursery.start_soon(self.answer, id_)
            await trio.sleep(0.5)

    async def answer(self, id_: str) -> None:
        """Settle a question or an approval that is open, if any is."""
        await trio.sleep(self.choose(0.0, 0.1, 1.0, 5.0))
        actor = self.grove.sessions.registry.get(id_)
        if actor is None or not is_asked(actor):
            return
        with suppress(*REFUSALS):
            handle = self.handle(id_)
            for one in actor.log[QUESTIONS]:
                choices = (self.choose(*one.options).label,) if one.options and self.chance(0.7) else ()
                await handle.answer(one.id, choices, self.choose(None, "both"))
            for asked in actor.log[APPROVALS]:
                await handle.approve(asked.id, self.choose("allow_once", "allow_session", "deny"))

    # -- a run ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Some lives on one disk; each ends with a kill, a close, a supervisor that gives up, or in peace."""
        lives = self.draw.randint(1, LIVES_MAX)
        for life in range(lives):
            end = self.choose("kill", "kill", "close", "rest") if life < lives - 1 else "rest"
            try:
                await self.live(end)
            except* Killed:
                assert self.disk.found is not None
                self.disk = self.disk.found
            self.open.clear()
            self._watched.clear()
        while not self.rested:  # its supervisors gave up
            await self.live("rest")
            self._watched.clear()

    async def live(self, end: str) -> None:
        """From opening to the end."""
        plugin = Plugin("trees", events=(Marked,), projections=(MARKS,), before_step=self.before_step)
        self.rough, self.resting = self.chance(0.5), False
        self.disk.calm()
        async with open_grove(
            self,
            config=self.config(),
            store=self.disk,
            plugins=(*DEFAULT, plugin),
            tools=KIT,
            jumped_ms=lambda: self.jumped_ms,
            snap_bytes=0 if self.seed % 2 else SNAP_BYTES,
        ) as self.grove:
            self.disk.kill_in(self.draw.randint(1, APPENDS_MAX) if end == "kill" else 0)
            with trio.CancelScope() as scope:
                self.disk.on_kill = scope.cancel
                self.grove.stage.nursery.start_soon(self._doom, scope)
                self.grove.stage.nursery.start_soon(self._look)
                async with trio.open_nursery() as clients:
                    for _ in range(self.draw.randint(1, CLIENTS_MAX)):
                        clients.start_soon(self.client, self.draw.randint(1, ACTIONS_MAX))
            if end == "kill":
                self.disk.kill()
                raise Killed
            if end == "rest" and not self.grove.gave_up.is_set():
                await self.rest()
            await self.close()

    def config(self) -> RuntimeConfig:
        """The settings of one life."""
        choose = self.choose
        seconds = choose(None, None, 3.0)
        evict_s = choose(2.0, 10.0, 300.0)
        return RuntimeConfig(
            runtime=Bounds(
                mailbox_max=choose(3, 1024),
                flush_stall_s=1.0,
                idle_evict_s=evict_s,
                turn_seconds_max=seconds,
                recover="continue" if self.seed // 2 % 2 else "close",
            ),
            plugins=Plugins(
                plan_mode=PlanModeConfig(gate=choose("soft", "hard"), execution=choose("keep", "compact", "clear")),
                ask=AskConfig(default_mode=choose(*YES_OR_NO), policy=choose("off", "off", "ask", "never")),
                goal=GoalConfig(rounds_max=4),
                schedule=ScheduleConfig(children=choose(*YES_OR_NO)),
            ),
            agents=Agents(
                cascade=choose(*YES_OR_NO),
                notify=choose("wake", "queue"),
                running_max=choose(2, 8),
                breadth_max=choose(2, 16),
            ),
            supervisor=Supervision(restarts_max=choose(3, 1000)),
        )

    async def _doom(self, scope: trio.CancelScope) -> None:
        """End the clients once the supervisors gave up."""
        await self.grove.gave_up.wait()
        scope.cancel()

    async def _look(self) -> None:
        """Nobody lives on for long below a parent that is closed."""
        before = [set[str]()] * LOOKS_MAX
        while not self.grove.host.ending:
            await trio.sleep(LOOK_S)
            before = [*before[1:], orphans(self.grove)]
            lasting = set.intersection(*before)
            assert not lasting, f"{lasting} live, and their parents are stopped"

    async def close(self) -> None:
        """End the runtime as a program does."""
        self.disk.calm()
        with trio.fail_after(BOUND_S):
            assert await self.grove.close() == ()
            while self.open:
                await trio.sleep(0.1)
        self.disk.close()

    async def rest(self) -> None:
        """All is well again: everything accepted gets its turn, every verb its answer, and the next turn works."""
        self.rough, self.resting = False, True
        self.disk.calm()
        await self.quiet()
        if self.grove.gave_up.is_set():
            return
        assert not orphans(self.grove), f"{orphans(self.grove)} live, and their parents are stopped"
        assert not untold(self.grove, self.disk), f"not told: {untold(self.grove, self.disk)}"
        with trio.fail_after(BOUND_S):
            for id_ in sorted(self.ids(), key=lambda one: one.count(".")):
                await self.release(id_)
        await self.quiet()
        for id_ in sorted(self.ids(), key=lambda one: one.count(".")):
            with trio.fail_after(BOUND_S):
                handle = await self.session(id_)
                ended = await self.insist(partial(handle.run, "the last task"))
            assert (ended.reason, ended.error) == ("completed", None), f"{id_}: {ended}"
        await self.quiet()
        assert not self.open, f"never answered: {sorted(self.open.values())}"
        check_grove(self.grove, self.disk, self.accepted, self.seen)
        self.rested = True

    async def release(self, id_: str) -> None:
        """Let what waits in a session go on."""
        handle = await self.session(id_)
        for verb in ("default", "resume_queue", "default"):
            await self.insist(partial(VERBS[verb], self, handle))
            await self.answer(id_)

    async def insist(self, verb: Callable[[], Awaitable[Any]]) -> Any:
        """Ask until there is room for it."""
        while True:
            with suppress(MailboxFull):
                return await verb()
            await trio.sleep(0.1)

    async def quiet(self) -> None:
        """Return once nothing moves any more; whatever is asked meanwhile is answered."""
        same, before = 0, -1
        with trio.fail_after(BOUND_S):
            while same < QUIET_LOOKS and not self.grove.gave_up.is_set():
                await trio.sleep(2.0)
                for actor in tuple(self.grove.sessions.registry.live.values()):
                    if is_asked(actor):
                        await self.answer(actor.id)
                now = len(self.disk.records())
                same = same + 1 if now == before and self._rests() else 0
                before = now

    def _rests(self) -> bool:
        live = self.grove.sessions.registry.live.values()
        waits = any(not verb.startswith("run ") for verb in self.open.values())  # a run may wait in a parked queue
        return not waits and all(actor.phase is Phase.IDLE for actor in live)


def is_asked(actor: Session) -> bool:
    """Whether it waits for its user."""
    questions, approvals = actor.log[QUESTIONS], actor.log[APPROVALS]
    return bool(questions or approvals)


async def trees() -> None:
    """One run."""
    await Trees().run()


if __name__ == "__main__":
    main(trees, __doc__)

"""Lab: a runtime inside one Trio run, for tests: its sessions, and a wall clock to move."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import attrs
import trio

from callboard.actors.books import BUILT_IN, OPENED
from callboard.actors.budget import Price
from callboard.actors.codec import Codec
from callboard.actors.drop import usable
from callboard.actors.errors import SessionNotFound, UsageError
from callboard.actors.eventlog import EventLog
from callboard.actors.events import Event, SessionOpened, TurnEnded
from callboard.actors.fold import Folds, Projection
from callboard.actors.memory import MemoryStore
from callboard.actors.messages import (
    Accepted,
    AnswerQuestion,
    Approve,
    Ask,
    Await,
    Compact,
    Edit,
    Inject,
    Interrupt,
    Mail,
    Replace,
    ResumeQueue,
    Review,
    Shell,
    Steer,
    Stop,
    Submit,
    SubmitOrSteer,
    UseCommand,
    UserDecision,
    Withdraw,
)
from callboard.actors.model import Model
from callboard.actors.notices import Delta, ModelRetrying, Notice
from callboard.actors.phase import Phase
from callboard.actors.plugin import Hook, Plugin
from callboard.actors.scripting import ScriptedModel
from callboard.actors.session import Session
from callboard.actors.stage import Limits, ShellRunner, Stage
from callboard.actors.store import Store
from callboard.actors.tool import Tool

T = TypeVar("T")

START_MS = 1_800_000_000_000


class FakeWall:
    """A wall clock that tests move: `advance(seconds)` and `set(milliseconds)`; it may jump either way."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        """Wall milliseconds UTC."""
        return self._now_ms

    def advance(self, seconds: float) -> None:
        """Move forward, or back with a negative number."""
        self._now_ms += round(seconds * 1000)

    def set(self, now_ms: int) -> None:
        """Jump."""
        self._now_ms = now_ms


@attrs.define(eq=False)
class LabSession:
    """A session inside a lab, driven from Trio."""

    actor: Session
    deltas: list[Delta] = attrs.field(factory=list)
    retries: list[ModelRetrying] = attrs.field(factory=list)
    crashes: list[Exception] = attrs.field(factory=list)
    accepted: list[tuple[str, int, bytes]] = attrs.field(factory=list)  # what it said is durable, as the store has it

    def take(self, item: Delta | ModelRetrying) -> None:
        """(the session) Something that no log keeps."""
        if isinstance(item, Delta):
            self.deltas.append(item)
        else:
            self.retries.append(item)

    @property
    def log(self) -> EventLog:
        """The session's log and folds."""
        return self.actor.log

    async def ask(self, make: Callable[[Callable[[Any], None]], Ask]) -> Any:
        """Tell the message that `make(reply)` returns and wait for its answer; an error is raised."""
        answered, box = trio.Event(), []

        def reply(answer: Any) -> None:
            box.append(answer)
            answered.set()

        self.actor.tell(make(reply))  # type: ignore[arg-type]  # every Ask made here is a Letter
        await answered.wait()
        if isinstance(box[0], Exception):
            raise box[0]
        if isinstance(box[0], Accepted):
            self._remember(box[0].seq)
        return box[0]

    def _remember(self, seq: int) -> None:
        """An event was said to be durable: what of it the store has now."""
        log = self.actor.log
        found = self.actor.scene.stage.store.read(log.session, seq - 1, 1)
        self.accepted.append((log.session, seq, found[0].body if found else b""))

    async def submit(self, text: str, id: str | None = None, source: str = "user") -> Accepted:
        """Queue a message and return its answer."""
        answer: Accepted = await self.ask(lambda reply: Submit(text, id, source, reply=reply))
        return answer

    async def steer(self, text: str, expected_turn: int | None = None, id: str | None = None) -> Any:
        """Join the running turn."""
        return await self.ask(lambda reply: Steer(text, id, expected_turn, reply=reply))

    async def submit_or_steer(self, text: str, id: str | None = None) -> Any:
        """Join the running turn, or start one."""
        return await self.ask(lambda reply: SubmitOrSteer(text, id, reply=reply))

    async def replace(self, text: str, id: str | None = None) -> Any:
        """End the running task, and be the next turn."""
        return await self.ask(lambda reply: Replace(text, id, reply=reply))

    async def edit(self, id: str, text: str) -> Any:
        """Change a message that is queued."""
        return await self.ask(lambda reply: Edit(id, text, reply=reply))

    async def compact(self, id: str | None = None) -> Any:
        """End the running task, and compact."""
        return await self.ask(lambda reply: Compact("", id, reply=reply))

    async def review(self, what: str, id: str | None = None) -> Any:
        """End the running task, and review."""
        return await self.ask(lambda reply: Review(what, id, reply=reply))

    async def shell(self, command: str, id: str | None = None) -> Any:
        """Run a command of the user's own, with the lab's `shell`."""
        return await self.ask(lambda reply: Shell(command, id, reply=reply))

    async def answer(
        self, question: str, choices: Sequence[str] = (), text: str | None = None, id: str | None = None
    ) -> Any:
        """Settle a question; with neither choice nor text it is dismissed."""
        return await self.ask(lambda reply: AnswerQuestion(question, tuple(choices), text, id, reply=reply))

    async def approve(
        self, call: str, decision: UserDecision, feedback: str | None = None, id: str | None = None
    ) -> Any:
        """Settle a request for approval."""
        return await self.ask(lambda reply: Approve(call, decision, feedback, id, reply=reply))

    async def command(self, name: str, argument: Any = "", id: str | None = None) -> Any:
        """Use a plugin's command."""
        return await self.ask(lambda reply: UseCommand(name, argument, id, reply=reply))

    async def inject(self, text: str, id: str | None = None) -> Any:
        """Leave input for the next step."""
        return await self.ask(lambda reply: Inject(text, id, reply=reply))

    async def mail(self, text: str, *, author: str = "/root", trigger: bool = True, id: str | None = None) -> Any:
        """Mail to this session, of an agent at `author`."""
        return await self.ask(lambda reply: Mail.signed(author, text, id, trigger=trigger, reply=reply))

    async def run(self, text: str) -> TurnEnded:
        """Submit, and wait for the end of the turn that takes it."""
        ended: TurnEnded = await self.ask(lambda reply: Submit(text, ended=reply))
        return ended

    async def interrupt(self, turn: int | None = None, id: str | None = None) -> Any:
        """Interrupt the running turn."""
        return await self.ask(lambda reply: Interrupt(turn, id=id, reply=reply))

    async def withdraw(self, id: str) -> Any:
        """Take back a message that is queued."""
        return await self.ask(lambda reply: Withdraw(id, reply=reply))

    async def resume_queue(self) -> Accepted:
        """Release parked input."""
        answer: Accepted = await self.ask(lambda reply: ResumeQueue(reply=reply))
        return answer

    async def wait(self, turn: int) -> TurnEnded | None:
        """The end of a turn; None when it is no longer remembered."""
        ended: TurnEnded | None = await self.ask(lambda reply: Await(turn, reply=reply))
        return ended

    async def wait_idle(self) -> None:
        """Return when the session rests."""
        await self.ask(lambda reply: Await(reply=reply))

    async def stop(self) -> Any:
        """End the session."""
        return await self.ask(lambda reply: Stop(reply=reply))

    def state(self, projection: Projection[Any]) -> Any:
        """One fold."""
        return self.actor.log[projection]


class Lab:
    """A runtime inside one Trio run: `await lab.session()` starts a session under it."""

    def __init__(self, stage: Stage, events: list[Event], notices: list[Notice]) -> None:
        self.stage, self.events, self.notices = stage, events, notices
        self.sessions: dict[str, LabSession] = {}
        self.accepted: list[tuple[str, int, bytes]] = []  # what its sessions said is durable, as the store had it then

    async def session(self, id: str = "s", *, fresh: bool = True, restarts_max: int = 0, **opening: Any) -> LabSession:
        """Start a session, or open it again from the lab's store with `fresh=False`.

        A crash of its actor is kept in `crashes` and followed by a new run `restarts_max` times; the next one ends the
        lab.
        """
        opened = SessionOpened(root=id, **opening) if fresh else None
        session = LabSession(Session(self.stage, id, opened), accepted=self.accepted)
        session.actor.deltas = (session.take,)
        self.sessions[id] = session
        self.stage.nursery.start_soon(self._live, session, restarts_max)
        await session.wait_idle() if not fresh else await trio.lowlevel.checkpoint()
        while session.actor.phase is Phase.STARTING:
            await trio.lowlevel.checkpoint()
        return session

    async def reopen(self) -> list[LabSession]:
        """Open every session that the store has, after a crash for example; all of them rest then."""
        ids = sorted(one.id for one in self.stage.store.headers() if not one.unfinished)
        return [await self.session(id, fresh=False) for id in ids]

    async def _live(self, session: LabSession, restarts_max: int) -> None:
        for _ in range(restarts_max):
            try:
                await session.actor.run()
                return
            except Exception as error:
                session.crashes.append(error)
        await session.actor.run()

    def records(self, id: str = "s") -> list[Event]:
        """Everything on a session's log, decoded from the store."""
        store, codec = self.stage.store, self.stage.codec
        return [codec.decode(record.body) for record in store.read(id, -1, 1_000_000)]

    def check(self) -> None:
        """Every log replays, from its bytes alone, to the states that its session has; and every promise is kept."""
        for id_, session in self.sessions.items():
            codec, folds = self.stage.codec, self.stage.folds
            again = EventLog(id_, MemoryStore(), codec, folds, lambda: 0, lambda event, session, turn: None)
            for event in self.records(id_):
                again.append(event)
            assert again.states == session.log.states[:], f"session {id_}: replay gives another state"


class _Post:
    """Carries mail between the sessions of a lab, which are one tree, by id or by path."""

    def __init__(self, sessions: dict[str, LabSession]) -> None:
        self._sessions = sessions

    async def send(self, sender: str, to: str, text: str, *, trigger: bool = True, id: str | None = None) -> Any:
        paths = {one.state(OPENED).path: one for one in self._sessions.values()}
        receiver = self._sessions.get(to) or paths.get(to)
        if receiver is None:
            raise SessionNotFound(f"there is no agent {to!r} in this lab.")
        author = self._sessions[sender].state(OPENED).path
        return await receiver.mail(text, author=author, trigger=trigger, id=id)


@asynccontextmanager
async def open_lab(
    model: Model | None = None,
    *,
    tools: Iterable[Tool] = (),
    plugins: Sequence[Plugin] = (),
    hooks: Sequence[Hook] = (),
    limits: Limits | None = None,
    store: Store | None = None,
    wall: FakeWall | None = None,
    price: Price | None = None,
    shell: ShellRunner | None = None,
) -> AsyncIterator[Lab]:
    """A lab for the length of the block; leaving it stops the sessions and checks their logs.

    `price` is what the tokens of its model cost.
    """
    events: list[Event] = []
    notices: list[Notice] = []
    _check(model, store)
    tools, plugins, hooks = _listed(tools, Tool), _listed(plugins, Plugin), _listed(hooks, Hook)
    answering = model or ScriptedModel()
    catalogue = {one.name: one for one in (*tools, *(t for plugin in plugins for t in plugin.tools))}
    projections = (*BUILT_IN, *(p for plugin in plugins for p in plugin.projections))
    async with trio.open_nursery() as nursery:
        stage = Stage(
            store=store or MemoryStore(),
            codec=Codec(tuple(kind for plugin in plugins for kind in plugin.events)),
            folds=Folds(projections, [(alarm.projection, alarm.next_ms) for p in plugins for alarm in p.alarms]),
            now_ms=(wall or FakeWall()).now_ms,
            nursery=nursery,
            ask_host=_no_host,
            resolve=lambda name: answering,
            price_of=lambda name: price,
            tools=catalogue,
            plugins=tuple(plugins),
            hooks=(*(hook for plugin in plugins for hook in plugin.hooks), *hooks),
            limits=limits or Limits(),
            on_event=lambda event, session, turn: events.append(event),
            on_notice=notices.append,
            can_drop=await usable(),
            shell=shell,
        )
        stage.store.open(trio.lowlevel.current_trio_token().run_sync_soon)
        lab = Lab(stage, events, notices)
        stage.post = _Post(lab.sessions)
        yield lab
        for session in lab.sessions.values():
            await session.stop()
        lab.check()
        nursery.cancel_scope.cancel()


def _check(model: Any, store: Any) -> None:
    """Refuse what cannot answer or keep anything, before anything runs."""
    if model is not None and not callable(getattr(model, "reply", None)):
        raise UsageError(f"the model of a lab is a Model, such as ScriptedModel([Reply(...)]), got {model!r:.80}.")
    if store is not None and not callable(getattr(store, "append", None)):
        raise UsageError(f"the store of a lab is a Store, such as MemoryStore(), got {store!r:.80}.")


def _listed(some: Any, kind: type[T]) -> tuple[T, ...]:
    """All of them; `UsageError` for what is no list of these."""
    found = tuple(some) if isinstance(some, Iterable) else None
    wrong = [some] if found is None else [one for one in found if not isinstance(one, kind)]
    if wrong or found is None:
        raise UsageError(f"a lab takes a list of {kind.__name__} values, got {wrong[0]!r:.80}.")
    return found


async def _no_host(fn: Callable[..., Any], *args: Any) -> Any:
    raise UsageError("a lab has no asyncio: tools with runs_on='asyncio' need open_runtime().")

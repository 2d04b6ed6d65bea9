"""The View that tools and hooks get: one call's window on its session, closed when the call is over."""

from collections.abc import Awaitable, Callable, Container, Mapping, MutableMapping, Sequence
from typing import Any, Protocol, Self, TypeVar

import trio

from callboard.actors.abort import AbortWindow, Signal
from callboard.actors.asked import APPROVALS, key_of
from callboard.actors.awaited import Given, answers_to, decision_on, until
from callboard.actors.books import OPENED, QUEUE, TURN
from callboard.actors.errors import CallOver, SessionNotFound, ToolError, UsageError
from callboard.actors.eventlog import LOGGER, EventLog, check_plugin_events
from callboard.actors.events import Event
from callboard.actors.facts import ApprovalAsked, ApprovalDecided, Option, QuestionAnswered, QuestionAsked
from callboard.actors.fold import Projection
from callboard.actors.host import Beside
from callboard.actors.lent import Agents, Closable, Query
from callboard.actors.messages import Refused
from callboard.actors.mode import MODE
from callboard.actors.notices import Delta, ModelRetrying
from callboard.actors.plugin import ToolCall, ToolResult
from callboard.actors.stage import Spawner, SpawnRequest, Stage
from callboard.actors.tool import Tool

S = TypeVar("S")


class Scene:
    """What the views of one session share: its log, its window, its belongings.

    `epoch` counts the turns that ended or crashed; a view of an older one is over, whoever still holds it.
    """

    __slots__ = ("belongings", "besides", "epoch", "fresh", "given", "log", "on_delta", "stage", "window")

    def __init__(self, log: EventLog, stage: Stage, on_delta: Callable[[Delta | ModelRetrying], None]) -> None:
        self.log, self.stage, self.on_delta = log, stage, on_delta
        self.window: AbortWindow | None = None
        self.fresh = False
        self.epoch = self.besides = 0
        self.given: Given = {}  # what was answered before a crash in the turn that goes on
        self.belongings: dict[str, Closable] | None = None

    @property
    def owned(self) -> dict[str, Closable]:
        """What the session owns, to be changed."""
        if self.belongings is None:
            self.belongings = {}
        return self.belongings

    @property
    def turn(self) -> int:
        """The number of the running or the last turn."""
        return self.log[TURN].number

    @property
    def stands_by(self) -> bool:
        """Whether a turn runs that nobody has asked to end."""
        return self.window is not None and self.window.cause is None and self.log[TURN].open

    @property
    def takes_input(self) -> bool:
        """Whether the running turn has another model request before it."""
        return self.window is not None and not self.window.settled and self.stands_by

    def standing(self) -> Callable[[], bool]:
        """Whether the turn of this moment, later on, has neither ended nor crashed."""
        epoch = self.epoch
        return lambda: self.epoch == epoch

    def close(self) -> None:
        """Close what the session owned."""
        belongings, self.belongings = self.belongings, None
        for name, thing in list((belongings or {}).items()):
            try:
                thing.close()
            except Exception:
                LOGGER.exception("session %s: %s could not be closed", self.log.session, name)


class Caller(Protocol):
    """Makes calls for the body of another call."""

    async def nest(self, cell: str, name: str, arguments: Any, allowed: Container[str] | None) -> ToolResult:
        """(Trio) One call for the body of the call `cell`."""
        ...


class CallView:
    """Implements `plugin.View` for one call or hook. `held` collects a control tool's events until its result."""

    __slots__ = ("_asks", "_caller", "_epoch", "_scene", "call", "held", "turn")

    def __init__(
        self,
        scene: Scene,
        call: str = "",
        *,
        hold: bool = False,
        caller: Caller | None = None,
        asks: Callable[[], None] | None = None,
    ) -> None:
        """`asks` is told before the user is asked about the call, which may not be on the log yet."""
        self._scene, self.call, self._epoch, self._caller, self._asks = scene, call, scene.epoch, caller, asks
        self.turn: int = scene.log[TURN].number
        self.held: list[Event] | None = [] if hold else None

    def close(self) -> None:
        """The call is over: every method raises `CallOver` from here."""
        self._epoch = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> Scene:
        if self._epoch != self._scene.epoch:
            raise CallOver(f"call {self.call!r} has ended: its view cannot be used any more.")
        return self._scene

    @property
    def session(self) -> str:
        """The session's id."""
        return self._check().log.session

    @property
    def path(self) -> str:
        """The session's place in its tree."""
        opened = self._check().log[OPENED]
        return "/root" if opened is None else opened.path

    @property
    def depth(self) -> int:
        """0 for a root session."""
        opened = self._check().log[OPENED]
        return 0 if opened is None else opened.depth

    @property
    def key(self) -> str:
        """SESSION/TURN/CALL."""
        return f"{self.session}/{self.turn}/{self.call}"

    @property
    def folder(self) -> str:
        """The session's working directory."""
        return self._check().stage.folder

    @property
    def window_s(self) -> float:
        """Seconds between an interrupt and the end of its window."""
        return self._check().stage.limits.abort_window_s

    @property
    def interrupted(self) -> Signal:
        """Whether the turn is being aborted."""
        window = self._check().window
        return Signal() if window is None else window.interrupted

    @property
    def steered(self) -> bool:
        """Whether input for the running turn waits to be claimed."""
        return any(message.source == "steer" for message in self._check().log[QUEUE])

    @property
    def fresh(self) -> bool:
        """True at the first step after the session was opened from its store."""
        return self._check().fresh

    @property
    def belongings(self) -> MutableMapping[str, Closable]:
        """Things that live as long as the session."""
        return self._check().owned

    def __getitem__(self, projection: Projection[S]) -> S:
        return self._check().log[projection]

    def append(self, *events: Event) -> None:
        """Put events of a plugin on the log; a control tool's go there together with its result."""
        scene = self._check()
        check_plugin_events(events)
        if self.held is None:
            scene.log.append(*events)
        else:
            scene.log.rehearse((*self.held, *events))
            self.held.extend(events)

    async def flush(self) -> None:
        """Return once all that is on the log is durable."""
        await self._check().log.flush()

    async def commit(self, *events: Event) -> None:
        """Put events on the log at once, and return when they are durable."""
        log = self._check().log
        check_plugin_events(events)
        log.append(*events)
        await log.flush()

    def lineage(self, projection: Projection[S]) -> tuple[S, ...]:
        """This session's value of a fold, then those above it."""
        scene = self._check()
        return (scene.log[projection], *(log[projection] for log in scene.stage.above(scene.log.session)))

    @property
    def planning(self) -> bool:
        """Whether this session or one above it is in Plan mode."""
        return any(mode.active for mode in self.lineage(MODE))

    async def ask_user(
        self,
        question: str,
        options: Sequence[Option],
        *,
        by: str,
        id: str = "",
        header: str = "",
        detail: str = "",
    ) -> QuestionAnswered:
        """Put a question to the user and wait for the answer."""
        (answer,) = await self.ask_users((Query(question, options, id, header, detail),), by=by)
        return answer

    async def ask_users(self, queries: Sequence[Query], *, by: str) -> tuple[QuestionAnswered, ...]:
        """Put several questions to the user in one write, and wait for all answers."""
        scene, place = self._check(), f"{self.turn}.{self.call}"
        asked = [
            QuestionAsked(
                f"{place}.{one.id}" if one.id else place,
                self.call,
                self.turn,
                by,
                one.header,
                one.question,
                tuple(one.options),
                one.detail,
            )
            for one in queries
        ]
        return await answers_to(scene.log, asked, scene.standing(), scene.given)

    async def ask_approval(self, call: ToolCall) -> ApprovalDecided:
        """Ask the user whether a call may run, and wait."""
        scene = self._check()
        if self._asks is not None:
            self._asks()
        log, id_ = scene.log, f"{self.turn}.{call.call}"  # not the call's alone: a stale answer meets no later call
        asked = ApprovalAsked(id_, call.call, self.turn, call.name, call.arguments, key_of(call.name, call.arguments))
        known = id_ in scene.given or any(one.id == id_ for one in log[APPROVALS])  # asked before a crash
        if not (known or log.readers or scene.stage.answers()):
            refused = ApprovalDecided(id_, "unavailable")
            log.append(asked, refused)
            return refused
        return await decision_on(log, asked, scene.standing(), scene.given)

    def hand_over(self, plan: str, text: str) -> None:
        """Have another session opened, whose first message is `text`."""
        scene = self._check()
        scene.stage.hand_over(scene.log.session, plan, text)

    def now_ms(self) -> int:
        """Wall time in milliseconds UTC."""
        return self._check().stage.now_ms()

    def output(self, text: str) -> None:
        """Show a piece of output to subscribers; it is not kept."""
        scene = self._check()
        scene.on_delta(Delta(scene.log.session, self.turn, "output", text, self.call or None))

    def start_soon(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """(Trio) Run `fn` beside the session until it returns or the session ends."""
        scene, belongings, beside = self._check(), self.belongings, Beside()
        scene.besides += 1
        name = f"task {scene.besides} of {self.call or 'a hook'}"
        belongings[name] = beside

        def over() -> None:
            belongings.pop(name, None)

        scene.stage.nursery.start_soon(beside.run, scene.stage, fn, args, over, name=name)

    async def spawn(self, name: str, task: str, *, awaited: bool = False, **how: Any) -> str:
        """Start a subagent and return its path."""
        spawner, call = self._spawner(), self.call if awaited else ""
        _, path = await spawner.spawn(SpawnRequest(self.session, name, task, call=call, **how))
        return path

    @property
    def agents(self) -> Agents:
        """The agents of the tree."""
        return self._spawner().seen_by(self.session)

    def _spawner(self) -> Spawner:
        spawner = self._check().stage.spawner
        if spawner is None:
            raise ToolError("this runtime cannot start subagents.")
        return spawner

    async def mail(self, to: str, text: str, *, trigger: bool = True, id: str | None = None) -> None:
        """Send mail to another agent of the tree."""
        scene = self._check()
        if scene.stage.post is None:
            raise ToolError("this runtime has no mail between agents.")
        try:
            answer = await scene.stage.post.send(scene.log.session, to, text, trigger=trigger, id=id)
        except (UsageError, SessionNotFound) as error:
            raise ToolError(str(error)) from None
        if isinstance(answer, Refused):
            raise ToolError(f"the mail was not taken: {answer.detail}.")

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Every tool of the runtime."""
        return self._check().stage.tools

    async def use_tool(self, name: str, arguments: Any, *, allowed: Container[str] | None = None) -> ToolResult:
        """Call another tool from the body of this call."""
        self._check()
        if self._caller is None:
            raise UsageError("tools are used from the body of a call, not from a hook.")
        return await self._caller.nest(self.call, name, arguments, allowed)

    async def until(self, met: Callable[[], bool]) -> None:
        """Return once `met()` is true, asked again after each append to this session's log."""
        await until(self._check().log, met)


class ThreadView(CallView):
    """The same for a tool in a thread: whatever touches the log crosses over to Trio's thread."""

    __slots__ = ()

    def append(self, *events: Event) -> None:
        """As `CallView.append`, from a thread."""
        trio.from_thread.run_sync(super().append, *events)

    def output(self, text: str) -> None:
        """As `CallView.output`, from a thread."""
        trio.from_thread.run_sync(super().output, text)

    def start_soon(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """As `CallView.start_soon`, from a thread."""
        trio.from_thread.run_sync(super().start_soon, fn, *args)

    async def spawn(self, name: str, task: str, *, awaited: bool = False, **how: Any) -> str:
        """Not from a thread."""
        raise UsageError("a tool that spawns must be an async def with runs_on='trio'.")

    async def mail(self, to: str, text: str, *, trigger: bool = True, id: str | None = None) -> None:
        """Not from a thread."""
        raise UsageError("a tool that sends mail must be an async def with runs_on='trio'.")

    async def use_tool(self, name: str, arguments: Any, *, allowed: Container[str] | None = None) -> ToolResult:
        """Not from a thread."""
        raise UsageError("a tool that uses others must be an async def with runs_on='trio'.")

    async def until(self, met: Callable[[], bool]) -> None:
        """Not from a thread."""
        raise UsageError("a tool that waits for the log must be an async def with runs_on='trio'.")

    async def flush(self) -> None:
        """Not from a thread."""
        raise UsageError("a tool that waits for the disk must be an async def with runs_on='trio'.")

    async def commit(self, *events: Event) -> None:
        """Not from a thread."""
        raise UsageError("a tool that waits for the disk must be an async def with runs_on='trio'.")

    async def ask_user(self, question: str, options: Sequence[Option], **about: Any) -> QuestionAnswered:
        """Not from a thread."""
        raise UsageError("a tool that asks the user must be an async def with runs_on='trio'.")

    async def ask_users(self, queries: Sequence[Query], *, by: str) -> tuple[QuestionAnswered, ...]:
        """Not from a thread."""
        raise UsageError("a tool that asks the user must be an async def with runs_on='trio'.")

    async def ask_approval(self, call: ToolCall) -> ApprovalDecided:
        """Not from a thread."""
        raise UsageError("a tool that asks the user must be an async def with runs_on='trio'.")

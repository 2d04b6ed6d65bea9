"""Stage: what the runtime lends to all its actors, and the limits they keep."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import attrs
import trio

from callboard.actors.abort import ABORT_WINDOW_S, Signal
from callboard.actors.budget import Price
from callboard.actors.catalogue import Offer
from callboard.actors.codec import Codec
from callboard.actors.eventlog import EventLog, Listener
from callboard.actors.events import StartKind, Usage
from callboard.actors.fold import Folds
from callboard.actors.forked import Turns
from callboard.actors.hook import Slots
from callboard.actors.lent import Agents
from callboard.actors.messages import Accepted, Refused
from callboard.actors.model import Model
from callboard.actors.notices import AbandonedChanged, Notice
from callboard.actors.plugin import Alarm, Command, Hook, Plugin
from callboard.actors.recovery import Recover
from callboard.actors.snapping import SNAP_BYTES
from callboard.actors.store import Store
from callboard.actors.timers import Timers
from callboard.actors.tool import Tool


@attrs.frozen
class Limits:
    """The bounds of a session; seconds on Trio's clock."""

    abort_window_s: float = ABORT_WINDOW_S
    mailbox_max: int = 1024
    steps_max: int = 200
    turn_seconds_max: float | None = None
    text_max_chars: int = 4_000_000
    flush_stall_s: float = 5.0
    shutdown_s: float = 10.0
    threads_max: int = 64
    threads_abandoned_max: int = 32
    keep_partial_text: bool = True
    recover: Recover = "close"
    interrupt_message: bool = True
    marker_role: Literal["user", "developer"] = "user"
    retries_max: int = 2
    idle_timeout_s: float | None = None  # None: what the model says of itself
    context_window: int | None = None  # tokens; None: what the model says of itself
    compact_tokens_max: int | None = None
    tokens_max: int | None = None
    cost_usd_max: float | None = None
    review_model: str | None = None
    snap_bytes: int = SNAP_BYTES


@attrs.frozen
class SpawnRequest:
    """A subagent somebody asks for.

    `system` None: the instructions of its parent, and those of its `role`. It has not the tools `withheld`. Without
    `mail` its end is a fact on its parent's log and no message; the first one also while the call `call` waits for it.
    `turns` of its parent's history are copied for it. An interrupt of its parent leaves a `detached` one alone.
    """

    parent: str
    name: str
    task: str
    role: str | None = None
    model: str | None = None
    notify: bool = True
    system: str | None = None
    withheld: tuple[str, ...] = ()
    mail: bool = True
    turns: Turns = 0
    call: str = ""
    detached: bool = False


class Spawner(Protocol):
    """The runtime's door to new sessions."""

    async def spawn(self, request: SpawnRequest) -> tuple[str, str]:
        """(Trio) Admit and start a child; its (session id, path). A `ToolError` names the limit that refused."""
        ...

    def dismiss(self, session_id: str) -> None:
        """End an agent for good, with cause `parent` if it works; harmless when it has ended."""
        ...

    def working(self, session_id: str) -> int:
        """How many of the agents that a session started are working."""
        ...

    def seen_by(self, session_id: str) -> Agents:
        """The agents of its tree, for a session."""
        ...


class Purse(Protocol):
    """What one turn pays with: the budgets of its tree."""

    capped: bool  # whether there are any

    def pay(self, usage: Usage) -> None:
        """A request was answered."""
        ...

    def over(self, *, asking: bool) -> str | None:
        """Which budget of the tree is used up, in words; None while there is some left."""
        ...

    def close(self) -> None:
        """The turn has ended; harmless when repeated."""
        ...


class Trees(Protocol):
    """The runtime's books of all trees of agents: each turn asks before it begins, and tells when it has ended."""

    def may_begin(self, log: EventLog, start: StartKind) -> bool:
        """Whether a turn may begin now; an agent that may not is woken when it may."""
        ...

    def enter(self, log: EventLog, end: Callable[[str], None]) -> Purse | None:
        """A turn began; `end` is told in words why it has to end. None when nothing of it matters."""
        ...


class Post(Protocol):
    """The runtime's way from one session to another of the same tree."""

    async def send(
        self, sender: str, to: str, text: str, *, trigger: bool = True, id: str | None = None
    ) -> Accepted | Refused:
        """Send mail in the name of session `sender`; `Accepted` once the receiver has it on its disk."""
        ...


@attrs.frozen
class Ran:
    """How a command of the user's own ended; `code` None when it did not exit, `error` when it could not run."""

    code: int | None = None
    timed_out: bool = False
    error: str = ""


class ShellRunner(Protocol):
    """Runs the user's own commands, each with all that it starts."""

    async def __call__(
        self,
        command: str,
        folder: str,
        hear: Callable[[str], None],
        interrupted: Signal,
        window_s: float,
        timeout_s: float,
    ) -> Ran:
        """(Trio) See a command to its end, its timeout or the interrupt, which leaves it `window_s`.

        `hear` gets its output as it comes. Cancelled, nothing of it is left either.
        """
        ...


class Abandoned:
    """Work that outlived its turn, by kind, until it really ends."""

    def __init__(self, changed: Callable[[str, int], None]) -> None:
        self._living: dict[object, tuple[str, str]] = {}
        self._counts: dict[str, int] = {}
        self._changed = changed
        self.parked: list[str] = []

    def add(self, work: object, runs_on: str, name: str) -> None:
        """List a piece of work that was left behind."""
        self._living[work] = (runs_on, name)
        self._count(runs_on, 1)

    def discard(self, work: object) -> None:
        """It ended after all; harmless when it was never listed."""
        entry = self._living.pop(work, None)
        if entry is not None:
            self._count(entry[0], -1)

    def _count(self, runs_on: str, change: int) -> None:
        count = self._counts[runs_on] = self.count(runs_on) + change
        self._changed(runs_on, count)

    def count(self, runs_on: str | None = None) -> int:
        """How many live, of one kind or of all."""
        return len(self._living) if runs_on is None else self._counts.get(runs_on, 0)

    def names(self) -> tuple[str, ...]:
        """What lives, as people read it."""
        return tuple(f"{name} ({runs_on})" for runs_on, name in self._living.values())


@attrs.define(eq=False)
class Stage:
    """One runtime's shared things. `nursery` hosts tool bodies and whatever outlives a turn."""

    store: Store
    codec: Codec
    folds: Folds
    now_ms: Callable[[], int]
    nursery: trio.Nursery
    ask_host: Callable[..., Awaitable[Any]]
    resolve: Callable[[str | None], Model]
    tools: Mapping[str, Tool] = attrs.field(factory=dict)
    plugins: tuple[Plugin, ...] = ()
    hooks: tuple[Hook, ...] = ()
    limits: Limits = attrs.field(factory=Limits)
    on_event: Listener = lambda event, session, turn: None
    on_notice: Callable[[Notice], None] = lambda notice: None
    on_due: Callable[[str, int | None], None] = lambda session, due_ms: None
    on_interrupt: Callable[[BaseException], None] = lambda error: None
    price_of: Callable[[str | None], Price | None] = lambda model: None
    spawner: Spawner | None = None
    post: Post | None = None
    trees: Trees | None = None  # None: every turn begins, and no tree has budgets
    shell: ShellRunner | None = None  # None: this runtime runs no command of the user's own
    above: Callable[[str], Sequence[EventLog]] = lambda session: ()  # the logs of those above it, its parent's first
    leaving: Callable[[str], bool] = lambda session: False  # whether it is about to be stopped, and asks no model
    answers: Callable[[], bool] = lambda: False  # whether somebody answers who reads no log
    hand_over: Callable[[str, str, str], None] = lambda session, plan, text: None
    folder: str = "."
    can_drop: bool = False
    threads: trio.CapacityLimiter = attrs.field(init=False)
    abandoned: Abandoned = attrs.field(init=False)
    timers: Timers = attrs.field(init=False)
    offer: Offer = attrs.field(init=False)  # of the turns that begin now
    gates: tuple[Plugin, ...] = attrs.field(init=False)  # the plugins that take part before each step
    writers: tuple[Plugin, ...] = attrs.field(init=False)  # those with a section in the prompt
    alarms: tuple[Alarm, ...] = attrs.field(init=False)  # of all plugins
    guards: tuple[Plugin, ...] = attrs.field(init=False)  # those that may refuse a call
    readers: tuple[Plugin, ...] = attrs.field(init=False)  # those that read what the model says
    efforts: tuple[Plugin, ...] = attrs.field(init=False)  # those that say how hard it should think
    commands: Mapping[str, Command] = attrs.field(init=False)  # of all plugins, by name
    slots: Slots = attrs.field(init=False)  # the hooks by their moments
    now_s: Callable[[], float] = attrs.field(init=False)
    pits: list[Any] = attrs.field(init=False, factory=list)  # where bodies ran and may run again, see host.py

    def __attrs_post_init__(self) -> None:
        # The clock itself: `trio.current_time` goes three calls deep, and a step asks a dozen times.
        self.now_s = trio.lowlevel.current_clock().current_time
        self.retool(self.tools)
        self.alarms = tuple(alarm for plugin in self.plugins for alarm in plugin.alarms)
        self.guards = tuple(plugin for plugin in self.plugins if plugin.guard is not None)
        self.readers = tuple(plugin for plugin in self.plugins if plugin.reads is not None)
        self.efforts = tuple(plugin for plugin in self.plugins if plugin.effort is not None)
        self.commands = {command.name: command for plugin in self.plugins for command in plugin.commands}
        self.slots = Slots.of(self.hooks)
        self.timers = Timers(self.nursery.start_soon)
        gates = (plugin for plugin in self.plugins if plugin.before_step is not None)
        self.gates = tuple(sorted(gates, key=lambda plugin: plugin.name == "plan_mode"))  # committed right behind it
        self.writers = tuple(plugin for plugin in self.plugins if plugin.prompt_section is not None)
        self.threads = trio.CapacityLimiter(self.limits.threads_max)
        self.abandoned = Abandoned(lambda runs_on, count: self.on_notice(AbandonedChanged(runs_on, count)))

    def retool(self, tools: Mapping[str, Tool]) -> None:
        """Have these tools from now on; a turn that runs offers its model what it offered before."""
        self.offer = Offer.of(tools)
        self.tools = self.offer.tools

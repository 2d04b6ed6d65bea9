"""What subscribers and metrics may hear of, but no log keeps and no fold sees."""

from typing import Literal

import msgspec


class Notice(msgspec.Struct, frozen=True, gc=False):
    """Something transient; never kept, never replayed."""


class Delta(Notice, frozen=True):
    """A piece of something still growing: model `text`, tool `output`, `reasoning` or `plan`; never kept."""

    session: str
    turn: int
    part: Literal["text", "reasoning", "output", "plan"]
    text: str
    call: str | None = None


class ModelRetrying(Notice, frozen=True):
    """A model request failed and is made again in `delay_s` seconds; what streamed of its answer is void.

    It stands beside the `ModelFailed` on the log; `attempt` counts those that failed, of `attempts_max` in all.
    """

    session: str
    turn: int
    attempt: int
    attempts_max: int
    delay_s: float
    error: str


class Lagged(Notice, frozen=True):
    """This reader was too slow: events `first` to `last` left its queue and follow from the log."""

    first: int
    last: int


class Resync(Notice, frozen=True):
    """The reader's cursor is beyond the log; reading goes on from `after`."""

    after: int


class DurabilityDelayed(Notice, frozen=True):
    """The end of this turn waits for the disk longer than `flush_stall_s`."""

    session: str
    turn: int


class Flushed(Notice, frozen=True):
    """The store made `events` events durable in `seconds`."""

    seconds: float
    events: int


class StoreFailed(Notice, frozen=True):
    """A write to the store failed; it is tried again while `retrying`."""

    error: str
    retrying: bool


class SessionFenced(Notice, frozen=True):
    """Another owner took this session over, so its actor ended here."""

    session: str


class HookRan(Notice, frozen=True):
    """A hook ended with status ok, blocked, rewrote, context, continued or failed."""

    hook: str
    status: str


class ChildRestarted(Notice, frozen=True):
    """A supervisor decided about a child that ended: restart, forget, give_up or escalate."""

    child: str
    decision: str


class AgentRefused(Notice, frozen=True):
    """A limit of a tree refused another agent, or another turn of one; `limit` is its name."""

    limit: str


class LoopLagged(Notice, frozen=True):
    """How late a loop (asyncio or trio) woke a timer, in seconds."""

    loop: Literal["asyncio", "trio"]
    seconds: float


class AbandonedChanged(Notice, frozen=True):
    """How many abandoned pieces of work of one kind (trio, thread, asyncio) still run."""

    runs_on: str
    count: int


class SubscriberLagged(Notice, frozen=True):
    """A reader of a session fell behind its bounded queue."""


class ToolSkipped(Notice, frozen=True):
    """An external tool (`kind` mcp or dynamic) was left out, because another tool has its name."""

    name: str
    kind: str


class RuntimeLeft(Notice, frozen=True):
    """The runtime closed while these were still alive."""

    tasks: tuple[str, ...]

"""Event type -> what it counts. No other code of ours counts anything."""

import platform
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import attrs
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from callboard import __version__
from callboard.actors.envelope import CORE_EVENTS
from callboard.actors.events import (
    Compacted,
    ControlCallEnded,
    Event,
    ModelFailed,
    ModelSaid,
    SessionOpened,
    StepEnded,
    StepStarted,
    ToolReturned,
    TurnEnded,
    TurnRecovered,
    kind_of,
)
from callboard.actors.facts import PLUGIN_EVENTS, ChildEnded
from callboard.actors.notices import (
    AbandonedChanged,
    AgentRefused,
    ChildRestarted,
    Flushed,
    HookRan,
    LoopLagged,
    Notice,
    SessionFenced,
    StoreFailed,
    SubscriberLagged,
)
from callboard.metrics import labels as of
from callboard.metrics.collector import LEVELS_SERIES_MAX
from callboard.metrics.families import PREFIX, SERIES_MAX, Counting, Shelf, TurnId
from callboard.metrics.labels import OTHER, External, by_prefix, closed, tool_label
from callboard.metrics.plugged import Clock, goals, plan_mode, questions, reminders

KNOWN_EVENTS: tuple[type[Event], ...] = (*CORE_EVENTS, *PLUGIN_EVENTS)
Noticing: TypeAlias = Callable[[Any], None]

# Upper bounds of histograms. In seconds unless the name says otherwise; the last, infinite bucket goes without saying.
CONTROL_BUCKETS_S = (0.001, 0.01, 0.1, 1.0, 60.0)
TOOL_BUCKETS_S = (0.01, 0.1, 1.0, 10.0, 60.0)
TURN_BUCKETS_S = (0.1, 1.0, 5.0, 20.0, 60.0, 300.0, 1800.0)
FIRST_TOKEN_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
OVERHEAD_BUCKETS_S = (0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1)
# The window is 100 ms: whether it holds is to be read to 10 ms around it.
ABORT_BUCKETS_S = (0.01, 0.025, 0.05, 0.075, 0.09, 0.1, 0.11, 0.12, 0.15, 0.2, 0.5, 1.0)
MODEL_BUCKETS_S = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)
FLUSH_BUCKETS_S = (0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1.0)
LAG_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
BATCH_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 500)  # events
DEPTH_BUCKETS = (1, 2, 3, 4, 5, 8)  # levels below the root

# In the others nothing ran, or nobody knows for how long.
TIMED_RECEIPTS = frozenset({"completed", "failed", "interrupted", "abandoned"})

# The most children of the metrics whose whole product of labels would not fit into SERIES_MAX.
TOOL_CALLS_CHILDREN_MAX = 160
TOOL_SECONDS_CHILDREN_MAX = 60
CONTROL_SECONDS_CHILDREN_MAX = 30
TURN_CHILDREN_MAX = 20
FIRST_TOKEN_CHILDREN_MAX = 12
MODEL_CHILDREN_MAX = 16
HOOK_CHILDREN_MAX = 60


@attrs.define
class _Kind:
    """One kind of event: what it counts, if anything, and how often it was seen."""

    name: str
    count: Counting | None
    seen: int = 0


class _Kinds(Collector):
    """`events_total` from plain integers: every event pays for it, and a Counter takes a lock."""

    def __init__(self, kinds: Iterable[_Kind]) -> None:
        self._kinds = tuple(kinds)

    def describe(self) -> Iterable[Metric]:
        """The family without values."""
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        """The family with every kind, at 0 when none was seen."""
        family = self._family()
        for kind in self._kinds:
            family.add_metric([kind.name], kind.seen)
        return [family]

    def _family(self) -> CounterMetricFamily:
        return CounterMetricFamily(PREFIX + "events", "Events appended, by kind.", labels=["kind"])


class Recorder:
    """Counts live events and notices on the registry it is given; call it from one thread.

    `known_tools` are the names of the tools that ship or that the host application adds; `external(name)` says `mcp` or
    `dynamic` of others, and what is neither is `other`. `hooks` are the configured hooks' names; others are `other`.
    Names that are not plain (see `labels.NAME_PATTERN`) count as `other` too. `now_s` only goes forward; without it no
    time in Plan mode is observed. Raises `UsageError` when the registry already has metrics of a runtime.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        known_tools: Iterable[str],
        hooks: Iterable[str] = (),
        external: External = by_prefix,
        now_s: Clock | None = None,
    ) -> None:
        shelf = Shelf()
        counts: dict[type[Event], Counting] = {
            **_control_calls(shelf),
            **_tool_calls(shelf, tool_label(known_tools, external)),
            **_turns(shelf),
            **questions(shelf),
            **reminders(shelf),
            **plan_mode(shelf, now_s),
            **_steps(shelf),
            **_models(shelf),
            **_children(shelf),
        }
        for event, count in goals(shelf).items():
            counts[event] = _both(counts.get(event), count)
        self._other = _Kind(OTHER, None)
        self._events = {event: _Kind(kind_of(event.__name__), counts.get(event)) for event in KNOWN_EVENTS}
        shelf.add(_Kinds((*self._events.values(), self._other)), series_max=len(self._events) + 1)
        self._notices = {**_store(shelf), **_runtime(shelf), **_hooks(shelf, hooks)}
        build = shelf.gauge("build_info", "Always 1: what runs.", *_build_labels())
        build[__version__, platform.python_version()].set(1)
        self.series_max = shelf.series_max  # never more than this many, whatever comes in
        assert self.series_max + LEVELS_SERIES_MAX <= SERIES_MAX, self.series_max
        shelf.register(registry)

    def event(self, event: Event, session: str = "", turn: int | None = None) -> None:
        """Count a live event at its append; a replayed one was counted when it happened.

        `session` and `turn` name an example of what was counted: no label, and shown in OpenMetrics alone.
        """
        kind = self._events.get(type(event), self._other)
        kind.seen += 1
        if kind.count is not None:
            kind.count(event, (session, turn))

    def notice(self, notice: Notice) -> None:
        """Count a notice."""
        count = self._notices.get(type(notice))
        if count is not None:
            count(notice)


def _both(first: Counting | None, second: Counting) -> Counting:
    """An event that counts in two places."""
    if first is None:
        return second
    counts = first

    def both(event: Any, turn: TurnId) -> None:
        counts(event, turn)
        second(event, turn)

    return both


def _control_calls(shelf: Shelf) -> dict[type[Event], Counting]:
    labels = (of.CONTROL_TOOL, of.OUTCOME)
    calls = shelf.counter("control_tool_calls_total", "Admitted control-tool calls, by how they ended.", *labels)
    seconds = shelf.histogram(
        "control_tool_seconds",
        "Time of admitted control-tool calls.",
        CONTROL_BUCKETS_S,
        *labels,
        children_max=CONTROL_SECONDS_CHILDREN_MAX,
    )

    def control_call_ended(event: ControlCallEnded, turn: TurnId) -> None:
        key = event.tool, event.outcome
        calls[key].inc()
        seconds[key].observe(_between_s(event.started_ms, event.completed_ms), turn)

    return {ControlCallEnded: control_call_ended}


def _tool_calls(shelf: Shelf, tool: of.Label) -> dict[type[Event], Counting]:
    labels = (tool, of.RECEIPT)
    calls = shelf.counter("tool_calls_total", "Tool calls, by receipt.", *labels, children_max=TOOL_CALLS_CHILDREN_MAX)
    seconds = shelf.histogram(
        "tool_seconds",
        "Time of tool calls that ran.",
        TOOL_BUCKETS_S,
        *labels,
        children_max=TOOL_SECONDS_CHILDREN_MAX,
    )

    def tool_returned(event: ToolReturned, turn: TurnId) -> None:
        key = event.name, event.receipt
        calls[key].inc()
        if event.receipt in TIMED_RECEIPTS:
            seconds[key].observe(event.seconds, turn)

    return {ToolReturned: tool_returned}


def _turns(shelf: Shelf) -> dict[type[Event], Counting]:
    labels = (of.TURN_KIND, of.REASON)
    turns = shelf.counter("turns_total", "Turns ended; the reason of an aborted one is its cause, or crash.", *labels)
    seconds = shelf.histogram("turn_seconds", "Time of turns.", TURN_BUCKETS_S, *labels, children_max=TURN_CHILDREN_MAX)
    first_token = shelf.histogram(
        "turn_first_token_seconds",
        "From the start of a turn to its first token.",
        FIRST_TOKEN_BUCKETS_S,
        *labels,
        children_max=FIRST_TOKEN_CHILDREN_MAX,
    )
    abort = shelf.histogram(
        "abort_seconds", "From the request to abort to the closed turn.", ABORT_BUCKETS_S, of.ENDING
    )

    def turn_ended(event: TurnEnded, turn: TurnId) -> None:
        key = event.kind, _why(event)
        turns[key].inc()
        if event.started_ms:
            seconds[key].observe(_between_s(event.started_ms, event.ended_ms), turn)
            if event.first_token_ms is not None:
                first_token[key].observe(event.first_token_ms / 1000, turn)
        if event.abort_s is not None:
            abort[event.ending or OTHER,].observe(event.abort_s, turn)

    recovered = shelf.counter("turns_recovered_total", "Turns that went on after a crash, each time.")[()]
    return {TurnEnded: turn_ended, TurnRecovered: lambda _, __: recovered.inc()}


def _why(event: TurnEnded) -> str:
    """The reason, for an aborted turn its cause; the user, a shutdown and a crash are told apart."""
    if event.reason == "interrupted":
        return event.cause or of.CRASH
    return event.cause or event.reason if event.reason == "aborted" else event.reason


def _steps(shelf: Shelf) -> dict[type[Event], Counting]:
    steps = shelf.counter("steps_total", "Steps begun.")[()]
    overhead = shelf.histogram("step_overhead_seconds", "Step time without model and tools.", OVERHEAD_BUCKETS_S)[()]

    def step_ended(event: StepEnded, turn: TurnId) -> None:
        overhead.observe(event.overhead_s, turn)

    return {StepStarted: lambda _, __: steps.inc(), StepEnded: step_ended}


def _models(shelf: Shelf) -> dict[type[Event], Counting]:
    labels = (of.PROVIDER, of.RESULT)
    requests = shelf.counter("model_requests_total", "Model requests, by result.", *labels)
    seconds = shelf.histogram(
        "model_seconds", "Time of model requests.", MODEL_BUCKETS_S, *labels, children_max=MODEL_CHILDREN_MAX
    )
    tokens = shelf.counter(
        "model_tokens_total",
        "Tokens; cached is a part of input, reasoning a part of output.",
        of.PROVIDER,
        of.TOKEN_TYPE,
    )
    cost = shelf.counter("model_cost_usd_total", "Price of model requests in US dollars.", of.PROVIDER)

    def model_said(event: ModelSaid, turn: TurnId) -> None:
        answered(event, _result(event), turn)

    def answered(event: ModelSaid | Compacted, result: str, turn: TurnId) -> None:
        key = event.provider, result
        requests[key].inc()
        seconds[key].observe(event.seconds, turn)
        usage, provider = event.usage, event.provider
        if usage.input > 0:
            tokens[provider, "input"].inc(usage.input)
        if usage.cached > 0:
            tokens[provider, "cached"].inc(usage.cached)
        if usage.output > 0:
            tokens[provider, "output"].inc(usage.output)
        if usage.reasoning > 0:
            tokens[provider, "reasoning"].inc(usage.reasoning)
        if usage.cost_usd > 0:
            cost[provider,].inc(usage.cost_usd)

    def model_failed(event: ModelFailed, turn: TurnId) -> None:
        key = event.provider, "retryable" if event.retryable else "failed"
        requests[key].inc()
        seconds[key].observe(event.seconds, turn)

    def compacted(event: Compacted, turn: TurnId) -> None:
        answered(event, "completed", turn)

    return {ModelSaid: model_said, ModelFailed: model_failed, Compacted: compacted}


def _children(shelf: Shelf) -> dict[type[Event], Counting]:
    ended = shelf.counter("subagents_total", "Turns of subagents ended, by how.", of.CHILD_OUTCOME)
    depth = shelf.histogram("subagent_depth", "Depth at which subagents were opened.", DEPTH_BUCKETS)[()]

    def child_ended(event: ChildEnded, _: TurnId) -> None:
        ended[event.status,].inc()

    def session_opened(event: SessionOpened, _: TurnId) -> None:
        if event.depth > 0:
            depth.observe(event.depth)

    return {ChildEnded: child_ended, SessionOpened: session_opened}


def _store(shelf: Shelf) -> dict[type[Notice], Noticing]:
    seconds = shelf.histogram("flush_seconds", "Time to make a batch durable.", FLUSH_BUCKETS_S)[()]
    batch = shelf.histogram("flush_batch_events", "Events made durable together.", BATCH_BUCKETS)[()]
    errors = shelf.counter("store_errors_total", "Failed writes, by what follows.", of.STORE_ERROR)

    def flushed(notice: Flushed) -> None:
        seconds.observe(notice.seconds)
        batch.observe(notice.events)

    def store_failed(notice: StoreFailed) -> None:
        errors["retrying" if notice.retrying else "failed",].inc()

    def fenced(notice: SessionFenced) -> None:
        errors["fenced",].inc()

    return {Flushed: flushed, StoreFailed: store_failed, SessionFenced: fenced}


def _runtime(shelf: Shelf) -> dict[type[Notice], Noticing]:
    restarts = shelf.counter("restarts_total", "What supervisors decided about ended children.", of.DECISION)
    lag = shelf.histogram("loop_lag_seconds", "How late a loop woke a timer.", LAG_BUCKETS_S, of.LOOP)
    abandoned = shelf.gauge("abandoned_tasks", "Abandoned work that still runs.", of.RUNS_ON)
    refused = shelf.counter("agents_refused_total", "Agents, or turns of agents, that a limit refused.", of.LIMIT)
    lagged = shelf.counter("subscriber_lagged_total", "Times a reader fell behind its queue.")[()]

    def child_restarted(notice: ChildRestarted) -> None:
        restarts[notice.decision,].inc()

    def agent_refused(notice: AgentRefused) -> None:
        refused[notice.limit,].inc()

    def loop_lagged(notice: LoopLagged) -> None:
        lag[notice.loop,].observe(notice.seconds)

    def abandoned_changed(notice: AbandonedChanged) -> None:
        abandoned[notice.runs_on,].set(notice.count)

    return {
        ChildRestarted: child_restarted,
        AgentRefused: agent_refused,
        LoopLagged: loop_lagged,
        AbandonedChanged: abandoned_changed,
        SubscriberLagged: lambda _: lagged.inc(),
    }


def _hooks(shelf: Shelf, hooks: Iterable[str]) -> dict[type[Notice], Noticing]:
    hook = closed("hook", hooks)
    runs = shelf.counter(
        "hook_runs_total", "Hook runs, by how they ended.", hook, of.HOOK_STATUS, children_max=HOOK_CHILDREN_MAX
    )

    def hook_ran(notice: HookRan) -> None:
        runs[notice.hook, notice.status].inc()

    return {HookRan: hook_ran}


def _build_labels() -> tuple[of.Label, of.Label]:
    return closed("version", (__version__,)), closed("python", (platform.python_version(),))


def _between_s(start_ms: int, end_ms: int) -> float:
    """Seconds from one wall time to another, never below 0: the wall clock may be set back."""
    return max(0, end_ms - start_ms) / 1000


def _result(said: ModelSaid) -> str:
    if said.interrupted:
        return "interrupted"
    return "truncated" if said.truncated else "completed"

"""What each event and each notice counts, exactly; and that any sequence of them is counted right."""

from collections import defaultdict
from collections.abc import Iterable
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from callboard.actors import events as core
from callboard.actors import facts, notices
from callboard.actors.envelope import Unknown
from callboard.metrics.recorder import ABORT_BUCKETS_S, KNOWN_EVENTS, TIMED_RECEIPTS, Recorder

from .metrics_samples import USAGE, samples

TOOLS = ("shell", "read_file", "update_plan")
HOOKS = ("gate",)

REMINDER = facts.Reminder("schedule-1", "after", "look", "60", 70_000, 10_000)
GOAL = facts.Goal("goal-1", 1, "ship it", "active", 256)

# Event -> the samples it adds to, besides events_total. An event type is here or in NOT_COUNTED: decide for a new one.
COUNTED: tuple[tuple[core.Event, dict[str, float]], ...] = (
    (core.SessionOpened(depth=2, parent="p"), {"subagent_depth_count": 1, "subagent_depth_sum": 2}),
    (core.SessionOpened(), {}),
    (core.StepStarted(1, 1), {"steps_total": 1}),
    (core.StepEnded(1, 1, 0.25), {"step_overhead_seconds_count": 1, "step_overhead_seconds_sum": 0.25}),
    (
        core.ModelSaid("hi", usage=USAGE, seconds=2.0, provider="openai"),
        {
            "model_requests_total{provider=openai,result=completed}": 1,
            "model_seconds_count{provider=openai,result=completed}": 1,
            "model_seconds_sum{provider=openai,result=completed}": 2,
            "model_tokens_total{provider=openai,token_type=input}": 100,
            "model_tokens_total{provider=openai,token_type=cached}": 60,
            "model_tokens_total{provider=openai,token_type=output}": 20,
            "model_tokens_total{provider=openai,token_type=reasoning}": 5,
            "model_cost_usd_total{provider=openai}": 0.25,
        },
    ),
    (
        core.ModelSaid("h", interrupted=True, truncated=True),
        {
            "model_requests_total{provider=scripted,result=interrupted}": 1,
            "model_seconds_count{provider=scripted,result=interrupted}": 1,
        },
    ),
    (
        core.ModelSaid("h", truncated=True, provider="acme"),
        {
            "model_requests_total{provider=other,result=truncated}": 1,
            "model_seconds_count{provider=other,result=truncated}": 1,
        },
    ),
    (
        core.Compacted("short", usage=USAGE, seconds=2.0, provider="openai"),
        {
            "model_requests_total{provider=openai,result=completed}": 1,
            "model_seconds_count{provider=openai,result=completed}": 1,
            "model_seconds_sum{provider=openai,result=completed}": 2,
            "model_tokens_total{provider=openai,token_type=input}": 100,
            "model_tokens_total{provider=openai,token_type=cached}": 60,
            "model_tokens_total{provider=openai,token_type=output}": 20,
            "model_tokens_total{provider=openai,token_type=reasoning}": 5,
            "model_cost_usd_total{provider=openai}": 0.25,
        },
    ),
    (
        core.ModelFailed("busy", retryable=True, seconds=1.0, provider="anthropic"),
        {
            "model_requests_total{provider=anthropic,result=retryable}": 1,
            "model_seconds_count{provider=anthropic,result=retryable}": 1,
            "model_seconds_sum{provider=anthropic,result=retryable}": 1,
        },
    ),
    (
        core.ModelFailed("no"),
        {
            "model_requests_total{provider=scripted,result=failed}": 1,
            "model_seconds_count{provider=scripted,result=failed}": 1,
        },
    ),
    (
        core.ToolReturned("c", "completed", "completed", "text", 0.5, "shell"),
        {
            "tool_calls_total{receipt=completed,tool=shell}": 1,
            "tool_seconds_count{receipt=completed,tool=shell}": 1,
            "tool_seconds_sum{receipt=completed,tool=shell}": 0.5,
        },
    ),
    (
        core.ToolReturned("c", "not_started", None, "text", 0.5, "mcp__git__log"),
        {"tool_calls_total{receipt=not_started,tool=mcp}": 1},
    ),
    (
        core.ToolReturned("c", "outcome_unknown", None, "text", 0.0, "dynamic__x"),
        {"tool_calls_total{receipt=outcome_unknown,tool=dynamic}": 1},
    ),
    (
        core.ToolReturned("c", "rejected", "rejected", "text", 0.0, "nonsense"),
        {"tool_calls_total{receipt=rejected,tool=other}": 1},
    ),
    (
        core.ControlCallEnded("c", None, "update_plan", 10_000, 10_250, "failed"),
        {
            "control_tool_calls_total{outcome=failed,tool=update_plan}": 1,
            "control_tool_seconds_count{outcome=failed,tool=update_plan}": 1,
            "control_tool_seconds_sum{outcome=failed,tool=update_plan}": 0.25,
        },
    ),
    (
        core.ControlCallEnded("c", None, "shell", 10_250, 10_000, "completed"),  # the wall clock was set back
        {
            "control_tool_calls_total{outcome=completed,tool=other}": 1,
            "control_tool_seconds_count{outcome=completed,tool=other}": 1,
        },
    ),
    (
        core.TurnEnded(1, "completed", started_ms=1_000, ended_ms=3_500, first_token_ms=250),
        {
            "turns_total{kind=regular,reason=completed}": 1,
            "turn_seconds_count{kind=regular,reason=completed}": 1,
            "turn_seconds_sum{kind=regular,reason=completed}": 2.5,
            "turn_first_token_seconds_count{kind=regular,reason=completed}": 1,
            "turn_first_token_seconds_sum{kind=regular,reason=completed}": 0.25,
        },
    ),
    (
        core.TurnEnded(1, "aborted", "replaced", kind="review", abort_s=0.0625, ending="cancelled"),
        {
            "turns_total{kind=review,reason=replaced}": 1,
            "abort_seconds_count{ending=cancelled}": 1,
            "abort_seconds_sum{ending=cancelled}": 0.0625,
        },
    ),
    (core.TurnRecovered(1, 2, 1), {"turns_recovered_total": 1}),
    (core.TurnEnded(1, "aborted"), {"turns_total{kind=regular,reason=aborted}": 1}),
    (core.TurnEnded(1, "interrupted", "shutdown"), {"turns_total{kind=regular,reason=shutdown}": 1}),
    (core.TurnEnded(1, "interrupted"), {"turns_total{kind=regular,reason=crash}": 1}),
    (facts.ChildEnded("c", "failed", "text"), {"subagents_total{outcome=failed}": 1}),
    (facts.QuestionAnswered("q", "dismissed"), {"questions_total{ending=dismissed}": 1}),
    (facts.ApprovalDecided("a", "allow_session"), {"approvals_total{decision=allow_session}": 1}),
    (facts.ReminderSet(REMINDER), {"reminders_total{result=set}": 1}),
    (facts.ReminderDeleted("schedule-1"), {"reminders_total{result=deleted}": 1}),
    (
        facts.ReminderFired("schedule-1", 10_000, None, 12_500),
        {"reminders_total{result=fired}": 1, "reminder_lag_seconds_count": 1, "reminder_lag_seconds_sum": 2.5},
    ),
    (
        facts.ReminderFired("schedule-1", 10_000, 20_000, 9_000),  # the wall clock was set back
        {"reminders_total{result=fired}": 1, "reminder_lag_seconds_count": 1},
    ),
    (facts.ReminderFired("schedule-1", 10_000, None), {"reminders_total{result=fired}": 1}),  # it does not say when
    (facts.GoalChanged("block", GOAL), {"goal_changes_total{operation=block}": 1}),
)
NOT_COUNTED: tuple[core.Event, ...] = (
    *(core.MessageQueued("m", "hi"), core.MessageWithdrawn("m"), core.MessagesClaimed(("m",))),
    *(core.QueueParked(parked=True), core.NoteAdded("note")),
    core.TurnStarted(1),  # counted when it ends
    core.ToolCalled("c", "shell", {}),  # counted when it returns
    core.AbortRequested(1, "budget"),  # its turn's end says how long it took
    core.HookFailed("gate", "broke"),  # the notice HookRan counts it
    core.HookWarned("gate", "look"),  # the same
    core.CellCalled("c", core.Call("grep", {}, "c.1")),  # counted when it returns
    facts.ToolsFound(("grep",)),
    *(core.SessionForked("s", 5), core.ModelChosen("scripted:demo")),
    *(core.MessageEdited("m", "ho"), core.VerbAnswered("v", "interrupt", {"type": "Idle"})),
    *(core.ShellStarted("m", "ls", 1), core.ShellEnded("m", "exited", 0)),
    *(facts.PlanUpdated(None, ()), facts.PlanModeRequested(active=True)),
    facts.PlanModeSet(active=True),  # counted when it ends
    *(facts.PlanProposed("1-plan", "text"), facts.PlanApproved("q", "keep", "text"), facts.PlanHandedOver("q", "s")),
    facts.QuestionAsked("q", "c", 1, "ask", "h", "?", ()),  # counted when it is settled
    facts.ApprovalAsked("a", "c", 1, "shell", {}, "k"),  # the same
    facts.ApprovalPolicySet("ask"),
    facts.TodosWritten(()),
    facts.ChildSpawned("c", "/root/c", "task"),  # counted when it ends
    *(facts.ChildReleased("c"), facts.ChildClosed("c")),
    facts.ReviewEnded(1, "c", "completed"),  # its turn and its agent are counted
)
NOTICES_COUNTED: tuple[tuple[notices.Notice, dict[str, float]], ...] = (
    (
        notices.Flushed(0.5, 7),
        {
            "flush_seconds_count": 1,
            "flush_seconds_sum": 0.5,
            "flush_batch_events_count": 1,
            "flush_batch_events_sum": 7,
        },
    ),
    (notices.StoreFailed("disk full", retrying=True), {"store_errors_total{kind=retrying}": 1}),
    (notices.StoreFailed("disk full", retrying=False), {"store_errors_total{kind=failed}": 1}),
    (notices.SessionFenced("s"), {"store_errors_total{kind=fenced}": 1}),
    (notices.HookRan("gate", "rewrote"), {"hook_runs_total{hook=gate,status=rewrote}": 1}),
    (notices.HookRan("x", "y"), {"hook_runs_total{hook=other,status=other}": 1}),
    (notices.ChildRestarted("c", "escalate"), {"restarts_total{decision=escalate}": 1}),
    (notices.AgentRefused("breadth_max"), {"agents_refused_total{limit=breadth_max}": 1}),
    (notices.AgentRefused("x"), {"agents_refused_total{limit=other}": 1}),
    (
        notices.LoopLagged("trio", 0.25),
        {"loop_lag_seconds_count{loop=trio}": 1, "loop_lag_seconds_sum{loop=trio}": 0.25},
    ),
    (notices.AbandonedChanged("thread", 3), {"abandoned_tasks{runs_on=thread}": 3}),
    (notices.SubscriberLagged(), {"subscriber_lagged_total": 1}),
)
NOTICES_NOT_COUNTED: tuple[notices.Notice, ...] = (
    *(notices.Delta("s", 1, "text", "hi"), notices.Lagged(1, 2), notices.Resync(3)),
    notices.ModelRetrying("s", 1, 1, 3, 0.5, "busy"),  # the event ModelFailed counts it
    *(notices.DurabilityDelayed("s", 1), notices.RuntimeLeft(("task",))),
    notices.ToolSkipped("grep", "mcp"),  # logged when the runtime starts
)


def recorded(events: Iterable[core.Event]) -> dict[str, float]:
    """What a fresh recorder counts for some events."""
    registry = CollectorRegistry()
    recorder = Recorder(registry, TOOLS, HOOKS)
    for event in events:
        recorder.event(event)
    return samples(registry)


def name_of(value: object) -> str:
    """A test id."""
    return type(value).__name__ if isinstance(value, core.Event | notices.Notice) else ""


def test_every_event_is_decided():
    """Every event type stands either in the table of what it counts or in the list of those that count nothing more."""
    counted, not_counted = {type(event) for event, _ in COUNTED}, {type(event) for event in NOT_COUNTED}
    assert set(KNOWN_EVENTS) == counted | not_counted
    assert set() == counted & not_counted


def test_every_notice_is_decided():
    """Every notice type stands either in the table of what it counts or in the list of those that count nothing."""
    counted, not_counted = {type(n) for n, _ in NOTICES_COUNTED}, {type(n) for n in NOTICES_NOT_COUNTED}
    assert set(notices.Notice.__subclasses__()) == counted | not_counted
    assert set() == counted & not_counted


@pytest.mark.parametrize(("event", "expected"), COUNTED, ids=name_of)
def test_event_counts_exactly(event, expected):
    """An event adds to the samples in the table, and to its kind, and to nothing else."""
    assert {**expected, f"events_total{{kind={core.kind_of(type(event).__name__)}}}": 1} == recorded([event])


@pytest.mark.parametrize("event", NOT_COUNTED, ids=name_of)
def test_event_without_a_metric_counts_its_kind(event):
    """An event that counts nothing else is seen in events_total."""
    assert {f"events_total{{kind={core.kind_of(type(event).__name__)}}}": 1} == recorded([event])


def test_foreign_event_counts_as_other():
    """An event of a plugin that does not ship, and one no build knows, are of kind other."""

    class WeatherChanged(core.Event, frozen=True):
        rain: bool

    events = [WeatherChanged(rain=True), Unknown("weather_changed", b"")]
    assert {"events_total{kind=other}": 2} == recorded(events)


@pytest.mark.parametrize(("notice", "expected"), NOTICES_COUNTED, ids=name_of)
def test_notice_counts_exactly(notice, expected):
    """A notice adds to the samples in the table and to nothing else."""
    registry = CollectorRegistry()
    Recorder(registry, TOOLS, HOOKS).notice(notice)
    assert expected == samples(registry)


@pytest.mark.parametrize("notice", NOTICES_NOT_COUNTED, ids=name_of)
def test_notice_without_a_metric_counts_nothing(notice):
    """A notice that counts nothing changes nothing."""
    registry = CollectorRegistry()
    Recorder(registry, TOOLS, HOOKS).notice(notice)
    assert {} == samples(registry)


def test_abandoned_is_a_level():
    """The number of abandoned tasks goes up and down with the notices."""
    registry = CollectorRegistry()
    recorder = Recorder(registry, TOOLS)
    for count in (1, 2, 1):
        recorder.notice(notices.AbandonedChanged("trio", count))
    assert {"abandoned_tasks{runs_on=trio}": 1} == samples(registry)


def test_abort_buckets_are_fine_around_the_window():
    """Whether an abort kept its 100 ms can be read from the buckets to 10 ms."""
    around = [bound for bound in ABORT_BUCKETS_S if 0.09 <= bound <= 0.12]
    assert [0.09, 0.1, 0.11, 0.12] == around


WORDS = st.sampled_from(["shell", "update_plan", "mcp__a__b", "dynamic__c", "", "other", "é\n"])
RECEIPTS = st.sampled_from(get_args(core.Receipt))
MS = st.integers(0, 10_000)
SECONDS = st.integers(0, 64).map(lambda n: n / 64)  # sums of these are exact
EVENTS = st.one_of(
    st.builds(core.ToolReturned, st.just("c"), RECEIPTS, st.none(), st.just("t"), SECONDS, WORDS),
    st.builds(
        core.ControlCallEnded,
        *(st.just("c"), st.none(), WORDS, MS, MS, st.sampled_from(get_args(core.Outcome))),
    ),
    st.builds(
        core.TurnEnded,
        *(st.just(1), st.sampled_from(get_args(core.TurnReason))),
        cause=st.none() | st.sampled_from(get_args(core.Cause)),
        kind=st.sampled_from(get_args(core.TurnKind)),
        abort_s=st.none() | SECONDS,
        ending=st.none() | st.sampled_from(get_args(core.Ending)),
    ),
    st.builds(facts.ChildEnded, st.just("c"), st.sampled_from(get_args(facts.ChildStatus)), st.just("t")),
    st.builds(core.StepStarted, st.just(1), st.just(1)),
)


def tool_of(name: str) -> str:
    """The label of a tool, said another way than the code says it."""
    if name in TOOLS:
        return name
    return next((kind for kind in ("mcp", "dynamic") if name.startswith(f"{kind}__")), "other")


def naive(events: list[core.Event]) -> dict[str, float]:
    """The counters of some events, counted one by one."""
    count: dict[str, float] = defaultdict(float)
    for event in events:
        count[f"events_total{{kind={core.kind_of(type(event).__name__)}}}"] += 1
        match event:
            case core.ToolReturned(receipt=receipt, name=name, seconds=seconds):
                count[f"tool_calls_total{{receipt={receipt},tool={tool_of(name)}}}"] += 1
                if receipt in TIMED_RECEIPTS:
                    count[f"tool_seconds_count{{receipt={receipt},tool={tool_of(name)}}}"] += 1
                    count[f"tool_seconds_sum{{receipt={receipt},tool={tool_of(name)}}}"] += seconds
            case core.ControlCallEnded(tool=tool, outcome=outcome):
                labels = f"{{outcome={outcome},tool={tool if tool == 'update_plan' else 'other'}}}"
                count[f"control_tool_calls_total{labels}"] += 1
                count[f"control_tool_seconds_count{labels}"] += 1
            case core.TurnEnded(reason=reason, cause=cause, kind=kind):
                label = (
                    (cause or "crash")
                    if reason == "interrupted"
                    else cause
                    if reason == "aborted" and cause
                    else reason
                )
                count[f"turns_total{{kind={kind},reason={label}}}"] += 1
                if event.abort_s is not None:
                    count[f"abort_seconds_count{{ending={event.ending or 'other'}}}"] += 1
                    count[f"abort_seconds_sum{{ending={event.ending or 'other'}}}"] += event.abort_s
            case facts.ChildEnded(status=status):
                count[f"subagents_total{{outcome={status}}}"] += 1
            case core.StepStarted():
                count["steps_total"] += 1
    return {name: value for name, value in count.items() if value}


@given(st.lists(EVENTS, max_size=40))
def test_counters_equal_a_naive_recount(events):
    """Whatever the sequence of events, the counters are what a count by hand gives."""
    counted = recorded(events)
    assert naive(events) == {k: v for k, v in counted.items() if not k.startswith("control_tool_seconds_sum")}

"""Label sets are closed and the same as the actors' words, series are bounded, and registries are never mixed."""

import random
from enum import Enum
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from callboard.actors import events as core
from callboard.actors.childspec import Decision
from callboard.actors.errors import UsageError
from callboard.actors.phase import Phase
from callboard.actors.tool import RunsOn
from callboard.metrics.collector import LEVELS_SERIES_MAX, Collector, Snapshot
from callboard.metrics.families import FOLDED_MAX, SERIES_MAX, Children, Count
from callboard.metrics.labels import DECISION, OTHER, PHASE, RUNS_ON, closed
from callboard.metrics.recorder import Recorder
from callboard.metrics.render import OPENMETRICS, Exposition

from .metrics_samples import HOSTILE, flood, hostile_name, samples, series

TOOLS = ("shell", "read_file", "update_plan")
HOOKS = ("gate",)

# Every metric of the runtime that has a source today.
NAMES = frozenset(
    (
        *("control_tool_calls", "control_tool_seconds", "tool_calls", "tool_seconds"),
        *("turns", "turns_recovered", "turn_seconds", "turn_first_token_seconds", "steps", "step_overhead_seconds"),
        "abort_seconds",
        *(
            "abandoned_tasks",
            "sessions",
            "mailbox_messages",
            "queued_messages",
            "agents_refused",
            "subagents",
            "subagent_depth",
        ),
        *("restarts", "model_requests", "model_seconds", "model_tokens", "model_cost_usd"),
        *("events", "flush_seconds", "flush_batch_events", "store_errors", "loop_lag_seconds"),
        *("questions", "approvals", "reminders", "reminder_lag_seconds", "goal_changes", "goal_rounds"),
        *("plan_mode_seconds", "hook_runs", "subscribers", "subscriber_lagged", "build_info"),
    )
)


def test_every_metric_has_its_name():
    """The registry holds the metrics of the runtime, all of them from the start, and no others."""
    registry = CollectorRegistry()
    Recorder(registry, TOOLS)
    Collector(registry, Snapshot)
    assert {f"callboard_{name}" for name in NAMES} == {family.name for family in registry.collect()}


def values_of(kind: type[Enum]) -> frozenset[str]:
    """The values of an enumeration."""
    return frozenset(member.value for member in kind)


def test_label_sets_are_what_the_actors_say():
    """Sets written out because metrics may not look there are the same as there."""
    assert PHASE.values == values_of(Phase)
    assert DECISION.values == values_of(Decision)
    assert RUNS_ON.values == frozenset(get_args(RunsOn))


@pytest.mark.parametrize("known", [False, True], ids=["unknown", "known"])
def test_no_input_makes_series_without_end(known):
    """Ten thousand names, known or not, leave the registry under its bound and its text readable."""
    rng = random.Random(1)
    names = [hostile_name(rng) for _ in range(5_000)] + [f"tool_{n}" for n in range(5_000)]
    rng.shuffle(names)
    registry = CollectorRegistry()
    recorder = Recorder(registry, names if known else TOOLS, names if known else HOOKS, lambda name: name)
    Collector(registry, lambda: Snapshot(phases=dict.fromkeys(names, 1), mailbox={"\n": 1}))
    flood(recorder, rng, names)
    assert series(registry) <= recorder.series_max + LEVELS_SERIES_MAX <= SERIES_MAX
    plain, other = (Exposition(registry, lambda: 0.0).page(a).body.decode() for a in ("", OPENMETRICS.media_type))
    assert sum(not line.startswith("#") for line in plain.splitlines()) == series(registry)
    assert set(NAMES) == {f.name.removeprefix("callboard_") for f in parse_plain(plain)}
    assert set(NAMES) == {f.name.removeprefix("callboard_") for f in parse_openmetrics(other)}
    assert plain.isascii()
    assert other.isascii()


def test_names_that_could_break_the_text_do_not_get_in():
    """A known name with a quote, a space, a line end or too many letters is counted as other."""
    assert frozenset({"a.b", "mcp__x-y", "2fa"}) == closed("tool", ("a.b", "mcp__x-y", "2fa", *HOSTILE)).values


def test_known_name_wins_over_the_fold():
    """A tool the host knows keeps its name, though it looks like one from outside."""
    registry = CollectorRegistry()
    recorder = Recorder(registry, ["mcp__mine"])
    for name in ("mcp__mine", "mcp__theirs", "mcp"):
        recorder.event(core.ToolReturned("c", "rejected", "rejected", "", 0.0, name))
    counted = samples(registry)
    assert 1 == counted["tool_calls_total{receipt=rejected,tool=mcp__mine}"]
    assert 2 == counted["tool_calls_total{receipt=rejected,tool=mcp}"]


def test_child_beyond_the_bound_counts_under_other():
    """When a metric has as many children as it may, a new combination is counted under other, and none is lost."""
    children = Children(lambda values: Count(), (closed("a", "bcdef"),), children_max=3)
    for letter in "bcdefbcdef":
        children[letter,].inc()
    assert {"b": 2, "c": 2, OTHER: 6} == {values[0]: child.value for values, child in children.items()}


def test_memory_of_folded_names_is_bounded():
    """Names that fold are remembered up to a bound, and long ones not at all."""
    children = Children(lambda values: Count(), (closed("a", "b"),), children_max=2)
    for n in range(3 * FOLDED_MAX + 1):
        children[f"name {n}",].inc()
        children["long" * 100 + str(n),].inc()
    assert FOLDED_MAX >= len(children._folded)
    assert [("b",), (OTHER,)] == list(children)


def test_what_fits_is_there_from_the_start():
    """Where all combinations fit under the bound the known ones begin at 0, and else a child comes with its use."""
    labels = closed("a", "bc"), closed("d", "e")
    whole, bounded = (Children(lambda values: Count(), labels, children_max=n) for n in (6, 5))
    assert [("b", "e"), ("c", "e")] == list(whole)
    assert [] == list(bounded)


def test_first_error_is_an_increase():
    """What alerts look at is in the very first scrape: a series that begins at 1 would be no increase to Prometheus."""
    registry = CollectorRegistry()
    Recorder(registry, TOOLS, HOOKS)
    seen = {(s.name, *s.labels.values()) for family in registry.collect() for s in family.samples}
    assert {
        ("callboard_store_errors_total", "failed"),
        ("callboard_restarts_total", "escalate"),
        ("callboard_abort_seconds_count", "abandoned"),
        ("callboard_abandoned_tasks", "thread"),
        ("callboard_hook_runs_total", "gate", "failed"),
        ("callboard_control_tool_calls_total", "update_plan", "failed"),
        ("callboard_approvals_total", "unavailable"),
        ("callboard_goal_changes_total", "block"),
        ("callboard_goal_rounds_total", "failed"),
        ("callboard_model_requests_total", "openai", "failed"),
        ("callboard_subscriber_lagged_total",),
    } <= seen


def test_second_runtime_on_a_registry_is_refused():
    """A registry that has our metrics is refused by name, and what was counted there stays."""
    registry = CollectorRegistry()
    first = Recorder(registry, TOOLS)
    first.event(core.StepStarted(1, 1))
    Collector(registry, Snapshot)
    for again in (lambda: Recorder(registry, TOOLS), lambda: Collector(registry, Snapshot)):
        with pytest.raises(UsageError, match="pass each runtime a CollectorRegistry of its own"):
            again()
    first.event(core.StepStarted(1, 2))
    assert {"events_total{kind=step_started}": 2, "steps_total": 2} == samples(registry)


def test_refused_registry_is_left_as_it_was():
    """When one name is taken, none of ours is left behind."""
    registry = CollectorRegistry()
    Counter("callboard_hook_runs", "not ours", registry=registry)
    with pytest.raises(UsageError, match="callboard_hook_runs"):
        Recorder(registry, TOOLS)
    assert ["callboard_hook_runs"] == [family.name for family in registry.collect()]


def test_levels_are_asked_for_at_scrape():
    """Levels come from one snapshot per scrape, every phase is there, and unknown phases are added up as other."""
    asked = []

    def snapshot() -> Snapshot:
        asked.append(1)
        return Snapshot({"idle": 3, "a": 1, "b": 2}, {"running": 4}, {"idle": 5}, subscribers=6)

    registry = CollectorRegistry()
    Collector(registry, snapshot)
    assert [] == asked
    assert {
        "sessions{phase=idle}": 3,
        "sessions{phase=other}": 3,
        "mailbox_messages{phase=running}": 4,
        "queued_messages{phase=idle}": 5,
        "subscribers": 6,
    } == samples(registry)
    assert [1] == asked
    assert 3 * len(PHASE.values) + 2 == series(registry)

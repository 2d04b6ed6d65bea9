"""What the tests of metrics share: a registry as plain numbers, and a flood of names nobody asked for."""

import random
from collections.abc import Callable
from typing import Any, get_args

from prometheus_client import CollectorRegistry, Gauge

from callboard.actors import events as core
from callboard.actors import facts, notices
from callboard.actors.envelope import Unknown
from callboard.metrics.collector import Collector, Snapshot
from callboard.metrics.families import SERIES_MAX
from callboard.metrics.recorder import Recorder

USAGE = core.Usage(input=100, cached=60, output=20, reasoning=5, cost_usd=0.25)


def samples(registry: CollectorRegistry) -> dict[str, float]:
    """Samples that are not 0, `name{label=value,...}` without the prefix; no buckets, levels or times of creation."""
    found = {}
    for family in registry.collect():
        assert family.name.startswith("callboard_"), family.name
        for sample in family.samples:
            name = sample.name.removeprefix("callboard_")
            if name.endswith(("_bucket", "_created", "build_info")) or not sample.value:
                continue
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
            found[f"{name}{{{labels}}}" if labels else name] = sample.value
    return found


def series(registry: CollectorRegistry) -> int:
    """How many series the registry makes, times of creation left out."""
    return sum(s.name != f"{f.name}_created" for f in registry.collect() for s in f.samples)


def fill(registry: CollectorRegistry) -> None:
    """Metrics of a host application, up to the most series that ours may make."""
    gauge = Gauge("host_level", "A level of the host application.", ("place",), registry=registry)
    for n in range(SERIES_MAX - series(registry)):
        gauge.labels(f"place_{n}").set(n)


HOSTILE = (
    '"',
    "\\",
    "\n",
    'a"} 1\nevil_total 9',
    "a\x00b",
    "\x1b[31m",
    " ",
    "",
    "é",
    "\ud800",
    "x" * 10_000,
    "# EOF\n",
)


def hostile_name(rng: random.Random) -> str:
    """A name nobody asked for."""
    if rng.random() < 0.1:
        return rng.choice(HOSTILE)
    return "".join(chr(rng.randrange(0x250)) for _ in range(rng.randrange(24)))


def plugged(recorder: Recorder, session: str, word: Callable[..., Any]) -> None:
    """Everything that the events of plugins count, in a session of any name."""
    recorder.event(facts.QuestionAnswered("q", word(*get_args(facts.AnswerEnding))))
    recorder.event(facts.ApprovalDecided("a", word(*get_args(facts.Decision))))
    recorder.event(facts.ReminderFired("schedule-1", 1_000, None, 2_000), session, 1)
    goal = facts.Goal("goal-1", 1, "ship it", "active", 256)
    recorder.event(facts.GoalChanged(word(*get_args(facts.GoalOperation)), goal))
    recorder.event(core.MessagesClaimed(("goal:goal-1:1:1",)), session, 1)
    recorder.event(core.TurnEnded(1, word(*get_args(core.TurnReason)), word(*get_args(core.Cause))), session, 1)
    for active in (True, False):
        recorder.event(facts.PlanModeSet(active), session)


def flood(recorder: Recorder, rng: random.Random, names: list[str]) -> None:
    """Give the recorder everything it counts by name, with a name of the list or any other for each label."""

    def word(*known: str) -> Any:
        return rng.choice((*known, rng.choice(names), hostile_name(rng)))

    for name in names:
        tool = rng.choice((name, rng.choice(names)))
        receipt, outcome = word(*get_args(core.Receipt)), word(*get_args(core.Outcome))
        recorder.event(core.ToolReturned("c", receipt, None, "t", 0.1, tool))
        recorder.event(core.ControlCallEnded("c", None, word("update_plan", "get_goal"), 1, 2, outcome))
        reason, cause = word(*get_args(core.TurnReason)), word(*get_args(core.Cause))
        kind, ending = word(*get_args(core.TurnKind)), word(*get_args(core.Ending))
        recorder.event(
            core.TurnEnded(
                *(1, reason, cause),
                kind=kind,
                abort_s=0.1,
                ending=ending,
                started_ms=1_000,
                ended_ms=3_500,
                first_token_ms=250,
            )
        )
        provider = word("openai", "replay", "scripted", "anthropic")
        recorder.event(core.ModelSaid("", provider=provider, usage=USAGE, truncated=rng.random() < 0.5))
        recorder.event(core.ModelFailed("", provider=provider, retryable=rng.random() < 0.5))
        recorder.event(facts.ChildEnded("c", word(*get_args(facts.ChildStatus)), ""))
        plugged(recorder, name, word)
        recorder.event(Unknown(name, b""))
        recorder.notice(notices.HookRan(tool, word("ok", "failed", "blocked")))
        recorder.notice(notices.ChildRestarted("c", word("restart", "forget")))
        recorder.notice(notices.AgentRefused(word("depth_max", "tokens_max")))
        recorder.notice(notices.LoopLagged(word("trio", "asyncio"), 0.1))
        recorder.notice(notices.AbandonedChanged(word("trio", "thread"), 1))


def full() -> CollectorRegistry:
    """A registry with about as many series as there can be."""
    registry = CollectorRegistry()
    names = [f"tool_{n}" for n in range(400)]
    recorder = Recorder(registry, names, names)
    Collector(registry, Snapshot)
    flood(recorder, random.Random(2), names)
    return registry

"""What must be true once a machine has come to rest: on its log, in its folds, and in its metrics."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from prometheus_client import CollectorRegistry
from tests.pure.metrics_samples import samples

from callboard.actors.books import HISTORY, PARKED, QUEUE, TURN
from callboard.actors.claim import next_start
from callboard.actors.events import (
    ControlCallEnded,
    Event,
    MessageQueued,
    ModelFailed,
    ModelSaid,
    StepStarted,
    ToolReturned,
    TurnEnded,
    kind_of,
)
from callboard.actors.mode import MODE
from callboard.actors.testing import LabSession, check_messages
from callboard.metrics.recorder import Recorder

from .strict import check_history, check_log, of_kind


def check_promises(records: Sequence[Event], session: LabSession, accepted: Collection[str]) -> None:
    """One end a turn, one result a call, one fate a message; nothing accepted is missing, nothing waits for nobody."""
    check_log(records)
    check_history(session.state(HISTORY).messages)
    queue = session.state(QUEUE)
    check_messages(records, [message.id for message in queue])
    assert set(accepted) <= {e.id for e in of_kind(records, MessageQueued)}, "what was accepted is not on the log"
    start = next_start(queue, parked=session.state(PARKED), plan_mode=session.state(MODE).active)
    assert start is None, "something waits for its turn"
    ends = of_kind(records, TurnEnded)
    assert len(ends) == session.state(TURN).number
    assert sum(len(e.receipts) for e in ends) == len(of_kind(records, ToolReturned))
    assert all(e.abort_s is None or e.abort_s <= 0.1 + 1e-6 for e in ends)


def check_counts(live: Iterable[Event], logged: Sequence[Event], tools: Sequence[str]) -> None:
    """The metrics, fed with what was told while it happened, say what the log says."""
    registry = CollectorRegistry()
    recorder = Recorder(registry, tools)
    for event in live:
        recorder.event(event)
    expected: Counter[str] = Counter(f"events_total{{kind={kind_of(type(event).__name__)}}}" for event in logged)
    expected.update(f"tool_calls_total{{{_tool(e, tools)}}}" for e in of_kind(logged, ToolReturned))
    counted = {name: value for name, value in samples(registry).items() if name.startswith(("events_", "tool_calls_"))}
    known = {name: count for name, count in expected.items() if "kind=marked" not in name}
    assert known == {name: value for name, value in counted.items() if "kind=other" not in name}
    sums: Counter[str] = Counter()
    for name, value in samples(registry).items():
        sums[name.split("{")[0]] += round(value)
    assert sums["turns_total"] == len(of_kind(logged, TurnEnded))
    assert sums["steps_total"] == len(of_kind(logged, StepStarted))
    assert sums["control_tool_calls_total"] == len(of_kind(logged, ControlCallEnded))
    assert sums["model_requests_total"] == len(of_kind(logged, ModelSaid, ModelFailed))
    assert sums["abort_seconds_count"] == sum(e.abort_s is not None for e in of_kind(logged, TurnEnded))


def _tool(event: ToolReturned, tools: Sequence[str]) -> str:
    return f"receipt={event.receipt},tool={event.name if event.name in tools else 'other'}"

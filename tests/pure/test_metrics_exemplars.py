"""Exemplars: the turn behind a value of a histogram, in OpenMetrics alone."""

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from callboard.actors import events as core
from callboard.actors.facts import ChildEnded
from callboard.metrics.recorder import Recorder
from callboard.metrics.render import OPENMETRICS, Exposition

from .metrics_samples import USAGE

# What is observed once in a turn -> the histograms that name the turn afterwards.
NAMED: tuple[tuple[core.Event, set[str]], ...] = (
    (core.StepEnded(7, 1, 0.25), {"step_overhead_seconds"}),
    (core.ModelSaid("hi", usage=USAGE, seconds=2.0), {"model_seconds"}),
    (core.ModelFailed("busy", seconds=1.0), {"model_seconds"}),
    (core.ToolReturned("c", "completed", "completed", "text", 0.5, "shell"), {"tool_seconds"}),
    (core.ControlCallEnded("c", None, "update_plan", 1, 2, "failed"), {"control_tool_seconds"}),
    (
        core.TurnEnded(7, "aborted", started_ms=1, ended_ms=2, first_token_ms=1, abort_s=0.1, ending="graceful"),
        {"turn_seconds", "turn_first_token_seconds", "abort_seconds"},
    ),
    (ChildEnded("c", "failed", "text"), set()),
)


def exemplars(registry: CollectorRegistry) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The exemplars of each metric, as OpenMetrics' own parser reads them."""
    text = Exposition(registry, lambda: 0.0).page(OPENMETRICS.media_type).body.decode()
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in parse_openmetrics(text):
        for sample in family.samples:
            if sample.exemplar:
                name = family.name.removeprefix("callboard_")
                found.setdefault(name, []).append((sample.exemplar.labels, sample.exemplar.value))
    return found


@pytest.mark.parametrize(("event", "named"), NAMED, ids=lambda value: type(value).__name__)
def test_histograms_name_the_turn(event, named):
    """Each histogram that an event of a turn adds to names the session and the turn of its last value."""
    registry = CollectorRegistry()
    Recorder(registry, ["shell"]).event(event, "s-1", 7)
    found = exemplars(registry)
    assert named == set(found)
    assert all([{"session": "s-1", "turn": "7"}] == [labels for labels, _ in values] for values in found.values())


def test_last_value_of_a_bucket_is_the_example():
    """Each bucket shows its own last value, and a value observed later leaves the other buckets theirs."""
    registry = CollectorRegistry()
    recorder = Recorder(registry, ())
    for turn, overhead_s in enumerate((0.04, 0.045, 0.08)):
        recorder.event(core.StepEnded(turn, 1, overhead_s), "s", turn)
    shown = [({"session": "s", "turn": "1"}, 0.045), ({"session": "s", "turn": "2"}, 0.08)]
    assert {"step_overhead_seconds": shown} == exemplars(registry)


@pytest.mark.parametrize("session", ["", "a b", 'a"} 1', "a\nb", "é", "x" * 65, "x" * 1_000_000])
def test_session_whose_id_is_not_plain_is_no_example(session):
    """An id that would need quoting, or is too long for an exemplar, is left out; the value is counted all the same."""
    registry = CollectorRegistry()
    Recorder(registry, ()).event(core.StepEnded(1, 1, 0.25), session, 1)
    assert {} == exemplars(registry)
    assert 1 == registry.get_sample_value("callboard_step_overhead_seconds_count")


def test_plain_text_has_no_exemplars():
    """Prometheus text knows no exemplars: it is the same whether turns are named or not."""
    texts = []
    for session, turn in (("s", 1), ("", None)):
        registry = CollectorRegistry()
        Recorder(registry, ()).event(core.StepEnded(1, 1, 0.25), session, turn)
        texts.append(Exposition(registry, lambda: 0.0).page().body)
    assert texts[0] == texts[1]


def test_longest_example_fits_the_format():
    """The longest plain id and the largest turn stay under the 128 characters that OpenMetrics gives an exemplar."""
    registry = CollectorRegistry()
    Recorder(registry, ()).event(core.StepEnded(1, 1, 0.25), "x" * 64, 2**63)
    ((labels, _),) = exemplars(registry)["step_overhead_seconds"]
    assert 128 > sum(len(name) + len(value) for name, value in labels.items())

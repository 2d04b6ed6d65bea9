"""Levels that are asked for when somebody looks: sessions, mailboxes, queues, subscribers."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import attrs
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector as PrometheusCollector

from callboard.metrics.families import PREFIX, already_there
from callboard.metrics.labels import PHASE, PHASES

NOTHING: Mapping[str, int] = MappingProxyType({})
BY_PHASE = (
    ("sessions", "phases", "Open sessions by phase."),
    ("mailbox_messages", "mailbox", "Messages waiting in mailboxes, by the phase of their session."),
    ("queued_messages", "queued", "Accepted input that waits for a turn, by the phase of its session."),
)
LEVELS_SERIES_MAX = len(BY_PHASE) * (len(PHASES) + 1) + 1


@attrs.frozen
class Snapshot:
    """How things stand: sessions, mailbox messages and queued messages by phase, and the number of subscribers."""

    phases: Mapping[str, int] = NOTHING
    mailbox: Mapping[str, int] = NOTHING
    queued: Mapping[str, int] = NOTHING
    subscribers: int = 0


class Collector(PrometheusCollector):
    """Registers itself and asks `snapshot` once per scrape.

    `snapshot` is called where the text is rendered, which is a thread of its own when the metrics server renders: it
    answers from counts that are kept, and walks nothing a loop is changing. A phase not known is counted as `other`.
    Raises `UsageError` when the registry already has these metrics.
    """

    series_max = LEVELS_SERIES_MAX

    def __init__(self, registry: CollectorRegistry, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        try:
            registry.register(self)
        except ValueError as taken:
            raise already_there(taken) from None

    def describe(self) -> Iterable[Metric]:
        """The families without values, so that registering asks nobody."""
        names = (*(name for name, _, _ in BY_PHASE), "subscribers")
        return [GaugeMetricFamily(PREFIX + name, "") for name in names]

    def collect(self) -> Iterable[Metric]:
        """The families as they stand now; every phase is there, at 0 when no session is in it."""
        now = self._snapshot()
        for name, field, text in BY_PHASE:
            family = GaugeMetricFamily(PREFIX + name, text, labels=[PHASE.name])
            for phase, count in _by_phase(getattr(now, field)).items():
                family.add_metric([phase], count)
            yield family
        yield GaugeMetricFamily(PREFIX + "subscribers", "Readers of session events.", value=now.subscribers)


def _by_phase(counts: Mapping[str, int]) -> dict[str, int]:
    folded = dict.fromkeys(PHASES, 0)
    for phase, count in counts.items():
        known = PHASE.of(phase)
        folded[known] = folded.get(known, 0) + count
    return folded

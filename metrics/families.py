"""The metrics of one registry: named, with bounded children, and with the sum of the series they can ever make."""

from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from callboard.actors.errors import UsageError
from callboard.metrics.labels import OTHER, Label

SERIES_MAX = 2_000  # in total; a render of more would take too long beside a 100 ms abort window
PREFIX = "callboard_"
FOLDED_MAX = 256  # remembered combinations of one metric; then they are forgotten together
FOLDED_CHARS_MAX = 128

M = TypeVar("M", bound=MetricWrapperBase)


class Children(dict[tuple[str, ...], M], Generic[M]):
    """The children of one labelled metric: `children[values]` makes one at its first use and keeps it.

    Unknown values fold to `other`. At most `children_max` are made: a combination beyond is counted under `other`
    in every label. Where short values folded to is remembered, for up to `FOLDED_MAX` combinations.
    """

    def __init__(self, metric: M, labels: tuple[Label, ...], children_max: int) -> None:
        super().__init__()
        self.metric, self.labels, self.children_max = metric, labels, children_max
        self._rest = (OTHER,) * len(labels)
        self._folded: dict[tuple[str, ...], M] = {}

    def __missing__(self, values: tuple[str, ...]) -> M:
        """The child of values that are new, or not in the sets."""
        child = self._folded.get(values)
        if child is None:
            child = self._child(values)
            if values not in self and sum(map(len, values)) <= FOLDED_CHARS_MAX:
                if len(self._folded) >= FOLDED_MAX:
                    self._folded.clear()
                self._folded[values] = child
        return child

    def _child(self, values: tuple[str, ...]) -> M:
        key = tuple(label.of(value) for label, value in zip(self.labels, values, strict=True))
        if key not in self and len(self) >= self.children_max - (self._rest not in self):
            key = self._rest
        child = self.get(key)
        if child is None:
            child = self[key] = self.metric.labels(*key)
        return child


class Shelf:
    """Makes the metrics of one registry and sums up how many series they can ever make."""

    def __init__(self) -> None:
        self.series_max = 0
        self._made: list[Collector] = []

    def counter(self, name: str, text: str, *labels: Label, children_max: int | None = None) -> Children[Counter]:
        """A counter `callboard_NAME`."""
        return self._children(Counter(PREFIX + name, text, _names(labels), registry=None), labels, children_max, 1)

    def histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: Label, children_max: int | None = None
    ) -> Children[Histogram]:
        """A histogram `callboard_NAME`; `buckets` are upper bounds without the last, infinite one."""
        made = Histogram(PREFIX + name, text, _names(labels), buckets=buckets, registry=None)
        return self._children(made, labels, children_max, len(buckets) + 3)  # and +Inf, sum, count

    def gauge(self, name: str, text: str, *labels: Label) -> Children[Gauge]:
        """A gauge `callboard_NAME`."""
        return self._children(Gauge(PREFIX + name, text, _names(labels), registry=None), labels, None, 1)

    def add(self, collector: Collector, series_max: int) -> None:
        """A collector made elsewhere, which makes at most `series_max` series."""
        self.series_max += series_max
        self._made.append(collector)

    def register(self, registry: CollectorRegistry) -> None:
        """Put all metrics made here into the registry, or none; raises `UsageError` when it has one of them."""
        done: list[Collector] = []
        try:
            for metric in self._made:
                registry.register(metric)
                done.append(metric)
        except ValueError as taken:
            for metric in done:
                registry.unregister(metric)
            raise already_there(taken) from None

    def _children(self, metric: M, labels: tuple[Label, ...], children_max: int | None, series: int) -> Children[M]:
        product = 1
        for label in labels:
            product *= len(label.values) + 1
        bound = product if children_max is None else min(children_max, product)
        self.add(metric, bound * series)
        children = Children(metric, labels, bound)
        if not labels:
            children[()] = metric
        return children


def already_there(taken: ValueError) -> UsageError:
    """What to say when a registry already holds metrics of these names."""
    return UsageError(
        f"this registry already has metrics of a runtime ({taken}): "
        "pass each runtime a CollectorRegistry of its own, and serve or merge them apart."
    )


def _names(labels: tuple[Label, ...]) -> tuple[str, ...]:
    return tuple(label.name for label in labels)

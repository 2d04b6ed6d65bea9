"""The metrics of one registry: named, with bounded children, and with the sum of the series they can ever make."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import accumulate, product
from typing import Any, Generic, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry, Gauge, Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from callboard.actors.errors import UsageError
from callboard.metrics.labels import NAME_PATTERN, OTHER, Label

SERIES_MAX = 2_000  # in total; a render of more would take too long beside a 100 ms abort window
PREFIX = "callboard_"
FOLDED_MAX = 256  # remembered combinations of one metric; then they are forgotten together
FOLDED_CHARS_MAX = 128

M = TypeVar("M")
TurnId: TypeAlias = tuple[str, int | None]  # the session, and the number of its turn; outside of turns None
NOWHERE: TurnId = ("", None)
Counting: TypeAlias = Callable[[Any, TurnId], None]  # what one kind of event counts
Bucket: TypeAlias = tuple[str, float] | tuple[str, float, Exemplar]


class Count:
    """A number that only grows. Plain, because one thread counts: prometheus-client's takes a lock each time."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Add."""
        self.value += amount


class Spread:
    """How observed values spread over buckets, `bounds` the upper ones; as plain as `Count`, for the same reason.

    Each bucket remembers its last value with the turn it came from.
    """

    __slots__ = ("bounds", "counts", "last", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.last: list[tuple[float, TurnId] | None] = [None] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, turn: TurnId = NOWHERE) -> None:
        """Count one value."""
        bucket = bisect_left(self.bounds, value)
        self.counts[bucket] += 1
        self.last[bucket] = value, turn
        self.total += value


class Children(dict[tuple[str, ...], M], Generic[M]):
    """The children of one labelled metric: `children[values]` makes one at its first use and keeps it.

    Where every combination fits, all known ones are there from the start, at 0: Prometheus sees no increase in a series
    that begins at 1, and the first error would raise no alert. Unknown values fold to `other`. At most `children_max`
    are made: one more is counted under `other` in every label. Where short values folded to is remembered, for up to
    `FOLDED_MAX` combinations.
    """

    def __init__(self, make: Callable[[tuple[str, ...]], M], labels: tuple[Label, ...], children_max: int) -> None:
        super().__init__()
        self.make, self.labels, self.children_max = make, labels, children_max
        self._rest = (OTHER,) * len(labels)
        self._folded: dict[tuple[str, ...], M] = {}
        if children_max >= _combinations(labels):
            for values in product(*(sorted(label.values) for label in labels)):
                self[values] = make(values)

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
            child = self[key] = self.make(key)
        return child


class Counters(Collector):
    """A family of `Count`s as prometheus-client reads it."""

    def __init__(self, name: str, text: str, children: Children[Count]) -> None:
        self._name, self._text, self._children = name, text, children

    def describe(self) -> Iterable[Metric]:
        """The family without values."""
        return [CounterMetricFamily(self._name, self._text, labels=_names(self._children.labels))]

    def collect(self) -> Iterable[Metric]:
        """The family as it is now."""
        family = CounterMetricFamily(self._name, self._text, labels=_names(self._children.labels))
        for values, child in tuple(self._children.items()):
            family.add_metric(values, child.value)
        return [family]


class Histograms(Collector):
    """A family of `Spread`s as prometheus-client reads it; exemplars are written in OpenMetrics alone."""

    def __init__(self, name: str, text: str, bounds: tuple[float, ...], children: Children[Spread]) -> None:
        self._name, self._text, self._children = name, text, children
        self._bounds = [*(str(float(bound)) for bound in bounds), "+Inf"]

    def describe(self) -> Iterable[Metric]:
        """The family without values."""
        return [HistogramMetricFamily(self._name, self._text, labels=_names(self._children.labels))]

    def collect(self) -> Iterable[Metric]:
        """The family as it is now."""
        family = HistogramMetricFamily(self._name, self._text, labels=_names(self._children.labels))
        for values, child in tuple(self._children.items()):
            buckets = list(map(_bucket, self._bounds, accumulate(child.counts), child.last))
            family.add_metric(values, buckets, child.total)
        return [family]


class Shelf:
    """Makes the metrics of one registry and sums up how many series they can ever make."""

    def __init__(self) -> None:
        self.series_max = 0
        self._made: list[Collector] = []

    def counter(self, name: str, text: str, *labels: Label, children_max: int | None = None) -> Children[Count]:
        """A counter `callboard_NAME`."""
        children = Children(lambda _: Count(), labels, _bound(labels, children_max))
        self.add(Counters(PREFIX + name, text, children), children.children_max)
        return children

    def histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: Label, children_max: int | None = None
    ) -> Children[Spread]:
        """A histogram `callboard_NAME`; `buckets` are upper bounds without the last, infinite one."""
        children = Children(lambda _: Spread(buckets), labels, _bound(labels, children_max))
        made = Histograms(PREFIX + name, text, buckets, children)
        self.add(made, children.children_max * (len(buckets) + 3))  # and +Inf, sum, count
        return children

    def gauge(self, name: str, text: str, *labels: Label) -> Children[Gauge]:
        """A gauge `callboard_NAME`."""
        made = Gauge(PREFIX + name, text, _names(labels), registry=None)
        children = Children(lambda values: made.labels(*values) if values else made, labels, _bound(labels, None))
        self.add(made, children.children_max)
        return children

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


def _combinations(labels: tuple[Label, ...]) -> int:
    """Of all values, `other` among them."""
    return math.prod(len(label.values) + 1 for label in labels)


def _bound(labels: tuple[Label, ...], children_max: int | None) -> int:
    """How many children there can be: all combinations, or fewer where that is asked for."""
    whole = _combinations(labels)
    return whole if children_max is None else min(children_max, whole)


def already_there(taken: ValueError) -> UsageError:
    """What to say when a registry already holds metrics of these names."""
    return UsageError(
        f"this registry already has metrics of a runtime ({taken}): "
        "pass each runtime a CollectorRegistry of its own, and serve or merge them apart."
    )


def _bucket(bound: str, count: float, last: tuple[float, TurnId] | None) -> Bucket:
    """A bucket, with the turn behind its last value where it came from one whose session's id is plain."""
    if last is None:
        return bound, count
    value, (session, turn) = last
    if turn is None or NAME_PATTERN.fullmatch(session) is None:
        return bound, count
    return bound, count, Exemplar({"session": session, "turn": str(turn)}, value)


def _names(labels: tuple[Label, ...]) -> tuple[str, ...]:
    return tuple(label.name for label in labels)

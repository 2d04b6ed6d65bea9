"""What the tests of the dashboard and the alerts share: both files, and the metric names and labels inside PromQL."""

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Metric

from callboard.metrics.collector import Collector, Snapshot
from callboard.metrics.recorder import Recorder

FOLDER = Path(__file__).resolve().parents[2] / "metrics" / "dashboards"
ALERTS = FOLDER / "alerts.yml"
DASHBOARD = FOLDER / "callboard.json"

STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')
NAME = re.compile(r"\bcallboard_[a-z0-9_]*\b")
SELECTOR = re.compile(r"\b(callboard_[a-z0-9_]*)\{([^}]*)\}")
MATCHER = re.compile(r'\s*(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"\s*(?:,|$)')
SAMPLES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
SCRAPED = frozenset({"job", "instance"})  # labels that the scrape adds


def dashboard() -> dict[str, Any]:
    """The dashboard, parsed."""
    read: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return read


def panels() -> list[dict[str, Any]]:
    """Every panel that is no heading."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    """Every query of the dashboard."""
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def expressions() -> list[str]:
    """Every expression of the alert rules: on the line of `expr:`, or indented below it."""
    found: list[str] = []
    indent: int | None = None
    for line in ALERTS.read_text(encoding="utf-8").splitlines():
        depth = len(line) - len(line.lstrip())
        if indent is not None and depth > indent:
            found[-1] += line.strip() + " "
            continue
        indent = None
        key, _, rest = line.strip().partition(": ")
        if key == "expr":
            found.append("" if rest == "|" else rest)
            indent = depth if rest == "|" else None
    return found


def names_in(promql: str) -> set[str]:
    """The metrics that an expression asks for; what stands in quotes is none."""
    return set(NAME.findall(STRING.sub('""', promql)))


def matchers_in(promql: str) -> Iterator[tuple[str, str, str, str]]:
    """Metric, label, operator and value of each matcher in an expression."""
    for name, inside in SELECTOR.findall(promql):
        matched = list(MATCHER.finditer(inside))
        assert inside == "".join(one.group(0) for one in matched), f"not understood: {inside}"
        for one in matched:
            yield name, *one.groups()


def families() -> list[Metric]:
    """What a runtime's registry exposes."""
    registry = CollectorRegistry()
    Recorder(registry, ("shell", "update_plan"), ("gate",))
    Collector(registry, Snapshot)
    return list(registry.collect())


@functools.cache
def sample_names() -> dict[str, Metric]:
    """The names that can be asked for, each with its family: a counter's `_total`, a histogram's three."""
    return {family.name + suffix: family for family in families() for suffix in SAMPLES[family.type]}

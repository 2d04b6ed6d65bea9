"""The dashboard and the alert rules that ship ask only for what a runtime exposes, and Grafana can draw them."""

import functools
import re
from collections import Counter
from itertools import combinations

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from callboard.metrics import labels as of
from callboard.metrics.render import Exposition

from .dashboard_files import (
    ALERTS,
    NAME,
    SCRAPED,
    dashboard,
    expressions,
    families,
    matchers_in,
    names_in,
    panels,
    queries,
    sample_names,
)
from .metrics_samples import full

ALL = [*queries(), *expressions()]
CLOSED = {
    ("sessions", "phase"): of.PHASE,
    ("control_tool_calls", "outcome"): of.OUTCOME,
    ("control_tool_calls", "tool"): of.CONTROL_TOOL,
    ("model_requests", "result"): of.RESULT,
    ("store_errors", "kind"): of.STORE_ERROR,
    ("restarts", "decision"): of.DECISION,
    ("agents_refused", "limit"): of.LIMIT,
    ("hook_runs", "status"): of.HOOK_STATUS,
    ("approvals", "decision"): of.APPROVAL,
    ("goal_changes", "operation"): of.GOAL_OPERATION,
    ("goal_rounds", "result"): of.ROUND,
    ("abandoned_tasks", "runs_on"): of.RUNS_ON,
}


@functools.cache
def labels_of() -> dict[str, dict[str, set[str]]]:
    """The labels of every sample of a registry in full use, and their values."""
    found: dict[str, dict[str, set[str]]] = {}
    for family in full().collect():
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found


def test_sample_names_are_those_of_the_text():
    """The rule by which names are derived from types is the one the exposition follows."""
    registry = full()
    shown = {s.name for f in parse_plain(Exposition(registry, lambda: 0.0).page().body.decode()) for s in f.samples}
    assert set(sample_names()) == shown


@pytest.mark.parametrize(
    ("promql", "expected"),
    [
        ("callboard_a_total", {"callboard_a_total"}),
        ('rate(callboard_a_total{x="callboard_b"}[5m]) / callboard_c', {"callboard_a_total", "callboard_c"}),
        ("callboard_a_bucket{y='callboard_\\'d'}", {"callboard_a_bucket"}),
        ("sum by (callboardish) (other_callboard_x)", set()),
        ('a{b="\\""} + callboard_e{}', {"callboard_e"}),
    ],
)
def test_names_are_found_in_promql(promql, expected):
    """Metric names are found beside functions, selectors and ranges, and not inside of quotes."""
    assert expected == names_in(promql)


def test_every_expression_is_read():
    """No rule is overlooked by the reader of the rules file, and no panel is without a query."""
    text = ALERTS.read_text(encoding="utf-8")
    assert text.count("- alert: ") == len(expressions()) == len([e for e in expressions() if names_in(e)])
    assert all(names_in(query) for query in queries())


@pytest.mark.parametrize("promql", ALL)
def test_query_asks_for_what_there_is(promql):
    """Every metric in a query exists, its matchers name labels it has, and their values are in its closed sets."""
    known, labels = sample_names(), labels_of()
    assert set() == names_in(promql) - set(known)
    for name, label, operator, value in matchers_in(promql):
        assert label in SCRAPED.union(labels[name]), (name, label)
        if label == "le":
            assert value in labels[name]["le"], (name, value)
        elif label not in SCRAPED:
            values = CLOSED[known[name].name.removeprefix("callboard_"), label].values | {of.OTHER}
            assert set(value.split("|") if operator in ("=~", "!~") else [value]) <= values, (name, label, value)


@pytest.mark.parametrize("promql", ALL)
def test_grouping_is_by_labels_there_are(promql):
    """What a query groups by is a label of a metric in it, or one that the scrape adds."""
    has = SCRAPED.union(*(labels_of()[name] for name in names_in(promql)))
    for group in re.findall(r"\bby \(([^)]*)\)", promql):
        assert {label.strip() for label in group.split(",")} <= has


def test_names_in_the_texts_of_alerts_exist():
    """A description that sends the reader to a metric names one that exists."""
    known = set(sample_names()) | {family.name for family in families()}
    assert set() == set(NAME.findall(ALERTS.read_text(encoding="utf-8"))) - known


def test_every_metric_is_drawn():
    """Each metric of a runtime is on the dashboard."""
    known = sample_names()
    drawn = {known[name].name for query in queries() for name in names_in(query)}
    assert set() == {family.name for family in families()} - drawn


def test_dashboard_is_what_grafana_reads():
    """Grafana finds a schema, an id to keep it under, a time range, and the variables that the queries use."""
    read = dashboard()
    assert read["schemaVersion"] >= 36
    assert (None, "callboard", "Callboard") == (read["id"], read["uid"], read["title"])
    assert {"from": "now-1h", "to": "now"} == read["time"]
    variables = {variable["name"]: variable for variable in read["templating"]["list"]}
    assert ("datasource", "prometheus") == (variables["datasource"]["type"], variables["datasource"]["query"])
    used = set(re.findall(r"\$\{?([a-z]+)", " ".join(queries())))
    assert used <= set(variables)
    assert all("callboard_build_info" in variables[name]["query"]["query"] for name in SCRAPED)


def test_panels_have_what_grafana_needs():
    """Ids are unique, every panel has a type, a title, a description and queries on the chosen Prometheus."""
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    every = dashboard()["panels"]
    assert [] == [id_ for id_, count in Counter(panel["id"] for panel in every).items() if count > 1]
    assert [] == [t for t, count in Counter(panel["title"] for panel in panels()).items() if count > 1]
    for panel in panels():
        assert panel["type"] in ("timeseries", "stat")
        assert panel["title"]
        assert panel["description"]
        assert chosen == panel["datasource"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert [chosen] * len(panel["targets"]) == [target["datasource"] for target in panel["targets"]]
        assert list("ABCDEFG"[: len(panel["targets"])]) == [target["refId"] for target in panel["targets"]]


def test_panels_do_not_overlap():
    """Every panel lies within the 24 columns, and no two cover the same place."""
    places = [panel["gridPos"] for panel in dashboard()["panels"]]
    for place in places:
        assert 0 <= place["x"] <= place["x"] + place["w"] <= 24
        assert min(place["w"], place["h"]) > 0
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]


def test_abort_window_is_a_line():
    """The panel of aborts draws the window of 100 ms."""
    (panel,) = (panel for panel in panels() if panel["title"] == "Time of an abort")
    defaults = panel["fieldConfig"]["defaults"]
    assert {"mode": "line"} == defaults["custom"]["thresholdsStyle"]
    assert 0.1 == defaults["thresholds"]["steps"][-1]["value"]

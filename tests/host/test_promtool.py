"""Prometheus' own tool reads what ships and what is served, and finds nothing to say."""

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.pure.dashboard_files import ALERTS, queries

STORIES = Path(__file__).with_name("alerts_test.yml")
PROMTOOL_S_MAX = 30
PROMTOOL = shutil.which("promtool")

pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian package prometheus)")


def promtool(*arguments: str | Path, text: str | None = None) -> tuple[int, str, str]:
    """Exit code, output and errors of one call."""
    done = subprocess.run(
        [PROMTOOL or "promtool", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=PROMTOOL_S_MAX,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_alert_rules_are_valid():
    """`promtool check rules` accepts the rules file, and lint has nothing to say."""
    code, out, err = promtool("check", "rules", ALERTS)
    assert (0, "") == (code, err)
    assert f"{ALERTS.read_text(encoding='utf-8').count('- alert: ')} rules found" in out
    assert "WARN" not in out.upper()


def test_alerts_fire_when_they_should_and_not_beside():
    """Each alert fires for the story it is for, for that instance alone, and ends when the story does."""
    code, out, err = promtool("test", "rules", STORIES)
    assert (0, "") == (code, err), out + err
    for name in (line.split(": ")[1] for line in ALERTS.read_text(encoding="utf-8").splitlines() if "- alert" in line):
        assert name in STORIES.read_text(encoding="utf-8"), f"no story for {name}"


def test_queries_of_the_dashboard_are_promql(tmp_path):
    """Every query of the dashboard, its variables filled in, is an expression that Prometheus parses."""
    lines = ["groups:", "  - name: queries", "    rules:"]
    for place, query in enumerate(queries()):
        filled = query.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$instance", ".*")
        assert "$" not in filled
        lines += [f"      - record: query:{place}", "        expr: |", f"          {filled}"]
    rules = tmp_path / "queries.yml"
    rules.write_text("\n".join(lines) + "\n", encoding="utf-8")
    code, _, err = promtool("check", "rules", rules)
    assert (0, "") == (code, err)

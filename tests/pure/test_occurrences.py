"""Occurrences: of what is due the latest time, of any rule the next one, and what must hold whatever the clocks do."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.facts import Reminder
from callboard.plugins import rules
from callboard.plugins.rules import (
    DAYS,
    MS_MAX,
    at_ms,
    cron_rule,
    daily_rule,
    every_rule,
    instant,
    instant_ms,
    instants,
    occurrence,
    weekly_rule,
    well_formed,
    written,
)

BERLIN = "Europe/Berlin"
HOUR_MS = 3_600_000
NOW = at_ms("2026-01-05T12:00:00Z")


def shown(reminder, now):
    """The latest occurrence and the next one, written."""
    at, following = occurrence(reminder, at_ms(now))
    assert following is not None
    return written(at), written(following)


def reminder(rule, due_ms, created_ms=0):
    """A reminder by its rule."""
    return Reminder("schedule-1", rule.kind, "x", rule.text, due_ms, created_ms, rule.zone)


def test_every_due_at_exactly_its_target():
    """No step was missed: the occurrence is the target."""
    one = reminder(every_rule(3600), NOW)
    assert (NOW, NOW + HOUR_MS) == occurrence(one, NOW)


def test_every_after_hours_of_downtime():
    """All that was missed is one occurrence, the latest, and the grid stays where it was."""
    one = reminder(every_rule(3600), NOW)
    assert (NOW + 7 * HOUR_MS, NOW + 8 * HOUR_MS) == occurrence(one, NOW + 7 * HOUR_MS + 123_456)


def test_every_at_the_end_of_the_calendar():
    """Beyond the last year there is no next one: the reminder ends."""
    one = reminder(every_rule(3600), MS_MAX - 1000)
    assert (MS_MAX - 1000, None) == occurrence(one, MS_MAX)


def test_daily_after_weeks_of_downtime():
    """The latest missed day, and the next one; the clocks were set in between."""
    one = reminder(daily_rule("02:30", BERLIN), at_ms("2026-03-20T01:30:00Z"))
    at, following = shown(one, "2026-04-10T12:00:00Z")
    assert ("2026-04-10T00:30:00.000Z", "2026-04-11T00:30:00.000Z") == (at, following)


@pytest.mark.parametrize("years", [0, 1, 11, 40])
def test_rare_cron_after_years_of_downtime(years):
    """However long it was, the latest occurrence is found, and quickly."""
    one = reminder(cron_rule("0 9 29 2 *", "UTC"), at_ms("2028-02-29T09:00:00Z"))
    at, following = shown(one, f"{2028 + years}-03-01T00:00:00Z")
    latest = 2028 + years // 4 * 4
    assert (f"{latest}-02-29T09:00:00.000Z", f"{latest + 4}-02-29T09:00:00.000Z") == (at, following)


def test_frequent_cron_after_a_year_is_cheap(monkeypatch):
    """The cost does not grow with the time that was missed."""
    asked = []
    plain = rules.instant_ms

    def counted(local, zone):
        asked.append(local)
        return plain(local, zone)

    monkeypatch.setattr(rules, "instant_ms", counted)
    one = reminder(cron_rule("*/5 * * * *", BERLIN), at_ms("2026-01-05T12:00:00Z"))
    at, following = shown(one, "2027-02-05T12:03:00Z")
    assert ("2027-02-05T12:00:00.000Z", "2027-02-05T12:05:00.000Z") == (at, following)
    assert len(asked) < 100


ZONES = st.sampled_from(
    ["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu", "America/Sao_Paulo"]
)
CLOCKS = st.times().map(lambda clock: clock.strftime("%H:%M"))
MOMENTS = st.integers(at_ms("1990-01-01T00:00:00Z"), at_ms("2060-01-01T00:00:00Z"))
CRONS = st.sampled_from(["*/5 * * * *", "30 2 * * *", "0 0 1 * *", "15,45 1-3 * * SUN", "0 12 29 2 *"])
CIVIL = st.one_of(
    st.builds(daily_rule, CLOCKS, ZONES),
    st.builds(weekly_rule, st.sets(st.sampled_from(DAYS), min_size=1), CLOCKS, ZONES),
    st.builds(cron_rule, CRONS, ZONES),
)


@given(CIVIL, MOMENTS)
def test_times_ascend_and_each_is_a_civil_time_of_its_rule(rule, after_ms):
    """Every time is later than the one before, whatever the clocks do, and depends on rule and moment alone."""
    found = list(islice(instants(rule, after_ms), 5))
    assert all(a < b for a, b in pairwise([after_ms, *found]))
    for at, following in pairwise([after_ms, *found]):
        assert following == next(instants(rule, at))
        assert following == next(instants(rule, following - 1))
    assert well_formed(rule.kind, rule.text, rule.zone)


@given(CIVIL, MOMENTS, st.integers(0, 3 * 366 * 24 * HOUR_MS))
def test_occurrence_is_the_latest_of_its_rule(rule, begin_ms, missed_ms):
    """Nothing of the rule lies between the occurrence and now, and the next one is the first after now."""
    due_ms = next(instants(rule, begin_ms))
    now_ms = due_ms + missed_ms
    at, following = occurrence(reminder(rule, due_ms), now_ms)
    assert following is not None
    assert due_ms <= at <= now_ms < following
    assert following == next(instants(rule, at)) == next(instants(rule, now_ms))


@given(ZONES, st.datetimes(datetime(1990, 1, 1), datetime(2060, 1, 1)))  # noqa: DTZ001 - local times
def test_instants_of_local_times(zone, local):
    """A local time that exists is shown by the clocks then, and not before; one that does not has passed just now."""
    where = ZoneInfo(zone)
    local = local.replace(microsecond=local.microsecond // 1000 * 1000)
    at, exists = instant_ms(local, where)
    shown = instant(at).astimezone(where)
    if exists:
        assert (local, 0) == (shown.replace(tzinfo=None, fold=0), shown.fold)
    else:
        before = (instant(at) - timedelta(seconds=1)).astimezone(where)
        assert before.replace(tzinfo=None) < local < shown.replace(tzinfo=None)
    assert UTC == instant(at).tzinfo


@given(st.sampled_from(["after", "at", "every", "daily", "weekly", "cron"]), st.text(), st.text())
def test_any_text_is_a_rule_or_not(kind, text, zone):
    """Whatever stands on a log is looked at without an error."""
    assert well_formed(kind, text, zone) in (True, False)

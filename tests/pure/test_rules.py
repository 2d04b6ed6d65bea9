"""Rules of reminders: what is read and refused, and when each is due, where clocks are set and where they are not."""

import sys
import zoneinfo
from datetime import UTC
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from callboard.actors.facts import Reminder
from callboard.plugins import rules
from callboard.plugins.rules import (
    DAYS,
    MS_MAX,
    Rule,
    Unfit,
    after_rule,
    at_local_rule,
    at_ms,
    at_rule,
    cron_rule,
    daily_rule,
    every_rule,
    first_ms,
    instants,
    occurrence,
    weekly_rule,
    written,
    zone_of,
)

BERLIN = "Europe/Berlin"
HOUR_MS = 3_600_000
HUGE = 10**6000  # Python refuses to write it down
NOW = at_ms("2026-01-05T12:00:00Z")  # a Monday


def times(rule, after, count):
    """The next times of a rule, written."""
    return [written(one) for one in islice(instants(rule, at_ms(after)), count)]


def reminder(rule, due_ms, created_ms=0):
    """A reminder by its rule."""
    return Reminder("schedule-1", rule.kind, "x", rule.text, due_ms, created_ms, rule.zone)


def refusal(make, *args):
    """The code that a rule is refused with."""
    with pytest.raises(Unfit) as raised:
        make(*args)
    assert len(str(raised.value)) < 400
    assert str(raised.value).isprintable()
    return raised.value.code


def test_seconds_from_now():
    """`after` is due once, `every` first after its interval, both exactly."""
    assert NOW + 1000 == first_ms(after_rule(1), NOW)
    assert NOW + 300_000 == first_ms(every_rule(300), NOW)


@pytest.mark.parametrize(
    ("make", "seconds", "code"),
    [
        (after_rule, 0, "invalid_rule"),
        (after_rule, -HUGE, "invalid_rule"),
        (after_rule, HUGE, "time_out_of_range"),
        (after_rule, rules.SECONDS_MAX + 1, "time_out_of_range"),
        (every_rule, 0, "invalid_rule"),
        (every_rule, -1, "invalid_rule"),
        (every_rule, 299, "frequency_too_high"),
        (every_rule, 1, "frequency_too_high"),
    ],
    ids=range(8),
)
def test_seconds_that_are_refused(make, seconds, code):
    """Not above zero, too often, or beyond the calendar."""
    assert code == refusal(make, seconds)


def test_seconds_beyond_the_year_9999():
    """A rule that is fine by itself is out of range when it leads out of the calendar."""
    assert "time_out_of_range" == refusal(first_ms, after_rule(rules.SECONDS_MAX), NOW)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-03-01T09:00:00Z", "2026-03-01T09:00:00.000Z"),
        ("2026-03-01T09:00:00+02:00", "2026-03-01T07:00:00.000Z"),
        ("2026-03-01T09:00:00.5-23:59", "2026-03-02T08:59:00.500Z"),
        ("2026-03-01T09:00:00.123+00:00", "2026-03-01T09:00:00.123Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_rfc_3339_times(text, utc):
    """A time with an offset is one instant."""
    assert utc == written(first_ms(at_rule(text), NOW))


@pytest.mark.parametrize(
    "text",
    [
        *("", "tomorrow", "2026-03-01", "2026-03-01T09:00:00", "2026-03-01 09:00:00Z", "2026-03-01T09:00Z"),
        *("2026-03-01T09:00:00-00:00", "2026-03-01T09:00:00+24:00", "2026-03-01T09:00:00+01:60"),
        *("2026-03-01T24:00:00Z", "2026-03-01T09:00:60Z", "2026-02-30T09:00:00Z", "2026-13-01T09:00:00Z"),
        *("2026-03-01T09:00:00.1234Z", "２０２６-03-01T09:00:00Z", "2026-03-01T09:00:00Z\n", "0000-01-01T00:00:00Z"),
        *("2026-03-01t09:00:00z", "2026-03-01T09:00:00+0100", "x" * 100_000, "\x00\x1b[31m"),
    ],
)
def test_texts_that_are_no_times(text):
    """No zone, a day or an hour that does not exist, other digits, anything around it: `invalid_rule`."""
    assert "invalid_rule" == refusal(at_rule, text)


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59Z", "0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59-01:00"])
def test_times_outside_the_calendar(text):
    """What cannot be counted in milliseconds from 1970 to 9999 is out of range or unreadable, never a crash."""
    assert refusal(at_rule, text) in ("time_out_of_range", "invalid_rule")


def test_at_must_be_later_than_now():
    """The very instant is not the future."""
    assert "not_future" == refusal(first_ms, at_rule(written(NOW)), NOW)
    assert NOW + 1 == first_ms(at_rule(written(NOW + 1)), NOW)


def test_local_time_once():
    """A local time is stored with the offset it has, and with its zone."""
    rule = at_local_rule("2026-07-01", "09:00", BERLIN)
    assert Rule("at", "2026-07-01T09:00:00+02:00", BERLIN) == rule
    assert "2026-07-01T07:00:00.000Z" == written(first_ms(rule, NOW))


def test_one_shot_in_a_gap_is_refused():
    """02:30 does not exist on the night in spring: nobody's guess replaces it."""
    assert "invalid_rule" == refusal(at_local_rule, "2026-03-29", "02:30", BERLIN)
    assert "2026-03-29T03:00:00+02:00" == at_local_rule("2026-03-29", "03:00", BERLIN).text


def test_one_shot_in_an_overlap_is_the_earlier():
    """02:30 exists twice on the night in autumn: the first one counts."""
    assert "2026-10-25T02:30:00+02:00" == at_local_rule("2026-10-25", "02:30", BERLIN).text


@pytest.mark.parametrize(
    ("day", "clock", "zone", "code"),
    [
        ("2026-02-30", "09:00", BERLIN, "invalid_rule"),
        ("2026-2-3", "09:00", BERLIN, "invalid_rule"),
        ("2026-02-03", "24:00", BERLIN, "invalid_rule"),
        ("2026-02-03", "9:00", BERLIN, "invalid_rule"),
        ("2026-02-03", "09:00:00", BERLIN, "invalid_rule"),
        ("1969-02-03", "09:00", BERLIN, "time_out_of_range"),
        ("9999-12-31", "23:00", "Pacific/Honolulu", "time_out_of_range"),
        ("2026-02-03", "09:00", "CET", "invalid_time_zone"),
    ],
)
def test_local_times_that_are_refused(day, clock, zone, code):
    """Each wrong part has its code."""
    assert code == refusal(at_local_rule, day, clock, zone)


@pytest.mark.parametrize(
    "zone",
    [
        *("", "CET", "EST", "GMT", "+02:00", "UTC+2", "Etc/GMT+5", "Mars/Phobos", "europe/berlin", "Europe", "local"),
        *("America/Indiana", "../../etc/passwd", "Europe/../Europe/Berlin", "/etc/passwd", "posix/Europe/Berlin"),
        *("right/Europe/Berlin", "Europe/Berlin\n", "Europe/\x00", "X" * 10_000, "Évora/Lisboa", "\ud800"),
    ],
)
def test_zones_that_are_refused(zone):
    """Abbreviations, offsets, unknown names, folders and paths: `invalid_time_zone`."""
    assert "invalid_time_zone" == refusal(zone_of, zone)


def test_system_without_zone_data(monkeypatch):
    """Where there is no data the error says which package has it; UTC needs none."""
    monkeypatch.setattr(rules, "ZoneInfo", ZoneInfo.no_cache)
    monkeypatch.setitem(sys.modules, "tzdata", None)
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(to=())
    try:
        with pytest.raises(Unfit, match="install the package tzdata") as raised:
            zone_of(BERLIN)
        assert "invalid_time_zone" == raised.value.code
        assert UTC == zone_of("UTC")
    finally:
        zoneinfo.reset_tzpath(to=before)


def test_daily_across_the_night_in_spring():
    """02:30 is skipped by the clocks: it is due when the gap ends, once, and at 02:30 the day after."""
    assert [
        "2026-03-28T01:30:00.000Z",
        "2026-03-29T01:00:00.000Z",
        "2026-03-30T00:30:00.000Z",
    ] == times(daily_rule("02:30", BERLIN), "2026-03-28T00:00:00Z", 3)


def test_daily_across_the_night_in_autumn():
    """02:30 comes twice: it is due at the earlier, once, also for who looks between the two."""
    rule = daily_rule("02:30", BERLIN)
    expected = ["2026-10-24T00:30:00.000Z", "2026-10-25T00:30:00.000Z", "2026-10-26T01:30:00.000Z"]
    assert expected == times(rule, "2026-10-24T00:00:00Z", 3)
    assert expected[2:] == times(rule, "2026-10-25T01:10:00Z", 1)


def test_day_that_does_not_exist():
    """Samoa left out a whole day: its noon is due when that gap ends, and the next noon keeps its own time."""
    assert ["2011-12-29T22:00:00.000Z", "2011-12-30T10:00:00.000Z", "2011-12-30T22:00:00.000Z"] == times(
        daily_rule("12:00", "Pacific/Apia"), "2011-12-29T00:00:00Z", 3
    )


def test_weekly():
    """The days of a week in the zone's own calendar, in their order whatever order they were given in."""
    rule = weekly_rule(("fri", "mon"), "00:30", "Asia/Tokyo")
    assert Rule("weekly", "mon,fri 00:30", "Asia/Tokyo") == rule
    assert ["2026-01-08T15:30:00.000Z", "2026-01-11T15:30:00.000Z", "2026-01-15T15:30:00.000Z"] == times(
        rule, "2026-01-05T12:00:00Z", 3
    )


@pytest.mark.parametrize("days", [(), ("mon", "mon"), ("someday",), DAYS * 2])
def test_days_that_are_refused(days):
    """No day, a day twice, no day of the week."""
    assert "invalid_rule" == refusal(weekly_rule, days, "09:00", BERLIN)


def test_cron():
    """Five fields as cron reads them: day of month OR day of week when both are given."""
    rule = cron_rule(" 0  9 13 *  FRI ", "UTC")
    assert Rule("cron", "0 9 13 * FRI", "UTC") == rule
    assert ["2026-01-09T09:00:00.000Z", "2026-01-13T09:00:00.000Z", "2026-01-16T09:00:00.000Z"] == times(
        rule, "2026-01-05T12:00:00Z", 3
    )


def test_cron_across_the_nights_of_the_clocks():
    """A civil time is due once: skipped ones together after the gap, repeated ones the first time only."""
    rule = cron_rule("*/30 * * * *", BERLIN)
    assert ["2026-03-29T00:30:00.000Z", "2026-03-29T01:00:00.000Z", "2026-03-29T01:30:00.000Z"] == times(
        rule, "2026-03-29T00:15:00Z", 3
    )
    assert ["2026-10-25T00:30:00.000Z", "2026-10-25T02:00:00.000Z", "2026-10-25T02:30:00.000Z"] == times(
        rule, "2026-10-25T00:15:00Z", 3
    )


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "",
            "* * * *",
            "0 9 * * * *",
            "60 9 * * *",
            "0 24 * * *",
            "0 9 31 2 *",
            "0 9 * * XYZ",
            "@daily",
            "0/0 * * * *",
        ),
        *(
            "0 9 L-3 * *",
            "a b c d e",
            "0 9 ? * *",
            "\x00 9 * * *",
            "5-1 * * * *",
            f"{'1,' * 5000}1 9 * * *",
            "0,,1 9 * * *",
        ),
        *("0 9 * * 1L/2", "0 9 1/2/3 * *", "- - - - -", "０ 9 * * *", "0 9 * * 1##", "0 9 LW/2,L/3 * */0"),
    ],
)
def test_expressions_that_are_refused(expression):
    """Whatever is no cron expression is `invalid_rule`, and nothing else comes out."""
    assert "invalid_rule" == refusal(cron_rule, expression, BERLIN)


@pytest.mark.parametrize(
    "expression", ["* * * * *", "*/4 * * * *", "0,3 9 * * *", "1,58 9,10 * * *", "59,0 23,0 * * *"]
)
def test_expressions_that_are_due_too_often(expression):
    """Less than five minutes apart, within an hour or over its end."""
    assert "frequency_too_high" == refusal(cron_rule, expression, BERLIN)


@pytest.mark.parametrize("expression", ["*/5 * * * *", "0,58 9 * * *", "30 9 * * *", "0 9 29 2 *"])
def test_expressions_that_are_rare_enough(expression):
    """Five minutes apart or more."""
    assert expression == cron_rule(expression, BERLIN).text


def test_cron_without_its_library(monkeypatch):
    """The refusal names the extra to install; a stored reminder says the same when it is due."""
    rule = cron_rule("0 9 * * *", BERLIN)
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(Unfit, match=r"install callboard\[cron\]") as raised:
        cron_rule("0 9 * * *", BERLIN)
    assert "invalid_rule" == raised.value.code
    with pytest.raises(Unfit, match=r"install callboard\[cron\]"):
        occurrence(reminder(rule, NOW), NOW)


@pytest.mark.parametrize("rule", [daily_rule("02:30", BERLIN), cron_rule("0 9 * * *", BERLIN)])
def test_rule_at_the_end_of_the_calendar(rule):
    """Where the calendar has no further time for a rule it is out of range."""
    assert "time_out_of_range" == refusal(first_ms, rule, MS_MAX - 1000)

"""rules: when something is due, as pure arithmetic on given times: seconds, local times in a zone, cron."""

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import islice, pairwise
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import attrs

from callboard.actors.errors import MissingExtra
from callboard.actors.facts import Reminder, ReminderKind

EVERY_MIN_S = 300
MS_MAX = 253_402_300_799_999  # the last millisecond of the year 9999
SECONDS_MAX = MS_MAX // 1000
STEPS_MAX = 10_000  # local times looked at before a rule is said to have no further one
CRON_MAX_CHARS = 200
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
ONE_SHOT: Final = ("after", "at")
# How far back the latest missed occurrence is looked for: with rules of five minutes and more each look is short.
WINDOWS_MS: Final = tuple(hours * 3_600_000 for hours in (2, 48, 32 * 24, 400 * 24, 4_000 * 24))

NO_ZONE = "time_zone {name} is not known here: use an IANA name such as Europe/Berlin, or UTC{advice}."
NO_DATA = "; this system has no time zone data, install the package tzdata"
BAD_TIME = "time {text} is no time of day: write HH:MM from 00:00 to 23:59."
BAD_AT = "at {text} is no time with an offset: write it as 2026-03-29T09:00:00+02:00 or 2026-03-29T07:00:00Z."
BAD_DATE = "date {text} is no day of the calendar: write YYYY-MM-DD."
BAD_DAYS = "days must be one to seven different days of mon, tue, wed, thu, fri, sat, sun, got {text}."
GAP = "{text} does not exist in {zone}: the clocks are set forward over it; choose another time."
OUT_OF_RANGE = "the time lies outside the years 1970 to 9999: choose an earlier one."
BAD_CRON = "cron expression {text} cannot be read ({why}): write minute hour day-of-month month day-of-week."
TOO_OFTEN = "it would be due every {seconds} s: at least {least} s must lie between two times."
NO_NEXT = "{text} has no time in the next 50 years: choose a rule that comes true."
NOT_POSITIVE = "{name} must be a whole number above 0, got {value}."

_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)
_ZONE = re.compile(r"UTC|(?!Etc/GMT|posix/|right/)[A-Z][A-Za-z_]+(/[A-Za-z][A-Za-z0-9_+-]*){1,2}", re.ASCII)
_AT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.(\d{1,3}))?(Z|[+-]\d\d:\d\d)", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_WEEKLY = re.compile(
    r"((?:mon|tue|wed|thu|fri|sat|sun)(?:,(?:mon|tue|wed|thu|fri|sat|sun)){0,6}) (\d\d:\d\d)", re.ASCII
)
_SECONDS = re.compile(r"[1-9]\d{0,15}", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)


class Unfit(Exception):
    """A rule cannot be taken: `code` says what is wrong to programs, the text says it to people."""

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        super().__init__(text)


@attrs.frozen
class Rule:
    """A rule that was read: its written form, as a `Reminder` keeps it, and its zone ("" without one)."""

    kind: ReminderKind
    text: str
    zone: str = ""


# -- instants ------------------------------------------------------------------------------------------------------


def instant(at_ms: int) -> datetime:
    """Wall milliseconds as a time in UTC; `Unfit` outside of the calendar."""
    if not 0 <= at_ms <= MS_MAX:
        raise Unfit("time_out_of_range", OUT_OF_RANGE)
    return _EPOCH + timedelta(milliseconds=at_ms)


def written(at_ms: int) -> str:
    """Wall milliseconds as `2026-03-29T01:00:00.000Z`."""
    return instant(at_ms).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03}Z"


def ms_of(at: datetime) -> int:
    """A time with a zone as wall milliseconds."""
    return (at - _EPOCH) // timedelta(milliseconds=1)


def zone_of(name: str) -> tzinfo:
    """The zone of an IANA name; `Unfit` for abbreviations, offsets, and what this system does not know."""
    advice = ""
    if name == "UTC":
        return UTC
    if _ZONE.fullmatch(name):
        try:
            return ZoneInfo(name)
        except ZoneInfoNotFoundError:
            advice = "" if _has_data() else NO_DATA
        except (OSError, ValueError):  # a folder of zones, or a file that is none
            pass
    raise Unfit("invalid_time_zone", NO_ZONE.format(name=_quoted(name), advice=advice))


def _has_data() -> bool:
    try:
        ZoneInfo("Europe/Berlin")
    except (ZoneInfoNotFoundError, OSError, ValueError):
        return False
    return True


def _quoted(text: str) -> str:
    return ascii(text if len(text) <= 80 else text[:77] + "...")


def instant_ms(local: datetime, zone: tzinfo) -> tuple[int, bool]:
    """When the clocks of a zone show `local` (naive), and whether they ever do.

    Where they show it twice: the earlier time. Where they never do: the first instant after the gap.
    """
    early, late = local.replace(tzinfo=zone, fold=0), local.replace(tzinfo=zone, fold=1)
    before, after = early.utcoffset(), late.utcoffset()
    assert before is not None
    assert after is not None
    at = local.replace(tzinfo=UTC) - before
    if before >= after or at.astimezone(zone).replace(tzinfo=None) == local:
        return ms_of(at), True
    low, high = ms_of(local.replace(tzinfo=UTC) - after) // 1000, -(-ms_of(at) // 1000)
    while high - low > 1:  # the offset changes between these two
        middle = (low + high) // 2
        changed = instant(middle * 1000).astimezone(zone).utcoffset() != before
        low, high = (low, middle) if changed else (middle, high)
    return high * 1000, False


# -- reading rules -------------------------------------------------------------------------------------------------


def after_rule(seconds: int) -> Rule:
    """Once, so many seconds from now."""
    return Rule("after", str(_seconds("after_seconds", seconds)))


def every_rule(seconds: int) -> Rule:
    """Again and again, with so many seconds in between."""
    if _seconds("every_seconds", seconds) < EVERY_MIN_S:
        raise Unfit("frequency_too_high", TOO_OFTEN.format(seconds=seconds, least=EVERY_MIN_S))
    return Rule("every", str(seconds))


def _seconds(name: str, value: int) -> int:
    if value <= 0:
        shown = value if value > -SECONDS_MAX else "far less"
        raise Unfit("invalid_rule", NOT_POSITIVE.format(name=name, value=shown))
    if value > SECONDS_MAX:
        raise Unfit("time_out_of_range", OUT_OF_RANGE)
    return value


def at_rule(text: str) -> Rule:
    """Once, at an RFC 3339 time with an offset."""
    at_ms(text)
    return Rule("at", text)


def at_ms(text: str) -> int:
    """Wall milliseconds of an RFC 3339 time; `Unfit` says what is wrong with it."""
    found = _AT.fullmatch(text)
    if found is None or found[4] == "-00:00":
        raise Unfit("invalid_rule", BAD_AT.format(text=_quoted(text)))
    offset = "+00:00" if found[4] == "Z" else found[4]
    if offset[1:3] > "23" or offset[4:6] > "59":
        raise Unfit("invalid_rule", BAD_AT.format(text=_quoted(text)))
    try:
        at = ms_of(datetime.fromisoformat(f"{found[1]}T{found[2]}.{(found[3] or '0').ljust(3, '0')}{offset}"))
    except (ValueError, OverflowError):
        raise Unfit("invalid_rule", BAD_AT.format(text=_quoted(text))) from None
    instant(at)
    return at


def at_local_rule(day: str, clock: str, zone: str) -> Rule:
    """Once, at a local time of a zone; `Unfit` where the clocks skip it."""
    where = zone_of(zone)
    if not _DATE.fullmatch(day):
        raise Unfit("invalid_rule", BAD_DATE.format(text=_quoted(day)))
    try:
        local = datetime.combine(date.fromisoformat(day), _clock(clock))
    except ValueError:
        raise Unfit("invalid_rule", BAD_DATE.format(text=_quoted(day))) from None
    if not 1970 < local.year < 9999:
        raise Unfit("time_out_of_range", OUT_OF_RANGE)
    due_ms, exists = instant_ms(local, where)
    if not exists:
        raise Unfit("invalid_rule", GAP.format(text=f"{day} {clock}", zone=zone))
    return Rule("at", instant(due_ms).astimezone(where).isoformat(timespec="seconds"), zone)


def daily_rule(clock: str, zone: str) -> Rule:
    """Each day at a local time of a zone."""
    zone_of(zone)
    _clock(clock)
    return Rule("daily", clock, zone)


def weekly_rule(days: Iterable[str], clock: str, zone: str) -> Rule:
    """On some days of the week at a local time of a zone."""
    zone_of(zone)
    _clock(clock)
    chosen = tuple(days)
    if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= set(DAYS):
        raise Unfit("invalid_rule", BAD_DAYS.format(text=_quoted(", ".join(chosen))))
    return Rule("weekly", f"{','.join(one for one in DAYS if one in chosen)} {clock}", zone)


def _clock(text: str) -> time:
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise Unfit("invalid_rule", BAD_TIME.format(text=_quoted(text)))
    return time(int(found[1]), int(found[2]))


def cron_rule(expression: str, zone: str) -> Rule:
    """At the local times of a zone that a cron expression of five fields names."""
    zone_of(zone)
    text = " ".join(expression.split())
    minutes, hours = _cron_sets(text)
    gaps = [later - earlier for earlier, later in pairwise(minutes)]
    if any((hour + 1) % 24 in hours for hour in hours):
        gaps.append(minutes[0] + 60 - minutes[-1])
    if gaps and min(gaps) * 60 < EVERY_MIN_S:
        raise Unfit("frequency_too_high", TOO_OFTEN.format(seconds=min(gaps) * 60, least=EVERY_MIN_S))
    return Rule("cron", text, zone)


def _cron_sets(text: str) -> tuple[list[int], set[int]]:
    """The minutes and hours of an expression."""
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise Unfit("invalid_rule", str(MissingExtra("a cron rule", "cron"))) from None
    why = "it has five fields" if len(text.split()) != 5 else f"at most {CRON_MAX_CHARS} characters"
    if len(text) <= CRON_MAX_CHARS and len(text.split()) == 5:
        try:
            read = CronSim(text, datetime(2000, 1, 1))  # noqa: DTZ001 - naive on purpose: the zone is ours
            return sorted(read.minutes), read.hours
        except (CronSimError, ValueError, AssertionError, TypeError) as error:
            why = str(error) or type(error).__name__
    raise Unfit("invalid_rule", BAD_CRON.format(text=_quoted(text), why=why))


def well_formed(kind: ReminderKind, text: str, zone: str) -> bool:
    """Whether a written rule is one; looks at no zone's data and at no cron library."""
    match kind:
        case "after" | "every":
            least = EVERY_MIN_S if kind == "every" else 1
            return zone == "" and _SECONDS.fullmatch(text) is not None and least <= int(text) <= SECONDS_MAX
        case "at":
            return _AT.fullmatch(text) is not None and (zone == "" or _ZONE.fullmatch(zone) is not None)
    if not _ZONE.fullmatch(zone):
        return False
    if kind == "daily":
        return _CLOCK.fullmatch(text) is not None
    if kind == "weekly":
        found = _WEEKLY.fullmatch(text)
        return found is not None and _CLOCK.fullmatch(found[2]) is not None
    return len(text.split(" ")) == 5 and all(text.split(" ")) and len(text) <= CRON_MAX_CHARS


# -- occurrences ---------------------------------------------------------------------------------------------------


def first_ms(rule: Rule, now_ms: int) -> int:
    """When a rule that is made now is due first, always later than now; `Unfit` when it never is."""
    match rule.kind:
        case "after" | "every":
            due_ms = now_ms + int(rule.text) * 1000
            instant(due_ms)
            return due_ms
        case "at":
            due_ms = at_ms(rule.text)
            if due_ms <= now_ms:
                raise Unfit("not_future", f"at {rule.text} is not later than now, {written(now_ms)}.")
            return due_ms
    found = next(instants(rule, now_ms), None)
    if found is None:
        raise Unfit("time_out_of_range", NO_NEXT.format(text=rule.text))
    return found


def instants(rule: Rule, after_ms: int) -> Iterator[int]:
    """The times of a rule about local time that are later than `after_ms`, each once and ascending.

    Local times only grow, and so do their instants: the search may begin at the local time of `after_ms`.
    """
    zone, last_ms = zone_of(rule.zone), after_ms
    try:
        begin = instant(after_ms).astimezone(zone).replace(tzinfo=None)
    except OverflowError:  # the last hours of the last year
        return
    for local in islice(_local_times(rule)(begin), STEPS_MAX):
        try:
            at, _ = instant_ms(local, zone)
        except (OverflowError, Unfit):
            return
        if at > MS_MAX:
            return
        if at > last_ms:
            last_ms = at
            yield at


def _local_times(rule: Rule) -> Callable[[datetime], Iterator[datetime]]:
    """Gives the naive local times of a rule that are later than the one it is asked with."""
    if rule.kind == "cron":
        return lambda begin: _by_cron(rule.text, begin)
    names, _, clock = rule.text.rpartition(" ")
    days = frozenset(DAYS.index(one) for one in names.split(",")) if names else frozenset(range(7))
    return lambda begin: _by_day(days, _clock(clock), begin)


def _by_day(days: frozenset[int], clock: time, begin: datetime) -> Iterator[datetime]:
    day = begin.date()
    while True:
        local = datetime.combine(day, clock)
        if day.weekday() in days and local > begin:
            yield local
        if day == date.max:
            return
        day += _DAY


def _by_cron(text: str, begin: datetime) -> Iterator[datetime]:
    """The library counts on naive times, so that what happens where clocks change is said here and nowhere else."""
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise Unfit("invalid_rule", str(MissingExtra("a cron rule", "cron"))) from None
    try:
        yield from CronSim(text, begin)
    except CronSimError as error:
        raise Unfit("invalid_rule", BAD_CRON.format(text=_quoted(text), why=error)) from None
    except OverflowError:  # beyond the last year
        return


def occurrence(reminder: Reminder, now_ms: int) -> tuple[int, int | None]:
    """Of a reminder that is due: the latest of its times up to now, and the next one (None: it was the last).

    All that was missed is one occurrence, and the grid of `every` stays where its creation put it. `Unfit` when this
    system cannot tell: it lacks the zone, or what reads a cron expression.
    """
    due_ms = reminder.due_ms
    assert due_ms <= now_ms, "not due"
    if reminder.kind in ONE_SHOT:
        return due_ms, None
    if reminder.kind == "every":
        step_ms = int(reminder.rule) * 1000
        at = due_ms + (now_ms - due_ms) // step_ms * step_ms
        return at, at + step_ms if at + step_ms <= MS_MAX else None
    rule = Rule(reminder.kind, reminder.rule, reminder.zone)
    for window_ms in (*WINDOWS_MS, MS_MAX):
        begin_ms = max(due_ms - 1, now_ms - window_ms)
        at, following = due_ms, None
        for following in instants(rule, begin_ms):
            if following > now_ms:
                break
            at = following
        if at > due_ms or begin_ms == due_ms - 1:
            return at, following if following is not None and following > now_ms else None
    raise AssertionError("the last window is the whole calendar")

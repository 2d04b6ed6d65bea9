"""schedule: reminders that come due by themselves; schedule_create, schedule_list and schedule_delete."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from callboard.actors.errors import LogError
from callboard.actors.eventlog import LOGGER
from callboard.actors.events import Event
from callboard.actors.facts import Reminder, ReminderDeleted, ReminderFired, ReminderSet
from callboard.actors.plugin import Alarm, Plugin, View
from callboard.actors.tool import Tool, Where, tool
from callboard.plugins.checklist import check_switch, check_text
from callboard.plugins.reminders import (
    CORRUPT,
    PROMPT_MAX_CHARS,
    SCHEDULE,
    TITLE_MAX_CHARS,
    Schedule,
    decide,
    firing,
    made,
    number_of,
)
from callboard.plugins.rules import (
    Rule,
    Unfit,
    after_rule,
    at_local_rule,
    at_rule,
    cron_rule,
    daily_rule,
    every_rule,
    weekly_rule,
    written,
)

CREATE = """\
Store a reminder for the user, which comes back by itself when it is due, also after a restart.
Give exactly one of `after_seconds`, `at`, `every_seconds`, `daily`, `weekly` and `cron`. `prompt` is what the user is \
to be reminded of, complete in itself: you will see it without this conversation.
Times of day belong to a time zone: ask the user for theirs when you do not know it. Times that were missed while \
nothing ran come back as one. The answer has the reminder's `id`, or a `code` and a `message` that say why not.
"""
LIST = """\
List the reminders of this session that are active, in the order they were created, each with its next time. Long \
prompts are shortened here.
"""
DELETE = """\
Delete a reminder of this session by its `id`, as schedule_create and schedule_list give it. What was delivered before \
stays delivered.
"""
PROMPT_FIELD = f"What the user is to be reminded of, at most {PROMPT_MAX_CHARS:,} characters."
TITLE_FIELD = f"A short name for lists, at most {TITLE_MAX_CHARS} characters."
AFTER_FIELD = "Once, so many seconds from now."
AT_FIELD = "Once, at a time in the future: RFC 3339 text with an offset, or a local time of a zone."
EVERY_FIELD = "Again and again, so many seconds apart: at least 300."
DAILY_FIELD = "Each day at a local time."
WEEKLY_FIELD = "On some days of each week at a local time."
CRON_FIELD = "At the local times of a cron expression: minute, hour, day of month, month, day of week."
ZONE_FIELD = "IANA name such as Europe/Berlin, or UTC."
CLOCK_FIELD = "HH:MM, from 00:00 to 23:59."
DATE_FIELD = "YYYY-MM-DD."
ID_FIELD = "schedule-N"
ROOT_ONLY = "reminders belong to the agent that talks with the user: tell it what to be reminded of, and when."
ONE_OF = "give exactly one of {names}, got {count}."
NO_PROMPT = "`prompt` is empty: say what the user is to be reminded of."
TOO_LONG = "`{field}` has {count:,} characters: at most {most:,} are kept."
NO_ID = "`id` must be an id as schedule_list gives it, such as schedule-1, got {id}."
UNCERTAIN = "the disk did not confirm ({why}): use schedule_list later to see what is kept."

SELECTORS: Final = ("after_seconds", "at", "every_seconds", "daily", "weekly", "cron")
LISTED_MAX_CHARS = 300  # of each prompt in a list; the log holds all of it
LIST_MAX_BYTES = 256 * 1024  # of a hundred reminders, however their texts are escaped

Answer: TypeAlias = dict[str, Any]
Operation: TypeAlias = Literal["create", "list", "delete"]
Day: TypeAlias = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
Zone: TypeAlias = Annotated[str, msgspec.Meta(description=ZONE_FIELD)]
Clock: TypeAlias = Annotated[str, msgspec.Meta(description=CLOCK_FIELD)]


class AtLocal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A local time of a zone."""

    date: Annotated[str, msgspec.Meta(description=DATE_FIELD)]
    time: Clock
    time_zone: Zone


class Daily(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A time of each day."""

    time: Clock
    time_zone: Zone


class Weekly(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A time of some days of the week."""

    days: tuple[Day, ...]
    time: Clock
    time_zone: Zone


class Cron(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cron expression."""

    expression: str
    time_zone: Zone


class CreateReminder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `schedule_create` takes; of the rules exactly one."""

    prompt: Annotated[str, msgspec.Meta(description=PROMPT_FIELD)]
    after_seconds: Annotated[int | None, msgspec.Meta(description=AFTER_FIELD)] = None
    at: Annotated[str | AtLocal | None, msgspec.Meta(description=AT_FIELD)] = None
    every_seconds: Annotated[int | None, msgspec.Meta(description=EVERY_FIELD)] = None
    daily: Annotated[Daily | None, msgspec.Meta(description=DAILY_FIELD)] = None
    weekly: Annotated[Weekly | None, msgspec.Meta(description=WEEKLY_FIELD)] = None
    cron: Annotated[Cron | None, msgspec.Meta(description=CRON_FIELD)] = None
    title: Annotated[str | None, msgspec.Meta(description=TITLE_FIELD)] = None

    def __post_init__(self) -> None:
        """Refuse text that the log cannot hold."""
        check_text(self.prompt, "`$.prompt`")
        check_text(self.title or "", "`$.title`")


class DeleteReminder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `schedule_delete` takes."""

    id: Annotated[str, msgspec.Meta(description=ID_FIELD)]


# -- arguments -----------------------------------------------------------------------------------------------------


def read_rule(arguments: CreateReminder) -> Rule:
    """The one rule of a call; `Unfit` says what is wrong, and costs neither the log nor the disk anything."""
    given = [name for name in SELECTORS if getattr(arguments, name) is not None]
    if len(given) != 1:
        raise Unfit("invalid_selector", ONE_OF.format(names=", ".join(SELECTORS), count=", ".join(given) or "none"))
    _texts(arguments)
    match getattr(arguments, given[0]):
        case int() as seconds:
            return after_rule(seconds) if given[0] == "after_seconds" else every_rule(seconds)
        case AtLocal() as at:
            return at_local_rule(at.date, at.time, at.time_zone)
        case Daily() as daily:
            return daily_rule(daily.time, daily.time_zone)
        case Weekly() as weekly:
            return weekly_rule(weekly.days, weekly.time, weekly.time_zone)
        case Cron() as cron:
            return cron_rule(cron.expression, cron.time_zone)
        case text:
            return at_rule(text)


def _texts(arguments: CreateReminder) -> tuple[str, str]:
    """Prompt and title, trimmed."""
    prompt, title = arguments.prompt.strip(), (arguments.title or "").strip()
    if not prompt:
        raise Unfit("invalid_prompt", NO_PROMPT)
    for field, text, most in (("prompt", prompt, PROMPT_MAX_CHARS), ("title", title, TITLE_MAX_CHARS)):
        if len(text) > most:
            raise Unfit("invalid_prompt", TOO_LONG.format(field=field, count=len(text), most=most))
    return prompt, title


# -- answers -------------------------------------------------------------------------------------------------------


def view_of(one: Reminder, now_ms: int) -> Answer:
    """A reminder as tools show it; times in UTC."""
    shown: Answer = {"id": one.id, "kind": one.kind}
    if one.title:
        shown["title"] = one.title
    shown |= {"prompt": one.prompt, "rule": one.rule}
    if one.zone:
        shown["time_zone"] = one.zone
    state = "overdue" if one.due_ms <= now_ms else "scheduled"
    return shown | {"due_at": written(one.due_ms), "created_at": written(one.created_ms), "state": state}


def _listed(one: Reminder, now_ms: int) -> Answer:
    shown = view_of(one, now_ms)
    if len(one.prompt) > LISTED_MAX_CHARS:
        shown["prompt"] = f"{one.prompt[:LISTED_MAX_CHARS]}... ({len(one.prompt):,} characters)"
    return shown


def _refused(error: Unfit) -> Answer:
    return {"code": error.code, "message": str(error)}


def _uncertain(operation: Operation, error: LogError, id_: str = "") -> Answer:
    answer = {"code": "persistence_uncertain", "message": UNCERTAIN.format(why=error), "operation": operation}
    return answer | {"id": id_} if id_ else answer


def _trusted(view: View) -> Schedule:
    """The reminders as they are now; `Unfit` when the log contradicts itself."""
    state = view[SCHEDULE]
    if state.flaw:
        raise Unfit("corrupt_schedule_log", CORRUPT.format(flaw=state.flaw))
    return state


# -- tools ---------------------------------------------------------------------------------------------------------


async def create(arguments: CreateReminder, view: View) -> Answer:
    """Check, flush, then find an id and write in one piece; the same call again is answered by what it made."""
    try:
        rule = read_rule(arguments)
        await view.flush()
        state = _trusted(view)
        before = state.done_by(view.key)
        one = state.get(before) if before else None
        if before and one is None:
            return {"id": before, "state": "ended"}
        if one is None:
            one = made(state, rule, *_texts(arguments), view.now_ms())
            try:
                await view.commit(ReminderSet(one, view.key))
            except LogError as error:
                return _uncertain("create", error, one.id if view[SCHEDULE].get(one.id) else "")
        return view_of(one, view.now_ms())
    except Unfit as error:
        return _refused(error)
    except LogError as error:
        return _uncertain("create", error)


async def listing(view: View) -> Answer:
    """All that are active, once what came before is on the disk."""
    try:
        await view.flush()
        now_ms = view.now_ms()
        return {"schedules": [_listed(one, now_ms) for one in _trusted(view).active]}
    except Unfit as error:
        return _refused(error)
    except LogError as error:
        return _uncertain("list", error)


async def delete(arguments: DeleteReminder, view: View) -> Answer:
    """Take one out, if it is there; the same call again finds it taken out."""
    id_ = arguments.id
    if not number_of(id_):
        return {"code": "invalid_rule", "message": NO_ID.format(id=ascii(id_[:80]))}
    try:
        await view.flush()
        state = _trusted(view)
        if state.get(id_) is not None:
            try:
                await view.commit(ReminderDeleted(id_, view.key))
            except LogError as error:
                return _uncertain("delete", error, id_)
        elif state.done_by(view.key) != id_:
            return {"id": id_, "deleted": False, "code": "schedule_not_found"}
        return {"id": id_, "deleted": True}
    except Unfit as error:
        return _refused(error)
    except LogError as error:
        return _uncertain("delete", error)


def _tools(*, children: bool) -> tuple[Tool, ...]:
    offered: Where = "everywhere" if children else "root"

    def refuse(view: View) -> str | None:
        return ROOT_ONLY if view.depth and not children else None

    @tool(description=CREATE, effect="idempotent", control=True, mutates=False, refuse=refuse, offered=offered)
    async def schedule_create(arguments: CreateReminder, view: View) -> Answer:
        return await create(arguments, view)

    @tool(
        description=LIST,
        effect="none",
        control=True,
        mutates=False,
        refuse=refuse,
        offered=offered,
        output_max=LIST_MAX_BYTES,
    )
    async def schedule_list(view: View) -> Answer:
        return await listing(view)

    @tool(description=DELETE, effect="idempotent", control=True, mutates=False, refuse=refuse, offered=offered)
    async def schedule_delete(arguments: DeleteReminder, view: View) -> Answer:
        return await delete(arguments, view)

    return schedule_create, schedule_list, schedule_delete


# -- the drive -----------------------------------------------------------------------------------------------------


def next_ms(state: Schedule) -> int | None:
    """When the drive is to look next: a log that contradicts itself is looked at once, so that it is told of."""
    return 0 if state.flaw else state.due_ms


def fire(view: View) -> Sequence[Event]:
    """The next decision: one message and what becomes of its reminders; `LogError` for a log that is not to be trusted.

    The session asks again once this is on the disk.
    """
    state, now_ms = view[SCHEDULE], view.now_ms()
    if state.flaw:
        raise LogError(f"corrupt_schedule_log: {CORRUPT.format(flaw=state.flaw)}")
    dues = decide(state, now_ms)
    for due in dues:
        if due.lost:
            LOGGER.error("session %s: %s is fired for the last time: %s", view.session, due.reminder.id, due.lost)
    return firing(dues, now_ms) if dues else ()


def schedule_plugin(*, children: bool = False) -> Plugin:
    """The schedule plugin; with `children` subagents may have reminders too; `UsageError` for no bool."""
    check_switch(children, "children of schedule_plugin")
    return Plugin(
        "schedule",
        events=(ReminderSet, ReminderDeleted, ReminderFired),
        projections=(SCHEDULE,),
        tools=_tools(children=children),
        alarms=(Alarm(SCHEDULE, next_ms, fire),),
    )


SCHEDULE_PLUGIN = schedule_plugin()

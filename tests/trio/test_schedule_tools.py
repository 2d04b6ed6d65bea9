"""The tools of reminders: what they take, what they write and what they answer."""

import json
from typing import Any

import pytest

from callboard.actors.events import Call, ControlCallEnded, SessionForked, ToolCalled, ToolReturned
from callboard.actors.facts import ReminderDeleted, ReminderSet
from callboard.actors.model import Reply
from callboard.actors.testing import START_MS, FakeWall, ScriptedModel, open_lab
from callboard.plugins.reminders import SCHEDULE
from callboard.plugins.schedule import (
    ROOT_ONLY,
    SCHEDULE_PLUGIN,
    schedule_plugin,
)

from .scheduled import Asked, active, once, records
from .strict import check_log, of_kind

BERLIN = "Europe/Berlin"
VIEW = {
    "id": "schedule-1",
    "kind": "after",
    "title": "Anna",
    "prompt": "call Anna",
    "rule": "60",
    "due_at": "2027-01-15T08:01:00.000Z",
    "created_at": "2027-01-15T08:00:00.000Z",
    "state": "scheduled",
}


async def test_create_list_delete():
    """The three tools in a story; the log has the events, and each call its control fact and nothing of its content."""
    asked = Asked()
    async with open_lab(asked.model, plugins=[SCHEDULE_PLUGIN]) as lab:
        session = await lab.session()
        made = await asked.use(
            session, "schedule_create", {"prompt": " call Anna ", "after_seconds": 60, "title": "Anna "}
        )
        assert VIEW == made
        assert {"schedules": [VIEW]} == await asked.use(session, "schedule_list")
        assert {"id": "schedule-1", "deleted": True} == await asked.use(
            session, "schedule_delete", {"id": "schedule-1"}
        )
        assert {"schedules": []} == await asked.use(session, "schedule_list")
        gone = await asked.use(session, "schedule_delete", {"id": "schedule-1"})
        assert {"id": "schedule-1", "deleted": False, "code": "schedule_not_found"} == gone
        again = await asked.use(session, "schedule_create", {"prompt": "x", "every_seconds": 300})
        assert ("schedule-2", ["schedule-2"]) == (again["id"], active(session))
        facts = [(one.tool, one.outcome) for one in of_kind(lab.records(), ControlCallEnded)]
        assert [
            ("schedule_create", "completed"),
            *[("schedule_list", "completed"), ("schedule_delete", "completed")] * 2,
            ("schedule_create", "completed"),
        ] == facts
        effects = {one.name: one.effect for one in of_kind(lab.records(), ToolCalled)}
        assert {"schedule_create": "idempotent", "schedule_list": "none", "schedule_delete": "idempotent"} == effects
        check_log(lab.records())


RULES = [
    ({"at": "2027-01-15T10:00:00+01:00"}, "at", "2027-01-15T10:00:00+01:00", None, "2027-01-15T09:00:00.000Z"),
    (
        {"at": {"date": "2027-07-01", "time": "09:00", "time_zone": BERLIN}},
        "at",
        "2027-07-01T09:00:00+02:00",
        BERLIN,
        "2027-07-01T07:00:00.000Z",
    ),
    ({"every_seconds": 300}, "every", "300", None, "2027-01-15T08:05:00.000Z"),
    ({"daily": {"time": "09:00", "time_zone": BERLIN}}, "daily", "09:00", BERLIN, "2027-01-16T08:00:00.000Z"),
    (
        {"weekly": {"days": ["sun", "sat"], "time": "09:00", "time_zone": "UTC"}},
        "weekly",
        "sat,sun 09:00",
        "UTC",
        "2027-01-16T09:00:00.000Z",
    ),
    (
        {"cron": {"expression": "0  9 1 * *", "time_zone": "UTC"}},
        "cron",
        "0 9 1 * *",
        "UTC",
        "2027-02-01T09:00:00.000Z",
    ),
]


@pytest.mark.parametrize(("rule", "kind", "text", "zone", "due_at"), RULES)
async def test_each_rule(rule, kind, text, zone, due_at):
    """What each selector becomes; other selectors may be null."""
    asked = Asked()
    async with open_lab(asked.model, plugins=[SCHEDULE_PLUGIN]) as lab:
        session = await lab.session()
        nulls = dict.fromkeys(("after_seconds", "at", "every_seconds", "daily", "weekly", "cron", "title"))
        made = await asked.use(session, "schedule_create", {"prompt": "x", **nulls, **rule})
        assert (kind, text, zone, due_at) == (made["kind"], made["rule"], made.get("time_zone"), made["due_at"])
        (one,) = session.state(SCHEDULE).active
        assert (kind, text, zone or "") == (one.kind, one.rule, one.zone)


REFUSED = [
    ({"prompt": "x"}, "invalid_selector"),
    ({"prompt": "x", "after_seconds": 5, "every_seconds": 300}, "invalid_selector"),
    ({"prompt": " \n", "after_seconds": 5}, "invalid_prompt"),
    ({"prompt": "x" * 4001, "after_seconds": 5}, "invalid_prompt"),
    ({"prompt": "x", "title": "x" * 121, "after_seconds": 5}, "invalid_prompt"),
    ({"prompt": "x", "after_seconds": 0}, "invalid_rule"),
    ({"prompt": "x", "after_seconds": 10**18}, "time_out_of_range"),
    ({"prompt": "x", "every_seconds": 299}, "frequency_too_high"),
    ({"prompt": "x", "cron": {"expression": "* * * * *", "time_zone": "UTC"}}, "frequency_too_high"),
    ({"prompt": "x", "cron": {"expression": "x", "time_zone": "UTC"}}, "invalid_rule"),
    ({"prompt": "x", "daily": {"time": "9:00", "time_zone": "UTC"}}, "invalid_rule"),
    ({"prompt": "x", "daily": {"time": "09:00", "time_zone": "CET"}}, "invalid_time_zone"),
    ({"prompt": "x", "weekly": {"days": [], "time": "09:00", "time_zone": "UTC"}}, "invalid_rule"),
    ({"prompt": "x", "at": {"date": "2027-03-28", "time": "02:30", "time_zone": BERLIN}}, "invalid_rule"),
    ({"prompt": "x", "at": "2027-01-15T08:00:00Z"}, "not_future"),
    ({"prompt": "x", "at": "2027-01-15T09:00:00"}, "invalid_rule"),
]


@pytest.mark.parametrize(("arguments", "code"), REFUSED)
async def test_refused_as_values(arguments, code):
    """Every refusal is an ordinary value with its code and a sentence; the call completed, nothing is written."""
    asked = Asked()
    async with open_lab(asked.model, plugins=[SCHEDULE_PLUGIN]) as lab:
        session = await lab.session()
        answer = await asked.use(session, "schedule_create", arguments)
        assert {"code", "message"} == set(answer)
        assert code == answer["code"]
        assert len(answer["message"]) < 400
        (result,) = of_kind(lab.records(), ToolReturned)
        assert ("completed", []) == (result.receipt, of_kind(lab.records(), ReminderSet))


HOSTILE = [
    {"prompt": "x", "after_seconds": "5"},
    {"prompt": "x", "after_seconds": 5.5},
    {"prompt": "x", "after_seconds": True},
    {"prompt": 5, "after_seconds": 5},
    {"prompt": None, "after_seconds": 5},
    {"after_seconds": 5},
    {"prompt": "x", "after_seconds": 5, "extra": 1},
    {"prompt": "x", "at": {"date": "2027-03-28", "time": "02:30"}},
    {"prompt": "x", "at": {"date": "2027-03-28", "time": "02:30", "time_zone": "UTC", "fold": 1}},
    {"prompt": "x", "weekly": {"days": ["someday"], "time": "09:00", "time_zone": "UTC"}},
    {"prompt": "x", "cron": "0 9 * * *"},
    {"prompt": "\ud800", "after_seconds": 5},
    [],
    "no json",
    '{"prompt": "x", "after_seconds": 1' + "0" * 5000 + "}",
    "[" * 100_000,
]


@pytest.mark.parametrize("arguments", HOSTILE, ids=range(len(HOSTILE)))
async def test_arguments_that_do_not_fit(arguments):
    """Wrong types, unknown keys and damaged text fail, or are refused as a value; the session goes on."""
    asked = Asked()
    async with open_lab(asked.model, plugins=[SCHEDULE_PLUGIN]) as lab:
        session = await lab.session()
        asked.next = [Call("schedule_create", arguments)]
        await session.run("go")
        (result,) = of_kind(lab.records(), ToolReturned)
        assert result.receipt == "failed" or "code" in json.loads(result.text)
        assert [] == of_kind(lab.records(), ReminderSet)
        assert "schedule-1" == (await asked.use(session, "schedule_create", {"prompt": "x", "after_seconds": 5}))["id"]


@pytest.mark.parametrize(
    "id_", ["", " schedule-1", "schedule-0", "schedule-x", "x" * 100_000, "\x1b[31m", "schedule-1\n"]
)
async def test_ids_that_are_none(id_):
    """An id that schedule_list could never have given is refused before anything is looked up."""
    asked = Asked()
    async with open_lab(asked.model, plugins=[SCHEDULE_PLUGIN]) as lab:
        session = await lab.session()
        answer = await asked.use(session, "schedule_delete", {"id": id_})
        assert "invalid_rule" == answer["code"]
        assert answer["message"].isprintable()
        assert len(answer["message"]) < 300


async def test_hundred_and_one():
    """The hundred and first is `too_many`, and the list of a hundred long ones is whole."""
    asked = Asked()
    async with open_lab(asked.model, plugins=[SCHEDULE_PLUGIN]) as lab:
        session = await lab.session()
        prompt, title = "\x01é" * 2000, "\x01" * 119 + "t"
        answers = await asked.use_all(
            session,
            *(Call("schedule_create", {"prompt": prompt, "title": title, "after_seconds": n + 1}) for n in range(101)),
        )
        assert [f"schedule-{n + 1}" for n in range(100)] == [one["id"] for one in answers[:100]]
        assert "too_many" == answers[100]["code"]
        listed = (await asked.use(session, "schedule_list"))["schedules"]
        assert [f"schedule-{n + 1}" for n in range(100)] == [one["id"] for one in listed]
        assert listed[0]["prompt"].endswith("... (4,000 characters)")
        assert prompt == session.state(SCHEDULE).active[0].prompt


async def test_overdue_is_shown():
    """A reminder whose time has come while a turn runs is `overdue` in the list."""
    wall = FakeWall()

    def play(prompt: Any) -> Reply:
        wall.advance(1)
        return Reply(calls=[Call("schedule_list")] if prompt.step == 1 and prompt.turn == 1 else ())

    async with open_lab(ScriptedModel(play), plugins=[SCHEDULE_PLUGIN], wall=wall) as lab:
        session = await lab.session()
        session.log.append(once(1, START_MS + 1000))
        await session.run("go")
        (result,) = of_kind(records(session), ToolReturned)
        assert ["overdue"] == [one["state"] for one in json.loads(result.text)["schedules"]]


async def test_log_that_contradicts_itself():
    """Every tool answers `corrupt_schedule_log` with what is wrong; the session opens and works on."""
    asked = Asked()
    async with open_lab(asked.model, plugins=[SCHEDULE_PLUGIN]) as lab:
        session = await lab.session()
        session.log.append(ReminderDeleted("schedule-7"))
        for name, arguments in (
            ("schedule_create", {"prompt": "x", "after_seconds": 5}),
            ("schedule_list", {}),
            ("schedule_delete", {"id": "schedule-7"}),
        ):
            answer = await asked.use(session, name, arguments)
            assert "corrupt_schedule_log" == answer["code"]
            assert "ReminderDeleted 'schedule-7' is not active" in answer["message"]
        assert "ok" == (await session.run("go")).last_message


async def test_fork_lists_none_and_counts_from_one():
    """The reminders of the session it came from are not its own."""
    asked = Asked()
    async with open_lab(asked.model, plugins=[SCHEDULE_PLUGIN]) as lab:
        session = await lab.session()
        session.log.append(once(4, START_MS + 1000), SessionForked("other", 1))
        assert {"schedules": []} == await asked.use(session, "schedule_list")
        made = await asked.use(session, "schedule_create", {"prompt": "x", "after_seconds": 5})
        assert "schedule-1" == made["id"]


async def test_children_have_no_reminders_unless_the_policy_says_so():
    """A subagent's call fails and says who keeps reminders; with `children` it is taken."""
    for children in (False, True):
        asked = Asked()
        async with open_lab(asked.model, plugins=[schedule_plugin(children=children)]) as lab:
            session = await lab.session(depth=1, parent="p", path="/root/a")
            answer = await asked.use(session, "schedule_create", {"prompt": "x", "after_seconds": 5})
            assert (answer["id"] == "schedule-1") if children else (answer == ROOT_ONLY)

"""The tools of reminders on a disk that refuses, stalls, or takes nothing: what is answered, and what is kept."""

import pytest
import trio

from callboard.actors.testing import START_MS, open_lab
from callboard.actors.view import CallView
from callboard.plugins.schedule import SCHEDULE_PLUGIN, CreateReminder, DeleteReminder, create, delete, listing

from .disks import Disk
from .scheduled import active, once


class Lent:
    """A call's view of a session, as a tool gets it."""

    def __init__(self, session, key="c1"):
        self.view = CallView(session.actor.scene, key, hold=True)


def new(seconds=60):
    """Arguments of a reminder."""
    return CreateReminder("x", after_seconds=seconds)


async def test_argument_errors_cost_no_flush():
    """What is wrong with the arguments themselves is said without asking the disk."""
    disk = Disk()
    async with open_lab(plugins=[SCHEDULE_PLUGIN], store=disk) as lab:
        session = await lab.session()
        session.log.append(once(1, START_MS + 10_000))
        before = disk.syncs
        view = Lent(session).view
        assert "frequency_too_high" == (await create(CreateReminder("x", every_seconds=1), view))["code"]
        assert "invalid_rule" == (await delete(DeleteReminder("x"), view))["code"]
        assert before == disk.syncs
        at = CreateReminder("x", at="2020-01-01T00:00:00Z")
        assert ("not_future", before + 1) == ((await create(at, view))["code"], disk.syncs)


@pytest.mark.parametrize("operation", ["create", "list", "delete"])
async def test_preflight_that_fails(operation):
    """The disk does not confirm what came before: uncertain, without an id, and nothing is appended."""
    disk = Disk()
    async with open_lab(plugins=[SCHEDULE_PLUGIN], store=disk) as lab:
        session = await lab.session()
        session.log.append(once(1, START_MS + 10_000))
        disk.failing = True
        before = session.log.seq
        view = Lent(session).view
        calls = {
            "create": create(new(), view),
            "list": listing(view),
            "delete": delete(DeleteReminder("schedule-1"), view),
        }
        answer = await calls.pop(operation)
        for unused in calls.values():
            unused.close()
        assert ("persistence_uncertain", operation) == (answer["code"], answer["operation"])
        assert "id" not in answer
        assert before == session.log.seq
        disk.failing = False


async def fail_second(disk, log):
    """From the next append on the disk confirms nothing."""
    log.watch(lambda: setattr(disk, "failing", True))


async def test_create_whose_barrier_fails_then_list():
    """Uncertain with the id; the record is there, and the list says so once the disk is well."""
    disk = Disk()
    async with open_lab(plugins=[SCHEDULE_PLUGIN], store=disk) as lab:
        session = await lab.session()
        await fail_second(disk, session.log)
        answer = await create(new(), Lent(session).view)
        assert ("persistence_uncertain", "create", "schedule-1") == (answer["code"], answer["operation"], answer["id"])
        disk.failing = False
        listed = await listing(Lent(session, "c2").view)
        assert ["schedule-1"] == [one["id"] for one in listed["schedules"]]


async def test_delete_whose_barrier_fails():
    """Uncertain with the id; whether it is gone, the list tells later."""
    disk = Disk()
    async with open_lab(plugins=[SCHEDULE_PLUGIN], store=disk) as lab:
        session = await lab.session()
        session.log.append(once(1, START_MS + 10_000))
        await fail_second(disk, session.log)
        answer = await delete(DeleteReminder("schedule-1"), Lent(session).view)
        assert ("persistence_uncertain", "delete", "schedule-1") == (answer["code"], answer["operation"], answer["id"])
        disk.failing = False
        assert {"schedules": []} == await listing(Lent(session, "c2").view)


async def test_disk_that_takes_nothing():
    """An append that is refused has changed nothing, and names no id."""
    disk = Disk()
    async with open_lab(plugins=[SCHEDULE_PLUGIN], store=disk) as lab:
        session = await lab.session()
        disk.close()
        answer = await create(new(), Lent(session).view)
        assert ("persistence_uncertain", []) == (answer["code"], active(session))
        assert "id" not in answer
        disk.open(lambda fn: None)


async def test_same_call_again():
    """An idempotent call that is repeated under its key finds what it did, and does it once."""
    async with open_lab(plugins=[SCHEDULE_PLUGIN]) as lab:
        session = await lab.session()
        first = await create(new(), Lent(session, "a").view)
        assert first == await create(new(), Lent(session, "a").view)
        assert ["schedule-1"] == active(session)
        gone = await delete(DeleteReminder("schedule-1"), Lent(session, "b").view)
        assert (
            {"id": "schedule-1", "deleted": True}
            == gone
            == await delete(DeleteReminder("schedule-1"), Lent(session, "b").view)
        )
        assert "schedule_not_found" == (await delete(DeleteReminder("schedule-1"), Lent(session, "c").view))["code"]
        assert {"id": "schedule-1", "state": "ended"} == await create(new(), Lent(session, "a").view)
        assert "schedule-2" == (await create(new(), Lent(session, "d").view))["id"]


async def test_interrupt_in_the_preflight_writes_nothing():
    """Cancelled before the append there is no reminder."""
    disk = Disk()
    async with open_lab(plugins=[SCHEDULE_PLUGIN], store=disk) as lab:
        session = await lab.session()
        with trio.move_on_after(1):
            session.log.append(once(9, START_MS + 10_000_000))
            disk.stall()
            await create(new(), Lent(session).view)
        disk.go()
        assert ["schedule-9"] == active(session)


async def test_operations_of_one_session_do_not_interleave():
    """Many at once, each waiting for the disk: the ids are those of their order, and none is given twice."""
    disk = Disk()
    async with open_lab(plugins=[SCHEDULE_PLUGIN], store=disk) as lab:
        session = await lab.session()
        answers: dict[int, dict[str, object]] = {}

        async def one(n: int) -> None:
            answers[n] = await create(new(n + 1), Lent(session, f"k{n}").view)

        async with trio.open_nursery() as nursery:
            session.log.append(once(1, START_MS + 10_000_000))
            disk.stall()
            for n in range(20):
                nursery.start_soon(one, n)
            await trio.sleep(1)
            disk.go()
        assert sorted(f"schedule-{n}" for n in range(2, 22)) == sorted(str(one["id"]) for one in answers.values())
        assert [f"schedule-{n}" for n in range(1, 22)] == active(session)

"""What waits for the disk and what does not: at most one wait a step, none for the end of an interrupted turn."""

from typing import Any

import pytest
import trio

from callboard.actors.books import HISTORY, TURN
from callboard.actors.envelope import Envelope
from callboard.actors.errors import LogError
from callboard.actors.events import AbortRequested, Call, ToolCalled, ToolReturned, TurnEnded
from callboard.actors.messages import Accepted, Interrupting, Refused
from callboard.actors.model import Reply
from callboard.actors.notices import DurabilityDelayed
from callboard.actors.stage import Limits
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.actors.tool import tool

from .disks import Disk
from .strict import check_history, check_log, of_kind, until

RAN: list[str] = []  # reset by `clean`


@pytest.fixture(autouse=True)
def clean():
    """Each test starts with an empty list of bodies that ran."""
    RAN.clear()


@tool(parallel=True)
async def pay(what: str) -> str:
    """Has an effect."""
    RAN.append(what)
    return what


@tool(parallel=True, effect="none")
async def look(what: str) -> str:
    """Has none."""
    RAN.append(what)
    return what


def calls(name: str, *whats: str) -> list[Call]:
    """Calls of one tool."""
    return [Call(name, {"what": what}) for what in whats]


class Reader:
    """Somebody outside, who is told what is durable."""

    def __init__(self) -> None:
        self.envelopes: list[Envelope] = []

    def take(self, envelopes: Any) -> None:
        """Take it."""
        self.envelopes.extend(envelopes)

    def kinds(self) -> list[type]:
        """The kinds of events it knows."""
        return [type(e.event) for e in self.envelopes]


async def syncs_of(*replies: Reply) -> int:
    """How often a turn with these replies asks for the disk, beyond the submit and the end of the turn."""
    disk = Disk()
    async with open_lab(ScriptedModel([*replies, Reply("done")]), tools=[pay, look], store=disk) as lab:
        session = await lab.session()
        await session.run("go")
        return disk.syncs - 2


async def test_batch_of_calls_shares_one_wait():
    """Ten parallel calls with effects wait for the disk once, together."""
    assert await syncs_of(Reply(calls=calls("pay", *"0123456789"))) == 1


async def test_call_without_effect_does_not_wait():
    """`effect = none` needs no record before it runs."""
    assert await syncs_of(Reply(calls=calls("look", *"0123456789"))) == 0


async def test_mixed_batch_waits_once():
    """One call with an effect is enough, and one wait is enough for all."""
    assert await syncs_of(Reply(calls=[*calls("look", "a"), *calls("pay", "b"), *calls("look", "c")])) == 1


async def test_exclusive_calls_wait_one_by_one():
    """An exclusive call is recorded when its turn has come, so that a crash before it leaves it as not started."""

    @tool
    async def alone() -> str:
        """Exclusive, with an effect."""
        return "done"

    disk = Disk()
    replies = [Reply(calls=[Call("alone")] * 3), Reply("done")]
    async with open_lab(ScriptedModel(replies), tools=[alone], store=disk) as lab:
        session = await lab.session()
        await session.run("go")
        assert disk.syncs - 2 == 3
        kinds = [type(e) for e in lab.records() if isinstance(e, ToolCalled | ToolReturned)]
        assert kinds == [ToolCalled, ToolReturned] * 3


async def test_each_step_waits_for_itself():
    """Results and the model's answer ride on the next wait."""
    assert await syncs_of(*(Reply(calls=calls("pay", str(n))) for n in range(5))) == 5


async def test_readers_make_the_log_durable_soon_without_anybody_waiting():
    """A reader outside gets answers and results although no call has an effect."""
    disk, reader = Disk(), Reader()
    async with open_lab(ScriptedModel([Reply("a", calls("look", "x")), Reply("b")]), tools=[look], store=disk) as lab:
        session = await lab.session()
        session.log.follow(reader)
        await session.run("go")
        assert reader.kinds() == [type(e) for e in lab.records()[1:]]


async def test_body_does_not_run_before_its_call_is_durable():
    """While the disk stalls the handler waits, and the loop does not."""
    disk = Disk()
    async with open_lab(ScriptedModel([Reply(calls=calls("pay", "x"))]), tools=[pay], store=disk) as lab:
        session, other = await lab.session(), await lab.session("other")
        await session.submit("go")
        disk.stall()
        await until(lambda: disk.waiting)
        await trio.sleep(3)
        assert RAN == []
        assert other.actor.phase.value == "idle"
        disk.go()
        ended = await session.wait(1)
        assert ended is not None
        assert (RAN, ended.reason) == (["x"], "completed")


async def test_call_cancelled_while_its_record_is_flushed_is_not_started():
    """The turn ends at once, without the disk; its end is announced after the disk has confirmed it."""
    disk, reader = Disk(), Reader()
    async with open_lab(
        ScriptedModel([Reply(calls=calls("pay", "x", "y")), Reply("on")]), tools=[pay], store=disk
    ) as lab:
        session = await lab.session()
        session.log.follow(reader)
        await session.submit("go")
        disk.stall()
        await until(lambda: of_kind(lab.records(), ToolCalled))
        asked = trio.current_time()
        assert await session.interrupt() == Interrupting(1)
        await until(lambda: of_kind(lab.records(), TurnEnded))
        assert trio.current_time() - asked <= 0.01
        assert not session.state(TURN).open
        assert TurnEnded not in reader.kinds()
        await trio.sleep(2)
        assert session.actor.phase.value == "aborting"
        assert await session.interrupt() == Interrupting(1)
        disk.go()
        ended = await session.wait(1)
        assert ended is not None
        assert [r.receipt for r in ended.receipts] == ["not_started"] * 2
        assert (RAN, TurnEnded in reader.kinds()) == ([], True)
        assert (await session.run("more")).last_message == "on"
        check_history(session.state(HISTORY).messages)


async def test_disk_that_confirms_in_the_tick_of_the_interrupt_starts_no_body():
    """When the flush is over and the abort is there in the same tick, the call is not started."""
    disk = Disk()
    async with open_lab(ScriptedModel([Reply(calls=calls("pay", "x", "y"))]), tools=[pay], store=disk) as lab:
        session = await lab.session()
        await session.submit("go")
        disk.stall()
        await until(lambda: disk.waiting)
        disk.go()
        session.actor.scene.window.request("interrupted")  # type: ignore[union-attr]  # a turn is running
        ended = await session.wait(1)
        assert ended is not None
        assert ([r.receipt for r in ended.receipts], RAN) == (["not_started"] * 2, [])


async def test_long_stall_is_announced_once_and_refuses_new_input():
    """After `flush_stall_s` one notice; then submits are refused, verbs are answered, reads go on, the slot is kept."""
    disk = Disk()
    replies = [Reply("a"), Reply("b"), Reply("c")]
    async with open_lab(ScriptedModel(replies), store=disk, limits=Limits(flush_stall_s=5)) as lab:
        session = await lab.session()
        answers: list[Any] = []
        await session.submit("go")
        disk.stall()
        await until(lambda: of_kind(lab.records(), TurnEnded))
        await trio.sleep(4)
        lab.stage.nursery.start_soon(_keep, answers, session, "waits for the disk")
        await trio.sleep(60)
        assert [n for n in lab.notices if isinstance(n, DurabilityDelayed)] == [DurabilityDelayed("s", 1)]
        assert (session.actor.phase.value, answers) == ("running", [])
        refused = await session.submit("no")
        assert isinstance(refused, Refused)
        assert refused.reason == "store_stalled"
        with pytest.raises(LogError):
            await session.run("no")
        assert type(await session.interrupt()).__name__ == "Idle"
        assert session.state(HISTORY).messages[-1].text == "a"
        disk.go()
        await session.wait_idle()
        assert [type(a) for a in answers] == [Accepted]
        assert (await session.run("again")).last_message == "c"
        check_log(lab.records())


async def _keep(answers: list[Any], session: Any, text: str) -> None:
    answers.append(await session.submit(text))


async def test_failing_disk_delays_the_end_of_a_turn_until_it_works():
    """Flushes that fail are tried again with a pause; the end is told once it is durable."""
    disk = Disk()
    async with open_lab(ScriptedModel([Reply("a")], delay_s=1), store=disk) as lab:
        session = await lab.session()
        await session.submit("go")
        disk.failing = True
        await trio.sleep(4)
        assert (session.actor.phase.value, session.actor.last_ended) == ("running", None)
        disk.failing = False
        ended = await session.wait(1)
        assert ended is not None
        assert ended.reason == "completed"
        assert [n for n in lab.notices if isinstance(n, DurabilityDelayed)] == []


async def test_flush_that_fails_before_a_tool_ends_the_turn_with_an_error():
    """A call whose record cannot be made durable is not started, and the model's turn ends with what the store said."""
    disk = Disk()
    replies = [Reply(calls=calls("pay", "x")), Reply("on")]
    async with open_lab(ScriptedModel(replies, delay_s=1), tools=[pay], store=disk) as lab:
        session = await lab.session()
        await session.submit("go")
        disk.failing = True
        await trio.sleep(3)
        disk.failing = False
        ended = await session.wait(1)
        assert ended is not None
        assert (ended.reason, ended.error) == ("completed", "the store refused: the disk is full")
        assert ([r.receipt for r in ended.receipts], RAN) == (["not_started"], [])
        assert (await session.run("more")).last_message == "on"
        check_history(session.state(HISTORY).messages)


async def test_submit_is_accepted_when_it_is_durable():
    """The answer waits for the disk, a failing disk is the sender's news, and the message is kept in order."""
    disk = Disk()
    async with open_lab(ScriptedModel([Reply("a"), Reply("b")], delay_s=1), store=disk) as lab:
        session = await lab.session()
        disk.failing = True
        with pytest.raises(LogError):
            await session.submit("go", id="one")
        disk.failing = False
        again = await session.submit("go", id="one")
        assert (again.turn, type(again)) == (1, Accepted)
        await session.wait(1)
        assert len(of_kind(lab.records(), AbortRequested)) == 0
        await session.wait_idle()
        assert session.state(TURN).number == 1


async def test_interrupt_is_answered_while_the_disk_stalls():
    """No verb that only reads or ends waits for the disk."""
    disk = Disk()
    async with open_lab(ScriptedModel([Reply("a")], delay_s=100), store=disk) as lab:
        session = await lab.session()
        await session.submit("go")
        disk.stall()
        asked = trio.current_time()
        assert await session.interrupt() == Interrupting(1)
        await until(lambda: of_kind(lab.records(), TurnEnded))
        assert trio.current_time() - asked <= 0.01
        disk.go()
        await session.wait_idle()
        assert of_kind(lab.records(), ToolReturned) == []

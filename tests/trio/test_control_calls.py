"""Control tools: exactly one fact for each admitted call, written together with its result, on every path."""

from typing import Any

import pytest
import trio

from callboard.actors.books import HISTORY
from callboard.actors.errors import FatalToolError, ToolError
from callboard.actors.events import AbortRequested, Call, ControlCallEnded, Event, ToolCalled, ToolReturned
from callboard.actors.fold import Projection
from callboard.actors.model import Reply
from callboard.actors.plugin import Block, Failed, Hook, Plugin, Rewrite, View
from callboard.actors.stage import Limits
from callboard.actors.testing import FakeWall, ScriptedModel, open_lab
from callboard.actors.tool import tool

from .disks import Disk
from .strict import check_history, check_log, of_kind, until


class Chosen(Event, frozen=True):
    """What the control tool of these tests writes."""

    value: str


CHOSEN: Projection[str] = Projection("chosen", "", lambda state, event: event.value, on=(Chosen,))


@tool(control=True, effect="none")
async def choose(value: str, view: View) -> str:
    """Chooses, by saying how it shall end."""
    match value:
        case "tool error":
            raise ToolError("no")
        case "bug":
            raise KeyError("bug")
        case "fatal":
            raise FatalToolError("over")
        case "failed":
            return Failed("not this time")  # type: ignore[return-value]  # a tool may answer so
    view.append(Chosen(value))
    if value.startswith("slow"):
        await trio.sleep(5)
    return "Chosen"


def refuses(view: View) -> str | None:
    """Refuses before the arguments are parsed."""
    return "not in this mode"


@tool(control=True, effect="none", refuse=refuses)
async def refused() -> str:
    """Never runs."""
    raise AssertionError


@tool(control=True, effect="none", timeout_s=2)
async def sleepy() -> None:
    """Sleeps past its time."""
    await trio.sleep(60)


@tool(control=True, effect="none")
def at_once(value: str, view: View) -> str:
    """Chooses, in a thread."""
    view.append(Chosen(value))
    return "Chosen"


PLUGIN = Plugin("chosen", events=(Chosen,), projections=(CHOSEN,), tools=(choose, refused, sleepy, at_once))
FACTS = (Chosen, ToolReturned, ControlCallEnded)


async def facts_of(call: Call, *hooks: Hook) -> tuple[list[Event], Any]:
    """What one call leaves on the log: its events, its result and its fact; and the turn's end."""
    replies = [Reply(calls=[call]), Reply("on")]
    async with open_lab(ScriptedModel(replies), plugins=[PLUGIN], hooks=hooks) as lab:
        session = await lab.session()
        ended = await session.run("go")
        check_history(session.state(HISTORY).messages)
        check_log(lab.records())
        return of_kind(lab.records(), *FACTS), ended


PATHS: tuple[tuple[Call, tuple[Hook, ...], str, str], ...] = (
    (Call("choose", {"value": "a"}), (), "completed", "completed"),
    (Call("at_once", {"value": "a"}), (), "completed", "completed"),
    (Call("choose", {"value": "tool error"}), (), "failed", "failed"),
    (Call("choose", {"value": "bug"}), (), "failed", "failed"),
    (Call("choose", {"value": "fatal"}), (), "failed", "failed"),
    (Call("choose", {"value": "failed"}), (), "failed", "failed"),
    (Call("choose", {"value": 1}), (), "failed", "failed"),
    (Call("choose", "{"), (), "failed", "failed"),
    (Call("refused"), (), "failed", "failed"),
    (Call("sleepy"), (), "failed", "failed"),
    (Call("choose", {"value": "a"}), (Hook("h", before_tool=lambda c: Block("no")),), "rejected", "rejected"),
    (Call("choose", {"value": "a"}), (Hook("h", before_tool=lambda c: Rewrite({})),), "failed", "failed"),
    (Call("choose", {"value": "a"}), (Hook("h", after_tool=lambda c, r: Block("no")),), "completed", "completed"),
)


@pytest.mark.parametrize(("call", "hooks", "receipt", "outcome"), PATHS)
async def test_each_admitted_call_has_one_fact(call, hooks, receipt, outcome):
    """Whatever way a control call goes, its result and its one fact are there, and its event only on success."""
    facts, _ = await facts_of(call, *hooks)
    returned, fact = facts[-2:]
    assert isinstance(returned, ToolReturned)
    assert isinstance(fact, ControlCallEnded)
    assert (returned.receipt, fact.outcome, fact.tool, fact.cell) == (receipt, outcome, call.name, None)
    assert facts[:-2] == ([Chosen("a")] if outcome == "completed" else [])


@pytest.mark.parametrize("call", [Call("nowhere"), Call("choose", "text", kind="custom")])
async def test_call_that_is_not_admitted_has_no_fact(call):
    """An unknown tool and a payload of the wrong kind count as nothing."""
    facts, _ = await facts_of(call)
    assert [type(fact) for fact in facts] == [ToolReturned]


async def test_fact_says_when_and_never_what():
    """Start and end in wall time, and no field that could hold an argument or an output."""
    wall = FakeWall()
    started = wall.now_ms()

    @tool(control=True, effect="none")
    async def slow() -> str:
        """Takes a while."""
        wall.advance(1.5)
        await trio.lowlevel.checkpoint()
        return "secret"

    async with open_lab(ScriptedModel([Reply(calls=[Call("slow", id="c")])]), tools=[slow], wall=wall) as lab:
        session = await lab.session()
        await session.run("go")
        assert of_kind(lab.records(), ControlCallEnded) == [
            ControlCallEnded("c", None, "slow", started, started + 1500, "completed")
        ]


async def test_event_and_result_of_a_control_call_are_one_write():
    """Nobody ever sees the event of a control tool without its result."""
    async with open_lab(ScriptedModel([Reply(calls=[Call("choose", {"value": "a"})])]), plugins=[PLUGIN]) as lab:
        session = await lab.session()
        writes: list[list[str]] = []
        append = lab.stage.store.append

        def listen(session: str, records: Any, header: Any = None, due: Any = None) -> None:
            writes.append([type(lab.stage.codec.decode(r.body)).__name__ for r in records])
            append(session, records, header, due)

        lab.stage.store.append = listen  # type: ignore[method-assign]  # the test listens
        await session.run("go")
        assert ["Chosen", "ToolReturned", "ControlCallEnded"] in writes


async def test_cancelled_before_its_result_a_control_call_has_written_nothing():
    """Interrupted while the handler runs: no event, outcome interrupted, the fold as before."""
    replies = [Reply(calls=[Call("choose", {"value": "slow"})]), Reply("on")]
    async with open_lab(ScriptedModel(replies), plugins=[PLUGIN]) as lab:
        session = await lab.session()
        await session.submit("go")
        await until(lambda: of_kind(lab.records(), ToolCalled))
        await session.interrupt()
        await session.wait(1)
        facts = of_kind(lab.records(), *FACTS)
        assert [type(fact) for fact in facts] == [ToolReturned, ControlCallEnded]
        assert [f.outcome for f in facts if isinstance(f, ControlCallEnded)] == ["interrupted"]
        assert session.state(CHOSEN) == ""


async def test_interrupted_while_its_result_is_flushed_a_control_call_stays_completed():
    """Once the result is on the log the call is final, whatever the disk does."""

    @tool
    async def effect() -> str:
        """Has an effect."""
        return "done"

    disk = Disk()
    replies = [Reply(calls=[Call("choose", {"value": "a"}), Call("effect")]), Reply("on")]
    async with open_lab(ScriptedModel(replies), plugins=[PLUGIN], tools=[effect], store=disk) as lab:
        session = await lab.session()
        await session.submit("go")
        disk.stall()
        await until(lambda: disk.waiting)
        assert of_kind(lab.records(), Chosen, ControlCallEnded)[0] == Chosen("a")
        await session.interrupt()
        await until(lambda: lab.records()[-1].__class__.__name__ == "TurnEnded")
        disk.go()
        ended = await session.wait(1)
        assert ended is not None
        assert [r.receipt for r in ended.receipts] == ["completed", "not_started"]
        assert [e.outcome for e in of_kind(lab.records(), ControlCallEnded)] == ["completed"]
        assert session.state(CHOSEN) == "a"


@pytest.mark.parametrize("hooked", [False, True])
async def test_not_started_control_call_has_no_fact(hooked):
    """Interrupted before its turn came, or while its hooks were asked, a control call counts as nothing."""

    async def ponder(call: Any) -> None:
        await trio.sleep(5)

    hooks = [Hook("h", before_tool=ponder)] if hooked else []
    calls = [Call("choose", {"value": "slow 1"}), Call("choose", {"value": "slow 2"})]
    async with open_lab(ScriptedModel([Reply(calls=calls)]), plugins=[PLUGIN], hooks=hooks) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1)
        await session.interrupt()
        ended = await session.wait(1)
        assert ended is not None
        first = "not_started" if hooked else "interrupted"
        assert [r.receipt for r in ended.receipts] == [first, "not_started"]
        outcomes = [e.outcome for e in of_kind(lab.records(), ControlCallEnded)]
        assert outcomes == ([] if hooked else ["interrupted"])
        check_log(lab.records())


async def test_abandoned_control_call_counts_as_interrupted():
    """From receipt `abandoned` the outcome is interrupted, and what the handler wrote is dropped."""

    @tool(control=True, effect="none", graceful=True)
    async def deaf(view: View) -> str:
        """Hears, and returns too late."""
        view.append(Chosen("late"))
        await trio.sleep(3)
        return "late"

    plugin = Plugin("deaf", events=(Chosen,), projections=(CHOSEN,), tools=(deaf,))
    async with open_lab(ScriptedModel([Reply(calls=[Call("deaf")])]), plugins=[plugin]) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1)
        await session.interrupt()
        ended = await session.wait(1)
        assert ended is not None
        assert [r.receipt for r in ended.receipts] == ["abandoned"]
        assert [e.outcome for e in of_kind(lab.records(), ControlCallEnded)] == ["interrupted"]
        await trio.sleep(5)
        assert of_kind(lab.records(), Chosen) == []


async def test_event_that_cannot_be_written_fails_the_call_that_wrote_it():
    """A control tool hears of a bad event when it appends it, not the session when it writes the result."""

    @tool(control=True, effect="none")
    async def bad(view: View) -> str:
        """Writes what has no written form."""
        view.append(Chosen(value=object()))  # type: ignore[arg-type]  # on purpose
        return "never"

    @tool(control=True, effect="none")
    async def stranger(view: View) -> str:
        """Writes what belongs to the session."""
        view.append(AbortRequested(1, "interrupted"))
        return "never"

    plugin = Plugin("bad", events=(Chosen,), projections=(CHOSEN,), tools=(bad, stranger))
    replies = [Reply(calls=[Call("bad"), Call("stranger")]), Reply("on")]
    async with open_lab(ScriptedModel(replies), plugins=[plugin]) as lab:
        session = await lab.session()
        ended = await session.run("go")
        assert (ended.last_message, [r.receipt for r in ended.receipts]) == ("on", ["failed", "failed"])
        assert [e.outcome for e in of_kind(lab.records(), ControlCallEnded)] == ["failed", "failed"]


async def test_open_control_call_is_closed_by_the_repair_once():
    """A control call that ran when the program ended is counted as interrupted when its log is read again."""

    @tool(control=True, effect="none")
    async def update_plan() -> None:
        """Never returns."""
        await trio.sleep_forever()

    disk = Disk()
    with trio.move_on_after(5):
        async with open_lab(
            ScriptedModel([Reply(calls=[Call("update_plan")])]), tools=[update_plan], store=disk
        ) as lab:
            await (await lab.session()).submit("go")
            await trio.sleep_forever()
    async with open_lab(tools=[update_plan], store=disk, limits=Limits()) as lab:
        await lab.session(fresh=False)
        await lab.session(fresh=False)
        assert [e.outcome for e in of_kind(lab.records(), ControlCallEnded)] == ["interrupted"]
        check_log(lab.records())

"""Views: what a tool or a hook may do while its call lasts, and that nothing works afterwards."""

from typing import Any

import pytest
import trio

from callboard.actors.books import TURN
from callboard.actors.errors import CallOver, ToolError, UsageError
from callboard.actors.events import Call, Event, ToolReturned, TurnStarted
from callboard.actors.fold import Projection
from callboard.actors.model import Reply
from callboard.actors.plugin import Enter, Plugin, View
from callboard.actors.testing import Lab, ScriptedModel, open_lab
from callboard.actors.tool import tool

from .strict import of_kind, until


class Noted(Event, frozen=True):
    """Something a tool writes."""

    text: str


class Stranger(Event, frozen=True):
    """An event that no plugin of the runtime lists."""

    text: str = ""


NOTES: Projection[int] = Projection("notes", 0, lambda count, event: count + 1, on=(Noted,))


def lab_with(*fns: Any, **options: Any) -> Any:
    """A lab whose first turn calls each of these functions once, and whose plugin knows Noted."""
    tools = tuple(tool(**options)(fn) for fn in fns)
    plugin = Plugin("notes", events=(Noted,), projections=(NOTES,), tools=tools)
    replies = [Reply(calls=[Call(one.name, id=one.name) for one in tools]), Reply("done")]
    return open_lab(ScriptedModel(replies), plugins=[plugin])


def texts(lab: Lab) -> list[str]:
    """What the model read of the calls."""
    return [e.text for e in of_kind(lab.records(), ToolReturned)]


async def test_view_says_where_the_call_is():
    """Session, path, depth, turn, call, key, folder and clock."""

    async def where(view: View) -> Any:
        """Says it."""
        return [
            view.session,
            view.path,
            view.depth,
            view.turn,
            view.call,
            view.key,
            view.folder,
            view.steered,
            view.fresh,
        ]

    async with lab_with(where) as lab:
        session = await lab.session(path="/root/a", depth=1)
        await session.run("go")
        assert texts(lab) == ['["s","/root/a",1,1,"where","s/1/where",".",false,false]']


async def test_append_is_folded_at_once_and_refuses_what_is_not_the_plugins():
    """A tool reads its own event back; core events, strangers and things that are none are refused by name."""
    said: list[str] = []

    async def writes(view: View) -> int:
        """Writes."""
        view.append(Noted("a"), Noted("b"))
        for wrong in (TurnStarted(9), Stranger(), "text"):
            try:
                view.append(wrong)  # type: ignore[arg-type]  # on purpose
            except UsageError as error:
                said.append(str(error).split(" ")[0])
        return view[NOTES]

    async with lab_with(writes) as lab:
        await (await lab.session()).run("go")
        assert (texts(lab), said) == (["2"], ["TurnStarted", "Stranger", "append"])


async def test_everything_of_a_view_is_over_with_its_call():
    """After the call's result every method raises CallOver, and what it tries reaches nothing."""
    kept: list[View] = []

    async def keeps(view: View) -> None:
        """Keeps its view."""
        kept.append(view)

    async with lab_with(keeps) as lab:
        session = await lab.session()
        await session.run("go")
        view, before = kept[0], lab.records()
        for use in (
            lambda: view.session,
            lambda: view.path,
            lambda: view.depth,
            lambda: view.key,
            lambda: view.folder,
            lambda: view.interrupted,
            lambda: view.steered,
            lambda: view.fresh,
            lambda: view.belongings,
            lambda: view.window_s,
            lambda: view[NOTES],
            lambda: view.append(Noted("late")),
            view.now_ms,
            lambda: view.output("late"),
            lambda: view.start_soon(trio.sleep, 1),
        ):
            with pytest.raises(CallOver, match="'keeps' has ended"):
                use()
        for wait in (view.until(lambda: True), view.spawn("a", "b")):
            with pytest.raises(CallOver):
                await wait
        assert lab.records() == before


async def test_hooks_view_is_over_with_the_hook():
    """A plugin that keeps the view of its `before_step` cannot write between turns."""
    kept: list[View] = []

    async def keep(view: View, messages: Any) -> Enter:
        kept.append(view)
        return Enter(messages)

    async with open_lab(plugins=[Plugin("p", events=(Noted,), before_step=keep)]) as lab:
        session = await lab.session()
        await session.run("go")
        with pytest.raises(CallOver):
            kept[0].append(Noted("late"))


async def test_until_waits_for_the_log():
    """It returns at once when the condition holds, else after the append that makes it hold."""

    async def waits(view: View) -> float:
        """Waits for two notes."""
        before = trio.current_time()
        await view.until(lambda: view[NOTES] >= 0)
        await view.until(lambda: view[NOTES] >= 2)
        return trio.current_time() - before

    async def writes(view: View) -> float:
        """Writes them."""
        for seconds in (3, 4):
            await trio.sleep(seconds)
            view.append(Noted("x"))
        return 7

    async with lab_with(waits, writes, parallel=True) as lab:
        await (await lab.session()).run("go")
        assert texts(lab) == ["7.0", "7"]


async def test_condition_that_breaks_is_its_waiters_mistake():
    """An error in somebody's condition fails the waiter's call, never the call that appended."""

    def not_there() -> bool:
        raise IndexError("list index out of range")

    async def waits_wrongly(view: View) -> None:
        """Waits for something that breaks after the first note."""
        await view.until(lambda: view[NOTES] > 0 and not_there())

    async def writes(view: View) -> str:
        """Writes."""
        await trio.sleep(1)
        view.append(Noted("x"))
        return "written"

    async with lab_with(waits_wrongly, writes, parallel=True) as lab:
        await (await lab.session()).run("go")
        assert texts(lab) == ["IndexError: list index out of range", "written"]


async def test_abandoned_waiter_does_not_disturb_the_log():
    """A tool that waits on the log and was left behind is not asked in anybody's append any more."""

    async def waits(view: View) -> None:
        """Shields its wait."""
        with trio.move_on_after(5, shield=True):
            await view.until(lambda: view[NOTES] > 99)

    async with lab_with(waits) as lab:
        lab.stage.can_drop = False
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1)
        await session.interrupt()
        ended = await session.wait(1)
        assert ended is not None
        assert [r.receipt for r in ended.receipts] == ["abandoned"]
        assert (await session.run("more")).reason == "completed"
        await until(lambda: not lab.stage.abandoned.count())


async def test_task_beside_the_session_outlives_its_call_and_not_the_session():
    """`start_soon` runs on; its end, its errors and a new one of the same call keep out of each other's way."""
    seen: list[str] = []

    async def beside(name: str, seconds: float) -> None:
        try:
            await trio.sleep(seconds)
            seen.append(f"{name} done")
            if name == "broken":
                raise SystemExit(3)
        except trio.Cancelled:
            seen.append(f"{name} cancelled")
            raise

    async def starts(view: View) -> int:
        """Starts three."""
        for name, seconds in (("short", 1), ("broken", 2), ("long", 1000)):
            view.start_soon(beside, name, seconds)
        await trio.sleep(1.5)
        view.start_soon(beside, "longer", 1000)
        return len(view.belongings)

    async with lab_with(starts) as lab:
        session = await lab.session()
        await session.run("go")
        assert texts(lab) == ["3"]
        await trio.sleep(10)
        assert seen == ["short done", "broken done"]
        assert (await session.run("more")).reason == "completed"
        await session.stop()
        await until(lambda: len(seen) == 4)
        assert sorted(seen[2:]) == ["long cancelled", "longer cancelled"]


async def test_spawning_needs_a_runtime():
    """A lab starts no subagents, and the model reads that."""

    async def spawns(view: View) -> str:
        """Spawns."""
        return await view.spawn("a", "task")

    async with lab_with(spawns) as lab:
        await (await lab.session()).run("go")
        assert texts(lab) == ["this runtime cannot start subagents."]


async def test_spawner_gets_the_request():
    """What a tool asks for reaches the runtime's spawner whole, and its refusal reaches the model."""
    requests: list[Any] = []

    class Spawner:
        """Refuses the second."""

        async def spawn(self, request: Any) -> tuple[str, str]:
            """Note it."""
            requests.append(request)
            if len(requests) > 1:
                raise ToolError("breadth_max: 1 child is the limit")
            return "kid", "/root/kid"

    async def spawns(view: View) -> str:
        """Spawns."""
        return await view.spawn("kid", "task", role="r", model="m", notify=False)

    async def again(view: View) -> str:
        """Spawns once more."""
        return await view.spawn("kid2", "task")

    async with lab_with(spawns, again) as lab:
        lab.stage.spawner = Spawner()
        session = await lab.session()
        await session.run("go")
        assert texts(lab) == ["/root/kid", "breadth_max: 1 child is the limit"]
        assert (requests[0].parent, requests[0].name, requests[0].notify) == ("s", "kid", False)
        assert session.state(TURN).number == 1


async def test_listener_that_fails_is_switched_off():
    """A subscriber of the runtime that raises is told nothing more, and the log goes on."""
    heard: list[Event] = []

    def listen(event: Event, session: str, turn: int | None) -> None:
        heard.append(event)
        if len(heard) == 3:
            raise LookupError("a metric that does not exist")

    async with open_lab(ScriptedModel([Reply("a")])) as lab:
        lab.stage.on_event = listen
        session = await lab.session()
        assert (await session.run("go")).last_message == "a"
        assert len(heard) == 3

"""Tools in threads under an interrupt: told, polled, left behind, counted; in real time, because threads keep it."""

import threading
import time
from typing import Any

import trio

from callboard.actors.errors import CallOver, UsageError
from callboard.actors.events import Call, Event, ToolReturned, TurnEnded
from callboard.actors.model import Prompt, Reply
from callboard.actors.plugin import Partial, Plugin, View
from callboard.actors.stage import Limits
from callboard.actors.testing import Lab, LabSession, ScriptedModel, open_lab
from callboard.actors.tool import tool

from .fair import Since, in_time, timely

ENDED_MAX_S = 0.25


class Noted(Event, frozen=True):
    """Something a thread writes."""

    text: str


def calls_first(*calls: Call) -> ScriptedModel:
    """The first step of turn 1 makes these calls, everything else only talks."""
    return ScriptedModel(lambda p: Reply(calls=calls) if (p.turn, p.step) == (1, 1) else Reply("fine"))


async def interrupted(session: LabSession, began: list[Any], count: int = 1) -> tuple[TurnEnded, float]:
    """Interrupt turn 1 once `count` bodies run; its end, and the seconds it took."""
    await session.submit("go")
    with trio.fail_after(5):
        while len(began) < count:
            await trio.sleep(0.001)
    await trio.sleep(0.02)
    asked = Since()
    await session.interrupt()
    ended = await session.wait(1)
    assert ended is not None
    return ended, asked.own_s()


def texts(lab: Lab) -> list[str]:
    """What the model read of the calls."""
    return [e.text for e in lab.records() if isinstance(e, ToolReturned)]


@timely
def test_thread_that_looks_returns_what_it_has():
    """A thread that polls `interrupted` ends within the window and its Partial is read as it is."""
    began: list[bool] = []

    @tool
    def polite(view: View) -> Any:
        """Looks up now and then."""
        began.append(True)
        while not view.interrupted:
            time.sleep(0.002)
        return Partial("counted to 7")

    async def main() -> None:
        async with open_lab(calls_first(Call("polite")), tools=[polite]) as lab:
            session = await lab.session()
            ended, seconds = await interrupted(session, began)
            assert ([r.receipt for r in ended.receipts], ended.ending) == (["interrupted"], "graceful")
            assert texts(lab) == ["counted to 7"]
            in_time(seconds, 0.1)

    trio.run(main)


@timely
def test_thread_that_does_not_look_holds_its_place_until_it_ends():
    """At `threads_abandoned_max` further thread tools fail at once and say why, until a place is free again."""
    began: list[bool] = []
    go_on = threading.Event()

    @tool(parallel=True)
    def deaf() -> None:
        """Waits."""
        began.append(True)
        go_on.wait(10)

    @tool
    def quick() -> str:
        """Returns."""
        return "ran"

    def model(prompt: Prompt) -> Reply:
        calls = [Call("deaf"), Call("deaf")] if prompt.turn == 1 else [Call("quick")]
        return Reply(calls=calls) if prompt.step == 1 else Reply("fine")

    async def main() -> None:
        limits = Limits(threads_abandoned_max=2)
        async with open_lab(ScriptedModel(model), tools=[deaf, quick], limits=limits) as lab:
            session = await lab.session()
            ended, seconds = await interrupted(session, began, 2)
            assert [r.receipt for r in ended.receipts] == ["abandoned"] * 2
            in_time(seconds, ENDED_MAX_S)
            assert lab.stage.abandoned.count("thread") == 2
            assert [r.receipt for r in (await session.run("go")).receipts] == ["failed"]
            assert texts(lab)[-1] == "no thread free: 2 abandoned tools still hold theirs"
            go_on.set()
            with trio.fail_after(5):
                while lab.stage.abandoned.count():
                    await trio.sleep(0.001)
            assert [r.receipt for r in (await session.run("go")).receipts] == ["completed"]

    trio.run(main)


def test_thread_tool_that_waits_for_a_place_is_not_started():
    """Interrupted in the queue for the pool, a call's body never runs, and its turn does not wait for it."""
    began: list[str] = []
    go_on = threading.Event()

    @tool(parallel=True)
    def holds(name: str) -> None:
        """Holds its place."""
        began.append(name)
        go_on.wait(10)

    async def main() -> None:
        calls = [Call("holds", {"name": str(n)}) for n in range(3)]
        async with open_lab(calls_first(*calls), tools=[holds], limits=Limits(threads_max=1)) as lab:
            session = await lab.session()
            ended, _ = await interrupted(session, began)
            assert sorted(r.receipt for r in ended.receipts) == ["abandoned", "not_started", "not_started"]
            go_on.set()
            await trio.sleep(0.05)
            assert (len(began), lab.stage.abandoned.count()) == (1, 0)

    trio.run(main)


def test_timeout_of_a_thread_fails_the_call_and_leaves_the_thread():
    """The turn goes on at `timeout_s`, and the thread is counted until it ends."""
    go_on = threading.Event()

    @tool(timeout_s=0.05)
    def long() -> None:
        """Too long."""
        go_on.wait(10)

    async def main() -> None:
        async with open_lab(calls_first(Call("long")), tools=[long]) as lab:
            session = await lab.session()
            ended = await session.run("go")
            assert ([r.receipt for r in ended.receipts], ended.last_message) == (["failed"], "fine")
            assert texts(lab) == ["long timed out after 0.05s. It did not stop and was left behind."]
            assert lab.stage.abandoned.names() == ("long (thread)",)
            go_on.set()
            with trio.fail_after(5):
                while lab.stage.abandoned.count():
                    await trio.sleep(0.001)

    trio.run(main)


def test_view_works_from_a_thread_until_the_call_is_over():
    """Append, output and belongings cross over; afterwards every one of them says that the call has ended."""
    kept: list[Any] = []
    late: list[str] = []
    go_on, done = threading.Event(), threading.Event()

    @tool
    def writes(view: View) -> str:
        """Writes."""
        view.append(Noted("in time"))
        view.output("a line")
        kept.append(view)

        def later() -> None:
            go_on.wait(10)
            for use in (lambda: view.session, view.now_ms, lambda: view.key, lambda: view.interrupted):
                try:
                    use()
                except CallOver:
                    late.append("CallOver")
            done.set()

        threading.Thread(target=later, daemon=True).start()
        return view.key

    async def main() -> None:
        plugin = Plugin("notes", events=(Noted,), tools=(writes,))
        async with open_lab(calls_first(Call("writes", id="c")), plugins=[plugin]) as lab:
            session = await lab.session()
            ended = await session.run("go")
            assert [r.receipt for r in ended.receipts] == ["completed"]
            assert Noted("in time") in lab.records()
            assert [d.text for d in session.deltas if d.part == "output"] == ["a line"]
            assert texts(lab) == ["s/1/c"]
            go_on.set()
            await trio.to_thread.run_sync(done.wait, 5, abandon_on_cancel=True)
            assert late == ["CallOver"] * 4

    trio.run(main)


def test_thread_cannot_wait_on_the_loop():
    """`spawn` and `until` of a view are for tools on Trio, and say so."""

    @tool
    def wrong(view: View) -> str:
        """Uses what a thread cannot."""
        said = []
        for make in (lambda: view.until(lambda: True), lambda: view.spawn("a", "b")):
            coroutine: Any = make()
            try:
                coroutine.send(None)
            except UsageError as error:
                said.append(str(error))
        return "\n".join(said)

    async def main() -> None:
        async with open_lab(calls_first(Call("wrong")), tools=[wrong]) as lab:
            await (await lab.session()).run("go")
            assert texts(lab)[0].count("async def") == 2

    trio.run(main)

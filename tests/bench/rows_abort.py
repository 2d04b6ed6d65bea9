"""1,000 interrupts at once, for tools that obey and tools that do not; and one interrupt among 200 busy sessions."""

import asyncio
import itertools
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import trio

from callboard.actors import Call, Interrupting, Reply, tool
from callboard.actors.events import ModelSaid, ToolReturned
from callboard.actors.model import Assistant, Prompt, Result
from callboard.runtime.guest import Guest

from .floor_abort import TOOLS, interrupted
from .floor_step import Steps, with_steps
from .guest import run_guest
from .lags import Lags
from .measure import Span, late, now_s, settle
from .row import Figures, Goal, Row
from .sides import STEPS_MAX, GcPolicy, Instant, add, is_whole, runtime, script, with_gc

WINDOW_S = 0.1
PRESS_AFTER_S = 0.02
ENDS_S_MAX = 20.0
NEXT_TURNS_MAX = 50
TOLD = {"willing": "willing", "cleaning": "20 ms of clean-up", "stubborn": "shielded loop", "spinning": "spins"}
ENDED_BY_ITSELF = ("willing", "cleaning")  # a tool that is abandoned although it obeys was not reached in time
GOALS = {
    "willing": {"p99_ms": Goal(1.9, 45)},
    "cleaning": {"p99_ms": Goal(1.3, 100)},
    "stubborn": {"max_ms": Goal(1.25, 150)},
    "spinning": {"max_ms": Goal(1.25, 220)},
}


class Blocking:
    """Calls the blocking tool in a session's first turn, answers in the next; keeps what it was sent then."""

    provider = "scripted"

    def __init__(self) -> None:
        self.sent: list[Prompt] = []

    async def reply(self, prompt: Prompt, say: Any) -> Reply:
        """The call, or the answer."""
        await trio.lowlevel.checkpoint()
        if prompt.turn == 1:
            return Reply(calls=[Call("block", {})])
        self.sent.append(prompt)
        return Reply("done")


class Blocked:
    """A blocking tool, and how many of its calls run."""

    def __init__(self, kind: str) -> None:
        self.count = 0
        body = TOOLS[kind]

        @tool(effect="once")
        async def block() -> None:
            """Block."""
            self.count += 1
            await body()

        self.tool = block

    async def reached(self, count: int) -> None:
        """(asyncio) Return when so many calls run."""
        until_s = now_s() + ENDS_S_MAX
        while self.count < count:
            assert now_s() < until_s, f"{self.count} of {count} tools run"
            await asyncio.sleep(0.005)


def ours(kind: str, sessions: int) -> Figures:
    """Milliseconds from the first interrupt to each turn's end as its caller sees it; garbage managed as a server does.

    `left_p99_ms` is the same where garbage is left alone.
    """
    left = asyncio.run(_ours(kind, sessions, "leave"))
    return {**asyncio.run(_ours(kind, sessions, "manage")), "left_p99_ms": left["p99_ms"]}


async def _ours(kind: str, sessions: int, gc_policy: GcPolicy) -> Figures:
    model, blocked, takes = Blocking(), Blocked(kind), list[float]()
    async with runtime(model=model, tools=[blocked.tool], config=with_gc(gc_policy)) as rt:
        live = [await rt.create() for _ in range(sessions)]
        runs = [asyncio.create_task(session.run("go")) for session in live]
        await blocked.reached(sessions)
        await asyncio.sleep(0.05)
        guest = await Guest.enter()
        tasks = len(guest.living())
        settle()
        async with Lags() as lags:
            span, begun_s = Span(), now_s()
            for run in runs:
                run.add_done_callback(lambda _: takes.append(now_s() - begun_s))
            with span:
                answers = await asyncio.gather(*(session.interrupt() for session in live))
                await asyncio.wait(runs, timeout=ENDS_S_MAX)
        assert len(takes) == sessions, f"{len(takes)} of {sessions} turns ended"
        assert answers.count(Interrupting(1)) == sessions, answers[0]
        receipts = [_receipt(run.result()) for run in runs]
        await _check_next_turns(live[:NEXT_TURNS_MAX], model)
        open_calls = sum([await _open_calls(session) for session in live])
        left = await _left(rt, guest, tasks)
        await guest.leave()
    assert not open_calls, f"{open_calls} calls without a result"
    others = receipts.count("abandoned") if kind in ENDED_BY_ITSELF else receipts.count("interrupted")
    return {
        **late(takes),
        "cpu_us_each": span.cpu_s / sessions * 1e6,
        **lags.figures(),
        "tasks_left": left,
        "open_calls": open_calls,
        "other_receipts": others,
    }


def _receipt(ended: Any) -> str:
    """The one receipt of an interrupted turn."""
    assert (ended.reason, ended.cause, len(ended.receipts)) == ("aborted", "interrupted", 1), ended
    receipt: str = ended.receipts[0].receipt
    assert receipt in ("interrupted", "abandoned"), ended
    return receipt


async def _check_next_turns(live: list[Any], model: Blocking) -> None:
    for ended in await asyncio.gather(*(session.run("again") for session in live)):
        assert (ended.reason, ended.last_message) == ("completed", "done"), ended
    assert len(model.sent) == len(live)
    for prompt in model.sent:
        calls = {call.id for said in prompt.messages if isinstance(said, Assistant) for call in said.calls}
        assert calls == {said.call for said in prompt.messages if isinstance(said, Result)}, prompt


async def _open_calls(session: Any) -> int:
    """Calls on the session's log without a result."""
    calls: set[str] = set()
    last = session.state()["seq"]
    async for envelope in session.events():
        if isinstance(envelope.event, ModelSaid):
            calls.update(call.id for call in envelope.event.calls)
        elif isinstance(envelope.event, ToolReturned):
            calls.discard(envelope.event.call)
        if envelope.seq >= last:
            break
    return len(calls)


async def _left(rt: Any, guest: Guest, before: int) -> int:
    """What is still alive of the tools half a second later."""
    until_s = now_s() + 0.5
    while rt.statistics()["abandoned"] and now_s() < until_s:
        await asyncio.sleep(0.01)
    return len(rt.statistics()["abandoned"]) + max(0, len(guest.living()) - before)


def floor(kind: str, sessions: int) -> Figures:
    """The same window by hand; ended when the turn's own task ends."""
    span = Span()
    takes, results = run_guest(interrupted, kind, sessions, span)
    assert len(takes) == results == sessions
    return {**late(takes), "cpu_us_each": span.cpu_s / sessions * 1e6}


# -- one among many ------------------------------------------------------------------------------------------------


def ours_busy(sessions: int, presses: int) -> Figures:
    """One interrupt at a time, from another thread, while other sessions run turn after turn."""
    return asyncio.run(_ours_busy(sessions, presses))


class Mixed(Instant):
    """The busy sessions' script; a session whose id begins with `b` calls the blocking tool."""

    async def reply(self, prompt: Prompt, say: Any) -> Reply:
        """The reply of this step."""
        if prompt.session.startswith("b"):
            await trio.lowlevel.checkpoint()
            return Reply(calls=[Call("block", {})])
        return await super().reply(prompt, say)


async def _ours_busy(sessions: int, presses: int) -> Figures:
    blocked, turns, stop, takes, heard, span = Blocked("willing"), 0, False, list[float](), list[float](), Span()
    store = "normal" if sessions > 1 else "memory"
    async with runtime(store, model=Mixed(script()), tools=[add, blocked.tool]) as rt:

        async def busy() -> None:
            nonlocal turns
            session = await rt.create()
            while not stop:
                assert is_whole(await session.run("go"))
                turns += 1

        load = [asyncio.create_task(busy()) for _ in range(sessions if sessions > 1 else 0)]
        victim = await rt.create("blocked")
        await asyncio.sleep(0.5 if load else 0)
        turns, abandoned, lags = 0, 0, Lags()
        async with lags:
            with span:
                for press in range(1, presses + 1):
                    run = asyncio.create_task(victim.run("go"))
                    await blocked.reached(press)
                    ended, take_s, heard_s = await _pressed(victim, run)
                    abandoned += _receipt(ended) == "abandoned"
                    takes.append(take_s)
                    heard.append(heard_s)
            counted = turns
        stop = True
        await asyncio.gather(*load)
    figures = {**late(takes), **late(heard, prefix="heard_"), **lags.figures(), "other_receipts": abandoned}
    return {**figures, "turns_per_s": counted / span.wall_s} if load else figures


async def _pressed(victim: Any, run: "asyncio.Task[Any]") -> tuple[Any, float, float]:
    """Interrupt from a thread, as a key press would; how it ended, and seconds until then and until heard."""
    loop, at_s = asyncio.get_running_loop(), dict[str, float]()

    def press() -> None:
        threading.Event().wait(PRESS_AFTER_S)
        at_s["pressed"] = now_s()
        loop.call_soon_threadsafe(hear)

    def hear() -> None:
        at_s["heard"] = now_s()
        asked.append(asyncio.ensure_future(victim.interrupt()))

    asked: list[asyncio.Future[Any]] = []
    run.add_done_callback(lambda _: at_s.setdefault("ended", now_s()))
    threading.Thread(target=press).start()
    ended = await run
    await asyncio.gather(*asked)
    return ended, at_s["ended"] - at_s["pressed"], at_s["heard"] - at_s["pressed"]


def floor_busy(sessions: int, presses: int) -> Figures:
    """The same with turns by hand, and a scope that the thread cancels."""

    async def main(steps: Steps, nursery: trio.Nursery) -> Figures:
        turns, numbers, takes = 0, itertools.count(), list[float]()

        async def busy() -> None:
            nonlocal turns
            while True:
                assert await steps.turn(f"s{next(numbers)}") == STEPS_MAX
                turns += 1

        for _ in range(sessions if sessions > 1 else 0):
            nursery.start_soon(busy)
        await trio.sleep(0.5 if sessions > 1 else 0)
        turns, span = 0, Span()
        with span:
            for _ in range(presses):
                takes.append(await _scope_cancelled())
        return {**late(takes), **({"turns_per_s": turns / span.wall_s} if sessions > 1 else {})}

    figures: Figures = run_guest(with_steps, "normal" if sessions > 1 else "memory", main)
    return figures


async def _scope_cancelled() -> float:
    token, pressed_s = trio.lowlevel.current_trio_token(), list[float]()
    with trio.CancelScope() as scope:

        def press() -> None:
            threading.Event().wait(PRESS_AFTER_S)
            pressed_s.append(now_s())
            token.run_sync_soon(scope.cancel)

        threading.Thread(target=press).start()
        await trio.sleep(ENDS_S_MAX)
    return now_s() - pressed_s[0]


def _rows() -> Iterator[Row]:
    for kind, told in TOLD.items():
        yield Row(
            f"interrupt.{kind}",
            f"1,000 interrupts at once, tool: {told}",
            partial(ours, kind),
            partial(floor, kind),
            (
                "p99_ms",
                "left_p99_ms",
                "p50_ms",
                "max_ms",
                "cpu_us_each",
                "lag_trio_max_ms",
                "tasks_left",
                "open_calls",
                "other_receipts",
            ),
            {"sessions": 1000},
            {"sessions": 20},
            {**GOALS[kind], "tasks_left": Goal(value=0), "open_calls": Goal(value=0), "other_receipts": Goal(value=0)},
        )
    yield Row(
        "interrupt.busy",
        "one interrupt among 200 busy sessions, SQLite NORMAL",
        ours_busy,
        floor_busy,
        ("p99_ms", "p50_ms", "heard_p99_ms", "turns_per_s", "lag_asyncio_p99_ms", "lag_trio_p99_ms", "other_receipts"),
        {"sessions": 200, "presses": 25},
        {"sessions": 10, "presses": 3},
        {"p99_ms": Goal(2.3, 30), "turns_per_s": Goal(value=1500), "other_receipts": Goal(value=0)},
    )
    yield Row(
        "interrupt.one",
        "one interrupt, nothing else running",
        ours_busy,
        floor_busy,
        ("p50_ms", "p99_ms"),
        {"sessions": 1, "presses": 40},
        {"sessions": 1, "presses": 3},
    )


ROWS = tuple(_rows())

"""Interrupts through the public surface: a turn ends within its window whatever its tools do, and the next works."""

import asyncio
import sys

import pytest
import trio

from callboard.actors import Call, Delta, Idle, Interrupting, Prompt, Reply, ToolReturned, tool
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime

from .fair import Since
from .hosted import SLACK_S, calls, echo, events, gauge, slow, stubborn, until

WINDOW_S = 0.1


async def interrupted(s, turn=None):
    """Interrupt, wait for the end, and say how long that took."""
    began = Since()
    answer = await s.interrupt(turn)
    answered_s = began.own_s()
    assert isinstance(answer, Interrupting)
    assert answered_s < SLACK_S
    ended = await s.wait(answer.turn)
    return ended, began.own_s()


@pytest.mark.parametrize("kind", ["deaf", "sleeper", "burner", "shielded"])
async def test_a_tool_that_does_not_end(kind):
    """The turn ends within the window with its receipt, the next one works at once, and the gauge goes back to 0."""
    with stubborn() as tools:
        async with open_runtime(model=calls(kind), tools=tools.tools.values()) as rt:
            s = await rt.create()
            await s.submit("go")
            await until(lambda: tools.began)
            await asyncio.sleep(0.05)
            ended, took_s = await interrupted(s)
            assert took_s < WINDOW_S + SLACK_S
            assert ("aborted", "interrupted", ["abandoned"]) == (
                ended.reason,
                ended.cause,
                [one.receipt for one in ended.receipts],
            )
            assert ended.abort_s is not None
            assert ended.abort_s < WINDOW_S + SLACK_S
            assert 1 == gauge(rt.metrics_text(), "callboard_abandoned_tasks")
            assert 1 == len(rt.statistics()["abandoned"])
            began = Since()
            after = await s.run("next")
            assert ("done", "completed") == (after.last_message, after.reason)
            assert began.own_s() < 0.5 + SLACK_S
            tools.release()
            await until(lambda: gauge(rt.metrics_text(), "callboard_abandoned_tasks") == 0)
            assert [] == rt.statistics()["abandoned"]
            assert 1 == sum(type(event).__name__ == "ToolReturned" for event in events(rt, s.id))


async def test_exit_of_an_asyncio_tool():
    """`sys.exit()` in a tool on asyncio is a failed call, as on Trio and in a thread; the program goes on."""

    @tool(runs_on="asyncio", effect="none")
    async def leaves() -> str:
        """Wants to end the program."""
        await asyncio.sleep(0)
        sys.exit(4)

    async with open_runtime(model=calls("leaves"), tools=[leaves]) as rt:
        s = await rt.create()
        ended = await s.run("go")
        assert ("completed", ["failed"]) == (ended.reason, [one.receipt for one in ended.receipts])
        (returned,) = [event for event in events(rt, s.id) if isinstance(event, ToolReturned)]
        assert "SystemExit: 4" == returned.text
        assert "completed" == (await s.run("next")).reason


async def test_all_four_at_once():
    """One turn with all four kinds ends in one window, each with its own receipt."""
    with stubborn() as tools:
        async with open_runtime(model=calls(*tools.tools), tools=tools.tools.values()) as rt:
            s = await rt.create()
            await s.submit("go")
            await until(lambda: len(tools.began) == 4)
            ended, took_s = await interrupted(s)
            assert took_s < WINDOW_S + 2 * SLACK_S
            assert dict.fromkeys(tools.tools, "abandoned") == {one.tool: one.receipt for one in ended.receipts}
            assert "done" == (await s.run("next")).last_message
            tools.release()
            await until(lambda: gauge(rt.metrics_text(), "callboard_abandoned_tasks") == 0)


async def test_batch_of_three():
    """A finished, a running and a waiting call each get the receipt that says so, in the order they were asked for."""
    began: list[str] = []

    @tool(effect="none")
    async def quick() -> str:
        """Ends at once."""
        return "quick"

    @tool(effect="none")
    async def lasting() -> str:
        """Lasts."""
        began.append("lasting")
        await trio.sleep(60)
        return "late"

    @tool(effect="none")
    async def waiting() -> str:
        """Has to wait for its turn."""
        began.append("waiting")
        return "never"

    async with open_runtime(model=calls("quick", "lasting", "waiting"), tools=[quick, lasting, waiting]) as rt:
        s = await rt.create()
        await s.submit("go")
        await until(lambda: began)
        ended, took_s = await interrupted(s)
        assert took_s < WINDOW_S + SLACK_S
        assert [("quick", "completed"), ("lasting", "interrupted"), ("waiting", "not_started")] == [
            (one.tool, one.receipt) for one in ended.receipts
        ]
        assert ["lasting"] == began
        names = [type(event).__name__ for event in events(rt, s.id)]
        assert (3, 1, 1) == (names.count("ToolReturned"), names.count("TurnEnded"), names.count("AbortRequested"))


async def test_two_hundred_at_once():
    """Two hundred sessions, interrupted at once, all end in time, and all work afterwards."""

    @tool(effect="none")
    async def lasting() -> str:
        """Lasts."""
        await trio.sleep(60)
        return "late"

    async with open_runtime(model=calls("lasting"), tools=[lasting]) as rt:
        sessions = await asyncio.gather(*(rt.create() for _ in range(200)))
        await asyncio.gather(*(s.submit("go") for s in sessions))
        await until(lambda: all(len(events(rt, s.id)) >= 6 for s in sessions), 10)
        began = Since()
        ended = [one for one, _ in await asyncio.gather(*(interrupted(s) for s in sessions))]
        took_s = began.own_s()
        assert took_s < WINDOW_S + 4 * SLACK_S
        assert {("aborted", "interrupted")} == {(one.reason, one.receipts[0].receipt) for one in ended}
        after = await asyncio.gather(*(s.run("next") for s in sessions))
        assert {"done"} == {one.last_message for one in after}


async def test_one_of_many_busy_sessions():
    """Interrupting one of many sessions touches no other."""

    async def play(prompt: Prompt) -> Reply:
        if prompt.session == "victim":
            await trio.sleep(60)
        await trio.sleep(0.002)
        return Reply("", [Call("step")]) if prompt.step < 40 else Reply("done")

    @tool(effect="none")
    async def step() -> str:
        """One step."""
        await trio.sleep(0.002)
        return "ok"

    async with open_runtime(model=ScriptedModel(play), tools=[step]) as rt:
        victim = await rt.create("victim")
        others = await asyncio.gather(*(rt.create() for _ in range(30)))
        running = [asyncio.create_task(s.run("go")) for s in others]
        await victim.submit("go")
        await until(lambda: victim.state()["phase"] == "running")
        await asyncio.sleep(0.05)
        ended, took_s = await interrupted(victim)
        assert "aborted" == ended.reason
        assert took_s < WINDOW_S + SLACK_S
        assert {"completed"} == {one.reason for one in await asyncio.gather(*running)}


async def test_interrupt_of_a_model_request():
    """An interrupted request keeps what was streamed so far, and the marker tells the model of it."""
    words = " ".join(f"w{n}" for n in range(1000))
    async with open_runtime(model=slow(10.0, words)) as rt:
        s = await rt.create()
        reading = s.events(deltas=True)
        await s.submit("go")
        pieces = 0
        while pieces < 4:
            pieces += isinstance(await anext(reading), Delta)
        ended, took_s = await interrupted(s)
        assert took_s < WINDOW_S + SLACK_S
        assert ended.last_message is not None
        assert words.startswith(ended.last_message)
        kinds = [type(event).__name__ for event in events(rt, s.id)]
        assert ["ModelSaid", "StepEnded", "NoteAdded", "TurnEnded"] == kinds[-4:]


async def test_storm_of_interrupts():
    """Many interrupts and texts at once: each text ends in exactly one turn, and every turn ends once."""
    async with open_runtime(model=slow(0.02, "ok")) as rt:
        s = await rt.create()
        running = [asyncio.create_task(s.run(f"t{n}", id=f"t{n}")) for n in range(20)]
        for n in range(60):
            answer = await s.interrupt()
            assert isinstance(answer, Idle | Interrupting)
            if n % 3 == 0:
                await s.resume_queue()
            await asyncio.sleep(0.003)
        while not all(one.done() for one in running):
            await s.resume_queue()
            await asyncio.sleep(0.01)
        ended = [one.result() for one in running]
        assert list(range(1, 21)) == sorted(one.turn for one in ended)
        assert {"completed", "aborted"} >= {one.reason for one in ended}
        names = [type(event).__name__ for event in events(rt, s.id)]
        assert (20, 20) == (names.count("TurnStarted"), names.count("TurnEnded"))


async def test_interrupt_right_after_submit():
    """An interrupt that comes before the turn has done anything ends it all the same."""
    async with open_runtime(model=echo()) as rt:
        s = await rt.create()
        for n in range(1, 30):
            submitted, answer = await asyncio.gather(s.submit(f"t{n}"), s.interrupt())
            await s.wait_idle()
            await s.resume_queue()
            await s.wait_idle()
            ended = await s.wait(n)
            assert ("aborted" if isinstance(answer, Interrupting) else "completed") == ended.reason
            assert n == submitted.turn  # type: ignore[union-attr]

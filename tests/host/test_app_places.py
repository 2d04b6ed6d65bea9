"""Where a runtime runs: inside tools, threads, other loops, applications, synchronous programs."""

import asyncio
import threading

import pytest

from callboard.actors import (
    Call,
    ChildEnded,
    Idle,
    Reply,
    SessionClosed,
    UsageError,
    tool,
)
from callboard.actors.testing import ScriptedModel
from callboard.runtime import RuntimeConfig, open_runtime, run_sync
from callboard.runtime.settings import Bounds

from .hosted import calls, echo, events, slow, until

QUICK = RuntimeConfig(runtime=Bounds(shutdown_s=2.0))


async def test_the_same_objects_work_inside_a_tool():
    """A tool on Trio may use the runtime and its handles: create, run, read, wait, interrupt, stop, open."""
    seen: list[object] = []

    @tool(effect="none")
    async def boss() -> str:
        """Run another session."""
        other = await rt.create("other")
        seen.append((await other.run("one")).last_message)
        seen.append(await other.interrupt())
        async for item in other.events(after=2):
            seen.append(item.seq)  # type: ignore[union-attr]
            break
        await other.stop()
        try:
            await other.submit("two")
        except SessionClosed:
            seen.append("closed")
        reopened = await rt.open("other")
        seen.append((await reopened.wait(1)).turn)
        for forbidden in (rt.close, rt.wait):
            try:
                await forbidden()
            except UsageError:
                seen.append("refused")
        return "done"

    def play(prompt):
        if prompt.session == "other":
            return Reply("from other")
        return Reply("", [Call("boss")]) if prompt.step == 1 else Reply(prompt.messages[-1].text)

    async with open_runtime(model=ScriptedModel(play), tools=[boss]) as rt:
        ended = await (await rt.create("main")).run("go")
        assert ("done", "completed") == (ended.last_message, ended.receipts[0].receipt)
    assert ["from other", Idle(), 3, "closed", 1, "refused", "refused"] == seen


async def test_a_tool_stops_its_own_session():
    """A tool that stops its own session is interrupted by that, and the session ends."""

    @tool(effect="none")
    async def leave() -> str:
        """End it all."""
        await s.stop()
        return "unreachable"

    async with open_runtime(model=calls("leave"), tools=[leave]) as rt:
        s = await rt.create()
        ended = await s.run("go")
        assert ("aborted", "shutdown", ["interrupted"]) == (
            ended.reason,
            ended.cause,
            [r.receipt for r in ended.receipts],
        )
        await until(lambda: not rt.sessions())


def test_in_a_thread_that_is_not_the_main_one():
    """A runtime works in any thread, several threads at once included."""
    results: list[str | None] = []

    def work(n: int) -> None:
        results.append(run_sync(f"t{n}", model=echo()).last_message)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ["re: t0", "re: t1", "re: t2", "re: t3"] == sorted(map(str, results))


def test_under_uvloop():
    """The same works under uvloop."""
    uvloop = pytest.importorskip("uvloop")

    async def main():
        async with open_runtime(QUICK, model=slow(0.01, "ok")) as rt:
            s = await rt.create()
            ended = await asyncio.gather(*(s.run(str(n)) for n in range(5)))
            await s.submit("x")
            await s.interrupt()
            return [one.turn for one in ended], (await s.wait(6)).reason

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert ([1, 2, 3, 4, 5], "aborted") == runner.run(main())


async def test_inside_an_application():
    """In a task group beside other tasks, a failing task ends the runtime with everything in it."""

    async def fail():
        while len(running) < 2:
            await asyncio.sleep(0.01)
        raise KeyError("application")

    endings: list[str] = []
    running: list[str] = []

    async def serve():
        try:
            async with open_runtime(QUICK, model=slow()) as rt:
                s = await rt.create()
                running.append(s.id)
                await s.run("go")
        finally:
            endings.append(rt._phase)

    async def application():
        async with asyncio.TaskGroup() as group:
            group.create_task(serve())
            group.create_task(serve())
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as raised:
        await application()
    assert [KeyError] == [type(error) for error in raised.value.exceptions]
    assert ["closed", "closed"] == endings


def test_run_sync():
    """A synchronous program runs a text, or an async function of the runtime."""
    assert "re: hello" == run_sync("hello", model=echo()).last_message

    async def two(rt):
        return [(await (await rt.create()).run(text)).last_message for text in ("a", "b")]

    assert ["re: a", "re: b"] == run_sync(two, model=echo())
    with pytest.raises(UsageError):
        run_sync(42)  # type: ignore[call-overload]
    with pytest.raises(UsageError):
        run_sync("  ", model=echo())


async def test_run_sync_where_a_loop_runs():
    """In a thread with a running loop run_sync is a UsageError that names the way."""
    with pytest.raises(UsageError, match=r"await open_runtime\(...\).start\(\)"):
        run_sync("hello")


async def test_a_cancelled_caller_leaves_only_the_waiting():
    """Whoever is cancelled while waiting has not cancelled the turn, and nothing is left behind."""
    async with open_runtime(model=slow(0.1, "ok")) as rt:
        s = await rt.create()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(s.run("go"), 0.02)
        assert "ok" == (await s.wait(1)).last_message
        opening = asyncio.create_task(rt.create("late"))
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await until(lambda: "late" in {one.id for one in rt.sessions()})  # what was asked for is done all the same
        assert "late" == (await rt.open("late")).id


async def test_another_thread_is_turned_away():
    """A verb from a foreign thread is a `UsageError` that says what to write; the session does not notice."""
    async with open_runtime(model=slow(0.01, "ok")) as rt:
        s = await rt.create()
        verbs = (s.run, s.submit, s.interrupt, s.wait_idle, s.stop, s.events, rt.create, rt.open)
        takes_text = (s.run, s.submit, rt.create, rt.open)

        def elsewhere(verb):
            async def use():
                asked = verb("x") if verb in takes_text else verb()
                return await asked if asyncio.iscoroutine(asked) else asked

            with pytest.raises(UsageError, match="run_coroutine_threadsafe"):
                asyncio.run(use())

        for verb in verbs:
            await asyncio.to_thread(elsewhere, verb)
        loop = asyncio.get_running_loop()
        answer = await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(s.run("there"), loop).result(5))
        assert ["ok", "ok"] == [answer.last_message, (await s.run("here")).last_message]


async def test_children_are_listed():
    """A handle lists the ids of its subagents."""

    def play(prompt):
        if "." in prompt.session:
            return Reply("child")
        if prompt.step == 1:
            return Reply("", [Call("spawn_agent", {"task_name": "kid", "message": "work"})])
        return Reply("", [Call("wait_agent")]) if prompt.step == 2 else Reply("ok")

    async with open_runtime(model=ScriptedModel(play)) as rt:
        s = await rt.create("p")
        await s.run("go")
        await s.wait_idle()
        assert ("p.kid",) == s.children()
        kid = await rt.open("p.kid")
        assert ("p", "/root/kid") == (kid.parent, kid.path)
        assert 1 == sum(isinstance(event, ChildEnded) for event in events(rt, "p"))

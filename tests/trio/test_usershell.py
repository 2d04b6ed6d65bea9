"""Commands of the user's own: a turn of their own, or beside a turn; what they print, and what ends them."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from callboard.actors.abort import Signal
from callboard.actors.books import HISTORY, QUEUE, TURN
from callboard.actors.events import Call, MessagesClaimed, ShellEnded, ShellStarted, TurnEnded, TurnStarted
from callboard.actors.memory import MemoryStore
from callboard.actors.messages import Accepted, Idle, Interrupting, Refused, Shell, Steer, SubmitOrSteer
from callboard.actors.model import Reply, User
from callboard.actors.phase import Phase
from callboard.actors.seen import SHELLS
from callboard.actors.stage import Ran
from callboard.actors.testing import LabSession, ScriptedModel, open_lab
from callboard.actors.tool import tool

from .strict import about, check_history, check_log, of_kind, until


@tool
async def nap(seconds: float) -> str:
    """Sleeps."""
    await trio.sleep(seconds)
    return "slept"


def napping(seconds: float = 5.0) -> ScriptedModel:
    """A model that lets the first step of each turn sleep, and then says that it is done."""
    calls = [Call("nap", {"seconds": seconds})]
    return ScriptedModel(lambda prompt: Reply(calls=calls) if prompt.step == 1 else Reply("done"))


async def runner(
    command: str, folder: str, hear: Callable[[str], None], interrupted: Signal, window_s: float, timeout_s: float
) -> Ran:
    """A shell that knows `N` (sleep so long, in seconds), `deaf` (hears no interrupt), `late`, and `broken`."""
    hear(f"{command} began\n")
    if command == "deaf":
        await trio.sleep(1000)
    if command == "broken":
        raise OSError("no such shell")
    with trio.move_on_after(timeout_s if command == "late" else float(command)) as timer:
        await interrupted.wait()
        return Ran()
    assert timer.cancelled_caught
    return Ran(timed_out=True) if command == "late" else Ran(0)


async def shell(session: LabSession, command: str, id: str | None = None) -> Any:
    """Run a command."""
    return await session.ask(lambda reply: Shell(command, id, reply=reply))


def told(session: LabSession) -> list[str]:
    """What history says of commands: what each printed first, with its exit code."""
    texts = [m.text for m in session.state(HISTORY).messages if isinstance(m, User) and m.source == "shell"]
    return [
        f"{text.split('Exit code: ')[1].split()[0]} {text.split('Output:')[1].split('</')[0].strip()}" for text in texts
    ]


async def test_an_idle_session_gives_it_a_turn_of_its_own():
    """A regular turn without a step or a model request, whose output is in history before it ends."""
    model = ScriptedModel([Reply("seen")])
    async with open_lab(model, shell=runner) as lab:
        session = await lab.session()
        assert Accepted(1, 1) == await shell(session, "2", id="c")
        assert 1 == len(session.state(SHELLS))
        ended = await session.wait(1)
        assert ended is not None
        assert ("completed", "regular", 0, []) == (ended.reason, ended.kind, ended.steps, model.prompts)
        assert [ShellStarted("c", "2", 1)] == of_kind(lab.records(), ShellStarted)
        assert [ShellEnded("c", "exited", 0, about(2))] == of_kind(lab.records(), ShellEnded)
        assert (["0 2 began"], ()) == (told(session), session.state(SHELLS))
        assert ["2 began\n"] == [delta.text for delta in session.deltas]
        assert "seen" == (await session.run("what was it?")).last_message
        assert "shell" == getattr(model.prompts[0].messages[0], "source", None)
        check_log(lab.records())


async def test_nothing_joins_its_turn():
    """There is no model request that could take input: a steer is refused, and submit_or_steer waits for its end."""
    async with open_lab(ScriptedModel([Reply("ok")]), shell=runner) as lab:
        session = await lab.session()
        await shell(session, "2")
        assert "no_active_turn" == (await session.ask(lambda reply: Steer("x", reply=reply))).reason
        assert isinstance(await session.ask(lambda reply: SubmitOrSteer("next", reply=reply)), Accepted)
        await session.wait_idle()
        assert [0, 1] == [e.steps for e in of_kind(lab.records(), TurnEnded)]


async def test_beside_a_turn_its_output_joins():
    """The turn goes on, takes the output with its next request, and nothing is replaced."""
    async with open_lab(napping(5), tools=[nap], shell=runner) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(1)
        answers = [await shell(session, "2", id="c") for _ in range(2)]
        assert [1, 1] == [answer.turn for answer in answers]
        ended = await session.wait(1)
        assert ended is not None
        assert ("completed", 2, ["0 2 began"]) == (ended.reason, ended.steps, told(session))
        assert 1 == len(of_kind(lab.records(), TurnStarted)) == len(of_kind(lab.records(), ShellStarted))
        check_history(session.state(HISTORY).messages)


async def test_output_after_the_turn_goes_to_history():
    """A turn that ends meanwhile is not held; the output starts no turn, and the next one reads it."""
    async with open_lab(napping(1), tools=[nap], shell=runner) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(0.5)
        await shell(session, "5")
        assert "completed" == (await session.wait(1)).reason  # type: ignore[union-attr]
        assert 1 == len(session.state(SHELLS))
        await trio.sleep(10)
        assert (Phase.IDLE, ["0 5 began"], ()) == (session.actor.phase, told(session), session.state(QUEUE))
        assert 1 == session.state(TURN).number


@pytest.mark.parametrize("command", ["100", "deaf"])
@pytest.mark.parametrize("where", ["alone", "beside"])
async def test_an_interrupt_ends_it_within_the_window(command, where):
    """With or without a turn of the model's, what it printed is kept, the code is -1, and the turn ends in time."""
    async with open_lab(napping(50), tools=[nap], shell=runner) as lab:
        session = await lab.session()
        if where == "beside":
            await session.submit("go")
            await trio.sleep(1)
        await shell(session, command)
        await trio.sleep(1)
        begun_s = trio.current_time()
        assert Interrupting(1) == await session.interrupt()
        ended = await session.wait(1)
        await session.wait_idle()
        await until(lambda: not session.state(SHELLS))
        assert ended is not None
        assert trio.current_time() - begun_s < 0.15
        assert ("aborted", "interrupted") == (ended.reason, ended.cause)
        assert [f"-1 command aborted by user\n{command} began"] == told(session)
        assert ["interrupted"] == [e.ending for e in of_kind(lab.records(), ShellEnded)]
        check_history(session.state(HISTORY).messages)
        check_log(lab.records())


async def test_an_interrupt_reaches_what_outlived_its_turn():
    """While the session rests, and in a later turn: a command that began beside an earlier one ends too."""
    async with open_lab(napping(1), tools=[nap], shell=runner) as lab:
        session = await lab.session()
        for later in (False, True):
            await session.submit("go")
            await trio.sleep(0.5)
            await shell(session, "100")
            await session.wait_idle()
            if later:
                await session.submit("later")
                await trio.sleep(0.5)
            answer = await session.interrupt()
            assert (Interrupting if later else Idle) is type(answer)
            await trio.sleep(0.2)
            assert () == session.state(SHELLS)
        assert 2 == len(told(session))


async def test_a_command_sent_during_an_abort_waits_for_its_end():
    """It cannot run in a window that is open: it is the next turn, before what is queued."""

    @tool
    async def tidy() -> str:
        """Takes its time to end."""
        try:
            await trio.sleep(100)
        finally:
            with trio.move_on_after(0.05, shield=True):
                await trio.sleep_forever()
        return "never"

    model = ScriptedModel(lambda prompt: Reply(calls=[Call("tidy", {})]) if prompt.turn == 1 else Reply("ok"))
    async with open_lab(model, tools=[tidy], shell=runner) as lab:
        session = await lab.session()
        await session.submit("go")
        await session.submit("later")
        await trio.sleep(1)
        await session.interrupt()
        assert Phase.ABORTING is session.actor.phase
        assert 2 == (await shell(session, "1")).turn
        await session.wait_idle()
        assert (["0 1 began"], ["later"]) == (told(session), [m.text for m in session.state(QUEUE)])
        claims = of_kind(lab.records(), MessagesClaimed)
        assert () == claims[1].messages


async def test_what_cannot_run_says_so():
    """An hour is the limit, a shell that is not there is an error, an empty line is refused; each is in history."""
    async with open_lab(shell=runner) as lab:
        session = await lab.session()
        for command in ("late", "broken"):
            await shell(session, command)
            await session.wait_idle()
        assert [
            "-1 command timed out after 3600000 milliseconds\nlate began",
            "-1 the command could not be run\nbroken began",
        ] == told(session)
        assert ["timed_out", "failed"] == [e.ending for e in of_kind(lab.records(), ShellEnded)]
        empty = await shell(session, "  ")
        assert isinstance(empty, Refused)
        assert "empty_input" == empty.reason


async def test_it_keeps_the_session_in_memory_and_ends_with_it():
    """A session that is stopped while one runs beside ends it, and says so on its log."""
    async with open_lab(napping(1), tools=[nap], shell=runner) as lab:
        session = await lab.session()
        await session.submit("go")
        await trio.sleep(0.5)
        await shell(session, "100")
        await session.wait_idle()
        assert session.actor.scene.belongings
        await session.stop()
        assert ["interrupted"] == [e.ending for e in of_kind(lab.records(), ShellEnded)]
        assert () == session.state(SHELLS)


async def test_a_crash_leaves_no_command_open():
    """The log that is read after a crash says that what the command did is not known, once."""
    store = MemoryStore()
    async with open_lab(napping(1), tools=[nap], shell=runner, store=store) as lab:
        session = await lab.session(restarts_max=1)
        await shell(session, "100", id="c")
        await trio.sleep(1)
        session.actor.tell(object())  # type: ignore[arg-type]  # no message: it crashes
        await until(lambda: session.crashes)
        await session.wait_idle()
        assert ((), 1) == (session.state(SHELLS), len(of_kind(lab.records(), ShellEnded)))
        assert Accepted(1, 1) == await shell(session, "100", id="c")

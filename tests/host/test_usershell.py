"""Commands of the user's own in a real shell: idle, beside a turn, interrupted with all they started, and by a line."""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from callboard.actors import Call, Reply, UsageError, tool
from callboard.actors.abort import Signal
from callboard.actors.events import ShellEnded
from callboard.actors.messages import Accepted, Edited, Idle, Interrupting, ModeAnswer, Refused, Stopped
from callboard.actors.model import Prompt, User
from callboard.actors.notices import Delta
from callboard.actors.stage import Ran
from callboard.actors.testing import ScriptedModel
from callboard.plugins.shell import Setup
from callboard.plugins.usershell import user_shell
from callboard.runtime import SessionHandle, open_runtime

from .commanded import ALLOWANCE_S, alive, mark
from .terminal import cli

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the tests look into /proc")
TREE = "echo begun; {sleep} & setsid {sleep} & (trap '' TERM; {sleep}) & wait"


def heard(prompt: Prompt) -> Reply:
    """Says what commands printed."""
    return Reply("|".join(m.text for m in prompt.messages if isinstance(m, User) and m.source == "shell"))


async def ends(session: SessionHandle) -> list[ShellEnded]:
    """The ends of commands on the log."""
    found = []
    last = session.state()["seq"]
    async for item in session.events():
        event: Any = getattr(item, "event", None)
        if isinstance(event, ShellEnded):
            found.append(event)
        if getattr(item, "seq", -1) >= last:
            break
    return found


async def test_idle_it_is_a_turn_and_the_model_reads_it_later(tmp_path):
    """Output, exit code and folder are real, both streams are kept in order, and no model is asked."""
    model = ScriptedModel(heard)
    async with open_runtime(model=model, folder=tmp_path) as rt:
        session = await rt.create()
        answer = await session.shell("pwd; echo no >&2; exit 3")
        assert isinstance(answer, Accepted)
        ended = await session.wait(answer.turn)
        assert ("completed", 0, []) == (ended.reason, ended.steps, model.prompts)
        said = str((await session.run("what?")).last_message)
        assert (
            f"Exit code: 3\nDuration: {said.split('Duration: ')[1][:6]} seconds\nOutput:\n{tmp_path}\nno\n</result>"
            in said
        )
        assert "<command>\npwd; echo no >&2; exit 3\n</command>" in said


async def test_an_interrupt_ends_the_whole_tree(tmp_path):
    """Within the window nothing of it is left, those in sessions of their own and those that ignore TERM included."""
    sleep = f"sleep {mark()}"
    _, _, number = sleep.partition(" ")
    async with open_runtime(model=ScriptedModel(heard), folder=tmp_path) as rt:
        session = await rt.create()
        reading = session.events(deltas=True)
        assert isinstance(await session.shell(TREE.format(sleep=sleep)), Accepted)
        async for item in reading:
            if isinstance(item, Delta) and "begun" in item.text:
                break
        begun_s = time.monotonic()
        assert isinstance(await session.interrupt(), Interrupting)
        ended = await session.wait(1)
        assert time.monotonic() - begun_s < 0.1 + ALLOWANCE_S
        assert ("aborted", "interrupted") == (ended.reason, ended.cause)
        assert not alive(number)
        assert [("interrupted", None)] == [(one.ending, one.code) for one in await ends(session)]
        assert "command aborted by user\nbegun" in str((await session.run("what?")).last_message)


async def test_beside_a_turn_its_output_joins(tmp_path):
    """A turn of the model's goes on and reads it with its next request; by a line that begins with `!`."""

    def reply(prompt: Prompt) -> Reply:
        return Reply(calls=[Call("hold", {})]) if prompt.step == 1 else heard(prompt)

    held = trio.Event()

    @tool
    async def hold() -> str:
        """Waits for the test."""
        await held.wait()
        return "ok"

    async with open_runtime(model=ScriptedModel(reply), tools=[hold], folder=tmp_path) as rt:
        session = await rt.create()
        await session.submit("go")
        answer = await session.command("!echo hello; exit 0")
        assert 1 == answer.turn
        while not await ends(session):
            await asyncio.sleep(0.02)
        held.set()
        ended = await session.wait(1)
        assert ("completed", 2) == (ended.reason, ended.steps)
        assert "Output:\nhello\n</result>" in str(ended.last_message)


def test_the_limit_ends_it_and_a_shell_that_is_not_there_is_said(tmp_path):
    """After its seconds nothing of it is left; what cannot start names why."""
    number, pieces = mark(), list[str]()

    async def both() -> tuple[Ran, Ran]:
        late = await user_shell()(f"echo begun; sleep {number}", str(tmp_path), pieces.append, Signal(), 0.1, 3.0)
        none = await user_shell(Setup(shell="/no/shell"))("ls", str(tmp_path), pieces.append, Signal(), 0.1, 3.0)
        return late, none

    late, none = trio.run(both)
    assert (Ran(timed_out=True), "begun\n") == (late, "".join(pieces))
    assert not alive(number)
    assert (None, True) == (none.code, "/no/shell" in none.error)


async def test_lines_and_the_other_verbs(tmp_path):
    """Slash lines are verbs, a wrong one is one sentence, plain text is a turn; ids and edits work from outside."""
    async with open_runtime(model=ScriptedModel(lambda prompt: Reply("ok")), folder=tmp_path) as rt:
        session = await rt.create()
        assert [ModeAnswer("committed"), ModeAnswer("committed")] == [
            await session.command(f"/plan {how}") for how in ("on", "off")
        ]
        with pytest.raises(UsageError, match="there is no command /nope: known are /compact"):
            await session.command("/nope")
        assert 1 == (await session.command("hello")).turn
        await session.wait(1)
        await session.inject("old", id="m")
        assert Edited() == await session.edit("m", "new")
        assert isinstance(await session.replace("go", id="r"), Accepted)
        ended = await session.wait(2)
        assert "completed" == ended.reason
        assert Accepted(seq=(await session.replace("go", id="r")).seq, turn=2) == await session.replace("go", id="r")  # type: ignore[union-attr]
        assert [Idle(), Idle()] == [await session.interrupt(id="i") for _ in range(2)]
        taken = await session.resume_queue(id="i")
        assert isinstance(taken, Refused)
        assert "id_taken" == taken.reason
        with pytest.raises(UsageError, match="schema"):
            await session.submit("x", schema="no")
        assert Stopped() == await session.stop(id="s")
        again = await rt.open(session.id)
        assert Stopped() == await again.stop(id="s")
        assert "ok" == (await again.run("still here?")).last_message


def test_the_command_line_knows_them(tmp_path: Path):
    """`run '!...'` runs the command, an unknown slash command is wrong use and one line."""
    done = cli(tmp_path, "run", "!echo hello", "--model", "scripted:demo", "--store", "memory")
    assert 0 == done.returncode, done.stderr
    wrong = cli(tmp_path, "run", "/nope", "--model", "scripted:demo", "--store", "memory")
    assert (2, 1) == (wrong.returncode, len(wrong.stderr.strip().splitlines()))
    assert "there is no command /nope" in wrong.stderr


async def test_no_profile_is_read(tmp_path, monkeypatch):
    """An interrupt cannot cut off what a profile does at login, because a command of the user's own reads none."""
    for name in (".profile", ".bash_profile", ".bashrc"):
        (tmp_path / name).write_text("echo profile")
    monkeypatch.setenv("HOME", str(tmp_path))
    async with open_runtime(model=ScriptedModel(heard), folder=tmp_path) as rt:
        session = await rt.create()
        answer = await session.shell("echo mine")
        assert isinstance(answer, Accepted)
        await session.wait(answer.turn)
        said = str((await session.run("what?")).last_message)
    assert (True, False) == ("Output:\nmine\n" in said, "profile" in said)

"""shell in the background: looking, killing, outliving an interrupt, dying with the session."""

import sys

import pytest
import trio

from callboard.actors.errors import ToolError
from callboard.plugins.background import BACKGROUND_MAX, Backgrounds
from callboard.plugins.shell import shell_plugin

from .commanded import FakeView, alive, call, gone, mark, played, stubborn

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the tests look into /proc")


async def seen(view: FakeView, name: str, *texts: str) -> str:
    """Look until all texts have been printed: everything printed since the last look."""
    found = ""
    with trio.fail_after(10):
        while not all(text in found for text in texts):
            found += await call(view, "shell_output", id=name)
            await trio.sleep(0.01)
    return found


def test_background_answers_at_once_and_is_looked_at_piece_by_piece(tmp_path):
    """A background command gives an id; each look shows what is new, and the last one how it ended."""

    async def play(view):
        command = "echo one; until [ -e go ]; do sleep 0.01; done; echo two; exit 7"
        started = await call(view, command=command, background=True)
        first = await seen(view, "shell-1", "one\n")
        (tmp_path / "go").touch()
        return started, first, await seen(view, "shell-1", "two\n", "Exit code: 7"), view.pieces

    started, first, last, pieces = played(play, tmp_path)
    assert "Started shell-1 in the background: read it with shell_output, end it with shell_kill." == started
    assert "shell-1 is running." == first.splitlines()[0]
    assert "one" not in last
    assert "shell-1 has ended.\nExit code: 7\n" in last
    assert [] == pieces


def test_killed_background_leaves_nothing(tmp_path):
    """shell_kill ends a stubborn tree and answers with the last output; killing it again is harmless."""
    seconds = mark()

    async def play(view):
        command = stubborn(seconds) + f"sleep {seconds}; sleep {seconds}"
        await call(view, command=command, background=True)
        await seen(view, "shell-1", "ready\n")
        killed = await call(view, "shell_kill", id="shell-1")
        return killed, alive(seconds), await call(view, "shell_kill", id="shell-1")

    killed, left, again = played(play, tmp_path)
    assert "shell-1 has ended.\nExit code: 137 (killed by SIGKILL)\n" == killed[: killed.index("Wall")]
    assert [] == left
    assert again.startswith("shell-1 has ended.")


def test_background_outlives_an_interrupt_and_dies_with_the_session(tmp_path):
    """An interrupt does not reach a background command; the end of its session does."""
    seconds = mark()

    async def play(view):
        await call(view, command=f"echo up; sleep {seconds}; sleep {seconds}", background=True)
        await seen(view, "shell-1", "up\n")
        view.interrupted.set()
        await trio.sleep(0.2)
        return await call(view, "shell_output", id="shell-1"), Backgrounds.of(view).running

    look, running = played(play, tmp_path)
    assert look.startswith("shell-1 is running.")
    assert ("shell-1",) == running
    assert [] == alive(seconds)


def test_closing_the_session_alone_kills(tmp_path):
    """The session's close, which waits for nothing, is enough to end what it owns."""
    seconds = mark()

    async def play(view):
        await call(view, command=f"echo up; sleep {seconds}; sleep {seconds}", background=True)
        await seen(view, "shell-1", "up\n")
        backgrounds = Backgrounds.of(view)
        backgrounds.close()
        backgrounds.close()
        with trio.fail_after(10):
            while backgrounds.running:
                await trio.sleep(0.01)
        return alive(seconds)

    assert [] == played(play, tmp_path)


def test_unknown_id_names_the_known_ones(tmp_path):
    """Looking at what is not there is an error that lists what is."""

    async def play(view):
        await call(view, command="true", background=True)
        for name in ("shell_output", "shell_kill"):
            with pytest.raises(ToolError, match=r"^no background command 'x' in this session; there are: shell-1\.$"):
                await call(view, name, id="x")

    played(play, tmp_path)


def test_one_background_too_many_is_refused(tmp_path):
    """A session may have so many running at once; ended ones make room."""
    seconds = mark()

    async def play(view):
        for _ in range(BACKGROUND_MAX):
            await call(view, command=f"sleep {seconds}", background=True)
        with pytest.raises(ToolError, match=f"^{BACKGROUND_MAX} background commands are running"):
            await call(view, command="true", background=True)
        await call(view, "shell_kill", id="shell-3")
        return await call(view, command="true", background=True)

    assert f"Started shell-{BACKGROUND_MAX + 1} " in played(play, tmp_path)
    assert gone(seconds)


def test_background_output_is_bounded_between_looks(tmp_path):
    """What nobody looks at is kept in bounded memory, cut in the middle."""
    plugin = shell_plugin(output_max=2048)

    async def play(view):
        await call(view, plugin=plugin, command="seq 100000; echo end", background=True)
        with trio.fail_after(10):
            while Backgrounds.of(view).running:
                await trio.sleep(0.01)
        return await call(view, "shell_output", id="shell-1")

    look = played(play, tmp_path)
    assert len(look.encode()) <= 2048
    assert " bytes cut ...]\n" in look
    assert look.endswith("100000\nend\n")


def test_refused_start_is_told_at_the_next_look(tmp_path):
    """A background command that could not begin says so when it is looked at."""
    broken = tmp_path / "sh"
    broken.write_bytes(b"\x7fELF no program")
    broken.chmod(0o755)

    async def play(view):
        await call(view, plugin=shell_plugin(shell=str(broken)), command="x", background=True)
        return await seen(view, "shell-1", "has ended")

    assert "Exec format error." in played(play, tmp_path)

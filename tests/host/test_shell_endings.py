"""shell: however a command ends, nothing that it started is left; real commands, real time."""

import os
import signal
import sys

import pytest
import trio

from callboard.actors.events import Call, ToolReturned
from callboard.actors.model import Reply
from callboard.actors.plugin import Failed, Partial
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.plugins import keeper
from callboard.plugins.commands import Command, Ending
from callboard.plugins.shell import SHELL

from .commanded import ALLOWANCE_S, alive, call, gone, mark, played, stubborn, until_it_speaks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the tests look into /proc")


def test_nothing_is_left_after_the_end(tmp_path):
    """A foreground command that ends takes with it all it started: detached, orphaned, deaf to TERM, holding stdout."""
    seconds = mark()
    result = played(lambda view: call(view, command=stubborn(seconds) + "exit 5"), tmp_path)
    assert ("Exit code: 5", "ready") == (result.splitlines()[0], result.splitlines()[-1])
    assert [] == alive(seconds)


def interrupted(folder, command: str, window_s: float):
    """Interrupt a command once it speaks: its result, and whether it came within the window."""

    async def play(view):
        results = []

        async def calling() -> None:
            results.append(await call(view, command=command))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(calling)
            await until_it_speaks(view, "ready")
            view.interrupted.set()
            with trio.move_on_after(window_s + ALLOWANCE_S):
                while not results:
                    await trio.sleep(0.001)
            in_time = bool(results)
        return results[0], in_time

    return played(play, folder, window_s)


@pytest.mark.parametrize("window_s", [0.1, 2.0])
def test_interrupt_ends_a_stubborn_tree_inside_the_window(tmp_path, window_s):
    """An interrupt ends a tree that ignores TERM within its window, and the model reads what was printed until then."""
    seconds = mark()
    result, in_time = interrupted(tmp_path, stubborn(seconds) + f"sleep {seconds}; sleep {seconds}", window_s)
    assert isinstance(result, Partial)
    time, *rest = result.text.splitlines()
    assert ["aborted by user", "Partial output:", "ready"] == rest
    assert time.startswith("Wall time: ")
    assert in_time
    assert [] == alive(seconds) if window_s > 1 else gone(seconds)


def test_interrupt_lets_an_obedient_command_say_goodbye(tmp_path):
    """TERM comes at once, so that a command can clean up within its part of the window."""
    command = "trap 'echo cleaned; exit' TERM; echo ready; while :; do sleep 0.01; done"
    result, _ = interrupted(tmp_path, command, 5.0)
    assert result.text.endswith("cleaned\n")


def test_interrupt_before_the_start_runs_nothing(tmp_path):
    """A call that begins after the interrupt starts no command."""

    async def play(view):
        view.interrupted.set()
        return await call(view, command="touch ran")

    assert Partial("Wall time: 0.1 seconds\naborted by user") == played(play, tmp_path)
    assert [] == list(tmp_path.iterdir())


def test_timeout_fails_with_the_partial_output(tmp_path):
    """A command over its limit is ended by TERM, and its result fails with what it printed."""
    seconds = mark()
    command = f"echo started; sleep {seconds}"
    result = played(lambda view: call(view, command=command, timeout_s=0.3), tmp_path)
    assert isinstance(result, Failed)
    first, time, *rest = result.text.splitlines()
    assert "command timed out after 0.3 seconds" == first
    assert time.startswith("Wall time: 0.")
    assert ["Partial output:", "started"] == rest
    assert [] == alive(seconds)


def test_timeout_kills_a_stubborn_tree(tmp_path):
    """What ignores the TERM of a timeout is killed after the grace."""
    seconds = mark()
    command = stubborn(seconds) + f"sleep {seconds}; sleep {seconds}"
    result = played(lambda view: call(view, command=command, timeout_s=1.0), tmp_path)
    assert result.text.startswith("command timed out after 1 seconds\n")
    assert [] == alive(seconds)


def test_interrupt_during_the_grace_of_a_timeout_shortens_it(tmp_path):
    """An interrupt that comes between TERM and KILL leaves only its window for the rest."""
    seconds = mark()

    async def play(view):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until_interrupt, view)
            return await call(view, command=f"trap '' TERM; sleep {seconds}; sleep {seconds}", timeout_s=0.2)

    async def until_interrupt(view):
        await trio.sleep(0.3)
        view.interrupted.set()

    result = played(play, tmp_path)
    assert float(result.text.partition("Wall time: ")[2].split()[0]) < 1.0
    assert [] == alive(seconds)


def test_cancellation_kills_the_tree(tmp_path):
    """A call that is cancelled, whatever for, leaves nothing behind."""
    seconds = mark()

    async def play(view):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: call(view, command=stubborn(seconds) + f"sleep {seconds}"))
            await until_it_speaks(view, "ready")
            nursery.cancel_scope.cancel()
        return alive(seconds)

    assert [] == played(play, tmp_path)


def test_cancellation_before_the_keeper_is_up_starts_nothing(tmp_path):
    """A command whose call is cancelled at once never begins."""

    async def play(view):
        with trio.CancelScope() as scope:
            scope.cancel()
            await call(view, command="touch ran")
        await trio.sleep(0.1)

    played(play, tmp_path)
    assert [] == list(tmp_path.iterdir())


def test_output_that_somebody_outside_holds_open_delays_nothing(tmp_path):
    """The end of a command is its own end, not that of its output pipe."""

    async def play(view):
        held = []

        async def hold() -> None:
            await until_it_speaks(view, "\n")
            held.append(os.open(f"/proc/{int(view.pieces[0])}/fd/1", os.O_WRONLY))
            (tmp_path / "go").touch()

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(hold)
                with trio.fail_after(10):
                    return await call(view, command="echo $$; until [ -e go ]; do sleep 0.01; done; echo last")
        finally:
            os.close(held[0])

    assert "last" == played(play, tmp_path).splitlines()[-1]


def test_fork_bomb_ends(tmp_path):
    """A chain of processes that each fork the next and exit does not outrun KILL."""
    seconds = mark()
    (tmp_path / "chain").write_text(f"echo x >> count; sh chain {seconds} &\n")
    command = f"sh chain {seconds}; until [ $(wc -l < count) -gt 20 ]; do sleep 0.01; done"
    result = played(lambda view: call(view, command=command, timeout_s=20), tmp_path)
    assert "Exit code: 0" == result.splitlines()[0]
    assert [] == alive(f"chain\0{seconds}")


def test_killed_keeper_is_told_and_takes_the_command_along(tmp_path):
    """When somebody kills the keeper, the result says that the end is not known, and the command's group is killed."""
    seconds = mark()

    async def play(view):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill_keeper, view)
            return await call(view, command=f"echo $PPID; sleep {seconds}; sleep {seconds}")

    async def kill_keeper(view):
        await until_it_speaks(view, "\n")
        os.kill(int(view.pieces[0]), signal.SIGKILL)

    result = played(play, tmp_path)
    assert isinstance(result, Failed)
    assert result.text.startswith("the command's keeper ended before the command did")
    assert gone(f"sleep\0{seconds}")


def test_a_command_that_stops_its_keeper_ends_all_the_same(tmp_path):
    """A keeper that was stopped is woken by an interrupt, and ends the tree inside the window."""
    seconds = mark()
    command = f"setsid sleep {seconds} & kill -STOP $PPID; echo ready; sleep {seconds}"
    result, in_time = interrupted(tmp_path, command, 0.5)
    assert isinstance(result, Partial)
    assert result.text.endswith("ready\n")
    assert in_time
    assert gone(seconds)


def test_signals_of_a_terminal_pass_the_keeper_by(tmp_path):
    """The keeper has a group of its own and ignores TERM, INT and HUP, so that only its life line ends it."""

    async def play(view):
        async def shoot() -> None:
            await until_it_speaks(view, "\n")
            pid = int(view.pieces[0])
            assert pid == os.getpgid(pid) != os.getpgid(0)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                os.kill(pid, number)
            (tmp_path / "go").touch()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(shoot)
            return await call(view, command="echo $PPID; until [ -e go ]; do sleep 0.01; done; echo through")

    assert "through" == played(play, tmp_path).splitlines()[-1]


def test_what_could_not_be_killed_is_counted():
    """Descendants that outlive KILL, such as another user's, are told to the model."""
    expected = "Exit code: 0\n2 of its descendants could not be killed."
    assert expected == str(Ending(0, left=2))
    assert "Exit code: 192 (killed by signal 64)" == str(Ending(192, signal=64)).replace("SIGRTMAX", "signal 64")


def test_descendants_are_found_without_lists_of_children(monkeypatch):
    """A kernel that keeps no lists of children gives the same descendants, from the parents of all."""
    child = os.posix_spawn("/bin/sh", ["sh", "-c", "sleep 60 & wait"], {"PATH": os.environ["PATH"]}, setpgroup=0)
    try:
        while len(keeper.descendants()) < 2:
            pass
        expected = sorted(keeper.descendants())
        monkeypatch.setattr(os.path, "exists", lambda path: False)
        assert expected == sorted(keeper.descendants())
    finally:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_closing_a_command_twice_is_harmless(tmp_path):
    """TERM and KILL may be sent again after the end."""

    async def play(view):
        command = Command.start(("/bin/sh", "-c", "exit 4"), str(tmp_path), {})
        await command.run(view.output)
        command.terminate()
        command.kill()
        return command.ending

    assert Ending(4) == played(play, tmp_path)


def test_interrupted_turn_keeps_the_output_of_its_command():
    """Through the whole actor: the call's receipt is interrupted, and its text is the shell's own."""
    seconds = mark()
    model = ScriptedModel([Reply(calls=(Call("shell", {"command": f"echo ready; sleep {seconds}"}),))])

    async def main():
        async with open_lab(model, plugins=(SHELL,)) as lab:
            session = await lab.session()
            accepted = await session.submit("go")
            while not any("ready" in delta.text for delta in session.deltas):
                await trio.sleep(0.001)
            await session.interrupt()
            await session.wait(accepted.turn or 0)
            return next(event for event in lab.records() if isinstance(event, ToolReturned))

    returned = trio.run(main)
    assert ("interrupted", "interrupted") == (returned.receipt, returned.outcome)
    assert returned.text.endswith("seconds\naborted by user\nPartial output:\nready\n")
    assert [] == alive(seconds)

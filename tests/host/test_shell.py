"""shell: what a command gets, what the model reads of it, and what is refused; real commands, real time."""

import os
import resource
import sys
import threading
from pathlib import Path

import pytest
import trio

from callboard.actors.errors import ToolError
from callboard.actors.plugin import Failed
from callboard.plugins import commands
from callboard.plugins.excerpt import Excerpt
from callboard.plugins.shell import SHELL, allowed, shell_plugin, users_shell

from .commanded import alive, call, children, mark, played, until_it_speaks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the tests look into /proc")

UNREAD = "failed to parse function arguments"


def ran(folder: Path, plugin=SHELL, **arguments):
    """The result of one call."""
    return played(lambda view: call(view, plugin=plugin, **arguments), folder)


def output_of(result: str) -> str:
    """What stands below `Output:`."""
    return result.partition("\nOutput:\n")[2]


def test_result_names_exit_code_time_and_output_in_order(tmp_path):
    """A non-zero exit code is a normal result, with stdout and stderr in the order they came."""
    command = "echo one; echo two >&2; echo three; exit 3"
    expected = "Exit code: 3\nWall time: 0.0 seconds\nOutput:\none\ntwo\nthree\n"
    assert expected == ran(tmp_path, command=command).replace("0.1 s", "0.0 s")


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("exit 137", "Exit code: 137"),
        ("kill -KILL $$", "Exit code: 137 (killed by SIGKILL)"),
        ("kill -PIPE $$", "Exit code: 141 (killed by SIGPIPE)"),
        ("no-such-command-here", "Exit code: 127"),
    ],
)
def test_exit_codes_and_signals_are_told_apart(tmp_path, command, first):
    """A command that a signal ended reads differently from one that exited with the same number."""
    assert first == ran(tmp_path, command=command).splitlines()[0]


def test_output_streams_while_the_command_runs(tmp_path):
    """Each piece reaches the view before the command has ended."""

    async def play(view):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: call(view, command="echo first; read -r line < go; echo $line"))
            await until_it_speaks(view, "first\n")
            assert ["first\n"] == view.pieces
            await trio.Path(tmp_path, "go").write_text("second\n")
        return view.pieces

    os.mkfifo(tmp_path / "go")
    assert ["first\n", "second\n"] == played(play, tmp_path)


def test_character_split_between_two_reads_stays_whole(tmp_path):
    """Output is decoded across pieces, so that a slow writer cannot break a character."""
    command = r"printf 'a\303'; sleep 0.05; printf '\251\342\202'; sleep 0.05; printf '\254'"

    async def play(view):
        return await call(view, command=command), view.pieces

    result, pieces = played(play, tmp_path)
    assert ("aé€", ["a", "é", "€"]) == (output_of(result), pieces)


def test_garbage_and_control_characters_pass(tmp_path):
    """Bytes that are no UTF-8 become U+FFFD, an unfinished character too; control characters stay as they are."""
    result = ran(tmp_path, command=r"printf '\377\376\000\033[31m\r\b\007\tend\342\202'")
    assert "\ufffd\ufffd\0\x1b[31m\r\b\a\tend\ufffd" == output_of(result)


def test_long_output_is_cut_in_the_middle(tmp_path):
    """Head and tail of a long output are kept, the mark says how much is gone, and the result fits its bound."""
    plugin = shell_plugin(output_max=4096)
    result = ran(tmp_path, plugin, command="seq -f '%06g é' 20000")
    output, whole = output_of(result), "".join(f"{n:06} é\n" for n in range(1, 20001))
    head, _, rest = output.partition("\n[... ")
    gone, _, tail = rest.partition(" bytes cut ...]\n")
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len(whole.encode()) == len((head + tail).encode()) + int(gone.replace(",", ""))
    assert 3000 < len(result.encode()) <= 4096


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 163, 164, 165, 500, 5000])
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_excerpt_keeps_head_and_tail_in_its_bound(size, step):
    """Whatever the pieces, an excerpt is the text itself or its head, a mark and its tail, within its bound."""
    text = ("aé€\N{SNOWMAN}" * size)[:size]
    excerpt = Excerpt(164)
    for at in range(0, size, step):
        excerpt.add(text[at : at + step])
    shown = excerpt.text()
    head, mark_, tail = shown.partition("\n[... ")
    assert len(shown.encode()) <= 164
    assert shown == text if not mark_ else text.startswith(head) and text.endswith(tail.partition("]\n")[2])
    assert bool(mark_) == (len(text.encode()) > 164)


def test_huge_output_does_not_fill_memory(tmp_path):
    """200 MB of output grow the program by a small fraction of that."""

    async def play(view):
        view.output = lambda text: None
        await call(view, command="true")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = await call(view, command="yes | head -c 200000000")
        return result, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    result, grown_kb = played(play, tmp_path)
    assert "199,9" in result
    assert grown_kb < 20_000


def test_command_gets_allowed_variables_alone(tmp_path, monkeypatch):
    """No variable outside the list reaches a command, and what is configured on top does."""
    monkeypatch.setenv("SERVICE_API_KEY", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("BUILD", "7")
    monkeypatch.delenv("LANG", raising=False)
    plugin = shell_plugin(shell="/bin/sh", environment=("LC_*", "BUILD"), variables={"EXTRA": "x"})
    seen = set(output_of(ran(tmp_path, plugin, command="exec env")).splitlines())
    assert {"LC_TIME=C", "LC_CTYPE=C.UTF-8", "BUILD=7", "EXTRA=x", f"PWD={tmp_path}"} == seen
    assert "SERVICE_API_KEY" not in ran(tmp_path, command="env; cat /proc/$PPID/environ")


def test_allowed_adds_a_locale_only_when_none_is_given():
    """A command speaks the locale it was given, and UTF-8 without one."""
    assert {"LANG": "de_DE"} == allowed({"LANG": "de_DE", "KEY": "k"}, ("LANG", "LC_*"))
    assert {"LC_CTYPE": "C.UTF-8"} == allowed({"KEY": "k"}, ())


@pytest.mark.parametrize(
    ("shell", "expected"),
    [("/bin/bash", "/bin/bash"), ("/no/bash", "/bin/sh"), ("bash", "/bin/sh"), ("/bin/ls", "/bin/sh"), ("", "/bin/sh")],
)
def test_users_shell_is_a_known_one_that_is_there(shell, expected):
    """$SHELL counts if it is a bash, zsh or sh that exists, else /bin/sh runs the command."""
    assert expected == users_shell({"SHELL": shell})


def test_command_reads_nothing_and_holds_nothing_of_the_host(tmp_path):
    """Standard input is empty, and no descriptor of the host or the keeper is inherited, not even an open one."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)  # noqa: FBT003
    try:
        result = ran(tmp_path, command="cat; exec ls -l /proc/self/fd")
    finally:
        os.close(reading)
        os.close(writing)
    null, out, err, listing = (line.split()[-1] for line in output_of(result).splitlines()[1:])
    assert "/dev/null" == null
    assert out.startswith("pipe:")
    assert err == out
    assert listing.startswith("/proc/")


def test_cwd_is_the_sessions_folder_or_relative_to_it(tmp_path):
    """Without cwd a command runs in the session's folder; a relative cwd counts from there."""
    (tmp_path / "below").mkdir()
    assert f"{tmp_path}\n" == output_of(ran(tmp_path, command="pwd"))
    assert f"{tmp_path}/below\n" == output_of(ran(tmp_path, command="pwd", cwd="below"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"command": " \n"}, "the command is empty: write what to run."),
        ({"command": "echo \0"}, "the command has a NUL character at index 5, which no shell can take: remove it."),
        ({"command": "ls", "cwd": "gone"}, "cwd 'gone' is not there: give an existing folder."),
        ({"command": "ls", "cwd": "file"}, "cwd 'file' is not a folder: give an existing folder."),
        ({"command": "ls", "cwd": "a\0"}, "cwd 'a\\x00' is no path: give an existing folder."),
        ({"command": "ls", "timeout_s": 3601}, f"{UNREAD}: Expected `float` <= 3600.0 - at `$.timeout_s`"),
        ({"command": "ls", "tty": True}, f"{UNREAD}: Object contains unknown field `tty`"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_in_one_sentence(tmp_path, arguments, expected):
    """What cannot work is refused before anything starts, saying what is wrong."""
    (tmp_path / "file").touch()
    with pytest.raises(ToolError) as error:
        ran(tmp_path, **arguments)
    assert expected == str(error.value)


def test_command_of_a_megabyte_is_refused(tmp_path):
    """A command longer than the system takes is an error that says what to do instead."""
    with pytest.raises(ToolError, match=r"too long for this system \(1,000,.* bytes\): put it into a file"):
        ran(tmp_path, command="true " + "x" * 1_000_000)


def test_missing_parts_are_named(tmp_path, monkeypatch):
    """A Python, a shell or a keeper that is not there is an error that names it."""
    with pytest.raises(ToolError, match=r"'/no/python' does not run \(No such file or directory\)"):
        ran(tmp_path, shell_plugin(python="/no/python"), command="ls")
    with pytest.raises(ToolError, match=r"the shell '/no/fish' is not an absolute path of a program"):
        ran(tmp_path, shell_plugin(shell="/no/fish"), command="ls")
    monkeypatch.setattr(commands, "KEEPER", tmp_path / "keeper.py")
    with pytest.raises(ToolError, match=r"keeper\.py is missing; install callboard unpacked"):
        ran(tmp_path, command="ls")


def test_shell_that_does_not_run_is_a_failed_result(tmp_path):
    """A shell that the system will not run is told with the system's reason."""
    broken = tmp_path / "sh"
    broken.write_bytes(b"\x7fELF no program")
    broken.chmod(0o755)
    expected = Failed(f"the command could not start in {str(tmp_path)!r}: Exec format error.")
    assert expected == ran(tmp_path, shell_plugin(shell=str(broken)), command="ls")


def test_several_commands_run_side_by_side(tmp_path):
    """Commands that wait for each other all end, so they do run at once."""

    async def play(view):
        results = {}

        async def one(n: int) -> None:
            wait = f"touch {n}; until [ -e 0 ] && [ -e 1 ] && [ -e 2 ] && [ -e 3 ]; do sleep 0.01; done; echo {n}"
            results[n] = output_of(await call(view, command=wait, timeout_s=20))

        async with trio.open_nursery() as nursery:
            for n in range(4):
                nursery.start_soon(one, n)
        return results

    assert {n: f"{n}\n" for n in range(4)} == played(play, tmp_path)


def test_hundreds_of_commands_leak_nothing(tmp_path):
    """After many commands, some of them ended by force, no descriptor, thread or child is left over."""

    def counts():
        return len(os.listdir("/proc/self/fd")), threading.active_count(), len(children())  # noqa: PTH208

    async def play(view):
        await call(view, command="true")
        before = counts()
        for n in range(200):
            if n % 10:
                await call(view, command="echo x")
            else:
                with trio.move_on_after(0.03):
                    await call(view, command=f"sleep {seconds}")
        return before, counts()

    seconds = mark()
    before, after = played(play, tmp_path)
    assert all(left <= was for was, left in zip(before, after, strict=True)), (before, after)
    assert [] == alive(seconds)

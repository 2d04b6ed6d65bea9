"""`callboard tree` and the socket behind it: who may ask, what is shown, stale sockets, several programs."""

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from callboard.actors import UsageError
from callboard.actors.testing import ScriptedModel
from callboard.runtime import RuntimeConfig, open_runtime
from callboard.runtime.config import config_of
from callboard.runtime.doors.cli import _alone, main
from callboard.runtime.doors.tree import read_shown
from callboard.runtime.nodes import SHOWN_MAX, Node
from callboard.runtime.peek import (
    ANSWER_S_MAX,
    ASKERS_MAX,
    QUESTION,
    ask,
    is_stale,
    own_folder,
    pid_of,
    runtime_folder,
    sockets,
)
from callboard.runtime.settings import Bounds

from .hosted import StallingStore, calls, echo, slow, stubborn, until
from .parents import Parent, lasting, spawn

NOBODY = "callboard: no program shows its tree now: `callboard run` does while it runs"
PROGRAM = """
import asyncio, sys
from callboard.runtime import open_runtime

async def main():
    async with open_runtime(model="scripted:demo", peek=True) as rt:
        await rt.create("theirs")
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The user's folder of sockets, for one test: a short path, as a system has it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    return tmp_path / "callboard"


async def asked(path):
    """What the program at a socket shows."""
    return read_shown(await asyncio.to_thread(ask, path))


def find(node: Node, id_: str) -> Node:
    """The node of that id in a tree."""
    below = [node]
    while below:
        one = below.pop()
        if one.id == id_:
            return one
        below += one.children
    raise AssertionError(f"there is no {id_} in {node}")


async def test_a_runtime_shows_its_tree_to_its_user_alone(folder):
    """One socket for the program, closed to others; it shows phases, queues and agents, and goes with the runtime."""
    play = Parent(spawn("a"), child=lasting)
    async with open_runtime(model=ScriptedModel(play), peek=True) as rt:
        await rt.create("idle")
        p = await rt.create("p")
        await p.run("go")
        await until(lambda: "running" in {one.state()["phase"] for one in rt.sessions()})
        (path,) = sockets(folder)
        assert (os.getpid(), 0o600, 0o700) == (
            pid_of(path),
            stat.S_IMODE(path.stat().st_mode),
            stat.S_IMODE(folder.stat().st_mode),
        )
        shown = await asked(path)
        assert shown is not None
        assert (os.getpid(), {"idle": 2, "running": 1}, True) == (shown.pid, shown.sessions, shown.health["ok"])
        assert ["alarm", "sweep", "sessions"] == [child.id for child in shown.tree.children]
        assert ["p.a"] == [child.id for child in find(shown.tree, "agents of p").children]
        assert ("running", "/root/a") == (find(shown.tree, "p.a").phase, find(shown.tree, "p.a").path)
    assert [] == list(folder.iterdir())


async def test_nothing_listens_unasked(folder):
    """An embedded runtime opens no socket; the command line does unless its file says no."""
    async with open_runtime(model=echo()):
        assert not folder.exists()
    assert (True, False) == tuple(
        _alone(config).runtime.tree_socket
        for config in (RuntimeConfig(), config_of({"runtime": {"tree_socket": False}}))
    )
    with pytest.raises(UsageError, match="peek is True or False, got 3"):
        open_runtime(peek=3)  # type: ignore[arg-type]
    async with open_runtime(RuntimeConfig(runtime=Bounds(tree_socket=True)), peek=False):
        assert not folder.exists()


async def test_a_stuck_abort_is_marked(folder, capsys):
    """A session that does not come out of an abort within a second is marked, in the tree and in the health."""
    store = StallingStore()
    async with open_runtime(model=slow(), store=store, peek=True) as rt:
        s = await rt.create("odd")
        await s.submit("go")
        await until(lambda: s.state()["phase"] == "running")
        store.stalled = True
        await s.interrupt()
        await until(lambda: rt.health()["stuck"] == ["odd"], 5)
        assert ["1 session does not come out of an abort: odd"] == rt.health()["problems"]
        assert 0 == await asyncio.to_thread(main, ["tree"])
        said = capsys.readouterr().out
        assert "STUCK" in next(line for line in said.splitlines() if "odd  aborting" in line)
        assert "! 1 session does not come out of an abort: odd" in said
        store.resume()
        await s.wait_idle()
        assert rt.health()["ok"]


async def test_what_was_abandoned_is_shown(folder, capsys):
    """A tool that outlives its turn stands below the tree for as long as it lives."""
    with stubborn() as tools:
        async with open_runtime(model=calls("sleeper"), tools=[tools.tools["sleeper"]], peek=True) as rt:
            s = await rt.create()
            await s.submit("go")
            await until(lambda: tools.began)
            await s.interrupt()
            await s.wait(1)
            assert 1 == rt.health()["abandoned"]
            assert 0 == await asyncio.to_thread(main, ["tree"])
            assert "abandoned: sleeper (thread)" in capsys.readouterr().out
            tools.release()


async def test_of_many_sessions_some_are_shown(folder):
    """10,000 idle sessions are counted, the one that works is shown, and no slice of the answer holds the loop."""
    async with open_runtime(model=slow(), peek=True) as rt:
        for _ in range(100):
            await asyncio.gather(*(rt.create() for _ in range(20)))
        busy = await rt.create("busy")
        await busy.submit("go")
        await until(lambda: busy.state()["phase"] == "running")
        (path,) = sockets(folder)
        shown = await asked(path)
        assert shown is not None
        sessions = find(shown.tree, "sessions")
        assert (SHOWN_MAX, {"idle": 2_001 - SHOWN_MAX}) == (len(sessions.children), sessions.more)
        assert "running" == find(sessions, "busy").phase
        slices = sum(1 for _ in rt._shown())
        assert 10 == slices


async def test_hostile_askers_hold_nobody_up(folder):
    """Those who ask nonsense, too much, nothing at all, or never read are turned away; others are answered."""
    async with open_runtime(model=echo(), peek=True) as rt:
        for n in range(300):
            await rt.create(f"session-{n}-{'x' * 150}")
        (path,) = sockets(folder)
        clients = []

        def client(*said):
            one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            one.settimeout(0.2)
            one.connect(str(path))
            for piece in said:
                one.sendall(piece)
            clients.append(one)
            return one

        for said in (b"", b"\n", b"x" * 60_000, b"\x00" * 100 + b"\n", b"tree" * 100 + b"\n", QUESTION):
            client(said)
        assert "re: hi" == (await asyncio.wait_for((await rt.create()).run("hi"), 5)).last_message
        assert await asked(path) is not None
        for _ in range(3 * ASKERS_MAX):  # nobody says anything
            client()
        assert "re: hi" == (await asyncio.wait_for((await rt.create()).run("hi"), 5)).last_message
        await asyncio.sleep(ANSWER_S_MAX + 0.3)
        assert await asked(path) is not None
        for one in clients:
            one.close()
        assert "re: hi" == (await asyncio.wait_for((await rt.create()).run("hi"), 5)).last_message
    assert [] == list(folder.iterdir())


async def test_closing_waits_for_no_asker(folder):
    """A runtime closes at once while somebody holds its socket open."""
    rt = await open_runtime(model=echo(), peek=True).start()
    (path,) = sockets(folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        one.connect(str(path))
        await asyncio.sleep(0.05)
        await asyncio.wait_for(rt.close(), 1)
    assert [] == list(folder.iterdir())


async def test_two_runtimes_of_one_program(folder, capsys):
    """Each has a socket of its own under the program's number, and both are shown."""
    async with open_runtime(model=echo(), peek=True) as one, open_runtime(model=echo(), peek=True) as two:
        await one.create("first")
        await two.create("second")
        assert [os.getpid()] * 2 == [pid_of(path) for path in sockets(folder)]
        assert 0 == await asyncio.to_thread(main, ["tree", str(os.getpid())])
        said = capsys.readouterr().out
        assert ("first" in said, "second" in said) == (True, True)


def test_without_a_program_one_sentence(folder, capsys):
    """Nobody to look at: one clear line, and exit code 1, whether or not there is a folder."""
    for _ in range(2):
        assert 1 == main(["tree"])
        out, err = capsys.readouterr()
        assert ("", 1, True) == (out, err.count("\n"), err.startswith(NOBODY))
        folder.mkdir(exist_ok=True)


def test_stale_sockets_are_removed(folder, capsys):
    """The socket of a program that is gone is recognised and removed; what is no socket is left alone."""
    folder.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
        gone.bind(str(folder / "123.sock"))
        gone.listen()
    (folder / "notes.txt").write_text("mine")
    (folder / "77.sock").write_text("not a socket")
    assert ["77.sock", "123.sock"] == [path.name for path in sockets(folder)]
    assert (True, False) == (is_stale(folder / "123.sock"), is_stale(folder / "77.sock"))
    assert 1 == main(["tree"])
    assert "program 77 does not answer" in capsys.readouterr().err
    assert ["77.sock", "notes.txt"] == sorted(path.name for path in folder.iterdir())


async def test_a_new_runtime_clears_what_is_stale(folder):
    """A runtime that opens its socket removes those of programs that are gone, one of its own number included."""
    folder.mkdir(mode=0o700)
    for name in ("123.sock", f"{os.getpid()}.sock", ".123.sock"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
            gone.bind(str(folder / name))
    os.utime(folder / ".123.sock", (0, 0))  # a program was killed before it had a name
    async with open_runtime(model=echo(), peek=True):
        assert [f"{os.getpid()}.sock"] == [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("name", ["5.sock", "5.2.sock"])
def test_names_of_sockets(name):
    """A socket's name begins with the number of its program."""
    assert 5 == pid_of(Path(name))


@pytest.mark.parametrize("name", [".5.sock", "sock", "5", "x.sock", "5.x.sock", "-5.sock", "5" * 11 + ".sock", "5.txt"])
def test_names_of_other_files(name):
    """Everything else in the folder is nobody's."""
    assert pid_of(Path(name)) is None


async def test_a_folder_that_is_not_ours_alone_is_not_used(folder, caplog):
    """Where others may write no socket is opened; the runtime says so and works."""
    folder.mkdir(mode=0o700)
    folder.chmod(0o777)
    async with open_runtime(model=echo(), peek=True) as rt:
        assert "re: hi" == (await (await rt.create()).run("hi")).last_message
    assert "cannot look at this program" in caplog.text
    assert [] == sockets(folder)


def test_whose_folder_it_has_to_be(tmp_path):
    """The folder is made for the user alone; one that others may write to, here or above, is refused, as is a file."""
    ours = tmp_path / "ours"
    assert (ours, 0o700) == (own_folder(ours), stat.S_IMODE(ours.stat().st_mode))
    assert ours == own_folder(ours)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(ours)
    for folder in (shared, shared / "below", tmp_path / "file", tmp_path / "link", tmp_path / "file" / "below"):
        with pytest.raises(OSError):
            own_folder(folder)


async def test_a_folder_with_too_long_a_name(tmp_path, monkeypatch, caplog):
    """A path that no socket can have is told, and nothing else changes."""
    deep = tmp_path / ("x" * 120)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    async with open_runtime(model=echo(), peek=True) as rt:
        assert rt.health()["ok"]
    assert "too long a name for a socket" in caplog.text


async def test_a_socket_that_cannot_be_served(folder, monkeypatch, caplog):
    """Where the loop takes no more sockets that is told, and nothing else changes; nothing stays in the folder."""

    async def refused(*args, **kwargs):
        raise OSError("too many open files")

    monkeypatch.setattr(asyncio, "start_unix_server", refused)
    async with open_runtime(model=echo(), peek=True) as rt:
        assert rt.health()["ok"]
    assert "cannot look at this program: too many open files" in caplog.text
    assert [] == list(folder.iterdir())


async def test_a_start_that_is_cut_off_while_the_socket_opens(folder, monkeypatch):
    """The runtime is closed again before the caller hears of its cancellation."""
    opening = asyncio.Event()

    async def slowly(*args, **kwargs):
        opening.set()
        await asyncio.sleep(60)

    monkeypatch.setattr(asyncio, "start_unix_server", slowly)
    rt = open_runtime(model=echo(), peek=True)
    start = asyncio.ensure_future(rt.start())
    await opening.wait()
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert ("closed", []) == (rt.health()["phase"], list(folder.iterdir()))


def test_several_programs_are_listed_and_picked(folder, capsys):
    """With several programs each has one line and a hint; by its number one is shown, as JSON too."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, text=True
        )
        for _ in range(2)
    ]
    try:
        for one in programs:
            assert one.stdout is not None
            assert "ready\n" == one.stdout.readline()
        pids = sorted(one.pid for one in programs)
        assert 0 == main(["tree"])
        *lines, hint = capsys.readouterr().out.splitlines()
        assert (pids, "several programs show a tree: callboard tree PID shows one.") == (
            [int(line.split()[0]) for line in lines],
            hint,
        )
        assert 0 == main(["tree", str(pids[0])])
        assert "theirs  idle" in capsys.readouterr().out
        assert 0 == main(["tree", "--json"])
        told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert (pids, [{"idle": 1}] * 2) == ([one["pid"] for one in told], [one["sessions"] for one in told])
        assert 1 == main(["tree", "1"])
        assert f"no program 1 shows its tree now; these do: {pids[0]}, {pids[1]}." in capsys.readouterr().err
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"pid": "x"}, Node)
        programs[0].kill()
        programs[0].wait()
        assert 0 == main(["tree"])
        assert "theirs  idle" in capsys.readouterr().out
    finally:
        for one in programs:
            one.kill()
            one.communicate()
    assert runtime_folder() == folder


@pytest.mark.parametrize("pid", ["x", "-1", "1.5", "9" * 11, ""])
def test_a_pid_is_a_number(pid, capsys):
    """Anything else is a mistake of use, in one line."""
    assert 2 == main(["tree", "--", pid])
    assert "expected the number of a program" in capsys.readouterr().err

"""Who asks programs for their trees: several of them at once, in the folder that all agree on."""

import socket
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack

import pytest

from callboard.runtime.doors.cli import main
from callboard.runtime.peek import ANSWER_S_MAX, Peek, listening_at, own_folder, runtime_folder

PIDS = (11, 12, 13)
ROUNDS = 100


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the sockets, of this test alone."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return own_folder(runtime_folder())


def test_programs_that_hang_are_asked_side_by_side(folder, capsys):
    """Three that do not answer take no longer than one."""
    with ExitStack() as open_sockets:
        for pid in PIDS:
            hanging = open_sockets.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            hanging.bind(str(folder / f"{pid}.sock"))
            hanging.listen()
        began_s = time.monotonic()
        assert 1 == main(["tree"])
        assert ANSWER_S_MAX <= time.monotonic() - began_s < 2 * ANSWER_S_MAX
    said = capsys.readouterr().err.splitlines()
    assert [f"callboard: program {pid} does not answer" for pid in PIDS] == [line.rpartition(":")[0] for line in said]


def test_a_relative_folder_is_ignored(monkeypatch, tmp_path):
    """XDG_RUNTIME_DIR has to be absolute: another one would be a folder for each place that a program starts in."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", "here")
    first = runtime_folder()
    monkeypatch.chdir(tmp_path)
    assert first.is_absolute()
    assert first == runtime_folder()


async def test_what_has_no_name_yet_may_get_one(folder, caplog):
    """A program that opens its socket while another one just names its own opens it all the same."""
    over = threading.Event()

    def name_for_ever():
        while not over.is_set():
            (folder / ".9.sock").touch()
            (folder / ".9.sock").rename(folder / "9.txt")

    naming = threading.Thread(target=name_for_ever)
    naming.start()
    try:
        for _ in range(ROUNDS):
            peek = Peek(nothing)
            await peek.open()
            await peek.close()
    finally:
        over.set()
        naming.join()
    assert [] == caplog.messages


def nothing() -> Generator[None, None, None]:
    """A picture of nothing."""
    yield


def test_a_socket_that_gets_no_name_leaves_nothing(folder):
    """Where the name is taken after all, what the socket was bound to goes away with it."""
    (folder / "7.sock").mkdir()
    with pytest.raises(OSError, match=r"7\.sock"):
        listening_at(folder / "7.sock")
    assert ["7.sock"] == [path.name for path in folder.iterdir()]

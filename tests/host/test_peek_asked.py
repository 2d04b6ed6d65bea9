"""Who asks programs for their trees: several of them at once, in the folder that all agree on."""

import socket
import time
from contextlib import ExitStack

import pytest

from callboard.runtime.doors.cli import main
from callboard.runtime.peek import ANSWER_S_MAX, own_folder, runtime_folder

PIDS = (11, 12, 13)


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

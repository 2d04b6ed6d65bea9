"""files: what is no file, and what lies outside, is refused."""

import os
import socket
from pathlib import Path

import pytest

from callboard.plugins import files
from callboard.plugins.files import files_plugin
from callboard.plugins.places import find

from .filed import call, home, refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The session's folder, with something secret beside it."""
    return home(tmp_path)


def test_what_is_no_regular_file_is_refused_without_waiting(folder):
    """Folders, pipes, sockets and devices are named as what they are, for every tool."""
    (folder / "dir").mkdir()
    os.mkfifo(folder / "pipe")
    plugin = files_plugin(roots=("/dev",))
    with socket.socket(socket.AF_UNIX) as sock:
        before = Path.cwd()
        os.chdir(folder)  # a socket's path must be short
        try:
            sock.bind("sock")
        finally:
            os.chdir(before)
        kinds = {
            "dir": "a folder",
            ".": "a folder",
            "pipe": "a named pipe",
            "sock": "a socket",
            "/dev/null": "a device",
        }
        for path, what in kinds.items():
            expected = f"{path} is {what}, not a regular file: give a file."
            assert expected == refused(folder, "read_file", plugin, path=path)
            assert expected == refused(folder, "write_file", plugin, path=path, text="x")
            assert expected == refused(folder, "edit_file", plugin, path=path, old="a", new="b")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", "path '' is no path: give the name of a file."),
        ("a\0b", "path 'a\\x00b' is no path: give the name of a file."),
        ("gone", "gone does not exist: check the name, or make it with write_file."),
        ("file/below", "file/below goes through something that is no folder: check the path."),
        ("x" * 300, "x" * 300 + " could not be read: File name too long."),
        ("loop", "loop is a symbolic link in a loop, not a regular file: give a file."),
    ],
)
def test_path_that_leads_nowhere_is_refused_in_one_sentence(folder, path, expected):
    """What is wrong with a path is said with the path and what to do."""
    (folder / "file").touch()
    (folder / "loop").symlink_to("loop")
    assert expected == refused(folder, "read_file", path=path)


# Staying inside


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "a/../../secret", "..", "/", "../home2/x", "link", "up/secret"]
)
@pytest.mark.parametrize("name", ["read_file", "write_file", "edit_file"])
def test_nothing_outside_is_reached(folder, path, name):
    """A path that leads outside, by dots, by name or by a symbolic link, is refused by every tool."""
    (folder / "link").symlink_to("../secret")
    (folder / "up").symlink_to("..")
    more: dict[str, dict[str, str]] = {"write_file": {"text": "x"}, "edit_file": {"old": "secret", "new": "x"}}
    text = refused(folder, name, path=path, **more.get(name, {}))
    assert f"outside of {folder}: stay inside." in text
    assert "secret" == (folder.parent / "secret").read_text()
    assert {"home", "secret"} == {one.name for one in folder.parent.iterdir()}


def test_link_that_leads_outside_to_nothing_is_refused(folder):
    """A dangling link cannot be used to make a file outside."""
    (folder / "link").symlink_to("../new")
    expected = f"link leads to {folder.parent}/new, outside of {folder}: stay inside."
    assert expected == refused(folder, "write_file", path="link", text="x")


def test_links_inside_are_followed(folder):
    """A symbolic link that stays inside works, and writing through it leaves the link."""
    (folder / "dir").mkdir()
    (folder / "dir" / "a").write_text("one")
    (folder / "link").symlink_to("dir/a")
    assert "one" == call(folder, "read_file", path="link")
    call(folder, "write_file", path="link", text="two")
    assert "two" == (folder / "dir" / "a").read_text()
    assert (folder / "link").is_symlink()


def test_session_folder_may_itself_be_a_link(folder):
    """The session's folder counts as what it leads to."""
    (folder / "a").write_text("one")
    (folder.parent / "alias").symlink_to("home")
    assert "one" == call(folder.parent / "alias", "read_file", path="a")
    assert "one" == call(folder.parent / "alias", "read_file", path=str(folder / "a"))


def test_folder_swapped_for_a_link_meanwhile_is_not_followed(folder, monkeypatch):
    """A link put in place after the path was resolved is met and refused."""
    (folder / "dir").mkdir()
    (folder / "dir" / "secret").write_text("harmless")
    resolve = find

    def swapping(*args):
        place = resolve(*args)
        (folder / "dir").rename(folder / "old")
        (folder / "dir").symlink_to("..")
        return place

    monkeypatch.setattr(files, "find", swapping)
    expected = "dir/secret goes through something that is no folder: check the path."
    assert expected == refused(folder, "write_file", path="dir/secret", text="x")
    assert "secret" == (folder.parent / "secret").read_text()


def test_configured_roots_may_be_read_and_written(folder):
    """Folders beside the session's own are reached when they are configured, and only they."""
    (folder.parent / "more").mkdir()
    plugin = files_plugin(roots=(str(folder.parent / "more"),))
    call(folder, "write_file", plugin, path="../more/a", text="x")
    assert "x" == call(folder, "read_file", plugin, path=str(folder.parent / "more" / "a"))
    assert f"outside of {folder} and {folder.parent}/more: stay" in refused(
        folder, "read_file", plugin, path="../secret"
    )
    assert "secret" == call(folder, "read_file", files_plugin(roots=("/",)), path="../secret")

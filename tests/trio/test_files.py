"""files: reading, writing and editing."""

import os
import re
import stat
from pathlib import Path

import pytest

from callboard.actors.errors import ToolError
from callboard.actors.events import Call, ToolReturned
from callboard.actors.model import Reply
from callboard.actors.testing import ScriptedModel, open_lab
from callboard.plugins import files
from callboard.plugins.files import FILES, LINES_MAX, WHOLE_MAX_BYTES, files_plugin

from .filed import FakeView, call, home, refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The session's folder, with something secret beside it."""
    return home(tmp_path)


# Reading


@pytest.mark.parametrize("text", ["a\nb\n", "a\nb", "a\r\nb\r\n", "\ufeffé€\N{SNOWMAN}\x1b[0m\ttab", "\n", "\n\n"])
def test_read_gives_the_text_as_it_is(folder, text):
    """A whole file comes back character for character, line ends and byte order mark included."""
    (folder / "a.txt").write_bytes(text.encode())
    assert text == call(folder, "read_file", path="a.txt")
    assert text == call(folder, "read_file", path=str(folder / "a.txt"))


def test_empty_file_is_said_to_be_empty(folder):
    """An empty file gives words instead of nothing."""
    (folder / "a").touch()
    assert "[a is empty]" == call(folder, "read_file", path="a")


@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [
        (2, 2, "2\n3\n[lines 2 to 3 of a; more follows: go on with offset 4]"),
        (4, 2, "4\n5"),
        (5, None, "5"),
        (None, 1, "1\n[lines 1 to 1 of a; more follows: go on with offset 2]"),
        (None, 5, "1\n2\n3\n4\n5"),
    ],
)
def test_read_takes_lines_and_says_when_more_is_left(folder, offset, limit, expected):
    """Offset and limit count lines; what is left is said with the offset to go on."""
    (folder / "a").write_text("1\n2\n3\n4\n5")
    assert expected == call(folder, "read_file", path="a", offset=offset, limit=limit)


def test_read_stops_at_the_default_number_of_lines(folder):
    """Without a limit so many lines come at most."""
    (folder / "a").write_text("x\n" * (LINES_MAX + 1))
    *lines, note = call(folder, "read_file", path="a").splitlines()
    assert (LINES_MAX, "[lines 1 to 2,000 of a; more follows: go on with offset 2001]") == (len(lines), note)
    (folder / "a").write_text("x\n" * LINES_MAX)
    assert "x\n" * LINES_MAX == call(folder, "read_file", path="a")


def test_readings_by_their_own_notes_add_up_to_the_file(folder):
    """Going on where each note says gives every line once, whatever bound cut the readings."""
    text = "".join(f"{n} {'é' * (n % 90)}\n" for n in range(3000))
    (folder / "a").write_text(text)
    plugin, found, offset = files_plugin(output_max=8192), "", 1
    while offset:
        piece = call(folder, "read_file", plugin, path="a", offset=offset)
        assert len(piece.encode()) <= 8192
        note = re.search(r"\[lines [\d,]+ to [\d,]+ of a; more follows: go on with offset (\d+)\]$", piece)
        found += piece[: note.start()] if note else piece
        offset = int(note[1]) if note else 0
    assert text == found


def test_line_too_long_is_shown_in_part(folder):
    """A line longer than a result shows its beginning, no character split, and says how to go on."""
    (folder / "a").write_text("é" * 100_000 + "\nnext\n")
    shown, note = call(folder, "read_file", path="a").splitlines()
    assert set(shown) == {"é"}
    assert note == (
        f"[line 1 of a is too long: only its first {len(shown.encode()):,} bytes are shown; go on with offset 2]"
    )
    assert "next\n" == call(folder, "read_file", path="a", offset=2)


@pytest.mark.parametrize(("text", "lines"), [("1\n2\n", "2"), ("1\n2", "2"), ("", "0")])
def test_offset_past_the_end_names_the_number_of_lines(folder, text, lines):
    """An offset behind the last line is an error that says how many there are."""
    (folder / "a").write_text(text)
    expected = f"a has {lines} lines, so none at offset 9: give a smaller offset."
    assert expected == refused(folder, "read_file", path="a", offset=9)


def test_huge_file_is_read_in_parts_alone(folder):
    """A file too large to read whole asks for offset and limit, with which it is read."""
    with (folder / "a").open("wb") as file:
        file.write(b"first\nsecond\n")
        file.truncate(WHOLE_MAX_BYTES + 1)
    expected = "a has 10,485,761 bytes, more than 10,485,760: give offset and limit to read a part."
    assert expected == refused(folder, "read_file", path="a")
    assert call(folder, "read_file", path="a", offset=2, limit=1).startswith("second\n[lines 2 to 2 of a;")


@pytest.mark.parametrize(
    ("data", "what"),
    [(b"ab\0c", "NUL at byte 2"), (b"abc\xff\n", "no character at byte 3"), (b"abc\xc3", "no character at byte 3")],
)
def test_binary_file_is_refused(folder, data, what):
    """A file that is no text says why and where, for reading and for editing."""
    (folder / "a").write_bytes(data)
    expected = f"a is not UTF-8 text ({what}): these tools take text files alone."
    assert expected == refused(folder, "read_file", path="a")
    assert expected == refused(folder, "edit_file", path="a", old="a", new="b")


def test_interrupt_stops_a_long_search_for_a_line(folder):
    """A reading that skips far looks whether the turn is being aborted."""
    (folder / "a").write_text("x\n" * 10)
    view = FakeView(folder)
    view.interrupted.set()
    with pytest.raises(ToolError, match=r"^reading a was stopped at line 2\.$"):
        call(folder, "read_file", view=view, path="a", offset=9)


# Writing


def test_write_makes_folders_and_says_what_it_did(folder):
    """A new file comes with its folders; writing again replaces it."""
    assert "Created a/b/c.txt: 4 bytes." == call(folder, "write_file", path="a/b/c.txt", text="é\r\n")
    assert "é\r\n".encode() == (folder / "a/b/c.txt").read_bytes()
    assert "Replaced a/b/c.txt: 0 bytes." == call(folder, "write_file", path="a/b/c.txt", text="")
    assert ["c.txt"] == [one.name for one in (folder / "a/b").iterdir()]


def test_write_keeps_the_mode(folder):
    """A file that is replaced keeps its mode; a new one has the usual one."""
    (folder / "run.sh").touch()
    (folder / "run.sh").chmod(0o754)
    call(folder, "write_file", path="run.sh", text="x")
    assert 0o754 == stat.S_IMODE((folder / "run.sh").stat().st_mode)
    before = os.umask(0o027)
    try:
        call(folder, "write_file", path="new", text="x")
    finally:
        os.umask(before)
    assert 0o640 == stat.S_IMODE((folder / "new").stat().st_mode)


def test_write_is_one_step(folder):
    """Whoever has the file open goes on reading the old text, and a hard link keeps it."""
    (folder / "a").write_text("old")
    os.link(folder / "a", folder.parent / "kept")
    with (folder / "a").open() as file:
        call(folder, "write_file", path="a", text="new")
        assert "old" == file.read()
    assert ("new", "old") == ((folder / "a").read_text(), (folder.parent / "kept").read_text())


def test_failed_write_leaves_the_file_and_no_rest(folder, monkeypatch):
    """When the disk is full, the old file stays and nothing else is left."""
    (folder / "a").write_text("old")

    def full(*args):
        raise OSError(28, "full")

    monkeypatch.setattr(os, "fsync", full)
    expected = "a could not be written: No space left on device."
    assert expected == refused(folder, "write_file", path="a", text="new")
    assert ["a"] == [one.name for one in folder.iterdir()]
    assert "old" == (folder / "a").read_text()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_read_only_file_is_not_replaced(folder):
    """A file without write permission is left alone, though its folder would let it be replaced."""
    (folder / "a").write_text("old")
    (folder / "a").chmod(0o444)
    expected = "a is read-only: leave it, or change its mode first."
    assert expected == refused(folder, "write_file", path="a", text="new")


def test_unpaired_surrogate_is_refused(folder):
    """Text that no file can hold is refused before anything is touched."""
    expected = "`text` has an unpaired surrogate at index 1: send valid text."
    assert expected == refused(folder, "write_file", path="a/b", text="x\ud800")
    assert [] == list(folder.iterdir())


# Editing


def test_edit_replaces_the_one_occurrence(folder):
    """The text that stands there once is replaced, and the line is named."""
    (folder / "a").write_text("one\ntwo\nthree\n")
    assert "Edited a at line 2." == call(folder, "edit_file", path="a", old="two\n", new="2\n2\n")
    assert "one\n2\n2\nthree\n" == (folder / "a").read_text()


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        ("four", "`old` stands 0 times in a, not once: read the file again and copy the text exactly."),
        ("o", "`old` stands 2 times in a, not once: take more lines around it."),
        ("ee", "`old` stands 2 times in a, not once: take more lines around it."),
        ("", "`old` is empty: give the text to replace."),
        ("new", "`old` and `new` are the same: there is nothing to change."),
    ],
)
def test_edit_that_is_not_exact_is_refused(folder, old, expected):
    """No occurrence, several (overlapping ones too), none to look for or none to change: said with the count."""
    (folder / "a").write_text("one\ntwo\nthreee\n")
    assert expected == refused(folder, "edit_file", path="a", old=old, new="new")
    assert "one\ntwo\nthreee\n" == (folder / "a").read_text()


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "a\r\nb", "x\r\ny", "x\r\ny\r\nc\r\n"),
        ("a\r\nb\nc\r\n", "b\nc", "x\ny", "a\r\nx\ny\r\n"),
        ("a\nb\n", "a\nb", "x\r\ny", "x\r\ny\n"),
    ],
)
def test_edit_keeps_the_line_ends(folder, before, old, new, after):
    """In a file of CRLF lines every line stays one; in any other the texts are taken to the letter."""
    (folder / "a").write_bytes(before.encode())
    call(folder, "edit_file", path="a", old=old, new=new)
    assert after.encode() == (folder / "a").read_bytes()


def test_edit_of_a_file_that_changes_meanwhile_is_refused(folder, monkeypatch):
    """A file that somebody else writes between reading and replacing keeps what they wrote."""
    (folder / "a").write_text("one")
    work = files.edited

    def slow(*args):
        (folder / "a").write_text("theirs")
        return work(*args)

    monkeypatch.setattr(files, "edited", slow)
    expected = "a changed while it was edited, and was left as it is: read it again."
    assert expected == refused(folder, "edit_file", path="a", old="one", new="two")
    assert "theirs" == (folder / "a").read_text()
    assert ["a"] == [one.name for one in folder.iterdir()]


def test_edit_of_a_huge_file_is_refused(folder):
    """A file too large to edit says so."""
    with (folder / "a").open("wb") as file:
        file.truncate(WHOLE_MAX_BYTES + 1)
    assert "that can be edited: change it with a command." in refused(folder, "edit_file", path="a", old="a", new="b")


def test_tools_declare_what_they_do():
    """Reading runs beside others and passes the plan gate; writing may be repeated, editing not."""
    declared = {one.name: (one.runs_on, one.effect, one.parallel, one.mutates) for one in FILES.tools}
    assert {
        "read_file": ("thread", "none", True, False),
        "write_file": ("thread", "idempotent", False, True),
        "edit_file": ("thread", "once", False, True),
    } == declared


async def test_files_work_through_the_whole_actor(folder, monkeypatch):
    """A turn that writes, edits and reads a file gets one completed result for each call."""
    monkeypatch.chdir(folder)
    calls = (
        Call("write_file", {"path": "a", "text": "one"}),
        Call("edit_file", {"path": "a", "old": "one", "new": "two"}),
        Call("read_file", {"path": "a"}),
        Call("read_file", {"path": "../secret"}),
    )
    async with open_lab(ScriptedModel([Reply(calls=calls)]), plugins=(FILES,)) as lab:
        await (await lab.session()).run("go")
        results = [(one.receipt, one.text) for one in lab.records() if isinstance(one, ToolReturned)]
    assert [
        ("completed", "Created a: 3 bytes."),
        ("completed", "Edited a at line 1."),
        ("completed", "two"),
        ("failed", f"../secret lies outside of {folder}: stay inside."),
    ] == results

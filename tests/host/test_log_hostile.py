"""callboard log with names that are taken, too long or elsewhere, and with files that nobody would write in earnest."""

import contextlib
import io
import sqlite3
import sys
import tempfile

import msgspec
import pytest

from callboard.actors.errors import LogError
from callboard.actors.store import Header
from callboard.runtime import open_runtime
from callboard.runtime.doors.logs import as_trees
from callboard.runtime.logs.checking import TIME_END_MS

from .hosted import echo
from .logged import Commands, make_tree
from .stored import mounted


@pytest.fixture
def url(tmp_path):
    """A store that is not there yet."""
    return f"sqlite:///{tmp_path / 'x.db'}"


@pytest.fixture
def log(capsys, url):
    """The command on that store."""
    return Commands(capsys, url)


async def exported(log, url, tmp_path):
    """An export of a tree, as lines."""
    await make_tree(url)
    log("export", "s", "--tree", "--out", tmp_path / "t.jsonl")
    return [msgspec.json.decode(line) for line in (tmp_path / "t.jsonl").read_bytes().splitlines()]


def write(path, lines):
    """A file of these lines."""
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


async def test_a_file_with_the_name_of_what_is_half_written_stays(log, url, tmp_path):
    """Neither an export nor a repair touches a file that happens to be called FILE.part, not even a broken link."""
    await exported(log, url, tmp_path)
    mine = tmp_path / "e.jsonl.part"
    mine.write_text("mine")
    (tmp_path / "e.jsonl.part2").symlink_to("nowhere")
    assert 0 == log("export", "s", "--out", tmp_path / "e.jsonl").code
    with (tmp_path / "e.jsonl").open("ab") as file:
        file.write(b'{"seq"')
    assert 0 == log("repair", tmp_path / "e.jsonl", store=False).code
    assert ("mine", "nowhere") == (mine.read_text(), str((tmp_path / "e.jsonl.part2").readlink()))
    names = ["e.jsonl", "e.jsonl.part", "e.jsonl.part2", "e.jsonl.torn", "t.jsonl"]
    assert names == sorted(one.name for one in tmp_path.iterdir() if not one.name.startswith("x.db"))


async def test_what_is_saved_may_lie_on_another_disk(log, url, tmp_path):
    """`repair FILE --out` writes to any disk."""
    await exported(log, url, tmp_path)
    whole = (tmp_path / "t.jsonl").read_bytes()
    (tmp_path / "t.jsonl").write_bytes(whole + b'{"seq"')
    (tmp_path / "other").mkdir()
    with mounted(tmp_path / "other", "size=1m"):
        assert 0 == log("repair", tmp_path / "t.jsonl", "--out", tmp_path / "other" / "t.jsonl", store=False).code
        assert whole == (tmp_path / "other" / "t.jsonl").read_bytes()


async def test_a_link_is_repaired_where_it_leads(log, url, tmp_path):
    """A torn file that a link names is cut itself, what it was lies beside it, and the link stays one."""
    await exported(log, url, tmp_path)
    whole = (tmp_path / "t.jsonl").read_bytes()
    (tmp_path / "t.jsonl").write_bytes(whole + b'{"seq"')
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "l.jsonl"
    link.symlink_to(tmp_path / "t.jsonl")
    assert 0 == log("repair", link, store=False).code
    assert (True, whole) == (link.is_symlink(), (tmp_path / "t.jsonl").read_bytes())
    assert whole + b'{"seq"' == (tmp_path / "t.jsonl.torn").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "store"),
    [
        (("export", "s", "--out", "n" * 300), True),
        (("check", "/" + "n" * 5000), True),
        (("import", "n" * 300), True),
        (("repair", "n" * 300), False),
    ],
)
async def test_a_name_that_is_too_long_is_said_to_be(log, url, arguments, store):
    """A name that no file can have is wrong use, in one line that does not speak of the output."""
    await make_tree(url)
    said = log(*arguments, store=store)
    assert (2, "", 1) == (said.code, said.out, said.err.count("\n"))
    assert "output" not in said.err


async def test_standard_input_that_finds_no_room_is_said_to(log, url, tmp_path, monkeypatch):
    """When the copy of standard input does not fit, the line says where it should have gone."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}\n" * 100_000)))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with mounted(tmp_path, "size=64k"):
        said = log("import", "-")
        assert (2, "", 1, []) == (said.code, said.out, said.err.count("\n"), list(tmp_path.iterdir()))
    assert "No space left" in said.err
    assert "TMPDIR" in said.err


async def test_a_store_is_not_imported_as_a_file(log, url, tmp_path):
    """Who imports the file of a store is told to name it with --store."""
    await make_tree(url)
    said = log("import", tmp_path / "x.db")
    assert (2, True) == (said.code, "--store" in said.err)


def other_turn(lines):
    """The last event in a turn that it did not fall in."""
    return [*lines[:-1], lines[-1] | {"turn": 77}]


def other_time(lines):
    """The last event at a time beyond all."""
    return [*lines[:-1], lines[-1] | {"at_ms": TIME_END_MS}]


def in_a_ring(lines):
    """Three sessions, each below another or below itself."""
    above = {"s": "s.a", "s.a": "s", "s.b": "s.b"}
    return [
        line | ({"event": line["event"] | {"parent": above[line["session"]]}} if line["seq"] == 0 else {})
        for line in lines
    ]


@pytest.mark.parametrize(("change", "why"), [(other_turn, "turn 77"), (other_time, "no store can hold")])
async def test_what_a_check_would_find_is_not_imported(log, url, tmp_path, change, why):
    """A turn or time that cannot be is damage in the file already, for `check` and for `import`."""
    write(tmp_path / "bad.jsonl", change(await exported(log, url, tmp_path)))
    checked, brought = log("check", tmp_path / "bad.jsonl"), log("import", tmp_path / "bad.jsonl", "--session", "n")
    assert (1, 1, "") == (checked.code, brought.code, brought.out)
    assert why in checked.out
    assert why in brought.err
    assert "checked 3 sessions" in log("check").out


async def test_agents_in_a_ring_are_not_imported(log, url, tmp_path):
    """Sessions that are agents below themselves are refused, since nobody could ever find or open them."""
    write(tmp_path / "bad.jsonl", in_a_ring(await exported(log, url, tmp_path)))
    said = log("import", tmp_path / "bad.jsonl", store=True)
    assert (1, "", 1) == (said.code, said.out, said.err.count("\n"))
    assert "below itself" in said.err


async def test_an_id_of_a_megabyte_is_cut_in_what_is_said(log, url, tmp_path):
    """What is wrong with a session of a very long name is said in a line that can be read."""
    lines = await exported(log, url, tmp_path)
    write(tmp_path / "bad.jsonl", [*lines, lines[1] | {"session": "z" * 1_000_000}])
    said = log("import", tmp_path / "bad.jsonl")
    assert (1, "", True) == (said.code, said.out, len(said.err) < 1000)


async def test_a_session_with_the_name_of_an_import_is_in_the_way(log, url, tmp_path):
    """Where a session is called ID~import, importing ID says so, and changes nothing."""
    await exported(log, url, tmp_path)
    log("import", tmp_path / "t.jsonl", "--session", "n~import")
    said = log("import", tmp_path / "t.jsonl", "--session", "n")
    assert (2, "", 1) == (said.code, said.out, said.err.count("\n"))
    assert "'n~import' is in the way" in said.err
    assert 0 == log("check").code


async def test_a_ring_in_a_store_is_told(log, url, tmp_path):
    """Where a damaged store has agents below themselves, opening says so, and `check` and `list` show them."""
    await make_tree(url)
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as db, db:
        db.execute("UPDATE sessions SET parent = 's.a' WHERE id = 's'")
    said = log("check")
    assert 1 == said.code
    assert {"'s'", "'s.a'"} == {line.split()[1].rstrip(":") for line in said.out.splitlines() if "below itself" in line}
    assert {"s", "s.a", "s.b"} == {line.split()[0] for line in log("list").out.splitlines()[1:]}
    async with open_runtime(model=echo(), store=url) as rt:
        for name in ("s", "s.a", "s.b"):
            with pytest.raises(LogError, match="below itself"):
                await rt.open(name)


def test_a_list_shows_each_session_once():
    """Roots, agents, agents without their parent, and agents in a ring: each is on the list, and only once."""
    lines = {
        "r": None,
        "r.a": "r",
        "r.a.b": "r.a",
        "lost.a": "lost",
        "lost.a.b": "lost.a",
        "x": "y",
        "y": "x",
        "z": "z",
    }
    headers = [Header(name, parent=parent, created_ms=at) for at, (name, parent) in enumerate(lines.items())]
    shown = [(header.id, depth) for header, depth in as_trees(headers)]
    assert [("r", 0), ("r.a", 1), ("r.a.b", 2), ("lost.a", 0), ("lost.a.b", 1)] == shown[:5]
    assert {"x", "y", "z"} == {name for name, _ in shown[5:]}
    assert len(lines) == len(shown)

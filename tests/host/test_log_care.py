"""log check and log repair: damage is named, what can be saved is, and nothing is lost in silence."""

import contextlib
import os
import re
import shutil
import sqlite3
from pathlib import Path

import msgspec
import pytest

from callboard.actors import LogError, Reply
from callboard.actors.codec import Codec
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime
from callboard.runtime.logs.lines import Lines, Torn
from callboard.runtime.logs.sqlite_survey import wal_damage
from callboard.runtime.stores import look_into

from .hosted import echo
from .logged import Commands, make_tree

ROUNDS = int(os.environ.get("CALLBOARD_CRASH_ROUNDS", "1"))


@pytest.fixture
def url(tmp_path):
    """A store that is not there yet."""
    return f"sqlite:///{tmp_path / 'x.db'}"


@pytest.fixture
def log(capsys, url):
    """The command on that store."""
    return Commands(capsys, url)


def stored(path):
    """The records of every session of a file that can be read."""
    reading = look_into(f"sqlite:///{path}")
    try:
        return {one.id: reading.records(one.id, -1, 10**9) for one in reading.headers()}
    finally:
        reading.close()


def at_file(url, *statements):
    """Change a closed store behind its back."""
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


# -- files of lines ----------------------------------------------------------------------------------------------------


async def test_the_last_line_cut_at_every_byte(log, url, tmp_path):
    """Wherever the last record is cut, what is before it is whole and kept, and the cut is told."""
    await make_tree(url)
    log("export", "s", "--out", tmp_path / "s.jsonl")
    data = (tmp_path / "s.jsonl").read_bytes()
    last = data.rstrip(b"\n").rfind(b"\n") + 1
    events, torn, codec = data.count(b"\n"), tmp_path / "torn.jsonl", Codec()
    for end in range(last, len(data) + 1):
        torn.write_bytes(data[:end])
        lines = Lines(torn, "torn", codec)
        whole = events if end >= len(data) - 1 else events - 1
        cut = Torn("torn", events, last, end - last) if last < end < len(data) - 1 else None
        assert (whole, cut) == (sum(1 for _ in lines), lines.torn)
        assert (lines.count, lines.end) == (whole, last if cut else end)


@pytest.mark.parametrize("tail", [b"\0" * 4096, b'{"seq":', b"\xff", b'{"seq":9,"at_ms":1}', b" \0"])
async def test_a_torn_tail_is_cut_and_reported(log, url, tmp_path, tail):
    """Repair cuts the end that is no line, keeps the file as it was beside it, and import does the same unasked."""
    await make_tree(url)
    log("export", "s", "--out", tmp_path / "s.jsonl")
    whole = (tmp_path / "s.jsonl").read_bytes()
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(whole + tail)
    assert 1 == log("check", torn).code
    said = log("import", torn, "--session", "n")
    assert (0, True) == (said.code, f"is torn: {len(tail):,} bytes from byte {len(whole):,} on are cut" in said.err)
    said = log("repair", torn, store=False)
    assert (0, whole, whole + tail) == (said.code, torn.read_bytes(), (tmp_path / "torn.jsonl.torn").read_bytes())
    assert "are cut" in said.out
    assert 0 == log("check", torn).code
    said = log("repair", torn, store=False)
    assert (0, True) == (said.code, "is whole: nothing was changed" in said.out)


async def test_damage_in_the_middle_is_refused_and_nothing_is_changed(log, url, tmp_path):
    """Zeros over any line but the last are damage: check, repair and import name it, and no file is touched."""
    await make_tree(url)
    log("export", "s", "--out", tmp_path / "s.jsonl")
    data, bad = (tmp_path / "s.jsonl").read_bytes(), tmp_path / "bad.jsonl"
    starts = [0, *(at.end() for at in re.finditer(rb"\n", data))]
    for number, start in list(enumerate(starts[:-2], 1))[:: 1 if ROUNDS > 1 else 5]:
        broken = data[: start + 5] + b"\0" * 20 + data[start + 25 :]
        bad.write_bytes(broken)
        for said in (log("check", bad), log("repair", bad, store=False), log("import", bad, "--session", "n")):
            assert (1, True) == (said.code, f"line {number} (byte {start:,}) is damaged" in said.out + said.err)
        assert (broken, False) == (bad.read_bytes(), (tmp_path / "bad.jsonl.torn").exists())


async def test_a_file_with_nothing_whole_in_it_is_left_alone(log, tmp_path):
    """An empty file, one of zeros and one with half a line hold nothing that could be saved."""
    for number, data in enumerate((b"\0" * 4096, b'{"seq":0,"at_ms":')):
        file = tmp_path / f"{number}.jsonl"
        file.write_bytes(data)
        said = log("repair", file, store=False)
        assert (1, data, 1) == (said.code, file.read_bytes(), said.err.count("\n"))
        assert 1 == log("import", file).code


# -- stores ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DELETE FROM events WHERE seq = 5 AND session = 1", "session 's': event 5: event 5 is missing"),
        (
            "UPDATE events SET body = x'00' WHERE seq = 3 AND session = 1",
            "session 's': event 3: a record is not an event",
        ),
        ("UPDATE events SET turn = 9 WHERE seq = 3 AND session = 1", "is marked with turn 9"),
        ("UPDATE sessions SET due_ms = 77 WHERE id = 's'", "the store wakes it at 77 ms, and its log says no time"),
        ("UPDATE sessions SET title = 'other' WHERE id = 's'", "its header says another"),
        ("INSERT INTO events VALUES(99, 0, 1, NULL, x'7b7d')", "events of session number 99 have no session"),
        ("INSERT INTO snapshots VALUES(1, 'turn', 1, 9999, x'00')", "the snapshot of 'turn' is true for event 9999"),
        ("DROP INDEX sessions_due", "the index sessions_due is missing"),
        ("DELETE FROM events WHERE session = 1", "session 's': it has no events"),
        (
            'UPDATE events SET body = CAST(\'{"type":"turn_started","turn":4}\' AS BLOB) WHERE seq = 3 AND session = 1',
            "TurnStarted refused",
        ),
    ],
)
async def test_what_is_wrong_with_a_store_is_named(log, url, statement, said):
    """Each kind of damage is told with session, event and advice, exit code 1; other sessions are whole."""
    await make_tree(url)
    assert (0, True) == ((found := log("check")).code, "nothing is wrong" in found.out)
    at_file(url, statement)
    found = log("check")
    assert (1, True, True) == (found.code, said in found.out, "1 found" in found.out)
    findings = [msgspec.json.decode(line) for line in log("check", "--json").out.splitlines()]
    assert [{"session", "seq", "what", "advice"}] == [set(one) for one in findings]


async def test_a_turn_that_is_open_is_not_wrong(log, url):
    """A crash leaves an open turn: check says nothing about it and repair leaves it to who opens the session."""
    await make_tree(url)
    at_file(url, "DELETE FROM events WHERE session = 1 AND seq > 6")
    assert 0 == log("check", "s").code
    said = log("repair", url.removeprefix("sqlite:///"), store=False)
    assert (0, 7) == (said.code, len(stored(Path(url.removeprefix("sqlite:///")).with_name("x.repaired.db"))["s"]))


async def test_what_can_be_read_is_saved_to_a_new_file(log, url, tmp_path):
    """Of a session with a gap the beginning is saved, a lost header is made anew, and the old file stays as it was."""
    await make_tree(url)
    at_file(
        url,
        "DELETE FROM events WHERE seq = 9 AND session = 1",
        "DELETE FROM sessions WHERE id = 's.a'",
        "PRAGMA wal_checkpoint(TRUNCATE)",
    )
    path = tmp_path / "x.db"
    before = path.read_bytes()
    said = log("repair", path, store=False)
    assert (1, before) == (said.code, path.read_bytes())
    assert ("lost: session 's': event 9:" in said.out, "its header is lost" in said.out) == (True, True)
    found = stored(tmp_path / "x.repaired.db")
    assert (9, {"s", "s.b", "lost-2"}) == (len(found["s"]), found.keys())
    assert 2 == log("repair", path, store=False).code
    async with open_runtime(model=echo(), store=f"sqlite:///{tmp_path / 'x.repaired.db'}") as rt:
        assert 2 == (await (await rt.open("s")).run("on")).turn


async def test_no_zeroed_page_goes_unseen(log, url, tmp_path):
    """Whichever page is zeroed, check names damage unless all is there, and repair saves whole logs only."""
    async with open_runtime(model=ScriptedModel(lambda prompt: Reply("x" * 900)), store=url) as rt:
        for name in ("s", "t"):
            s = await rt.create(name)
            for _ in range(4):
                await s.run("go")
    at_file(url, "PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA journal_mode=DELETE")
    path = tmp_path / "x.db"
    data, whole = path.read_bytes(), stored(path)
    for page in range(0, len(data) // 4096, 1 if ROUNDS > 1 else 2):
        bad = tmp_path / "bad.db"
        bad.write_bytes(data[: page * 4096] + b"\0" * 4096 + data[(page + 1) * 4096 :])
        said = Commands(log.capsys, f"sqlite:///{bad}")("check")
        with contextlib.suppress(LogError):
            if stored(bad) == whole and said.code == 0:
                continue
        assert (True, True) == (said.code in (1, 2), "Traceback" not in said.out + said.err)
        said = log("repair", bad, store=False)
        saved = tmp_path / "bad.repaired.db"
        if saved.exists():
            for id, records in stored(saved).items():
                original = whole.get(id, max(whole.values(), key=len))
                assert records == original[: len(records)] or id.startswith("lost-")
            saved.unlink()
        else:
            assert (True, 1) == (said.code in (1, 2), said.err.count("\n"))
        for end in ("-wal", "-shm"):
            saved.with_name(saved.name + end).unlink(missing_ok=True)


async def test_a_log_of_writes_that_is_cut_or_zeroed(tmp_path, capsys):
    """A cut write-ahead log is a prefix of what was acknowledged; one zeroed before its last commits is named."""
    path, copy = tmp_path / "x.db", tmp_path / "c.db"
    async with open_runtime(model=echo(), store=f"sqlite:///{path}") as rt:
        s = await rt.create("s")
        for _ in range(6):
            await s.run("go")
        shutil.copy(path, copy)
        wal = path.with_name("x.db-wal").read_bytes()
        whole = rt.store.read("s", -1, 10**9)
    main, log = copy.read_bytes(), Commands(capsys, f"sqlite:///{copy}")

    def put(data):
        copy.write_bytes(main)
        copy.with_name("c.db-shm").unlink(missing_ok=True)
        copy.with_name("c.db-wal").write_bytes(data)
        return log("check")

    def readable():
        try:
            return stored(copy).get("s", [])
        except LogError:  # the log held the tables too
            return []

    step = max(len(wal) // (200 if ROUNDS > 1 else 24), 1)
    assert 0 == put(wal).code
    silent = [0]
    for at in range(4200, len(wal), step):
        put(wal[:at])
        found = readable()
        assert found == whole[: len(found)]
        damaged = wal[:at] + b"\0" * 4096 + wal[at + 4096 :]
        said = put(damaged)
        found = readable()
        assert found == whole[: len(found)]
        if said.code == 0:
            silent.append(len(whole) - len(found))
        assert said.code == 0 or "is damaged at frame" in said.out or "no such table" in said.out
    assert max(silent) <= 2 * 7, "only what is behind the last commit but two, which a crash may leave torn too"


def test_a_log_of_writes_that_is_none_is_no_damage(tmp_path):
    """A file that is not there, empty or only a header says nothing; one without a header is damage."""
    wal = tmp_path / "x.db-wal"
    assert wal_damage(wal) is None
    for size in (0, 10, 32):
        wal.write_bytes(b"\0" * size)
        assert wal_damage(wal) is None
    wal.write_bytes(b"\0" * 9000)
    assert "no readable header" in (wal_damage(wal) or "")


async def test_files_that_are_no_stores_are_refused(log, tmp_path):
    """Another program's database and a newer one are named, not judged."""
    for number, statement in enumerate(("CREATE TABLE t(a)", "PRAGMA application_id=1128352844")):
        file = tmp_path / f"{number}.db"
        at_file(f"sqlite:///{file}", statement, f"PRAGMA user_version={number * 999}")
        said = log("check", file)
        assert (True, 1) == (
            said.code in (1, 2),
            (said.out + said.err).count("another program") + said.err.count("newer"),
        )

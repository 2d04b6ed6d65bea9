"""log export and log import: whole sessions and trees out of a store and into one, or nothing at all."""

import asyncio
import contextlib
import io
import re
import signal
import subprocess
import sys
import time

import msgspec
import pytest

from callboard.actors.store import FORKING, Change, Header
from callboard.runtime import open_runtime
from callboard.runtime.logs.bring import PAGE_MAX, Bringing
from callboard.runtime.stores import look_into, open_store

from .hosted import echo
from .logged import Commands, make_tree
from .stored import opened, record, schema_of, synced


@pytest.fixture
def url(tmp_path):
    """A store that is not there yet."""
    return f"sqlite:///{tmp_path / 'x.db'}"


@pytest.fixture
def log(capsys, url):
    """The command on that store."""
    return Commands(capsys, url)


def stored(url):
    """Every session of a store with its records, the half made included."""
    reading = look_into(url)
    try:
        return {one.id: (one, reading.records(one.id, -1, 10**9)) for one in reading.headers()}
    finally:
        reading.close()


async def test_a_session_comes_back_as_it_was(log, url, tmp_path):
    """What is exported and imported elsewhere has the same records and header, byte for byte, and goes on."""
    await make_tree(url)
    said = log("export", "s", "--tree", "--out", tmp_path / "t.jsonl")
    assert (0, "") == (said.code, said.err)
    other = f"sqlite:///{tmp_path / 'other.db'}"
    said = Commands(log.capsys, other)("import", tmp_path / "t.jsonl")
    assert (0, "") == (said.code, said.err)
    assert stored(url) == stored(other)
    async with open_runtime(model=echo(), store=other) as rt:
        s = await rt.open("s")
        assert ((3, "re: go on"), ("s.a", "s.b")) == (((e := await s.run("go on")).turn, e.last_message), s.children())


async def test_one_line_is_one_event(log, url):
    """Standard output gets one envelope a line and nothing else; that agents stay behind is said beside it."""
    await make_tree(url)
    said = log("export", "s")
    lines = [msgspec.json.decode(line) for line in said.out.splitlines()]
    assert [("s", at) for at in range(len(lines))] == [(line["session"], line["seq"]) for line in lines]
    assert (0, len(stored(url)["s"][1])) == (said.code, len(lines))
    assert "2 agents whose logs are not in the export: --tree" in said.err


async def test_a_taken_id_is_refused_and_another_takes_the_whole_tree(log, url, tmp_path):
    """An id that is taken is refused with advice; under another the agents are named after it, and it all works."""
    await make_tree(url)
    log("export", "s", "--tree", "--out", tmp_path / "t.jsonl")
    before = stored(url)
    said = log("import", tmp_path / "t.jsonl")
    assert (2, 1) == (said.code, said.err.count("\n"))
    assert "'s' exists already in this store: import it under another id with --session ID" in said.err
    assert before == stored(url)
    said = log("import", tmp_path / "t.jsonl", "--session", "n", "--json")
    ids = msgspec.json.decode(said.out)["sessions"]
    assert (0, {"s": "n", "s.a": "n.a", "s.b": "n.b"}) == (said.code, ids)
    found = stored(url)
    assert ("n", "n", "/root/a") == (found["n.a"][0].parent, found["n.a"][0].root, found["n.a"][0].path)
    async with open_runtime(model=echo(), store=url) as rt:
        n = await rt.open("n")
        assert ("n.a", "n.b") == n.children()
        assert 3 == (await n.run("on")).turn
        assert "n" == (await rt.open("n.a")).parent
    assert 0 == log("check").code


async def test_an_agent_alone_becomes_a_root(log, url, tmp_path):
    """An agent whose parent is not in the file stands at the root of a tree of its own."""
    await make_tree(url)
    log("export", "s.a", "--out", tmp_path / "a.jsonl")
    assert 0 == log("import", tmp_path / "a.jsonl", "--session", "alone").code
    header = stored(url)["alone"][0]
    assert (None, "alone", "/root") == (header.parent, header.root, header.path)
    async with open_runtime(model=echo(), store=url) as rt:
        assert 2 == (await (await rt.open("alone")).run("on")).turn


async def test_a_parent_without_its_agents_opens(log, url, tmp_path):
    """Agents that are not in the file are named, and a session that misses them still works."""
    await make_tree(url)
    log("export", "s", "--out", tmp_path / "s.jsonl")
    other = f"sqlite:///{tmp_path / 'other.db'}"
    said = Commands(log.capsys, other)("import", tmp_path / "s.jsonl")
    assert (0, True) == (said.code, "not in the file: s.a, s.b" in said.err)
    async with open_runtime(model=echo(), store=other) as rt:
        assert 3 == (await (await rt.open("s")).run("on")).turn


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda lines: lines[:4] + lines[5:], "line 5 .*event 4 is missing"),
        (lambda lines: [*lines[:4], lines[3], *lines[4:]], "line 5 .*event 4 is next, and event 3 comes instead"),
        (lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]], "line 4 .*event 3 is missing"),
        (lambda lines: [*lines[:3], b"\0" * 4096, *lines[3:]], "line 4 .*not an envelope"),
        (lambda lines: [*lines[:3], b"\xff\xfe" + lines[3], *lines[4:]], "line 4 .*not an envelope"),
        (lambda lines: [*lines[:3], lines[3][:40], *lines[4:]], "line 4 .*not an envelope"),
        (lambda lines: lines[1:], "line 1 .*event 0 is missing"),
        (lambda lines: [lines[0].replace(b"session_opened", b"turn_started"), *lines[1:]], "line 1 .*does not fit"),
        (
            lambda lines: [one.replace(b"turn_ended", b"turn_rounded") for one in lines],
            "kind 'turn_rounded' is unknown",
        ),
        (
            lambda lines: [one.replace(b'"turn":1,"step":1', b'"turn":1,"step":7') for one in lines],
            "StepStarted refused",
        ),
        (lambda lines: [], "holds no event"),
    ],
)
async def test_what_is_damaged_is_refused_by_its_line(log, url, tmp_path, change, why):
    """Damage before the end is one sentence with the number of the line, exit code 1, and nothing is imported."""
    await make_tree(url)
    log("export", "s", "--out", tmp_path / "s.jsonl")
    lines = (tmp_path / "s.jsonl").read_bytes().splitlines()
    (tmp_path / "bad.jsonl").write_bytes(b"".join(line + b"\n" for line in change(lines)))
    before = stored(url)
    said = log("import", tmp_path / "bad.jsonl", "--session", "n")
    assert (1, "", 1, before) == (said.code, said.out, said.err.count("\n"), stored(url))
    assert re.search(why, said.err)


async def test_unknown_events_that_may_be_ignored_come_along(log, url, tmp_path):
    """An ignorable event of a kind that nobody knows is kept as it is; one that is not is refused."""
    await make_tree(url)
    log("export", "s", "--out", tmp_path / "s.jsonl")
    lines = (tmp_path / "s.jsonl").read_bytes().splitlines()
    strange = {"seq": len(lines), "at_ms": 5, "session": "s", "event": {"type": "from_the_future", "ignorable": True}}
    (tmp_path / "n.jsonl").write_bytes(b"\n".join([*lines, msgspec.json.encode(strange)]) + b"\n")
    assert 0 == log("import", tmp_path / "n.jsonl", "--session", "n").code
    assert b'{"type":"from_the_future","ignorable":true}' == stored(url)["n"][1][-1].body
    async with open_runtime(model=echo(), store=url) as rt:
        assert 3 == (await (await rt.open("n")).run("on")).turn


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("export", "nobody"), "there is no session 'nobody'"),
        (("export", "s", "--out", "/nowhere/at/all"), "cannot be written"),
        (("import", "/nowhere/at/all"), "is not there"),
        (("import", "/"), "is a folder"),
        (("check", "nobody"), "there is no session 'nobody'"),
        (("repair", "/nowhere/at/all"), "is no file"),
    ],
)
async def test_wrong_use_is_one_line(log, url, arguments, said):
    """What cannot be is said in one line on standard error, with exit code 2."""
    await make_tree(url)
    found = log(*arguments, store=arguments[0] != "repair")
    assert (2, "", 1) == (found.code, found.out, found.err.count("\n"))
    assert said in found.err


async def test_a_file_that_is_there_is_not_written_over(log, url, tmp_path):
    """An export never destroys a file, and one that fails leaves none."""
    await make_tree(url)
    (tmp_path / "there").write_text("mine")
    assert 2 == log("export", "s", "--out", tmp_path / "there").code
    assert "mine" == (tmp_path / "there").read_text()
    assert 2 == log("export", "nobody", "--out", tmp_path / "none").code
    assert ["there", "x.db"] == sorted(one.name for one in tmp_path.iterdir() if not one.name.startswith("x.db-"))


async def test_pipes(log, url, tmp_path, monkeypatch):
    """`-` reads standard input and writes standard output: an export goes into an import without a file."""
    await make_tree(url)
    said = log("export", "s", "--tree", "--out", "-")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(said.out.encode())))
    assert (0, 3) == (log("import", "-", "--session", "p").code, sum(id.startswith("p") for id in stored(url)))


async def test_an_import_that_is_cut_off_shows_nothing_and_can_be_made_again(log, url, tmp_path, monkeypatch):
    """Ctrl-C after any page leaves nothing anybody sees, exit code 130; after a kill the next import clears it up."""
    await make_tree(url)
    log("export", "s", "--tree", "--out", tmp_path / "t.jsonl")
    monkeypatch.setattr("callboard.runtime.logs.bring.PAGE_MAX", 7)
    before, flush = stored(url), Bringing._flush

    for pages in (1, 3, 5):
        left = [pages]

        def cut(self, left=left):
            flush(self)
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt

        monkeypatch.setattr(Bringing, "_flush", cut)
        assert (130, before) == (log("import", tmp_path / "t.jsonl", "--session", "n").code, stored(url))
        monkeypatch.setattr(Bringing, "remove", lambda self: None)  # as if it was killed
        left[0] = pages
        assert 130 == log("import", tmp_path / "t.jsonl", "--session", "n").code
        half = {id for id in stored(url) if id not in before}
        assert (True, {"forking"}) == (bool(half), {stored(url)[id][0].status for id in half})
        assert "n" not in log("list").out.split()
        assert 0 == log("check").code
        monkeypatch.undo()
        monkeypatch.setattr("callboard.runtime.logs.bring.PAGE_MAX", 7)
        assert 0 == log("import", tmp_path / "t.jsonl", "--session", "n").code
        now = stored(url)
        assert {"n", "n.a", "n.b"} == now.keys() - before.keys()
        with opened(open_store(url)) as store:
            await _remove(store, now["n"][0], now["n.a"][0], now["n.b"][0])


async def _remove(store, *headers):
    for header in headers:
        answer = asyncio.get_running_loop().create_future()
        half = msgspec.structs.replace(header, status=FORKING)
        store.rename([Change(header.id, half)], answer.set_result)
        assert await answer is None
        answer = asyncio.get_running_loop().create_future()
        store.rename([Change(header.id, None)], answer.set_result)
        assert await answer is None


def test_an_import_that_is_killed_shows_nothing(url, tmp_path):
    """kill -9 in the middle of a long import: no list shows it, and the same command again imports all of it."""
    lines = [b'{"seq":0,"at_ms":1,"session":"big","event":{"type":"session_opened","root":"big"}}']
    note = b'{"seq":%d,"at_ms":1,"session":"big","event":{"type":"note_added","text":"x"}}'
    lines += [note % seq for seq in range(1, 20 * PAGE_MAX)]
    (tmp_path / "big.jsonl").write_bytes(b"\n".join(lines))
    command = [sys.executable, "-m", "callboard", "log", "import", "big.jsonl", "--store", url]
    running = subprocess.Popen(command, cwd=tmp_path)
    ends_s = time.monotonic() + 20
    while running.poll() is None and time.monotonic() < ends_s:
        with contextlib.suppress(Exception):
            if any(len(records) > PAGE_MAX for _, records in stored(url).values()):
                break
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert "big" not in stored(url)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    assert {"big": len(lines)} == {id: len(records) for id, (_, records) in stored(url).items()}


async def test_postgres_takes_and_gives_sessions(request, capsys, tmp_path):
    """The same commands work on a PostgreSQL store."""
    url = schema_of(request.getfixturevalue("postgres"))
    await make_tree(url)
    log = Commands(capsys, url)
    assert 0 == log("export", "s", "--tree", "--out", tmp_path / "t.jsonl").code
    assert (2, 0) == (
        log("import", tmp_path / "t.jsonl").code,
        log("import", tmp_path / "t.jsonl", "--session", "n").code,
    )
    assert {"s", "s.a", "s.b", "n", "n.a", "n.b"} == stored(url).keys()
    assert 0 == log("check").code
    async with open_runtime(model=echo(), store=url) as rt:
        assert 3 == (await (await rt.open("n")).run("on")).turn


async def test_two_trees_in_one_file_need_no_new_id(log, url, tmp_path):
    """Files may be put together; naming one session then is refused."""
    for name in ("s", "t"):
        await make_tree(url, name)
        log("export", name, "--tree", "--out", tmp_path / f"{name}.jsonl")
    (tmp_path / "both.jsonl").write_bytes((tmp_path / "s.jsonl").read_bytes() + (tmp_path / "t.jsonl").read_bytes())
    assert 2 == log("import", tmp_path / "both.jsonl", "--session", "n").code
    other = Commands(log.capsys, f"sqlite:///{tmp_path / 'other.db'}")
    assert (0, stored(url)) == (other("import", tmp_path / "both.jsonl").code, stored(other.url))


async def test_a_store_that_keeps_nothing_is_refused(capsys, tmp_path):
    """A store in memory cannot be exported from, checked or imported into."""
    log = Commands(capsys, "memory")
    (tmp_path / "s.jsonl").write_text(
        '{"seq":0,"at_ms":1,"session":"s","event":{"type":"session_opened","root":"s"}}\n'
    )
    assert [2, 2, 2] == [log(*one).code for one in (("export", "s"), ("check",), ("import", tmp_path / "s.jsonl"))]


async def test_what_is_half_made_cannot_be_exported(log, url):
    """A fork or an import that was never finished is no session."""
    with opened(open_store(url)) as store:
        store.append("half", [record(0)], Header("half", status=FORKING))
        assert await synced(store) is None
    assert 2 == log("export", "half").code

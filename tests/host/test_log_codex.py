"""Codex rollouts as history: what was said and done becomes a whole log, and what is damaged is refused."""

import os
from pathlib import Path

import msgspec
import pytest

from callboard.actors.events import ModelSaid, ToolCalled, ToolReturned, TurnEnded
from callboard.runtime import open_runtime

from .hosted import echo, events
from .logged import Commands

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"


def line(kind, payload, at=0):
    """One line of a rollout."""
    return msgspec.json.encode({"timestamp": f"2026-01-01T00:00:{at:02}Z", "type": kind, "payload": payload})


def said(role, text):
    """A message item."""
    return line("response_item", {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]})


def call(id, name="shell", arguments='{"command":["ls"]}'):
    """A call item."""
    return line("response_item", {"type": "function_call", "name": name, "arguments": arguments, "call_id": id})


def output(id, text="a.txt"):
    """An output item."""
    return line("response_item", {"type": "function_call_output", "call_id": id, "output": text})


ROLLOUT = (
    line("session_meta", {"id": "0199-codex", "cwd": "/project", "cli_version": "0.50"}),
    line("turn_context", {"model": "gpt-5-codex", "cwd": "/project"}),
    said("user", "list the files"),
    said("assistant", "I look."),
    call("c1"),
    output("c1"),
    call("c2", "apply_patch", "*** Begin Patch"),
    said("user", "go on"),
    call("c3"),
    output("c3", '{"output":"no","metadata":{"exit_code":1}}'),
    said("assistant", "Done."),
)
OLD = (
    b'{"id":"0001-old","timestamp":"2025-05-01T00:00:00Z","instructions":null}',
    b'{"record_type":"state"}',
    b'{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}',
    b'{"type":"function_call","name":"shell","arguments":"{}","call_id":"k"}',
    b'{"type":"function_call_output","call_id":"k","output":"ok"}',
    b'{"type":"message","role":"assistant","content":[{"type":"output_text","text":"hello"}]}',
)


@pytest.fixture
def log(capsys, tmp_path):
    """The command on a store that is not there yet."""
    return Commands(capsys, f"sqlite:///{tmp_path / 'x.db'}")


def written(path, lines, end=b"\n"):
    """A rollout file."""
    file = path / "rollout-2026-01-01T00-00-00-0199-codex.jsonl"
    file.write_bytes(b"\n".join(lines) + end)
    return file


async def test_a_rollout_becomes_a_session(log, tmp_path):
    """Messages, calls and results become turns; a call without output gets `aborted`; the next turn works."""
    told = log("import", written(tmp_path, ROLLOUT))
    assert (0, True) == (told.code, "imported session 0199-codex" in told.out)
    async with open_runtime(model=echo(), store=log.url) as rt:
        s = await rt.open("0199-codex")
        log_ = events(rt, "0199-codex")
        returned = {one.call: (one.receipt, one.text) for one in log_ if isinstance(one, ToolReturned)}
        assert {"c1", "c2", "c3"} == {one.call for one in log_ if isinstance(one, ToolCalled)}
        assert ("completed", "a.txt") == returned["c1"]
        assert ("interrupted", "aborted") == returned["c2"]
        assert "failed" == returned["c3"][0]
        assert ["I look.", "Done."] == [one.text for one in log_ if isinstance(one, ModelSaid) if one.text]
        assert [1, 2] == [one.turn for one in log_ if isinstance(one, TurnEnded)]
        assert (3, "re: more") == ((ended := await s.run("more")).turn, ended.last_message)
    assert 0 == log("check").code


async def test_the_old_forms_are_read_too(log, tmp_path):
    """Bare items behind a header, and one JSON object with all of them, are the same history."""
    assert 0 == log("import", written(tmp_path, OLD)).code
    items = b",".join(OLD[2:])
    (tmp_path / "old.json").write_bytes(b'{"session":%s,\n "items":[%s]}\n' % (OLD[0], items))
    assert 0 == log("import", tmp_path / "old.json", "--session", "whole").code
    async with open_runtime(model=echo(), store=log.url) as rt:
        one, two = ([type(e).__name__ for e in events(rt, name)] for name in ("0001-old", "whole"))
        assert one == two
        assert 2 == (await (await rt.open("whole")).run("on")).turn


async def test_a_torn_rollout_is_cut_at_every_byte_of_its_last_line(log, tmp_path):
    """Wherever the last line is cut the history before it comes in, the cut is told, and no call stays open."""
    whole = b"\n".join(ROLLOUT)
    start = whole.rfind(b"\n") + 1
    step = 1 if os.environ.get("CALLBOARD_CRASH_ROUNDS") else 16
    for end in range(start + 1, len(whole), step):
        told = log("import", written(tmp_path, [whole[:end]], b""), "--session", f"cut{end}")
        assert (0, True) == (told.code, f"is torn: {end - start:,} bytes" in told.err)
    assert 0 == log("check").code


@pytest.mark.parametrize("tail", [b"\0" * 4096, b"\xff\xfe", b'{"timestamp":'])
async def test_a_tail_that_is_no_line_is_cut(log, tmp_path, tail):
    """Zeros, bad bytes and half a line at the end are cut and told."""
    told = log("import", written(tmp_path, ROLLOUT, b"\n" + tail))
    assert (0, True) == (told.code, f"is torn: {len(tail):,} bytes" in told.err)


@pytest.mark.parametrize(
    "bad",
    [
        b"\0" * 512,
        b'{"type":"response_item","pay',
        b'{"type":"response_item","payload":{"text":"\xff\xfe"}}',
        b"nonsense",
    ],
)
@pytest.mark.parametrize("at", [0, 1, 5, 10])
async def test_damage_in_the_middle_is_refused(log, tmp_path, bad, at):
    """A line before the end that is no JSON is named by its number, and nothing is imported."""
    told = log("import", written(tmp_path, [*ROLLOUT[:at], bad, *ROLLOUT[at:]]))
    assert (1, "", 1) == (told.code, told.out, told.err.count("\n"))
    assert f"line {at + 1} (byte" in told.err
    assert not (tmp_path / "x.db").exists()


async def test_lines_in_another_order_still_make_a_whole_log(log, tmp_path):
    """Any two lines may change places: outputs find their calls, and the log is whole whatever becomes of it."""
    for at in range(2, len(ROLLOUT) - 1):
        lines = [*ROLLOUT[:at], ROLLOUT[at + 1], ROLLOUT[at], *ROLLOUT[at + 2 :]]
        assert 0 == log("import", written(tmp_path, lines), "--session", f"swapped{at}").code
    assert 0 == log("check").code


HOSTILE = (
    said("user", "x" * 200_000),
    said("user", "\ud800 half \x00 \x1b[31m".encode("utf-16", "surrogatepass").decode("utf-16", "replace")),
    call("", "", ""),
    call("c1", "n" * 5_000, "[" * 5_000),
    call("c1", "again", "{}"),
    output("nobody"),
    b'{"type":"response_item","payload":{"type":"function_call","name":"f","call_id":"big","arguments":{"n":1e999}}}',
    b'{"type":"response_item","payload":{"type":"function_call","name":"f","call_id":"i","arguments":{"n":%s}}}'
    % (b"9" * 400),
    b'{"type":"response_item","payload":{"type":"function_call","name":"f","call_id":"u","arguments":"{\\"a\\":\\"\\\\ud800\\"}"}}',
    b'{"type":"event_msg","payload":{"type":"turn_aborted","reason":"interrupted"}}',
    b'{"type":"event_msg","payload":{"type":"token_count","info":{"last_token_usage":{"input_tokens":-5,"output_tokens":"x"}}}}',
    b'{"type":"response_item","payload":null}',
    b"[]",
    b"7",
)


@pytest.mark.parametrize("strange", HOSTILE, ids=range(len(HOSTILE)))
async def test_strange_lines_make_a_whole_log_or_one_sentence(log, tmp_path, strange):
    """Huge, empty, repeated, impossible values: the import is whole, or says in one line why not."""
    told = log("import", written(tmp_path, [*ROLLOUT[:5], strange, *ROLLOUT[5:]]), "--session", "s")
    assert (True, "Traceback" in told.err) == (told.code in (0, 1), False)
    if told.code == 0:
        assert 0 == log("check").code
        async with open_runtime(model=echo(), store=log.url) as rt:
            assert "completed" == (await (await rt.open("s")).run("on")).reason


def test_recordings_of_other_agents_come_in_too(log):
    """Every recording that there is becomes a session whose log is whole."""
    files = sorted(TRACES.rglob("*.jsonl"))
    if not files:
        pytest.skip(f"{TRACES.name} is not here")
    for number, file in enumerate(files):
        told = log("import", file, "--session", f"r{number}")
        assert (0, False) == (told.code, "Traceback" in told.err)
    assert 0 == log("check").code


async def test_what_is_neither_is_refused(log, tmp_path):
    """A file of anything else, and a rollout in which nobody said anything, are refused in one line."""
    for number, data in enumerate((b"hello\nworld\n", b'{"a":1}\n{"b":2}\n', ROLLOUT[0] + b"\n")):
        file = tmp_path / f"{number}.jsonl"
        file.write_bytes(data)
        told = log("import", file)
        assert (1, "", 1) == (told.code, told.out, told.err.count("\n"))

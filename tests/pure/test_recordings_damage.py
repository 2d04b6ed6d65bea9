"""Whatever a file holds, it is read and counted, or refused in one sentence; real recordings are read whole."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callboard.runtime.recordings import (
    RecordedAgent,
    RecordedCall,
    RecordedReply,
    RecordedTurn,
    Recording,
    RecordingError,
    read_recording,
    summary,
)
from callboard.runtime.recordings.lines import KINDS_MAX
from callboard.runtime.recordings.recording import calls_of

from .recorded_lines import (
    CODEX_HEADER,
    DSH_CALL,
    DSH_HEADERS,
    PI_CALL,
    PI_HEADER,
    PI_TREE,
    codex_says,
    codex_user,
    dsh,
    dsh_result,
    dsh_says,
    dsh_user,
    event,
    got,
    item,
    pi,
    pi_says,
    raw,
    read,
    says,
    text,
    use,
    user,
    write,
)

TRACES = Path(__file__).resolve().parents[2] / "../shared/traces"


DAMAGE = {
    "blank": (b" \r", {}),
    "NUL bytes": (b"\x00\x00", {}),
    "not JSON": (b"{oops", {"unreadable line": 1}),
    "no object": (b"[1]", {"unreadable line": 1}),
    "too deep": (b'{"type":"user","message":' + b"[" * 99_999 + b"]" * 99_999 + b"}", {"unreadable line": 1}),
    "control character": (b'{"type":"x\x01"}', {"repaired line": 1, "x?": 1}),
    "bad UTF-8": (b'{"type":"\xff"}', {"repaired line": 1, "\ufffd": 1}),
    "no type": (b"{}", {"kind": 1}),
    "wrong types": (b'{"type":["user"],"uuid":7,"message":3}', {"kind": 1}),
}


@pytest.mark.parametrize(("line", "skipped"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_lines_are_counted(tmp_path, line, skipped):
    """A line that is no JSON object is repaired or left out, and named; the rest is read."""
    recording = read(tmp_path, user("go"), line, says("m1", text("Yes.")))
    counts = {reason.replace("\x01", "?"): count for reason, count in recording.skipped.items()}
    assert ((RecordedTurn("go", (RecordedReply("Yes."),)),), skipped) == (recording.turns, counts)


def test_half_a_last_line_is_torn(tmp_path):
    """A last line that breaks off is counted as torn."""
    assert {"torn last line": 1} == read(tmp_path, user("go"), raw(user("more"))[:-9]).skipped


def test_broken_text_is_repaired(tmp_path):
    """Half a surrogate pair or a broken byte in a message costs one character, not the message."""
    recording = read(
        tmp_path, b'{"type":"user","message":{"content":"a\\ud83d"}}', b'{"type":"user","message":{"content":"b\xff"}}'
    )
    assert (RecordedTurn("a?"), RecordedTurn("b\ufffd")) == recording.turns


def test_unknown_kinds_are_bounded(tmp_path):
    """However many kinds a file invents, the count of names stays bounded."""
    recording = read(tmp_path, user("go"), *({"type": f"kind{n}"} for n in range(KINDS_MAX + 20)))
    assert (KINDS_MAX, 21) == (len(recording.skipped), recording.skipped["other kinds"])


# Refusals


REFUSALS = {
    "empty": (b"", "is empty; name a session file"),
    "blank": (b"\n\x00\n", "is empty; name a session file"),
    "gzip": (b"\x1f\x8b\x08rest", "is packed with gzip; unpack it first"),
    "binary": (b"\x7fELF\x00\x01\x02", "is binary (it starts with b'\\x7fELF"),
    "text": (b"Dear diary", "has no known format (it starts with 'Dear diary')"),
    "other JSON": (b'{"a":1}\n{"type":"ping"}', "has no known format"),
}


@pytest.mark.parametrize(("data", "words"), REFUSALS.values(), ids=REFUSALS)
def test_what_is_no_recording_is_refused(tmp_path, data, words):
    """The refusal says which file, what is wrong with it and what to do."""
    path = tmp_path / "f"
    path.write_bytes(data)
    with pytest.raises(RecordingError) as caught:
        read_recording(path)
    assert (True, True, 1) == (str(path) in str(caught.value), words in str(caught.value), len(caught.value.args))


def test_missing_files_and_directories_are_refused(tmp_path):
    """A path without a file behind it is refused in one sentence."""
    messages = []
    for path in (tmp_path, tmp_path / "none", "\x00"):
        with pytest.raises(RecordingError) as caught:
            read_recording(path)
        messages.append(str(caught.value).replace(str(tmp_path), "DIR"))
    assert [
        "DIR is a directory; name the session file inside it.",
        "There is no file DIR/none; check the path of the recording.",
        "There is no file \x00; check the path of the recording.",
    ] == messages


def test_summary_is_one_line():
    """The summary counts turns, replies, calls, agents and what was skipped, most frequent first."""
    calls = (RecordedCall("a", "x", {}), RecordedCall("b", "x", {}, "ok"))
    turns = (RecordedTurn("go", (RecordedReply("", calls),)),)
    agents = (RecordedAgent("i", "n", "t", turns),)
    recording = Recording("pi", "p\nq", None, None, turns, agents, {"b": 1, "a": 2})
    expected = "pi p?q: 1 turns, 1 replies, 2 calls (1 without result), 1 agents (2 calls); skipped 3: a 2, b 1"
    assert expected == summary(recording)


# Anything at all

SEEDS = (
    user("go", "u1"),
    user("x", isMeta=True),
    user("<command-name>/fix</command-name>"),
    user([got("c1"), text("[Request interrupted by user]")], "u2", toolUseResult={"agentId": "a"}),
    says("m1", text("hi"), use("c1"), uuid="u3", usage={"a": 1}),
    says("m1", use("c1"), use("t", "Task", prompt="p"), uuid="u4", parentUuid="u3", isSidechain=True),
    user("p", "u5", isSidechain=True, parentUuid=None, agentId="a"),
    {"type": "progress", "data": {"type": "agent_progress", "agentId": "a"}, "parentToolUseID": "t"},
    {"type": "attachment", "attachment": {"type": "queued_command", "prompt": "q"}, "sessionId": "s"},
    PI_HEADER,
    *PI_TREE,
    pi_says(PI_CALL, PI_CALL, id="7", parentId="5", stop="aborted"),
    pi({"role": "toolResult", "toolCallId": "c1", "content": [text("a")]}, id="8", parentId="7"),
    {"type": "leaf", "id": "9", "parentId": "8", "targetId": "3"},
    CODEX_HEADER,
    codex_user("go"),
    codex_says("Yes."),
    item("function_call", name="shell", arguments='{"a":1}', call_id="c1"),
    item("function_call_output", call_id="c1", output='{"metadata":{"exit_code":2}}'),
    event("token_count", info={"last_token_usage": {"a": 1}}),
    event("thread_rolled_back", num_turns=1),
    {"id": "x", "timestamp": "t", "instructions": None},
    codex_user("go")["payload"],
    *DSH_HEADERS.values(),
    dsh("turn/start", {"turn": 1}),
    dsh_user("go"),
    dsh_says("1", DSH_CALL, DSH_CALL),
    dsh("tool/call", {"callId": "c9", "name": "bash", "arguments": "{}"}),
    dsh_result("c1"),
    dsh("turn/end", {"reason": {"kind": "aborted"}}),
)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["c1", "u1", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@st.composite
def mutated(draw):
    """A valid line with some of its fields dropped or replaced, or its bytes cut or altered."""
    line = json.loads(json.dumps(draw(st.sampled_from(SEEDS))))
    for _ in range(draw(st.integers(0, 2))):
        spoil(draw, line)
    data = json.dumps(line, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")
    if draw(st.integers(0, 7)) == 0:
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=3)) + data[at + draw(st.integers(0, 5)) :]
    return data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 9)) == 0 else data


def spoil(draw, value):
    """Walk to some place in the value and drop or replace what is there."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = draw(st.sampled_from(keys))
        if isinstance(value[key], dict | list) and value[key] and draw(st.booleans()):
            value = value[key]
        elif draw(st.booleans()):
            del value[key]
            return
        else:
            value[key] = draw(JUNK)
            return


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(mutated(), max_size=12), st.binary(max_size=4), st.lists(mutated(), max_size=4))
def test_anything_is_read_or_refused(tmp_path_factory, lines, tail, agent):
    """Whatever the bytes: a RecordingError, or prompts that are not blank and call ids that are unique."""
    path = tmp_path_factory.mktemp("any") / "s.jsonl"
    path.write_bytes(b"\n".join(lines) + tail)
    write(path.parent / "s" / "subagents" / "agent-a.jsonl", *agent)
    try:
        recording = read_recording(path)
    except RecordingError:
        return
    turns = [*recording.turns, *(turn for one in recording.agents for turn in one.turns)]
    ids = [call.id for call in calls_of(turns)]
    linked = {one.call for one in recording.agents} - {None}
    assert [] == [turn for turn in turns if not turn.prompt.strip()]
    assert [] == [reply for turn in turns for reply in turn.replies if not reply.text and not reply.calls]
    assert (len(set(ids)), set()) == (len(ids), linked - set(ids))
    assert (recording, 1) == (read_recording(path), len(summary(recording).splitlines()))


# Real recordings

needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="../shared/traces is not here")
COUNTS = {
    # file: (turns, replies, calls, calls without result, agents)
    "claude-code/fa812bfe.jsonl": (3, 157, 197, 0, 2),
    "claude-code/short.jsonl": (1, 1, 2, 0, 0),
    "claude-code/todowrite_examples.jsonl": (2, 6, 3, 0, 0),
    "claude-code/fa812bfe/subagents/agent-a93ccab.jsonl": (1, 11, 25, 0, 0),
    "pi/before-compaction.jsonl": (55, 469, 454, 6, 0),
    "dsh/goal-multi-turn-actions.jsonl": (2, 12, 11, 0, 0),
}


@needs_traces
@pytest.mark.parametrize(("name", "expected"), COUNTS.items(), ids=COUNTS)
def test_real_recordings_are_read_whole(name, expected):
    """Turns, replies, calls, missing results and agents of the shared recordings are as counted from their lines."""
    recording = read_recording(TRACES / name)
    calls = calls_of(recording.turns)
    replies = sum(len(turn.replies) for turn in recording.turns)
    missing = sum(call.result is None for call in calls)
    assert expected == (len(recording.turns), replies, len(calls), missing, len(recording.agents))


@needs_traces
def test_real_agents_are_tied_to_their_calls():
    """Both subagents of the large recording know their call; the agent of the compaction is counted apart."""
    recording = read_recording(TRACES / "claude-code/fa812bfe.jsonl")
    agents = [(one.id, one.name, one.call, len(calls_of(one.turns))) for one in recording.agents]
    assert [
        ("a93ccab", "Explore", "toolu_01Y64XEaRvUYinzv9rW9qZXd", 25),
        ("aa84377", "Explore", "toolu_013mmyY3eDBg4Ji6oAszYt6p", 21),
    ] == agents
    assert 1 == recording.skipped["compaction agent"]

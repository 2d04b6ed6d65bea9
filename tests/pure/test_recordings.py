"""Recorded sessions of other agents become one neutral value, whatever the file holds."""

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

TRACES = Path(__file__).resolve().parents[2] / "../shared/traces"


def write(path, *lines):
    """A recording of these lines; a dict is written as JSON, bytes as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(raw(line) + b"\n" for line in lines))
    return path


def raw(line):
    return line if isinstance(line, bytes) else json.dumps(line).encode()


@pytest.fixture
def read(tmp_path):
    """Write these lines and read them."""
    return lambda *lines: read_recording(write(tmp_path / "rec.jsonl", *lines))


# Claude Code


def user(content, uuid="", **more):
    return {"type": "user", "uuid": uuid, "sessionId": "s", "message": {"role": "user", "content": content}, **more}


def says(message, *blocks, uuid="", usage=None, **more):
    body = {"id": message, "role": "assistant", "model": "m-1", "content": list(blocks), "usage": usage}
    return {"type": "assistant", "uuid": uuid, "sessionId": "s", "cwd": "/w", "message": body, **more}


def text(words):
    return {"type": "text", "text": words}


def use(call, name="Bash", **arguments):
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


def got(call, content="ok", **more):
    return {"type": "tool_result", "tool_use_id": call, "content": content, **more}


def claude(*turns, agents=(), **skipped):
    counts = {name.replace("_", " "): count for name, count in skipped.items()}
    return Recording("claude-code", "s", "/w", "m-1", turns, agents, counts)


def test_lines_of_one_message_are_one_reply_also_around_results(read):
    """Blocks of a message id form one reply although results of parallel calls lie between them."""
    recording = read(
        user("go"),
        says("m1", text("\n\n")),
        says("m1", {"type": "thinking", "thinking": "..."}),
        says("m1", text("Looking."), usage={"output_tokens": 1}),
        says("m1", use("c1", command="ls")),
        user([got("c1")]),
        says("m1", use("c2"), usage={"output_tokens": 9}),
        user([got("c2", [text("a"), {"type": "image", "source": {}}], is_error=True)]),
        says("m2", text("Done.")),
    )
    calls = (
        RecordedCall("c1", "Bash", {"command": "ls"}, "ok"),
        RecordedCall("c2", "Bash", {}, "a\n[image]", failed=True),
    )
    replies = (RecordedReply("Looking.", calls, {"output_tokens": 9}), RecordedReply("Done."))
    assert claude(RecordedTurn("go", replies), thinking=1) == recording


CLAUDE_USERS = {
    "image": ([text("see"), {"type": "image", "source": {}}], ("see\n[image]",), {}),
    "only an image": ([{"type": "image"}], ("[image]",), {}),
    "blank": ("  ", ("(empty)",), {}),
    "no blocks": ([], (), {"blank message": 1}),
    "no content": (None, (), {"malformed message": 1}),
    "local output": ("<local-command-stdout>x</local-command-stdout>", (), {"local command output": 1}),
    "shell": ("<bash-input>ls</bash-input>", (), {"shell command of the user": 1}),
    "reminder beside words": (
        [text("<system-reminder>r</system-reminder>"), text("hi")],
        ("hi",),
        {"reminder": 1},
    ),
    "words behind a note": (
        "<ide_selection>x</ide_selection> fix it",
        ("<ide_selection>x</ide_selection> fix it",),
        {},
    ),
    "notification": (
        "<task-notification>done</task-notification>",
        ("<task-notification>done</task-notification>",),
        {},
    ),
    "unknown block": ([{"type": "hologram"}], ('{"type":"hologram"}',), {}),
}


@pytest.mark.parametrize(("content", "prompts", "skipped"), CLAUDE_USERS.values(), ids=CLAUDE_USERS)
def test_what_counts_as_a_prompt_in_claude_code(read, content, prompts, skipped):
    """Only what the user said opens a turn; the notes of the program are counted."""
    recording = read(user(content))
    assert (tuple(map(RecordedTurn, prompts)), skipped) == (recording.turns, recording.skipped)


def test_a_slash_command_is_a_prompt_only_when_the_model_answers(read):
    """A command that expands to a prompt opens a turn; a local one is counted and opens none."""
    typed = "<command-message>x</command-message>\n<command-name>/fix</command-name>\n<command-args>a b</command-args>"
    recording = read(
        user("<command-name>/model</command-name>"),
        user("<local-command-stdout>set</local-command-stdout>"),
        user(typed),
        user("The text of the command", isMeta=True),
        says("m1", text("Fixed.")),
    )
    expected = claude(RecordedTurn("/fix a b", (RecordedReply("Fixed."),)))
    skipped = {"slash command": 2, "local command output": 1, "meta message": 1}
    assert (expected.turns, skipped) == (recording.turns, recording.skipped)


def test_interruption_compaction_and_errors_are_no_prompts(read):
    """The marker stops the turn, a summary lets it go on, synthetic messages say nothing."""
    recording = read(
        {"type": "summary", "summary": "t", "leafUuid": "l"},
        {"type": "queue-operation", "operation": "enqueue", "content": "later", "sessionId": "s"},
        user("go"),
        says("m1", use("c1")),
        user([got("c1", "rejected", is_error=True), text("[Request interrupted by user for tool use]")]),
        user("again"),
        {"type": "system", "subtype": "compact_boundary", "sessionId": "s"},
        user("This session is being continued", isCompactSummary=True),
        says("x", text("API Error: 529"), isApiErrorMessage=True),
        says("m2", text("Going on.")),
        {"type": "attachment", "attachment": {"type": "queued_command", "prompt": "also this"}, "sessionId": "s"},
        {"type": "attachment", "attachment": {"type": "todo"}, "sessionId": "s"},
    )
    stopped = RecordedReply("", (RecordedCall("c1", "Bash", {}, "rejected", failed=True),))
    turns = (
        RecordedTurn("go", (stopped,), interrupted=True),
        RecordedTurn("again", (RecordedReply("Going on."),)),
        RecordedTurn("also this"),
    )
    skipped = {
        "summary": 1,
        "queue-operation": 1,
        "interrupt marker": 1,
        "system compact_boundary": 1,
        "compaction summary": 1,
        "API error message": 1,
        "attachment todo": 1,
    }
    assert (turns, skipped) == (recording.turns, recording.skipped)


def test_agents_from_their_own_files_find_their_calls(tmp_path):
    """An agent is tied to its call by result, by progress, by its meta file, or by the same prompt."""
    main = [
        user("go"),
        says("m1", *(use(f"t{n}", "Task", prompt=f"p{n}", subagent_type="Explore") for n in range(5))),
        {"type": "progress", "data": {"type": "agent_progress", "agentId": "a1"}, "parentToolUseID": "t1"},
        user([got("t0")], toolUseResult={"agentId": "a0"}),
    ]
    path = write(tmp_path / "s.jsonl", *main)
    inside = tmp_path / "s" / "subagents"
    for number in range(4):
        name = inside / ("workflows/w" if number == 3 else "") / f"agent-a{number}.jsonl"
        task = f"p{number}" if number == 3 else f"task {number}"
        write(name, user(task, f"u{number}", isSidechain=True), says("n", text("Found."), isSidechain=True))
    write(inside / "agent-a2.meta.json", {"agentType": "Plan", "toolUseId": "t2"})
    write(inside / "agent-acompact-1.jsonl", user("Summarize"))
    write(tmp_path / "agent-b1.jsonl", user("orphan", sessionId="s"), says("n", text("?")))
    write(tmp_path / "agent-b2.jsonl", user("elsewhere", sessionId="other"), says("n", text("?")))
    write(tmp_path / "agent-b3.jsonl", user("Warmup", sessionId="s"), says("n", text("?")))
    turn = (RecordedReply("Found."),)
    agents = (
        *(
            RecordedAgent(f"a{n}", "Explore", f"task {n}", (RecordedTurn(f"task {n}", turn),), f"t{n}")
            for n in range(3)
        ),
        RecordedAgent("a3", "Explore", "p3", (RecordedTurn("p3", turn),), "t3"),
        RecordedAgent("b1", "agent", "orphan", (RecordedTurn("orphan", (RecordedReply("?"),)),)),
    )
    recording = read_recording(path)
    skipped = {"progress agent_progress": 1, "compaction agent": 1, "warm-up agent": 1}
    assert (agents, skipped) == (recording.agents, recording.skipped)


def test_inline_side_chains_are_agents(read):
    """In old files the lines of two agents at once stand between those of the conversation."""
    side = {"isSidechain": True}
    recording = read(
        user("go"),
        says("m1", use("t1", "Task", prompt="first"), use("t2", "Task", prompt="second")),
        user("second", "b1", parentUuid=None, **side),
        user("first", "a1", parentUuid=None, **side),
        says("n1", use("x"), uuid="a2", parentUuid="a1", **side),
        says("n2", text("Two."), uuid="b2", parentUuid="b1", **side),
        user([got("x")], "a3", parentUuid="a2", **side),
        says("n3", text("One."), uuid="a4", parentUuid="a3", **side),
        user([got("t2"), got("t1")]),
    )
    calls = tuple(RecordedCall(f"t{n}", "Task", {"prompt": p}, "ok") for n, p in ((1, "first"), (2, "second")))
    one = (RecordedReply("", (RecordedCall("x", "Bash", {}, "ok"),)), RecordedReply("One."))
    agents = (
        RecordedAgent("sidechain-2", "agent", "first", (RecordedTurn("first", one),), "t1"),
        RecordedAgent("sidechain-1", "agent", "second", (RecordedTurn("second", (RecordedReply("Two."),)),), "t2"),
    )
    assert claude(RecordedTurn("go", (RecordedReply("", calls),)), agents=agents) == recording


def test_an_agent_file_by_itself_is_a_recording(tmp_path):
    """The side chain of an agent's own file is its conversation."""
    side = {"isSidechain": True, "agentId": "a7"}
    path = write(tmp_path / "agent-a7.jsonl", user("task", **side), says("n", text("Found."), **side))
    turns = (RecordedTurn("task", (RecordedReply("Found."),)),)
    assert Recording("claude-code", "s/a7", "/w", "m-1", turns) == read_recording(path)


def test_repeats_and_duplicate_ids(read):
    """A line or block written twice counts once; a call id used twice gets a number and keeps its own result."""
    recording = read(
        says("m0", text("Early."), uuid="u0"),
        says("m0", text("Early."), uuid="u0"),
        says("m0", text("Early. And whole."), uuid="u1"),
        user("go"),
        user([got("late")]),
        says("m1", use("c"), uuid="u2"),
        says("m1", use("c", command="ls"), uuid="u3"),
        says("m2", use("c", command="pwd"), use("late"), use("")),
        user([got("c", "1"), got("c", "2"), got("c", "3"), got("nobody")]),
    )
    first = RecordedReply("", (RecordedCall("c", "Bash", {"command": "ls"}, "1"),))
    second = (
        RecordedCall("c#2", "Bash", {"command": "pwd"}, "2"),
        RecordedCall("late", "Bash", {}, "ok"),
        RecordedCall("call", "Bash", {}),
    )
    turns = (
        RecordedTurn("(continued)", (RecordedReply("Early. And whole."),)),
        RecordedTurn("go", (first, RecordedReply("", second))),
    )
    skipped = {"repeated_line": 1, "repeated_block": 2, "repeated_result": 1, "result_without_call": 1}
    assert claude(*turns, **skipped) == recording


# pi


def pi(message, **more):
    return {"type": "message", "timestamp": "t", "message": message, **more}


PI_HEADER = {"type": "session", "version": 3, "id": "p", "timestamp": "t", "cwd": "/w"}
PI_CALL = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a"}}


def pi_says(*blocks, stop="stop", **more):
    return pi({"role": "assistant", "model": "m-2", "content": list(blocks), "stopReason": stop, "usage": {}}, **more)


def test_pi_messages(read):
    """A linear file gives prompts, replies, results; an aborted message interrupts its turn."""
    recording = read(
        PI_HEADER,
        pi({"role": "user", "content": "go"}),
        pi_says({"type": "thinking", "thinking": "..."}, text("I read."), PI_CALL, stop="toolUse"),
        pi({"role": "toolResult", "toolCallId": "c1", "content": [text("a"), text("b")], "isError": True}),
        {"type": "compaction", "timestamp": "t", "summary": "s"},
        pi({"role": "bashExecution", "command": "ls"}),
        {"type": "model_change", "timestamp": "t", "modelId": "m-3"},
        pi_says(stop="aborted"),
        pi({"role": "user", "content": [text("more"), {"type": "image", "data": ""}]}),
    )
    call = RecordedCall("c1", "read", {"path": "a"}, "a\nb", failed=True)
    turns = (
        RecordedTurn("go", (RecordedReply("I read.", (call,)),), interrupted=True),
        RecordedTurn("more\n[image]"),
    )
    skipped = {
        "thinking": 1,
        "compaction": 1,
        "shell command of the user": 1,
        "kind model_change": 1,
        "message without text or calls": 1,
    }
    assert Recording("pi", "p", "/w", "m-2", turns, skipped=skipped) == recording


PI_TREE = (
    pi({"role": "user", "content": "go"}, id="1", parentId=None),
    pi_says(text("No."), id="2", parentId="1"),
    pi({"role": "user", "content": "wrong way"}, id="3", parentId="2"),
    pi_says(text("Yes."), id="4", parentId="1"),
    pi({"role": "user", "content": "on"}, id="5", parentId="4"),
)


def test_pi_follows_the_branch_of_the_last_leaf(read):
    """Entries of other branches are counted, those from root to leaf are the conversation."""
    recording = read(PI_HEADER, *PI_TREE)
    turns = (RecordedTurn("go", (RecordedReply("Yes."),)), RecordedTurn("on"))
    assert (turns, {"other branch": 2}) == (recording.turns, recording.skipped)


def test_pi_leaf_entries_name_the_leaf(read):
    """An entry that moves the leaf back decides which branch is the conversation."""
    recording = read(PI_HEADER, *PI_TREE, {"type": "leaf", "id": "6", "parentId": "5", "targetId": "3"})
    assert (RecordedTurn("go", (RecordedReply("No."),)), RecordedTurn("wrong way")) == recording.turns


def test_pi_bridges_a_lost_line(read):
    """Where a parent is missing the line before it is taken."""
    recording = read(PI_HEADER, PI_TREE[0], PI_TREE[4])
    assert (RecordedTurn("go"), RecordedTurn("on")) == recording.turns


# Codex


def item(kind, stamp="t", **fields):
    return {"timestamp": stamp, "type": "response_item", "payload": {"type": kind, **fields}}


def event(kind, **fields):
    return {"timestamp": "t", "type": "event_msg", "payload": {"type": kind, **fields}}


def codex_user(words, stamp="t"):
    return item("message", stamp, role="user", content=[{"type": "input_text", "text": words}])


def codex_says(words, stamp="t"):
    return item("message", stamp, role="assistant", content=[{"type": "output_text", "text": words}])


CODEX_HEADER = {"timestamp": "t", "type": "session_meta", "payload": {"id": "x", "cwd": "/w"}}


def test_codex_items(read):
    """Items are the conversation, grouped by model response; what Codex injected opens no turn."""
    recording = read(
        CODEX_HEADER,
        codex_user("<environment_context>\n<cwd>/w</cwd>\n</environment_context>"),
        {"timestamp": "t", "type": "turn_context", "payload": {"model": "m-4", "cwd": "/w"}},
        codex_user("go"),
        event("user_message", message="go"),
        item("reasoning", summary=[]),
        codex_says("Running."),
        item("function_call", name="shell", arguments='{"command":["ls"]}', call_id="c1"),
        item("custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="c2"),
        event("token_count", info={"last_token_usage": {"output_tokens": 5}}),
        item("function_call_output", call_id="c1", output='{"output":"no","metadata":{"exit_code":2}}'),
        item("custom_tool_call_output", call_id="c2", output=[{"type": "input_text", "text": "Done"}]),
        item("local_shell_call", call_id="c3", action={"type": "exec", "command": ["ls"]}),
        item("function_call_output", call_id="c3", output="aborted by user after 1.2s"),
        event("turn_aborted", reason="interrupted"),
        codex_user("<turn_aborted>\n..."),
    )
    calls = (
        RecordedCall("c1", "shell", {"command": ["ls"]}, '{"output":"no","metadata":{"exit_code":2}}', failed=True),
        RecordedCall("c2", "apply_patch", "*** Begin Patch", "Done"),
    )
    shell = RecordedCall(
        "c3", "local_shell", {"type": "exec", "command": ["ls"]}, "aborted by user after 1.2s", failed=True
    )
    replies = (RecordedReply("Running.", calls, {"output_tokens": 5}), RecordedReply("", (shell,)))
    skipped = {
        "injected message": 1,
        "turn settings": 1,
        "event user_message": 1,
        "thinking": 1,
        "event token_count": 1,
        "event turn_aborted": 1,
        "interrupt marker": 1,
    }
    turns = (RecordedTurn("go", replies, interrupted=True),)
    assert Recording("codex", "x", "/w", "m-4", turns, skipped=skipped) == recording


def test_codex_bare_items(read):
    """The old form has bare items behind a header without type, and state lines between them."""
    recording = read(
        {"id": "x", "timestamp": "t", "instructions": None},
        {"record_type": "state"},
        codex_user("<environment_context><cwd>/w</cwd></environment_context>")["payload"],
        codex_user("go")["payload"],
        {"type": "function_call", "name": "shell", "arguments": "ls", "call_id": "c"},
        {"record_type": "state"},
        {"type": "function_call_output", "call_id": "c", "output": {"content": "a", "success": False}},
        codex_says("Done.")["payload"],
    )
    call = RecordedCall("c", "shell", "ls", "a", failed=True)
    turns = (RecordedTurn("go", (RecordedReply("", (call,)), RecordedReply("Done."))),)
    skipped = {"kind state": 2, "injected message": 1}
    assert Recording("codex", "x", "/w", None, turns, skipped=skipped) == recording


def test_codex_single_object(read):
    """The oldest form is one JSON object with the items inside."""
    recording = read(json.dumps({"session": {"id": "x"}, "items": [codex_user("go")["payload"]]}, indent=1).encode())
    assert Recording("codex", "x", None, None, (RecordedTurn("go"),)) == recording


def test_codex_rollback_and_events(read):
    """A rollback takes turns back; an event proves a user text real that looks injected."""
    recording = read(
        CODEX_HEADER,
        codex_user("go", "1"),
        codex_says("Yes.", "2"),
        codex_user("wrong", "3"),
        event("thread_rolled_back", num_turns=1),
        codex_user("<skill> is what I wrote", "4"),
        event("user_message", message="<skill> is what I wrote"),
    )
    turns = (RecordedTurn("go", (RecordedReply("Yes."),)), RecordedTurn("<skill> is what I wrote"))
    skipped = {"turn rolled back": 1, "event thread_rolled_back": 1, "injected message": 1}
    assert (turns, skipped) == (recording.turns, recording.skipped)


def test_codex_events_alone(read):
    """In a file without items the message events are the conversation."""
    recording = read(CODEX_HEADER, event("user_message", message="go"), event("agent_message", message="Hi."))
    assert (RecordedTurn("go", (RecordedReply("Hi."),)),) == recording.turns


# DeepSeek harness


def dsh(kind, data, **more):
    return {"type": kind, "data": data, **more}


def dsh_user(words, source="user", **more):
    data = {"id": words, "role": "user", "content": [text(words)], "source": {"kind": source, **more}}
    return dsh("user/message", data, surfaceOp="append")


def dsh_says(known, *blocks, **more):
    message = {"id": known, "content": list(blocks), "source": {"kind": "model", "model": "m-5"}}
    return dsh("assistant/message", {"message": message, "usage": {"inputTokens": 1}, **more})


def dsh_result(call, content="ok", **more):
    block = {"type": "tool-result", "toolCallId": call, "content": [text(content)], "isError": False}
    return dsh("tool/result", {"message": {"source": {"callId": call}, "content": [block]}}, **more)


DSH_CALL = {"type": "tool-call", "id": "c1", "name": "bash", "arguments": '{"command":"ls"}'}
DSH_HEADERS = {
    "flat": {"type": "session", "version": 0, "id": "d", "createdAt": 1, "cwd": "/w"},
    "nested": {"header": {"version": 0, "id": "d", "createdAt": 1, "cwd": "/w"}},
}


@pytest.mark.parametrize("header", DSH_HEADERS.values(), ids=DSH_HEADERS)
def test_dsh_events(read, header):
    """Messages of a turn become turns, replies and results; chunks and state are counted."""
    recording = read(
        header,
        dsh("turn/start", {"turn": 1}),
        dsh_user("go"),
        dsh_user("and that"),
        dsh_user("Current runtime context", "plugin", form="snapshot"),
        dsh("text-chunks", {"texts": ["I", " look"]}),
        dsh_says("1", {"type": "reasoning", "text": "..."}, text("I look."), DSH_CALL),
        dsh("tool/call", {"callId": "c1", "name": "bash", "arguments": "{}"}),
        dsh_result("c1"),
        dsh_result("c1", "pruned", surfaceOp={"op": "replace", "start": 1, "end": 1}),
        dsh_user("steer"),
        dsh("tool/call", {"callId": "c2", "name": "todo", "arguments": "{}"}),
        dsh("turn/end", {"turn": 1, "reason": {"kind": "aborted", "cause": "user"}}),
        dsh("turn/start", {"turn": 2}),
        dsh("turn/end", {"turn": 2, "reason": {"kind": "blocked"}}),
    )
    usage = {"inputTokens": 1}
    first = RecordedReply("I look.", (RecordedCall("c1", "bash", {"command": "ls"}, "ok"),), usage)
    turns = (
        RecordedTurn("go\n\nand that", (first,)),
        RecordedTurn("steer", (RecordedReply("", (RecordedCall("c2", "todo", {}),)),), interrupted=True),
    )
    skipped = {"injected message": 1, "kind text-chunks": 1, "thinking": 1, "rewritten result": 1}
    assert Recording("dsh", "d", "/w", "m-5", turns, skipped=skipped) == recording


def test_dsh_turn_that_a_plugin_prompts(read):
    """Where only plugins speak in a turn their word is the prompt, but never a snapshot of state."""
    recording = read(
        DSH_HEADERS["flat"],
        dsh("turn/start", {"turn": 1}),
        dsh_user("state", "plugin", form="snapshot"),
        dsh_user("Reminder", "plugin"),
        dsh_says("1", text("Yes.")),
        dsh("turn/start", {"turn": 2}),
        dsh_says("2", text("Again."), interrupted=True),
    )
    usage = {"inputTokens": 1}
    turns = (
        RecordedTurn("Reminder", (RecordedReply("Yes.", (), usage),)),
        RecordedTurn("(continued)", (RecordedReply("Again.", (), usage),), interrupted=True),
    )
    assert turns == recording.turns


# Damage


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
def test_damaged_lines_are_counted(read, line, skipped):
    """A line that is no JSON object is repaired or left out, and named; the rest is read."""
    recording = read(user("go"), line, says("m1", text("Yes.")))
    counts = {reason.replace("\x01", "?"): count for reason, count in recording.skipped.items()}
    assert ((RecordedTurn("go", (RecordedReply("Yes."),)),), skipped) == (recording.turns, counts)


def test_half_a_last_line_is_torn(read):
    """A last line that breaks off is counted as torn."""
    assert {"torn last line": 1} == read(user("go"), raw(user("more"))[:-9]).skipped


def test_broken_text_is_repaired(read):
    """Half a surrogate pair or a broken byte in a message costs one character, not the message."""
    recording = read(
        b'{"type":"user","message":{"content":"a\\ud83d"}}', b'{"type":"user","message":{"content":"b\xff"}}'
    )
    assert (RecordedTurn("a?"), RecordedTurn("b\ufffd")) == recording.turns


def test_unknown_kinds_are_bounded(read):
    """However many kinds a file invents, the count of names stays bounded."""
    recording = read(user("go"), *({"type": f"kind{n}"} for n in range(KINDS_MAX + 20)))
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
    """Turns, replies, calls, missing results and agents of the shared recordings are as counted by hand."""
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

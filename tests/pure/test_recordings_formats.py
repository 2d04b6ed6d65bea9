"""pi, Codex and DeepSeek-harness sessions become the same neutral value."""

import json

import pytest

from callboard.runtime.recordings import (
    RecordedCall,
    RecordedReply,
    RecordedTurn,
    Recording,
)

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
    item,
    pi,
    pi_says,
    read,
    text,
)


def test_pi_messages(tmp_path):
    """A linear file gives prompts, replies, results; an aborted message interrupts its turn."""
    recording = read(
        tmp_path,
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


def test_pi_follows_the_branch_of_the_last_leaf(tmp_path):
    """Entries of other branches are counted, those from root to leaf are the conversation."""
    recording = read(tmp_path, PI_HEADER, *PI_TREE)
    turns = (RecordedTurn("go", (RecordedReply("Yes."),)), RecordedTurn("on"))
    assert (turns, {"other branch": 2}) == (recording.turns, recording.skipped)


def test_pi_leaf_entries_name_the_leaf(tmp_path):
    """An entry that moves the leaf back decides which branch is the conversation."""
    recording = read(tmp_path, PI_HEADER, *PI_TREE, {"type": "leaf", "id": "6", "parentId": "5", "targetId": "3"})
    assert (RecordedTurn("go", (RecordedReply("No."),)), RecordedTurn("wrong way")) == recording.turns


def test_pi_bridges_a_lost_line(tmp_path):
    """Where a parent is missing the line before it is taken."""
    recording = read(tmp_path, PI_HEADER, PI_TREE[0], PI_TREE[4])
    assert (RecordedTurn("go"), RecordedTurn("on")) == recording.turns


def test_codex_items(tmp_path):
    """Items are the conversation, grouped by model response; what Codex injected opens no turn."""
    recording = read(
        tmp_path,
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


def test_codex_bare_items(tmp_path):
    """The old form has bare items behind a header without type, and state lines between them."""
    recording = read(
        tmp_path,
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


def test_codex_single_object(tmp_path):
    """The oldest form is one JSON object with the items inside."""
    recording = read(
        tmp_path, json.dumps({"session": {"id": "x"}, "items": [codex_user("go")["payload"]]}, indent=1).encode()
    )
    assert Recording("codex", "x", None, None, (RecordedTurn("go"),)) == recording


def test_codex_rollback_and_events(tmp_path):
    """A rollback takes turns back; an event proves a user text real that looks injected."""
    recording = read(
        tmp_path,
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


def test_codex_events_alone(tmp_path):
    """In a file without items the message events are the conversation."""
    recording = read(tmp_path, CODEX_HEADER, event("user_message", message="go"), event("agent_message", message="Hi."))
    assert (RecordedTurn("go", (RecordedReply("Hi."),)),) == recording.turns


def test_codex_prompt_that_is_only_an_event(tmp_path):
    """A prompt that no item repeats comes from its event; one that an item repeats comes once."""
    recording = read(
        tmp_path,
        CODEX_HEADER,
        event("user_message", message="go"),
        item("function_call", name="spawn_agent", arguments="{}", call_id="c"),
        event("user_message", message="and"),
        codex_user("and"),
    )
    reply = RecordedReply("", (RecordedCall("c", "spawn_agent", {}),))
    assert (RecordedTurn("go", (reply,)), RecordedTurn("and")) == recording.turns


@pytest.mark.parametrize("header", DSH_HEADERS.values(), ids=DSH_HEADERS)
def test_dsh_events(tmp_path, header):
    """Messages of a turn become turns, replies and results; chunks and state are counted."""
    recording = read(
        tmp_path,
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


def test_dsh_turn_that_a_plugin_prompts(tmp_path):
    """Where only plugins speak in a turn their word is the prompt, but never a snapshot of state."""
    recording = read(
        tmp_path,
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

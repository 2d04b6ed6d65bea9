"""Claude Code sessions and their subagents become one neutral value."""

import pytest

from callboard.runtime.recordings import (
    RecordedAgent,
    RecordedCall,
    RecordedReply,
    RecordedTurn,
    Recording,
    read_recording,
)

from .recorded_lines import got, read, says, text, use, user, write


def claude(*turns, agents=(), **skipped):
    counts = {name.replace("_", " "): count for name, count in skipped.items()}
    return Recording("claude-code", "s", "/w", "m-1", turns, agents, counts)


def test_lines_of_one_message_are_one_reply_also_around_results(tmp_path):
    """Blocks of a message id form one reply although results of parallel calls lie between them."""
    recording = read(
        tmp_path,
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
def test_what_counts_as_a_prompt_in_claude_code(tmp_path, content, prompts, skipped):
    """Only what the user said opens a turn; the notes of the program are counted."""
    recording = read(tmp_path, user(content))
    assert (tuple(map(RecordedTurn, prompts)), skipped) == (recording.turns, recording.skipped)


def test_a_slash_command_is_a_prompt_only_when_the_model_answers(tmp_path):
    """A command that expands to a prompt opens a turn; a local one is counted and opens none."""
    typed = "<command-message>x</command-message>\n<command-name>/fix</command-name>\n<command-args>a b</command-args>"
    recording = read(
        tmp_path,
        user("<command-name>/model</command-name>"),
        user("<local-command-stdout>set</local-command-stdout>"),
        user(typed),
        user("The text of the command", isMeta=True),
        says("m1", text("Fixed.")),
    )
    expected = claude(RecordedTurn("/fix a b", (RecordedReply("Fixed."),)))
    skipped = {"slash command": 2, "local command output": 1, "meta message": 1}
    assert (expected.turns, skipped) == (recording.turns, recording.skipped)


def test_interruption_compaction_and_errors_are_no_prompts(tmp_path):
    """The marker stops the turn, a summary lets it go on, synthetic messages say nothing."""
    recording = read(
        tmp_path,
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


def test_inline_side_chains_are_agents(tmp_path):
    """In old files the lines of two agents at once stand between those of the conversation."""
    side = {"isSidechain": True}
    recording = read(
        tmp_path,
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


def test_repeats_and_duplicate_ids(tmp_path):
    """A line or block written twice counts once; a call id used twice gets a number and keeps its own result."""
    recording = read(
        tmp_path,
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

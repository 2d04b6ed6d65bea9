"""What a command may say as a hook: every field, every wrong type, bytes of any kind; and what it is asked."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.events import Message, TurnEnded
from callboard.actors.hook import AddContext, Block, Continue, HookTurn, Rewrite, ToolCall, ToolResult, Warn
from callboard.runtime.hooks import asks
from callboard.runtime.hooks.answers import HookBroken, read_answer
from callboard.runtime.hooks.events import MOMENTS, matches

PRE, POST, START, END, INTERRUPT, STOP = MOMENTS


def special(**fields: Any) -> dict[str, Any]:
    """The newer form."""
    return {"hookSpecificOutput": fields}


GOOD: list[tuple[str, Any, tuple[Any, ...]]] = [
    *((event, {}, ()) for event in MOMENTS),
    *((event, {"continue": True, "suppressOutput": True, "stopReason": "unused"}, ()) for event in MOMENTS),
    *((event, {"systemMessage": "look"}, (Warn("look"),)) for event in MOMENTS),
    *((event, special(hookEventName=event), ()) for event in MOMENTS),
    (PRE, special(permissionDecision="deny", permissionDecisionReason="no"), (Block("no"),)),
    (PRE, special(permissionDecision="allow", updatedInput={"a": 1}), (Rewrite({"a": 1}),)),
    (PRE, special(updatedInput={}), (Rewrite({}),)),
    (PRE, special(additionalContext="by the way"), (AddContext("by the way"),)),
    (PRE, special(additionalContext=" "), ()),
    (PRE, {"decision": "block", "reason": "old no"}, (Block("old no"),)),
    (PRE, {"continue": False}, (Block("PreToolUse hook stopped execution"),)),
    (
        PRE,
        {"systemMessage": "w", **special(permissionDecision="allow", updatedInput={"a": 1}, additionalContext="n")},
        (Warn("w"), Rewrite({"a": 1}), AddContext("n")),
    ),
    (POST, {"decision": "block", "reason": "hide"}, (Block("hide"),)),
    (POST, special(additionalContext="checked"), (AddContext("checked"),)),
    (POST, {"continue": False}, (Block("PostToolUse hook stopped execution"),)),
    (POST, {"continue": False, "stopReason": "enough"}, (Block("enough"),)),
    (START, {"decision": "block", "reason": "not today"}, (Block("not today"),)),
    (START, special(additionalContext="it rains"), (AddContext("it rains"),)),
    (START, {"continue": False, "stopReason": "closed"}, (Block("closed"),)),
    (STOP, {"decision": "block", "reason": "run the tests"}, (Continue("run the tests"),)),
    (STOP, {"continue": False, "decision": "block", "reason": "run the tests"}, ()),
    (END, {"continue": False}, ()),
    (INTERRUPT, {"continue": False}, ()),
]


@pytest.mark.parametrize(("event", "said", "answers"), GOOD)
def test_what_a_command_may_say(event, said, answers):
    """Both forms are read, at the events where they mean something."""
    assert answers == read_answer(event, 0, json.dumps(said), "ignored")


@pytest.mark.parametrize("event", MOMENTS)
@pytest.mark.parametrize("output", ["", " \n", "\t"])
def test_silence_is_consent(event, output):
    """Exit 0 without a word lets everything go on."""
    assert read_answer(event, 0, output, "some log line") == ()


BAD: list[tuple[str, str]] = [
    *((PRE, text) for text in ("no", "[]", '"block"', "null", "1", "{", "{}{}", '{"a"', "\x00", "\ufffd", "NaN")),
    (PRE, "[" * 100_000),
    (PRE, '{"hookSpecificOutput":' * 100_000),
    (PRE, json.dumps({"decison": "block", "reason": "misspelt"})),
    (PRE, json.dumps(special(permisionDecision="deny"))),
    (PRE, json.dumps({"decision": "block"})),
    (PRE, json.dumps({"decision": "block", "reason": " "})),
    (PRE, json.dumps({"decision": "approve"})),
    (PRE, json.dumps(special(permissionDecision="allow"))),
    (PRE, json.dumps(special(permissionDecision="ask"))),
    (PRE, json.dumps(special(permissionDecision="deny"))),
    (PRE, json.dumps(special(hookEventName="PostToolUse"))),
    (POST, json.dumps(special(permissionDecision="deny", permissionDecisionReason="late"))),
    (POST, json.dumps(special(updatedInput={}))),
    (STOP, json.dumps(special(additionalContext="to whom"))),
    (END, json.dumps({"decision": "block", "reason": "too late"})),
    (INTERRUPT, json.dumps({"decision": "block", "reason": "no"})),
]
WRONG: dict[str, list[Any]] = {
    "continue": ["no", 0, None],
    "stopReason": [1, []],
    "suppressOutput": ["yes", None],
    "systemMessage": [1, {}, ["a"]],
    "decision": [True, "BLOCK", {}],
    "reason": [5, {}],
    "hookSpecificOutput": ["x", [], 1],
}
WRONG_INSIDE: dict[str, list[Any]] = {
    "hookEventName": [1, []],
    "permissionDecision": [True, "DENY", 1],
    "permissionDecisionReason": [1, {}],
    "updatedInput": ["x", [], 1],
    "additionalContext": [1, ["a"]],
}
BAD += [(PRE, json.dumps({key: value})) for key, values in WRONG.items() for value in values]
BAD += [(PRE, json.dumps(special(**{key: value}))) for key, values in WRONG_INSIDE.items() for value in values]


@pytest.mark.parametrize(("event", "output"), BAD, ids=lambda value: value[:60])
def test_what_a_command_may_not_say(event, output):
    """Anything else is a failed hook with an error of bounded length, never an answer."""
    with pytest.raises(HookBroken) as raised:
        read_answer(event, 0, output, "")
    assert len(str(raised.value)) < 1000


@given(st.binary(max_size=60), st.sampled_from(list(MOMENTS)))
def test_bytes_of_any_kind_are_an_answer_or_a_failure(data, event):
    """Whatever comes out of a command, nothing but a failed hook is raised."""
    with contextlib.suppress(HookBroken):
        read_answer(event, 0, data.decode("utf-8", "replace"), "")


CODES: list[tuple[str, int | None, str, Any]] = [
    (PRE, 2, " forbidden \n", (Block("forbidden"),)),
    (POST, 2, "look again", (Block("look again"),)),
    (START, 2, "closed", (Block("closed"),)),
    (STOP, 2, "run the tests", (Continue("run the tests"),)),
    (PRE, 2, " \n", "exit code 2 without a reason on standard error"),
    (END, 2, "no", "there is nothing to block at TurnEnd"),
    (INTERRUPT, 2, "no", "there is nothing to block at Interrupt"),
    (PRE, 1, "", "exit code 1"),
    (PRE, 127, "sh: nope: not found\n", "exit code 127: sh: nope: not found"),
    (STOP, 255, "x" * 9_999, "exit code 255: " + "x" * 500),
    (PRE, None, "", "exit code None"),
]


@pytest.mark.parametrize(("event", "code", "errors", "expected"), CODES)
def test_exit_codes(event, code, errors, expected):
    """2 refuses with the words on standard error; any other but 0 is a failed hook, whatever was written."""
    if isinstance(expected, str):
        with pytest.raises(HookBroken) as raised:
            read_answer(event, code, "", errors)
        assert str(raised.value) == expected
    else:
        assert expected == read_answer(event, code, '{"decision": "approve"}', errors)


MATCHES: list[tuple[str | None, str, bool]] = [
    (None, "shell", True),
    ("", "shell", True),
    ("*", "shell", True),
    ("Bash", "shell", True),
    ("shell", "shell", True),
    ("Bash|Edit", "edit_file", True),
    ("Write", "write_file", True),
    ("apply_patch", "edit_file", True),
    ("Agent", "spawn_agent", True),
    ("Bash", "shell_output", False),
    ("Ba", "shell", False),
    ("^Ba", "shell", True),
    ("mcp__.*", "mcp__files__read", True),
    ("mcp__.*", "update_plan", False),
    ("Edit.*", "write_file", False),
]


@pytest.mark.parametrize(("matcher", "tool", "expected"), MATCHES)
def test_matchers(matcher, tool, expected):
    """Names are exact and know the aliases of our tools; anything else is a regular expression."""
    assert expected == matches(matcher, tool)


TURN = HookTurn("s", "/root/a", 3, folder="/work", model="m", plan_mode=True)
ABOUT = {
    "session_id": "s",
    "turn_id": "3",
    "agent_path": "/root/a",
    "agent_id": "s",
    "transcript_path": None,
    "cwd": "/work",
    "model": "m",
    "permission_mode": "plan",
}
CALL = ToolCall("s", "/root/a", 3, "c1", "shell", {"command": "ls"}, during=TURN)
NAMED = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "c1"}
ENDED = TurnEnded(3, "aborted", "interrupted", last_message="half", steps=2)
ASKED: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    (PRE, (CALL,), NAMED),
    (POST, (CALL, ToolResult("completed", "completed", "out")), {**NAMED, "tool_response": "out"}),
    (START, (HookTurn("s", "/root/a", 3, folder="/work", model="m", plan_mode=True, messages=(Message("i", "hi"),)),),
     {"start": "user", "prompt": "hi"}),
    (END, (TURN, ENDED), {"reason": "aborted", "cause": "interrupted", "error": None, "steps": 2,
                          "last_assistant_message": "half"}),
    (INTERRUPT, (TURN, "budget"), {"cause": "budget"}),
    (STOP, (TURN, "done"), {"stop_hook_active": False, "last_assistant_message": "done"}),
]  # fmt: skip


@pytest.mark.parametrize(("event", "args", "own"), ASKED)
def test_what_a_command_is_asked(event, args, own):
    """Every event tells whose turn it is, and what belongs to it."""
    asked = getattr(asks, MOMENTS[event])(*args)
    assert {**ABOUT, "hook_event_name": event, **own} == json.loads(asks.written(asked))


def test_a_root_session_is_no_subagent():
    """`agent_id` is there for subagents alone."""
    assert "agent_id" not in asks.about_turn(HookTurn("s", "/root", 1), PRE)


@pytest.mark.parametrize(
    ("arguments", "told"), [("", {}), (None, {}), ("{broken", "{broken"), ("\ud800", "\ud800"), ([1], [1])]
)
def test_odd_arguments_can_be_told(arguments, told):
    """None are an empty object, what is no JSON its text, and text that UTF-8 cannot carry is escaped."""
    call = ToolCall("s", "/root", 1, "c", "echo", arguments, during=TURN)
    assert told == json.loads(asks.written(asks.before_tool(call)))["tool_input"]

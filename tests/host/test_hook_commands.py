"""Commands as hooks, in a whole runtime: real processes that answer, refuse, hang, flood, and leave others behind."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from callboard.actors import (
    Call,
    Event,
    HookFailed,
    HookWarned,
    NoteAdded,
    Reply,
    ToolReturned,
    TurnEnded,
    tool,
)
from callboard.actors.testing import ScriptedModel
from callboard.runtime import open_runtime
from callboard.runtime.config import config_of

from .commanded import alive, gone, mark
from .hosted import SLACK_S, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the tests look into /proc")

Use = Callable[[Any, Any], Awaitable[Any]]


@tool
async def echo(text: str) -> str:
    """Says it back."""
    return f"<{text}>"


def played(tmp_path: Path, hooks: dict[str, Any], use: Use | None = None, **settings: Any) -> list[Event]:
    """A session with one call of echo, under these hooks: its log; `use` drives it otherwise."""
    model = ScriptedModel([Reply("", [Call("echo", {"text": "hi"})]), Reply("done")])

    async def main() -> list[Event]:
        config = config_of({"hooks": hooks, **settings})
        async with open_runtime(config, model=model, tools=[echo], folder=tmp_path) as rt:
            session = await rt.create()
            if use is None:
                await session.run("go")
            else:
                await use(rt, session)
            events: list[Event] = []
            async for item in session.events():
                events.append(item.event)  # type: ignore[union-attr]
                if isinstance(events[-1], TurnEnded):
                    return events
            raise AssertionError("no end")

    return asyncio.run(main())


def of(events: list[Event], kind: type) -> list[Any]:
    """Those of one kind."""
    return [event for event in events if type(event) is kind]


def said(**fields: Any) -> str:
    """A command that answers in the newer form."""
    return f"cat >/dev/null; echo '{json.dumps({'hookSpecificOutput': fields})}'"


def pre(command: str, **settings: Any) -> dict[str, Any]:
    """One hook before tools."""
    return {"gate": {"event": "PreToolUse", "command": command, **settings}}


def failure_of(events: list[Event]) -> str:
    """What broke, once."""
    (failed,) = of(events, HookFailed)
    return str(failed.error)


def result_of(events: list[Event]) -> ToolReturned:
    """The result of the one call."""
    (returned,) = of(events, ToolReturned)
    assert isinstance(returned, ToolReturned)
    return returned


def test_a_command_is_asked_in_the_folder_with_the_call_on_its_input(tmp_path, monkeypatch):
    """It gets JSON, the session's folder, and of the environment what the list allows."""
    monkeypatch.setenv("SERVICE_API_KEY", "secret")
    events = played(tmp_path, pre("cat > asked; env > given; pwd > where"))
    asked = json.loads((tmp_path / "asked").read_text())
    assert (asked["hook_event_name"], asked["agent_path"], asked["cwd"]) == ("PreToolUse", "/root", str(tmp_path))
    assert (asked["tool_name"], asked["tool_input"], asked["tool_use_id"]) == ("echo", {"text": "hi"}, "t1s1c1")
    assert (tmp_path / "where").read_text() == f"{tmp_path}\n"
    assert "secret" not in (tmp_path / "given").read_text()
    assert (result_of(events).text, of(events, HookFailed)) == ("<hi>", [])


def test_a_command_rewrites_warns_and_adds(tmp_path):
    """What it answers reaches the handler, the readers and the model."""
    answer = {
        "systemMessage": "careful",
        "hookSpecificOutput": {
            "permissionDecision": "allow",
            "updatedInput": {"text": "bye"},
            "additionalContext": "it was rewritten",
        },
    }
    events = played(tmp_path, pre(f"cat >/dev/null; echo '{json.dumps(answer)}'"))
    assert result_of(events).text == "<bye>"
    assert of(events, HookWarned) == [HookWarned("gate", "careful")]
    assert of(events, NoteAdded) == [NoteAdded("it was rewritten", "developer", "hook")]


BLOCKS = [
    "echo 'not on Sundays' >&2; exit 2",
    said(permissionDecision="deny", permissionDecisionReason="not on Sundays"),
]


@pytest.mark.parametrize("command", [*BLOCKS, """echo '{"decision": "block", "reason": "not on Sundays"}'"""])
def test_a_command_refuses_a_call(tmp_path, command):
    """By its exit code, or by either form of answer."""
    returned = result_of(played(tmp_path, pre(command)))
    text = "Tool call blocked by PreToolUse hook: not on Sundays. Tool: echo"
    assert (returned.receipt, returned.text) == ("rejected", text)


def test_a_matcher_spares_other_tools_the_command(tmp_path):
    """A tool that is not meant is not asked about, and counts as no run."""
    texts: list[str] = []

    async def use(rt: Any, session: Any) -> None:
        await session.run("go")
        texts.append(rt.metrics_text())

    events = played(tmp_path, pre("exit 2", matcher="Bash|Edit"), use)
    assert (result_of(events).receipt, of(events, HookFailed)) == ("completed", [])
    runs = [line for line in texts[0].splitlines() if line.startswith("callboard_hook_runs_total{")]
    assert {"0.0"} == {line.rpartition(" ")[2] for line in runs}


BROKEN = [
    ("exit 3", "exit code 3"),
    ("echo oh no >&2; exit 3", "exit code 3: oh no"),
    ("exit 2", "exit code 2 without a reason on standard error"),
    ("nosuchcommand", "exit code 127: "),
    ("kill -9 $$", "Exit code: 137 (killed by SIGKILL)"),
    ("kill -9 $PPID; sleep 10", "the command's keeper ended before the command did"),
    ("echo yes", "its output is no answer: JSON is malformed"),
    ("head -c 5000 /dev/urandom", "its output is no answer: "),
    ("head -c 10000000 /dev/zero", "it wrote more than 1,048,576 characters"),
    ("head -c 10000000 /dev/zero >&2", "it wrote more than 1,048,576 characters"),
    ("yes", "it wrote more than 1,048,576 characters"),
    ("sleep 1000", "took over 0.5 s"),
    ("trap '' TERM; while :; do sleep 1000; done", "took over 0.5 s"),
    ("exec >&- 2>&-; sleep 1000", "took over 0.5 s"),
]


@pytest.mark.parametrize("on_failure", ["open", "block"])
@pytest.mark.parametrize(("command", "failure"), BROKEN)
def test_a_broken_command_fails_open_or_closed(tmp_path, command, failure, on_failure):
    """Within its time and its size, as configured, with an event that says what broke."""
    timeout_s = 0.5 if failure.startswith("took") else 10
    begun_s = time.monotonic()
    events = played(tmp_path, pre(command, on_failure=on_failure, timeout_s=timeout_s))
    assert time.monotonic() - begun_s < 5
    assert failure_of(events).startswith(failure)
    assert result_of(events).receipt == ("completed" if on_failure == "open" else "rejected")


def test_a_command_that_reads_nothing_of_a_large_input_is_no_failure(tmp_path):
    """It may answer without having read what it was asked, however much that is."""
    config = pre("exec <&-; echo '{}'")
    model_says = {"text": "x" * 3_000_000}
    events = played_with(tmp_path, config, model_says)
    assert (result_of(events).receipt, of(events, HookFailed)) == ("completed", [])


def test_a_command_reads_all_of_a_large_input(tmp_path):
    """Megabytes arrive whole, and the end of the input is seen."""
    events = played_with(tmp_path, pre("wc -c > size"), {"text": "x" * 3_000_000})
    assert int((tmp_path / "size").read_text()) > 3_000_000
    assert of(events, HookFailed) == []


def played_with(tmp_path: Path, hooks: dict[str, Any], arguments: dict[str, Any]) -> list[Event]:
    """A turn with one call of these arguments."""
    model = ScriptedModel([Reply("", [Call("echo", arguments)]), Reply("done")])

    async def main() -> list[Event]:
        async with open_runtime(config_of({"hooks": hooks}), model=model, tools=[echo], folder=tmp_path) as rt:
            session = await rt.create()
            await session.run("go")
            events: list[Event] = []
            async for item in session.events():
                events.append(item.event)  # type: ignore[union-attr]
                if isinstance(events[-1], TurnEnded):
                    break
            return events

    return asyncio.run(main())


def test_what_a_command_leaves_behind_is_ended_with_it(tmp_path):
    """A grandchild that holds the output open and ignores TERM delays nothing and does not stay."""
    seconds = mark()
    left = f"setsid sh -c 'trap \"\" TERM; sleep {seconds}; sleep {seconds}' & (sleep {seconds} &) ; echo '{{}}'"
    begun_s = time.monotonic()
    events = played(tmp_path, pre(left))
    assert time.monotonic() - begun_s < 5
    assert (of(events, HookFailed), alive(seconds)) == ([], [])


def test_a_command_that_runs_out_of_time_is_gone_with_its_tree(tmp_path):
    """Deaf to TERM, detached, orphaned: nothing of it outlives the failed hook."""
    seconds = mark()
    command = f"trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep {seconds}' & (sleep {seconds} &) ; sleep {seconds}"
    assert failure_of(played(tmp_path, pre(command, timeout_s=0.5))) == "took over 0.5 s"
    assert gone(seconds)


def test_commands_of_one_event_run_side_by_side(tmp_path):
    """Each waits for the other to have begun, which only works at the same time."""
    wait = "touch {own}; until [ -e {other} ]; do sleep 0.01; done"
    hooks = {
        "a": {"event": "PreToolUse", "command": wait.format(own="a", other="b"), "timeout_s": 5},
        "b": {"event": "PreToolUse", "command": wait.format(own="b", other="a"), "timeout_s": 5},
    }
    assert of(played(tmp_path, hooks), HookFailed) == []


@pytest.mark.parametrize("event", ["TurnStart", "PreToolUse", "PostToolUse", "Stop"])
def test_interrupt_while_a_command_is_asked_ends_in_the_window(tmp_path, event):
    """Its whole tree is gone, and the turn has ended in time."""
    seconds = mark()
    command = f"trap '' TERM; touch began; setsid sleep {seconds} & sleep {seconds}; sleep {seconds}"
    times: list[float] = []

    async def use(rt: Any, session: Any) -> None:
        accepted = await session.submit("go")
        await until((tmp_path / "began").exists)
        await session.interrupt()
        ended = await session.wait(accepted.turn)
        times.append(ended.abort_s)

    events = played(tmp_path, {"slow": {"event": event, "command": command}}, use)
    assert (of(events, HookFailed), of(events, TurnEnded)[0].reason) == ([], "aborted")
    assert times[0] < 0.1 + SLACK_S
    assert gone(seconds)


def test_commands_hear_of_starts_stops_and_ends(tmp_path):
    """TurnStart adds, Stop reopens once, TurnEnd hears the outcome although the runtime closes at once."""
    hooks = {
        "start": {"event": "TurnStart", "command": said(additionalContext="it rains")},
        "stop": {"event": "Stop", "command": "grep -q 'active\": true' || { echo 'more, please' >&2; exit 2; }"},
        "end": {"event": "TurnEnd", "command": "sleep 0.2; cat > ended"},
    }
    events = played(tmp_path, hooks)
    assert [note.text for note in of(events, NoteAdded)] == ["it rains", "more, please"]
    ended = json.loads((tmp_path / "ended").read_text())
    assert (ended["hook_event_name"], ended["reason"], ended["steps"]) == ("TurnEnd", "completed", 3)


def test_commands_hear_of_an_interrupt(tmp_path):
    """Told at once and beside, with what a window has of time."""
    heard = tmp_path / "heard"

    async def use(rt: Any, session: Any) -> None:
        accepted = await session.submit("go")
        await until((tmp_path / "began").exists)
        await session.interrupt()
        await session.wait(accepted.turn)
        await until(heard.exists)

    hooks = {
        "slow": {"event": "PreToolUse", "command": "touch began; sleep 1000"},
        "heard": {"event": "Interrupt", "command": "cat > tmp; mv tmp heard"},
    }
    played(tmp_path, hooks, use, runtime={"abort_window_s": 5.0})
    asked = json.loads(heard.read_text())
    assert (asked["hook_event_name"], asked["cause"]) == ("Interrupt", "interrupted")


def test_runs_are_counted_by_their_status(tmp_path):
    """Every run counts once, under the name the configuration gives."""
    texts: list[str] = []

    async def use(rt: Any, session: Any) -> None:
        await session.run("go")
        texts.append(rt.metrics_text())

    hooks = {
        "fine": {"event": "PreToolUse", "command": "exit 0"},
        "odd": {"event": "PostToolUse", "command": "exit 7"},
        "shut": {"event": "TurnStart", "command": said(additionalContext="x")},
    }
    played(tmp_path, hooks, use)
    for name, status in (("fine", "ok"), ("odd", "failed"), ("shut", "context")):
        assert f'callboard_hook_runs_total{{hook="{name}",status="{status}"}} 1.0' in texts[0]


def test_a_hook_sees_the_calls_of_subagents(tmp_path):
    """One gate stands before the whole tree, and is told whose call it is."""

    def play(prompt: Any) -> Reply:
        if prompt.step > 1:
            return Reply("done")
        if any("below" in getattr(message, "text", "") for message in prompt.messages):
            return Reply("", [Call("echo", {"text": "hi"})])
        return Reply("", [Call("spawn_agent", {"task_name": "below", "message": "below"})])

    async def main() -> None:
        config = config_of({"hooks": pre("cat >> asked; echo >> asked")})
        async with open_runtime(config, model=ScriptedModel(play), tools=[echo], folder=tmp_path) as rt:
            session = await rt.create()
            await session.run("go")
            await until(lambda: "echo" in (tmp_path / "asked").read_text())

    asyncio.run(main())
    asked = [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]
    told = {(one["agent_path"], one["tool_name"]) for one in asked}
    assert {("/root", "spawn_agent"), ("/root/below", "echo")} <= told

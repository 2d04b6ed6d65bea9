"""What a command is asked: one JSON object on its standard input."""

import json
from typing import Any

from callboard.actors.events import Cause, TurnEnded
from callboard.actors.hook import HookTurn, ToolCall, ToolResult
from callboard.runtime.hooks.events import names_of


def about_turn(turn: HookTurn, event: str) -> dict[str, Any]:
    """What every command is told; `agent_id` only when a subagent's turn it is."""
    asked: dict[str, Any] = {
        "session_id": turn.session,
        "turn_id": str(turn.turn),
        "agent_path": turn.path,
        "transcript_path": None,
        "cwd": turn.folder,
        "hook_event_name": event,
        "model": turn.model,
        "permission_mode": "plan" if turn.plan_mode else "default",
    }
    if turn.path != "/root":
        asked["agent_id"] = turn.session
    return asked


def about_call(call: ToolCall) -> dict[str, Any]:
    """What a tool's commands are told besides; no arguments are an empty object, unreadable ones their text."""
    arguments = {} if call.arguments in ("", None) else call.arguments
    return {"tool_name": names_of(call.name)[0], "tool_input": arguments, "tool_use_id": call.call}


def before_tool(call: ToolCall) -> dict[str, Any]:
    """PreToolUse."""
    assert call.during is not None
    return about_turn(call.during, "PreToolUse") | about_call(call)


def after_tool(call: ToolCall, result: ToolResult) -> dict[str, Any]:
    """PostToolUse."""
    assert call.during is not None
    return about_turn(call.during, "PostToolUse") | about_call(call) | {"tool_response": result.text}


def on_turn_start(turn: HookTurn) -> dict[str, Any]:
    """TurnStart."""
    prompt = "\n\n".join(message.text for message in turn.messages)
    return about_turn(turn, "TurnStart") | {"start": turn.start, "prompt": prompt}


def on_turn_end(turn: HookTurn, ended: TurnEnded) -> dict[str, Any]:
    """TurnEnd."""
    told = {"reason": ended.reason, "cause": ended.cause, "error": ended.error, "steps": ended.steps}
    return about_turn(turn, "TurnEnd") | told | {"last_assistant_message": ended.last_message}


def on_interrupt(turn: HookTurn, cause: Cause) -> dict[str, Any]:
    """Interrupt."""
    return about_turn(turn, "Interrupt") | {"cause": cause}


def on_stop(turn: HookTurn, last_message: str | None) -> dict[str, Any]:
    """Stop."""
    told = {"stop_hook_active": turn.continued > 0, "last_assistant_message": last_message}
    return about_turn(turn, "Stop") | told


def written(asked: dict[str, Any]) -> bytes:
    """The object as bytes; in ASCII, because a text of the model's may hold what UTF-8 cannot."""
    return json.dumps(asked, default=str).encode()

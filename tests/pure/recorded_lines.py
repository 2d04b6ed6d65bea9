"""Lines as the recorded agents write them, for the tests of their parsers."""

import json

from callboard.runtime.recordings import read_recording


def write(path, *lines):
    """A recording of these lines; a dict is written as JSON, bytes as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(raw(line) + b"\n" for line in lines))
    return path


def raw(line):
    return line if isinstance(line, bytes) else json.dumps(line).encode()


def read(folder, *lines):
    """Write these lines and read them."""
    return read_recording(write(folder / "rec.jsonl", *lines))


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


# pi


def pi(message, **more):
    return {"type": "message", "timestamp": "t", "message": message, **more}


PI_HEADER = {"type": "session", "version": 3, "id": "p", "timestamp": "t", "cwd": "/w"}
PI_CALL = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a"}}


def pi_says(*blocks, stop="stop", **more):
    return pi({"role": "assistant", "model": "m-2", "content": list(blocks), "stopReason": stop, "usage": {}}, **more)


PI_TREE = (
    pi({"role": "user", "content": "go"}, id="1", parentId=None),
    pi_says(text("No."), id="2", parentId="1"),
    pi({"role": "user", "content": "wrong way"}, id="3", parentId="2"),
    pi_says(text("Yes."), id="4", parentId="1"),
    pi({"role": "user", "content": "on"}, id="5", parentId="4"),
)


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

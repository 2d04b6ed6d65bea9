"""Codex rollout files: `{timestamp, type, payload}` lines, or in the oldest files bare items after a header."""

import re
from typing import Any, Final

import attrs
import msgspec

from callboard.runtime.recordings.draft import Draft, DraftReply, UniqueIds
from callboard.runtime.recordings.lines import (
    Tally,
    arguments_of,
    compact,
    content_text,
    dict_of,
    has_content,
    list_of,
    load,
    read_lines,
    text_of,
)
from callboard.runtime.recordings.recording import Recording

FORMAT: Final = "codex"
_INJECTED: Final = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<INSTRUCTIONS>",
    "<permissions instructions>",
    "<collaboration_mode>",
    "<model_switch>",
    "<personality_spec>",
    "<skill>",
    "<skills_instructions>",
    "<plugins_instructions>",
    "<apps_instructions>",
    "<subagent_notification>",
    "<user_shell_command>",
    "<user_action>",
    "<goal_context>",
    "<recommended_plugins>",
    "Another language model started to solve this problem",
    "Warning: apply_patch was requested via",
    "Warning: The maximum number of unified exec",
)
"""How user messages open that Codex wrote itself."""
_ABORT_MARKER: Final = "<turn_aborted>"
_IMAGE_TAG: Final = re.compile(r"</?image\b[^>]*>")
_EXIT_CODE: Final = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d+)$", re.MULTILINE)
_ABORTED: Final = re.compile(r"aborted(?: by user.*)?|Wall time: \S+ seconds\naborted by user")
_HEAD_CHARS: Final = 400
"""How far into an output its exit code is looked for."""
_CALLS: Final = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call", "mcp_tool_call")
_OUTPUTS: Final = (
    "function_call_output",
    "custom_tool_call_output",
    "local_shell_call_output",
    "tool_search_output",
    "mcp_tool_call_output",
)
_BARE_ITEMS: Final = ("message", "reasoning", *_CALLS, *_OUTPUTS)


class _Line(msgspec.Struct):
    type: object = None
    timestamp: object = None
    record_type: object = None
    id: object = None
    payload: msgspec.Raw = msgspec.Raw()


_DECODER: Final = msgspec.json.Decoder(_Line)


def parse(data: bytes, name: str) -> Recording:
    """The recording in these bytes; `name` stands in when the header has no id."""
    tally = Tally()
    reader = _Reader(tally, Draft(tally, UniqueIds()))
    lines = _lines(data, tally)
    reader.said = _said(lines)
    for raw, line in lines:
        reader.line(raw, line)
    turns = reader.draft.finish()
    session = text_of(reader.session, name)
    return Recording(FORMAT, session, reader.cwd, reader.model, turns, skipped=tally.counts)


def _lines(data: bytes, tally: Tally) -> list[tuple[bytes, _Line]]:
    """The lines without repeats: the same bytes, where a time stamp makes them telling."""
    kept: list[tuple[bytes, _Line]] = []
    seen: set[bytes] = set()
    for raw, line in read_lines(data, _DECODER, tally):
        if line.timestamp is not None and raw in seen:
            tally.note("repeated line")
        else:
            seen.add(raw)
            kept.append((raw, line))
    return kept


def _said(lines: list[tuple[bytes, _Line]]) -> dict[str, set[str]]:
    """The texts of the message items, by role, without their images, which an event does not tell."""
    said: dict[str, set[str]] = {"user": set(), "assistant": set()}
    for raw, line in lines:
        bare = line.type == "message" and not line.payload
        if (bare or line.type == "response_item") and (b'"user"' in raw or b'"assistant"' in raw):
            item = dict_of(load(raw if bare else line.payload))
            if item.get("type") == "message" and (role := text_of(item.get("role"))) in said:
                said[role].add(_message_text(item.get("content")).replace("[image]", "").strip())
    return said


@attrs.define
class _Reader:
    tally: Tally
    draft: Draft
    session: str | None = None
    cwd: str | None = None
    model: str | None = None
    said: dict[str, set[str]] = attrs.field(factory=dict)
    """What the message items of the whole file say, by role; an event that repeats them adds nothing."""
    open: DraftReply | None = None
    """The reply that further items of the same model response go to."""
    last: DraftReply | None = None
    injected: str = ""
    """The last user text taken for Codex's own; an event may prove it real."""

    def line(self, raw: bytes, line: _Line) -> None:
        """One line, by its type."""
        if line.type == "response_item":
            self.item(dict_of(load(line.payload)))
        elif line.type == "event_msg":
            self.event(dict_of(load(line.payload)))
        elif line.type == "session_meta":
            self.meta(dict_of(load(line.payload)))
        elif line.type == "turn_context":
            self.settings(dict_of(load(line.payload)))
        elif line.type == "compacted":
            self.tally.note("compaction")
        elif line.type in _BARE_ITEMS and not line.payload:
            self.item(dict_of(load(raw)))
        elif line.type is None and line.record_type is None and isinstance(line.id, str):
            self.meta(dict_of(load(raw)))
        else:
            self.tally.kind("kind", line.type or line.record_type)

    def meta(self, meta: dict[str, Any]) -> None:
        """The header; further ones are those of the sessions this one was forked from."""
        meta = dict_of(meta.get("meta")) or meta
        if self.session is not None:
            self.tally.note("header of a parent session")
            return
        self.session = text_of(meta.get("id")) or text_of(meta.get("session_id"))
        self.cwd = text_of(meta.get("cwd")) or None

    def settings(self, settings: dict[str, Any]) -> None:
        """Model and folder of a turn; the first ones name the recording."""
        self.tally.note("turn settings")
        self.cwd = self.cwd or text_of(settings.get("cwd")) or None
        self.model = self.model or text_of(settings.get("model")) or None

    def item(self, item: dict[str, Any]) -> None:
        """One response item."""
        kind = text_of(item.get("type"))
        if kind == "message":
            self.message(item)
        elif kind in _CALLS:
            self.call(kind, item)
        elif kind in _OUTPUTS:
            self.output(item)
        elif kind == "reasoning":
            self.tally.note("thinking")
        else:
            self.tally.kind("item", kind)

    def message(self, item: dict[str, Any]) -> None:
        """A message by its role; only a user's own words open a turn."""
        role, text = item.get("role"), _message_text(item.get("content"))
        if not has_content(item):
            self.tally.note("malformed message")
        elif role == "assistant":
            self.reply().say(text)
        elif role != "user":
            self.tally.kind("message of role", role)
        elif text.lstrip().startswith(_ABORT_MARKER):
            self.tally.note("interrupt marker")
            self.draft.interrupt()
        elif text.lstrip().startswith(_INJECTED):
            self.tally.note("injected message")
            self.injected = text
            self.cwd = self.cwd or _tagged(text, "cwd")
        else:
            self.prompt(text)

    def prompt(self, text: str) -> None:
        """A user message opens a turn and ends the reply before it."""
        self.draft.prompt(text)
        self.open = self.last = None
        self.injected = ""

    def reply(self) -> DraftReply:
        """The reply that is going on; a new one after an output or a token count."""
        if self.open is None:
            self.open = self.last = self.draft.reply()
        return self.open

    def call(self, kind: str, item: dict[str, Any]) -> None:
        """A call of any kind; what has no name is called by its kind."""
        known_as = text_of(item.get("call_id")) or text_of(item.get("id"))
        arguments = next((item[key] for key in ("arguments", "input", "action") if item.get(key) is not None), None)
        name = text_of(item.get("name")) or kind.removesuffix("_call")
        if isinstance(arguments, str) and kind == "custom_tool_call":
            self.draft.call(self.reply(), known_as, name, arguments)
        else:
            self.draft.call(self.reply(), known_as, name, arguments_of(arguments))

    def output(self, item: dict[str, Any]) -> None:
        """An output finds its call and ends the model response that asked for it."""
        output = item.get("output") if "output" in item else item.get("tools")
        known_as = text_of(item.get("call_id")) or text_of(item.get("id"))
        self.draft.result(known_as, _output_text(output), failed=_failed(output))
        self.open = None

    def event(self, event: dict[str, Any]) -> None:
        """One event; where the file has items they are the conversation and events only add to them."""
        kind = text_of(event.get("type"))
        if kind == "turn_aborted":
            self.draft.interrupt()
        elif kind == "token_count":
            self.usage(dict_of(dict_of(event.get("info")).get("last_token_usage")))
        elif kind == "thread_rolled_back":
            turns = event.get("num_turns")
            self.draft.drop(turns if isinstance(turns, int) else 0)
            self.open = self.last = None
        elif kind == "user_message" and self.is_prompt(event):
            self.prompt(text_of(event.get("message")))
            return
        elif kind == "agent_message" and not self.said.get("assistant"):
            self.reply().say(text_of(event.get("message")))
            return
        self.tally.kind("event", kind)

    def is_prompt(self, event: dict[str, Any]) -> bool:
        """An event opens a turn when no item says the same, or when it proves a skipped item to be the user's."""
        text = text_of(event.get("message"))
        if event.get("kind") not in (None, "plain"):
            return False
        if self.injected and text == self.injected:
            return True
        return text.strip() not in self.said.get("user", ()) and not text.lstrip().startswith(_INJECTED)

    def usage(self, usage: dict[str, Any]) -> None:
        """A token count closes the response it counts."""
        if usage and self.last is not None and self.last.usage is None:
            self.last.usage = usage
        if usage:
            self.open = None


def _message_text(content: object) -> str:
    """The text of a message, the tags around its images taken out."""
    if not isinstance(content, list):
        return content_text(content)
    blocks = [block for block in content if not _IMAGE_TAG.fullmatch(text_of(dict_of(block).get("text")).strip())]
    return content_text(blocks)


def _output_text(output: object) -> str:
    """An output as the model saw it: text, content blocks, or an old object with `content`."""
    if isinstance(output, dict) and isinstance(output.get("content"), str):
        return str(output["content"])
    if isinstance(output, list) and any("text" in dict_of(block) or "image_url" in dict_of(block) for block in output):
        return content_text(output)
    return compact(output)


def _failed(output: object) -> bool:
    """True when an output says so: an exit code other than 0, success false, or cut off by the user."""
    if isinstance(output, dict):
        return output.get("success") is False
    text = output if isinstance(output, str) else content_text(list_of(output))
    if text.startswith("{"):
        code = dict_of(dict_of(load(text.encode(errors="replace"))).get("metadata")).get("exit_code")
        return isinstance(code, int) and code != 0
    found = _EXIT_CODE.search(text[:_HEAD_CHARS])
    return bool(found and int(found[1])) or bool(_ABORTED.fullmatch(text[:_HEAD_CHARS].strip()))


def _tagged(text: str, tag: str) -> str | None:
    found = re.search(rf"<{tag}>([^<]*)</{tag}>", text)
    return found[1].strip() or None if found else None

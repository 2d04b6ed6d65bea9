"""pi session files: a header line, then entries that form a line (version 1) or a tree by parentId (2 and 3)."""

from typing import Any, Final

import attrs
import msgspec

from callboard.runtime.recordings.draft import Draft, DraftReply, UniqueIds
from callboard.runtime.recordings.lines import (
    Tally,
    arguments_of,
    content_text,
    dict_of,
    has_content,
    load,
    read_lines,
    text_of,
)
from callboard.runtime.recordings.recording import Recording

FORMAT: Final = "pi"
_OTHER_ROLES: Final = (
    ("bashExecution", "shell command of the user"),
    ("custom", "injected message"),
    ("hookMessage", "injected message"),
    ("branchSummary", "branch summary"),
    ("compactionSummary", "compaction"),
    ("system", "system message"),
)
_OTHER_TYPES: Final = (
    ("compaction", "compaction"),
    ("branch_summary", "branch summary"),
    ("custom_message", "injected message"),
)


class _Entry(msgspec.Struct, rename="camel"):
    type: object = None
    id: object = None
    parent_id: object = None
    target_id: object = None
    timestamp: object = None
    cwd: object = None
    model_id: object = None
    message: msgspec.Raw = msgspec.Raw()


_DECODER: Final = msgspec.json.Decoder(_Entry)


def parse(data: bytes, name: str) -> Recording:
    """The recording in these bytes; `name` stands in when the header has no id."""
    tally = Tally()
    reader = _Reader(tally, Draft(tally, UniqueIds()))
    for entry in _branch(_entries(data, tally), tally):
        reader.entry(entry)
    turns = reader.draft.finish()
    session = text_of(reader.session, name)
    return Recording(FORMAT, session, reader.cwd, reader.model, turns, skipped=tally.counts)


def _entries(data: bytes, tally: Tally) -> list[_Entry]:
    """The entries without repeats: the same id, or the same bytes where a time stamp makes them telling."""
    kept: list[_Entry] = []
    seen: set[str | bytes] = set()
    for line, entry in read_lines(data, _DECODER, tally):
        key: str | bytes = text_of(entry.id) or (line if entry.timestamp is not None else b"")
        if key and key in seen:
            tally.note("repeated line")
        else:
            seen.add(key)
            kept.append(entry)
    return kept


def _branch(entries: list[_Entry], tally: Tally) -> list[_Entry]:
    """The entries on the way from the root to the last leaf, the header kept; all of them when there is no tree.

    A parent that is not in the file (a lost line) is taken to be the line before.
    """
    index = {entry.id: at for at, entry in enumerate(entries) if _in_tree(entry)}
    if not any(isinstance(entry.parent_id, str) for entry in entries if _in_tree(entry)):
        return entries
    at = max(index.values())
    if entries[at].type == "leaf":
        at = index.get(text_of(entries[at].target_id), at)
    path = set()
    while at >= 0 and at not in path:
        path.add(at)
        parent = entries[at].parent_id
        at = -1 if parent is None and _in_tree(entries[at]) else index.get(text_of(parent), at - 1)
    kept = [entry for at, entry in enumerate(entries) if at in path or entry.type == "session"]
    if len(kept) < len(entries):
        tally.note("other branch", len(entries) - len(kept))
    return kept


def _in_tree(entry: _Entry) -> bool:
    return isinstance(entry.id, str) and entry.type != "session"


@attrs.define
class _Reader:
    tally: Tally
    draft: Draft
    session: str | None = None
    cwd: str | None = None
    model: str | None = None

    def entry(self, entry: _Entry) -> None:
        """One line."""
        if entry.type == "message":
            self.message(dict_of(load(entry.message)))
        elif entry.type == "session" and self.session is None:
            self.session = text_of(entry.id)
            self.cwd = text_of(entry.cwd) or None
            self.model = text_of(entry.model_id) or None
        elif reason := dict(_OTHER_TYPES).get(text_of(entry.type)):
            self.tally.note(reason)
        else:
            self.tally.kind("kind", entry.type)

    def message(self, message: dict[str, Any]) -> None:
        """One message, by its role."""
        role = text_of(message.get("role"))
        if role in ("user", "assistant") and not has_content(message):
            self.tally.note("malformed message")
        elif role == "user":
            self.draft.prompt(content_text(message.get("content")))
        elif role == "assistant":
            self.assistant(message)
        elif role == "toolResult":
            text, failed = content_text(message.get("content")), message.get("isError") is True
            self.draft.result(text_of(message.get("toolCallId")), text, failed=failed)
        elif reason := dict(_OTHER_ROLES).get(role):
            self.tally.note(reason)
        else:
            self.tally.kind("role", role)

    def assistant(self, message: dict[str, Any]) -> None:
        """One assistant message becomes one reply."""
        self.model = self.model or text_of(message.get("model")) or None
        reply = self.draft.reply()
        reply.usage = dict_of(message.get("usage")) or None
        content = message.get("content")
        for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            self.block(reply, dict_of(block))
        if message.get("stopReason") == "aborted":
            self.draft.interrupt()
        elif message.get("stopReason") == "error":
            self.tally.note("API error")

    def block(self, reply: DraftReply, block: dict[str, Any]) -> None:
        """One content block of an assistant message."""
        kind = block.get("type")
        if kind == "text":
            reply.say(text_of(block.get("text")))
        elif kind == "toolCall":
            arguments = arguments_of(block.get("arguments"))
            self.draft.call(reply, text_of(block.get("id")), text_of(block.get("name")), arguments)
        elif kind == "thinking":
            self.tally.note("thinking")
        else:
            self.tally.kind("block", kind)

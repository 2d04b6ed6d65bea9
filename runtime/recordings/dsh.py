"""DeepSeek-harness session logs: a header line, then one event a line (`turn/start`, `user/message`, ...)."""

from typing import Any, Final

import attrs
import msgspec

from callboard.runtime.recordings.draft import CONTINUED, Draft, DraftReply, UniqueIds
from callboard.runtime.recordings.lines import (
    Tally,
    arguments_of,
    content_text,
    dict_of,
    has_content,
    list_of,
    load,
    read_lines,
    text_of,
)
from callboard.runtime.recordings.recording import Recording

FORMAT: Final = "dsh"
_STOPPED: Final = ("aborted", "interrupted")
_SILENT: Final = ("step/start", "step/end")
"""Brackets that say nothing of their own and lose nothing."""


class _Event(msgspec.Struct, rename="camel"):
    type: object = None
    seq: object = None
    id: object = None
    cwd: object = None
    surface_op: object = None
    data: msgspec.Raw = msgspec.Raw()
    header: msgspec.Raw = msgspec.Raw()


_DECODER: Final = msgspec.json.Decoder(_Event)


def parse(data: bytes, name: str) -> Recording:
    """The recording in these bytes; `name` stands in when the header has no id."""
    tally = Tally()
    reader = _Reader(tally, Draft(tally, UniqueIds()))
    seen: set[bytes] = set()
    for line, event in read_lines(data, _DECODER, tally):
        if isinstance(event.seq, int) and line in seen:
            tally.note("repeated line")
            continue
        seen.add(line)
        reader.event(event)
    turns = reader.draft.finish()
    session = text_of(reader.session, name)
    return Recording(FORMAT, session, reader.cwd, reader.model, turns, skipped=tally.counts)


@attrs.define
class _Reader:
    tally: Tally
    draft: Draft
    session: str | None = None
    cwd: str | None = None
    model: str | None = None
    fresh: bool = False
    """A turn has started and nothing has prompted it yet."""
    spare: str = ""
    """What a plugin said in a fresh turn: the prompt if nobody else speaks."""
    messages: set[str] = attrs.field(factory=set)

    def event(self, event: _Event) -> None:
        """One line, by its type."""
        kind = text_of(event.type)
        if kind == "session" or (not kind and event.header):
            self.header(event)
        elif kind == "turn/start":
            self.fresh, self.spare = True, ""
        elif kind == "turn/end":
            self.turn_end(dict_of(load(event.data)))
        elif kind == "user/message":
            self.user(dict_of(load(event.data)), event)
        elif kind == "assistant/message":
            self.assistant(dict_of(load(event.data)))
        elif kind == "tool/call":
            self.tool_call(dict_of(load(event.data)))
        elif kind == "tool/result":
            self.tool_result(dict_of(load(event.data)), event)
        elif kind not in _SILENT:
            self.tally.kind("kind", kind)

    def header(self, event: _Event) -> None:
        """The header line, flat or nested under `header`."""
        nested = dict_of(load(event.header)) if event.header else {}
        if self.session is not None:
            self.tally.note("repeated header")
            return
        self.session = text_of(nested.get("id")) or text_of(event.id)
        self.cwd = text_of(nested.get("cwd")) or text_of(event.cwd) or None

    def turn_end(self, data: dict[str, Any]) -> None:
        """The end of a turn says whether it was stopped."""
        reason = dict_of(data.get("reason")).get("kind")
        if reason in _STOPPED and not self.fresh:
            self.draft.interrupt()
        elif reason == "error":
            self.tally.note("turn ended by an error")
        self.fresh = False

    def user(self, data: dict[str, Any], event: _Event) -> None:
        """What enters a step: a prompt, unless a plugin put it there or a compaction did."""
        source = dict_of(data.get("source"))
        text = content_text(data.get("content"))
        if _replaces(event):
            self.tally.note("compaction summary")
        elif not has_content(data):
            self.tally.note("malformed message")
        elif self.repeated(data):
            self.tally.note("repeated line")
        elif source.get("kind") == "plugin":
            self.tally.note("injected message")
            self.spare = self.spare or ("" if source.get("form") == "snapshot" else text)
        elif not self.fresh and self.draft.turns and not self.draft.turn.replies:
            self.draft.turn.prompt += "\n\n" + text
        else:
            self.draft.prompt(text)
            self.fresh = False

    def assistant(self, data: dict[str, Any]) -> None:
        """One assistant message becomes one reply."""
        message = dict_of(data.get("message"))
        if not has_content(message):
            self.tally.note("malformed message")
            return
        if self.repeated(message):
            self.tally.note("repeated line")
            return
        self.opened()
        self.model = self.model or text_of(dict_of(message.get("source")).get("model")) or None
        reply = self.draft.reply()
        reply.usage = dict_of(data.get("usage")) or None
        content = message.get("content")
        for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            self.block(reply, dict_of(block))
        if data.get("interrupted") is True:
            self.draft.interrupt()

    def block(self, reply: DraftReply, block: dict[str, Any]) -> None:
        """One content block of an assistant message."""
        kind = block.get("type")
        if kind == "text":
            reply.say(text_of(block.get("text")))
        elif kind == "tool-call":
            arguments = arguments_of(block.get("arguments"))
            self.draft.call(reply, text_of(block.get("id")), text_of(block.get("name")), arguments)
        elif kind == "reasoning":
            self.tally.note("thinking")
        else:
            self.tally.kind("block", kind)

    def tool_call(self, data: dict[str, Any]) -> None:
        """A call is known from its message; only one whose message was lost is added here."""
        known_as = text_of(data.get("callId"))
        if self.draft.find(known_as) is None:
            self.opened()
            turn = self.draft.turn
            reply = turn.replies[-1] if turn.replies else self.draft.reply()
            self.draft.call(reply, known_as, text_of(data.get("name")), arguments_of(data.get("arguments")))

    def tool_result(self, data: dict[str, Any], event: _Event) -> None:
        """The results in one message; a later rewrite of a result (pruning) is counted, the first one stays."""
        if _replaces(event):
            self.tally.note("rewritten result")
            return
        message = dict_of(data.get("message"))
        call = dict_of(message.get("source")).get("callId")
        blocks = [dict_of(block) for block in list_of(message.get("content"))]
        found = [block for block in blocks if block.get("type") == "tool-result"]
        for block in found or [{"content": message.get("content")}]:
            failed = block.get("isError") is True or isinstance(data.get("error"), dict)
            known_as = text_of(block.get("toolCallId")) or text_of(call)
            self.draft.result(known_as, content_text(block.get("content")), failed=failed)

    def opened(self) -> None:
        """A reply needs a prompt of its own turn: what a plugin said, if nobody else spoke."""
        if self.fresh:
            self.draft.prompt(self.spare or CONTINUED)
            self.fresh = False

    def repeated(self, message: dict[str, Any]) -> bool:
        """True when a message with this id has been read before."""
        known = text_of(message.get("id"))
        if known in self.messages:
            return True
        if known:
            self.messages.add(known)
        return False


def _replaces(event: _Event) -> bool:
    return dict_of(event.surface_op).get("op") == "replace"

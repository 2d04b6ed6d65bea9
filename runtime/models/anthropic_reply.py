"""From the events of a Messages stream to a reply."""

from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec

from callboard.actors.errors import ModelError
from callboard.actors.events import Call, Thought, Usage
from callboard.actors.model import STREAM_CLOSED, Reply, Say
from callboard.runtime.models.anthropic_input import PROVIDER
from callboard.runtime.models.fields import count_of, field, is_whole, text_of
from callboard.runtime.models.refusals import Asked, Refusal, judged, refusal_of
from callboard.runtime.models.wire import CUT_ARGUMENTS, PARTS_GAP

CUT: Final = ("max_tokens", "model_context_window_exceeded")
MORE: Final = ("pause_turn",)
THOUGHTS: Final = ("thinking", "redacted_thinking")
COUNTS: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


@attrs.define
class Block:
    """One part of the answer as it comes in."""

    kind: str
    start: Mapping[str, Any]
    pieces: list[str] = attrs.field(factory=list)
    signature: list[str] = attrs.field(factory=list)

    def text(self) -> str:
        """What has come in."""
        return "".join(self.pieces)


class MessagesReply:
    """Takes events one by one; `done` after the last one that counts."""

    def __init__(self, model: str, names: Mapping[str, str], asked: Asked, say: Say) -> None:
        self._model, self._names, self._asked, self._say = model, names, asked, say
        self._blocks: dict[int, Block] = {}  # in the order in which they began
        self._said_in: int | None = None  # the block that was said last
        self._usage: dict[str, int] = {}
        self._reasoning = 0
        self._reason = ""
        self._details: Any = None
        self.done = False

    def feed(self, event: Any) -> None:
        """One event; kinds that are not known are nothing. `ModelError` for one that says it failed."""
        kind = text_of(event, "type")
        if kind == "content_block_delta":
            self._delta(place_of(event), field(event, "delta"))
        elif kind == "content_block_start":
            self._begin(place_of(event), field(event, "content_block"))
        elif kind == "message_start":
            self._count(field(event, "message", "usage"))
        elif kind == "message_delta":
            self._reason = text_of(event, "delta", "stop_reason") or self._reason
            self._details = field(event, "delta", "stop_details") or self._details
            self._count(field(event, "usage"))
        elif kind == "message_stop":
            self.done = True
        elif kind == "error" or (not kind and field(event, "error") is not None):
            raise judged(refusal_of(event), self._asked)

    def feed_whole(self, answer: Any) -> None:
        """An answer that was not streamed."""
        if text_of(answer, "type") == "error" or field(answer, "error") is not None:
            raise judged(refusal_of(answer), self._asked)
        content = field(answer, "content")
        for index, block in enumerate(content if isinstance(content, list) else ()):
            self._begin(index, block)
        self._count(field(answer, "usage"))
        self._reason, self._details = text_of(answer, "stop_reason"), field(answer, "stop_details")
        self.done = bool(self._reason)

    def _begin(self, index: int, start: Any) -> None:
        kind = text_of(start, "type")
        if not kind or index in self._blocks:
            return
        block = self._blocks[index] = Block(kind, start)
        if signature := text_of(start, "signature"):
            block.signature.append(signature)
        if kind == "text":
            self._text(index, block, text_of(start, "text"))
        elif kind == "thinking":
            self._thought(block, text_of(start, "thinking"))

    def _delta(self, index: int, delta: Any) -> None:
        block = self._blocks.get(index)
        if block is None:
            return
        kind = text_of(delta, "type")
        if kind == "text_delta" and block.kind == "text":
            self._text(index, block, text_of(delta, "text"))
        elif kind == "thinking_delta" and block.kind == "thinking":
            self._thought(block, text_of(delta, "thinking"))
        elif kind == "signature_delta":
            block.signature.append(text_of(delta, "signature"))
        elif kind == "input_json_delta":
            block.pieces.append(text_of(delta, "partial_json"))

    def _text(self, index: int, block: Block, piece: str) -> None:
        """A piece of a text; another text behind something else is a paragraph of its own."""
        if not piece:
            return
        if self._said_in is not None and index != self._said_in and self._stands_apart(index):
            piece = PARTS_GAP + piece
        self._said_in = index
        block.pieces.append(piece)
        self._say(piece)

    def _stands_apart(self, index: int) -> bool:
        order = list(self._blocks)
        between = order[order.index(self._said_in or 0) + 1 : order.index(index)]
        return any(self._blocks[one].kind != "text" for one in between)

    def _thought(self, block: Block, piece: str) -> None:
        if piece:
            if not block.pieces and any(one.pieces for one in self._blocks.values() if one.kind == "thinking"):
                self._say(PARTS_GAP, "reasoning")
            block.pieces.append(piece)
            self._say(piece, "reasoning")

    def _count(self, usage: Any) -> None:
        """What it cost so far: later counts hold the earlier ones."""
        for name in COUNTS:
            if type(field(usage, name)) is int:
                self._usage[name] = max(count_of(usage, name), self._usage.get(name, 0))
        self._reasoning = count_of(usage, "output_tokens_details", "thinking_tokens") or self._reasoning

    def reply(self) -> Reply:
        """The whole answer; `ModelError` where it never ended, or was refused."""
        if not self.done and not self._reason:
            raise ModelError(STREAM_CLOSED, retryable=True)
        if self._reason == "refusal":
            why = text_of(self._details, "explanation") or text_of(self._details, "category")
            raise judged(Refusal(code="content_policy_violation", message=why), self._asked)
        cut = self._reason in CUT
        blocks = list(self._blocks.values())
        text = "".join(block.text() for block in blocks if block.kind == "text")
        calls, thoughts, said = list[Call](), list[Thought](), 0
        for block in blocks:
            if block.kind == "text":
                said += len(block.text())
            elif block.kind == "tool_use" and text_of(block.start, "name"):
                calls.append(self._call(block, cut=cut and block is blocks[-1]))
            elif (body := _kept(block)) is not None:
                at = len(calls) + 1 if calls or said else 0
                inside = {"after": said} if at == 1 and said < len(text) else {}
                thoughts.append(Thought(PROVIDER, block.text(), {"model": self._model, "block": body, **inside}, at))
        return Reply(
            text,
            calls,
            self._used(),
            truncated=cut,
            more=self._reason in MORE and not calls,
            thoughts=thoughts,
        )

    def _call(self, block: Block, *, cut: bool) -> Call:
        arguments, given = block.text(), field(block.start, "input")
        if not arguments and isinstance(given, Mapping) and given:
            arguments = msgspec.json.encode(given).decode()
        name = text_of(block.start, "name")
        flaw = CUT_ARGUMENTS if cut and not is_whole(arguments) else ""
        return Call(self._names.get(name, name), arguments, text_of(block.start, "id"), flaw=flaw)

    def _used(self) -> Usage | None:
        if not self._usage:
            return None
        fresh, cached, written, output = (self._usage.get(name, 0) for name in COUNTS)
        return Usage(fresh + cached + written, cached, output, min(self._reasoning, output))


def place_of(event: Any) -> int:
    """The place of the part that an event is about."""
    index = field(event, "index")
    return index if type(index) is int else 0


def _kept(block: Block) -> dict[str, Any] | None:
    """A thought as it is sent back; one without its seal would be refused."""
    if block.kind == "redacted_thinking" and text_of(block.start, "data"):
        return {"type": "redacted_thinking", "data": text_of(block.start, "data")}
    signature = "".join(block.signature)
    if block.kind == "thinking" and signature:
        return {"type": "thinking", "thinking": block.text(), "signature": signature}
    return None

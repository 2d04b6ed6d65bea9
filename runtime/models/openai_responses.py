"""From the events of a Responses stream to a reply."""

from collections.abc import Mapping
from typing import Any, Final

from callboard.actors.errors import ModelError
from callboard.actors.events import Call, Thought, Usage
from callboard.actors.model import STREAM_CLOSED, Reply, Say
from callboard.runtime.models.fields import count_of, field, text_of
from callboard.runtime.models.openai_catalogue import Catalogue
from callboard.runtime.models.openai_input import PROVIDER
from callboard.runtime.models.refusals import Asked, Refusal, judged, refusal_of
from callboard.runtime.models.wire import PARTS_GAP

ENDS: Final = ("response.completed", "response.incomplete")
FILTERED: Final = "{host} cut this answer on grounds of its content."


class ResponsesReply:
    """Takes events one by one; `done` after the last one that counts."""

    def __init__(self, model: str, tools: Catalogue, asked: Asked, say: Say) -> None:
        self._model, self._tools, self._asked, self._say = model, tools, asked, say
        self._said: list[str] = []
        self._said_at = -1  # the message that was said last
        self._summary_at: tuple[Any, Any] | None = None
        self._started: dict[int, dict[str, Any]] = {}  # calls by place, as they were announced
        self._deltas: dict[int, list[str]] = {}
        self._items: dict[int, dict[str, Any]] = {}  # whole ones by place
        self._end: Mapping[str, Any] = {}
        self._ended = ""
        self.done = False

    def feed(self, event: Any) -> None:
        """One event; kinds that are not known are nothing. `ModelError` for one that says it failed."""
        kind = text_of(event, "type")
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            self._text(_place(event), text_of(event, "delta"))
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            self._thought(event)
        elif kind in ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta"):
            self._deltas.setdefault(_place(event), []).append(text_of(event, "delta"))
        elif kind in ("response.function_call_arguments.done", "response.custom_tool_call_input.done"):
            self._deltas[_place(event)] = [text_of(event, "arguments") or text_of(event, "input")]
        elif kind == "response.output_item.added":
            item = field(event, "item")
            if isinstance(item, dict):
                self._started[_place(event)] = item
        elif kind == "response.output_item.done":
            self._whole(_place(event), field(event, "item"))
        elif kind in ENDS:
            self._finish(kind, field(event, "response"))
        elif kind == "response.failed":
            raise judged(_failed(field(event, "response", "error")), self._asked)
        elif kind == "error" or (not kind and field(event, "error") is not None):
            raise judged(refusal_of(event), self._asked)

    def feed_whole(self, response: Any) -> None:
        """An answer that was not streamed."""
        if text_of(response, "status") in ("completed", "incomplete"):
            self._finish(f"response.{response['status']}", response)
        elif (error := field(response, "error")) is not None:
            raise judged(_failed(error), self._asked)

    def _text(self, place: int, piece: str) -> None:
        if not piece:
            return
        if self._said and place != self._said_at:
            piece = PARTS_GAP + piece
        self._said_at = place
        self._said.append(piece)
        self._say(piece)

    def _thought(self, event: Any) -> None:
        piece, at = text_of(event, "delta"), (_place(event), field(event, "summary_index"))
        if piece and self._summary_at not in (None, at):
            piece = PARTS_GAP + piece
        if piece:
            self._summary_at = at
            self._say(piece, "reasoning")

    def _whole(self, place: int, item: Any) -> None:
        """An item with nothing left to come; what of its text was not streamed is said now."""
        if not isinstance(item, dict):
            return
        if item.get("type") == "message" and place not in self._items and place != self._said_at:
            self._text(place, message_text(item))
        self._items[place] = item

    def _finish(self, kind: str, response: Any) -> None:
        self._ended, self.done = kind, True
        self._end = response if isinstance(response, Mapping) else {}
        output = self._end.get("output")
        for place, item in enumerate(output if isinstance(output, list) else ()):
            if place not in self._items:
                self._whole(place, item)

    def reply(self) -> Reply:
        """The whole answer; `ModelError` where it never ended, or was filtered."""
        if not self.done:
            raise ModelError(STREAM_CLOSED, retryable=True)
        reason = text_of(self._end, "incomplete_details", "reason")
        if reason == "content_filter":
            raise ModelError(FILTERED.format(host=self._asked.host))
        cut = self._ended == "response.incomplete"
        text, calls, thoughts = "".join(self._said), list[Call](), list[Thought]()
        phases = {}
        for place in sorted({*self._items, *self._started}):
            item = {**self._started.get(place, {}), **self._items.get(place, {})}
            whole = not cut or (place in self._items and item.get("status") != "incomplete")
            call = self._call(place, item, whole=whole)
            if call is not None:
                calls.append(call)
            elif item.get("type") == "reasoning" and place in self._items and text_of(item, "encrypted_content"):
                at = len(calls) + 1 if calls or self._said_before(place) else 0
                thoughts.append(Thought(PROVIDER, summary_text(item), {"model": self._model, "item": kept(item)}, at))
            elif item.get("type") == "message":
                phases[text_of(item, "phase")] = True
        if len(phases) == 1 and (phase := next(iter(phases))):
            thoughts.append(Thought(PROVIDER, "", {"model": self._model, "phase": phase}))
        return Reply(text, calls, usage_of(self._end.get("usage")), truncated=cut, thoughts=thoughts)

    def _said_before(self, place: int) -> bool:
        """Whether a message with text stands before this place."""
        return any(
            at < place and item.get("type") == "message" and message_text(item) for at, item in self._items.items()
        )

    def _call(self, place: int, item: Mapping[str, Any], *, whole: bool) -> Call | None:
        kinds = {"function_call": ("function", "arguments"), "custom_tool_call": ("custom", "input")}
        kind, key = kinds.get(text_of(item, "type"), ("", ""))
        if not kind or not text_of(item, "name"):
            return None
        arguments = item.get(key) or "".join(self._deltas.get(place, ()))
        return self._tools.call(text_of(item, "name"), arguments, text_of(item, "call_id"), kind, whole=whole)


def _place(event: Any) -> int:
    place = field(event, "output_index")
    return place if type(place) is int else 0


def _failed(error: Any) -> Refusal:
    return refusal_of(error if isinstance(error, Mapping) else {"message": "it failed without a reason"})


def message_text(item: Any) -> str:
    """The text of a message item, refusals too."""
    content = field(item, "content")
    parts = content if isinstance(content, list) else ()
    return "".join(text_of(part, "text") or text_of(part, "refusal") for part in parts)


def summary_text(item: Any) -> str:
    """What of a thought may be shown."""
    summary = field(item, "summary")
    return PARTS_GAP.join(text_of(part, "text") for part in (summary if isinstance(summary, list) else ()))


def kept(item: Mapping[str, Any]) -> dict[str, Any]:
    """A reasoning item as it is sent back."""
    summary = item.get("summary")
    return {
        "type": "reasoning",
        "id": text_of(item, "id"),
        "summary": summary if isinstance(summary, list) else [],
        "encrypted_content": text_of(item, "encrypted_content"),
    }


def usage_of(usage: Any) -> Usage | None:
    """What a response cost; None when it does not say."""
    if not isinstance(usage, Mapping):
        return None
    return Usage(
        count_of(usage, "input_tokens"),
        count_of(usage, "input_tokens_details", "cached_tokens"),
        count_of(usage, "output_tokens"),
        count_of(usage, "output_tokens_details", "reasoning_tokens"),
    )

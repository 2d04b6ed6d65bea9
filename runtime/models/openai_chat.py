"""From the chunks of a Chat Completions stream to a reply, as OpenAI and those that speak like it write them."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from callboard.actors.errors import ModelError
from callboard.actors.events import Call, Usage
from callboard.actors.model import STREAM_CLOSED, Reply, Say
from callboard.runtime.models.fields import count_of, field, is_whole, text_of
from callboard.runtime.models.openai_catalogue import Catalogue
from callboard.runtime.models.openai_responses import FILTERED
from callboard.runtime.models.refusals import Asked, judged, refusal_of
from callboard.runtime.models.stream import DONE

MORE: Final = ("tool_calls", "function_call", "refusal", "reasoning_content", "reasoning", "thinking")  # beside a text
CUT: Final = ("length", "max_tokens", "model_length")
BROKEN: Final = ("error",)
OLD: Final = "function_call"  # the place of a call in the form that had one
THOUGHTS: Final = ("reasoning_content", "reasoning", "thinking")  # one of them, where a server shows what it thinks


@attrs.define
class Asking:
    """A call that is still coming in."""

    index: Any = None
    id: str = ""
    name: str = ""
    kind: str = "function"
    pieces: list[str] = attrs.field(factory=list)
    whole: Mapping[str, Any] | None = None  # arguments that came as an object

    def arguments(self) -> Any:
        """What has come in."""
        return dict(self.whole) if self.whole is not None and not self.pieces else "".join(self.pieces)


class ChatReply:
    """Takes chunks one by one; `done` after the last one that counts."""

    def __init__(self, tools: Catalogue, asked: Asked, say: Say) -> None:
        self._tools, self._asked, self._say = tools, asked, say
        self._said: list[str] = []
        self._calls: list[Asking] = []
        self._placed: dict[int | str | None, Asking] = {}  # the last call of each place
        self._reason = ""
        self._usage: Usage | None = None
        self.done = False

    def feed(self, chunk: Any) -> None:
        """One chunk, or `DONE`; `ModelError` for one that says it failed."""
        if chunk is DONE:
            self.done = True
            return
        error = field(chunk, "error")
        if error:
            raise judged(refusal_of(error), self._asked)
        if text_of(chunk, "object") == "error":  # as some servers write it
            raise judged(refusal_of(chunk), self._asked)
        choices = field(chunk, "choices")
        for choice in choices[:1] if isinstance(choices, list) else ():
            self._choice(choice)
        usage = field(chunk, "usage")
        if isinstance(usage, Mapping):
            self._usage = usage_of(usage)

    def feed_whole(self, answer: Any) -> None:
        """An answer that was not streamed."""
        self.feed(answer)

    def _choice(self, choice: Any) -> None:
        delta = field(choice, "delta")
        delta = delta if isinstance(delta, dict) else field(choice, "message")
        if isinstance(delta, dict) and type(piece := delta.get("content")) is str and not any(map(delta.get, MORE)):
            if piece:  # nearly all chunks are of this form
                self._said.append(piece)
                self._say(piece)
            self._reason = text_of(choice, "finish_reason") or self._reason
            return
        for key in THOUGHTS:
            if thought := text_of(delta, key):
                self._say(thought, "reasoning")
                break
        for piece in (_content(field(delta, "content")), text_of(delta, "refusal")):
            if piece:
                self._said.append(piece)
                self._say(piece)
        calls = field(delta, "tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, Mapping):
                self._call(call)
        old = field(delta, "function_call")
        if isinstance(old, Mapping) and all(one.index == OLD for one in self._calls):  # some say a call in both ways
            self._call({"index": OLD, "function": old})
        self._reason = text_of(choice, "finish_reason") or self._reason

    def _call(self, delta: Mapping[str, Any]) -> None:
        part = field(delta, "function")
        kind, key = ("function", "arguments") if isinstance(part, Mapping) else ("custom", "input")
        part = part if isinstance(part, Mapping) else field(delta, "custom")
        one = self._under_way(delta, text_of(part, "name"))
        one.id = one.id or text_of(delta, "id")
        if not one.name:
            one.name, one.kind = text_of(part, "name"), kind
        arguments = field(part, key)
        if isinstance(arguments, Mapping):
            one.whole = arguments
        elif isinstance(arguments, str):
            one.pieces.append(arguments)

    def _under_way(self, delta: Mapping[str, Any], name: str) -> Asking:
        """The call that a piece belongs to: by its place, else the last one, unless its id or its name is a new one."""
        index, id_ = delta.get("index"), text_of(delta, "id")
        known = self._placed.get(index) if isinstance(index, int | str | None) else None
        if known is None and index is not None and self._calls and self._calls[-1].index is None and not name:
            known = self._calls[-1]
        new_id = known is not None and bool(id_) and bool(known.id) and id_ != known.id
        again = (
            known is not None and index is None and bool(name) and bool(known.name) and not (id_ and id_ == known.id)
        )
        if known is None or (new_id and bool(name)) or again:
            known = Asking(index)
            self._calls.append(known)
            if isinstance(index, int | str | None):
                self._placed[index] = known
        return known

    def reply(self) -> Reply:
        """The whole answer; `ModelError` where it never ended, or was filtered."""
        if not self.done and not self._reason:
            raise ModelError(STREAM_CLOSED, retryable=True)
        if self._reason == "content_filter":
            raise ModelError(FILTERED.format(host=self._asked.host))
        if self._reason in BROKEN:
            raise judged(refusal_of({"message": "it says no more", "code": "server_error"}), self._asked)
        cut = self._reason in CUT
        asked = [one for one in self._calls if one.name]
        calls: list[Call] = []
        for one in asked:
            arguments = one.arguments()
            whole = not (cut and one is asked[-1] and not is_whole(arguments))
            calls.append(self._tools.call(one.name, arguments, one.id, one.kind, whole=whole))
        return Reply("".join(self._said), calls, self._usage, truncated=cut)


def _content(content: Any) -> str:
    """Text, or the texts of parts."""
    if isinstance(content, list):
        return "".join(text_of(part, "text") for part in content)
    return content if isinstance(content, str) else ""


def usage_of(usage: Mapping[str, Any]) -> Usage:
    """What an answer cost, in the names of several servers."""
    cached = count_of(usage, "prompt_tokens_details", "cached_tokens") or count_of(usage, "prompt_cache_hit_tokens")
    reasoning = count_of(usage, "completion_tokens_details", "reasoning_tokens")
    prompt, answer = count_of(usage, "prompt_tokens"), count_of(usage, "completion_tokens")
    return Usage(prompt, min(cached, prompt), answer, min(reasoning, answer) if answer else reasoning)

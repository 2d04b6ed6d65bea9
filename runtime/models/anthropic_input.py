"""From a prompt to the body of a Messages request."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from callboard.actors.model import Developer, Prompt, ToolSpec, User
from callboard.runtime.models.anthropic_dialect import Dialect
from callboard.runtime.models.anthropic_schema import answer_schema
from callboard.runtime.models.history import NOTE, NOTHING_ASKED, Answered, Entry, Said, arguments_text, paired
from callboard.runtime.models.wire import PARTS_GAP, plain_name

PROVIDER: Final = "anthropic"
GO_ON: Final = "(go on)"  # a request ends with words of the user, also where the model has not said its last one
CACHED: Final = {"type": "ephemeral"}
NO_WORD: Final = "(it failed without a word)"
FOLLOWS: Final = "The last answer is one JSON value that follows this schema, and nothing else:\n{schema}"
EFFORTS: Final = {"minimal": "low"}  # the others are named as they are
BUDGET_TOKENS: Final = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384}
BUDGET_MOST_TOKENS: Final = 24_576  # for more than that
BUDGET_LEAST_TOKENS: Final = 1_024  # what the protocol takes
TOP_LEVEL_REFUSED: Final = ("anyOf", "oneOf", "allOf")  # beside the object that a schema has to be


@attrs.frozen
class Written:
    """The body of a request, which options of the dialect are in it, and our names of the tools by those sent."""

    body: Mapping[str, Any]
    sent: frozenset[str]
    names: Mapping[str, str]


def messages_request(prompt: Prompt, model: str, dialect: Dialect, output_tokens_max: int | None = None) -> Written:
    """The body of POST /v1/messages."""
    entries = paired(prompt.messages)
    sent = set[str]()
    messages = _messages(entries, model, dialect, sent)
    if dialect.cache:
        sent.add("cache")
        for message in messages[-1:-4:-2]:  # what the user said last, and before: it was sent once already
            message["content"][-1]["cache_control"] = CACHED
    output = output_tokens_max or dialect.output
    if output_tokens_max is None:
        sent.add("output")
    body: dict[str, Any] = {"model": model, "max_tokens": output, "messages": messages, "stream": True}
    system = prompt.system
    config: dict[str, Any] = {}
    if prompt.schema is not None:
        exact = answer_schema(prompt.schema) if dialect.schema else None
        if exact is not None:
            config["format"] = {"type": "json_schema", "schema": exact}
            sent.add("schema")
        else:
            follows = FOLLOWS.format(schema=msgspec.json.encode(prompt.schema).decode())
            system = f"{system}\n\n{follows}" if system else follows
    if prompt.effort is not None:
        _think(body, config, prompt.effort, dialect, sent, loop_was_thought=_loop_was_thought(entries, model, dialect))
    if config:
        body["output_config"] = config
    if system.strip():
        body["system"] = [{"type": "text", "text": system, **({"cache_control": CACHED} if dialect.cache else {})}]
    tools = [_tool(spec) for spec in prompt.tools]
    if tools:
        body["tools"] = tools
        if dialect.cache:
            tools[-1]["cache_control"] = CACHED  # agents of one tree share them under systems of their own
    return Written(body, frozenset(sent), {plain_name(spec.name): spec.name for spec in prompt.tools})


def _think(
    body: dict[str, Any],
    config: dict[str, Any],
    effort: str,
    dialect: Dialect,
    sent: set[str],
    *,
    loop_was_thought: bool,
) -> None:
    """How hard it should think, in the words that it knows."""
    if effort == "none":
        if dialect.off:
            body["thinking"] = {"type": "disabled"}
            sent.add("off")
        return
    if dialect.effort:
        config["effort"] = EFFORTS.get(effort, effort)
        sent.add("effort")
    if dialect.adaptive:
        body["thinking"] = {"type": "adaptive", "display": "summarized"}
        sent.add("adaptive")
    elif dialect.budget and loop_was_thought:
        tokens = min(BUDGET_TOKENS.get(effort, BUDGET_MOST_TOKENS), body["max_tokens"] - BUDGET_LEAST_TOKENS)
        if tokens >= BUDGET_LEAST_TOKENS:
            body["thinking"] = {"type": "enabled", "budget_tokens": tokens}
            sent.add("budget")


def _loop_was_thought(entries: Sequence[Entry], model: str, dialect: Dialect) -> bool:
    """Whether each answer with calls since the user's last words began with a thought that can be sent back.

    A model that thinks within a budget takes no other; those of another provider, or cut ones, have none.
    """
    for entry in reversed(entries):
        if isinstance(entry, User):
            return True
        if isinstance(entry, Said) and entry.calls and not _thoughts(entry, model, dialect).get(0):
            return False
    return True


def _tool(spec: ToolSpec) -> dict[str, Any]:
    schema = spec.parameters
    if schema.get("type") != "object" or any(name in schema for name in TOP_LEVEL_REFUSED):
        kept = {name: value for name, value in schema.items() if name not in TOP_LEVEL_REFUSED}
        schema = {**kept, "type": "object"}
    return {"name": plain_name(spec.name), "description": spec.description, "input_schema": schema}


def _messages(entries: Sequence[Entry], model: str, dialect: Dialect, sent: set[str]) -> list[dict[str, Any]]:
    """Messages whose roles alternate, from the user to the user; results begin what follows their calls."""
    messages: list[dict[str, Any]] = []

    def add(role: str, blocks: list[dict[str, Any]]) -> None:
        if not blocks:
            return
        if not messages and role == "assistant":
            messages.append({"role": "user", "content": [_text(NOTHING_ASKED)]})
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})

    for entry in entries:
        if isinstance(entry, User):
            add("user", [_text(entry.text)])
        elif isinstance(entry, Developer):
            add("user", [_text(NOTE.format(text=entry.text))])
        else:
            add("assistant", list(_said(entry, model, dialect, sent)))
            add("user", [_result(one) for one in entry.calls])
    if not messages or messages[-1]["role"] == "assistant":
        add("user", [_text(GO_ON if messages else NOTHING_ASKED)])
    return messages


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _thoughts(said: Said, model: str, dialect: Dialect) -> dict[int, list[dict[str, Any]]]:
    """The thoughts of this very model by their place, as they were kept."""
    before = dict[int, list[dict[str, Any]]]()
    message = said.message
    for thought in message.thoughts if dialect.thoughts and not message.interrupted else ():
        own = thought.body if thought.provider == PROVIDER and isinstance(thought.body, dict) else {}
        if own.get("model") == model and isinstance(own.get("block"), dict):
            before.setdefault(thought.at, []).append(own)
    return before


def _said(said: Said, model: str, dialect: Dialect, sent: set[str]) -> Iterator[dict[str, Any]]:
    """What the model said, with what it thought before each part; thoughts alone are nothing."""
    before, text = _thoughts(said, model, dialect), said.message.text
    if not text.strip() and not said.calls:
        return
    if before:
        sent.add("thoughts")
    yield from _blocks(before.get(0, ()))
    yield from _paragraphs(text, [kept for kept in before.get(1, ()) if _inside(kept, text)])
    for at, one in enumerate(said.calls, 1):
        yield from _blocks(kept for kept in before.get(at, ()) if at > 1 or not _inside(kept, text))
        yield {"type": "tool_use", "id": one.id, "name": plain_name(one.call.name), "input": _arguments(one)}


def _blocks(thoughts: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    return (dict(kept["block"]) for kept in thoughts)


def _inside(kept: Mapping[str, Any], text: str) -> bool:
    """Whether this was thought between two parts of the text."""
    after = kept.get("after")
    return type(after) is int and after > 0 and bool(text[after:].strip())


def _paragraphs(text: str, thoughts: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The text, with what was thought between its parts."""
    at = 0
    for kept in thoughts:
        if text[at : kept["after"]].strip():
            yield _text(text[at : kept["after"]].removeprefix(PARTS_GAP))
        yield from _blocks((kept,))
        at = max(at, kept["after"])
    if text[at:].strip():
        yield _text(text[at:].removeprefix(PARTS_GAP))


def _arguments(one: Answered) -> Any:
    call = one.call
    if call.kind != "function":
        return {"input": call.arguments}
    return (
        call.arguments
        if isinstance(call.arguments, dict)
        else msgspec.Raw(arguments_text(call).encode("utf-8", "replace"))
    )


def _result(one: Answered) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "tool_result", "tool_use_id": one.id}
    if one.failed:  # an error without a word is refused
        return {**made, "content": one.text if one.text.strip() else NO_WORD, "is_error": True}
    return {**made, "content": one.text} if one.text.strip() else made

"""From a prompt to the body of a request: Responses and Chat Completions."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

import attrs
import msgspec

from callboard.actors.events import Call
from callboard.actors.model import Developer, Prompt, User
from callboard.runtime.models.history import NOTE, NOTHING_ASKED, Answered, Entry, Said, arguments_text, paired
from callboard.runtime.models.openai_catalogue import Catalogue
from callboard.runtime.models.openai_dialect import Dialect
from callboard.runtime.models.strict import strict_schema
from callboard.runtime.models.wire import plain_name

PROVIDER: Final = "openai"
ANSWER: Final = "answer"  # what the schema of an answer is called


@attrs.frozen
class Written:
    """The body of a request, and which options of the dialect are in it."""

    body: Mapping[str, Any]
    sent: frozenset[str]


def responses_request(
    prompt: Prompt, model: str, tools: Catalogue, dialect: Dialect, output_tokens_max: int | None = None
) -> Written:
    """The body of POST /responses: nothing is stored there, reasoning comes back encrypted."""
    entries = paired(prompt.messages)
    thoughts = [False]
    items = [item for entry in entries for item in _items(entry, model, dialect, thoughts)]
    body: dict[str, Any] = {"model": model, "input": items or [_message("user", NOTHING_ASKED)], "stream": True}
    sent = {name for name in ("store", "encrypted", "cache_key") if getattr(dialect, name)}
    if dialect.store:
        body["store"] = False
    if dialect.encrypted:
        body["include"] = ["reasoning.encrypted_content"]
    if dialect.cache_key:
        body["prompt_cache_key"] = sha256(prompt.session.encode("utf-8", "replace")).hexdigest()[:32]
    if prompt.system:
        body["instructions"] = prompt.system
    if thoughts[0]:
        sent.add("thoughts")
    reasoning: dict[str, Any] = {}
    if dialect.summary:
        reasoning["summary"] = "auto"
        sent.add("summary")
    if prompt.effort is not None and dialect.effort:
        reasoning["effort"] = prompt.effort
        sent.add("effort")
    if reasoning:
        body["reasoning"] = reasoning
    if prompt.schema is not None and dialect.schema:
        body["text"] = {"format": {"type": "json_schema", **_answer_schema(prompt.schema)}}
        sent.add("schema")
    if output_tokens_max is not None:
        body["max_output_tokens"] = output_tokens_max
    _add_tools(body, sent, tools)
    return Written(body, frozenset(sent))


def chat_request(
    prompt: Prompt, model: str, tools: Catalogue, dialect: Dialect, output_tokens_max: int | None = None
) -> Written:
    """The body of POST /chat/completions."""
    messages = list(_chat_messages(paired(prompt.messages), dialect))
    if not messages:
        messages = [{"role": "user", "content": NOTHING_ASKED}]
    if prompt.system:
        messages.insert(0, {"role": "system", "content": prompt.system})
    body: dict[str, Any] = {"model": model, "messages": messages, "stream": True}
    sent: set[str] = set()
    if dialect.usage:
        body["stream_options"] = {"include_usage": True}
        sent.add("usage")
    if prompt.effort is not None and dialect.effort:
        body["reasoning_effort"] = prompt.effort
        sent.add("effort")
    if prompt.schema is not None and dialect.schema:
        body["response_format"] = {"type": "json_schema", "json_schema": _answer_schema(prompt.schema)}
        sent.add("schema")
    if output_tokens_max is not None:
        body[dialect.tokens] = output_tokens_max
        if dialect.tokens != "max_tokens":
            sent.add("tokens")
    _add_tools(body, sent, tools)
    return Written(body, frozenset(sent))


def _add_tools(body: dict[str, Any], sent: set[str], tools: Catalogue) -> None:
    if tools.entries:
        body["tools"] = tools.entries
    if tools.strict:
        sent.add("strict")


def _answer_schema(schema: Any) -> dict[str, Any]:
    exact = strict_schema(schema, checked=False)
    return {"name": ANSWER, "schema": schema if exact is None else exact, "strict": exact is not None}


# -- Responses ---------------------------------------------------------------------------------------------------------


def _message(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


def _items(entry: Entry, model: str, dialect: Dialect, thoughts: list[bool]) -> Iterator[dict[str, Any]]:
    if isinstance(entry, User):
        yield _message("user", entry.text)
    elif isinstance(entry, Developer):
        yield _message("developer", entry.text)
    else:
        yield from _said_items(entry, model, dialect, thoughts)


def _said_items(said: Said, model: str, dialect: Dialect, thoughts: list[bool]) -> Iterator[dict[str, Any]]:
    """What the model said, with what it thought before each part; a thought with nothing behind it is refused."""
    message, phase, before = said.message, None, dict[int, list[dict[str, Any]]]()
    for thought in message.thoughts if dialect.thoughts and not message.interrupted else ():
        own = thought.body if thought.provider == PROVIDER and isinstance(thought.body, dict) else {}
        if own.get("model") != model:
            continue
        if isinstance(own.get("item"), dict):
            before.setdefault(thought.at, []).append(own["item"])
        elif isinstance(own.get("phase"), str):
            phase = own["phase"]
    text = bool(message.text.strip())
    if not text and not said.calls:
        before.pop(0, None)
    thoughts[0] = thoughts[0] or any(0 <= at <= len(said.calls) for at in before)
    yield from before.get(0, ())
    if text:
        made = _message("assistant", message.text)
        yield made if phase is None else {**made, "phase": phase}
    for at, one in enumerate(said.calls, 1):
        yield from before.get(at, ())
        yield _call_item(one)
    for one in said.calls:
        kind = "function_call_output" if one.call.kind == "function" else "custom_tool_call_output"
        yield {"type": kind, "call_id": one.id, "output": one.text}


def _call_item(one: Answered) -> dict[str, Any]:
    call, name = one.call, plain_name(one.call.name)
    if call.kind == "function":
        return {"type": "function_call", "call_id": one.id, "name": name, "arguments": arguments_text(call)}
    return {"type": "custom_tool_call", "call_id": one.id, "name": name, "input": _input_text(call)}


def _input_text(call: Call) -> str:
    arguments = call.arguments
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


# -- Chat Completions --------------------------------------------------------------------------------------------------


def _chat_messages(entries: list[Entry], dialect: Dialect) -> Iterator[dict[str, Any]]:
    """Messages in order; where roles have to alternate, those of users that follow each other are one."""
    users: list[str] = []
    for entry in entries:
        if isinstance(entry, User | Developer):
            if dialect.plain:
                users.append(entry.text if isinstance(entry, User) else NOTE.format(text=entry.text))
            else:
                yield {"role": "user" if isinstance(entry, User) else "developer", "content": entry.text}
            continue
        made = list(_chat_said(entry, silence="" if dialect.plain else None))
        if made and users:
            yield {"role": "user", "content": "\n\n".join(users)}
            users = []
        yield from made
    if users:
        yield {"role": "user", "content": "\n\n".join(users)}


def _chat_said(said: Said, silence: str | None) -> Iterator[dict[str, Any]]:
    """What the model said; `silence` is its text where it only called: templates of plain servers add it to a text."""
    text = said.message.text if said.message.text.strip() else silence
    if not text and not said.calls:
        return
    made: dict[str, Any] = {"role": "assistant", "content": text}
    if said.calls:
        made["tool_calls"] = [_chat_call(one) for one in said.calls]
    yield made
    for one in said.calls:
        yield {"role": "tool", "tool_call_id": one.id, "content": one.text}


def _chat_call(one: Answered) -> dict[str, Any]:
    name = plain_name(one.call.name)
    if one.call.kind == "function":
        return {"id": one.id, "type": "function", "function": {"name": name, "arguments": arguments_text(one.call)}}
    return {"id": one.id, "type": "custom", "custom": {"name": name, "input": _input_text(one.call)}}

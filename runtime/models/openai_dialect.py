"""What a server takes of a request: what nobody documents is learned from its refusals, once each."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from callboard.runtime.models.refusals import Refusal


@attrs.frozen(kw_only=True)
class Dialect:
    """How requests to one server are written.

    `plain`: a server that only speaks like OpenAI's; its roles alternate, and it has no developers. The others are
    options that a server or a model may not know.
    """

    plain: bool = False
    encrypted: bool = True  # reasoning comes back encrypted, to be sent again
    summary: bool = True  # of what a model thinks
    effort: bool = True
    cache_key: bool = True
    store: bool = True
    usage: bool = True  # at the end of a chat's stream
    strict: bool = True
    schema: bool = True  # of an answer
    tokens: str = "max_completion_tokens"  # what a chat calls the bound of its answer
    thoughts: bool = True


@attrs.frozen
class Option:
    """An option of a dialect, the words by which a refusal names it, and whether it is left out once or for good."""

    name: str
    words: tuple[str, ...]
    once: bool = False
    unless: str = "\n"  # with these words in it, a refusal is about something else


OPTIONS: Final = (
    Option(
        "thoughts", ("invalid_encrypted_content", "encrypted content could not", "could not be decrypted"), once=True
    ),
    Option("encrypted", ("encrypted_content", "encrypted content", "'include'", '"include"')),
    Option("summary", ("reasoning.summary", "reasoning summar", "reasoning_summar", "'reasoning'", '"reasoning"')),
    Option("effort", ("reasoning.effort", "reasoning_effort", "'reasoning'", '"reasoning"')),
    Option("cache_key", ("prompt_cache_key",)),
    Option("usage", ("stream_options", "include_usage")),
    Option("tokens", ("max_completion_tokens",)),
    Option("strict", ("strict", "invalid_function_parameters", "invalid schema for function")),
    Option("schema", ("response_format", "json_schema", "text.format"), unless="invalid schema"),
    Option("store", ("'store'", '"store"')),
)
STATUSES: Final = (400, 404, 422, 501)


@attrs.frozen
class Learned:
    """What is left out of a dialect from now on, or only this `once`."""

    gone: Mapping[str, Any]
    once: bool


def learned(refusal: Refusal, param: str, sent: frozenset[str]) -> Learned | None:
    """What to leave out after a refusal that names an option that was sent; None when it names none."""
    if refusal.status not in STATUSES:
        return None
    said = f"{refusal.code} {param!r} {refusal.message}".lower()
    for option in OPTIONS:
        if option.name in sent and option.unless not in said and any(word in said for word in option.words):
            return Learned({"tokens": "max_tokens"} if option.name == "tokens" else {option.name: False}, option.once)
    return None

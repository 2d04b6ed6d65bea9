"""How requests to OpenAI are written, and to servers that only speak like it."""

from typing import Final

import attrs

from callboard.runtime.models.dialect import Option


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


OPTIONS: Final = (
    Option(
        "thoughts", ("invalid_encrypted_content", "encrypted content could not", "could not be decrypted"), once=True
    ),
    Option("encrypted", ("encrypted_content", "encrypted content", "'include'", '"include"')),
    Option("summary", ("reasoning.summary", "reasoning summar", "reasoning_summar", "'reasoning'", '"reasoning"')),
    Option("effort", ("reasoning.effort", "reasoning_effort", "'reasoning'", '"reasoning"')),
    Option("cache_key", ("prompt_cache_key",)),
    Option("usage", ("stream_options", "include_usage")),
    Option("tokens", ("max_completion_tokens",), instead="max_tokens"),
    Option("strict", ("strict", "invalid_function_parameters", "invalid schema for function")),
    Option("schema", ("response_format", "json_schema", "text.format"), unless="invalid schema"),
    Option("store", ("'store'", '"store"')),
)

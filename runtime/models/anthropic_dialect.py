"""How requests to Anthropic are written, and to servers and models that know less."""

import re
from typing import Final

import attrs

from callboard.runtime.models.dialect import Option

OUTPUT_TOKENS: Final = 32_000  # an answer has to be bounded there; the models of today take this and more
OUTPUT_LEAST_TOKENS: Final = 4_096  # what every model takes


@attrs.frozen(kw_only=True)
class Dialect:
    """How requests to one server are written: options that a server or a model may not know."""

    adaptive: bool = True  # it thinks for as long as it finds useful
    budget: bool = True  # it thinks within a number of tokens, as older ones do
    off: bool = True  # it can be told not to think
    effort: bool = True
    schema: bool = True  # of an answer
    cache: bool = True
    thoughts: bool = True
    output: int = OUTPUT_TOKENS


def output_of(said: str) -> int:
    """The bound that a refusal of a larger one names."""
    named = re.search(r"> (\d{3,7})\b", said)
    return min(int(named[1]), OUTPUT_TOKENS - 1) if named else OUTPUT_LEAST_TOKENS


OPTIONS: Final = (
    Option("output", ("maximum allowed number of output tokens",), instead=output_of),
    Option("thoughts", ("signature", "thinking block", "redacted_thinking"), once=True),
    Option("schema", ("format.schema", "grammar", "too complex"), once=True, unless="tools."),  # this one, not all
    Option("schema", ("output_config.format", "output_format", "json_schema", "structured output"), unless="tools."),
    Option("effort", ("output_config", "effort")),
    Option("off", ("thinking", "disabled")),
    Option("adaptive", ("adaptive", "thinking")),
    Option("budget", ("budget_tokens", "thinking")),
    Option("cache", ("cache_control",)),
)

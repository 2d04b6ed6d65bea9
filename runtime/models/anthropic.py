"""anthropic:NAME: models of Anthropic, and of servers that speak its Messages protocol, through its SDK on Trio."""

import functools
from typing import Final
from urllib.parse import urlsplit

from callboard.actors.errors import UsageError
from callboard.actors.model import Prompt
from callboard.runtime.models.anthropic_dialect import OPTIONS, Dialect
from callboard.runtime.models.anthropic_input import messages_request
from callboard.runtime.models.anthropic_reply import MessagesReply
from callboard.runtime.models.provider import ProviderModel, Request, encoded
from callboard.runtime.settings import ModelConfig

PATH: Final = "/v1/messages"
ONE_PROTOCOL: Final = "api is for models of OpenAI; anthropic:NAME speaks Messages alone: leave it out."


class AnthropicModel(ProviderModel):
    """A model by its name at Anthropic, or at the server of `base_url`, which may end in /v1.

    `UsageError` at once for what cannot work: the SDK is missing, the address is none, there is no key.
    """

    provider = "anthropic"
    default_url = "https://api.anthropic.com"
    key_variable = "ANTHROPIC_API_KEY"
    options = OPTIONS

    def __init__(self, name: str, config: ModelConfig) -> None:
        if config.api is not None:
            raise UsageError(ONE_PROTOCOL)
        self._output_tokens_max = config.output_tokens_max
        super().__init__(name, config, PATH)
        if urlsplit(self.url).path.endswith("/v1"):
            self._path = PATH.removeprefix("/v1")

    def _first_dialect(self) -> Dialect:
        return Dialect()

    def _request(self, prompt: Prompt, dialect: Dialect) -> Request:
        written = messages_request(prompt, self.name, dialect, self._output_tokens_max)
        answering = functools.partial(MessagesReply, self.name, written.names, self._asked)
        return Request(written.sent, encoded({**written.body, **self._extra_body}), answering)

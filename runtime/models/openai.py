"""openai:NAME: models of OpenAI, and of servers that speak its protocols, through its SDK on Trio."""

from types import MappingProxyType
from typing import Final, Literal

from callboard.actors.model import Prompt, Say
from callboard.runtime.models.openai_catalogue import Catalogues
from callboard.runtime.models.openai_chat import ChatReply
from callboard.runtime.models.openai_dialect import OPTIONS, Dialect
from callboard.runtime.models.openai_input import chat_request, responses_request
from callboard.runtime.models.openai_responses import ResponsesReply
from callboard.runtime.models.provider import Answering, ProviderModel, Request, encoded
from callboard.runtime.settings import ModelConfig

PATHS: Final = MappingProxyType({"responses": "/responses", "chat": "/chat/completions"})


class OpenAIModel(ProviderModel):
    """A model by its name at OpenAI, or at the server of `base_url`; `api` says which of the two protocols it speaks.

    `UsageError` at once for what cannot work: the SDK is missing, the address is none, there is no key.
    """

    provider = "openai"
    default_url = "https://api.openai.com/v1"
    key_variable = "OPENAI_API_KEY"
    options = OPTIONS

    def __init__(self, name: str, config: ModelConfig) -> None:
        self._api: Literal["responses", "chat"] = config.api or "responses"
        self._output_tokens_max = config.output_tokens_max
        self._catalogues = Catalogues()
        super().__init__(name, config, PATHS[self._api])

    def _first_dialect(self) -> Dialect:
        if self.at_home:
            return Dialect()
        return Dialect(plain=True, cache_key=False, strict=self._api == "responses", tokens="max_tokens")

    def _request(self, prompt: Prompt, dialect: Dialect) -> Request:
        tools = self._catalogues.of(prompt.tools, self._api, strict=dialect.strict)
        make = responses_request if self._api == "responses" else chat_request
        written = make(prompt, self.name, tools, dialect, self._output_tokens_max)

        def answering(say: Say) -> Answering:
            if self._api == "responses":
                return ResponsesReply(self.name, tools, self._asked, say)
            return ChatReply(tools, self._asked, say)

        return Request(written.sent, encoded({**written.body, **self._extra_body}), answering)

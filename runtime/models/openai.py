"""openai:NAME: models of OpenAI, and of servers that speak its protocols, through its SDK on Trio."""

import functools
import importlib
import json
import logging
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from threading import Lock
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol
from urllib.parse import urlsplit

import attrs
import msgspec
import trio

from callboard.actors.errors import MissingExtra, ModelError, UsageError
from callboard.actors.model import Prompt, Reply, Say
from callboard.runtime.models.openai_catalogue import Catalogue, Catalogues
from callboard.runtime.models.openai_chat import ChatReply
from callboard.runtime.models.openai_dialect import OPTIONS, Dialect, learned
from callboard.runtime.models.openai_input import chat_request, responses_request
from callboard.runtime.models.openai_responses import ResponsesReply
from callboard.runtime.models.openai_stream import EVENT_BYTES_MAX, Events, Unreadable
from callboard.runtime.models.refusals import Asked, Refused, Unreached, judged, unreachable
from callboard.runtime.models.wire import checked_url, find_key
from callboard.runtime.settings import ModelConfig

LOGGER = logging.getLogger("callboard")
URL: Final = "https://api.openai.com/v1"
KEY_VARIABLE: Final = "OPENAI_API_KEY"
SILENT_S: Final = 300.0  # a model may think so long without a word
IN_PLACE_MESSAGES_MAX: Final = 500  # a longer history is written in a thread: 3,000 messages take 15 ms and more
PATHS: Final = MappingProxyType({"responses": "/responses", "chat": "/chat/completions"})

NO_STREAM: Final = "{host} answers with {kind}, not with a stream of events: check base_url."
BAD_STREAM: Final = "{host} cannot be understood: {why}."
OLD_SDK: Final = "the installed OpenAI SDK cannot be used ({why}): install callboard[openai]."
NO_USAGE: Final = "%s tells no usage: its tokens and its cost count as nothing"


class Wire(Protocol):
    """What is asked of the SDK: see `openai_client.Client`."""

    async def ask(self, path: str, body: bytes, kind: Callable[[str], None], take: Callable[[bytes], bool]) -> None:
        """(Trio) Send a request and hand over its answer."""
        ...

    async def aclose(self) -> None:
        """(Trio) Close all connections."""
        ...


class OpenAIModel:
    """A model by its name at OpenAI, or at the server of `base_url`; `api` says which of the two protocols it speaks.

    `UsageError` at once for what cannot work: the SDK is missing, the address is none, there is no key.
    """

    provider = "openai"
    idle_timeout_s = SILENT_S

    def __init__(self, name: str, config: ModelConfig) -> None:
        if find_spec("openai") is None:
            raise MissingExtra(f"model 'openai:{name:.80}'", "openai")
        self.name = name
        self.url = checked_url(config.base_url or URL)
        variable = config.api_key_env or KEY_VARIABLE
        self._key = find_key(variable, self.url, named=config.api_key_env is not None)
        host = urlsplit(self.url).netloc
        self._asked = Asked(model=name, host=host, variable=variable, secrets=(self._key,))
        self._api: Literal["responses", "chat"] = config.api or "responses"
        self._output_tokens_max, self._extra_body = config.output_tokens_max, config.extra_body
        self._read_s = max(SILENT_S, config.idle_timeout_s or 0.0) + 5.0  # the session's own limit is met first
        self._dialect = first_dialect(self._api, plain=host != urlsplit(URL).netloc)
        self._catalogues = Catalogues()
        self._guard, self._closed, self._usage_missed = Lock(), False, False
        self._client: Wire | None = None

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r}, {self._api!r}, {self.url!r})"

    async def warm(self) -> None:
        """(Trio) Import the SDK, open its client and go through a request, in a thread; harmless when that is done."""
        if self._client is None:
            await trio.to_thread.run_sync(self._open, abandon_on_cancel=True)

    def _open(self) -> None:
        with self._guard:
            if self._client is not None:
                return
            try:
                wire = importlib.import_module("callboard.runtime.models.openai_client")
            except ImportError as error:
                raise ModelError(OLD_SDK.format(why=error)) from None
            wire.rehearse()
            self._client = wire.Client(self._key, self.url, self._read_s)

    async def aclose(self) -> None:
        """(Trio) Close all connections; nothing can be asked any more."""
        self._closed = True
        if self._client is not None:
            await self._client.aclose()

    async def reply(self, prompt: Prompt, say: Say) -> Reply:
        """Ask, and ask again without what the server did not know; what it did not know is remembered."""
        if self._closed:
            raise ModelError(f"openai:{self.name} was closed with its runtime.")
        await self.warm()
        dialect = self._dialect
        for _ in range(len(OPTIONS) + 1):
            tools = self._catalogues.of(prompt.tools, self._api, strict=dialect.strict)
            write = functools.partial(self._written, prompt, tools, dialect)
            large = len(prompt.messages) > IN_PLACE_MESSAGES_MAX
            sent, body = await trio.to_thread.run_sync(write, abandon_on_cancel=True) if large else write()
            try:
                return await self._answer(body, tools, say)
            except Refused as refused:
                change = learned(refused.refusal, refused.param, sent)
                if change is None:
                    raise judged(refused.refusal, self._asked) from None
                dialect = attrs.evolve(dialect, **change.gone)
                if not change.once:
                    self._dialect = attrs.evolve(self._dialect, **change.gone)
            except Unreached as error:
                raise unreachable(error, self._asked) from None
        raise ModelError(f"{self._asked.host} refused every form of the request.")

    def _written(self, prompt: Prompt, tools: Catalogue, dialect: Dialect) -> tuple[frozenset[str], bytes]:
        """The options that are sent, and the body; also called in a thread."""
        make = responses_request if self._api == "responses" else chat_request
        request = make(prompt, self.name, tools, dialect, self._output_tokens_max)
        return request.sent, encoded({**request.body, **self._extra_body})

    async def _answer(self, body: bytes, tools: Catalogue, say: Say) -> Reply:
        made: ResponsesReply | ChatReply
        if self._api == "responses":
            made = ResponsesReply(self.name, tools, self._asked, say)
        else:
            made = ChatReply(tools, self._asked, say)
        taking = Taking(made, self._asked.host, say)
        client = self._client
        assert client is not None
        try:
            await client.ask(PATHS[self._api], body, taking.kind, taking.take)
            taking.finish()
        except Unreadable as error:
            raise ModelError(BAD_STREAM.format(host=self._asked.host, why=error), retryable=True) from None
        reply = made.reply()
        if reply.usage is None and not self._usage_missed:
            self._usage_missed = True
            LOGGER.warning(NO_USAGE, f"openai:{self.name} at {self._asked.host}")
        return reply


class Taking:
    """Takes the bytes of an answer: a stream of events, or the whole of it where a server does not stream."""

    def __init__(self, made: ResponsesReply | ChatReply, host: str, say: Say) -> None:
        self._made, self._host, self._say = made, host, say
        self._events, self._whole = Events(), bytearray()
        self._streams = True

    def kind(self, content_type: str) -> None:
        """What it will be; `ModelError` for pages."""
        kind = content_type.partition(";")[0].strip().lower()
        if kind == "application/json":
            self._streams = False
        elif kind.startswith("text/html"):
            raise ModelError(NO_STREAM.format(host=self._host, kind=kind))

    def take(self, chunk: bytes) -> bool:
        """A piece of it; whether that was the last that counts."""
        self._say("")
        if not self._streams:
            self._whole += chunk
            if len(self._whole) > EVENT_BYTES_MAX:
                raise Unreadable(f"its answer is larger than {EVENT_BYTES_MAX:,} bytes")
            return False
        for event in self._events.feed(chunk):
            self._made.feed(event)
        return self._made.done

    def finish(self) -> None:
        """Nothing more comes."""
        if self._streams:
            for event in () if self._made.done else self._events.finish():
                self._made.feed(event)
            return
        try:
            whole = msgspec.json.decode(self._whole)
        except (msgspec.MsgspecError, RecursionError):
            raise Unreadable("its answer is no JSON") from None
        self._made.feed_whole(whole)


def encoded(body: Mapping[str, Any]) -> bytes:
    """The JSON of a body; characters that UTF-8 cannot say become marks."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def first_dialect(api: Literal["responses", "chat"], *, plain: bool) -> Dialect:
    """How requests are written before anything is learned: to OpenAI, or to a server that only speaks like it."""
    if not plain:
        return Dialect()
    return Dialect(plain=True, cache_key=False, strict=api == "responses", tokens="max_tokens")


def openai_model(name: str, config: ModelConfig) -> OpenAIModel:
    """The model of that name; `UsageError` for a name that no model has."""
    if not name.strip() or len(name) > 200 or not name.isprintable():
        raise UsageError(f"openai:NAME takes the name of a model, got {name!r:.80}.")
    return OpenAIModel(name, config)

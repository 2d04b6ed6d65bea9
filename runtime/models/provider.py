"""What models of providers share: one client each, asked again without what the server did not know."""

import functools
import importlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from threading import Lock
from typing import Any, ClassVar, Final, Protocol
from urllib.parse import urlsplit

import attrs
import msgspec
import trio

from callboard.actors.errors import MissingExtra, ModelError, UsageError
from callboard.actors.model import Prompt, Reply, Say
from callboard.runtime.models.dialect import Option, learned
from callboard.runtime.models.refusals import Asked, Refused, Unreached, judged, unreachable
from callboard.runtime.models.stream import EVENT_BYTES_MAX, Events, Unreadable
from callboard.runtime.models.wire import checked_url, find_key
from callboard.runtime.settings import ModelConfig

LOGGER = logging.getLogger("callboard")
SILENT_S: Final = 300.0  # a model may think so long without a word
STARTS_MAX: Final = 8  # requests that are written and sent in one round: each takes some 2 ms of CPU
IN_PLACE_MESSAGES_MAX: Final = 500  # a longer history is written in a thread: 3,000 messages take 15 ms and more

NO_STREAM: Final = "{host} answers with {kind}, not with a stream of events: check base_url."
BAD_STREAM: Final = "{host} cannot be understood: {why}."
OLD_SDK: Final = "the installed SDK of {provider} cannot be used ({why}): install callboard[{provider}]."
NO_USAGE: Final = "%s tells no usage: its tokens and its cost count as nothing"


class Wire(Protocol):
    """What is asked of an SDK: see `sdk.Client`."""

    async def ask(self, path: str, body: bytes, kind: Callable[[str], None], take: Callable[[bytes], bool]) -> None:
        """(Trio) Send a request and hand over its answer."""
        ...

    async def aclose(self) -> None:
        """(Trio) Close all connections."""
        ...


class Answering(Protocol):
    """Makes a reply of what a server sends; `done` after the last event that counts."""

    done: bool

    def feed(self, event: Any) -> None:
        """One event; `ModelError` for one that says it failed."""
        ...

    def feed_whole(self, answer: Any) -> None:
        """An answer that was not streamed."""
        ...

    def reply(self) -> Reply:
        """The whole answer; `ModelError` where it never ended."""
        ...


@attrs.frozen
class Request:
    """A request: which options of the dialect are in it, its bytes, and what takes its answer."""

    sent: frozenset[str]
    body: bytes
    answering: Callable[[Say], Answering]


class ProviderModel:
    """A model by its name at a provider, or at the server of `base_url`.

    `UsageError` at once for what cannot work: the SDK is missing, the address is none, there is no key.
    """

    provider: ClassVar[str]
    default_url: ClassVar[str]
    key_variable: ClassVar[str]
    options: ClassVar[Sequence[Option]]
    idle_timeout_s = SILENT_S

    def __init__(self, name: str, config: ModelConfig, path: str) -> None:
        if not name.strip() or len(name) > 200 or not name.isprintable():
            raise UsageError(f"{self.provider}:NAME takes the name of a model, got {name!r:.80}.")
        if find_spec(self.provider) is None:
            raise MissingExtra(f"model '{self.provider}:{name:.80}'", self.provider)
        self.name = name
        self.url = checked_url(config.base_url or self.default_url)
        self.at_home = urlsplit(self.url).netloc == urlsplit(self.default_url).netloc
        variable = config.api_key_env or self.key_variable
        self._key = find_key(variable, self.url, named=config.api_key_env is not None)
        self._asked = Asked(model=name, host=urlsplit(self.url).netloc, variable=variable, secrets=(self._key,))
        self._path = path
        self._extra_body = config.extra_body  # goes into each request
        self._read_s = max(SILENT_S, config.idle_timeout_s or 0.0) + 5.0  # the session's own limit is met first
        self._dialect = self._first_dialect()
        self._guard, self._usage_missed = Lock(), False
        self._starting = trio.CapacityLimiter(STARTS_MAX)
        self._client: Wire | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.url + self._path!r})"

    def _first_dialect(self) -> Any:
        """How requests are written before anything is learned: options that `options` may take away."""
        raise NotImplementedError

    def _request(self, prompt: Prompt, dialect: Any) -> Request:
        """The request for a prompt; also called in a thread."""
        raise NotImplementedError

    async def warm(self) -> None:
        """(Trio) Import the SDK, open its client and go through a request, in a thread; harmless when that is done."""
        await self._opened()

    async def _opened(self) -> Wire:
        if self._client is not None:
            return self._client
        return await trio.to_thread.run_sync(self._open, abandon_on_cancel=True)

    def _open(self) -> Wire:
        with self._guard:
            if self._client is not None:
                return self._client
            try:
                sdk = importlib.import_module("callboard.runtime.models.sdk")
                sdk.rehearse(self.provider)
                client: Wire = sdk.Client(self.provider, self._key, self.url, self._read_s)
            except (ImportError, AttributeError) as error:
                raise ModelError(OLD_SDK.format(provider=self.provider, why=error)) from None
            self._client = client
            return client

    async def aclose(self) -> None:
        """(Trio) Close all connections; another request, of another runtime, would open new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def reply(self, prompt: Prompt, say: Say) -> Reply:
        """Ask, and ask again without what the server did not know; what it did not know is remembered."""
        client, dialect = await self._opened(), self._dialect
        for _ in range(2 * len(self.options) + 1):
            async with self._starting:  # so many in one round of the loop, and the others in the next ones
                await trio.lowlevel.checkpoint()
            write = functools.partial(self._request, prompt, dialect)
            large = len(prompt.messages) > IN_PLACE_MESSAGES_MAX
            request = await trio.to_thread.run_sync(write, abandon_on_cancel=True) if large else write()
            try:
                return await self._answer(client, request, say)
            except Refused as refused:
                change = learned(self.options, refused.refusal, refused.param, request.sent)
                if change is None:
                    raise judged(refused.refusal, self._asked) from None
                dialect = attrs.evolve(dialect, **change.gone)
                if not change.once:
                    self._dialect = attrs.evolve(self._dialect, **change.gone)
            except Unreached as error:
                raise unreachable(error, self._asked) from None
        raise ModelError(f"{self._asked.host} refused every form of the request.")

    async def _answer(self, client: Wire, request: Request, say: Say) -> Reply:
        made = request.answering(say)
        taking = Taking(made, self._asked.host, say)
        try:
            await client.ask(self._path, request.body, taking.kind, taking.take)
            taking.finish()
        except Unreadable as error:
            raise ModelError(BAD_STREAM.format(host=self._asked.host, why=error), retryable=True) from None
        reply = made.reply()
        if reply.usage is None and not self._usage_missed:
            self._usage_missed = True
            LOGGER.warning(NO_USAGE, f"{self.provider}:{self.name} at {self._asked.host}")
        return reply


def encoded(body: Mapping[str, Any]) -> bytes:
    """The JSON of a body; characters that UTF-8 cannot say become marks."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return json.dumps(body, ensure_ascii=False, default=_decoded).encode("utf-8", "replace")


def _decoded(raw: msgspec.Raw) -> Any:
    """A part that stands in a body as JSON already."""
    return json.loads(bytes(raw))


class Taking:
    """Takes the bytes of an answer: a stream of events, or the whole of it where a server does not stream."""

    def __init__(self, made: Answering, host: str, say: Say) -> None:
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
            if not self._made.done:  # what follows the last event that counts is nothing
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

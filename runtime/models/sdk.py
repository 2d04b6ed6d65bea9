"""The one module that knows the SDKs of providers: they take a second to import, so it is used first in a thread.

OpenAI's and Anthropic's are made by one generator, and what is used here is the same in both.
"""

import importlib
import logging
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

import httpx2
import trio

from callboard.runtime.models.pools import Pools, proxied
from callboard.runtime.models.refusals import Refused, Unreached, refusal_of
from callboard.runtime.models.wire import on_loopback

CONNECT_S: Final = 10.0
WRITE_S: Final = 60.0
CLOSE_S: Final = 0.05  # half an abort window: closing a stream that is cancelled takes no round trip
DRAIN_S: Final = 0.1  # what follows the last event is read so long, so that the connection can be used again
STREAM: Final = "text/event-stream"


Name: TypeAlias = Literal["openai", "anthropic"]
CLIENTS: Final[Mapping[Name, str]] = {"openai": "AsyncOpenAI", "anthropic": "AsyncAnthropic"}
PLAIN: Final[Mapping[Name, Mapping[str, Any]]] = {"openai": {}, "anthropic": {"open_telemetry": False}}


class Client:
    """One connection pool to one server; made in a thread, used on Trio, closed at the end."""

    def __init__(
        self, sdk: Name, key: str, url: str, read_s: float, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        self._sdk: Any = importlib.import_module(sdk)
        if transport is None and (on_loopback(url) or not proxied(url)):
            transport = Pools(url)
        self._client = getattr(self._sdk, CLIENTS[sdk])(
            api_key=key,
            base_url=url,
            max_retries=0,
            timeout=httpx2.Timeout(connect=CONNECT_S, read=read_s, write=WRITE_S, pool=CONNECT_S),
            http_client=self._sdk.DefaultAsyncHttpxClient(
                follow_redirects=False,
                trust_env=transport is None,  # no proxy stands between two programs of one machine
                **({} if transport is None else {"transport": transport}),
            ),
            **PLAIN[sdk],
        )

    async def ask(self, path: str, body: bytes, kind: Callable[[str], None], take: Callable[[bytes], bool]) -> None:
        """Send a request and hand over its answer piece by piece, until `take` has all it needs.

        `kind` is told the content type first. Raises `Refused` and `Unreached`. Cancelled, it closes the connection.
        """
        sdk, response = self._sdk, None
        try:
            stream = await self._client.post(
                path,
                cast_to=object,
                content=body,
                options={"headers": {"Content-Type": "application/json", "Accept": STREAM}},
                stream=True,
                stream_cls=sdk.AsyncStream[object],
            )
            response = stream.response
            kind(response.headers.get("content-type", STREAM))
            await _read(response, take)
        except sdk.APIStatusError as error:
            status, headers = error.status_code, _plain(error.response.headers)
            param = str(getattr(error, "param", None) or "")
            raise Refused(refusal_of(error.body, status=status, headers=headers), param) from None
        except (sdk.APIConnectionError, httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise Unreached from error
        finally:
            if response is not None and not response.is_closed:
                with trio.CancelScope(deadline=trio.current_time() + CLOSE_S, shield=True):
                    await response.aclose()

    async def aclose(self) -> None:
        """(Trio) Close all connections."""
        await self._client.close()


async def _read(response: httpx2.Response, take: Callable[[bytes], bool]) -> None:
    chunks = response.aiter_bytes()
    try:
        async for chunk in chunks:
            if take(chunk):
                with trio.move_on_after(DRAIN_S):
                    async for _ in chunks:
                        pass
                return
    finally:  # generators inside generators end by running to their end, or by being cancelled, and in no other way
        with trio.CancelScope(deadline=-math.inf, shield=True):
            async for _ in chunks:
                pass


def _plain(headers: httpx2.Headers) -> Mapping[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def rehearse(sdk: Name) -> None:
    """Go through one request without a network, so that whatever is made at the first one is made here, in a thread."""

    def answered(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": STREAM}, content=b"data: {}\n\ndata: [DONE]\n\n")

    async def asked() -> None:
        client = Client(sdk, "none", "http://127.0.0.1/v1", CONNECT_S, httpx2.MockTransport(answered))
        try:
            await client.ask("/rehearsed", b"{}", lambda _: None, lambda _: False)
        finally:
            await client.aclose()

    here = threading.get_ident()

    def others(record: logging.LogRecord) -> bool:
        return record.thread != here

    logger = logging.getLogger("httpx2")  # it tells of each request, and this is none
    logger.addFilter(others)
    try:
        trio.run(asked)
    finally:
        logger.removeFilter(others)

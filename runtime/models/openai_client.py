"""The one module that knows OpenAI's SDK: it takes a second to import, so it is imported in a thread."""

import math
from collections.abc import Callable, Mapping
from typing import Final

import httpx2
import openai
import trio

from callboard.runtime.models.refusals import Refused, Unreached, refusal_of
from callboard.runtime.models.wire import on_loopback

CONNECT_S: Final = 10.0
WRITE_S: Final = 60.0
CLOSE_S: Final = 0.05  # half an abort window: closing a stream that is cancelled takes no round trip
DRAIN_S: Final = 0.1  # what follows the last event is read so long, so that the connection can be used again
IDLE_MAX: Final = 256  # connections that are kept open
STREAM: Final = "text/event-stream"


class Client:
    """One connection pool to one server; made in a thread, used on Trio, closed at the end."""

    def __init__(self, key: str, url: str, read_s: float, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=IDLE_MAX)
        self._client = openai.AsyncOpenAI(
            api_key=key,
            base_url=url,
            max_retries=0,
            timeout=httpx2.Timeout(connect=CONNECT_S, read=read_s, write=WRITE_S, pool=CONNECT_S),
            http_client=openai.DefaultAsyncHttpxClient(
                limits=limits,
                follow_redirects=False,
                trust_env=not on_loopback(url),  # no proxy stands between two programs of one machine
                transport=transport,
            ),
        )

    async def ask(self, path: str, body: bytes, kind: Callable[[str], None], take: Callable[[bytes], bool]) -> None:
        """Send a request and hand over its answer piece by piece, until `take` has all it needs.

        `kind` is told the content type first. Raises `Refused` and `Unreached`. Cancelled, it closes the connection.
        """
        response: httpx2.Response | None = None
        try:
            stream = await self._client.post(
                path,
                cast_to=object,
                content=body,
                options={"headers": {"Content-Type": "application/json", "Accept": STREAM}},
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
            response = stream.response
            kind(response.headers.get("content-type", STREAM))
            await _read(response, take)
        except openai.APIStatusError as error:
            status, headers = error.status_code, _plain(error.response.headers)
            raise Refused(refusal_of(error.body, status=status, headers=headers), str(error.param or "")) from None
        except (openai.APIConnectionError, httpx2.HTTPError, httpx2.StreamError, OSError) as error:
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


def rehearse() -> None:
    """Go through one request without a network, so that whatever is made at the first one is made here, in a thread."""

    def answered(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": STREAM}, content=b"data: {}\n\ndata: [DONE]\n\n")

    async def asked() -> None:
        client = Client("none", "http://127.0.0.1/v1", CONNECT_S, httpx2.MockTransport(answered))
        try:
            await client.ask("/responses", b"{}", lambda _: None, lambda _: False)
        finally:
            await client.aclose()

    trio.run(asked)

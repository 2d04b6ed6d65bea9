"""Connections to one server, in many small pools: a pool looks at all its connections at each request and each end."""

import ssl
from collections.abc import AsyncIterator, Callable
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import attrs
import httpx2

BUSY_MAX: Final = 16  # answers under way in one pool
IDLE_MAX: Final = 256  # connections that are kept open


def proxied(url: str) -> bool:
    """Whether the environment names a proxy for an address."""
    parts, proxies = urlsplit(url), getproxies()
    return (parts.scheme in proxies or "all" in proxies) and not proxy_bypass(parts.hostname or "")


@attrs.define
class Pool:
    """One of them, and how many answers are under way in it."""

    transport: httpx2.AsyncBaseTransport
    busy: int = 0


class Pools(httpx2.AsyncBaseTransport):
    """Takes the first pool with room for one more answer, so that those that are open already are used again."""

    def __init__(self, url: str, make: Callable[..., httpx2.AsyncBaseTransport] = httpx2.AsyncHTTPTransport) -> None:
        self._make = make
        self._verify: ssl.SSLContext | bool = httpx2.create_ssl_context() if url.startswith("https") else False
        self._pools: list[Pool] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Ask in one of them, which counts it until its answer is closed."""
        pool = next((one for one in self._pools if one.busy < BUSY_MAX), None) or self._another()
        pool.busy += 1
        answered = False
        try:
            response = await pool.transport.handle_async_request(request)
            answered = True
        finally:
            pool.busy -= not answered
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        stream = Counted(response.stream, pool)
        return httpx2.Response(
            status_code=response.status_code, headers=response.headers, stream=stream, extensions=response.extensions
        )

    def _another(self) -> Pool:
        idle_max = BUSY_MAX if len(self._pools) < IDLE_MAX // BUSY_MAX else 0
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=idle_max)
        pool = Pool(self._make(verify=self._verify, limits=limits))
        self._pools.append(pool)
        return pool

    async def aclose(self) -> None:
        """Close all connections."""
        for pool in self._pools:
            await pool.transport.aclose()


class Counted(httpx2.AsyncByteStream):
    """The bytes of an answer; when they are closed it is no longer under way."""

    def __init__(self, stream: httpx2.AsyncByteStream, pool: Pool) -> None:
        self._stream, self._pool, self._open = stream, pool, True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield chunk

    async def aclose(self) -> None:
        """Close it; harmless when it is."""
        if self._open:
            self._open = False
            self._pool.busy -= 1
        await self._stream.aclose()

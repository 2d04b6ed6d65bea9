"""Connections in small pools: each answer is counted until it is closed, whatever becomes of it."""

from collections.abc import AsyncIterator

import httpx2
import pytest
import trio

from callboard.runtime.models.pools import BUSY_MAX, IDLE_MAX, Pools, proxied

ASKED = httpx2.Request("POST", "http://127.0.0.1/v1")


class Words(httpx2.AsyncByteStream):
    """An answer of two pieces."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"


class Transport(httpx2.AsyncBaseTransport):
    """Answers, unless it is told to fail or to hang; keeps what it was made with."""

    fails = hangs = closed = False

    def __init__(self, verify: object, limits: httpx2.Limits) -> None:
        self.verify, self.limits, self.asked = verify, limits, 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked += 1
        if self.fails:
            raise OSError("no")
        if self.hangs:
            await trio.sleep_forever()
        return httpx2.Response(200, stream=Words())

    async def aclose(self) -> None:
        self.closed = True


def test_each_pool_holds_so_many_answers_and_the_first_with_room_is_taken():
    """Answers that are closed make room again, once each."""

    async def main() -> None:
        pools = Pools("http://127.0.0.1", Transport)
        answers = [await pools.handle_async_request(ASKED) for _ in range(2 * BUSY_MAX + 1)]
        assert [one.busy for one in pools._pools] == [BUSY_MAX, BUSY_MAX, 1]
        assert b"ab" == await answers[0].aread()
        for _ in range(3):
            await answers[0].aclose()
        await answers[BUSY_MAX].aclose()
        assert [one.busy for one in pools._pools] == [BUSY_MAX - 1, BUSY_MAX - 1, 1]
        await pools.handle_async_request(ASKED)
        assert [one.busy for one in pools._pools] == [BUSY_MAX, BUSY_MAX - 1, 1]
        await pools.aclose()
        assert all(getattr(one.transport, "closed", False) for one in pools._pools)

    trio.run(main)


def test_what_fails_or_is_cancelled_is_under_way_no_more(monkeypatch):
    """No place is lost by an answer that never came."""

    async def main() -> None:
        pools = Pools("http://127.0.0.1", Transport)
        monkeypatch.setattr(Transport, "fails", True)
        with pytest.raises(OSError, match="no"):
            await pools.handle_async_request(ASKED)
        monkeypatch.setattr(Transport, "fails", False)
        monkeypatch.setattr(Transport, "hangs", True)
        with trio.move_on_after(0.01):
            await pools.handle_async_request(ASKED)
        assert [one.busy for one in pools._pools] == [0]

    trio.run(main)


def test_so_many_connections_are_kept_and_no_more():
    """Pools beyond the bound keep none; the certificates are read once, and not at all for plain http."""

    async def main() -> None:
        pools = Pools("https://host", Transport)
        for _ in range(IDLE_MAX + BUSY_MAX + 1):
            await pools.handle_async_request(ASKED)
        made = [one.transport for one in pools._pools]
        kept = [one.limits.max_keepalive_connections for one in made if isinstance(one, Transport)]
        assert kept == [*[BUSY_MAX] * (IDLE_MAX // BUSY_MAX), 0, 0]
        assert len({id(one.verify) for one in made if isinstance(one, Transport)}) == 1
        assert Pools("http://host", Transport)._verify is False

    trio.run(main)


def test_a_proxy_is_the_environments_business(monkeypatch):
    """Where it names one, the SDK's own way of connecting is kept."""
    for name in (
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    assert not proxied("https://api.openai.com/v1")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    assert proxied("https://api.openai.com/v1")
    assert not proxied("http://api.openai.com/v1")
    monkeypatch.setenv("no_proxy", "openai.com")
    assert not proxied("https://api.openai.com/v1")

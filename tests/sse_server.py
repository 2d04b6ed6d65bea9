"""A loopback HTTP server that answers from a script: bytes cut anywhere, late or broken off; it keeps what it heard."""

import asyncio
import itertools
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, TypeAlias

import attrs

REASONS: Mapping[int, str] = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Slow Down"}
CUTS: TypeAlias = Literal["", "close", "reset", "hang"]


@attrs.frozen
class Piece:
    """Bytes that go out after `delay_s`, and what follows them: nothing, the connection's end, a reset, or silence."""

    body: bytes = b""
    delay_s: float = 0.0
    cut: CUTS = ""


@attrs.frozen(kw_only=True)
class Answer:
    """What one request is answered. `framing` "close": the body ends with the connection, as HTTP/1.0 has it."""

    pieces: Sequence[Piece | bytes] = ()
    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=dict)
    framing: Literal["chunked", "close", "length"] = "chunked"


@attrs.define
class Heard:
    """One request as it came; `closed_s` is when its connection ended with it, on the steady clock."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    heard_s: float
    closed_s: float | None = None
    closed: threading.Event = attrs.field(factory=threading.Event)

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


Script: TypeAlias = "Callable[[Heard], Answer] | Sequence[Answer]"


def sse(*events: Any, names: bool = True, end: str = "\n") -> bytes:
    """Events as they stand in a stream: objects with their type as the name, texts as they are."""
    made = []
    for event in events:
        data = event if isinstance(event, str) else json.dumps(event, separators=(",", ":"))
        name = f"event: {event['type']}{end}" if names and isinstance(event, Mapping) and "type" in event else ""
        made.append(f"{name}data: {data}{end}{end}")
    return "".join(made).encode()


def answer(*events: Any, **more: Any) -> Answer:
    """A stream of these events, whole and at once."""
    return Answer(pieces=(sse(*events),), **more)


def refusal(status: int, body: Any, **headers: str) -> Answer:
    """An error, as JSON or as a text; underscores in names of headers stand for dashes."""
    text = body if isinstance(body, str) else json.dumps(body)
    kind = "text/html" if isinstance(body, str) else "application/json"
    named = {"content-type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return Answer(pieces=(text.encode(),), status=status, headers=named, framing="length")


def in_pieces(body: bytes, *at: int, delay_s: float = 0.0) -> tuple[Piece, ...]:
    """A body cut at these places."""
    ends = [0, *sorted(at), len(body)]
    return tuple(Piece(body[a:b], delay_s) for a, b in itertools.pairwise(ends) if b > a)


class SseServer:
    """The server while it runs: `url`, and `heard`, all requests so far."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._asked = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sse server", daemon=True)
        self.heard: list[Heard] = []
        self.port = 0

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen on a free port."""
        self._thread.start()
        assert self._ready.wait(10)

    def stop(self) -> None:
        """Cut every connection and end."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=1 << 26, backlog=2048)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await asyncio.sleep(0.001)  # transports close their sockets one round later

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        last: list[Heard] = []
        try:
            while await self._request(reader, writer, last):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # the client went, or the server stops
        finally:
            self._writers.discard(writer)
            writer.close()
            for heard in last:
                heard.closed_s = heard.closed_s or time.perf_counter()
                heard.closed.set()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, last: list[Heard]) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        named = (line.partition(":") for line in head[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in named}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        heard = Heard(method, path, headers, body, time.perf_counter())
        self.heard.append(heard)
        last[:] = [heard]
        number, self._asked = self._asked, self._asked + 1
        made = self._script(heard) if callable(self._script) else self._script[min(number, len(self._script) - 1)]
        watch = asyncio.ensure_future(self._watch(reader, heard))
        try:
            return await self._send(writer, made, heard)
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch

    async def _watch(self, reader: asyncio.StreamReader, heard: Heard) -> None:
        """Note when the client closes; it sends nothing while it is answered."""
        buffer: bytearray = reader._buffer  # type: ignore[attr-defined]
        with suppress(ConnectionError):
            while not reader.at_eof() and not buffer:
                await reader._wait_for_data("watch")  # type: ignore[attr-defined]
        if reader.at_eof() or reader.exception() is not None:
            heard.closed_s = time.perf_counter()
            heard.closed.set()

    async def _send(self, writer: asyncio.StreamWriter, made: Answer, heard: Heard) -> bool:
        pieces = [piece if isinstance(piece, Piece) else Piece(piece) for piece in made.pieces]
        headers = {"content-type": "text/event-stream", **made.headers}
        if made.framing == "chunked":
            headers["transfer-encoding"] = "chunked"
        elif made.framing == "length":
            headers["content-length"] = str(sum(len(piece.body) for piece in pieces))
        else:
            headers["connection"] = "close"
        lines = (f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {made.status} {REASONS.get(made.status, 'So')}\r\n{''.join(lines)}\r\n".encode())
        for piece in pieces:
            if piece.delay_s:
                await writer.drain()
                await asyncio.sleep(piece.delay_s)
            if piece.body:
                chunked = made.framing == "chunked"
                writer.write(b"%x\r\n%s\r\n" % (len(piece.body), piece.body) if chunked else piece.body)
                await writer.drain()
            if piece.cut:
                await self._cut(writer, piece.cut, heard)
                return False
            if len(pieces) > 1:
                await asyncio.sleep(0)
        if made.framing == "chunked":
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return made.framing != "close"

    async def _cut(self, writer: asyncio.StreamWriter, cut: CUTS, heard: Heard) -> None:
        if cut == "hang":
            while not heard.closed.is_set():
                await asyncio.sleep(0.0005)
        elif cut == "reset":
            raw: socket.socket = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


@contextmanager
def sse_server(script: Script) -> Iterator[SseServer]:
    """A server for the length of a test."""
    server = SseServer(script)
    server.start()
    try:
        yield server
    finally:
        server.stop()

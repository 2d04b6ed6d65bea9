"""The one module that knows the SDK of MCP: it takes a second to import, so it is imported in a thread."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import anyio
import httpx2
import mcp_types as types
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from jsonschema.exceptions import SchemaError  # type: ignore[import-untyped]
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from callboard.plugins.mcp_lines import MESSAGE_MAX_BYTES, TooLong
from callboard.plugins.mcp_tools import TOOLS_MAX

PAGES_MAX = 32
ANSWER_S = 30.0  # until a server begins to answer an HTTP request, and between two pieces of what it streams
STREAM_S = 600.0

TOO_LARGE = f"the answer was larger than {MESSAGE_MAX_BYTES:,} bytes and was not kept"
ENCODED = "the answer came compressed, which was not asked for"
WANTS_INPUT = "the server asked for input during the call (elicitation, sampling or roots), which is not supported here"
GONE = ("Connection closed", "Session terminated")

Item = SessionMessage | Exception
CALL_RESULT: Final[TypeAdapter[Any]] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)


class Refused(Exception):
    """A server answered with an error, or with what is no answer; the text is its own."""


class Gone(Exception):
    """The connection ended before the answer came."""


class Pipe:
    """Messages from and to a server, for the SDK: `take` lines that came, `sent` gives those that go."""

    def __init__(self) -> None:
        self._came: MemoryObjectSendStream[Item]
        self._goes: MemoryObjectReceiveStream[SessionMessage]

    async def take(self, line: bytes | TooLong) -> str | None:
        """Hand on a line; what is wrong with one that is no message, which is left out."""
        if isinstance(line, TooLong):
            if line.answers is None:
                return f"a message of {line.size:,} bytes is left out: it is too large"
            error = types.ErrorData(code=types.INTERNAL_ERROR, message=TOO_LARGE)
            message: Any = types.JSONRPCError(jsonrpc="2.0", id=line.answers, error=error)
        else:
            try:
                message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                return "a line on its standard output is no message: " + repr(line[:80])
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._came.send(SessionMessage(message))
        return None

    def over(self) -> None:
        """Nothing comes any more."""
        self._came.close()

    async def sent(self) -> bytes | None:
        """The next line that goes to the server; None when there will be no more."""
        try:
            one = await self._goes.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            return None
        return one.message.model_dump_json(by_alias=True, exclude_unset=True).encode("utf-8", "replace") + b"\n"

    def hush(self) -> None:
        """Nothing goes any more: who still has something to say is not kept."""
        self._goes.close()

    @contextlib.asynccontextmanager
    async def streams(self) -> AsyncIterator[tuple[Any, Any]]:
        """What the SDK reads and writes."""
        self._came, read = anyio.create_memory_object_stream[Item](0)
        write, self._goes = anyio.create_memory_object_stream[SessionMessage](0)
        with self._came, read, write, self._goes:
            yield read, write


class Reading:
    """What the SDK reads of a server: lists of tools made harmless on the way, and the end told to `over`."""

    def __init__(self, inner: Any, over: Callable[[], object]) -> None:
        self._inner, self._over = inner, over

    @property
    def last_context(self) -> Any:
        """What the SDK keeps beside a message."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Item:
        """The next message."""
        try:
            item: Item = await self._inner.receive()
        except anyio.EndOfStream:
            self._over()
            raise
        if isinstance(item, SessionMessage) and isinstance(item.message, types.JSONRPCResponse):
            plain_list(item.message.result)
        return item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Read no more."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def plain_list(result: dict[str, Any]) -> None:
    """Keep of a list of tools what is used here, so that one that lies does not take the others with it."""
    found = result.get("tools")
    if not isinstance(found, list):
        return
    kept = []
    for one in found[: TOOLS_MAX + 1]:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            continue
        schema, said, hints = one.get("inputSchema"), one.get("description"), one.get("annotations")
        plain: dict[str, Any] = {"name": one["name"], "inputSchema": schema}
        if not isinstance(schema, dict) or schema.get("type") != "object":
            plain["inputSchema"] = {"type": "object", LYING: True}
        if isinstance(said, str):
            plain["description"] = said
        if isinstance(hints, dict):
            plain["annotations"] = {k: v for k, v in hints.items() if k.endswith("Hint") and isinstance(v, bool)}
        kept.append(plain)
    result["tools"] = kept


LYING: Final = "x-callboard-not-an-object"


class Session:
    """One initialised connection."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def about(self) -> str:
        """What the server says it is, and the revision of the protocol that is spoken."""
        info = self._client.server_info
        name = f"{info.name} {info.version}, " if info is not None else ""
        return f"{name}protocol {self._client.protocol_version}"

    async def tools(self) -> list[dict[str, Any]]:
        """All its tools as plain data; `Refused` where it has no list."""
        if self._client.server_capabilities.tools is None:
            return []
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            with _told():
                page = await self._client.list_tools(cursor=cursor)
            for one in page.tools:
                plain = one.model_dump(by_alias=True, exclude_none=True)
                if LYING in plain["inputSchema"]:
                    plain["inputSchema"] = None
                found.append(plain)
            cursor = page.next_cursor
            if cursor is None or len(found) > TOOLS_MAX:
                break
        return found

    async def call(
        self, name: str, arguments: dict[str, Any], show: Callable[[float, float | None, str | None], None]
    ) -> Mapping[str, Any]:
        """The result of one call as plain data. Cancelled, it tells the server. Raises `Refused` and `Gone`."""

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            show(progress, total, message)

        request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
        with _told():
            result = await self._client.session.send_request(request, CALL_RESULT, progress_callback=on_progress)
        if not isinstance(result, types.CallToolResult):
            raise Refused(WANTS_INPUT)
        return result.model_dump(by_alias=True, exclude_none=True)

    async def listen(self, changed: Callable[[], object]) -> None:
        """Tell of changed lists, where the server has to be asked to; returns when it will not tell."""
        capability = self._client.server_capabilities.tools
        if self._client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not (
            capability and capability.list_changed
        ):
            return
        with contextlib.suppress(MCPError, SubscriptionLost, TimeoutError, RuntimeError):
            async with self._client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    changed()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Errors of the SDK in our words."""
    try:
        yield
    except MCPError as error:
        if error.message in GONE:
            raise Gone(error.message) from None
        raise Refused(error.message) from None
    except ValidationError as error:
        raise Refused(f"the server's answer does not follow the protocol ({error.error_count()} errors)") from None
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream):
        raise Gone("closed") from None


class Streams(AbstractAsyncContextManager[tuple[Any, Any]]):
    """Streams of any kind as a transport of the SDK."""

    def __init__(self, inner: AbstractAsyncContextManager[tuple[Any, Any]], over: Callable[[], object]) -> None:
        self._inner, self._over = inner, over

    async def __aenter__(self) -> tuple[Any, Any]:
        read, write = await self._inner.__aenter__()
        return Reading(read, self._over), write

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


@contextlib.asynccontextmanager
async def connected(
    streams: AbstractAsyncContextManager[tuple[Any, Any]],
    *,
    version: str,
    over: Callable[[], object],
    changed: Callable[[], object],
) -> AsyncIterator[Session]:
    """A session over streams; `over` is told when nothing comes any more, `changed` when its tools may have changed.

    It offers no sampling, no elicitation and no roots: a server that asks for them is told so.
    """

    async def hear(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed()

    client = Client(
        Streams(streams, over),
        client_info=types.Implementation(name="callboard", version=version),
        message_handler=hear,
        cache=None,
    )
    try:
        async with client:
            yield Session(client)
    except MCPError as error:
        raise Refused(error.message) from None


class Bounded(httpx2.AsyncBaseTransport):
    """HTTP whose answers are no longer than a message may be; of what is streamed each event is bounded instead."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Ask, and count what comes."""
        request.headers["Accept-Encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.DecodingError(ENCODED, request=request)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = Counted(response.stream)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class Counted(httpx2.AsyncByteStream):
    """A body that breaks off when it becomes too long."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MESSAGE_MAX_BYTES
        async for piece in self._inner:
            left -= len(piece)
            if left < 0:
                raise httpx2.StreamError(TOO_LARGE)
            yield piece

    async def aclose(self) -> None:
        """Close it."""
        await self._inner.aclose()


def _http_client(headers: Mapping[str, str], *, direct: bool) -> httpx2.AsyncClient:
    """(a thread: it reads certificates) A client that counts what comes."""
    client = httpx2.AsyncClient(
        headers=dict(headers),
        timeout=httpx2.Timeout(ANSWER_S, read=STREAM_S),
        transport=Bounded(httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=None))) if direct else None,
        trust_env=not direct,
    )
    if not direct:
        client._transport = Bounded(client._transport)
        client._mounts = {at: one and Bounded(one) for at, one in client._mounts.items()}
    return client


@contextlib.asynccontextmanager
async def over_http(url: str, headers: Mapping[str, str], *, direct: bool) -> AsyncIterator[tuple[Any, Any]]:
    """Streams to a server with streamable HTTP; `direct` asks no proxy of the environment."""
    client = await trio.to_thread.run_sync(partial(_http_client, headers, direct=direct), abandon_on_cancel=True)
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=MESSAGE_MAX_BYTES) as streams:
        yield streams


def schema_flaw(schema: Any) -> str | None:
    """What is wrong with a schema by the rules of JSON schema; None for one that holds."""
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return f"{error.message[:200]} at {error.json_path[:80]}"
    return None


def rehearse() -> None:
    """Go through one connection without a server, so that what is made at the first one is made here, in a thread."""
    schema_flaw({"type": "object"})

    async def serve(pipe: Pipe) -> None:
        while line := await pipe.sent():
            if b'"id"' not in line:
                continue
            asked = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            assert isinstance(asked, types.JSONRPCRequest)
            answer = REHEARSED.get(asked.method)
            if answer is None:
                error = types.ErrorData(code=types.METHOD_NOT_FOUND, message="no")
                said: Any = types.JSONRPCError(jsonrpc="2.0", id=asked.id, error=error)
            else:
                said = types.JSONRPCResponse(jsonrpc="2.0", id=asked.id, result=dict(answer))
            await pipe.take(said.model_dump_json(by_alias=True, exclude_none=True).encode())

    async def once() -> None:
        pipe = Pipe()
        async with pipe.streams() as streams, trio.open_nursery() as nursery:
            nursery.start_soon(serve, pipe)
            inner = contextlib.nullcontext(streams)
            async with connected(inner, version="0", over=lambda: None, changed=lambda: None) as session:
                await session.tools()
                await session.call("a", {}, lambda *_: None)
            nursery.cancel_scope.cancel()

    trio.run(once)


REHEARSED: Final[Mapping[str, Mapping[str, Any]]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "none", "version": "0"},
    },
    "tools/list": {"tools": [{"name": "a", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "a"}]},
}

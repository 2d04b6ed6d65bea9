"""mcp: a connection to a server of tools: opens it, lists its tools, carries calls, and says why it is down.

The connection owns the client and all that belongs to it; a session owns only its calls, and leaves one at once.
"""

import contextlib
import importlib
import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping
from importlib.util import find_spec
from typing import Any, Final, Literal, Protocol, TypeAlias

import attrs
import trio

from callboard.actors.errors import Expected, MissingExtra, ToolError
from callboard.actors.plugin import Failed, View
from callboard.plugins.mcp_program import CLOSE_S, LOGGED_LINES_MAX, SAID_MAX_CHARS, Program
from callboard.plugins.mcp_results import FAILED, has_failed, text_of
from callboard.plugins.mcp_server import NotReachable, Reach, Server, reach_of
from callboard.plugins.mcp_talk import Talk, backoff_s
from callboard.plugins.mcp_tools import Arguments, Listed, ServerTool, list_tools, plain_line

LOGGER: Final = logging.getLogger("callboard.mcp")
SESSION: Final = "callboard.plugins.mcp_session"

CALLS_MAX = 64  # side by side to one server; others wait for one of them to end
STEADY_S = 10.0  # a connection that lasted so long was a good one
SHUTDOWN_S = 3 * CLOSE_S + 1.0
RELIST_S = 1.0  # at least between two lists that a server says have changed

DOWN = "The MCP server {server} is {phase}{why}. {again} The call did not run."
AGAIN_IN = "It is tried again in {seconds:.0f} s."
AGAIN_NOW = "It is tried again right now."
SOON = "It is being connected: try again in a moment."
STOPPED = "It is not tried again."
LOST = "The MCP server {server} was lost during this call{why}: whether the call took effect is not known."
SILENT = "it did not answer within {seconds:g} s"
CLOSED = "it closed the connection"
REFUSED = "The MCP server {server} refused the call: {why}"
NEEDED_BY = "[mcp]"

Phase: TypeAlias = Literal["waiting", "connecting", "ready", "stopped"]


class ServerLost(Expected):
    """A connection ended; the text says why."""


class Session(Protocol):
    """One initialised connection, as the SDK gives it."""

    @property
    def about(self) -> str:
        """What the server is."""
        ...

    async def tools(self) -> list[dict[str, Any]]:
        """All its tools."""
        ...

    async def call(
        self, name: str, arguments: dict[str, Any], show: Callable[[float, float | None, str | None], None]
    ) -> Mapping[str, Any]:
        """One call."""
        ...

    async def listen(self, changed: Callable[[], object]) -> None:
        """Tell of changed lists, as far as that has to be asked for."""
        ...


@attrs.frozen
class ServerRecord:
    """A connection at one moment, for those who look at it."""

    phase: Phase
    tools: int
    calls: int
    retry_in_s: float | None = None
    error: str = ""


class Sdk:
    """The SDK, imported once and in a thread; and what connections do one after the other, so that no loop waits."""

    @staticmethod
    def check() -> None:
        """`MissingExtra` where it is not installed."""
        if any(find_spec(name) is None for name in ("mcp", "mcp_types")):
            raise MissingExtra(NEEDED_BY, "mcp")

    def __init__(self) -> None:
        self._lock = trio.Lock()
        self._module: Any = None
        self.starting = trio.Lock()
        self.reading = trio.CapacityLimiter(1)  # many threads that compute would keep the loops from the interpreter

    async def get(self) -> Any:
        """(Trio) The module that knows it, warm."""
        async with self._lock:
            if self._module is None:
                self._module = await trio.to_thread.run_sync(_imported, abandon_on_cancel=True)
        return self._module


def _imported() -> Any:
    module = importlib.import_module(SESSION)
    for name in ("mcp", "client"):  # its loggers: what a server makes them say goes where logs go, and nowhere else
        logging.getLogger(name).addHandler(logging.NullHandler())
    module.rehearse()
    return module


@attrs.define(eq=False)
class Live:
    """A connection that is up: its session, the nursery of its calls, and whether it is lost."""

    session: Session
    nursery: trio.Nursery
    refused: type[Exception]
    gone: type[Exception]
    room: trio.Semaphore = attrs.field(factory=lambda: trio.Semaphore(CALLS_MAX))


class Connection:
    """One server; `run` lives as long as one connection to it, and its supervisor runs it again.

    `on_change` is told when its tools or its phase changed. `jitter` answers numbers in 0..1.
    """

    def __init__(
        self,
        server: Server,
        sdk: Sdk,
        version: str,
        on_change: Callable[[], object],
        jitter: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self._jitter = jitter
        self.server, self._sdk, self._version, self._on_change = server, sdk, version, on_change
        self.phase: Phase = "connecting"
        self.tools: tuple[ServerTool, ...] = ()
        self.tried = False  # whether the first attempt is over
        self._live: Live | None = None
        self._calls = 0
        self._began_s: float | None = None  # when this connection was ready
        self._failures, self._retry_at_s, self._error = 0, 0.0, ""
        self._program: Program | None = None
        self._flaws: set[str] = set()
        self._lost, self._changed, self._leaving = trio.Event(), trio.Event(), False
        self._scope: trio.CancelScope | None = None
        self._now_s: Callable[[], float] = lambda: 0.0
        self._reach: Reach | None = None

    # -- what others ask ---------------------------------------------------------------------------------------------

    def record(self) -> ServerRecord:
        """How it is now."""
        retry_in_s = max(0.0, self._retry_at_s - self._now_s()) if self.phase == "waiting" else None
        return ServerRecord(self.phase, len(self.tools), self._calls, retry_in_s, self._error)

    def body(self, tool: str) -> Callable[..., Any]:
        """What a call of one of its tools does."""

        async def call(arguments: Arguments, view: View) -> str | Failed:
            return await self.call(tool, arguments.given, view.output)

        return call

    async def call(self, tool: str, arguments: dict[str, Any], show: Callable[[str], None]) -> str | Failed:
        """(Trio) Call a tool; answers at once while it is down, and whatever becomes of it. Cancelled, it leaves."""
        live = self._live
        if live is None:
            return Failed(self._down())
        talk = Talk(show)
        self._calls += 1
        live.nursery.start_soon(self._ask, live, talk, tool, arguments)
        try:
            await talk.over.wait()
        finally:
            self._calls -= 1
            talk.over.set()
            talk.scope.cancel()
        assert talk.result is not None
        return talk.result

    async def _ask(self, live: Live, talk: Talk, tool: str, arguments: dict[str, Any]) -> None:
        try:
            with talk.scope:
                async with live.room:
                    result = await live.session.call(tool, arguments, talk.progress)
                text = text_of(result)
                talk.end(Failed(text or FAILED) if has_failed(result) else text)
        except live.refused as error:
            talk.end(Failed(REFUSED.format(server=self.server.name, why=self._clean(str(error)))))
        except live.gone:
            self._lost.set()
        finally:
            talk.end(Failed(LOST.format(server=self.server.name, why=self._why(self._ended()))))

    def _down(self) -> str:
        wait_s = self._retry_at_s - trio.current_time()
        again = {"connecting": SOON, "stopped": STOPPED, "ready": SOON}.get(
            self.phase, AGAIN_IN.format(seconds=math.ceil(wait_s)) if wait_s > 0 else AGAIN_NOW
        )
        phase = "not connected yet" if self.phase == "connecting" else "down"
        return DOWN.format(server=self.server.name, phase=phase, why=self._why(self._error), again=again)

    def _why(self, error: str) -> str:
        return f" ({error})" if error else ""

    # -- its life ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask it to end: its calls are ended, its server is told, and a process gets a moment to leave."""
        self._leaving = True
        self._lost.set()
        if self.phase != "ready" and self._scope is not None:
            self._scope.cancel()

    async def run(self) -> None:
        """(Trio) Wait as long as earlier failures advise, connect, serve; raises `ServerLost` however that ends."""
        self._lost, self._changed = trio.Event(), trio.Event()
        self._now_s = trio.lowlevel.current_clock().current_time  # answers outside of Trio too, and after its end
        self._began_s = None
        with trio.CancelScope() as self._scope:
            try:
                if self._leaving:
                    return
                await self._rest()
                self._turn("connecting")
                await self._serve()
                self._error = self._ended() or CLOSED
            except Exception as error:  # whatever the SDK or a server's nonsense raises is the end of this connection
                self._error = self._told(error)
            finally:
                self._live, self.tried = None, True
                self._failures = 1 if self._was_steady() else self._failures + 1
                self._retry_at_s = trio.current_time() + backoff_s(self._failures, self._jitter())
                self._turn("stopped" if self._leaving else "waiting")
        if not self._leaving:
            raise ServerLost(f"MCP server {self.server.name}: {self._error}")

    def _was_steady(self) -> bool:
        return self._began_s is not None and trio.current_time() - self._began_s > STEADY_S

    def _hush(self) -> None:
        if self._program is not None:
            self._program.hush()

    async def _rest(self) -> None:
        if self._failures:
            await trio.sleep_until(self._retry_at_s)

    def _turn(self, phase: Phase) -> None:
        self.phase = phase
        self._on_change()

    async def _serve(self) -> None:
        sdk = await self._sdk.get()
        self._program = None
        self._reach = reach = reach_of(self.server)
        seconds = self.server.connect_s
        with trio.CancelScope(deadline=trio.current_time() + seconds) as scope:
            streams = (
                self._over_pipes(sdk, reach)
                if reach.argv
                else sdk.over_http(reach.url, reach.headers, direct=reach.direct)
            )
            connected = sdk.connected(streams, version=self._version, over=self._lost.set, changed=self._hear_change)
            async with connected as session, trio.open_nursery() as nursery:
                await self._list(sdk, session)
                scope.deadline = math.inf
                LOGGER.info("MCP server %s is connected: %s", self.server.name, self._clean(session.about))
                self._error, self.tried = "", True
                self._live, self._began_s = Live(session, nursery, sdk.Refused, sdk.Gone), trio.current_time()
                self._turn("ready")
                nursery.start_soon(session.listen, self._hear_change)
                nursery.start_soon(self._relist, sdk, session)
                try:
                    await self._lost.wait()
                finally:  # however this ends, nobody begins a call any more
                    self._live, self._retry_at_s = None, trio.current_time()
                self._turn("waiting")
                scope.deadline = trio.current_time() + SHUTDOWN_S
                self._hush()
                nursery.cancel_scope.cancel()
        if scope.cancelled_caught and not self._lost.is_set():
            raise ServerLost(SILENT.format(seconds=seconds) + self._last_words())

    def _hear_change(self) -> None:
        self._changed.set()

    async def _relist(self, sdk: Any, session: Session) -> None:
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            with trio.move_on_after(self.server.connect_s) as scope:
                try:
                    await self._list(sdk, session)
                except (sdk.Refused, sdk.Gone) as error:
                    LOGGER.warning("MCP server %s: no new list: %s", self.server.name, self._clean(str(error)))
                else:
                    self._on_change()
            if scope.cancelled_caught:
                LOGGER.warning("MCP server %s: no new list within %g s", self.server.name, self.server.connect_s)
            await trio.sleep(RELIST_S)

    async def _list(self, sdk: Any, session: Session) -> None:
        found = await session.tools()
        name, belief = self.server.name, self.server.belief

        def read() -> Listed:
            return list_tools(name, found, belief, self.body, sdk.schema_flaw)

        listed = await trio.to_thread.run_sync(read, abandon_on_cancel=True, limiter=self._sdk.reading)
        for flaw in [one for one in listed.flaws if one not in self._flaws][:LOGGED_LINES_MAX]:
            LOGGER.warning("MCP server %s: %s", name, flaw)
        self._flaws = set(listed.flaws)
        self.tools = listed.tools

    @contextlib.asynccontextmanager
    async def _over_pipes(self, sdk: Any, reach: Reach) -> AsyncIterator[tuple[Any, Any]]:
        program = self._program = Program(self.server.name, reach, self._clean, self._sdk.starting)
        async with program.streams(sdk.Pipe()) as streams:
            yield streams

    # -- words -------------------------------------------------------------------------------------------------------

    def _last_words(self) -> str:
        return self._program.last_words if self._program is not None else ""

    def _ended(self) -> str:
        return self._program.ended if self._program is not None else ""

    def _told(self, error: BaseException) -> str:
        """An error in a line; of a group its first leaf."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, (NotReachable, ServerLost, ToolError)):
            return self._clean(str(error))
        if self._ended():
            return self._ended()
        return self._clean(str(error) or type(error).__name__) + self._last_words()

    def _clean(self, text: str) -> str:
        text = self._reach.hide(text) if self._reach is not None else text
        return plain_line(text, SAID_MAX_CHARS)

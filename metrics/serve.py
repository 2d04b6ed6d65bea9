"""The text at /metrics, by prometheus-client's own threading server: bounded, and patient with nobody."""

import contextlib
import io
import logging
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeAlias
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client.exposition import ThreadingWSGIServer

from callboard.actors.errors import UsageError
from callboard.metrics.render import Page

CONNECTIONS_MAX = 16  # a scraper opens one
SILENCE_MAX_S = 5.0  # for a client that neither asks nor reads
CUT_MAX_S = 1.0  # for a cut connection to make room; a new one is closed unanswered after that
CLOSE_MAX_S = 1.0
PORT_MAX = 65_535
POLL_S = 0.05  # how soon the thread that accepts sees that it shall end

LOG = logging.getLogger("callboard.metrics")

TextSource: TypeAlias = Callable[[str], Page]
Answer: TypeAlias = tuple[str, list[tuple[str, str]], bytes]


def serve_metrics(text_source: TextSource, host: str = "127.0.0.1", port: int = 0) -> "Server":
    """Serve `text_source(accept_header)` at /metrics from threads; port 0 takes a free one.

    `Exposition.page` is such a source; it is called in the thread of the request. Raises `UsageError` when the address
    cannot be taken.
    """
    try:
        if not 0 <= port <= PORT_MAX:
            raise OSError(f"a port is at most {PORT_MAX}")
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = _Listener(family, address, text_source)
    except (OSError, TypeError) as error:
        raise UsageError(
            f"metrics cannot be served on {host}:{port} ({error}): "
            "choose another [metrics] port, or 0 for any free one."
        ) from error
    return Server(listener)


class Server:
    """A metrics endpoint that runs: `port` is where; `close` ends it."""

    def __init__(self, listener: "_Listener") -> None:
        self._listener = listener
        self.host, self.port = listener.server_name, listener.server_port
        self._thread = threading.Thread(
            target=listener.serve_forever, args=(POLL_S,), name="callboard-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening and cut every connection; may be repeated.

        Blocks, usually under `POLL_S`, and up to three seconds when a text is just being rendered for many.
        """
        self._listener.shutdown()
        self._thread.join(CLOSE_MAX_S)
        self._listener.server_close()
        self._listener.cut_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Listener(ThreadingWSGIServer):
    """A thread for each connection, at most `CONNECTIONS_MAX`: one more cuts the oldest, so silence blocks nobody."""

    request_queue_size = CONNECTIONS_MAX
    block_on_close = False
    allow_reuse_port = False  # a taken port is an error, whatever http.server thinks

    def __init__(self, family: int, address: Any, text_source: TextSource) -> None:
        self.address_family = family
        self._open: dict[socket.socket, None] = {}  # oldest first
        self._changed = threading.Condition()
        super().__init__(address, _Request)
        self.set_app(_app(text_source))

    def server_bind(self) -> None:
        """Bind without asking DNS for our own name, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread, and a place of the oldest if all are taken."""
        with self._changed:
            if len(self._open) >= CONNECTIONS_MAX:
                _cut(next(iter(self._open)))
            if not self._changed.wait_for(lambda: len(self._open) < CONNECTIONS_MAX, CUT_MAX_S):
                super().shutdown_request(request)
                return
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """The connection is over."""
        with self._changed:
            self._open.pop(request, None)
            super().shutdown_request(request)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away or fell silent is no news."""
        LOG.debug("a metrics connection broke off: %r", sys.exc_info()[1])

    def cut_all(self) -> None:
        """Cut what is open and wait for its threads, for at most `CLOSE_MAX_S`."""
        with self._changed:
            for request in self._open:
                _cut(request)
            self._changed.wait_for(lambda: not self._open, CLOSE_MAX_S)


class _Request(WSGIRequestHandler):
    """One request; errors of the text's source go to our logger, and requests are not logged at all."""

    timeout = SILENCE_MAX_S

    def get_stderr(self) -> Any:
        return _Complaints()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class _Complaints(io.StringIO):
    """Where wsgiref writes the traceback of an answer that failed; one log entry for each."""

    def flush(self) -> None:
        if text := self.getvalue():
            LOG.error("metrics could not be rendered: %s", text.rstrip())
            self.seek(0)
            self.truncate()


def _cut(connection: socket.socket) -> None:
    """Wake whoever waits on the connection: it has ended."""
    with contextlib.suppress(OSError):  # it may be over already
        connection.shutdown(socket.SHUT_RDWR)


def _app(text_source: TextSource) -> Callable[..., Iterable[bytes]]:
    def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        status, headers, body = _answer(text_source, environ)
        start_response(status, [*headers, ("Content-Length", str(len(body)))])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return app


def _answer(text_source: TextSource, environ: dict[str, Any]) -> Answer:
    plain = ("Content-Type", "text/plain; charset=utf-8")
    if environ["PATH_INFO"] != "/metrics":
        return "404 Not Found", [plain], b"Only /metrics is here.\n"
    if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
        return "405 Method Not Allowed", [plain, ("Allow", "GET, HEAD")], b"Ask with GET.\n"
    page = text_source(environ.get("HTTP_ACCEPT", ""))
    return "200 OK", [("Content-Type", page.content_type), ("Vary", "Accept")], page.body

"""Tracing: spans go to an OpenTelemetry collector, in a thread of the SDK; without [otel] nothing of it is imported."""

import logging
import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

from callboard import __version__
from callboard.actors.errors import MissingExtra
from callboard.actors.events import Event, SessionOpened
from callboard.metrics.spans import Span, Spans
from callboard.runtime.settings import Otel
from callboard.runtime.waiting import in_thread

LOGGER = logging.getLogger("callboard")
SDK_LOGGER = logging.getLogger("opentelemetry")
EXPORTER_LOGGER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
QUEUE_MAX: Final = 8_192  # spans that wait for the collector; of more, the oldest are dropped
BATCH_MAX: Final = 512
SEND_S: Final = 5.0  # one attempt of the exporter
EVERY_S: Final = 1.0
CLOSE_S: Final = 2.0
NEEDED: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")

DOWN: Final = "traces do not reach %s: spans are dropped until it answers"
FAILED: Final = "tracing failed and goes no further"


def check_extra() -> None:
    """`MissingExtra` where the SDK or its exporter is not installed."""
    for name in NEEDED:
        try:
            found = find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise MissingExtra("[otel]", "otel")


class Tracing:
    """Where spans go; `event` is called with each live event, on one thread, and never raises."""

    def __init__(self, config: Otel, default_model: str, now_ns: Callable[[], int]) -> None:
        check_extra()
        assert config.endpoint is not None
        self._endpoint, self._config = config.endpoint, config
        self.opened: Callable[[str], SessionOpened | None] = lambda session: None  # how a session was opened
        self._spans = Spans(self._emit, self._known, default_model, now_ns, contents=config.content)
        self._failed = False
        self._sdk: Any = None

    async def open(self) -> None:
        """Import the SDK and start its thread."""
        self._sdk = await in_thread(_Exporting, self._endpoint, self._config.service_name)

    def event(self, event: Event, session: str, turn: int | None) -> None:
        """Take one live event."""
        if self._failed:
            return
        try:
            self._spans.event(event, session, turn)
        except Exception:
            self._failed = True
            LOGGER.exception(FAILED)

    def _known(self, session: str) -> SessionOpened | None:
        return self.opened(session)

    def _emit(self, span: Span) -> None:
        self._sdk.emit(span)

    async def close(self) -> None:
        """Send what waits, for CLOSE_S at most; the rest is dropped."""
        if self._sdk is not None:
            done = threading.Thread(target=self._sdk.close, name="otel close", daemon=True)
            done.start()
            await in_thread(done.join, CLOSE_S)


class _Exporting:
    """The SDK's part: a tracer whose ids are ours, a queue with a bound, an exporter that complains once."""

    def __init__(self, endpoint: str, service_name: str) -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
        from opentelemetry.sdk.trace.id_generator import IdGenerator

        self._trace, self._nowhere = trace, Context
        host = urlsplit(endpoint).hostname or "the collector"

        class Given(IdGenerator):
            """Ids that are chosen before the span is."""

            trace_id = span_id = 1

            def generate_trace_id(self) -> int:
                return self.trace_id

            def generate_span_id(self) -> int:
                return self.span_id

        class Once(SpanExporter):
            """Sends, and says once that nobody answers, and no more until somebody does."""

            def __init__(self) -> None:
                self._inner = OTLPSpanExporter(endpoint=endpoint, timeout=SEND_S)
                self._down = False

            def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
                _QUIET.exporting = True
                try:
                    result = self._inner.export(spans)
                except OSError:  # of a transport that the exporter does not know
                    result = SpanExportResult.FAILURE
                finally:
                    _QUIET.exporting = False
                if result is not SpanExportResult.SUCCESS and not self._down:
                    LOGGER.warning(DOWN, host)
                self._down = result is not SpanExportResult.SUCCESS
                return result

            def shutdown(self) -> None:
                self._inner.shutdown()  # type: ignore[no-untyped-call]

        logging.getLogger(EXPORTER_LOGGER).addFilter(_quiet)
        self._ids = Given()
        named = {"service.name": service_name, "service.version": __version__}
        self._provider = TracerProvider(id_generator=self._ids, resource=Resource.create(named), shutdown_on_exit=False)
        self._processor = BatchSpanProcessor(
            Once(), max_queue_size=QUEUE_MAX, schedule_delay_millis=EVERY_S * 1000, max_export_batch_size=BATCH_MAX
        )
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("callboard", __version__)

    def emit(self, span: Span) -> None:
        """Make a span of the SDK, and end it."""
        trace = self._trace
        self._ids.trace_id, self._ids.span_id = span.trace, span.id
        inside = self._nowhere()
        if span.parent is not None:
            flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
            parent = trace.SpanContext(span.trace, span.parent, is_remote=False, trace_flags=flags)
            inside = trace.set_span_in_context(trace.NonRecordingSpan(parent), inside)
        kind = trace.SpanKind.CLIENT if span.kind == "client" else trace.SpanKind.INTERNAL
        made = self._tracer.start_span(
            span.name, inside, kind=kind, attributes=dict(span.attributes), start_time=span.start_ns
        )
        if span.error is not None:
            made.set_status(trace.Status(trace.StatusCode.ERROR, span.error))
        made.end(span.end_ns)

    def close(self) -> None:
        """Send what waits and end the thread."""
        self._provider.shutdown()


_QUIET = threading.local()


def _quiet(record: logging.LogRecord) -> bool:
    """Whether a line of the exporter is shown: not while it works for us, who say it in our own words."""
    return not getattr(_QUIET, "exporting", False)

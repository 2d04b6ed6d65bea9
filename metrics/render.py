"""A registry as text: rendered in small pieces, so that no loop waits long for the interpreter lock, and kept a while.

prometheus-client's own encoders write the text; here it is only cut into pieces of at most `PIECE_SERIES_MAX` series.
Its server would render a whole registry in one go: 2,000 series hold the interpreter lock for tens of milliseconds.
"""

import copy
import threading
from collections.abc import Callable, Generator, Iterable, Iterator

import attrs
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

RENDER_MIN_S = 1.0  # at least this between two renders of one format
PIECE_SERIES_MAX = 64  # about a millisecond
PAUSE_S = 0.001  # after each piece in a thread; long enough for a loop to take the interpreter lock
WAIT_STEPS_MAX = 2_000  # for another's render; then the last text is good enough
CREATED = "_created"  # left out: it doubles the series of counters, and nobody asks for it


@attrs.frozen
class Page:
    """A rendered exposition and its content type."""

    content_type: str
    body: bytes


@attrs.frozen
class Format:
    """One exposition format: what writes it, and what ends it."""

    media_type: str
    content_type: str
    encode: Callable[["_One"], bytes]
    end: bytes


@attrs.frozen
class _One:
    """A registry of one family, for the encoders."""

    family: Metric

    def collect(self) -> Iterable[Metric]:
        return (self.family,)


PLAIN = Format("text/plain", "text/plain; version=0.0.4; charset=utf-8", generate_latest, b"")
OPENMETRICS = Format(
    "application/openmetrics-text",
    "application/openmetrics-text; version=1.0.0; charset=utf-8",
    openmetrics.generate_latest,
    b"# EOF\n",
)


@attrs.define
class _Kept:
    """The last page of one format and when it was made; `busy` is held by who renders the next."""

    page: Page | None = None
    at_s: float = 0.0
    busy: threading.Lock = attrs.field(factory=threading.Lock)


class Exposition:
    """The text of a registry, at most `render_min_s` seconds old when a new one may not be made yet.

    `now_s` answers monotonic seconds and is called from any thread.
    """

    def __init__(
        self, registry: CollectorRegistry, now_s: Callable[[], float], render_min_s: float = RENDER_MIN_S
    ) -> None:
        self._registry, self._now_s, self._render_min_s = registry, now_s, render_min_s
        self._kept = {PLAIN: _Kept(), OPENMETRICS: _Kept()}

    def page(self, accept: str = "") -> Page:
        """The page for an Accept header; for threads: blocks, with a real pause after each piece."""
        pause = threading.Event()
        steps = self.steps(accept)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                page: Page = done.value
                return page
            pause.wait(PAUSE_S)

    def steps(self, accept: str = "") -> Generator[None, None, Page]:
        """The same for a loop: yields after each piece, where the caller lets others run, and returns the page."""
        chosen = choose(accept)
        kept = self._kept[chosen]
        for _ in range(WAIT_STEPS_MAX):
            if kept.busy.acquire(blocking=False):
                break
            yield
        else:
            return kept.page or (yield from self._render(chosen))
        try:
            if kept.page is None or self._now_s() - kept.at_s >= self._render_min_s:
                kept.page = yield from self._render(chosen)
                kept.at_s = self._now_s()
            return kept.page
        finally:
            kept.busy.release()

    def _render(self, chosen: Format) -> Generator[None, None, Page]:
        text: list[bytes] = []
        for family in self._registry.collect():
            yield
            for piece in _pieces(family, chosen):
                text.append(piece)
                yield
        return Page(chosen.content_type, b"".join(text) + chosen.end)


def choose(accept: str) -> Format:
    """OpenMetrics where the Accept header prefers it by name, else Prometheus text."""
    wanted: dict[str, float] = {}
    for part in accept.split(","):
        media_type, *parameters = (p.strip().lower() for p in part.split(";"))
        wanted[media_type] = max(_quality(parameters), wanted.get(media_type, 0.0))
    openly = wanted.get(OPENMETRICS.media_type, 0.0)
    return OPENMETRICS if openly > 0 and openly >= wanted.get(PLAIN.media_type, 0.0) else PLAIN


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def _pieces(family: Metric, chosen: Format) -> Iterator[bytes]:
    """The text of one family; its header comes with the first piece alone."""
    created = family.name + CREATED
    samples = [sample for sample in family.samples if sample.name != created]
    # The plain form of a gauge histogram is several families with headers of their own; we have none.
    size = len(samples) if family.type == "gaugehistogram" else PIECE_SERIES_MAX
    for start in range(0, max(1, len(samples)), max(1, size)):
        piece = copy.copy(family)
        piece.samples = samples[start : start + size]
        text = chosen.encode(_One(piece)).removesuffix(chosen.end)
        yield text if start == 0 else _without_header(text)


def _without_header(text: bytes) -> bytes:
    while text.startswith(b"# "):
        text = text.partition(b"\n")[2]
    return text

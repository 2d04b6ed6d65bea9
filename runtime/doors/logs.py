"""log list, log show: what a store holds, read beside whoever writes it; what is not there is not made."""

from collections.abc import Iterable, Iterator

import attrs
from rich.cells import cell_len
from rich.text import Text

from callboard.actors.envelope import Envelope
from callboard.actors.errors import SessionNotFound
from callboard.actors.events import TurnEnded, TurnStarted
from callboard.actors.store import Header
from callboard.plugins import DEFAULT
from callboard.runtime.assembly import assemble
from callboard.runtime.clock import local_text
from callboard.runtime.config import RuntimeConfig
from callboard.runtime.doors.board import visible
from callboard.runtime.doors.output import Output
from callboard.runtime.doors.program import DONE_CODE
from callboard.runtime.doors.screen import Screen
from callboard.runtime.doors.story import Story
from callboard.runtime.doors.wording import one_line, seconds_text
from callboard.runtime.stores import Looking, look_into

PAGE_MAX = 500  # events read at once
TITLE_MAX_CELLS, TITLE_MIN_CELLS = 40, 8
COLUMNS = ("id", "title", "status", "events", "updated", "path")
NOTHING_YET = "no sessions yet: callboard run TASK makes one. (store: {place})"


@attrs.frozen
class LogOptions:
    """What `callboard log` was asked for; `session` None lists them all."""

    config: RuntimeConfig
    store: str
    session: str | None = None
    json: bool = False
    after: int = -1


def log(options: LogOptions, output: Output) -> int:
    """The command; its exit code. A `CallboardError` says what is wrong."""
    reading = look_into(options.store)
    screen = Screen(output)
    try:
        if not reading.is_nothing():
            if options.session is None:
                _list(reading, screen)
            else:
                _show(reading, screen, options, options.session)
        elif options.session is None:
            screen.lines([NOTHING_YET.format(place=visible(reading.name))])
        else:
            raise SessionNotFound(f"there is no session {options.session!r}: there is no store {reading.name} yet.")
    finally:
        reading.close()
    output.flush()
    return DONE_CODE


# -- log list ----------------------------------------------------------------------------------------------------------


def _list(reading: Looking, screen: Screen) -> None:
    headers = [header for header in reading.headers() if not header.unfinished]
    if not headers:
        screen.lines([NOTHING_YET.format(place=visible(reading.name))])
        return
    rows = [COLUMNS, *(_row(header, depth) for header, depth in as_trees(headers))]
    widths = [max(cell_len(row[at]) for row in rows) for at in range(len(COLUMNS))]
    if screen.moves:
        others = sum(widths) - widths[1] + 2 * (len(COLUMNS) - 1)
        widths[1] = min(widths[1], max(TITLE_MIN_CELLS, screen.width - others))
    for at, row in enumerate(rows):
        line = Text("  ".join(_cell(text, width) for text, width in zip(row, widths, strict=True)).rstrip())
        line.stylize("bold" if at == 0 else "")
        screen.lines([line])


def as_trees(headers: Iterable[Header]) -> Iterator[tuple[Header, int]]:
    """Each root in the given order, its subagents behind it by their making, with how deep they lie."""
    known = list(headers)
    ids = {header.id for header in known}
    below: dict[str, list[Header]] = {}
    for header in sorted(known, key=lambda header: header.created_ms):
        if header.parent is not None and header.parent in ids:
            below.setdefault(header.parent, []).append(header)
    waiting = [(header, 0) for header in reversed(known) if header.parent not in ids]
    while waiting or below:
        if not waiting:  # damage: these stand below themselves
            waiting = [(child, 0) for child in reversed(below.pop(next(iter(below))))]
        header, depth = waiting.pop()
        yield header, depth
        waiting += [(child, depth + 1) for child in reversed(below.pop(header.id, []))]


def _row(header: Header, depth: int) -> tuple[str, ...]:
    return (
        "  " * depth + visible(header.id),
        _cut(one_line(header.title or ""), TITLE_MAX_CELLS),
        visible(header.status),
        f"{header.events}",
        local_text(header.updated_ms),
        visible(header.path),
    )


def _cell(text: str, width: int) -> str:
    shown = _cut(text, width)
    return shown + " " * (width - cell_len(shown))


def _cut(text: str, width: int) -> str:
    line = Text(text)
    line.truncate(width, overflow="ellipsis")
    return line.plain


# -- log show ----------------------------------------------------------------------------------------------------------


def _show(reading: Looking, screen: Screen, options: LogOptions, session: str) -> None:
    header = reading.header(session)
    if header is None or header.unfinished:
        raise SessionNotFound(f"there is no session {session!r} in this store: callboard log list shows them.")
    codec = assemble(attrs.evolve(options.config, tools={}), DEFAULT, (), ()).codec
    story = Story(session, lambda: screen.width, colour=screen.colour, starts=False)
    if not options.json:
        about = f"session {visible(session)} · {visible(header.path)} · {header.events} events"
        screen.lines([Text(about + (f" · {one_line(header.title)}" if header.title else ""), "bold")])
    after = options.after
    while records := reading.records(session, after, PAGE_MAX):
        for record in records:
            event = codec.decode(record.body)
            envelope = Envelope(session, record.seq, record.at_ms, record.turn, event)
            if options.json:
                screen.output.write(codec.to_line(envelope).decode() + "\n")
            else:
                screen.lines([*_before(envelope), *story.take(envelope), *_behind(envelope)])
        after = records[-1].seq


def _before(envelope: Envelope) -> Iterator[Text]:
    if isinstance(envelope.event, TurnStarted):
        yield Text(f"── turn {envelope.event.turn} · {local_text(envelope.at_ms)} ──", "dim")


def _behind(envelope: Envelope) -> Iterator[Text]:
    ended = envelope.event
    if isinstance(ended, TurnEnded) and ended.reason == "completed" and ended.error is None:
        seconds = seconds_text((ended.ended_ms - ended.started_ms) / 1000)
        yield Text(f"turn {ended.turn} completed · steps {ended.steps} · calls {ended.tool_calls} · {seconds}", "dim")

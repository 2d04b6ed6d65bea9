"""Screen: lines, and a picture that stays at the foot of a terminal; lines alone where there is no terminal."""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable
from typing import Self, TypeAlias

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from callboard.runtime.doors.output import Output
from callboard.runtime.doors.wording import paragraphs

FRAME_S = 0.1
PIPE_CELLS_MAX = 100  # a line's width where there is no terminal to ask
MARK = "> "  # behind it people type
CLEAR_LINE = "\r\x1b[K"
SPINNER, PLAIN_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"

Draw: TypeAlias = Callable[[int, int], RenderableType]  # width and height in cells


class Screen:
    """Where lines go. With a terminal, `draw(width, height)` between `start` and `stop` stays at its foot."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self._console = Console(
            file=output,  # type: ignore[arg-type]  # all of a file that rich uses
            force_terminal=True,
            color_system="auto" if output.colour else None,
            no_color=not output.colour,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )
        self._live: Live | None = None
        self._log: ScreenLog | None = None
        self._draw: Draw | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._prompts = False

    @property
    def width(self) -> int:
        """Cells in a line."""
        return self._console.width if self.output.moves else PIPE_CELLS_MAX

    @property
    def moves(self) -> bool:
        """Whether there is a terminal to draw on."""
        return self.output.moves

    @property
    def colour(self) -> bool:
        """Whether lines may have colours."""
        return self.output.colour

    def lines(self, lines: Iterable[Text | str]) -> None:
        """Print lines, above what is drawn."""
        if not self.output.moves:
            self.output.write("".join(f"{line}\n" for line in lines))
        elif texts := [line if isinstance(line, Text) else Text(line) for line in lines]:
            if self._prompts:
                self.output.write(CLEAR_LINE)
            self._console.print(Text("\n").join(texts), soft_wrap=True)
            if self._prompts:
                self.output.write(MARK)

    def text(self, text: str, style: str = "", mark: str = "") -> None:
        """Print a text for people, wrapped."""
        self.lines(paragraphs(text, self.width, style, mark))

    def show(self, what: RenderableType) -> None:
        """Print something drawn; only with a terminal."""
        self._console.print(what)

    def start(self, draw: Draw) -> None:
        """Keep a picture at the foot; without a terminal nothing happens."""
        if self.output.moves:
            self._draw = draw
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="crop",
            )
            self._live.start()
            self._log = ScreenLog(self)
            self._log.begin()
            self._frame()

    def prompt(self) -> None:
        """Let people type at the foot, where no picture is until `prompted`; lines go above it."""
        if self.output.moves and not self._prompts:
            self._take_away()
            self._prompts = True
            self.output.write(MARK)

    def prompted(self) -> None:
        """No more; the picture is back if there was one."""
        if self._prompts:
            self._prompts = False
            self.output.write(CLEAR_LINE)
            if self._draw is not None:
                self.start(self._draw)

    def stop(self) -> None:
        """Take the picture away; harmless when repeated."""
        self._draw = None
        self.prompted()
        self._take_away()

    def _take_away(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
        if self._live is not None:
            self._live.update(Text(""))
            self._live.stop()
        if self._log is not None:
            self._log.end()
        self._live = self._tick = self._log = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _frame(self) -> None:
        """Draw once more, unless the last frame is still on its way."""
        assert self._live is not None
        assert self._draw is not None
        if not self.output.behind:
            self._live.update(self._draw(self._console.width, self._console.height), refresh=True)
        self._tick = asyncio.get_running_loop().call_later(FRAME_S, self._frame)

    @property
    def spinner(self) -> str:
        """The frames of a spinner that this terminal can show."""
        return SPINNER if self.output.encoding.lower().startswith("utf") else PLAIN_SPINNER


class ScreenLog(logging.Handler):
    """Log lines that go to the same terminal, above what is drawn; between `begin` and `end` in place of the others."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen
        self._before: list[logging.Handler] = []

    def begin(self) -> None:
        """Take the place of the handlers that write to this terminal, if they do."""
        root = logging.getLogger()
        if sys.stderr.isatty() and root.handlers:
            self._before = root.handlers[:]
            self.setFormatter(self._before[0].formatter)
            root.handlers[:] = [self]

    def end(self) -> None:
        """Give it back."""
        if self._before:
            logging.getLogger().handlers[:] = self._before

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        self._screen.text(self.format(record), "yellow")

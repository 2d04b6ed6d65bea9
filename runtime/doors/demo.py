"""demo: a parent and three agents at once on real files, one interrupt with its receipt, then the counted outcomes."""

import asyncio
import os
import re
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import attrs
from rich.console import Group, RenderableType
from rich.text import Text

from callboard.actors.envelope import Envelope
from callboard.actors.errors import UsageError
from callboard.actors.events import ToolCalled, ToolReturned, TurnEnded
from callboard.plugins.files import FILES
from callboard.plugins.shell import SHELL
from callboard.runtime.app import Runtime, open_runtime, serve_metrics
from callboard.runtime.assembly import default_plugins
from callboard.runtime.clock import WallClock
from callboard.runtime.config import RuntimeConfig
from callboard.runtime.doors.drawing import dashboard
from callboard.runtime.doors.follow import Following
from callboard.runtime.doors.output import Output
from callboard.runtime.doors.picture import Picture
from callboard.runtime.doors.program import DONE_CODE, FAILED_CODE, Program
from callboard.runtime.doors.project import make_project
from callboard.runtime.doors.screen import Screen
from callboard.runtime.doors.story import Story, receipt_lines
from callboard.runtime.doors.tally import Tally
from callboard.runtime.doors.wording import paragraphs, seconds_text
from callboard.runtime.handle import SessionHandle
from callboard.runtime.reading import Item
from callboard.runtime.waiting import in_thread

TASK = "Look over this project: how big is it, what is still to do, and does its check pass?"
SESSION = "demo"
HANGS = f"{SESSION}.check"  # the agent that is interrupted
INTERRUPT_AFTER_S = 2.5  # after its command began
FETCH_S = 5.0
DASHBOARD_ROWS_MAX = 100  # of the last one, which stays in the scrollback
SHOWN = ("callboard_control_tool_calls_total{", "callboard_abort_seconds_sum{", "callboard_abort_seconds_count{")
INTRO = "A parent and three agents work at the same time on real files in a temporary folder."
OFFLINE = "Nothing here needs a key or a network; the model is a script, all else is real."


def demo(output: Output) -> int:
    """The command; its exit code."""
    program = Program(output)
    return program.run(lambda: _demo(program))


async def _demo(program: Program) -> int:
    try:
        place = tempfile.TemporaryDirectory(prefix="callboard-demo-", ignore_cleanup_errors=True)
    except OSError as error:
        raise UsageError(f"the demo needs a temporary folder, and there is none: {error.strerror}.") from None
    with place as name:
        folder = Path(name) / "paper-moon"
        folder.mkdir()
        make_project(folder)
        rt = open_runtime(
            model="scripted:demo",
            plugins=(*default_plugins(RuntimeConfig()), SHELL, FILES),
            store=f"sqlite:///{quote(str(Path(name) / 'sessions.db'))}",
            folder=folder,
        )
        async with program.opened(rt):
            return await Demo(rt, Screen(program.output)).show()


@attrs.define
class Interrupted:
    """What is known of the agent that was interrupted."""

    ended: TurnEnded | None = None
    pids: tuple[int, ...] = ()


class Demo:
    """The story of the demo, and what it shows of it."""

    def __init__(self, rt: Runtime, screen: Screen) -> None:
        self._rt, self._screen = rt, screen
        self._picture, self._tally = Picture(SESSION), Tally(SESSION)
        self._story = Story(SESSION, lambda: screen.width, colour=screen.colour, starts=True)
        self._cut = Interrupted()
        self._wall = WallClock()

    async def show(self) -> int:
        """Tell everything; the exit code."""
        screen = self._screen
        self._head("Callboard")
        screen.text(f"{INTRO}\n{OFFLINE}")
        screen.lines([""])
        ended = await self._work(await self._rt.create(SESSION, title="demo"))
        self._head("What the parent reports")
        screen.text(ended.last_message or "(nothing)", mark="  ")
        self._head("\nThe interrupt")
        screen.lines(self._interrupt_lines())
        self._head("\nThe control tools, as /metrics counts them")
        screen.lines(await self._metrics())
        screen.lines([""])
        screen.text(f"Done: {self._tally.line()}", "dim")
        whole = ended.error is None and self._cut.ended is not None and not self._living()
        return DONE_CODE if whole else FAILED_CODE

    async def _work(self, session: SessionHandle) -> TurnEnded:
        """The turn, while it is watched: by the screen as one reader, and by whoever else likes to."""
        screen = self._screen
        if not screen.moves:
            self._head("The work")
        with screen:
            screen.start(self._draw)
            async with Following(
                self._rt, session.id, self._take, deltas=screen.moves, room=screen.output.room
            ) as following:
                ended = await session.run(TASK)
                await following.resting()
                await following.caught_up()
        if screen.moves:
            screen.show(self._dashboard(screen.width, DASHBOARD_ROWS_MAX))
        screen.lines([""])
        return ended

    def _draw(self, width: int, height: int) -> RenderableType:
        # Its last line is short: a ^C that the terminal shows behind it wraps no line.
        return Group(self._dashboard(width, height - 1), Text("Ctrl-C ends the demo", "dim"))

    def _dashboard(self, width: int, height: int) -> RenderableType:
        now_ms, screen = self._wall.now_ms(), self._screen
        return dashboard(self._picture, now_ms, width, height, screen.spinner, colour=screen.colour)

    def _take(self, item: Item) -> None:
        """(the screen's reader) One more item of the tree."""
        self._picture.take(item)
        if not isinstance(item, Envelope):
            return
        self._tally.take(item)
        if not self._screen.moves:
            self._screen.lines(self._story.take(item))
        if item.session == HANGS:
            self._watch(item)

    def _watch(self, envelope: Envelope) -> None:
        """Interrupt the agent whose command hangs, once it has hung a while, and keep what became of it."""
        match envelope.event:
            case ToolCalled(name="shell"):
                asyncio.get_running_loop().call_later(INTERRUPT_AFTER_S, self._interrupt)
            case ToolReturned(name="shell") as returned:
                self._cut.pids = tuple(int(pid) for pid in re.findall(r"\bpid (\d+)", returned.text))
            case TurnEnded() as ended:
                self._cut.ended = ended

    def _interrupt(self) -> None:
        handle = next((one for one in self._rt.sessions() if one.id == HANGS), None)
        if handle is not None:
            self._interrupting = asyncio.get_running_loop().create_task(handle.interrupt())

    # -- afterwards --------------------------------------------------------------------------------------------------

    def _head(self, text: str) -> None:
        plain = text.lstrip("\n")
        shown = Text(plain, "bold") if self._screen.moves else Text(f"== {plain} ==")
        self._screen.lines([Text("")] * (len(text) - len(plain)) + [shown])

    def _interrupt_lines(self) -> Iterator[Text]:
        ended, room = self._cut.ended, self._screen.width - 2
        if ended is None:
            yield Text("  The agent was not interrupted.")
            return
        begun = f"Agent check was interrupted {seconds_text(INTERRUPT_AFTER_S)} into a command that never ends."
        gone = f"Its process tree is gone: {len(self._cut.pids)} processes ({', '.join(map(str, self._cut.pids))})."
        alive = f"STILL ALIVE of its process tree: {', '.join(map(str, self._living()))}"
        yield from paragraphs(begun, room, "", "  ")
        yield from (Text.assemble("  ", line) for line in receipt_lines(ended, room))
        yield from paragraphs(alive if self._living() else gone, room, "red" if self._living() else "", "  ")

    def _living(self) -> tuple[int, ...]:
        return tuple(pid for pid in self._cut.pids if _lives(pid))

    async def _metrics(self) -> Sequence[Text]:
        with serve_metrics(self._rt) as server:
            url = f"http://127.0.0.1:{server.port}/metrics"
            text = await in_thread(_fetch, url)
        lines = [line for line in text.splitlines() if line.startswith(SHOWN) and not line.endswith(" 0.0")]
        return [Text(f"  GET {url}", "dim"), *(Text(f"  {line}") for line in lines)]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _fetch(url: str) -> str:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=FETCH_S) as answer:
        text: str = answer.read().decode()
        return text

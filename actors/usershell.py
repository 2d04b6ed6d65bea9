"""UserShell: one command of the user's own (`!`), in a turn of its own or beside one; what it printed enters history.

An interrupt ends it within the window, whether the turn that it began beside still runs or not.
"""

from collections.abc import Callable

import trio

from callboard.actors.abort import AbortWindow, Signal
from callboard.actors.books import TURN
from callboard.actors.errors import LogError
from callboard.actors.eventlog import LOGGER
from callboard.actors.events import Cause, Event, MessageQueued, NoteAdded, ShellEnded, ShellEnding
from callboard.actors.host import Host
from callboard.actors.notices import Delta
from callboard.actors.receipts import clean_text
from callboard.actors.seen import SHELLS, OpenShell
from callboard.actors.stage import Ran
from callboard.actors.tasks import Task
from callboard.actors.view import Scene

TIMEOUT_S = 3_600.0  # codex gives a command of the user's an hour
OUTPUT_TOKENS_MAX = 10_000  # of one output that the model reads
TOKEN_BYTES = 4  # what a token is counted as
INTERRUPTED_CODE = -1

FRAGMENT = """\
<user_shell_command>
<command>
{command}
</command>
<result>
Exit code: {code}
Duration: {seconds:.4f} seconds
Output:
{output}
</result>
</user_shell_command>"""
CUT_HEAD = "Warning: truncated output (original token count: {tokens})\nTotal output lines: {lines}\n\n"
CUT_MARK = "\u2026{tokens} tokens truncated\u2026"
TIMED_OUT = "command timed out after {ms} milliseconds"
ABORTED = "command aborted by user"
NOT_RUN = "the command could not be run"
LOST = "the program ended while this ran: what it did is not known"


class Heard:
    """Output of any length in bounded memory; `text()` is all of it, or its head and its tail in `tokens_max`."""

    __slots__ = ("_half", "_head", "_lines", "_max", "_size", "_tail", "_tokens_max")

    def __init__(self, tokens_max: int = OUTPUT_TOKENS_MAX) -> None:
        self._tokens_max, self._max = tokens_max, tokens_max * TOKEN_BYTES
        self._half = self._max // 2
        self._size = self._lines = 0
        self._head, self._tail = bytearray(), bytearray()

    def add(self, text: str) -> None:
        """Take one more piece."""
        data = text.encode("utf-8", "replace")
        self._size += len(data)
        self._lines += data.count(b"\n")
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._max:
            del self._tail[: -self._max]

    def text(self) -> str:
        """What was heard, without the newline at its end."""
        if self._size <= self._max:
            return (self._head + self._tail).decode("utf-8", "replace").removesuffix("\n")
        tokens, open_line = -(-self._size // TOKEN_BYTES), not self._tail.endswith(b"\n")
        head = CUT_HEAD.format(tokens=tokens, lines=self._lines + open_line) + self._head.decode("utf-8", "ignore")
        tail = self._tail[-self._half :].decode("utf-8", "ignore")
        return (head + CUT_MARK.format(tokens=tokens - self._tokens_max) + tail).removesuffix("\n")


def fragment(command: str, ran: Ran, seconds: float, output: str, *, interrupted: bool = False) -> str:
    """How a command and its end read in history."""
    said = ABORTED if interrupted else TIMED_OUT.format(ms=round(TIMEOUT_S * 1000)) if ran.timed_out else ran.error
    text = "\n".join(part for part in (said, output) if part)
    code = INTERRUPTED_CODE if ran.code is None else ran.code
    return FRAGMENT.format(command=command, code=code, seconds=seconds, output=clean_text(text))


class UserShell:
    """One command, from its ShellStarted, which is on the log, to its ShellEnded; `over()` is told of that.

    It is in `window.asked` until it has ended, and is told when a later turn's window takes the place of that.
    """

    __slots__ = ("_begun_s", "_heard", "_host", "_interrupted", "_over", "_scene", "command", "ended", "id")

    def __init__(self, scene: Scene, id_: str, command: str, over: Callable[[], None] = lambda: None) -> None:
        assert scene.window is not None
        self._scene, self.id, self.command, self._over = scene, id_, command, over
        self._heard, self._interrupted, self.ended = Heard(), Signal(), trio.Event()
        self._begun_s = scene.stage.now_s()
        self._host = Host(scene.stage, scene.window, self._run, f"! command {id_}", graceful=True)
        scene.window.asked[self] = None
        self._host.start()

    def under(self, window: AbortWindow) -> None:
        """Another turn runs: its interrupt ends this too."""
        self._host.window = window
        window.asked[self] = None

    def ask(self) -> None:
        """An interrupt: end within the window, and keep what was printed."""
        stage = self._scene.stage
        self._host.window.told = True
        if not self._interrupted:
            self._interrupted.set()
            stage.timers.at(stage.now_s() + stage.limits.abort_window_s, self.cut)

    def cut(self) -> None:
        """End now; what does not is left behind. Harmless when it has ended."""
        if not self.ended.is_set():
            self._interrupted.set()
            self._finish(Ran())
        self._host.abandon()

    close = cut

    async def _run(self) -> None:
        """(Trio) The body: the command once its start is durable, and whatever happens its end on the log."""
        stage, ran, asked = self._scene.stage, Ran(error=NOT_RUN), self._interrupted
        assert stage.shell is not None
        try:
            await self._scene.log.flush()
            window_s = stage.limits.abort_window_s
            ran = (
                Ran()
                if asked
                else await stage.shell(self.command, stage.folder, self._hear, asked, window_s, TIMEOUT_S)
            )
        finally:
            self._finish(ran)

    def _hear(self, text: str) -> None:
        if self.ended.is_set():
            return
        self._heard.add(text)
        self._scene.on_delta(Delta(self._scene.log.session, self._scene.turn, "output", text, self.id))

    def _finish(self, ran: Ran) -> None:
        if self.ended.is_set():
            return
        self.ended.set()
        try:
            self._write(ran)
        except LogError as error:
            LOGGER.warning(
                "session %s: the end of ! command %s is not on the log: %s", self._scene.log.session, self.id, error
            )
        window = self._host.window
        window.asked.pop(self, None)
        if window.look is not None:
            window.look()
        self._over()

    def _write(self, ran: Ran) -> None:
        log = self._scene.log
        if all(one.id != self.id for one in log[SHELLS]):
            return  # a crash of its session closed it
        seconds = self._scene.stage.now_s() - self._begun_s
        interrupted = bool(self._interrupted) and ran.code is None
        ending: ShellEnding = "interrupted" if interrupted else "timed_out" if ran.timed_out else "exited"
        if ran.error and not interrupted:
            ending = "failed"
        text = fragment(self.command, ran, seconds, self._heard.text(), interrupted=interrupted)
        told: Event = NoteAdded(text, "user", "shell")
        if log[TURN].open:  # its next step takes it, or its end, behind the results of all calls
            told = MessageQueued(f"shell:{self.id}", text, "shell", seq=log.seq + 1)
        log.append(ShellEnded(self.id, ending, ran.code, seconds), told)


def lost(shell: OpenShell) -> tuple[Event, ...]:
    """The end of a command that a crash left open."""
    text = fragment(shell.command, Ran(error=LOST), 0.0, "")
    return ShellEnded(shell.id, "failed"), NoteAdded(text, "user", "shell")


class UserShells:
    """The commands that run beside a session's turns."""

    __slots__ = ("_running", "_scene")

    def __init__(self, scene: Scene) -> None:
        self._scene, self._running = scene, dict[str, UserShell]()

    def begin(self, id_: str, command: str) -> None:
        """Run one beside the turn that runs; the session stays in memory until it has ended."""

        def over() -> None:
            self._running.pop(id_, None)
            if self._scene.belongings is not None:
                self._scene.belongings.pop(name, None)

        name = f"! command {id_}"
        if self._scene.belongings is None:
            self._scene.belongings = {}
        one = self._running[id_] = self._scene.belongings[name] = UserShell(self._scene, id_, command, over)
        assert not one.ended.is_set()

    def under(self, window: AbortWindow) -> None:
        """A turn begins: its interrupt ends these too."""
        for one in self._running.values():
            one.under(window)

    def ask(self) -> None:
        """An interrupt while no turn runs."""
        for one in tuple(self._running.values()):
            one.ask()

    def cut(self) -> None:
        """The session goes down."""
        for one in tuple(self._running.values()):
            one.cut()


class Shelling(Task):
    """A command of the user's own as a turn: no model request, no step, and it takes no input."""

    def prepare(self) -> None:
        """Nothing joins this turn."""
        assert self._message is not None
        self._window.settled = True
        self._shell = UserShell(self._scene, self._message.id, self._message.text)

    async def run(self) -> None:
        """(Trio) Until the command has ended; cancelled, the window waits for it."""
        await self._shell.ended.wait()

    def settle(self, cause: Cause | None) -> None:
        """What did not end in time is left behind, and what it printed until then is kept."""
        self._shell.cut()

    def let_go(self) -> None:
        """End the command."""
        self._shell.cut()

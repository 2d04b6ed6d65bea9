"""run: one task in one session, shown while it works; or all the tasks of a recording, one after the other."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from callboard.actors.books import TURN
from callboard.actors.checks import check_submit
from callboard.actors.envelope import Envelope
from callboard.actors.errors import CallboardError, SessionClosed, SessionNotFound, UsageError
from callboard.actors.facts import ReminderFired
from callboard.actors.messages import Accepted, Interrupting, ModeAnswer, Refused, Told
from callboard.plugins import DEFAULT
from callboard.plugins.files import FILES
from callboard.plugins.handovers import Proposal
from callboard.plugins.shell import SHELL
from callboard.runtime.app import Runtime, open_runtime, serve_metrics
from callboard.runtime.assembly import default_plugins
from callboard.runtime.clock import WallClock
from callboard.runtime.config import RuntimeConfig
from callboard.runtime.doors.board import visible
from callboard.runtime.doors.drawing import foot
from callboard.runtime.doors.follow import Following
from callboard.runtime.doors.output import Output
from callboard.runtime.doors.picture import Picture
from callboard.runtime.doors.program import DONE_CODE, FAILED_CODE, INTERRUPTED_CODE, Program, say_error
from callboard.runtime.doors.prompting import ErrorLines, Prompting
from callboard.runtime.doors.proposals import proposal_in
from callboard.runtime.doors.screen import Screen
from callboard.runtime.doors.story import Story
from callboard.runtime.doors.tally import Tally, counted
from callboard.runtime.doors.typed import Typed
from callboard.runtime.doors.wording import paragraphs
from callboard.runtime.fork import Rewound
from callboard.runtime.handle import SessionHandle
from callboard.runtime.lines import FORKED, REWOUND, mode_text, parse
from callboard.runtime.models.replay import ReplayModel
from callboard.runtime.reading import Item
from callboard.runtime.recordings import summary

TEXT_MAX_CHARS = 4_000_000
TITLE_MAX_CHARS = 80
NO_MODEL = (
    "there is no default model: use --model scripted:demo, --model replay:FILE, or [model] name in a --config file."
)
NO_TASK = "run needs a TASK, or - to read it from standard input."
PLAN_WAITS = (
    "a plan waits: --session {id} goes on with it, where /implement carries it out, /implement clear in a new session"
)
ALL_TOLD = "session {id!r} has had all {count} tasks of this recording: use another --session."


@attrs.frozen
class RunOptions:
    """What `callboard run` was asked for; `task` None: none was given."""

    config: RuntimeConfig
    store: str
    task: str | None = None
    model: str | None = None
    session: str | None = None
    plan: bool = False
    json: bool = False
    metrics_port: int | None = None


def run(options: RunOptions, output: Output) -> int:
    """The command; its exit code. A `CallboardError` says what is wrong before anything ran."""
    model = options.model or options.config.model.name
    if model is None:
        raise UsageError(NO_MODEL)
    replays = model.startswith("replay:")
    task = None if replays else check_submit(_task(options.task), None, TEXT_MAX_CHARS)
    plugins = DEFAULT if replays else (*default_plugins(options.config), SHELL, FILES)
    rt = open_runtime(
        options.config,
        model=model,
        plugins=plugins,
        store=options.store,
        folder=Path.cwd(),
    )
    if task is not None:  # a command that does not exist is said before anything runs
        parse(task, rt.commands)
    program = Program(output)
    return program.run(lambda: Run(options, program, rt, task).all())


def _task(given: str | None) -> str:
    """The task, from the command line or from standard input."""
    if given is None:
        raise UsageError(NO_TASK)
    if given != "-":
        return given
    try:
        data = sys.stdin.buffer.read(4 * TEXT_MAX_CHARS + 1)
    except OSError as error:
        raise UsageError(f"standard input cannot be read: {error.strerror}.") from None
    if not data.strip():
        raise UsageError("standard input is empty: write the task there, or give it as TASK.")
    return data.decode(errors="replace")


def waiting_lines(session: SessionHandle, *, plan: bool = False) -> list[str]:
    """What comes later, when nothing may run any more: reminders, and a `plan` that nobody decided on."""
    count = len(session.state().get("schedule", {}).get("active", ()))
    lines = [f"{counted(count, 'reminder')} set: what is due comes while a program runs on this store"] if count else []
    return [*lines, PLAN_WAITS.format(id=visible(session.id))] if plan else lines


class Run:
    """One run of the command: what is shown, and what it comes to."""

    def __init__(self, options: RunOptions, program: Program, rt: Runtime, task: str | None) -> None:
        self._options, self._program, self._rt, self._task = options, program, rt, task
        self._screen = Screen(program.output)
        self._interrupting: asyncio.Task[None] | None = None
        self._typed = Typed()
        board = ErrorLines() if options.json else self._screen
        self._prompting = Prompting(rt, self._typed, board, program.stop)

    async def all(self) -> int:
        """Open, work, show, close; the exit code."""
        async with self._program.opened(self._rt) as rt:
            known = await self._known(rt)
            session, is_new = await self._session(rt)
            tasks = self._tasks(session.id, rt.actor(session.id).log[TURN].number)
            after = -1 if is_new else await self._seen(session.id, known)
            with self._metrics(rt), self._screen:
                return await self._work(session, tasks, after)

    async def _known(self, rt: Runtime) -> int:
        """How many events the session that is asked for has in the store, before it is opened."""
        id_ = self._options.session
        return 0 if id_ is None else next((one.events for one in await rt.stored() if one.id == id_), 0)

    async def _seen(self, session: str, known: int) -> int:
        """The last event that is history: what was open is closed without a word, but reminders that came are news."""
        last = self._rt.actor(session).log.seq - 1
        if known <= last:
            async for item in self._rt.read(session, after=known - 1):
                if isinstance(item, Envelope) and isinstance(item.event, ReminderFired):
                    return item.seq - 2  # its message is told with it
                if isinstance(item, Envelope) and item.seq >= last:
                    break
        return last

    async def _session(self, rt: Runtime) -> tuple[SessionHandle, bool]:
        """The session that is asked for, and whether it is new."""
        id_ = self._options.session
        if id_ is not None:
            try:
                return await rt.open(id_), False
            except SessionNotFound:
                pass  # then it is made
        title = visible(" ".join((self._task or "").split()))[:TITLE_MAX_CHARS]
        return await rt.create(id_, title=title or self._options.model), True

    def _tasks(self, session: str, told: int) -> tuple[str, ...]:
        """What is to be submitted, in order; a recording goes on after the `told` tasks that the session had."""
        model = self._rt.models.default
        if not isinstance(model, ReplayModel):
            assert self._task is not None
            return (self._task,)
        if self._options.task is not None:
            say_error(f"TASK is ignored: the recording brings its own {counted(len(model.tasks), 'task')}.")
        if told >= len(model.tasks):
            raise UsageError(ALL_TOLD.format(id=session, count=len(model.tasks)))
        return model.tasks[told:]

    @contextmanager
    def _metrics(self, rt: Runtime) -> Iterator[None]:
        """The metrics, served as long as the run lasts, where a port is named."""
        settings = self._options.config.metrics
        port = settings.port if self._options.metrics_port is None else self._options.metrics_port
        if port is None:
            yield
            return
        with serve_metrics(rt, settings.host, port) as server:
            say_error(f"metrics at http://{settings.host}:{server.port}/metrics")
            yield

    async def _work(self, session: SessionHandle, tasks: tuple[str, ...], after: int) -> int:
        tally, screen = Tally(session.id), self._screen
        take = self._prompting.taking(self._json(session, tally) if self._options.json else self._told(session, tally))
        self._program.on_interrupt = lambda: self._interrupt(session)
        try:
            reading = Following(self._rt, session.id, take, after=after, deltas=screen.moves, room=screen.output.room)
            async with reading as following, self._prompting:
                await self._submit(session, tasks, following)
                await following.caught_up()
                broken = following.failed is not None
        except CallboardError as error:
            screen.stop()
            say_error(str(error))
            return FAILED_CODE
        self._sum_up(session, tally)
        if self._interrupting is not None:
            return INTERRUPTED_CODE
        return FAILED_CODE if tally.bad or broken else DONE_CODE

    async def _submit(self, session: SessionHandle, tasks: tuple[str, ...], following: Following) -> None:
        """Task after task, each when the one before is over in the whole tree; before them what was left unanswered."""
        if self._typed.terminal:
            await self._prompting.settled()
            if self._interrupting is not None:
                return
        if self._options.plan:
            await session.set_mode("plan")
        model = self._rt.models.default
        if isinstance(model, ReplayModel) and len(tasks) == len(model.tasks):
            for name, task in model.loose_agents:
                await self._rt.spawn(session.id, name, task, notify=False)
        for task in tasks:
            old = self._proposal(session)
            await self._one(session, task)
            await self._rest(following)
            if not isinstance(model, ReplayModel) and not self._options.json:  # there nobody is asked
                await self._take_up(session, old, following)
            if self._interrupting is not None:
                await self._interrupting
                return

    async def _rest(self, following: Following) -> None:
        """Until nothing works any more, or is interrupted."""
        await following.resting(unless=lambda: self._interrupting is not None)

    async def _take_up(self, session: SessionHandle, old: Proposal | None, following: Following) -> None:
        """Ask about each plan that was proposed since the `old` one, and see what comes of it to its end."""
        while self._interrupting is None:
            proposal = self._proposal(session)
            if proposal is None or proposal == old:
                return
            await self._prompting.decide(session.id, proposal)
            old = proposal
            await self._rest(following)

    def _proposal(self, session: SessionHandle) -> Proposal | None:
        try:
            return proposal_in(self._rt.actor(session.id))
        except SessionClosed:  # it left memory meanwhile
            return None

    async def _one(self, session: SessionHandle, task: str) -> None:
        """One task to its end; a line of the user's that is a command, as that command. A recording's are literal."""
        if isinstance(self._rt.models.default, ReplayModel) or parse(task, self._rt.commands).verb == "submit":
            await session.run(task)
            return
        answer = await session.command(task)
        if isinstance(answer, Refused):
            why = answer.detail.rstrip(".")
            raise UsageError(f"{task.split(maxsplit=1)[0]} was refused: {answer.reason}: {why}.")
        if isinstance(answer, ModeAnswer):
            on, active = parse(task).text == "plan", session.state()["plan_mode"]["active"]
            self._screen.lines([mode_text(answer, on=on, active=active)] if not self._options.json else [])
        if isinstance(answer, SessionHandle | Rewound) and not self._options.json:
            told = (
                REWOUND.format(at=answer.at, old=visible(answer.old))
                if isinstance(answer, Rewound)
                else FORKED.format(id=visible(answer.id))
            )
            self._screen.lines(paragraphs(told, self._screen.width, "", ""))
        if isinstance(answer, Told):
            self._screen.lines(paragraphs(answer.text, self._screen.width, "", "") if not self._options.json else [])
        if isinstance(answer, Accepted) and answer.turn is not None:
            await session.wait(answer.turn)
        await session.wait_idle()

    def _interrupt(self, session: SessionHandle) -> bool:
        """(the first Ctrl-C) Interrupt what works; False when that was done before and it is time to stop."""
        if self._interrupting is not None:
            return False
        self._prompting.leave()
        self._interrupting = asyncio.get_running_loop().create_task(self._interrupt_all(session))
        return True

    async def _interrupt_all(self, session: SessionHandle) -> None:
        """Interrupt the session, its subagents where it rests itself, and wait for the ends of those turns."""
        answer = await session.interrupt()
        found = [session] if isinstance(answer, Interrupting) else list(self._rt.sessions())
        for one in found:
            answer = await one.interrupt()
            if isinstance(answer, Interrupting):
                await one.wait(answer.turn)

    # -- what is shown -----------------------------------------------------------------------------------------------

    def _json(self, session: SessionHandle, tally: Tally) -> Callable[[Item], None]:
        """Each envelope as one line of JSON."""
        codec, output = self._rt.actor(session.id).stage.codec, self._screen.output

        def take(item: Item) -> None:
            if isinstance(item, Envelope):
                tally.take(item)
                output.write(codec.to_line(item).decode() + "\n")

        return take

    def _told(self, session: SessionHandle, tally: Tally) -> Callable[[Item], None]:
        """Lines for people, and what goes on at the foot of a terminal."""
        screen, picture, wall = self._screen, Picture(session.id), WallClock()
        story = Story(session.id, lambda: screen.width, colour=screen.colour, starts=not screen.moves, asks=False)
        spinner = screen.spinner
        screen.start(lambda width, height: foot(picture, wall.now_ms(), width, height, spinner))

        def take(item: Item) -> None:
            picture.take(item)
            if isinstance(item, Envelope):
                tally.take(item)
                if not self._prompting.is_echo(item):
                    screen.lines(story.take(item))

        return take

    def _sum_up(self, session: SessionHandle, tally: Tally) -> None:
        """The last lines: what it came to, and how to go on."""
        self._screen.stop()
        lines = [f"{tally.line()} · session {visible(session.id)}"]
        model = self._rt.models.default
        if isinstance(model, ReplayModel):
            lines.insert(0, f"replayed: {tally.replay_line()}; from {summary(model.recording)}")
        if self._interrupting is not None:
            lines.append(f"interrupted; the session is kept: --session {visible(session.id)} goes on with it")
        lines += waiting_lines(session, plan=self._options.store != "memory" and self._proposal(session) is not None)
        for line in lines:
            if self._options.json:
                say_error(line)
            elif self._screen.moves:
                self._screen.text(line, "dim")
            else:
                self._screen.lines([line])

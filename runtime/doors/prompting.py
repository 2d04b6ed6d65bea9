"""Prompting: puts what the sessions of a run ask to whoever sits at the terminal, or writes into the pipe."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol, Self, TypeAlias

from rich.text import Text

from callboard.actors.asked import APPROVALS, QUESTIONS
from callboard.actors.books import OPENED, TURN
from callboard.actors.envelope import Envelope
from callboard.actors.errors import CallboardError, SessionClosed, UsageError
from callboard.actors.eventlog import EventLog
from callboard.actors.events import TurnStarted
from callboard.actors.facts import (
    ApprovalAsked,
    ApprovalDecided,
    PlanApproved,
    PlanModeSet,
    QuestionAnswered,
    QuestionAsked,
)
from callboard.actors.messages import Accepted, Refused, Told
from callboard.plugins.handovers import Proposal
from callboard.runtime.app import Runtime
from callboard.runtime.doors.program import say_error
from callboard.runtime.doors.prompts import NO_UPTAKE, Asked, answer_in, decision_in, lines_of, uptake_in
from callboard.runtime.doors.proposals import proposal_in
from callboard.runtime.doors.screen import PIPE_CELLS_MAX
from callboard.runtime.doors.typed import Typed
from callboard.runtime.doors.wording import paragraphs
from callboard.runtime.handle import SessionHandle
from callboard.runtime.reading import Item

SETTLED = "that was answered elsewhere, or is over"
LOGGER = logging.getLogger("callboard")

Key: TypeAlias = tuple[str, str]  # a session's id, and that of what it asked
Said: TypeAlias = tuple[object, str | None]  # what was chosen or decided, and the words with it


class Board(Protocol):
    """Where a prompt is shown."""

    @property
    def width(self) -> int:
        """Cells in a line."""
        ...

    def lines(self, lines: Iterable[Text | str]) -> None:
        """Show lines."""
        ...

    def prompt(self) -> None:
        """Something is to be typed below them."""
        ...

    def prompted(self) -> None:
        """No longer."""
        ...


class ErrorLines:
    """A board on standard error, where standard output has something else to say."""

    width = PIPE_CELLS_MAX

    def lines(self, lines: Iterable[Text | str]) -> None:
        """Each as a line of the program's own."""
        for line in lines:
            say_error(str(line))

    def prompt(self) -> None:
        """Nothing shows where to type."""

    def prompted(self) -> None:
        """Nothing is to be taken away."""


def open_in(log: EventLog) -> tuple[Asked, ...]:
    """What a session has asked and nobody has answered."""
    return (*log[QUESTIONS], *log[APPROVALS])


class Prompting:
    """One question or approval after the other, the oldest first; within `async with` they are put to people.

    At the end of input a question is dismissed and an approval denied, unless its call waits no more: that stays open.
    A proposed plan is asked about where `decide` is called; at the end of input it stays a proposal.
    """

    def __init__(self, rt: Runtime, typed: Typed, board: Board, on_broken: Callable[[], object]) -> None:
        """`on_broken` is told of a bug in here: then nobody would answer any more."""
        self._rt, self._typed, self._board, self._on_broken = rt, typed, board, on_broken
        self._open: dict[Key, Asked] = {}
        self._typed_last: tuple[Key, Said] | None = None
        self._changed = asyncio.Event()
        self._left = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin, with what is open already."""
        for session in self._rt.sessions():
            log = self._log(session.id)
            for asked in () if log is None else open_in(log):
                self._open[session.id, asked.id] = asked
        self._task = asyncio.get_running_loop().create_task(self._all(), name="prompts")
        self._task.add_done_callback(self._over)
        return self

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            LOGGER.error("prompts broke off: %r", task.exception())
            self._on_broken()

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait((self._task,))
        if not self._task.cancelled():
            self._task.result()

    # -- what happens meanwhile --------------------------------------------------------------------------------------

    def taking(self, take: Callable[[Item], object]) -> Callable[[Item], None]:
        """`take`, and then what concerns prompts."""

        def both(item: Item) -> None:
            take(item)
            if isinstance(item, Envelope):
                self._take(item)

        return both

    def _take(self, envelope: Envelope) -> None:
        match envelope.event:
            case QuestionAsked() | ApprovalAsked() as asked:
                self._open[envelope.session, asked.id] = asked
            case QuestionAnswered() | ApprovalDecided() as end:
                self._open.pop((envelope.session, end.id), None)
            case PlanApproved() | PlanModeSet(active=False) | TurnStarted():
                self._forget_plans(envelope.session)
            case _:
                return
        self._changed.set()

    def _forget_plans(self, session: str) -> None:
        """It goes on, whoever said so: what it proposed is not asked about any more."""
        for key in [key for key, asked in self._open.items() if isinstance(asked, Proposal) and key[0] == session]:
            del self._open[key]

    def is_echo(self, envelope: Envelope) -> bool:
        """Whether this tells what was just typed here, in a terminal that shows it already."""
        match envelope.event:
            case QuestionAnswered(ending="answered") as end:
                said: Said = (end.selected, end.text)
            case ApprovalDecided() as end:
                said = (end.decision, end.feedback)
            case _:
                return False
        return self._typed_last == ((envelope.session, end.id), said)

    async def decide(self, session: str, proposal: Proposal) -> None:
        """Ask what is to become of a plan; return when that was done, or it stays a proposal."""
        key = (session, proposal.id)
        self._open[key] = proposal
        self._changed.set()
        while key in self._open and not self._left:
            await self._change()

    def leave(self) -> None:
        """Ask nothing any more: the turns that wait are being interrupted."""
        self._left = True
        self._changed.set()

    async def settled(self) -> None:
        """Return when nothing is open, or nothing is asked any more."""
        while self._open and not self._left:
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # -- one after the other -----------------------------------------------------------------------------------------

    async def _all(self) -> None:
        while not self._left:
            if not self._open:
                await self._change()
                continue
            key, asked = next(iter(self._open.items()))
            if not (self._is_open(key) and await self._put(key, asked)):
                self._drop(key)

    def _drop(self, key: Key) -> None:
        self._open.pop(key, None)
        self._changed.set()

    async def _put(self, key: Key, asked: Asked) -> bool:
        """Show it, and settle it by what is typed; whether it is still to be asked, because that was no answer."""
        if self._typed.ended:
            return await self._ended(key, asked)
        self._typed.forget()
        self._board.lines(lines_of(asked, self._board.width, self._who(key)))
        self._board.prompt()
        try:
            typed = await self._line(key)
        finally:
            self._board.prompted()
        if typed is None:
            return await self._ended(key, asked)
        (line,) = typed
        if isinstance(asked, Proposal) and uptake_in(line) is None:
            self._say(NO_UPTAKE)
            return self._typed.terminal  # of a pipe one line is read: the next may be meant for something else
        return not self._left and await self._settle(key, asked, line)

    async def _line(self, key: Key) -> tuple[str] | None:
        """The next line; None at the end of input, and an empty one when there is nothing to be answered any more."""
        loop = asyncio.get_running_loop()
        line, gone = loop.create_task(self._typed.line()), loop.create_task(self._gone(key))
        try:
            await asyncio.wait((line, gone), return_when=asyncio.FIRST_COMPLETED)
            if line.done():
                said = line.result()
                return None if said is None else (said,)
            self._board.lines([Text(f"  {SETTLED}", "dim")])
            return ("",)
        finally:
            line.cancel()
            gone.cancel()

    async def _gone(self, key: Key) -> None:
        while key in self._open and not self._left:
            await self._change()

    async def _ended(self, key: Key, asked: Asked) -> bool:
        if isinstance(asked, Proposal):
            return False
        log = self._log(key[0])
        if log is not None and log[TURN].open and log[TURN].number == asked.turn:
            refused, session = await self._settle(key, asked, ""), self._session(key)
            if refused and session is not None:  # it can only be ended together with its turn
                await session.interrupt()
        return False

    async def _settle(self, key: Key, asked: Asked, line: str) -> bool:
        """Answer; whether it is to be asked again."""
        session = self._session(key)
        if session is None or key not in self._open:
            return False
        try:
            answer = await self._tell(session, asked, line)
        except CallboardError as error:
            self._say(str(error))
            return isinstance(error, UsageError)
        if not isinstance(answer, Refused) or answer.reason == "not_pending":
            return False
        self._say(answer.detail)
        return True

    async def _tell(self, session: SessionHandle, asked: Asked, line: str) -> Accepted | Told | Refused | None:
        """The verb that the line stands for, and its answer; None where it is none."""
        match asked:
            case QuestionAsked():
                choices, text = answer_in(asked, line)
                self._note(session, asked, line, (choices, text))
                return await session.answer(asked.id, choices, text)
            case ApprovalAsked():
                decision, feedback = decision_in(line)
                self._note(session, asked, line, (decision, feedback))
                return await session.approve(asked.id, decision, feedback)
            case Proposal():
                uptake = uptake_in(line)
                return None if uptake == "stay" else await session.implement(asked.id, clear=uptake == "clear")

    def _note(self, session: SessionHandle, asked: Asked, line: str, said: Said) -> None:
        """What a terminal shows as it is typed need not be told again; an empty line shows nothing."""
        shows = self._typed.terminal and line.strip()
        self._typed_last = ((session.id, asked.id), said) if shows else None

    def _say(self, text: str) -> None:
        self._board.lines(paragraphs(text, self._board.width, "red", "  "))

    def _session(self, key: Key) -> SessionHandle | None:
        return next((one for one in self._rt.sessions() if one.id == key[0]), None)

    def _is_open(self, key: Key) -> bool:
        """Whether its session says so now; what was told of it may be older."""
        if isinstance(self._open[key], Proposal):
            return self._proposal(key) is not None
        log = self._log(key[0])
        return log is not None and any(one.id == key[1] for one in open_in(log))

    def _proposal(self, key: Key) -> Proposal | None:
        try:
            found = proposal_in(self._rt.actor(key[0]))
        except SessionClosed:
            return None
        return found if found is not None and found.id == key[1] else None

    def _log(self, session: str) -> EventLog | None:
        try:
            return self._rt.actor(session).log
        except SessionClosed:
            return None

    def _who(self, key: Key) -> str:
        log = self._log(key[0])
        opened = None if log is None else log[OPENED]
        return "" if opened is None or opened.parent is None else opened.path.removeprefix("/root/")

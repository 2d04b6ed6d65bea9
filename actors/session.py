"""Session: a mailbox, a phase, one running task; the only actor that appends to its log."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from callboard.actors import opening, verbs
from callboard.actors.abort import AbortWindow
from callboard.actors.answered import Answered
from callboard.actors.books import MODE, PARKED, QUEUE, TURN
from callboard.actors.childspec import Exit
from callboard.actors.claim import first_claim, next_start
from callboard.actors.dues import Dues, ask_plugins
from callboard.actors.errors import Fenced, LogError, MailboxFull, SessionClosed
from callboard.actors.eventlog import LOGGER, EventLog
from callboard.actors.events import AbortRequested, SessionOpened, StartKind, TurnEnded, TurnStarted
from callboard.actors.mailbox import Mailbox
from callboard.actors.messages import (
    Answer,
    Ask,
    Await,
    ChildDone,
    Idle,
    Interrupt,
    Interrupting,
    Letter,
    Passivate,
    Refused,
    Reply,
    ResumeQueue,
    SetMode,
    Stop,
    Submit,
    TaskDone,
    Wake,
    Withdraw,
    Withdrawn,
)
from callboard.actors.notices import Delta, DurabilityDelayed
from callboard.actors.passivation import Kept, passivated
from callboard.actors.phase import Do, Phase, on
from callboard.actors.stage import Stage
from callboard.actors.turn import run_turn
from callboard.actors.view import Scene
from callboard.actors.waiters import Waiters, turn_away

STALL_RETRY_S, NONE = 1.0, frozenset[str]()


class Session:
    """One session's actor. `run` is its whole life; `tell` puts a message into its mailbox and never waits.

    `run` may be called again after a crash: it reads the log, repairs it, and goes on with the same mailbox.
    """

    __slots__ = (
        "_answering",
        "_dues",
        "_loaded",
        "_next",
        "_stalled",
        "_stored",
        "_told",
        "answered",
        "deltas",
        "held",
        "id",
        "kept",
        "last_ended",
        "log",
        "mailbox",
        "on_abort",
        "on_ended",
        "opening",
        "phase",
        "rested_s",
        "scene",
        "stage",
        "suspects",
        "waiters",
    )

    def __init__(self, stage: Stage, id_: str, opening: SessionOpened | None, kept: Kept | None = None) -> None:
        """`opening` starts a new log; None, or what was `kept` of a passivated session, reads the one in the store."""
        self.stage, self.id, self.opening, self.kept = stage, id_, opening, kept
        self.phase = Phase.STARTING
        self.mailbox = Mailbox(stage.limits.mailbox_max)
        self.deltas: tuple[Callable[[Delta], None], ...] = ()
        self.on_abort: Callable[[], None] | None = None  # told at t = 0 of an abort, for the children
        self.on_ended: Callable[[TurnEnded], None] | None = None  # told after the flush of each end
        self.last_ended: TurnEnded | None = None
        self.log = EventLog(id_, stage.store, stage.codec, stage.folds, stage.now_ms, stage.on_event)
        self.scene = Scene(self.log, stage, self._delta)
        self._dues = Dues(self.scene, stage.alarms) if stage.alarms else None
        self.waiters: Waiters | None = None
        self.answered = (kept and kept.answered) or Answered()
        self._next: Callable[[], Awaitable[None]] | None = None  # gets the slot
        self._answering: Ask | None = None
        self._told, self.rested_s = 0, stage.now_s()  # ends of turns up to this one were told; since when it rests
        self._stalled = self._loaded = self.held = False
        self._stored = opening is None or kept is not None
        self.suspects = NONE if kept is None else kept.suspects  # messages that were being claimed at the last crash

    def tell(self, letter: Letter) -> None:
        """Put a message into the mailbox; `MailboxFull` at once when it is full, `SessionClosed` after the end.

        New input counts together with what is queued. What the runtime says, interrupts and stops always find room.
        """
        if self.phase in (Phase.STOPPED, Phase.PASSIVATED):
            if isinstance(letter, Interrupt | Stop):
                turn_away(letter, SessionClosed(""))
                return
            raise SessionClosed(f"session {self.id!r} has ended: open it again to go on.")
        if isinstance(letter, Submit) and len(self.log[QUEUE]) + len(self.mailbox) >= self.stage.limits.mailbox_max:
            raise MailboxFull(f"session {self.id!r} has {len(self.log[QUEUE])} messages queued; try again later.")
        self.mailbox.put(letter, urgent=isinstance(letter, Interrupt | Stop | TaskDone | ChildDone | Wake))

    # -- its life ------------------------------------------------------------------------------------------------

    async def run(self) -> Exit:
        """(Trio) Read the log, repair it, then do what the mailbox says until stopped or passivated; says which."""
        try:
            if not self._loaded:
                await self.load()
            self._loaded = False  # a second run starts from the log
            self._wake_up()
            while True:
                if self._next is not None:
                    await self._busy()
                if self.phase is Phase.STOPPED:
                    break
                letter = await self.mailbox.next()
                if isinstance(letter, Passivate) and await passivated(self, letter):
                    return "passivated"
                self._do(letter)
                del letter  # and with it whoever asked, 0.4 KB
            await opening.end(self.log, self.stage.limits.flush_stall_s)
            return "normal"
        finally:
            self._leave()

    def begin(self) -> None:
        """Open a new log; `run` does so itself unless it was done before."""
        assert self.opening is not None
        opening.begin(self.log, self.opening, self.stage.now_ms())
        self._stored = self._loaded = True
        self.phase = Phase.IDLE

    async def load(self) -> None:
        """(Trio) Open the log, or read and repair it; `run` does so itself unless it was done before."""
        self.phase, self.scene.window, self._next, self._stalled = Phase.STARTING, None, None, False
        self.mailbox.discard(TaskDone)  # of the life before
        if not self._stored:
            self.begin()
        else:
            first = self.log.seq == 0
            await opening.read(self.log, self.stage.store)
            kept = self.kept
            claimed = opening.claimed_at_crash(self.log)
            mended = opening.mend(self.log, cold=first and kept is None, poison=claimed & self.suspects)
            self.suspects = self.suspects if kept is not None else claimed
            if first:  # whoever waited for the turns before waits elsewhere; a mended one is news
                self._told = self.log[TURN].number - mended
                self.last_ended = None if mended else self.log.last_end
                self.held = kept is None or kept.held  # a session that is only opened resumes nothing by itself
            self.scene.fresh, self.kept = kept is None or kept.fresh, None
        self._loaded = True

    def _wake_up(self) -> None:
        self.phase = Phase.IDLE
        if self._dues is not None:
            self.log.unwatch(self._dues.arm)
            self.log.watch(self._dues.arm)
        ended = self.log.last_end
        if ended is not None and ended.turn > self._told:
            self.phase, self._next = Phase.ABORTING, partial(self._finish, ended)
        else:
            self._rest()

    async def _busy(self) -> None:
        """Run tasks, one after the other, while the mailbox is listened to."""
        async with trio.open_nursery() as nursery:
            while True:
                if self._next is not None:
                    nursery.start_soon(self._next)
                    self._next = None
                if self.phase in (Phase.IDLE, Phase.STOPPED):
                    return
                self._do(await self.mailbox.next())

    async def _turn(self, start: StartKind) -> None:
        await self._finish(await run_turn(self.scene, start))

    async def _finish(self, ended: TurnEnded) -> None:
        """Wait for the disk however long it takes, say so when it takes too long, and only then report the end."""
        late_s = trio.current_time() + self.stage.limits.flush_stall_s
        while True:
            with trio.CancelScope(deadline=float("inf") if self._stalled else late_s):
                try:
                    await self.log.flush()
                    break
                except LogError as error:
                    LOGGER.warning("session %s: the end of turn %d is not durable: %s", self.id, ended.turn, error)
                    await trio.sleep(STALL_RETRY_S)
                    continue
            self._stalled = True
            self.stage.on_notice(DurabilityDelayed(self.id, ended.turn))
        self._stalled = False
        self.mailbox.put(TaskDone(ended), urgent=True)

    def _leave(self) -> None:
        """The actor is going down, stopped or crashed: nobody may be left without an answer."""
        answering: Any = self._answering
        if answering is not None:
            self._answering = None
            turn_away(answering, SessionClosed(f"session {self.id!r} crashed over this message."))
        if self.phase is Phase.STOPPED:
            self.close()

    def close(self) -> None:
        """The session is over, or its supervisor gave up: everybody who waits is told, what it owns is closed."""
        self.phase = Phase.STOPPED
        self.scene.epoch += 1
        self.scene.close()
        closed = SessionClosed(f"session {self.id!r} has ended.")
        for letter in self.mailbox.empty():
            turn_away(letter, closed)
        if self.waiters is not None:
            self.waiters.stopped(closed)

    # -- what messages do ----------------------------------------------------------------------------------------

    def _do(self, letter: Letter) -> None:
        do, after = on(self.phase, type(letter))
        self._answering = letter
        match letter:
            case _ if do is Do.REFUSE:
                turn_away(letter, SessionClosed(f"session {self.id!r} is ending."))
            case Submit() | ChildDone() | Withdraw() | ResumeQueue() | SetMode():
                self._write(letter)
            case Interrupt():
                self._interrupt(letter, do, after)
            case Stop():
                if do is Do.ABORT:
                    self._abort(letter)
                self.phase = after
                self._waiting().for_stop(letter.reply)
            case Await():
                self._await(letter)
            case Wake() if self._dues is not None:
                self._dues.rang()
            case Passivate():
                letter.reply(None)
            case TaskDone():
                if self.scene.window is not None:
                    self.scene.window.on_open = None  # what the turn left behind must not keep the session
                self.phase, self.scene.window = after, None
                self._ended(letter.ended)
        self._answering = None
        if self.phase is Phase.IDLE and not isinstance(letter, Await | Interrupt | Passivate):
            self._rest()

    def _write(self, letter: Submit | ChildDone | Withdraw | ResumeQueue | SetMode) -> None:
        """Verbs that write: decide, append, and answer when it is durable."""
        if self._stalled and isinstance(letter, Submit):
            detail = "the store does not confirm the end of the last turn"
            letter.reply(Refused("store_stalled", detail))
            if letter.ended is not None:
                letter.ended(LogError(f"session {self.id!r}: {detail}."))
            return
        try:
            answer = self._decide(letter)
            if isinstance(letter, Submit | ChildDone | ResumeQueue):
                self.held = False
        except LogError as error:
            turn_away(letter, error)
            if isinstance(error, Fenced):
                self._answering = None
                raise
            return
        if isinstance(answer, Withdrawn | Refused):
            letter.reply(answer)
        else:
            self.log.when_durable(partial(_answer, letter.reply, answer))

    def _decide(self, letter: Submit | ChildDone | Withdraw | ResumeQueue | SetMode) -> Answer:
        if isinstance(letter, Submit):
            events, accepted, id_ = verbs.submit(self.log, letter, idle=self.phase is Phase.IDLE)
            if events:
                self.log.append(*events)
            self._watch_message(letter, id_, accepted.turn)
            return accepted
        events, answer = verbs.decide(self.log, letter)
        if events:
            self.log.append(*events)
        if isinstance(letter, Withdraw) and events and self.waiters is not None:
            gone = SessionClosed(f"message {letter.id!r} was withdrawn before a turn took it.")
            self.waiters.withdrawn(letter.id, gone)
        return answer

    def _watch_message(self, letter: Submit, id_: str, turn: int | None) -> None:
        """Tell `letter.ended` of the turn that takes this message, also when it was sent once before."""
        if letter.ended is None:
            return
        waiting = self._waiting()
        if waiting.knows(id_) or any(message.id == id_ for message in self.log[QUEUE]):
            waiting.for_message(id_, letter.ended)
        elif turn is not None:
            self._await(Await(turn, reply=letter.ended))
        else:
            letter.ended(None)

    def _interrupt(self, letter: Interrupt, do: Do, after: Phase) -> None:
        again = self.answered.get(letter.id)
        letter.reply(again or self.answered.keep(letter.id, self._interrupting(letter, do, after)))

    def _interrupting(self, letter: Interrupt, do: Do, after: Phase) -> Interrupting | Idle | Refused:
        turn = self.log[TURN]
        if do is Do.REPEAT and letter.turn in (None, turn.number):
            return Interrupting(turn.number)
        refusal = verbs.wrong_turn(self.log, letter)
        if refusal is not None or do is not Do.ABORT or not turn.open:  # not open: it is over but for its flush
            return refusal or Idle()
        self._abort(letter)
        self.phase = after
        return Interrupting(turn.number)

    def _abort(self, letter: Interrupt | Stop) -> None:
        turn, window = self.log[TURN], self.scene.window
        if turn.open and window is not None and window.cause is None:
            try:
                self.log.append(AbortRequested(turn.number, letter.cause))
            except LogError as error:
                LOGGER.warning("session %s: the abort is not on the log: %s", self.id, error)
            window.request(letter.cause)

    def _await(self, letter: Await) -> None:
        turn = self.log[TURN]
        if letter.turn is None:
            if self.phase is Phase.IDLE:
                letter.reply(None)
            else:
                self._waiting().for_idle(letter.reply)
        elif letter.turn > turn.number or (letter.turn == turn.number and letter.turn > self._told):
            self._waiting().for_turn(letter.turn, letter.reply)
        else:
            remembered = self.last_ended
            letter.reply(remembered if remembered is not None and remembered.turn == letter.turn else None)

    # -- rest and start ------------------------------------------------------------------------------------------

    def _rest(self) -> None:
        """The slot is free: do what is due, start what is queued, ask the plugins for more, or be idle."""
        if self._dues is not None and self._dues.fire():
            self.held = False
        start = self._next_start()
        if start is None and not (self.held or self.log[MODE].active) and ask_plugins(self.scene):
            start = self._next_start()
        if start is None or self.held:
            self.rested_s = self.stage.now_s()
            if self.waiters is not None:
                self.waiters.idle()
                self.waiters = self.waiters or None
            return
        number = self.log[TURN].number + 1
        self.log.append(TurnStarted(number, start=start, started_ms=self.stage.now_ms()))
        if self.waiters is not None:
            self.waiters.taken((message.id for message in first_claim(self.log[QUEUE], start)), number)
        self.scene.window = AbortWindow(self.stage.limits.abort_window_s, self.on_abort)
        self.phase, self._next = Phase.RUNNING, partial(self._turn, start)

    def _next_start(self) -> StartKind | None:
        log = self.log
        return next_start(log[QUEUE], parked=log[PARKED], plan_mode=log[MODE].active)

    def _ended(self, ended: TurnEnded) -> None:
        self.last_ended, self._told = ended, ended.turn
        if self.waiters is not None:
            self.waiters.ended(ended, self.log[QUEUE])
        if self.on_ended is not None:
            self.on_ended(ended)

    def _waiting(self) -> Waiters:
        self.waiters = waiters = self.waiters or Waiters()
        return waiters

    def _delta(self, delta: Delta) -> None:
        for take in self.deltas:
            take(delta)


def _answer(reply: Reply, answer: Answer, error: Exception | None) -> None:
    reply(answer if error is None else error)

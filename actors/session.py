"""Session: a mailbox, a phase, one running turn; the only actor that appends to its log."""

from collections.abc import Callable
from functools import partial
from typing import Any

from callboard.actors import opening, plugged, verbs
from callboard.actors.answered import answered, id_of, record
from callboard.actors.books import QUEUE, TURN
from callboard.actors.childspec import Exit
from callboard.actors.dues import Dues, ask_plugins
from callboard.actors.ending import last_flush
from callboard.actors.errors import LogError, MailboxFull, SessionClosed
from callboard.actors.eventlog import LOGGER, EventLog
from callboard.actors.events import (
    AbortRequested,
    Cause,
    Event,
    MessageQueued,
    SessionOpened,
    ShellStarted,
    TurnEnded,
)
from callboard.actors.mailbox import Mailbox
from callboard.actors.messages import (
    PLUGGED,
    QUIET,
    RELEASING,
    URGENT,
    Accepted,
    Answer,
    Ask,
    Await,
    ChildDone,
    Idle,
    Input,
    Interrupt,
    Interrupting,
    Letter,
    Mail,
    Passivate,
    Refused,
    Reply,
    Shell,
    Stop,
    Submit,
    TaskDone,
    Wake,
    Withdraw,
    Withdrawn,
    Writes,
)
from callboard.actors.mode import MODE
from callboard.actors.notices import Delta, ModelRetrying
from callboard.actors.passivation import Kept, passivated
from callboard.actors.phase import Do, Phase, on
from callboard.actors.seen import SEEN
from callboard.actors.slot import Slot
from callboard.actors.stage import Stage
from callboard.actors.starts import begin, can_do, has_room, next_up, takes
from callboard.actors.told import finish
from callboard.actors.usershell import UserShells
from callboard.actors.view import Scene
from callboard.actors.waiters import Waiters, refuse_stalled, settle, turn_away

NONE = frozenset[str]()


class Session:
    """One session's actor. `run` is its whole life; `tell` puts a message into its mailbox and never waits.

    `run` may be called again after a crash: it reads the log, repairs it, and goes on with the same mailbox.
    """

    __slots__ = (
        "_answering",
        "_dues",
        "_loaded",
        "_shells",
        "_slot",
        "_stored",
        "_told",
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
        "waits",
    )

    def __init__(self, stage: Stage, id_: str, opening: SessionOpened | None, kept: Kept | None = None) -> None:
        """`opening` starts a new log; None, or what was `kept` of a passivated session, reads the one in the store."""
        self.stage, self.id, self.opening, self.kept = stage, id_, opening, kept
        self.phase = Phase.STARTING
        self.mailbox = Mailbox(stage.limits.mailbox_max)
        self.deltas: tuple[Callable[[Delta | ModelRetrying], None], ...] = ()
        self.on_abort: Callable[[], int | None] | None = None  # told at t = 0 of an interrupt: how many agents end
        self.on_ended: Callable[[TurnEnded], None] | None = None  # told after the flush of each end
        self.last_ended: TurnEnded | None = None
        self.log = EventLog(id_, stage.store, stage.codec, stage.folds, stage.now_ms, stage.on_event)
        self.scene = Scene(self.log, stage, self._delta)
        self._dues = Dues(self.scene, stage.alarms, self.mailbox) if stage.alarms else None
        self.waiters: Waiters | None = None
        self._shells: UserShells | None = None
        self.log.on_fenced = self.mailbox.nudge
        self._slot = Slot(stage, self.log, self._durable)
        self._answering: Ask | None = None
        self._told, self.rested_s = 0, stage.now_s()  # ends of turns up to this one were told; since when it rests
        self._loaded = self.held = self.waits = False  # waits: for a slot in its tree, with something to do
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
        if isinstance(letter, Input) and not takes(self.log, letter, len(self.mailbox), self.stage.limits.mailbox_max):
            raise MailboxFull(f"session {self.id!r} has {len(self.log[QUEUE])} messages queued; try again later.")
        self.mailbox.put(letter, urgent=isinstance(letter, URGENT))

    # -- its life ------------------------------------------------------------------------------------------------

    async def run(self) -> Exit:
        """(Trio) Read the log, repair it, then do what the mailbox says until stopped or passivated; says which."""
        try:
            if not self._loaded:
                await self.load()
            self._loaded = False  # a second run starts from the log
            self._wake_up()
            self._slot.look()
            while self.phase is not Phase.STOPPED:
                letter = await self.mailbox.next()
                if isinstance(letter, Passivate) and self.phase is Phase.IDLE and await passivated(self, letter):
                    return "passivated"
                if letter is not None:
                    self._do(letter)
                del letter  # and with it whoever asked, 0.4 KB
                self._slot.look()
            if self.scene.belongings:
                await finish(self.scene)
            await last_flush(self.log, self.stage.limits)
            return "normal"
        finally:
            self._leave()

    def begin(self) -> None:
        """Open a new log; `run` does so itself unless it was done before."""
        assert self.opening is not None
        opening.begin(self.log, self.opening, self.stage.now_ms())
        self._stored = self._loaded = True
        self.phase = Phase.IDLE

    async def load(self, *, closed: bool = False) -> None:
        """(Trio) Open the log, or read and repair it, as `run` does itself. No turn of a `closed` agent goes on."""
        self.phase, self.scene.window = Phase.STARTING, None
        self.mailbox.discard(TaskDone)  # of the life before
        if not self._stored:
            self.begin()
        else:
            first, kept = self.log.seq == 0, self.kept
            await opening.read(self.log, self.stage.store)
            claimed = opening.claimed_at_crash(self.log)
            poison, stopping = claimed & self.suspects, self.waiters is not None and self.waiters.stopping
            going_on = not (poison or stopping or closed) and opening.take_up(self.log, self.stage.limits.recover)
            mended = not going_on and opening.mend(self.log, cold=first and kept is None, poison=poison)
            self.suspects = self.suspects if kept is not None else claimed
            if first:  # whoever waited for the turns before waits elsewhere; a mended one is news
                self._told = self.log[TURN].number - (mended or going_on)
                self.last_ended = None if mended else self.log.last_end
                self.held = not going_on if kept is None else kept.held  # one only opened resumes nothing by itself
            self.scene.fresh, self.kept = kept is None or kept.fresh, None
        self._loaded = True

    def _wake_up(self) -> None:
        self.phase = Phase.IDLE
        if self._dues is not None:
            self.log.unwatch(self._dues.arm)
            self.log.watch(self._dues.arm)
        ended, stopping = self.log.last_end, self.waiters is not None and self.waiters.stopping
        if ended is not None and ended.turn > self._told:
            self.phase = Phase.STOPPING if stopping else Phase.ABORTING
            self._slot.finish(ended)
        elif stopping:  # it was asked before the crash
            self.phase = Phase.STOPPED
        else:
            self._rest()

    def _durable(self, ended: TurnEnded) -> None:
        self.mailbox.put(TaskDone(ended), urgent=True)
        self.log.snap(self.stage.limits.snap_bytes)

    def _leave(self) -> None:
        """The actor is going down, stopped or crashed: nobody may be left without an answer."""
        answering: Any = self._answering
        if answering is not None:
            self._answering = None
            turn_away(answering, SessionClosed(f"session {self.id!r} crashed over this message."))
        self._slot.free()
        if self._shells is not None:
            self._shells.cut()
        if self.phase is Phase.STOPPED:
            self.close()

    def close(self) -> None:
        """The session is over, or its supervisor gave up: everybody who waits is told, what it owns is closed."""
        self.phase = Phase.STOPPED
        self.scene.epoch += 1
        self.scene.close()
        closed = self.log.fenced or SessionClosed(f"session {self.id!r} has ended.")
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
            case Interrupt():
                self._interrupt(letter, do, after)
            case Stop():
                if do is Do.ABORT:
                    self.abort(letter.cause)
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
                self._slot.free()
                self._ended(letter.ended)
            case _ if not isinstance(letter, Wake):
                self._write(letter, do, after)
        self._answering = None
        if self.phase is Phase.IDLE and not isinstance(letter, QUIET):
            self._rest()

    def _write(self, letter: Writes, do: Do, after: Phase) -> None:
        """Verbs that write: decide, append, and answer when it is durable."""
        if self._slot.stalled and not isinstance(letter, ChildDone):
            refuse_stalled(letter, self.id)
            return
        try:
            answer = self._decide(letter, do, after)
            if isinstance(letter, RELEASING) or (isinstance(letter, Mail) and letter.trigger):
                self.held = False
        except LogError as error:
            turn_away(letter, error)
            return
        if isinstance(answer, Withdrawn | Refused) and id_of(letter) is None:
            letter.reply(answer)
        else:
            self.log.when_durable(partial(settle, letter.reply, answer))

    def _decide(self, letter: Writes, do: Do, after: Phase) -> Answer:
        joins = self.scene.stands_by if do is Do.BESIDE else do is Do.JOIN and self.scene.takes_input
        idle = self.phase is Phase.IDLE
        if isinstance(letter, PLUGGED):
            events, answer = plugged.decide(self.scene, letter)
        else:
            events, answer = verbs.decide(self.log, letter, idle=idle, joins=joins, can=partial(can_do, self.stage))
        if events:
            self.log.append(*events)
        match letter:
            case Submit() if letter.ended is not None:
                self._watch_message(letter.ended, letter.id, events, answer)
            case Withdraw() if isinstance(answer, Withdrawn) and self.waiters is not None:
                gone = SessionClosed(f"message {letter.id!r} was withdrawn before a turn took it.")
                self.waiters.withdrawn(letter.id, gone)
            case Shell() if events and isinstance(events[0], ShellStarted):
                self._shells = self._shells or UserShells(self.scene)
                self._shells.begin(events[0].id, letter.text)
            case _ if do is Do.REPLACE and events and isinstance(answer, Accepted) and self.log[TURN].open:
                self.abort("replaced")
                self.phase = after
        return answer

    def _watch_message(self, ended: Reply, id_: str | None, events: tuple[Event, ...], answer: Any) -> None:
        """Tell `ended` of the turn that takes this message, also when it was sent once before."""
        queued = events[-1].id if events and isinstance(events[-1], MessageQueued) else str(id_)
        waiting = self._waiting()
        if waiting.knows(queued) or any(message.id == queued for message in self.log[QUEUE]):
            waiting.for_message(queued, ended)
        elif answer.turn is not None:
            self._await(Await(answer.turn, reply=ended))
        else:
            ended(None)

    def _interrupt(self, letter: Interrupt, do: Do, after: Phase) -> None:
        again = answered(self.log[SEEN], letter) if letter.id else None
        answer = again or self._interrupting(letter, do, after)
        letter.reply(answer)  # whether or not the log takes it
        if again is None and letter.id:
            self._note(*record(letter, answer))

    def _interrupting(self, letter: Interrupt, do: Do, after: Phase) -> Interrupting | Idle | Refused:
        turn = self.log[TURN]
        if do is Do.REPEAT and letter.turn in (None, turn.number):
            return Interrupting(turn.number)
        refusal = verbs.wrong_turn(self.log, letter)
        if refusal is not None or do is not Do.ABORT or not turn.open:  # not open: it is over but for its flush
            if refusal is None and self._shells is not None:
                self._shells.ask()
            return refusal or Idle((self.on_abort() if self.on_abort is not None else 0) or 0)
        self.abort(letter.cause)
        self.phase = after
        return Interrupting(turn.number)

    def abort(self, cause: Cause) -> None:
        """Open the window of the turn that runs, at once; without one, or in it already, nothing happens."""
        turn, window = self.log[TURN], self.scene.window
        if turn.open and window is not None and window.cause is None:
            self._note(AbortRequested(turn.number, cause))
            window.request(cause)

    def _note(self, *events: Event) -> None:
        """Onto the log if it takes them; what they say is done all the same."""
        try:
            self.log.append(*events)
        except LogError as error:
            LOGGER.warning("session %s: %s is not on the log: %s", self.id, type(events[0]).__name__, error)

    def _await(self, letter: Await) -> None:
        turn = self.log[TURN]
        if letter.turn is None:
            if self.phase is Phase.IDLE and not self.waits:
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
        start = next_up(self.log)
        if start is None and not (self.held or self.log[MODE].bars) and ask_plugins(self.scene):
            start = next_up(self.log)
        self.waits = start is not None and not self.held and not has_room(self.stage, self.log, start)
        if start is None or self.held or self.waits:
            self.rested_s = self.stage.now_s()
            if self.waiters is not None and not self.waits:
                self.waiters.idle()
                self.waiters = self.waiters or None
            return
        task, ids = begin(self.scene, start, self.on_abort, self.mailbox.nudge)
        self.phase = Phase.RUNNING
        self._slot.take(task)
        if self.waiters is not None:
            self.waiters.taken(ids, self.log[TURN].number)
        if self._shells is not None and self.scene.window is not None:
            self._shells.under(self.scene.window)

    def _ended(self, ended: TurnEnded) -> None:
        self.last_ended, self._told = ended, ended.turn
        if self.waiters is not None:
            self.waiters.ended(ended, self.log[QUEUE])
        if self.on_ended is not None:
            self.on_ended(ended)

    def _waiting(self) -> Waiters:
        self.waiters = waiters = self.waiters or Waiters()
        return waiters

    def _delta(self, delta: Delta | ModelRetrying) -> None:
        for take in self.deltas:
            take(delta)

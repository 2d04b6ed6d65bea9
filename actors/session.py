"""Session: a mailbox, a phase, one running task; the only actor that appends to its log."""

from collections.abc import Callable, Iterator
from functools import partial

import trio

from callboard.actors import verbs
from callboard.actors.abort import AbortWindow
from callboard.actors.books import MODE, PARKED, QUEUE, TURN
from callboard.actors.claim import next_start
from callboard.actors.errors import LogError, SessionClosed
from callboard.actors.eventlog import LOGGER, EventLog
from callboard.actors.events import (
    AbortRequested,
    Event,
    MessageQueued,
    SessionOpened,
    StartKind,
    TurnEnded,
    TurnStarted,
)
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
    Refused,
    Reply,
    ResumeQueue,
    SetMode,
    Stop,
    Stopped,
    Submit,
    TaskDone,
    Wake,
    Withdraw,
    Withdrawn,
)
from callboard.actors.notices import Delta, DurabilityDelayed
from callboard.actors.phase import Do, Phase, on
from callboard.actors.plugin import Alarm
from callboard.actors.receipts import repair
from callboard.actors.stage import Stage
from callboard.actors.store import Header
from callboard.actors.turn import run_turn
from callboard.actors.view import CallView, Scene
from callboard.actors.waiters import Waiters

PAGE_MAX = 1_000  # records read from the store at once
STALL_RETRY_S = 1.0


class Session:
    """One session's actor. `run` is its whole life; `tell` puts a message into its mailbox and never waits.

    `run` may be called again after a crash: it reads the log, repairs it, and goes on with the same mailbox.
    """

    __slots__ = (
        "_answering",
        "_loaded",
        "_stalled",
        "_starting",
        "_stored",
        "_waiters",
        "deltas",
        "id",
        "last_ended",
        "log",
        "mailbox",
        "on_abort",
        "on_ended",
        "opening",
        "phase",
        "scene",
        "stage",
    )

    def __init__(self, stage: Stage, id_: str, opening: SessionOpened | None) -> None:
        """`opening` starts a new log; None reads the one in the store."""
        self.stage, self.id, self.opening = stage, id_, opening
        self.phase = Phase.STARTING
        self.mailbox = Mailbox(stage.limits.mailbox_max)
        self.deltas: tuple[Callable[[Delta], None], ...] = ()
        self.on_abort: Callable[[], None] | None = None  # told at t = 0 of an abort, for the children
        self.on_ended: Callable[[TurnEnded], None] | None = None  # told after the flush of each end
        self.last_ended: TurnEnded | None = None
        self._waiters: Waiters | None = None
        self._starting: StartKind | None = None
        self._answering: Ask | None = None
        self._stalled = False
        self._stored = opening is None
        self._loaded = False
        self._new_log()

    def _new_log(self) -> None:
        stage = self.stage
        self.log = EventLog(self.id, stage.store, stage.codec, stage.folds, stage.now_ms, stage.on_event)
        self.scene = Scene(self.log, stage, self._delta)

    def tell(self, letter: Letter) -> None:
        """Put a message into the mailbox; `MailboxFull` at once when it is full, `SessionClosed` after the end.

        Interrupts, stops and the task's own report always find room.
        """
        if self.phase is Phase.STOPPED:
            if isinstance(letter, Interrupt | Stop):
                letter.reply(Idle() if isinstance(letter, Interrupt) else Stopped())
                return
            raise SessionClosed(f"session {self.id!r} has ended: open it again to go on.")
        self.mailbox.put(letter, urgent=isinstance(letter, Interrupt | Stop | TaskDone))

    # -- its life ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """(Trio) Read the log, repair it, then do what the mailbox says until stopped."""
        try:
            if not self._loaded:
                await self.load()
            self._loaded = False  # a second run starts from the log
            self._wake_up()
            if self._starting is not None:
                await self._busy()
            while self.phase is not Phase.STOPPED:
                self._do(await self.mailbox.next())
                if self._starting is not None:
                    await self._busy()
        finally:
            self._leave()

    async def load(self) -> None:
        """(Trio) Open the log, or read and repair it; `run` does so itself unless it was done before."""
        self.phase = Phase.STARTING
        if self.opening is not None and not self._stored:
            self.log.append(self.opening, header=self._header(self.opening))
            self._stored = True
        else:
            if self.log.seq:
                readers = self.log.readers
                self._new_log()
                self.log.readers = readers
            await self._read()
        self._loaded = True

    def _wake_up(self) -> None:
        self.phase = Phase.IDLE
        if any(plugin.alarms for plugin in self.stage.plugins):
            self.log.watchers = [self._set_alarm]
            self._set_alarm()
        self._rest()

    async def _read(self) -> None:
        store, synced = self.stage.store, trio.Event()
        store.sync(lambda error: synced.set())
        await synced.wait()
        while True:
            read = partial(store.read, self.id, self.log.seq - 1, PAGE_MAX)
            records = await trio.to_thread.run_sync(read, abandon_on_cancel=True) if store.blocking else read()
            self.log.load(records)
            if len(records) < PAGE_MAX:
                break
        self.scene.fresh = True
        closing = repair(self.log[TURN], self.log.at_ms)
        if closing:
            self.log.append(*closing, at_ms=self.log.at_ms)
            ended = closing[-1]
            assert isinstance(ended, TurnEnded)
            self._ended(ended)

    def _header(self, opening: SessionOpened) -> Header:
        now_ms = self.stage.now_ms()
        return Header(
            self.id,
            opening.parent,
            opening.root or self.id,
            opening.path,
            opening.title,
            created_ms=now_ms,
            updated_ms=now_ms,
            events=1,
        )

    async def _busy(self) -> None:
        """Run tasks, one after the other, while the mailbox is listened to."""
        async with trio.open_nursery() as nursery:
            while True:
                if self._starting is not None:
                    start, self._starting = self._starting, None
                    nursery.start_soon(self._task, start)
                if self.phase in (Phase.IDLE, Phase.STOPPED):
                    return
                self._do(await self.mailbox.next())

    async def _task(self, start: StartKind) -> None:
        ended = await run_turn(self.scene, start)
        await self._announce(ended)
        self.mailbox.put(TaskDone(ended), urgent=True)

    async def _announce(self, ended: TurnEnded) -> None:
        """Wait for the disk however long it takes; say so when it takes too long."""
        while True:
            with trio.move_on_after(self.stage.limits.flush_stall_s):
                try:
                    await self.log.flush()
                    self._stalled = False
                    return
                except LogError as error:
                    LOGGER.warning("session %s: the end of turn %d is not durable: %s", self.id, ended.turn, error)
                    await trio.sleep(STALL_RETRY_S)
            if not self._stalled:
                self._stalled = True
                self.stage.on_notice(DurabilityDelayed(self.id, ended.turn))

    def _leave(self) -> None:
        """The actor is going down, stopped or crashed: nobody may be left without an answer."""
        if self._answering is not None:
            answering, self._answering = self._answering, None
            answering.reply(SessionClosed(f"session {self.id!r} crashed over this message."))
        if self.phase is Phase.STOPPED:
            self.close()

    def close(self) -> None:
        """The session is over, or its supervisor gave up: everybody who waits is told, what it owns is closed."""
        self.phase = Phase.STOPPED
        self.scene.close()
        closed = SessionClosed(f"session {self.id!r} has ended.")
        for letter in self.mailbox.empty():
            match letter:
                case Stop():
                    letter.reply(Stopped())
                case Interrupt():
                    letter.reply(Idle())
                case _:
                    letter.reply(closed)
                    if isinstance(letter, Submit) and letter.ended is not None:
                        letter.ended(closed)
        if self._waiters is not None:
            self._waiters.stopped(closed)

    # -- what messages do ----------------------------------------------------------------------------------------

    def _do(self, letter: Letter) -> None:
        do, after = on(self.phase, type(letter))
        if isinstance(letter, Interrupt) and self._beside_the_point(letter):
            return
        self._answering = letter
        match letter:
            case _ if do is Do.REFUSE:
                self._refuse(letter)
            case Submit() | ChildDone() | Withdraw() | ResumeQueue() | SetMode():
                self._write(letter)
            case Interrupt() | Stop():
                self._stop_or_abort(letter, do, after)
            case Await():
                self._await(letter)
            case Wake() if do is Do.FIRE:
                self._fire()
            case TaskDone():
                self._task_done(letter, after)
        self._answering = None

    def _refuse(self, letter: Letter) -> None:
        closed = SessionClosed(f"session {self.id!r} is ending.")
        letter.reply(closed)
        if isinstance(letter, Submit) and letter.ended is not None:
            letter.ended(closed)

    def _write(self, letter: Submit | ChildDone | Withdraw | ResumeQueue | SetMode) -> None:
        """Verbs that write: decide, append, answer when it is durable, and start what may start now."""
        if self._stalled and isinstance(letter, Submit):
            letter.reply(Refused("store_stalled", "the store does not confirm the end of the last turn"))
            return
        try:
            answer = self._decide(letter)
        except LogError as error:
            letter.reply(error)
            return
        if isinstance(answer, Withdrawn | Refused):
            letter.reply(answer)
        else:
            self.log.when_durable(partial(_answer, letter.reply, answer))
        if self.phase is Phase.IDLE:
            self._rest()

    def _decide(self, letter: Submit | ChildDone | Withdraw | ResumeQueue | SetMode) -> Answer:
        events: tuple[Event, ...]
        answer: Answer
        match letter:
            case Submit():
                events, accepted, id_ = verbs.submit(self.log, letter, idle=self.phase is Phase.IDLE)
                answer = accepted
                if events:
                    self.log.append(*events)
                self._watch_message(letter, id_, accepted.turn)
                return answer
            case ChildDone():
                events, answer = verbs.child_done(self.log, letter)
            case Withdraw():
                events, answer = verbs.withdraw(self.log, letter)
                if events and self._waiters is not None:
                    gone = SessionClosed(f"message {letter.id!r} was withdrawn before a turn took it.")
                    self._waiters.withdrawn(letter.id, gone)
            case ResumeQueue():
                events, answer = verbs.resume(self.log)
            case SetMode():
                events, answer = verbs.set_mode(self.log, letter)
        if events:
            self.log.append(*events)
        return answer

    def _watch_message(self, letter: Submit, id_: str, turn: int | None) -> None:
        """Tell `letter.ended` of the turn that takes this message, also when it was sent once before."""
        if letter.ended is None:
            return
        if any(message.id == id_ for message in self.log[QUEUE]):
            self._waiting().for_message(id_, letter.ended)
        elif turn is not None:
            self._await(Await(turn, reply=letter.ended))
        else:
            letter.ended(None)

    def _beside_the_point(self, letter: Interrupt) -> bool:
        """Answer an interrupt that names another turn, or whose turn is over but for its flush."""
        refusal = verbs.wrong_turn(self.log, letter)
        over = self.phase is Phase.RUNNING and not self.log[TURN].open
        if refusal is not None or over:
            letter.reply(refusal or Idle())
            return True
        return False

    def _stop_or_abort(self, letter: Interrupt | Stop, do: Do, after: Phase) -> None:
        number = self.log[TURN].number
        if do is Do.ABORT:
            self._abort(letter)
        self.phase = after
        if isinstance(letter, Interrupt):
            letter.reply(Idle() if do is Do.NOTHING else Interrupting(number))
        else:
            self._waiting().for_stop(letter.reply)

    def _abort(self, letter: Interrupt | Stop) -> None:
        turn, window = self.log[TURN], self.scene.window
        if not turn.open or window is None:
            return
        if self.on_abort is not None:
            self.on_abort()
        if window.cause is None:
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
        elif letter.turn > turn.number or (letter.turn == turn.number and self.phase is not Phase.IDLE):
            self._waiting().for_turn(letter.turn, letter.reply)
        else:
            remembered = self.last_ended
            letter.reply(remembered if remembered is not None and remembered.turn == letter.turn else None)

    def _fire(self) -> None:
        now_ms = self.stage.now_ms()
        for alarm in self._alarms():
            due_ms = alarm.next_ms(self.log[alarm.projection])
            if due_ms is not None and due_ms <= now_ms:
                view = CallView(self.scene)
                self.log.append(*alarm.fire(view))
                view.close()
        self._rest()

    def _task_done(self, letter: TaskDone, after: Phase) -> None:
        self.phase, self.scene.window = after, None
        self._ended(letter.ended)
        if after is Phase.IDLE:
            self._rest()

    # -- rest and start ------------------------------------------------------------------------------------------

    def _rest(self) -> None:
        """The slot is free: start what is queued, ask the plugins for more, or be idle."""
        start = self._next_start()
        if start is None and not self.log[MODE].active and self._ask_plugins():
            start = self._next_start()
        if start is None:
            if self._waiters is not None:
                self._waiters.idle()
            return
        number = self.log[TURN].number + 1
        self.log.append(TurnStarted(number, start=start, started_ms=self.stage.now_ms()))
        self.scene.window = AbortWindow(self.stage.limits.abort_window_s)
        self.phase, self._starting = Phase.RUNNING, start

    def _ask_plugins(self) -> bool:
        for plugin in self.stage.plugins:
            if plugin.on_idle is not None:
                view = CallView(self.scene)
                message = plugin.on_idle(view)
                view.close()
                if message is not None:
                    queued = MessageQueued(message.id, message.text, message.source, given=True, seq=self.log.seq)
                    self.log.append(queued)
                    return True
        return False

    def _next_start(self) -> StartKind | None:
        log = self.log
        return next_start(log[QUEUE], parked=log[PARKED], plan_mode=log[MODE].active)

    def _ended(self, ended: TurnEnded) -> None:
        self.last_ended = ended
        if self._waiters is not None:
            queue = self.log[QUEUE]
            self._waiters.ended(ended, lambda id_: any(message.id == id_ for message in queue))
        if self.on_ended is not None:
            self.on_ended(ended)

    def _waiting(self) -> Waiters:
        if self._waiters is None:
            self._waiters = Waiters()
        return self._waiters

    def _delta(self, delta: Delta) -> None:
        for take in self.deltas:
            take(delta)

    def _alarms(self) -> Iterator[Alarm]:
        for plugin in self.stage.plugins:
            yield from plugin.alarms

    def _set_alarm(self) -> None:
        """Keep the runtime's alarm at the next due time of this session's plugins."""
        dues = (alarm.next_ms(self.log[alarm.projection]) for alarm in self._alarms())
        self.stage.on_due(self.id, min((due for due in dues if due is not None), default=None))


def _answer(reply: Reply, answer: Answer, error: Exception | None) -> None:
    reply(answer if error is None else error)

"""Dues: when the plugins of one session want to be woken, and what they put on the log between turns."""

from collections.abc import Iterable, Iterator

import msgspec

from callboard.actors.books import QUEUE
from callboard.actors.errors import Fenced, LogError
from callboard.actors.eventlog import LOGGER, EventLog
from callboard.actors.events import Event, MessageQueued
from callboard.actors.mailbox import Mailbox
from callboard.actors.messages import Wake
from callboard.actors.plugin import Alarm
from callboard.actors.seen import SEEN
from callboard.actors.timers import Timer
from callboard.actors.view import CallView, Scene

SAME_MAX = 256  # decisions in a row for one due time, after which a plugin is not asked again before the next rest
PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0  # between two tries while the disk refuses; each is twice as long as the last


class Dues:
    """The alarms of one session; asks the runtime's alarm for the earliest of them.

    A firing goes: what is on the log is durable; the plugins decide and write; that is durable; they decide again. Each
    wait ends with a Wake in the mailbox: all of it happens where the session rests, and a turn may come in between.
    """

    __slots__ = (
        "_alarms",
        "_armed_ms",
        "_firing",
        "_mailbox",
        "_moved",
        "_pause_s",
        "_rang",
        "_refused",
        "_same",
        "_scene",
        "_settling",
        "_timer",
    )

    def __init__(self, scene: Scene, alarms: tuple[Alarm, ...], mailbox: Mailbox) -> None:
        self._scene, self._alarms, self._mailbox = scene, alarms, mailbox
        self._armed_ms: int | None = None
        self._rang = self._firing = False
        self._settling = self._refused = False  # it waits for the disk; the disk refused, and a pause is to begin
        self._moved, self._same = True, 0  # whether the last decision got anywhere; how many changed no due time
        self._timer: Timer | None = None
        self._pause_s = PAUSE_S_MIN

    def rang(self) -> None:
        """The runtime's alarm is used up: `fire` asks for the next one, also when the clock was set back since."""
        self._rang = True

    def arm(self) -> None:
        """Be woken at the next due time; called after each append, so it tells the runtime only of a change."""
        due_ms = self._next_ms()
        if due_ms != self._armed_ms and not self._firing:
            self._armed_ms = due_ms
            self._scene.stage.on_due(self._scene.log.session, due_ms)

    def fire(self) -> bool:
        """Let everything that is due decide once, and arm anew. Says whether anything was written.

        While the disk has not confirmed what is on the log, nothing is. What stays due though it fired is not rung for
        again.
        """
        log, now_ms = self._scene.log, self._scene.stage.now_ms()
        rang, self._rang = self._rang, False
        if self._refused:
            self._pause()
        if not self._is_due(now_ms):
            if rang:
                self._armed_ms = None
            self.arm()
            return False
        if self._timer is not None or self._settling:
            return False
        if log.durable < log.seq - 1:
            self._moved = True
            self._settle()
            return False
        return self._decided(now_ms)

    def _decided(self, now_ms: int) -> bool:
        """All that is due has decided, each in a write of its own, and the disk is told to hurry."""
        log, before, first_ms = self._scene.log, self._scene.log.seq, self._next_ms()
        self._firing, self._moved = True, False
        try:
            for alarm in self._alarms:
                state = log[alarm.projection]
                due_ms = alarm.next_ms(state)
                if due_ms is not None and due_ms <= now_ms and not self._fired(alarm):
                    break
                self._moved = self._moved or log[alarm.projection] is not state
        finally:
            self._firing = False
        self._same = self._same + 1 if self._next_ms() == first_ms else 0
        self._moved = self._moved and self._same < SAME_MAX
        if self._is_due(now_ms):
            self._armed_ms = self._next_ms()
        else:
            self.arm()
        if log.seq == before:
            return False
        if self._timer is None:
            self._settle()
        return True

    def _fired(self, alarm: Alarm) -> bool:
        """One plugin has decided; False when the log takes nothing now. One that fails has no say any more."""
        scene = self._scene
        try:
            with CallView(scene) as view:
                events = list(new_input(scene.log, alarm.fire(view)))
        except Exception:
            LOGGER.exception("session %s: an alarm of %r failed", scene.log.session, alarm.projection.key)
            self._alarms = tuple(one for one in self._alarms if one is not alarm)
            return True
        try:
            scene.log.append(*events)
        except Fenced:
            raise
        except LogError as error:
            LOGGER.warning("session %s: what is due waits for the disk: %s", scene.log.session, error)
            self._moved = True
            self._pause()
            return False
        self._pause_s = PAUSE_S_MIN
        return True

    # -- waiting for the disk --------------------------------------------------------------------------------------

    def _settle(self) -> None:
        self._settling = True
        self._scene.log.when_durable(self._settled)

    def _settled(self, error: Exception | None) -> None:
        """(the log) What is on it is durable, or will not be before it is asked again."""
        self._settling, self._refused = False, error is not None
        if error is not None or (self._moved and self._is_due(self._scene.stage.now_ms())):
            self._mailbox.put(Wake(), urgent=True)

    def _pause(self) -> None:
        """Ask the disk again later; until then the session stays in memory, or nobody would."""
        self._refused, stage = False, self._scene.stage
        if self._timer is None:
            self._timer = stage.timers.at(stage.now_s() + self._pause_s, self._again)
            self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
            self._scene.owned["dues"] = self

    def _again(self) -> None:
        self.close()
        self._settle()

    def close(self) -> None:
        """(the scene) The pause is over, or the session is."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        if self._scene.belongings is not None:
            self._scene.belongings.pop("dues", None)

    def _is_due(self, now_ms: int) -> bool:
        due_ms = self._next_ms()
        return due_ms is not None and due_ms <= now_ms

    def _next_ms(self) -> int | None:
        log, alarms = self._scene.log, self._alarms
        if alarms is self._scene.stage.alarms:
            return log.due_ms
        dues = (alarm.next_ms(log[alarm.projection]) for alarm in alarms)
        return min((due for due in dues if due is not None), default=None)


def new_input(log: EventLog, events: Iterable[Event]) -> Iterator[Event]:
    """The events, their messages numbered, without messages whose id was queued before: a repeat is dropped."""
    seq, ids = log.seq, {message.id for message in log[QUEUE]}
    for event in events:
        if isinstance(event, MessageQueued):
            if event.id in ids or event.id in log[SEEN].ids:
                continue
            ids.add(event.id)
            event = msgspec.structs.replace(event, given=True, seq=seq)
        seq += 1
        yield event


def ask_plugins(scene: Scene) -> bool:
    """Whether a plugin had something for an idle session to do; the first that has queues it.

    What plugins write without that is made durable here: no turn follows that would, and readers wait for it.
    """
    log, before = scene.log, scene.log.seq
    for plugin in scene.stage.plugins:
        if plugin.on_idle is None:
            continue
        with CallView(scene) as view:
            message = plugin.on_idle(view)
        if message is not None:
            queued = list(new_input(log, (MessageQueued(message.id, message.text, message.source),)))
            log.append(*queued)
            if queued:
                return True
    if log.seq > before:
        log.when_durable(_heard)
    return False


def _heard(_: Exception | None) -> None:
    """(the log) It is on the disk; or it is not, and whoever waits for the next write is told."""

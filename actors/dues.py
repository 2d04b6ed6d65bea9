"""Dues: when the plugins of one session want to be woken, and what they put on the log between turns."""

from collections.abc import Iterable, Iterator

import msgspec

from callboard.actors.books import QUEUE
from callboard.actors.eventlog import EventLog
from callboard.actors.events import Event, MessageQueued
from callboard.actors.plugin import Alarm
from callboard.actors.seen import SEEN
from callboard.actors.view import CallView, Scene


class Dues:
    """The alarms of one session; asks the runtime's alarm for the earliest of them."""

    __slots__ = ("_alarms", "_armed_ms", "_rang", "_scene", "_states")

    def __init__(self, scene: Scene, alarms: tuple[Alarm, ...]) -> None:
        self._scene, self._alarms = scene, alarms
        self._armed_ms: int | None = None
        self._rang = False
        self._states: tuple[object, ...] = (scene,) * len(alarms)  # what the alarms looked at last; no state is a scene

    def rang(self) -> None:
        """The runtime's alarm is used up: `fire` asks for the next one, also when the clock was set back since."""
        self._rang = True

    def arm(self) -> None:
        """Be woken at the next due time; called after each append, most of which are about something else."""
        log = self._scene.log
        for alarm, state in zip(self._alarms, self._states, strict=True):
            if log[alarm.projection] is not state:
                break
        else:
            return
        self._states = tuple(log[alarm.projection] for alarm in self._alarms)
        self._arm()

    def _arm(self) -> None:
        """Tell the runtime of a change, and only of that."""
        due_ms = self._next_ms()
        if due_ms != self._armed_ms:
            self._armed_ms = due_ms
            self._scene.stage.on_due(self._scene.log.session, due_ms)

    def fire(self) -> bool:
        """Let everything that is due append, and arm anew; what stays due though it fired is not rung for again.

        Says whether anything was due.
        """
        scene, now_ms, fired = self._scene, self._scene.stage.now_ms(), False
        rang, self._rang = self._rang, False
        for alarm in self._alarms:
            due_ms = alarm.next_ms(scene.log[alarm.projection])
            if due_ms is not None and due_ms <= now_ms:
                with CallView(scene) as view:
                    events = list(new_input(scene.log, alarm.fire(view)))
                scene.log.append(*events)
                fired = True
        due_ms = self._next_ms()
        if due_ms is not None and due_ms <= now_ms:
            self._armed_ms = due_ms
            return fired
        if rang:
            self._armed_ms = None
        self._arm()
        return fired

    def _next_ms(self) -> int | None:
        log = self._scene.log
        dues = (alarm.next_ms(log[alarm.projection]) for alarm in self._alarms)
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
    """Whether a plugin had something for an idle session to do; the first that has queues it."""
    log = scene.log
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
    return False

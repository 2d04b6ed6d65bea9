"""Starts: which task begins next in a free slot, and how it begins on the log; one line for each kind of task."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from callboard.actors.abort import AbortWindow
from callboard.actors.awaited import given_before
from callboard.actors.books import PARKED, QUEUE, TURN
from callboard.actors.claim import first_claim, next_start, next_task, room_for, starters
from callboard.actors.compact import Compacting
from callboard.actors.eventlog import EventLog
from callboard.actors.events import Event, Message, MessagesClaimed, ShellStarted, StartKind, TaskName, TurnStarted
from callboard.actors.line import starts_nothing
from callboard.actors.messages import Input, Mail
from callboard.actors.mode import MODE
from callboard.actors.review import Reviewing
from callboard.actors.stage import Stage
from callboard.actors.tasks import Task
from callboard.actors.turn import Regular
from callboard.actors.usershell import Shelling
from callboard.actors.view import Scene

TASKS: Mapping[TaskName, type[Task]] = MappingProxyType(
    {
        "": Regular,
        "replace": Regular,
        "compact": Compacting,
        "review": Reviewing,
        "shell": Shelling,
    }
)
"""What is asked for, and the task that does it; what is not here is `Refused("unsupported")`."""


class Start(NamedTuple):
    """A turn that may begin: `message` asks for a task by its name, None for an ordinary turn.

    `recovered`: it is open on the log, where a crash cut it off, and goes on.
    """

    kind: StartKind
    message: Message | None = None
    recovered: bool = False


def can_do(stage: Stage, name: TaskName) -> bool:
    """Whether this runtime has such a task."""
    needs = {"shell": stage.shell, "review": stage.spawner}
    return name in TASKS and needs.get(name, stage) is not None


def next_up(log: EventLog) -> Start | None:
    """The turn that begins next, None when nothing may start one."""
    queue, parked, turn = log[QUEUE], log[PARKED], log[TURN]
    if turn.open:
        return Start(turn.start, recovered=True)
    if not queue or starts_nothing(queue):
        return None
    message = next_task(queue, parked=parked)
    if message is not None:
        return Start("user", message)
    kind = next_start(queue, parked=parked, plan_mode=log[MODE].bars)
    return None if kind is None else Start(kind)


def has_room(stage: Stage, log: EventLog, start: Start) -> bool:
    """Whether the session's tree has a slot for this turn; if not, the session is woken when it has."""
    return stage.trees is None or stage.trees.may_begin(log, start.kind)


def begin(
    scene: Scene, start: Start, on_abort: Callable[[], object] | None, look: Callable[[], None]
) -> tuple[Task, tuple[str, ...]]:
    """Begin it on the log, and run it; also the ids of the messages that start it.

    What asks for a task by its name is taken off the queue in the same piece: it enters history by what the task does.
    """
    log, stage, message = scene.log, scene.stage, start.message
    if start.recovered:
        scene.window = AbortWindow(stage.timers, stage.limits.abort_window_s, on_abort)
        scene.given = given_before(log)
        return Regular(scene, start.kind, look, recovered=True), ()
    number = log[TURN].number + 1
    name: TaskName = "" if message is None else message.task
    kind = TASKS[name]
    if message is None:
        first = starters(log[QUEUE], start.kind)
        schema = first[-1].schema if first else None
        log.append(TurnStarted(number, start=start.kind, started_ms=stage.now_ms(), schema=schema))
        ids = tuple(one.id for one in first_claim(log[QUEUE], start.kind))
    else:
        ids = (message.id,)
        began: list[Event] = [
            TurnStarted(number, kind.kind, start.kind, stage.now_ms(), task=name),
            MessagesClaimed(ids, ()),
        ]
        if name == "shell":
            began.append(ShellStarted(message.id, message.text, number))
        log.append(*began)
    scene.window, scene.given = AbortWindow(stage.timers, stage.limits.abort_window_s, on_abort), {}
    return kind(scene, start.kind, look, message), ids


def takes(log: EventLog, letter: Input, waiting: int, most: int) -> bool:
    """Whether a session takes new input, with so many messages in its mailbox, of which at most `most` may wait."""
    mail, planning = isinstance(letter, Mail), log[MODE].active
    return room_for(log[QUEUE], waiting, quiet=letter.quiet, mail=mail, most=most, plan_mode=planning)

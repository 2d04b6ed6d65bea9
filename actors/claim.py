"""Which queued input enters which turn and step: pure decisions over the queue."""

from typing import Literal, TypeAlias

from callboard.actors.books import Queue
from callboard.actors.events import Message, StartKind

Owner: TypeAlias = Literal["user", "automatic", "joins", "task"]
USERS = ("user", "steer")  # sources that count as the user
STARTS_AS_USER = (*USERS, "plan")  # and an approved plan, which the user wants carried out: it may start in Plan mode


def owner_of(message: Message) -> Owner:
    """Who starts a turn with it: a user message, an automatic one, or none because it joins a turn that runs.

    What asks for a task of another kind belongs to that task.
    """
    if message.task not in ("", "replace"):
        return "task"
    if message.source in ("user", "plan"):
        return "user"
    if message.source in ("schedule", "goal"):
        return "automatic"
    return "joins"  # steer, agent:PATH, notice, shell


def next_start(queue: Queue, *, parked: bool, plan_mode: bool) -> StartKind | None:
    """How the next turn starts, None when nothing may start one.

    What the user said first, steered input that no step took included, unless the queue is parked; else, and never in
    Plan mode, a reminder, a goal round, or joining input. What does not wake starts nothing.
    """
    waking = [
        message for message in queue if message.wake and message.source != "shell" and owner_of(message) != "task"
    ]
    if not parked and any(message.source in STARTS_AS_USER for message in waking):
        return "user"
    if not plan_mode and any(message.source not in STARTS_AS_USER for message in waking):
        return "automatic"
    return None


def next_task(queue: Queue, *, parked: bool) -> Message | None:
    """What asks for a task of another kind, when its turn has come; a queue that is parked does not stop it."""
    for message in queue:
        if message.task == "replace" and not parked:
            return None
        if owner_of(message) == "task":
            return message
    return None


def starters(queue: Queue, start: StartKind) -> Queue:
    """What starts a turn: the oldest message of its kind; before that what replaced the turn before, all of it."""
    replacing = tuple(message for message in queue if message.task == "replace")
    if start == "user" and replacing:
        return replacing
    return next(((message,) for message in queue if owner_of(message) == start), ())


def room_for(queue: Queue, waiting: int, *, quiet: bool, mail: bool, most: int, plan_mode: bool) -> bool:
    """Whether new input finds room beside what is queued and what waits in the mailbox; `quiet` input starts nothing.

    The last place is for what starts something, or nobody could empty the queue. It is there also when more than `most`
    are queued and none of it would start a turn, because the ends of agents are queued always; but not for mail in Plan
    mode, which starts nothing either.
    """
    if most - len(queue) - waiting > quiet:
        return True
    if quiet or waiting or (mail and plan_mode):
        return False
    return next_start(queue, parked=False, plan_mode=plan_mode) is None and next_task(queue, parked=False) is None


def first_claim(queue: Queue, start: StartKind) -> Queue:
    """What the first step of a turn takes: all joining input, and what started it, in queue order.

    What came back from a turn that was cut off waits for the user: no automatic turn takes it.
    """
    first, back = starters(queue, start), start != "automatic"
    return tuple(message for message in queue if message in first or _joins(message) or (back and message.returned))


def later_claim(queue: Queue) -> Queue:
    """What later steps take: the input that joins."""
    return tuple(message for message in queue if _joins(message))


def left_over(queue: Queue, *, aborted: bool = False) -> Queue:
    """What a turn that ended without another step did not take, and is recorded all the same.

    What was steered into it, unless it was cut off, and what commands of the user's own printed beside it.
    """
    sources = ("shell",) if aborted else ("steer", "shell")
    return tuple(message for message in queue if message.source in sources and not message.returned)


def goes_on(queue: Queue) -> bool:
    """Whether input that arrived keeps a turn going after its final answer; mail that wakes nobody waits."""
    return any(message.wake and _joins(message) for message in queue)


def _joins(message: Message) -> bool:
    return owner_of(message) == "joins" and not message.returned

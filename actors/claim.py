"""Which queued input enters which turn and step: pure decisions over the queue."""

from typing import Literal, TypeAlias

from callboard.actors.books import Queue
from callboard.actors.events import Message, StartKind

Owner: TypeAlias = Literal["user", "automatic", "joins"]
USERS = ("user", "steer")  # sources that count as the user


def owner_of(message: Message) -> Owner:
    """Who starts a turn with it: a user message, an automatic one, or none because it joins a turn that runs."""
    if message.source == "user":
        return "user"
    if message.source in ("schedule", "goal"):
        return "automatic"
    return "joins"  # steer, agent:PATH, notice, shell


def next_start(queue: Queue, *, parked: bool, plan_mode: bool) -> StartKind | None:
    """How the next turn starts, None when nothing may start one.

    What the user said first, steered input that no step took included, unless the queue is parked; else, and never in
    Plan mode, a reminder, a goal round, or joining input. What does not wake starts nothing.
    """
    waking = [message for message in queue if message.wake]
    if not parked and any(message.source in USERS for message in waking):
        return "user"
    if not plan_mode and any(message.source not in USERS for message in waking):
        return "automatic"
    return None


def first_claim(queue: Queue, start: StartKind) -> Queue:
    """What the first step of a turn takes: all joining input, and the one message that started it, in queue order.

    What came back from a turn that was cut off waits for the user: no automatic turn takes it.
    """
    starter = next((message for message in queue if owner_of(message) == start), None)
    back = start != "automatic"
    return tuple(message for message in queue if message is starter or _joins(message) or (back and message.returned))


def later_claim(queue: Queue) -> Queue:
    """What later steps take: the input that joins."""
    return tuple(message for message in queue if _joins(message))


def left_over(queue: Queue) -> Queue:
    """What was steered into a turn that ended without another step: it is recorded all the same."""
    return tuple(message for message in queue if message.source == "steer" and not message.returned)


def goes_on(queue: Queue) -> bool:
    """Whether input that arrived keeps a turn going after its final answer; mail that wakes nobody waits."""
    return any(message.wake and _joins(message) for message in queue)


def _joins(message: Message) -> bool:
    return owner_of(message) == "joins" and not message.returned

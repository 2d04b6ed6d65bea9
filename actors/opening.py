"""Opening: how a session's log begins, how it is read from the store and repaired, and how it ends."""

from collections.abc import Callable
from typing import Any, TypeVar

import trio

from callboard.actors.books import PARKED, QUEUE, TURN, USAGE
from callboard.actors.children import CHILDREN, with_below
from callboard.actors.claim import first_claim
from callboard.actors.errors import LogError
from callboard.actors.eventlog import LOGGER, EventLog
from callboard.actors.events import Event, MessageWithdrawn, QueueParked, SessionOpened
from callboard.actors.receipts import repair
from callboard.actors.recovery import Recover, recovery
from callboard.actors.seen import SHELLS
from callboard.actors.store import Header, Store
from callboard.actors.usershell import lost

T = TypeVar("T")

PAGE_MAX = 1_000  # records read from the store at once


def begin(log: EventLog, opening: SessionOpened, now_ms: int) -> None:
    """Write the first event, and what a store knows of the session without reading it."""
    root = opening.root or log.session
    header = Header(
        log.session, opening.parent, root, opening.path, opening.title, created_ms=now_ms, updated_ms=now_ms, events=1
    )
    log.append(opening, header=header)


async def read(log: EventLog, store: Store) -> None:
    """(Trio) Fold the log anew from the store, once it is ours and all it was given is committed; readers stay.

    From its last snapshot on, if it has one that can be used.

    Raises `Fenced` when another owner has the session.
    """
    await log.claimed()
    loaded = log.empty_copy()

    async def ask(what: Callable[..., T], *args: Any) -> T:
        return await trio.to_thread.run_sync(what, *args, abandon_on_cancel=True) if store.blocking else what(*args)

    loaded.resume(await ask(lambda: loaded.start_of(store.snapshots(log.session))))
    while True:
        records = await ask(store.read, log.session, loaded.seq - 1, PAGE_MAX)
        loaded.load(records)
        if len(records) < PAGE_MAX:
            break
    if loaded.seq == 0:
        raise LogError(f"session {log.session!r}: all its events are missing.")
    log.adopt(loaded)


def claimed_at_crash(log: EventLog) -> frozenset[str]:
    """The messages that a turn which a crash left open was about to take; none once it had taken its own."""
    turn = log[TURN]
    claims = turn.open and turn.step == 0 and not turn.task
    offered = first_claim(log[QUEUE], turn.start) if claims else ()
    return frozenset(message.id for message in offered)


def take_up(log: EventLog, recover: Recover) -> bool:
    """Let the turn that a crash left open go on, if it may and is to; whether it does.

    What waits behind it waits for its end. A command of the user's own that ran beside it was lost.
    """
    going_on = recovery(log[TURN], log.at_ms) if recover == "continue" else ()
    if going_on:
        lost_shells = [event for shell in log[SHELLS] for event in lost(shell)]
        log.append(*going_on, *lost_shells, at_ms=log.at_ms)
    return bool(going_on)


def mend(log: EventLog, *, cold: bool, poison: frozenset[str] = frozenset()) -> bool:
    """Close the turn that a crash left open, and park what is queued; whether there was an open turn.

    Parked behind such a turn, because a message that brought the session down once would do so again; and always when
    the log was `cold`, because a session that is only opened resumes nothing by itself. `poison`, which was being
    claimed at two crashes, is set aside, and what waits behind it goes on.
    """
    closing: list[Event] = list(repair(log[TURN], log.at_ms, with_below(log[USAGE], log[CHILDREN])))
    was_open = bool(closing)
    for shell in log[SHELLS]:
        closing.extend(lost(shell))
    for id_ in sorted(poison):
        LOGGER.error("session %s: message %r was being claimed at two crashes and is set aside", log.session, id_)
        closing.append(MessageWithdrawn(id_, "crashes"))
    if log[QUEUE] and not log[PARKED] and ((was_open and not poison) or cold):
        closing.append(QueueParked(parked=True))
    if closing:
        log.append(*closing, at_ms=log.at_ms)
    return was_open

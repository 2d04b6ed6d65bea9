"""Opening: how a session's log begins, and how it is read from the store and repaired."""

from functools import partial

import trio

from callboard.actors.books import PARKED, QUEUE, TURN
from callboard.actors.eventlog import EventLog
from callboard.actors.events import Event, QueueParked, SessionOpened
from callboard.actors.receipts import repair
from callboard.actors.store import Header, Store

PAGE_MAX = 1_000  # records read from the store at once


def begin(log: EventLog, opening: SessionOpened, now_ms: int) -> None:
    """Write the first event, and what a store knows of the session without reading it."""
    root = opening.root or log.session
    header = Header(
        log.session, opening.parent, root, opening.path, opening.title, created_ms=now_ms, updated_ms=now_ms, events=1
    )
    log.append(opening, header=header)


async def read(log: EventLog, store: Store) -> None:
    """(Trio) Fold the log anew from the store, which first commits what it was given; readers keep their place."""
    await log.synced()
    loaded = log.empty_copy()
    while True:
        page = partial(store.read, log.session, loaded.seq - 1, PAGE_MAX)
        records = await trio.to_thread.run_sync(page, abandon_on_cancel=True) if store.blocking else page()
        loaded.load(records)
        if len(records) < PAGE_MAX:
            break
    log.adopt(loaded)


def mend(log: EventLog, *, cold: bool) -> bool:
    """Close the turn that a crash left open, and park what is queued; whether there was an open turn.

    Parked behind such a turn, because a message that brought the session down once would do so again; and always when
    the log was `cold`, because a session that is only opened resumes nothing by itself.
    """
    closing: list[Event] = list(repair(log[TURN], log.at_ms))
    was_open = bool(closing)
    if log[QUEUE] and not log[PARKED] and (was_open or cold):
        closing.append(QueueParked(parked=True))
    if closing:
        log.append(*closing, at_ms=log.at_ms)
    return was_open

"""Recount: what a tree has used and started so far, counted from the logs of the store, without loading a session."""

import logging
from collections.abc import Iterator
from typing import Any, TypeVar

from callboard.actors.codec import Codec
from callboard.actors.errors import LogError
from callboard.actors.events import Compacted, Event, ModelSaid, TurnEnded, TurnStarted
from callboard.actors.facts import ChildSpawned
from callboard.actors.store import Record, Store
from callboard.runtime.admission import NOTHING_SPENT, Books, Spent

E = TypeVar("E", bound=Event)

LOGGER = logging.getLogger("callboard")
PAGE_MAX = 500
SEQ_MAX = 2**62


def count_tree(store: Store, codec: Codec, root: str, *, spent: bool) -> Books:
    """The books of a tree in which nobody works; what was used only when it is wanted, for it takes longer.

    It may wait for a disk. A log that cannot be read counts as far as it could be.
    """
    books, below = Books(), [(root, 0)]
    while below:
        session, depth = below.pop()
        try:
            for event, _ in _newest_first(store, codec, session, (ChildSpawned,)):
                if event.child.startswith(f"{session}."):  # others came with a fork and are not of this tree
                    below.append((event.child, depth + 1))
                    books.spawned += depth > 0
            if spent:
                used = _used(store, codec, session)
                books.paid = books.paid.plus(used.tokens, used.cost_usd, used.seconds)
        except LogError as error:
            LOGGER.warning("session %s is not counted for its tree: %s", session, error)
    return books


def _used(store: Store, codec: Codec, session: str) -> Spent:
    """What one session used: its turns say it at their ends, of one that a crash cut off its answers and its time."""
    used, newest = NOTHING_SPENT, True
    for event, record in _newest_first(store, codec, session, (TurnStarted, TurnEnded)):
        if isinstance(event, TurnEnded):
            seconds = max(0, event.ended_ms - event.started_ms) / 1000
            used = used.plus(event.usage.total, event.usage.cost_usd, seconds)
        elif newest:
            used = _cut_off(store, codec, session, event, record.seq)
        newest = False
    return used


def _cut_off(store: Store, codec: Codec, session: str, started: TurnStarted, since: int) -> Spent:
    used = NOTHING_SPENT
    for event, record in _newest_first(store, codec, session, (ModelSaid, Compacted)):
        if record.seq < since:
            break
        used = used.plus(event.usage.total, event.usage.cost_usd)
    last_ms, after = started.started_ms, since
    while records := store.read(session, after, PAGE_MAX):
        last_ms, after = records[-1].at_ms, records[-1].seq
    return used.plus(seconds=max(0, last_ms - started.started_ms) / 1000)


def _newest_first(
    store: Store, codec: Codec, session: str, kinds: tuple[type[Any], ...]
) -> Iterator[tuple[Any, Record]]:
    """The events of some kinds, with their records."""
    tags, before = tuple(str(kind.__struct_config__.tag) for kind in kinds), SEQ_MAX
    while records := store.last(session, tags, before, PAGE_MAX):
        for record in records:
            event = codec.decode(record.body)
            if isinstance(event, kinds):
                yield event, record
        before = records[-1].seq

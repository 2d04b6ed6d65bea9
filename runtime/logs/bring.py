"""Bring: the sessions of a file written into a store under ids that nobody sees, which become theirs at one moment."""

import queue
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs

from callboard.actors.errors import LogError, UsageError
from callboard.actors.store import FORKING, Change, Done, Record, Store
from callboard.runtime.logs.plan import Plan

PAGE_MAX = 500  # records that are in memory at once; each page is durable before the next is read
TAKEN = "session {id!r} exists already in this store: import it under another id with --session ID."
NAME_TAKEN = (
    "session {made!r} is in the way: {id!r} is called so while it is imported; use another id with --session ID."
)


class Answers:
    """Waits for a store without a loop: what it would run soon is run here, while somebody waits."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._soon: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def run_soon(self, call: Callable[[], None]) -> None:
        """(any thread) For the one who waits."""
        self._soon.put(call)

    def wait(self, ask: Callable[[Done], None]) -> None:
        """Ask, and return when that is answered; raises what is wrong."""
        answers: list[Exception | None] = []
        ask(answers.append)
        while not answers:
            self._soon.get()()
        if answers[0] is not None:
            raise answers[0]


@contextmanager
def opened(store: Store) -> Iterator[Answers]:
    """The store, open as long as the block."""
    answers = Answers(store)
    store.open(answers.run_soon)
    try:
        yield answers
    finally:
        store.close()


@attrs.define
class Bringing:
    """One import into an open store."""

    store: Store
    answers: Answers
    plan: Plan
    told: Callable[[int], None] = lambda done: None
    over: bool = False
    _begun: dict[str, int] = attrs.field(factory=dict)
    _page: dict[str, list[Record]] = attrs.field(factory=dict)
    _waiting: int = 0
    _done: int = 0

    def prepare(self) -> None:
        """Refuse ids that are taken, and remove what an import that was killed has left of these sessions."""
        if not callable(getattr(self.store, "rename", None)):
            raise UsageError("this store cannot take whole sessions in: use a SQLite or PostgreSQL store.")
        for header in self.plan.headers.values():
            if self.store.header(header.id) is not None:
                raise UsageError(TAKEN.format(id=header.id))
        for id_, header in self.plan.headers.items():
            made = self.store.header(self.plan.made(id_).id)
            if made is not None and made.status != FORKING:
                raise UsageError(NAME_TAKEN.format(id=header.id, made=made.id))
        self.remove()

    def remove(self) -> None:
        """Remove what is half written. `Fenced` when another program is writing it just now."""
        made = [self.plan.made(id_).id for id_ in self.plan.found]
        left = [id_ for id_ in made if (header := self.store.header(id_)) is not None and header.status == FORKING]
        if left:
            self._rename([Change(id_, None) for id_ in left])

    def write(self, records: Iterable[tuple[str, Record]]) -> None:
        """Write all records, by the ids of the file, page by page; then all sessions are there at one moment."""
        for session, record in records:
            self._page.setdefault(session, []).append(record)
            self._waiting += 1
            if self._waiting >= PAGE_MAX:
                self._flush()
        self._flush()
        short = [one.id for one in self.plan.found.values() if self._begun.get(one.id) != one.events]
        if short:
            raise LogError(f"session {short[0]!r} changed while it was read: import it again.")
        self._rename([Change(self.plan.made(id_).id, header) for id_, header in self.plan.headers.items()])
        self.over = True

    def _flush(self) -> None:
        for session, records in self._page.items():
            header = self.plan.made(session)
            self.store.append(header.id, records, None if session in self._begun else header)
            self._begun[session] = self._begun.get(session, 0) + len(records)
        self._page.clear()
        self._done, self._waiting = self._done + self._waiting, 0
        self.answers.wait(self.store.sync)
        self.told(self._done)

    def _rename(self, changes: list[Change]) -> None:
        store: Any = self.store
        self.answers.wait(lambda done: store.rename(changes, done))

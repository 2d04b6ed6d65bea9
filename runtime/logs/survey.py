"""Survey: what is wrong with the sessions of a store, whichever it is."""

from collections.abc import Callable, Iterator, Sequence

import attrs

from callboard.actors.codec import Codec
from callboard.actors.errors import CallboardError
from callboard.actors.fold import Folds
from callboard.actors.store import Header
from callboard.runtime.logs.checking import Checker
from callboard.runtime.stores import Looking

PAGE_MAX = 500
SAVE = "callboard log repair saves what can be read of the store"
COPY = "export it and import it under another id: that writes it anew"


@attrs.frozen
class Finding:
    """One thing that is wrong: where, what, and what to do about it."""

    session: str | None
    seq: int | None
    what: str
    advice: str

    def __str__(self) -> str:
        where = "" if self.session is None else f"session {self.session!r}: "
        where += "" if self.seq is None else f"event {self.seq}: "
        return f"{where}{self.what.rstrip('.')}: {self.advice}."


def rings(headers: Sequence[Header]) -> Iterator[Finding]:
    """The sessions that stand below themselves, which nobody can open."""
    parents = {header.id: header.parent for header in headers}
    for id_, above in parents.items():
        seen = set[str]()
        while above in parents and above != id_ and above not in seen:
            seen.add(above)
            above = parents[above]
        if above == id_:
            yield Finding(id_, None, "it is an agent below itself, and cannot be opened", "restore a copy of the store")


def survey(
    reading: Looking, header: Header, codec: Codec, folds: Folds, told: Callable[[int], None]
) -> Iterator[Finding]:
    """What is wrong with one session: a record that is missing, cannot be read or must not follow; a wrong header."""
    checker, done = Checker(codec, folds), 0
    try:
        while True:
            records = reading.records(header.id, checker.seq - 1, PAGE_MAX)
            for record in records:
                checker.take(record, turn=True)
            done += len(records)
            told(len(records))
            if len(records) < PAGE_MAX:
                now = reading.header(header.id)
                if now is None or now.events <= checker.seq:
                    break
                if not records:
                    yield Finding(header.id, checker.seq, "it is missing", SAVE)
                    return
    except CallboardError as error:
        yield Finding(header.id, checker.seq, str(error), SAVE)
        return
    if now is not None:
        yield from _of_header(now, checker)


def _of_header(header: Header, checker: Checker) -> Iterator[Finding]:
    opened = checker.opened
    if opened is None:
        yield Finding(header.id, None, "it has no events", SAVE)
        return
    if header.status != "idle":
        return
    if header.due_ms != checker.due_ms:
        what = f"the store wakes it at {_at(header.due_ms)}, and its log says {_at(checker.due_ms)}"
        yield Finding(header.id, None, what, COPY)
    said = (opened.parent, opened.path, opened.title, opened.root or header.id)
    if said != (header.parent, header.path, header.title, header.root or header.id):
        yield Finding(header.id, 0, "its header says another parent, path, root or title than its log", COPY)


def _at(due_ms: int | None) -> str:
    return "no time" if due_ms is None else f"{due_ms} ms"

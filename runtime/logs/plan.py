"""Plan: which sessions a file holds, whether each is whole, and under which ids they come into a store."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs
import msgspec
from msgspec.structs import replace

from callboard.actors.codec import Codec
from callboard.actors.errors import CallboardError, LogError, UsageError
from callboard.actors.events import Event, SessionOpened
from callboard.actors.facts import ChildClosed, ChildEnded, ChildReleased, ChildSpawned
from callboard.actors.fold import Folds
from callboard.actors.store import FORKING, Header, Record
from callboard.runtime.arguments import new_session_id
from callboard.runtime.logs.checking import Checker, Damaged
from callboard.runtime.logs.lines import Line, Lines, Torn

MAKING = "{id}~import"  # while it is being written, which nobody sees
NO_ID = "the file does not say which session this is: name one with --session ID."
SEVERAL = "the file holds {count} trees ({names}): --session names one session, so import them without it."
OF_CHILDREN = (ChildSpawned, ChildEnded, ChildReleased, ChildClosed)


@attrs.frozen
class Found:
    """One session of a file: how it opens, how many events it has, and what its header needs."""

    id: str
    opening: SessionOpened
    events: int
    at_ms: tuple[int, int]
    due_ms: int | None
    is_open: bool
    children: tuple[str, ...]


@attrs.frozen
class Plan:
    """What an import writes: the sessions that were found, by their ids in the file, and their headers in the store."""

    found: Mapping[str, Found]
    headers: Mapping[str, Header]
    openings: Mapping[str, SessionOpened]
    torn: Torn | None
    check: int

    @property
    def events(self) -> int:
        """All events of all sessions."""
        return sum(one.events for one in self.found.values())

    def made(self, session: str) -> Header:
        """The header of a session while it is being written."""
        header = self.headers[session]
        return replace(header, id=MAKING.format(id=header.id), status=FORKING, due_ms=None)

    def lost(self) -> list[str]:
        """The agents that a session of the file started and that are not in it."""
        return [child for one in self.found.values() for child in one.children if child not in self.found]

    def written(self, session: str, record: Record, event: Event, codec: Codec) -> Record:
        """The record as it comes into the store: under another id its opening and its agents are called otherwise."""
        if isinstance(event, SessionOpened):
            changed: Event = self.openings[session]
        elif isinstance(event, OF_CHILDREN) and event.child in self.headers:
            changed = replace(event, child=self.headers[event.child].id)
        else:
            return record
        return record if changed == event else msgspec.structs.replace(record, body=codec.encode(changed))


def checked(lines: Lines, codec: Codec, folds: Folds, told: Callable[[int], None]) -> Iterator[tuple[Line, Event]]:
    """Each line with its event, once it is known to follow; `Damaged` names the line that does not."""
    checkers: dict[str, Checker] = {}
    yield from _checked(lines, codec, folds, told, checkers)


def _checked(
    lines: Lines, codec: Codec, folds: Folds, told: Callable[[int], None], checkers: dict[str, Checker]
) -> Iterator[tuple[Line, Event]]:
    for line in lines:
        checker = checkers.get(line.session)
        if checker is None:
            checker = checkers[line.session] = Checker(codec, folds)
        try:
            event = checker.take(line.record, turn=True)
        except CallboardError as error:
            name = f"session {line.session!r:.80}: " if len(checkers) > 1 else ""
            raise lines.damaged(line.number, line.start, f"{name}{error}") from None
        told(lines.count)
        yield line, event


def plan_of(lines: Lines, codec: Codec, folds: Folds, session: str | None, told: Callable[[int], None]) -> Plan:
    """Read the whole file once: `Damaged` for what is not whole, `UsageError` for ids that cannot be."""
    checkers: dict[str, Checker] = {}
    firsts: dict[str, int] = {}
    check = 0
    for line, _ in _checked(lines, codec, folds, told, checkers):
        firsts.setdefault(line.session, line.record.at_ms)
        check = zlib.crc32(line.record.body, check)
    if not checkers:
        raise Damaged(str(lines.torn) if lines.torn else "the file holds no event: nothing was imported.")
    found = {id_: _found(id_, one, firsts[id_]) for id_, one in checkers.items()}
    return _plan(found, session, lines.torn, check)


def plan_for(
    events: Sequence[Event], codec: Codec, folds: Folds, session: str, at_ms: int
) -> tuple[Plan, list[Record]]:
    """The plan and the records of one session that is made of events, which are checked like those of a file."""
    checker, records = Checker(codec, folds), list[Record]()
    for seq, event in enumerate(events):
        try:
            record = Record(seq, at_ms, None, codec.encode(event))
            checker.take(record)
        except (CallboardError, OverflowError, TypeError, ValueError) as error:
            raise Damaged(f"event {seq} of the recording has no written form: {error}") from None
        records.append(replace(record, turn=checker.turn))
    return _plan({session: _found(session, checker, at_ms)}, session, None, 0), records


def _found(id_: str, checker: Checker, first_ms: int) -> Found:
    opened = checker.opened
    if opened is None:
        raise LogError(f"session {id_!r} has no opening.")
    times = (first_ms, checker.at_ms)
    return Found(id_, opened, checker.seq, times, checker.due_ms, checker.is_open, checker.children())


def _plan(found: Mapping[str, Found], session: str | None, torn: Torn | None, check: int) -> Plan:
    ids = _ids(found, session)
    openings = {id_: _opening(one, found, ids) for id_, one in found.items()}
    headers = {
        id_: Header(
            *(ids[id_], opening.parent, opening.root, opening.path, opening.title, "idle"),
            due_ms=found[id_].due_ms,
            created_ms=found[id_].at_ms[0],
            updated_ms=found[id_].at_ms[1],
        )
        for id_, opening in openings.items()
    }
    return Plan(found, headers, openings, torn, check)


def _top(one: Found, found: Mapping[str, Found]) -> Found:
    """The session of the file that stands above all others on the way up from this one."""
    seen = {one.id}
    while one.opening.parent in found:
        one = found[str(one.opening.parent)]
        if one.id in seen:
            raise Damaged(f"session {one.id!r:.80} is an agent below itself: the file is not what a store exports.")
        seen.add(one.id)
    return one


def _ids(found: Mapping[str, Found], session: str | None) -> dict[str, str]:
    """The id of each in the store: an agent's follows that of its root, as it does in the file."""
    tops = list(dict.fromkeys(_top(one, found).id for one in found.values()))
    if session is None:
        if "" in found:
            raise UsageError(NO_ID)
        ids = {id_: new_session_id(id_) for id_ in found}
    else:
        if len(tops) != 1:
            names = ", ".join(repr(top) for top in tops[:3])
            raise UsageError(SEVERAL.format(count=len(tops), names=names[:200]))
        (top,) = tops
        ids = {id_: new_session_id(_renamed(id_, top, session)) for id_ in found}
    if len(set(ids.values())) != len(ids):
        raise UsageError(f"two sessions of the file would both be {session!r}: import them apart.")
    return ids


def _renamed(id_: str, top: str, session: str) -> str:
    if id_ == top:
        return session
    return session + id_.removeprefix(top) if id_.startswith(f"{top}.") else f"{session}.{id_}"


def _opening(one: Found, found: Mapping[str, Found], ids: Mapping[str, str]) -> SessionOpened:
    """How it opens in the store: below its parent, or as a root when that is not in the file."""
    top, opening = _top(one, found), one.opening
    root = ids[top.id]
    if one is top:
        if opening.parent is None and (opening.root or root) == root:
            return opening
        return replace(opening, parent=None, root=root, depth=0, path="/root")
    path = "/root" + opening.path.removeprefix(top.opening.path)
    depth = max(opening.depth - top.opening.depth, 1)
    return replace(opening, parent=ids[str(opening.parent)], root=root, depth=depth, path=path)

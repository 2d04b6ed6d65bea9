"""Export: sessions of a store as lines, byte for byte as they are stored."""

from collections.abc import Callable, Iterator

from callboard.actors.codec import Codec
from callboard.actors.errors import LogError, SessionNotFound
from callboard.actors.store import Header
from callboard.runtime.logs.checking import Damaged
from callboard.runtime.stores import Looking

PAGE_MAX = 500  # records that are in memory at once


def chosen(reading: Looking, session: str, *, tree: bool) -> list[Header]:
    """The headers of what is exported: the session, and with `tree` all agents below it, each behind its parent."""
    header = reading.header(session)
    if header is None or header.unfinished:
        raise SessionNotFound(f"there is no session {session!r} in this store: callboard log list shows them.")
    return [header, *agents_of(reading, session)] if tree else [header]


def agents_of(reading: Looking, session: str) -> list[Header]:
    """All agents below a session, each behind its parent."""
    below: dict[str, list[Header]] = {}
    for header in reading.headers():
        if header.parent is not None and not header.unfinished:
            below.setdefault(header.parent, []).append(header)
    found, waiting = list[Header](), [session]
    while waiting:
        agents = sorted(below.pop(waiting.pop(), []), key=lambda header: (header.created_ms, header.id))
        found += agents
        waiting += [header.id for header in reversed(agents)]
    order = {header.id: at for at, header in enumerate(found)}
    return sorted(found, key=lambda header: (header.path.count("/"), order[header.id]))


def lines_of(reading: Looking, codec: Codec, headers: list[Header], told: Callable[[int], None]) -> Iterator[bytes]:
    """Each event as one line, as far as the logs went when this began. `Damaged` for a record that cannot be read."""
    done = 0
    for header in headers:
        seq = 0
        while seq < header.events:
            records = reading.records(header.id, seq - 1, min(PAGE_MAX, header.events - seq))
            if not records or records[0].seq != seq:
                raise _broken(header, seq, "it is missing.")
            for record in records:
                try:
                    codec.decode(record.body)
                except LogError as error:
                    raise _broken(header, record.seq, str(error)) from None
                line = codec.join_line(header.id, record.seq, record.at_ms, record.turn, record.body)
                yield line + b"\n"
            seq = records[-1].seq + 1
            done += len(records)
            told(done)


def _broken(header: Header, seq: int, why: str) -> Damaged:
    return Damaged(
        f"session {header.id!r}: event {seq} cannot be exported: {why} callboard log check says what else is wrong."
    )

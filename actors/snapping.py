"""Snapping: the states of a log in a written form, from which the next opening goes on. A cache, never the truth."""

import zlib
from collections.abc import Sequence
from typing import Any, Final, get_args, get_origin

import msgspec

from callboard.actors.events import TurnEnded, Value
from callboard.actors.fold import Folds, Index, Trail
from callboard.actors.store import Snapshot

LOG_KEY: Final = "log"
LOG_VERSION: Final = 2
SEAL_BYTES: Final = 4
SNAP_BYTES: Final = 256 << 10
"""A session that goes on is written down after so many bytes of events, or after as many as it had at the last time:
so all of this together costs no more than its log."""
LEAVING_FACTOR: Final = 16
"""One that leaves memory after so many times less: fewer are read in less time than a snapshot."""


class Mark(Value, frozen=True):
    """What a log knows besides the states of its projections."""

    at_ms: int
    last_end: TurnEnded | None = None


class Start(msgspec.Struct, frozen=True):
    """Where a log may go on: its states behind event `seq`."""

    seq: int
    states: list[Any]
    mark: Mark
    size_bytes: int


def dump(folds: Folds, states: Sequence[Any], seq: int, mark: Mark) -> list[Snapshot]:
    """All states, true for the events up to `seq`; nothing when one of them has no written form."""
    if not folds.written:
        return []
    try:
        bodies = [msgspec.json.encode(state, enc_hook=_plain) for state in states]
    except (msgspec.MsgspecError, NotImplementedError, OverflowError, RecursionError, TypeError, ValueError):
        return []
    taken = zip(folds.projections, bodies, strict=True)
    return [
        _sealed(LOG_KEY, LOG_VERSION, seq, msgspec.json.encode(mark)),
        *(_sealed(projection.key, projection.version, seq, body) for projection, body in taken),
    ]


def start(folds: Folds, kept: Sequence[Snapshot]) -> Start | None:
    """What these allow; None unless they are of one moment, for every projection in its version, and can be read."""
    by_key = {one.key: one for one in kept}
    log, states, size_bytes = by_key.get(LOG_KEY), list[Any](), 0
    if log is None or log.version != LOG_VERSION or not folds.written:
        return None
    try:
        mark, size_bytes = msgspec.json.decode(_unsealed(log), type=Mark), len(log.body)
        for projection in folds.projections:
            one = by_key.get(projection.key)
            if one is None or (one.version, one.seq) != (projection.version, log.seq):
                return None
            states.append(msgspec.json.decode(_unsealed(one), type=projection.state, dec_hook=_typed))
            size_bytes += len(one.body)
    except (msgspec.MsgspecError, NotImplementedError, RecursionError, TypeError, ValueError):  # others wrote there
        return None
    return Start(log.seq, states, mark, size_bytes)


def _sealed(key: str, version: int, seq: int, body: bytes) -> Snapshot:
    """A snapshot whose body begins with a sum over all of it: a changed one may well be read, as another state."""
    return Snapshot(key, version, seq, _seal(key, version, seq, body) + body)


def _unsealed(one: Snapshot) -> memoryview:
    """The written state; `ValueError` when anything of it is not as it was taken, `TypeError` for no bytes."""
    body = memoryview(one.body)[SEAL_BYTES:]
    if _seal(one.key, one.version, one.seq, body) != one.body[:SEAL_BYTES]:
        raise ValueError(f"the snapshot of {one.key!r} was changed")
    return body


def _seal(key: str, version: int, seq: int, body: bytes | memoryview) -> bytes:
    return zlib.crc32(body, zlib.crc32(f"{key} {version} {seq}".encode(errors="replace"))).to_bytes(SEAL_BYTES, "big")


def _plain(value: Any) -> Any:
    if isinstance(value, Trail):
        return value[:]
    if isinstance(value, Index):
        return value.items()
    raise NotImplementedError(f"{type(value).__name__} has no written form")


def _typed(wanted: Any, plain: Any) -> Any:
    kind, inner = get_origin(wanted) or wanted, (*get_args(wanted), Any)[0]
    if kind is Trail:
        return Trail(msgspec.convert(plain, list[inner], dec_hook=_typed))  # type: ignore[valid-type]
    if kind is Index:
        return Index.of(msgspec.convert(plain, list[tuple[str, inner]], dec_hook=_typed))  # type: ignore[valid-type]
    raise NotImplementedError(f"{wanted!r} has no written form")

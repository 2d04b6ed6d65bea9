"""What is wrong with a SQLite file itself: pages, tables, rows without a session, its write-ahead log."""

import contextlib
import sqlite3
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from callboard.runtime.logs.survey import SAVE, Finding
from callboard.runtime.stores.sqlite_file import SCHEMA_VERSION, STEPS, check_version, explained, open_reader

PROBLEMS_MAX: Final = 20
BUSY_S: Final = 5.0
WAL_HEADER, FRAME_HEADER = struct.Struct(">8I"), struct.Struct(">6I")
WAL_BYTES_MAX: Final = 256 << 20
"""A longer write-ahead log is not read here."""
ORPHANS: Final = "SELECT DISTINCT session FROM events WHERE session NOT IN (SELECT number FROM sessions) LIMIT 20"
AHEAD: Final = (
    "SELECT id, key, s.seq FROM snapshots s LEFT JOIN sessions ON number = session WHERE s.seq >"
    " coalesce((SELECT max(seq) FROM events e WHERE e.session = s.session), -1) LIMIT 20"
)


def survey_file(path: Path) -> Iterator[Finding]:
    """All that is wrong with the file. `LogError` for one that is foreign, newer, or no SQLite database."""
    if (lost := wal_damage(path.with_name(f"{path.name}-wal"))) is not None:
        yield Finding(None, None, lost, "what was committed behind it is lost; restore a copy if there is one")
    try:
        with contextlib.closing(open_reader(path, BUSY_S)) as db:
            version = check_version(db, path)
            yield from _pages(db)
            yield from _tables(db, version)
            yield from _rows(db, version)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        yield Finding(None, None, str(explained(path, "check", error)), SAVE)


def _pages(db: sqlite3.Connection) -> Iterator[Finding]:
    for (what,) in db.execute(f"PRAGMA integrity_check({PROBLEMS_MAX})"):
        if what != "ok":
            yield Finding(None, None, f"the file is damaged: {what:.200}", SAVE)


def _tables(db: sqlite3.Connection, version: int) -> Iterator[Finding]:
    """The tables of its version, as they are made."""
    if version == 0:
        return
    ask = "SELECT type || ' ' || name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
    with contextlib.closing(sqlite3.connect(":memory:")) as fresh:
        for statements in STEPS[: min(version, SCHEMA_VERSION)]:
            for statement in statements:
                fresh.execute(statement)
        wanted, found = dict(fresh.execute(ask)), dict(db.execute(ask))
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            what = "is missing" if name not in found else "is not of Callboard" if name not in wanted else "is changed"
            yield Finding(None, None, f"the {name} {what}", SAVE)


def _rows(db: sqlite3.Connection, version: int) -> Iterator[Finding]:
    if version == 0:
        return
    for (number,) in db.execute(ORPHANS):
        yield Finding(None, None, f"events of session number {number} have no session", SAVE)
    for session, key, seq in db.execute(AHEAD) if version >= SCHEMA_VERSION else ():
        what = f"the snapshot of {key!r} is true for event {seq}, which is not there"
        yield Finding(session, None, what, "snapshots are a cache: delete it, or ignore it")


def wal_damage(path: Path) -> str | None:
    """What a write-ahead log that is damaged before its end has lost; None for one that is whole, torn or not there.

    SQLite reads such a log up to the damage and says nothing. Two commits behind it are proof: a crash leaves one.
    """
    if not path.exists() or not WAL_HEADER.size < path.stat().st_size <= WAL_BYTES_MAX:
        return None
    data = path.read_bytes()
    magic, _, page_bytes, _, *salts, _, _ = WAL_HEADER.unpack_from(data)
    if magic & ~1 != 0x377F0682 or not 512 <= page_bytes <= 65_536:
        return f"{path.name} has no readable header"
    size = FRAME_HEADER.size + page_bytes
    sums, broken, commits, number = _summed(data[:24], (0, 0), magic), None, 0, 0
    for number, at in enumerate(range(WAL_HEADER.size, len(data) - size + 1, size), 1):
        _, pages, salt1, salt2, *said = FRAME_HEADER.unpack_from(data, at)
        ours = [salt1, salt2] == salts
        if broken is None:
            sums = _summed(data[at : at + 8], sums, magic) if ours else sums
            sums = _summed(data[at + FRAME_HEADER.size : at + size], sums, magic) if ours else sums
            if not ours or list(sums) != said:
                broken = number
        elif ours and pages:
            commits += 1
    return None if commits < 2 else f"{path.name} is damaged at frame {broken} of {number}, before {commits} commits"


def _summed(data: bytes, sums: tuple[int, int], magic: int) -> tuple[int, int]:
    """SQLite's checksum of a log, in the byte order that its magic number says."""
    words = array("I", data)
    if bool(magic & 1) != (struct.pack("=H", 1) == b"\0\1"):
        words.byteswap()
    one, two = sums
    for at in range(0, len(words), 2):
        one = (one + words[at] + two) & 0xFFFFFFFF
        two = (two + words[at + 1] + one) & 0xFFFFFFFF
    return one, two

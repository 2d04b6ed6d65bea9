"""log check, log repair: what is wrong with a store or a file, and what of it can be saved."""

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import attrs
import msgspec

from callboard.actors.errors import LogError, SessionNotFound, UsageError
from callboard.runtime.assembly import Assembly
from callboard.runtime.config import RuntimeConfig
from callboard.runtime.doors.board import visible
from callboard.runtime.doors.log_moves import STDIO, assembled, free, is_sqlite, local, whole_file
from callboard.runtime.doors.output import Output
from callboard.runtime.doors.program import DONE_CODE, FAILED_CODE, say_error
from callboard.runtime.doors.progress import Progress
from callboard.runtime.logs.checking import Damaged
from callboard.runtime.logs.lines import Lines
from callboard.runtime.logs.plan import checked
from callboard.runtime.logs.salvage import salvage
from callboard.runtime.logs.sqlite_survey import survey_file
from callboard.runtime.logs.survey import Finding, rings, survey
from callboard.runtime.stores import Looking, SqliteStore, look_into, open_store

COPY_BYTES = 1 << 20
TORN_ADVICE = "callboard log repair cuts it"
DAMAGED_ADVICE = "nothing of it is imported"


@attrs.frozen
class CheckOptions:
    """What `callboard log check` was asked for: all sessions of the store, one of them, or a file."""

    config: RuntimeConfig
    store: str
    what: str | None = None
    json: bool = False


@attrs.frozen
class RepairOptions:
    """What `callboard log repair` was asked for."""

    config: RuntimeConfig
    file: str
    out: str | None = None
    json: bool = False


@attrs.define
class Counted:
    """What was looked at."""

    sessions: int = 0
    events: int = 0


def is_file(what: str) -> bool:
    """Whether this names a file rather than a session: ids have no such ends, and no slashes of files."""
    if what == STDIO or what.endswith((".jsonl", ".db", ".sqlite")):
        return True
    with contextlib.suppress(OSError):  # a name that is too long for a file
        return os.sep in what and Path(what).exists()
    return False


# -- log check ---------------------------------------------------------------------------------------------------------


def check_log(options: CheckOptions, output: Output) -> int:
    """The command; 0 when nothing is wrong, 1 when something is."""
    parts, counted, wrong = assembled(options.config), Counted(), 0
    progress = Progress("checking")
    for finding in _findings(options, parts, counted, progress):
        progress.end()
        wrong += 1
        line = msgspec.json.encode(attrs.asdict(finding)).decode() if options.json else visible(str(finding))
        output.write(line + "\n")
    progress.end()
    end = "nothing is wrong" if not wrong else f"{wrong} found" if wrong > 1 else "1 found"
    if not options.json:
        output.write(f"checked {counted.sessions:,} sessions, {counted.events:,} events: {end}\n")
    output.flush()
    return FAILED_CODE if wrong else DONE_CODE


def _findings(options: CheckOptions, parts: Assembly, counted: Counted, progress: Progress) -> Iterator[Finding]:
    if options.what is not None and is_file(options.what):
        with local(options.what) as (path, name):
            if is_sqlite(path):
                yield from _of_store(f"sqlite:///{quote(str(path.absolute()))}", None, parts, counted, progress)
            else:
                yield from _of_lines(Lines(path, name, parts.codec), parts, counted, progress)
    else:
        yield from _of_store(options.store, options.what, parts, counted, progress)


def _of_lines(lines: Lines, parts: Assembly, counted: Counted, progress: Progress) -> Iterator[Finding]:
    sessions: set[str] = set()
    try:
        for line, _ in checked(lines, parts.codec, parts.folds, progress.told):
            sessions.add(line.session)
            counted.events += 1
    except Damaged as error:
        yield Finding(None, None, str(error), DAMAGED_ADVICE)
    counted.sessions = len(sessions)
    if lines.torn is not None:
        yield Finding(None, None, str(lines.torn), TORN_ADVICE)


def _of_store(
    url: str, session: str | None, parts: Assembly, counted: Counted, progress: Progress
) -> Iterator[Finding]:
    reading = look_into(url)
    try:
        if reading.is_nothing():
            if session is not None:
                raise SessionNotFound(f"there is no session {session!r}: there is no store {reading.name} yet.")
            return
        store = open_store(url)
        if isinstance(store, SqliteStore) and session is None:
            yield from survey_file(store.path)
        yield from _of_sessions(reading, session, parts, counted, progress)
    finally:
        reading.close()


def _of_sessions(
    reading: Looking, session: str | None, parts: Assembly, counted: Counted, progress: Progress
) -> Iterator[Finding]:
    try:
        headers = reading.headers() if session is None else [reading.header(session)]
    except LogError as error:
        yield Finding(None, None, str(error), "callboard log repair saves what can be read of it")
        return
    yield from rings([header for header in headers if header is not None])
    for header in headers:
        if header is None:
            raise SessionNotFound(f"there is no session {session!r} in this store: callboard log list shows them.")
        if not header.unfinished:
            counted.sessions += 1
            yield from survey(reading, header, parts.codec, parts.folds, partial(_count, counted, progress))


def _count(counted: Counted, progress: Progress, more: int) -> None:
    counted.events += more
    progress.told(counted.events - counted.events % 64)


# -- log repair --------------------------------------------------------------------------------------------------------


def repair_log(options: RepairOptions, output: Output) -> int:
    """The command; 0 when the file is whole now, 1 when it cannot be, or something was lost for good."""
    parts, path = assembled(options.config), Path(options.file)
    try:
        if options.file == STDIO or not path.is_file():
            raise UsageError(f"{options.file or path} is no file: name a .jsonl file or the file of a SQLite store.")
        if is_sqlite(path):
            return _save(options, path, parts, output)
        return _cut(options, path, parts, output)
    except Damaged as error:
        say_error(str(error))
        return FAILED_CODE
    except OSError as error:
        raise UsageError(f"{options.file} cannot be repaired: {error.strerror or error}.") from None


def _cut(options: RepairOptions, path: Path, parts: Assembly, output: Output) -> int:
    """Cut a torn end; the file as it was stays beside it, or with `out` where it is."""
    lines, progress = Lines(path, options.file, parts.codec), Progress("checking")
    for _ in checked(lines, parts.codec, parts.folds, progress.told):
        pass
    progress.end()
    if lines.torn is None:
        _say(output, options, f"{options.file} is whole: nothing was changed", kept=None)
        return DONE_CODE
    if not lines.count:
        raise Damaged(f"{lines.torn} No whole event is before it, so nothing was changed.")
    path = path.resolve()  # what is kept lies beside the file itself, not beside a link to it
    kept = None if options.out else free(path.with_name(f"{path.name}.torn"))
    target = Path(options.out) if options.out else path
    if options.out and target.exists():
        raise UsageError(f"{options.out} exists already: name another file.")
    with path.open("rb") as old, whole_file(target) as new:
        _copy(old, new, lines.end)
        os.fchmod(new.fileno(), path.stat().st_mode & 0o777)
        if kept is not None:
            os.link(path, kept)
    where = f"the file as it was is {kept}" if kept is not None else f"the whole part is {target}"
    _say(output, options, f"{lines.torn} {lines.count:,} events are left; {where}", kept=kept)
    return DONE_CODE


def _save(options: RepairOptions, path: Path, parts: Assembly, output: Output) -> int:
    """What can be read of a SQLite file goes to a new one."""
    to = Path(options.out) if options.out else path.with_name(f"{path.stem}.repaired{path.suffix}")
    if to.exists():
        raise UsageError(f"{to} exists already: name another file with --out.")
    progress, made = Progress("saving"), False
    try:
        saved = salvage(path, to, parts.codec, parts.folds, progress.told)
        made = True
    except LogError as error:
        raise Damaged(f"{error} Nothing of it could be saved.") from None
    finally:
        progress.end()
        for end in () if made else ("", "-wal", "-shm"):
            to.with_name(to.name + end).unlink(missing_ok=True)
    for finding in saved.lost:
        line = msgspec.json.encode(attrs.asdict(finding)).decode() if options.json else f"lost: {visible(str(finding))}"
        output.write(line + "\n")
    text = f"saved {saved.sessions:,} sessions, {saved.events:,} events to {to}; {path} is as it was"
    _say(output, options, text, kept=path)
    return FAILED_CODE if saved.lost else DONE_CODE


def _copy(old: BinaryIO, new: BinaryIO, left: int) -> None:
    while left > 0 and (some := old.read(min(left, COPY_BYTES))):
        new.write(some)
        left -= len(some)


def _say(output: Output, options: RepairOptions, text: str, *, kept: Path | None) -> None:
    said = {"text": text, "kept": None if kept is None else str(kept)}
    output.write((msgspec.json.encode(said).decode() if options.json else visible(text)) + "\n")
    output.flush()

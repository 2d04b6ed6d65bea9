"""log export, log import: sessions as files, whole or not at all."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import attrs
import msgspec

from callboard.actors.errors import LogError, SessionNotFound, UsageError
from callboard.actors.store import Record
from callboard.plugins import DEFAULT
from callboard.runtime.assembly import Assembly, assemble
from callboard.runtime.clock import WallClock
from callboard.runtime.config import RuntimeConfig
from callboard.runtime.doors.output import Output
from callboard.runtime.doors.program import DONE_CODE, FAILED_CODE, say_error
from callboard.runtime.doors.progress import Progress
from callboard.runtime.logs.bring import Bringing, opened
from callboard.runtime.logs.checking import Damaged
from callboard.runtime.logs.export import agents_of, chosen, lines_of
from callboard.runtime.logs.history import events_of
from callboard.runtime.logs.lines import Lines, json_torn
from callboard.runtime.logs.plan import Plan, checked, plan_for, plan_of
from callboard.runtime.recordings import Recording, RecordingError, read_recording, summary
from callboard.runtime.stores import look_into, open_store

STDIO = "-"
SQLITE = b"SQLite format 3\0"
AGENTS_STAY = "session {id!r} has {count} agents whose logs are not in the export: --tree takes them along."
AGENTS_LACK = "agents that are not in the file: {names}; the session that started them will find them lost."
NO_STORE = "there is no session {id!r}: there is no store {name} yet."
NO_COPY = "{name} cannot be copied to {folder}: {why}: name a plain file, or set TMPDIR to a folder with room."
IS_STORE = "{name} is a SQLite file: name it with --store to export from it, or callboard log check {name}."
NO_TURNS = "{name} holds no turn: there is nothing to import."


@attrs.frozen
class ExportOptions:
    """What `callboard log export` was asked for."""

    config: RuntimeConfig
    store: str
    session: str
    out: str = STDIO
    tree: bool = False
    json: bool = False


@attrs.frozen
class ImportOptions:
    """What `callboard log import` was asked for."""

    config: RuntimeConfig
    store: str
    file: str
    session: str | None = None
    json: bool = False


def assembled(config: RuntimeConfig) -> Assembly:
    """What the sessions of this command line are read with."""
    return assemble(attrs.evolve(config, tools={}), DEFAULT, (), ())


# -- log export --------------------------------------------------------------------------------------------------------


def export_log(options: ExportOptions, output: Output) -> int:
    """The command; its exit code. A `CallboardError` says what is wrong, and no file is left then."""
    reading = look_into(options.store)
    try:
        if reading.is_nothing():
            raise SessionNotFound(NO_STORE.format(id=options.session, name=reading.name))
        headers = chosen(reading, options.session, tree=options.tree)
        count = sum(header.events for header in headers)
        progress = Progress("exporting", count)
        with _target(options.out) as file:
            for line in lines_of(reading, assembled(options.config).codec, headers, progress.told):
                file.write(line)
        progress.end()
        if not options.tree and (agents := agents_of(reading, options.session)):
            say_error(AGENTS_STAY.format(id=options.session, count=len(agents)))
    except Damaged as error:
        say_error(str(error))
        return FAILED_CODE
    finally:
        reading.close()
    if options.out != STDIO:
        ids = [header.id for header in headers]
        said = {"file": options.out, "sessions": ids, "events": count}
        text = f"exported {count:,} events of {_sessions(len(ids))} to {options.out}"
        _say(output, said, text, json=options.json)
    return DONE_CODE


@contextlib.contextmanager
def _target(out: str) -> Iterator[BinaryIO]:
    """Standard output, or a file that is there once it is whole."""
    if out == STDIO:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(out)
    try:
        if path.exists():
            raise UsageError(f"{out or path} exists already: name another file, or remove it.")
        with whole_file(path) as file:
            yield file
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror or error}: name another file.") from None


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that has its name once it is whole and on the disk; until then one that nobody had."""
    part = free(path.with_name(f"{path.name}.part"))
    with part.open("xb") as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def free(path: Path) -> Path:
    """The path, or the first with a number behind it that is not there."""
    number, found = 1, path
    while os.path.lexists(found):
        number += 1
        found = path.with_name(f"{path.name}{number}")
    return found


# -- log import --------------------------------------------------------------------------------------------------------


def import_log(options: ImportOptions, output: Output) -> int:
    """The command; its exit code. Until the last moment nobody sees anything of it."""
    parts = assembled(options.config)
    look_into(options.store).close()  # one that keeps nothing is refused before anything is read
    try:
        with local(options.file) as (path, name):
            plan, records = _planned(options, parts, path, name)
            if plan.torn is not None:
                say_error(str(plan.torn))
            with opened(open_store(options.store)) as answers:
                bringing = Bringing(answers.store, answers, plan)
                bringing.prepare()
                progress = Progress("importing", plan.events)
                bringing.told = progress.told
                try:
                    bringing.write(records)
                finally:
                    progress.end()
                    if not bringing.over:
                        with contextlib.suppress(LogError):
                            bringing.remove()
    except Damaged as error:
        say_error(str(error))
        return FAILED_CODE
    _tell(plan, output, json=options.json)
    return DONE_CODE


def _tell(plan: Plan, output: Output, *, json: bool) -> None:
    if lost := plan.lost():
        say_error(AGENTS_LACK.format(names=", ".join(lost)[:300]))
    ids = {id_: header.id for id_, header in plan.headers.items()}
    root = next(header.id for header in plan.headers.values() if header.parent is None)
    said = {
        "session": root,
        "sessions": ids,
        "events": plan.events,
        "torn": None if plan.torn is None else str(plan.torn),
    }
    text = f"imported session {root}: {plan.events:,} events of {_sessions(len(ids))}"
    _say(output, said, text, json=json)


def _planned(
    options: ImportOptions, parts: Assembly, path: Path, name: str
) -> tuple[Plan, Iterator[tuple[str, Record]]]:
    """What is imported: the lines of an export, or the history in a recording of another agent."""
    if is_sqlite(path):
        raise UsageError(IS_STORE.format(name=name))
    lines = Lines(path, name, parts.codec)
    if not _is_export(path, lines):
        return _recorded(options, parts, path, name)
    progress = Progress("checking")
    plan = plan_of(lines, parts.codec, parts.folds, options.session, progress.told)
    progress.end()
    again = checked(lines, parts.codec, parts.folds, lambda done: None)
    return plan, ((line.session, plan.written(line.session, line.record, event, parts.codec)) for line, event in again)


def is_sqlite(path: Path) -> bool:
    """Whether it is the file of a SQLite store, or of somebody else's."""
    with path.open("rb") as file:
        return file.read(len(SQLITE)) == SQLITE


def _is_export(path: Path, lines: Lines) -> bool:
    """Whether the first line is an envelope; one that is torn or damaged may still be nothing else."""
    try:
        if next(iter(lines), None) is not None:
            return True
    except Damaged:
        pass
    with path.open("rb") as file:
        head = file.read(4096)
    return b'"at_ms"' in head or not head.strip(b"\0 \t\r\n")


def _recorded(
    options: ImportOptions, parts: Assembly, path: Path, name: str
) -> tuple[Plan, Iterator[tuple[str, Record]]]:
    try:
        torn = json_torn(path, name)
        recording = read_recording(path)
    except RecordingError as error:
        raise Damaged(f"{name} is no export of callboard, and no recording: {error}") from None
    if not recording.turns:
        raise Damaged(NO_TURNS.format(name=name))
    say_error(summary(recording))
    session = _session_of(recording, options, path, name)
    events = list(events_of(recording, session))
    plan, records = plan_for(events, parts.codec, parts.folds, session, WallClock().now_ms())
    return attrs.evolve(plan, torn=torn), iter([(session, record) for record in records])


def _session_of(recording: Recording, options: ImportOptions, path: Path, name: str) -> str:
    if options.session is not None:
        return options.session
    if recording.session == path.stem and str(path) != name:  # the name of a copy of standard input
        raise UsageError("the recording does not say which session it is: name one with --session ID.")
    return recording.session


@contextlib.contextmanager
def local(file: str) -> Iterator[tuple[Path, str]]:
    """The file and its name in sentences; standard input is copied to disk first, because it is read twice."""
    if file != STDIO:
        path = Path(file)
        try:
            if path.is_dir() or not path.exists():
                raise UsageError(f"{file} is {'a folder' if path.is_dir() else 'not there'}: name a file with a log.")
            with path.open("rb"):
                pass
        except OSError as error:
            raise UsageError(f"{file} cannot be read: {error.strerror or error}.") from None
        if path.is_file():
            yield path, file
            return
    name = "standard input" if file == STDIO else file
    with tempfile.TemporaryDirectory(prefix="callboard-") as folder:
        copy = Path(folder) / "input.jsonl"
        try:
            with copy.open("wb") as to, _source(file) as source:
                shutil.copyfileobj(source, to, 1 << 20)
        except OSError as error:
            raise UsageError(NO_COPY.format(name=name, folder=folder, why=error.strerror or error)) from None
        yield copy, name


@contextlib.contextmanager
def _source(file: str) -> Iterator[BinaryIO]:
    if file == STDIO:
        yield sys.stdin.buffer
    else:
        with Path(file).open("rb") as opened_:
            yield opened_


def _sessions(count: int) -> str:
    return "1 session" if count == 1 else f"{count} sessions"


def _say(output: Output, said: Mapping[str, object], text: str, *, json: bool) -> None:
    output.write((msgspec.json.encode(said).decode() if json else text) + "\n")
    output.flush()

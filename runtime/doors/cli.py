"""callboard: the command line. Options become values here, and every mistake becomes one line and an exit code."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import attrs
from platformdirs import user_data_dir

from callboard.actors.errors import CallboardError
from callboard.runtime.config import RuntimeConfig, load_config
from callboard.runtime.doors.bench import bench
from callboard.runtime.doors.demo import demo
from callboard.runtime.doors.log_care import CheckOptions, RepairOptions, check_log, repair_log
from callboard.runtime.doors.log_moves import ExportOptions, ImportOptions, export_log, import_log
from callboard.runtime.doors.logs import LogOptions, log
from callboard.runtime.doors.output import settle_streams, standard_output
from callboard.runtime.doors.program import DONE_CODE, FAILED_CODE, INTERRUPTED_CODE, USAGE_CODE, say_error, silence
from callboard.runtime.doors.run import RunOptions, run
from callboard.runtime.doors.tree import TreeOptions, tree

ABOUT = "Many AI agents at once: every session an actor, every event in a log, every control call counted."
DEMO = "the whole story offline: a parent and three agents on real files, one interrupt, the metrics"
RUN = "run one task in a session, and show what happens"
LOG = "look at the sessions in the store, take them out, bring them in, check and save them"
BENCH = "the benchmarks of the source tree, each beside a hand-written floor; names rows, or all without a name"
LOG_LIST = "all sessions, the newest first"
LOG_SHOW = "one session, as a story or as lines of JSON"
LOG_EXPORT = "write one session as lines of JSON, one event a line, to standard output or a file"
LOG_IMPORT = "bring an exported session into the store, or a recorded session of another agent (a Codex rollout)"
LOG_CHECK = "look for damage: in the whole store, in one session, or in an exported file"
LOG_REPAIR = "cut the torn end of an exported file, or save what can be read of a damaged SQLite file as a new one"
OUT = "write to this file, which must not exist; - is standard output"
TREE_TOO = "its agents too, all in one file"
FILE = "a file of log export, or a recording such as rollout-*.jsonl; - reads standard input"
NEW_ID = "import under this id; its agents are named after it"
WHAT = "a session id, or a file; without it all sessions of the store"
BROKEN_FILE = "a .jsonl file, or the file of a SQLite store"
NEW_FILE = "where the result goes; by default beside the file"
MACHINE = "what came of it as JSON"
TASK = "what to do; - reads it from standard input; a replay brings its own"
MODEL = "scripted:demo or replay:FILE"
SESSION = "go on with this session, or make it under this id"
STORE = "where sessions are kept, such as sqlite:///FILE; by default one file in your data folder"
PLAN = "switch Plan mode on before the task"
JSON = "one line of JSON for each event on standard output, and nothing else"
PORT = "serve /metrics on this port while it runs; 0 takes a free one"
CONFIG = "a TOML file with settings"
LEVEL = "what the log on standard error tells: debug, info, warning (the default) or error"
TREE = "the supervision tree of a program that runs now: phases, restarts, mailboxes, what is stuck"
PID = "which program, where several run"
TREE_JSON = "one line of JSON for each program"
ID = "a session id, as log list shows them"
AFTER = "only events after this number"
LEVELS = ("debug", "info", "warning", "error")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and where help is."""
        say_error(f"{message}. See {self.prog} --help.")
        raise SystemExit(USAGE_CODE)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code: 0 done, 1 failed, 2 wrong use, 130 interrupted."""
    settle_streams()
    try:
        code = _command(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except SystemExit as end:  # argparse, after --help, --version or an error
        code = end.code if isinstance(end.code, int) else USAGE_CODE
    except CallboardError as error:
        say_error(str(error))
        code = USAGE_CODE
    except KeyboardInterrupt:
        code = INTERRUPTED_CODE
    except BrokenPipeError:
        silence()
        code = DONE_CODE
    except OSError as error:
        say_error(f"the output could not be written: {error.strerror or error}")
        silence()
        code = FAILED_CODE
    return code


def _command(argv: Sequence[str]) -> int:
    if argv[:1] == ["bench"]:  # its options are its own
        return bench(argv[1:])
    options = parser().parse_args(argv)
    _log_at(options.log_level)
    config = _alone(RuntimeConfig() if options.config is None else load_config(options.config))
    match options.command:
        case "demo":
            return demo(standard_output(os.environ))
        case "run":
            return run(_run_options(options, config), standard_output(os.environ))
        case "tree":
            return tree(TreeOptions(options.pid, options.json), standard_output(os.environ, threaded=False))
        case _:
            return _log(options, config)


def _alone(config: RuntimeConfig) -> RuntimeConfig:
    """The settings of a process that does nothing else, unless the file says something else.

    Its garbage is managed, and `callboard tree` can look at it.
    """
    given = config.runtime
    shows = True if given.tree_socket is None else given.tree_socket
    runtime = attrs.evolve(given, gc_policy=given.gc_policy or "manage", tree_socket=shows)
    return attrs.evolve(config, runtime=runtime)


def parser() -> argparse.ArgumentParser:
    """What may be written on the command line; global options may stand on either side of the command."""
    whole = Parser("callboard", description=ABOUT, allow_abbrev=False)
    whole.add_argument("--version", action="version", version=f"callboard {_version()}")
    _global(whole, None)
    later = Parser(add_help=False)
    _global(later, argparse.SUPPRESS)
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", required=True)
    shared: dict[str, Any] = {"parents": [later], "allow_abbrev": False}
    commands.add_parser("demo", help=DEMO, description=DEMO, **shared)
    _add_run(commands.add_parser("run", help=RUN, description=RUN, **shared))
    commands.add_parser("bench", help=BENCH, description=BENCH, add_help=False)
    trees = commands.add_parser("tree", help=TREE, description=TREE, **shared)
    trees.add_argument("pid", metavar="PID", nargs="?", type=_pid, help=PID)
    trees.add_argument("--json", action="store_true", help=TREE_JSON)
    logs = commands.add_parser("log", help=LOG, description=LOG, **shared)
    kinds = logs.add_subparsers(dest="kind", metavar="list|show|export|import|check|repair", required=True)
    listing = kinds.add_parser("list", help=LOG_LIST, description=LOG_LIST, **shared)
    listing.add_argument("--store", metavar="URL", help=STORE)
    show = kinds.add_parser("show", help=LOG_SHOW, description=LOG_SHOW, **shared)
    show.add_argument("session", metavar="ID", help=ID)
    show.add_argument("--json", action="store_true", help=JSON)
    show.add_argument("--after", metavar="N", type=_number, default=-1, help=AFTER)
    show.add_argument("--store", metavar="URL", help=STORE)
    _add_moves(kinds, shared)
    return whole


def _add_moves(kinds: Any, shared: dict[str, Any]) -> None:
    """log export, import, check, repair."""
    out = kinds.add_parser("export", help=LOG_EXPORT, description=LOG_EXPORT, **shared)
    out.add_argument("session", metavar="ID", help=ID)
    out.add_argument("--out", metavar="FILE", default="-", help=OUT)
    out.add_argument("--tree", action="store_true", help=TREE_TOO)
    bring = kinds.add_parser("import", help=LOG_IMPORT, description=LOG_IMPORT, **shared)
    bring.add_argument("file", metavar="FILE", help=FILE)
    bring.add_argument("--session", metavar="ID", help=NEW_ID)
    check = kinds.add_parser("check", help=LOG_CHECK, description=LOG_CHECK, **shared)
    check.add_argument("what", metavar="ID|FILE", nargs="?", help=WHAT)
    repair = kinds.add_parser("repair", help=LOG_REPAIR, description=LOG_REPAIR, **shared)
    repair.add_argument("file", metavar="FILE", help=BROKEN_FILE)
    repair.add_argument("--out", metavar="FILE", help=NEW_FILE)
    for one in (out, bring, check, repair):
        one.add_argument("--json", action="store_true", help=MACHINE)
    for one in (out, bring, check):
        one.add_argument("--store", metavar="URL", help=STORE)


def _log(options: argparse.Namespace, config: RuntimeConfig) -> int:
    """One of the log commands."""
    output, json = standard_output(os.environ, threaded=False), getattr(options, "json", False)
    if options.kind == "repair":
        return repair_log(RepairOptions(config, options.file, options.out, json), output)
    store = _store_url(options, config)
    match options.kind:
        case "export":
            return export_log(ExportOptions(config, store, options.session, options.out, options.tree, json), output)
        case "import":
            return import_log(ImportOptions(config, store, options.file, options.session, json), output)
        case "check":
            return check_log(CheckOptions(config, store, options.what, json), output)
        case _:
            return log(_log_options(options, config), output)


def _global(one: argparse.ArgumentParser, default: str | None) -> None:
    one.add_argument("--config", metavar="FILE", default=default, help=CONFIG)
    level = default or "warning"
    one.add_argument("--log-level", metavar="LEVEL", choices=LEVELS, default=level, help=LEVEL)


def _add_run(one: argparse.ArgumentParser) -> None:
    one.add_argument("task", metavar="TASK", nargs="?", help=TASK)
    one.add_argument("--model", metavar="M", help=MODEL)
    one.add_argument("--session", metavar="ID", help=SESSION)
    one.add_argument("--store", metavar="URL", help=STORE)
    one.add_argument("--plan", action="store_true", help=PLAN)
    one.add_argument("--json", action="store_true", help=JSON)
    one.add_argument("--metrics-port", metavar="N", type=_port, help=PORT)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"expected the number of an event, got {text!r}")
    return int(text)


def _pid(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise argparse.ArgumentTypeError(f"expected the number of a program, got {text!r:.80}")
    return int(text)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 5 or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"expected a port, 0 to 65535, got {text!r}")
    return int(text)


def _run_options(options: argparse.Namespace, config: RuntimeConfig) -> RunOptions:
    return RunOptions(
        config,
        _store_url(options, config),
        options.task,
        options.model,
        options.session,
        options.plan,
        options.json,
        options.metrics_port,
    )


def _log_options(options: argparse.Namespace, config: RuntimeConfig) -> LogOptions:
    store = _store_url(options, config)
    if options.kind == "list":
        return LogOptions(config, store)
    return LogOptions(config, store, options.session, options.json, options.after)


def _store_url(options: argparse.Namespace, config: RuntimeConfig) -> str:
    """The store that is named, or the one file in the user's data folder."""
    named: str | None = options.store or config.store.url
    return named or f"sqlite:///{quote(str(Path(user_data_dir('callboard')) / 'sessions.db'))}"


def _log_at(level: str) -> None:
    logging.basicConfig(level=level.upper(), format="callboard: %(levelname)s: %(message)s", stream=sys.stderr)


def _version() -> str:
    try:
        return version("callboard")
    except PackageNotFoundError:  # run from a checkout that is not installed
        from callboard import __version__

        return __version__

"""The house rules hold in the whole tree; the agreed exceptions stand here, each with its reason."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from . import tidy_imports, tidy_rules
from .tidy_tree import PACKAGES, Tables, read_tree

ROOT = Path(__file__).resolve().parent.parent

# To add an exception, add a line with its reason. A line that nothing needs any more fails the last test.
TABLES = Tables(
    # Files over the line limit: path -> why.
    long_files={},
    # Modules that import no trio, asyncio, time, random or os.
    pure=tuple(
        f"actors/{name}.py"
        for name in ("errors", "events", "facts", "fold", "model", "messages", "plugin", "phase", "childspec")
    ),
    # What metrics may know of actors: events and notices, from their modules or from the package.
    metrics_sees=(
        "callboard.actors",
        "callboard.actors.events",
        "callboard.actors.envelope",
        "callboard.actors.errors",
        "callboard.actors.facts",
        "callboard.actors.notices",
    ),
    # Who may import time or datetime: path -> why.
    time_importers={
        "runtime/clock.py": "the one place that asks what time it is",
        "plugins/rules.py": "calendar arithmetic on times it is given; it never asks for now",
        "runtime/models/refusals.py": "spans between times that a provider names; it never asks for now",
    },
    # Plugins that may import os: path -> why.
    os_plugins={
        "plugins/keeper.py": "a program of its own: forks, waits and kills",
        "plugins/commands.py": "starts keepers and reads their pipes",
        "plugins/shell.py": "looks at the environment for commands",
        "plugins/mcp_server.py": "looks at the environment for servers",
        "plugins/mcp_lines.py": "reads what is left in a pipe",
        "plugins/places.py": "opens files without following links",
        "plugins/files.py": "reads and writes files",
        "plugins/runner.py": "a program of its own: reads pipes and ends at once",
        "plugins/code.py": "makes pipes and looks at the environment for code",
    },
    # Who may wait for real time outside the tests that are about it: path -> why.
    real_sleepers={
        "tests/sse_server.py": "a server that is late on purpose, in a loop of its own",
        "tests/mcp_server.py": "the same, in a program of its own",
    },
    # Where everything may be caught: path:function -> why.
    broad_excepts={
        "runtime/guest.py:Guest._run": "an actor that raises is an outcome, caught in this one place",
        "runtime/supervisor.py:Supervisor._ask": "a child whose polite stop fails is cancelled instead",
        "actors/host.py:Host._run": "the host of a tool call: what a tool raises must not reach the runtime's nursery",
        "actors/pit.py:Pit.run": "the same for what trio raises after the tool's task ended",
        "actors/host.py:Beside.run": "the same for a task that a plugin starts beside the session",
        "runtime/logs/checking.py:Checker.take": "a fold may raise anything on a log that is not whole; it is told",
        "runtime/assembly.py:_registered": "a foreign package may raise anything while it is imported; raised again",
        "plugins/runner.py:run": "a model's code: what it raises is told, and is its exit code",
        "plugins/runner.py:tell": "an error of that code may not be printable, or find no memory to be printed",
        "plugins/code.py:Run._start": "the folder goes whatever kept its program from starting; raised again",
        "actors/plugged.py:_answer": "a plugin's own code may raise anything over an answer; the question stays open",
        "actors/plugged.py:_approve": "the same over an approval",
        "actors/plugged.py:_command": "a plugin's own command may raise anything; its user is told",
        "actors/dispatch.py:Batch._ask_guards": "a plugin that fails over a call has refused it",
        "runtime/calendar.py:Calendar._wake": "a session that cannot be opened must not end the alarm of all others",
        "actors/dues.py:Dues._fired": "an alarm of a plugin that fails must not bring its session down",
        "actors/dispatch.py:Batch._body": "a tool's own code may raise anything while it looks at a call",
        "actors/dispatch.py:run_in_place": "a plain tool on Trio's loop: what it raises is its result",
        "actors/results.py:completed": "a value of a tool's own class may raise anything while it is written",
        "actors/results.py:describe": "an error of a tool's own class may not be printable",
        "actors/hooks.py:call": "a hook is foreign code: what it raises is its failure",
        "actors/verdict.py:read": "a value of a hook's own class may raise anything while it is looked at",
        "actors/asking.py:Asking._ask": "a model is foreign code: what it raises is a failed request",
        "actors/asking.py:Asking._found": "looking up a model is foreign code: the request says what is wrong",
        "runtime/tracing.py:Tracing.event": "what is counted does not end with what is traced: it is logged once",
        "runtime/models/names.py:_warmed": "a model is foreign code: its first request tells what is wrong",
        "runtime/models/names.py:_closed": "a model is foreign code: the others are closed all the same",
        "actors/eventlog.py:EventLog._tell": "a subscriber that raises is switched off",
        "actors/awaited.py:until.look": "a waiter's condition that raises is the waiter's, not the appender's",
        "actors/lab.py:Lab._live": "stands for the supervisor: a crash is kept, and the actor run again",
        "actors/seeds.py:_Runner.fails": "whatever a scenario raises is what is looked for; raised again with its seed",
        "actors/crashes.py:crash_at_each_append": "whatever a story raises is raised again with where it died",
        "actors/crashes.py:_Life.until": "a program that dies may raise anything; what it raises alive is raised again",
        "plugins/mcp.py:Connection.run": "whatever a server or the SDK brings about ends this connection, and is told",
        "actors/view.py:Scene.close": "one belonging that cannot be closed does not keep the others open",
    },
    # Where a cancellation may end without being raised again: path:function -> why.
    cancelled_ends={
        "actors/pit.py:Pit._body": "the outermost frame of a task: nobody is left to miss it",
        "runtime/guest.py:Guest._watch": "the guard: each cancellation asks it to end the guest, and it does",
        "examples/interrupt.py:stubborn": "shows what becomes of a tool that does this",
    },
    # Names with a banned word that others have fixed: name -> whose it is.
    fixed_names={
        "AddContext": "the answer of an after_tool hook, as hook authors know it",
    },
)

TREE = read_tree(ROOT)


def report(findings: Iterable[str]) -> None:
    """Fail with one line for each finding."""
    found = sorted(findings)
    if found:
        pytest.fail("\n".join([f"{len(found)} findings:", *found]), pytrace=False)


def findings(path: str, tables: Tables) -> set[str]:
    """All findings in one file under some tables."""
    source = TREE[path]
    imports = {f for rule in tidy_imports.RULES for f in rule(source, TREE, tables)}
    return imports | {f for rule in tidy_rules.RULES for f in rule(source, tables)}


@pytest.mark.parametrize("rule", tidy_rules.RULES, ids=lambda rule: rule.__name__)
def test_rule_holds(rule):
    """The tree has no finding of this rule."""
    report(f for source in TREE.values() for f in rule(source, TABLES))


@pytest.mark.parametrize("rule", tidy_imports.RULES, ids=lambda rule: rule.__name__)
def test_import_rule_holds(rule):
    """The tree has no finding of this rule about imports."""
    report(f for source in TREE.values() for f in rule(source, TREE, TABLES))


def test_all_packages_are_read():
    """A wrong root would make every rule hold, so each package has files."""
    assert set(PACKAGES) <= {source.folder for source in TREE.values()}


def test_every_exception_is_needed():
    """An exception for a file that is there makes a finding when it is taken away."""
    stale = []
    for table in (f.name for f in fields(Tables)):
        entries = getattr(TABLES, table)
        for entry in entries if isinstance(entries, Mapping) else ():
            path = entry.split(":")[0]
            shorter: Any = {table: {k: v for k, v in entries.items() if k != entry}}
            if path in TREE and findings(path, replace(TABLES, **shorter)) <= findings(path, TABLES):
                stale.append(f"{table}: {entry} is not needed any more; take the line out")
    report(stale)

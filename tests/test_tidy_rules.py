"""Each house rule finds what it is for, and leaves the right way alone."""

import textwrap

import pytest

from . import tidy_imports, tidy_rules
from .tidy_tree import Source, Tables

TABLES = Tables(
    pure=("actors/fold.py",),
    metrics_sees=("callboard.actors", "callboard.actors.events"),
    time_importers={"runtime/clock.py": "asks the time"},
    broad_excepts={"runtime/guest.py:Guest.start": "an actor may raise anything"},
    fixed_names={"AddContext": "fixed elsewhere"},
)
INIT = Source(
    "actors/__init__.py",
    '"""What an actor is.\n\nerrors    faults\nevents  facts\nfold   state\nsub/low  deep\nsub/high  less deep\n"""\n',
)
LISTED = tuple(Source(f"actors/{n}.py", '"""One."""\n') for n in ("errors", "events", "fold", "sub/low", "sub/high"))

# rule, path, bad code (a finding), good code (none)
CASES = [
    ("file_shape", "actors/a.py", "x = 1", '"""Knows one thing."""'),
    ("file_shape", "actors/a.py", '"""Knows."""\n' + "\n" * 400, '"""Knows."""\n' + "\n" * 399),
    (
        "function_shape",
        "runtime/a.py",
        "def f():\n" + "    x = 1\n" * 60,
        'def f():\n    """One.\n\n    two\n    """\n' + "    x = 1\n" * 59,
    ),
    ("no_module_state", "actors/a.py", "CACHE = {}", "CACHE: Final = {}"),
    ("no_module_state", "actors/a.py", "seen: set[str] = set()", "seen = frozenset({1})"),
    ("no_module_state", "actors/a.py", "if True:\n    ALL = [n for n in x]", "ALL = tuple(n for n in x)"),
    ("no_module_state", "actors/a.py", "from collections import deque as d\nq = d()", "T = MappingProxyType({})"),
    ("no_module_state", "actors/a.py", "def f():\n    global n\n    n = 1", "def f():\n    n = []"),
    ("units", "plugins/a.py", "WINDOW = 0.1", "WINDOW_S = 0.1"),
    ("units", "plugins/a.py", "LIMIT: Final = 64 * 1024", "LIMIT_BYTES: Final = 64 * 1024"),
    ("units", "plugins/a.py", "_depth = -1", "_depth_max = -1\nON = True\nNAME = 'x'"),
    ("words", "actors/session_manager.py", "", ""),
    ("words", "runtime/utils/a.py", "", ""),
    ("words", "actors/a.py", "class EventHandler: ...", "class Listener(logging.Handler): ..."),
    ("words", "actors/a.py", "class ToolContext: ...", "class AddContext: ..."),
    ("words", "actors/a.py", "def f(context): ...", "def f(context_window): ..."),
    ("words", "actors/a.py", "def run_jobs(): ...", "def process(): ..."),
    ("words", "actors/a.py", "self.worker = 1", "import contextlib\nx.set_exception_handler(f)"),
    ("words", "actors/a.py", "import x as helper", "import helper"),
    ("words", "actors/a.py", "class SubProcess: ...", "class Child: ..."),
    (
        "limits",
        "actors/a.py",
        "with trio.CancelScope(shield=True): ...",
        "with trio.move_on_after(1, shield=True): ...",
    ),
    ("limits", "actors/a.py", "f(shield=hard)", "CancelScope(deadline=t, shield=True)\nf(shield=False)"),
    ("limits", "actors/a.py", "scope.shield = True", "scope.deadline = 1"),
    (
        "limits",
        "runtime/a.py",
        "from trio.to_thread import run_sync as go\nawait go(f)",
        "import trio\nawait trio.to_thread.run_sync(f, abandon_on_cancel=True)",
    ),
    ("excepts", "actors/a.py", "try: ...\nexcept Exception: ...", "try: ...\nexcept ValueError: ..."),
    ("excepts", "actors/a.py", "try: ...\nexcept: ...", "try: ...\nexcept* ValueError: ..."),
    ("excepts", "actors/a.py", "try: ...\nexcept (ValueError, BaseException):\n    raise", "try: ...\nfinally: ..."),
    ("excepts", "actors/a.py", "with contextlib.suppress(Exception): ...", "with suppress(KeyError): ..."),
    (
        "excepts",
        "runtime/guest.py",
        "class Guest:\n    def stop(self):\n        try: ...\n        except Exception: ...",
        "class Guest:\n    def start(self):\n        try: ...\n        except Exception: ...",
    ),
    (
        "excepts",
        "actors/a.py",
        "try: ...\nexcept trio.Cancelled:\n    def f():\n        raise",
        "try: ...\nexcept trio.Cancelled:\n    close()\n    raise",
    ),
    ("excepts", "runtime/a.py", "with suppress(asyncio.CancelledError): ...", "with suppress(): ..."),
    ("tests_say_what", "tests/test_a.py", "def test_x(): ...", 'def test_x():\n    """A full box refuses."""'),
    (
        "tests_say_what",
        "tests/test_a.py",
        'def test_x():\n    """A full box refuses. It says so."""',
        'class TestA:\n    def test_x(self):\n        """An `a.b` of 0.5 is refused."""',
    ),
    ("tests_say_what", "tests/test_a.py", 'async def test_x():\n    """Refuses"""', "def build(): ..."),
    (
        "no_sleeping",
        "tests/trio/test_a.py",
        "import asyncio\nasync def f():\n    await asyncio.sleep(0.1)",
        "import asyncio, trio\nasync def f():\n    await asyncio.sleep(0)\n    await trio.sleep(9)",
    ),
    ("no_sleeping", "tests/test_a.py", "from time import sleep as nap\nnap(0)", "from trio import sleep\nsleep(1)"),
    ("no_sleeping", "runtime/a.py", "import asyncio as a\na.sleep(1)", "import asyncio as a\na.sleep(0)"),
    ("directions", "actors/a.py", "import callboard.runtime.app", "import callboard.actors.events"),
    ("directions", "actors/a.py", "def f():\n    from callboard import plugins", "from callboard import __version__"),
    ("directions", "plugins/a.py", "from ..runtime import app", "from ..actors import events"),
    ("directions", "metrics/a.py", "from callboard.actors import fold", "from callboard.actors import TurnEnded"),
    (
        "directions",
        "metrics/a.py",
        "from callboard.plugins import goal",
        "from callboard.actors.events import TurnEnded",
    ),
    ("listed", "actors/new.py", "", None),
    ("upward", "actors/events.py", "from callboard.actors.fold import x", "from callboard.actors.errors import x"),
    ("upward", "actors/events.py", "from . import fold", "from . import errors"),
    ("upward", "actors/fold.py", "from callboard.actors import TurnEnded", "from callboard.actors.events import Event"),
    ("upward", "actors/sub/low.py", "from .high import x", "from ..fold import x"),
    ("upward", "actors/fold.py", "def f():\n    import callboard.actors.sub.low", "import callboard.actors.errors"),
    ("no_type_checking", "actors/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING: ...", "import typing"),
    ("no_type_checking", "actors/a.py", "import typing as t\nif t.TYPE_CHECKING: ...", "import typing"),
    ("pure", "actors/fold.py", "import trio.lowlevel", "import msgspec"),
    ("pure", "plugins/todo.py", "from os import path", "import trio"),
    ("pure", "tests/pure/test_a.py", "import trio", "import random"),
    (
        "pure_folds",
        "plugins/todo.py",
        "import trio\ndef now(e): return trio.current_time()\ndef f(s, e): return now(e)\nP = Projection('x', 0, f)",
        "import trio\ndef now(e): return trio.current_time()\ndef f(s, e): return e\nP = Projection('x', 0, apply=f)",
    ),
    ("one_home", "actors/a.py", "import asyncio", "import trio"),
    ("one_home", "runtime/app.py", "from datetime import datetime", "import asyncio"),
    ("one_home", "runtime/app.py", "import time", "from callboard.runtime import clock"),
    ("no_mocks", "tests/test_a.py", "from unittest import mock", "import unittest"),
    (
        "no_mocks",
        "tests/test_a.py",
        "from unittest.mock import Mock",
        "from callboard.actors.testing import ScriptedModel",
    ),
]
ABOUT_CODE = {rule.__name__: rule for rule in tidy_rules.RULES}
ABOUT_IMPORTS = {rule.__name__: rule for rule in tidy_imports.RULES}


def findings(rule: str, path: str, code: str) -> list[str]:
    """What one rule says about one file, in a small tree of listed modules."""
    source = Source(path, textwrap.dedent(code))
    tree = {s.path: s for s in (INIT, *LISTED, source)}
    if rule in ABOUT_CODE:
        return list(ABOUT_CODE[rule](source, TABLES))
    return [f for s in tree.values() for f in ABOUT_IMPORTS[rule](s, tree, TABLES)]


@pytest.mark.parametrize(("rule", "path", "bad", "good"), CASES)
def test_finds_the_bad(rule, path, bad, good):
    """Bad code makes a finding that says file, line and what to do instead."""
    found = findings(rule, path, bad)
    assert found
    assert all(";" in f and f.split(":")[1].isdigit() for f in found)


@pytest.mark.parametrize(("rule", "path", "bad", "good"), [c for c in CASES if c[3]])
def test_leaves_the_good(rule, path, bad, good):
    """The right way beside it makes none."""
    assert [] == findings(rule, path, good)


def test_every_rule_has_a_case():
    """A rule that nobody has seen fail is no rule."""
    assert {*ABOUT_CODE, *ABOUT_IMPORTS} == {case[0] for case in CASES}


def test_a_missing_reading_order_is_a_finding():
    """Every module of a package whose docstring lists none is found."""
    tree = {s.path: s for s in (Source("actors/__init__.py", '"""Nothing."""'), *LISTED)}
    found = [f for s in tree.values() for f in tidy_imports.listed(s, tree, TABLES)]
    assert len(LISTED) == len(found)


def test_a_listed_subpackage_brings_its_own_order():
    """A subpackage listed by its bare name is read in the order of its own docstring."""
    files = {
        "runtime/__init__.py": '"""Run.\n\nclock  time\ndoors/  ways in\napp  all\n"""',
        "runtime/clock.py": "",
        "runtime/app.py": "",
        "runtime/doors/__init__.py": '"""Doors.\n\nline  text\ncli   commands\n"""',
        "runtime/doors/cli.py": "",
        "runtime/doors/line.py": "",
    }
    tree = {path: Source(path, text) for path, text in files.items()}
    expected = ["clock", "doors.line", "doors.cli", "doors", "app"]
    assert expected == tidy_imports.reading_order("callboard.runtime", tree)

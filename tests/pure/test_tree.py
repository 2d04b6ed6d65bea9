"""The supervision tree as lines for people: phases, restarts, what is stuck; hostile answers of other programs."""

import msgspec
import pytest

from callboard.runtime.doors.tree import heading, picture, read_shown
from callboard.runtime.nodes import Node, Shown
from callboard.runtime.vitals import Vitals, health_of

AGENTS = Node(
    "agents of busy",
    "supervisor",
    "temporary",
    "one_for_one",
    children=(Node("busy.a", phase="running", path="/root/a"), Node("busy.b", phase="aborting", aborting_s=0.05)),
)
SESSIONS = Node(
    "sessions",
    "supervisor",
    "transient",
    "one_for_one",
    children=(
        Node("busy", phase="running", mailbox=2, queued=3, restarts=1),
        AGENTS,
        Node("odd", phase="aborting", aborting_s=3.25),
        Node("new", alive=False, phase="starting", restarts=2),
        Node("agents of gone", "supervisor", strategy="one_for_one", children=(Node("gone.x", phase="idle"),)),
    ),
    more={"idle": 9_800},
    left=("deaf",),
)
ROOT = Node("root", "supervisor", strategy="one_for_one", children=(Node("alarm"), Node("sweep"), SESSIONS))
SHOWN = Shown(
    4242,
    "callboard run go",
    125.0,
    {**health_of(Vitals(), "open", stuck=["odd"]), "lag_p99_s": {"asyncio": 0.0015, "trio": 0.002}},
    {"idle": 9_800, "running": 2, "passivated": 1_200},
    ROOT,
    ("deaf (trio)",),
)
PICTURE = """\
4242 · callboard run go · up 2 min 05 s · 9,800 idle, 2 running, 1,200 passivated
! 1 session does not come out of an abort: odd
loops late by (99 of 100): asyncio 1.5 ms, trio 2.0 ms
root  one_for_one
├─ alarm
├─ sweep
└─ sessions  one_for_one
   ├─ busy  running · 1 restart · mailbox 2 · 3 queued
   │  ├─ busy.a  running
   │  └─ busy.b  aborting · for 0.05 s
   ├─ odd  aborting · for 3.2 s  STUCK
   ├─ new  starting · waits to be started again · 2 restarts
   ├─ agents of gone  one_for_one
   │  └─ gone.x  idle
   ├─ and 9,800 more, idle
   └─ deaf was given up and still lives
1,200 more sessions left memory until they are wanted
abandoned: deaf (trio)"""


def test_a_tree_reads_so():
    """Agents stand below their session; restarts, mailboxes and what is stuck are told where they are."""
    assert PICTURE == "\n".join(line.plain for line in picture(SHOWN, 120))


def test_lines_fit_any_width():
    """No line is longer than the terminal."""
    for width in (1, 5, 20, 40):
        assert all(line.cell_len <= width for line in picture(SHOWN, width))


def test_what_a_terminal_would_obey_is_made_visible():
    """Another program's names, phases and problems are text, whatever they hold."""
    evil = "\x1b[2J\u202e\n"
    node = Node(evil, phase=evil, children=(Node(evil, phase=evil),), more={evil: 1}, left=(evil,))
    health = {"problems": [evil], "lag_p99_s": {evil: evil}}
    shown = Shown(1, evil, 1.0, health, {evil: 1}, node, (evil,), (evil,))
    for line in (*picture(shown, 200), heading(shown, 200)):
        assert not set("\x1b\u202e\n") & set(line.plain)


@pytest.mark.parametrize(
    "health", [{}, {"problems": 3, "lag_p99_s": []}, {"problems": [3, None], "lag_p99_s": {"a": None}}]
)
def test_health_of_another_version_is_left_out(health):
    """What cannot be read of the health is not shown; the tree is."""
    lines = [line.plain for line in picture(msgspec.structs.replace(SHOWN, health=health), 120)]
    assert "root  one_for_one" in lines


def test_an_answer_comes_back_as_it_was():
    """What is written is what is read."""
    assert SHOWN == read_shown(msgspec.json.encode(SHOWN) + b"\n")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"",
        b"[]",
        b"{}",
        b'{"pid":"x"}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"pid":1,"program":"x","up_s":1,"health":{},"sessions":{},"tree":' + b'{"id":"x","children":[' * 50_000,
    ],
)
def test_what_is_no_answer_is_none(answer):
    """Whatever listens at the socket, reading it is harmless."""
    assert read_shown(answer) is None

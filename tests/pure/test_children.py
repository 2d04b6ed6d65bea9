"""What a log says of the agents its session started, and how such an agent stands."""

import pytest

from callboard.actors.books import BUILT_IN
from callboard.actors.children import (
    CHILDREN,
    OLD_TEXT_CHARS,
    RECENT_MAX,
    TASK_CHARS,
    TEXT_CHARS,
    Child,
    child_of,
    status_of,
)
from callboard.actors.events import SessionForked, TurnStarted
from callboard.actors.facts import ChildClosed, ChildEnded, ChildReleased, ChildSpawned
from callboard.actors.fold import Folds

SPAWNED = ChildSpawned("k", "/root/k", "dig", call="c", turn=3, detached=True, role="scout")
KNOWN = Child("k", "/root/k", "dig", call="c", called=3, detached=True, role="scout")


def children(*events):
    """The fold of these events, from the built-in ones."""
    assert CHILDREN in BUILT_IN
    folds = Folds((CHILDREN,))
    states = list(folds.zeros)
    state = states[0]
    for event in events:
        state = CHILDREN.apply(state, event)
    return state


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ((), {}),
        ((ChildReleased("k"),), {"call": ""}),
        ((ChildReleased("other"), ChildClosed("other"), ChildEnded("other", "failed", "x")), {}),
        ((ChildClosed("k"),), {"closed": True}),
        ((ChildEnded("k", "completed", "hole", 1),), {"status": "completed", "text": "hole", "turn": 1, "call": ""}),
        (
            (ChildEnded("k", "failed", "no spade", 1), ChildEnded("k", "completed", "", 1)),
            {"status": "failed", "text": "no spade", "turn": 1, "call": ""},
        ),
        (
            (ChildEnded("k", "failed", "no spade", 2), ChildEnded("k", "completed", "late", 1), ChildClosed("k")),
            {"status": "failed", "text": "no spade", "turn": 2, "call": "", "closed": True},
        ),
        (
            (ChildEnded("k", "failed", "no spade", 1), ChildEnded("k", "completed", "hole", 2)),
            {"status": "completed", "text": "hole", "turn": 2, "call": ""},
        ),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_what_becomes_of_a_child(then, expected):
    """Each turn of a child has the first end that was told of it; being closed or released changes nothing else."""
    changed = Child(**{**{name: getattr(KNOWN, name) for name in Child.__struct_fields__}, **expected})
    assert (changed,) == children(SPAWNED, *then)


def test_fork_has_no_children():
    """The children of the session that was forked are not the fork's."""
    assert () == children(SPAWNED, SessionForked("s", 4))


def test_nothing_new_is_no_change():
    """An end that was told before leaves the fold as it is."""
    state = children(SPAWNED, ChildEnded("k", "completed", "hole", 1))
    assert CHILDREN.apply(state, ChildEnded("k", "failed", "late", 1)) is state


def test_little_is_kept_of_many():
    """Of each agent the beginning of its task, and from the next turn on of its text; less of those that are older."""
    total, long = RECENT_MAX + 3, "x" * 100_000
    spawned = [ChildSpawned(f"k{at}", f"/root/k{at}", long, mail=False) for at in range(total)]
    state = children(*spawned, *(ChildEnded(f"k{at}", "completed", long, 1) for at in range(total)))
    assert [(TASK_CHARS, 100_000)] * total == [(len(one.task), len(one.text)) for one in state]
    later = CHILDREN.apply(state, TurnStarted(2))
    assert [OLD_TEXT_CHARS] * 3 + [TEXT_CHARS] * RECENT_MAX == [len(one.text) for one in later]
    assert later is CHILDREN.apply(later, TurnStarted(3))
    assert [child_of(later, f"k{at}") for at in range(total)] == list(later)
    again = CHILDREN.apply(later, ChildEnded("k0", "completed", "hole", 2))
    assert (again[0].text, len(again)) == ("hole", total)


REST = {"live": True, "turn": 1, "works": False, "asks": False, "queued": False, "below": False}


@pytest.mark.parametrize(
    ("known", "now", "expected"),
    [
        ({}, {"turn": 0}, "pending"),
        ({}, {"turn": 0, "queued": True}, "pending"),
        ({}, {"works": True}, "running"),
        ({}, {"works": True, "below": True}, "running"),
        ({}, {"works": True, "asks": True}, "waiting"),
        ({}, {}, "running"),  # it has ended, and its parent has not heard of it
        ({"status": "completed", "turn": 1}, {}, "completed"),
        ({"status": "completed", "turn": 1}, {"below": True}, "waiting"),
        ({"status": "completed", "turn": 1}, {"queued": True}, "pending"),
        ({"status": "completed", "turn": 1}, {"turn": 2, "works": True}, "running"),
        ({"status": "completed", "turn": 1}, {"turn": 2}, "running"),
        ({"status": "failed", "turn": 1}, {}, "failed"),
        ({"status": "failed", "turn": 1}, {"turn": 0}, "failed"),  # its task was refused: it never had a turn
        ({"status": "failed", "turn": 1, "closed": True}, {"live": False}, "failed"),
        ({"status": "interrupted", "turn": 2}, {"turn": 2}, "interrupted"),
        ({"status": "completed", "turn": 1, "closed": True}, {"live": False}, "completed"),
        ({}, {"live": False}, "running"),
        ({"closed": True}, {"live": False}, "stopped"),
        ({"status": "stopped", "turn": 1}, {"live": False}, "stopped"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_how_a_child_stands(known, now, expected):
    """An end stands from the moment its parent has recorded it; whoever has more to say by itself is at work."""
    assert expected == status_of(Child("k", "/root/k", "dig", **known), **{**REST, **now})

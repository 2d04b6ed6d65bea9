"""Verdicts: what hooks answered, in which order and when, as one decision."""

from typing import Any

import pytest

from callboard.actors.events import HookFailed, HookWarned
from callboard.actors.hook import AddContext, Allow, Block, Continue, Hook, Rewrite, Skip, Slots, Warn
from callboard.actors.verdict import GO_ON, MAY_ANSWER, Moment, Verdict, failed, join, read

A, B, C = (Hook(name) for name in "abc")
SHUT = Hook("shut", on_failure="block")
ALL: tuple[Moment, ...] = tuple(MAY_ANSWER)


class Unreadable:
    """Has no text."""

    def __str__(self) -> str:
        raise LookupError("no text")


JOINS: list[tuple[Moment, list[tuple[Hook, Any, float]], Verdict]] = [
    ("before_tool", [], GO_ON),
    ("before_tool", [(A, None, 0), (B, Allow(), 0), (C, Skip(), 0), (A, (), 0)], GO_ON),
    ("before_tool", [(A, Block("x"), 2), (B, Block("y"), 1)], Verdict(block="x")),
    ("before_tool", [(A, Rewrite(1), 0), (B, Block("y"), 0)], Verdict(block="y")),
    ("before_tool", [(A, Rewrite(1), 9), (B, Rewrite(2), 3)], Verdict(rewrite=Rewrite(1))),
    ("before_tool", [(A, Rewrite(1), 3), (B, Rewrite(2), 3)], Verdict(rewrite=Rewrite(2))),
    ("before_tool", [(A, AddContext("n"), 9), (B, AddContext("m"), 1)], Verdict(notes=("n", "m"))),
    (
        "before_tool",
        [(A, (Rewrite(1), AddContext("n"), Warn("w")), 0)],
        Verdict(rewrite=Rewrite(1), notes=("n",), events=(HookWarned("a", "w"),)),
    ),
    ("before_tool", [(A, (AddContext("n"), Block("no")), 0)], Verdict(block="no", notes=("n",))),
    ("after_tool", [(A, Block("x"), 0), (B, Block("y"), 0)], Verdict(block="x\ny")),
    ("on_turn_start", [(A, AddContext("n"), 0), (B, Block("y"), 0)], Verdict(block="y", notes=("n",))),
    ("on_stop", [(A, Continue("one"), 5), (B, None, 0), (C, Continue("two"), 1)], Verdict(more=("one", "two"))),
    ("on_turn_end", [(A, Warn("w"), 0)], Verdict(events=(HookWarned("a", "w"),))),
    ("on_interrupt", [(A, Warn("w"), 0)], Verdict(events=(HookWarned("a", "w"),))),
]


@pytest.mark.parametrize(("moment", "answered", "verdict"), JOINS)
def test_answers_join_to_one_verdict(moment, answered, verdict):
    """Any block wins by hook order, else the rewrite that finished last; texts add up in hook order."""
    assert verdict == join(moment, [read(moment, hook, answer, at_s) for hook, answer, at_s in answered])


FITS: dict[type, tuple[Any, set[Moment]]] = {
    Block: (Block("no"), {"before_tool", "after_tool", "on_turn_start"}),
    Rewrite: (Rewrite({}), {"before_tool"}),
    AddContext: (AddContext("n"), {"before_tool", "after_tool", "on_turn_start"}),
    Continue: (Continue("on"), {"on_stop"}),
    Warn: (Warn("w"), set(ALL)),
    Allow: (Allow(), set(ALL)),
    Skip: (Skip(), set(ALL)),
    str: ("yes", set()),
    bool: (True, set()),
    dict: ({}, set()),
    list: ([Allow()], set()),
}


@pytest.mark.parametrize("moment", ALL)
@pytest.mark.parametrize("kind", FITS)
def test_each_moment_takes_its_own_answers_alone(moment, kind):
    """What must not be answered at a moment is a failed hook, alone or in a tuple."""
    answer, moments = FITS[kind]
    for given in (answer, (None, answer)):
        failure = read(moment, A, given).failure
        assert (moment in moments) == (failure is None)
        assert failure is None or failure.startswith(f"answered {kind.__name__}, not one of ")


@pytest.mark.parametrize("moment", ALL)
def test_a_failure_blocks_where_something_can_be_blocked(moment):
    """Open or closed, a failure is an event; closed it refuses, at moments that know a refusal."""
    open_, shut = join(moment, [failed(A, "broke")]), join(moment, [failed(SHUT, "broke")])
    closed = moment in ("before_tool", "after_tool", "on_turn_start")
    assert open_ == Verdict(events=(HookFailed("a", "broke", blocked=False),))
    reason = "hook shut failed: broke" if closed else None
    assert shut == Verdict(block=reason, events=(HookFailed("shut", "broke", blocked=closed),))


@pytest.mark.parametrize("answer", [Block(Unreadable()), AddContext(Unreadable())])  # type: ignore[arg-type]
def test_an_answer_that_cannot_be_read_is_a_failure(answer):
    """A reason or a text of the hook's own class may raise; that is the hook's failure."""
    failure = read("after_tool", A, answer).failure
    assert failure == f"answered {type(answer).__name__} without a text: LookupError: no text"


def test_texts_are_made_fit_for_the_log():
    """A lone surrogate is replaced, and what is no text becomes one."""
    said = read("after_tool", A, (Block(5), AddContext("\ud800")))  # type: ignore[arg-type]
    assert said.answers == (Block("5"), AddContext("\N{REPLACEMENT CHARACTER}"))


STATUSES: list[tuple[Any, str]] = [
    (None, "ok"),
    (Warn("w"), "ok"),
    (AddContext("n"), "context"),
    (Rewrite(1), "rewrote"),
    ((AddContext("n"), Rewrite(1)), "rewrote"),
    ((AddContext("n"), Rewrite(1), Block("no")), "blocked"),
    ("yes", "failed"),
]


@pytest.mark.parametrize(("answer", "status"), STATUSES)
def test_a_run_is_counted_by_its_weightiest_answer(answer, status):
    """Blocked before rewritten, rewritten before added."""
    assert status == read("before_tool", A, answer).status


def test_hooks_are_sorted_by_their_slots():
    """A hook with several slots stands in each of them, in the order given."""
    start, both = Hook("start", on_turn_start=print), Hook("both", on_turn_start=print, on_stop=print)
    assert Slots(on_turn_start=(start, both), on_stop=(both,)) == Slots.of([start, both, Hook("none")])

"""An interrupt before every step of a turn: wherever it falls, it ends once, in its window, with all its receipts."""

from typing import Any

import pytest

from callboard.actors.books import HISTORY, PARKED, QUEUE
from callboard.actors.events import AbortRequested, MessagesClaimed, ModelSaid, NoteAdded
from callboard.actors.messages import Idle, Interrupt, Interrupting, Refused, Steer, Steered, Submit
from callboard.actors.model import User
from callboard.actors.testing import seeded_run

from .points import Make, Play, Played
from .strict import of_kind


def play(*hands: tuple[int, Make], seed: int = 0) -> Played:
    """One play in a run of its own, tasks in the order of the seed."""
    played: list[Played] = []

    async def run() -> None:
        played.append(await Play(*hands).run())

    seeded_run(run, [seed])
    return played[0]


def interrupt(reply: Any) -> Interrupt:
    """An interrupt of whatever runs."""
    return Interrupt(reply=reply)


def steer(reply: Any) -> Steer:
    """Input for the running turn."""
    return Steer("look left", "steered", reply=reply)


LENGTH = min(play(seed=seed).steps for seed in range(3))
WHOLE = max(play(seed=seed).all_steps for seed in range(3))


def check_interrupted(played: Played) -> None:
    """It was interrupted once, if anybody was told so; else nobody touched it."""
    ended, records = played.ended, played.records
    asked = of_kind(records, AbortRequested)
    marks = [e for e in of_kind(records, NoteAdded) if e.source == "marker"]
    if Interrupting(1) in played.answers:
        assert (ended.reason, ended.cause, len(asked), len(marks)) == ("aborted", "interrupted", 1, 1)
    else:
        assert (ended.reason, ended.last_message, asked, marks) == ("completed", "it is done", [], [])
    calls = [call.id for said in of_kind(records, ModelSaid) for call in said.calls]
    assert calls == [receipt.call for receipt in ended.receipts]


def test_the_turn_that_is_cut_has_many_points():
    """Nothing happens to it: three requests, six calls, and more than sixty steps of tasks."""
    played = play()
    assert ("completed", 3, 6) == (played.ended.reason, played.ended.steps, played.ended.tool_calls)
    assert {"completed"} == {receipt.receipt for receipt in played.ended.receipts}
    assert 60 < LENGTH < WHOLE


@pytest.mark.parametrize("seed", range(3))
def test_interrupt_before_every_step(seed):
    """Every point gives a clean end, and all ways a call can end are met on the way."""
    met: set[str] = set()
    for at in range(1, WHOLE + 1):
        played = play((at, interrupt), seed=seed)
        check_interrupted(played)
        met |= {receipt.receipt for receipt in played.ended.receipts}
    assert {"completed", "interrupted", "not_started"} <= met


@pytest.mark.parametrize("gap", [0, 1, 2, 7])
def test_second_and_third_interrupt_change_nothing(gap):
    """While it aborts, and after, the others are answered as the first one, and nothing is written for them."""
    for at in range(1, WHOLE + 1, 2):
        played = play((at, interrupt), (at + gap, interrupt), (at + 2 * gap, lambda r: Interrupt(1, reply=r)), seed=gap)
        check_interrupted(played)
        assert {type(one) for one in played.answers if one is not None} <= {Interrupting, Idle, Refused}


def test_an_interrupt_of_another_turn_touches_nothing():
    """At any point, one that names another turn is refused, and the turn ends by itself."""
    for at in range(1, LENGTH + 1, 3):
        played = play((at, lambda reply: Interrupt(2, reply=reply)))
        assert "turn_mismatch" == played.answers[0].reason
        check_interrupted(played)


@pytest.mark.parametrize("gap", [0, 1, 2, 3, 5, 9])
def test_steered_input_before_an_interrupt_has_one_fate(gap):
    """Claimed before the abort, or back in the queue until the user speaks: never both, never lost."""
    fates: set[str] = set()
    for at in range(2, LENGTH - 9):
        played = play((at, steer), (at + gap, interrupt), seed=gap)
        fates.add(_fate(played, played.answers[0]))
    assert {"back"} <= fates <= {"claimed", "back"}


@pytest.mark.parametrize("gap", [0, 1, 2, 3, 5])
def test_steered_input_behind_an_interrupt_is_refused(gap):
    """The turn takes no input any more, and the sender hears so while it is being aborted."""
    for at in range(2, LENGTH - 9, 2):
        played = play((at, interrupt), (at + gap, steer), seed=gap)
        if played.answers[1] is not None:
            assert "refused" == _fate(played, played.answers[1])


def _fate(played: Played, answer: Any) -> str:
    claims = [id_ for e in of_kind(played.records, MessagesClaimed) for id_ in e.ids]
    said = [m.text for m in played.session.state(HISTORY).messages if isinstance(m, User)]
    if isinstance(answer, Refused):
        assert ("steered" in claims, said.count("look left")) == (False, 0)
        return "refused"
    assert isinstance(answer, Steered)
    assert said.count("look left") == 1, "the next turn has it, if not this one"
    return "claimed" if "steered" in claims else "back"


@pytest.mark.parametrize("gap", [0, 1, 4])
def test_a_message_before_an_interrupt_is_kept_for_its_turn(gap):
    """It is parked with the abort, goes on when the user speaks, and is never lost."""
    for at in range(2, LENGTH - 4, 3):
        played = play((at, lambda reply: Submit("later", "late", reply=reply)), (at + gap, interrupt), seed=gap)
        said = [m.text for m in played.session.state(HISTORY).messages if isinstance(m, User) and m.source == "user"]
        assert ["go", "later", "more"] == said
        assert (False, ()) == (played.session.state(PARKED), played.session.state(QUEUE))

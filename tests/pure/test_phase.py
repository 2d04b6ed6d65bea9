"""The phase table, whole: every phase with every message, and the same table seen from outside."""

from typing import get_args

import pytest

from callboard.actors.messages import Letter
from callboard.actors.phase import TABLE, Do, Phase, on

PHASES = (Phase.STARTING, Phase.IDLE, Phase.RUNNING, Phase.ABORTING, Phase.STOPPING, Phase.STOPPED)

# One row for each message, one column for each phase: what is done, and the phase after. `-` cannot happen. The phase
# passivated does what stopped does.
EXPECTED = """
              starting           idle             running          aborting          stopping          stopped
Submit        LATER starting     START running    QUEUE running    QUEUE aborting    REFUSE stopping   REFUSE stopped
Steer         LATER starting     DECLINE idle     JOIN running     DECLINE aborting  REFUSE stopping   REFUSE stopped
SubmitOrSteer LATER starting     START running    JOIN running     QUEUE aborting    REFUSE stopping   REFUSE stopped
Replace       LATER starting     START running    REPLACE aborting QUEUE aborting    REFUSE stopping   REFUSE stopped
Compact       LATER starting     START running    REPLACE aborting QUEUE aborting    REFUSE stopping   REFUSE stopped
Review        LATER starting     START running    REPLACE aborting QUEUE aborting    REFUSE stopping   REFUSE stopped
Shell         LATER starting     START running    BESIDE running   QUEUE aborting    REFUSE stopping   REFUSE stopped
Inject        LATER starting     QUEUE idle       QUEUE running    QUEUE aborting    REFUSE stopping   REFUSE stopped
Mail          LATER starting     QUEUE idle       QUEUE running    QUEUE aborting    REFUSE stopping   REFUSE stopped
Withdraw      LATER starting     EDIT idle        EDIT running     EDIT aborting     EDIT stopping     REFUSE stopped
Edit          LATER starting     EDIT idle        EDIT running     EDIT aborting     EDIT stopping     REFUSE stopped
ResumeQueue   LATER starting     EDIT idle        EDIT running     EDIT aborting     REFUSE stopping   REFUSE stopped
Interrupt     NOTHING starting   NOTHING idle     ABORT aborting   REPEAT aborting   REPEAT stopping   NOTHING stopped
Stop          LATER starting     CLOSE stopped    ABORT stopping   REPEAT stopping   REPEAT stopping   NOTHING stopped
SetMode       LATER starting     MODE idle        MODE running     MODE aborting     REFUSE stopping   REFUSE stopped
StopOnce      LATER starting     EDIT idle        EDIT running     EDIT aborting     REFUSE stopping   REFUSE stopped
AnswerQuestion LATER starting     EDIT idle        EDIT running     EDIT aborting     REFUSE stopping   REFUSE stopped
Approve       LATER starting     EDIT idle        EDIT running     EDIT aborting     REFUSE stopping   REFUSE stopped
UseCommand    LATER starting     EDIT idle        EDIT running     EDIT aborting     REFUSE stopping   REFUSE stopped
HandedOver    LATER starting     EDIT idle        EDIT running     EDIT aborting     REFUSE stopping   REFUSE stopped
ChildDone     LATER starting     QUEUE idle       QUEUE running    QUEUE aborting    QUEUE stopping    REFUSE stopped
Wake          LATER starting     FIRE idle        IGNORE running   IGNORE aborting   IGNORE stopping   IGNORE stopped
Passivate     LATER starting     LEAVE passivated IGNORE running   IGNORE aborting   IGNORE stopping   IGNORE stopped
Await         LATER starting     WATCH idle       WATCH running    WATCH aborting    WATCH stopping    REFUSE stopped
TaskDone      -                  -                NEXT idle        NEXT idle         END stopped       -
"""


def rows() -> list[tuple[Phase, type[Letter], tuple[Do, Phase] | None]]:
    """The table above, a row for each pair."""
    letters = {letter.__name__: letter for letter in get_args(Letter)}
    found: list[tuple[Phase, type[Letter], tuple[Do, Phase] | None]] = []
    for line in EXPECTED.strip().splitlines()[1:]:
        name, *cells = line.split()
        for phase in PHASES:
            do = cells.pop(0)
            found.append((phase, letters[name], None if do == "-" else (Do[do], Phase(cells.pop(0)))))
        found.append((Phase.PASSIVATED, letters[name], None if do == "-" else (Do[do], Phase.PASSIVATED)))
        assert cells == []
    return found


PAIRS = rows()


@pytest.mark.parametrize(
    ("phase", "letter", "expected"), PAIRS, ids=[f"{letter.__name__}-{phase.value}" for phase, letter, _ in PAIRS]
)
def test_every_message_in_every_phase(phase, letter, expected):
    """Each pair does what the table says, and a pair that cannot happen is a broken promise that changes nothing."""
    if expected is not None:
        assert expected == on(phase, letter)
        return
    before = {one: dict(row) for one, row in TABLE.items()}
    with pytest.raises(AssertionError, match=f"{letter.__name__} cannot arrive in phase {phase.value}"):
        on(phase, letter)
    assert before == {one: dict(row) for one, row in TABLE.items()}


def test_the_table_above_is_whole():
    """Every phase meets every message exactly once."""
    assert {(phase, letter) for phase in Phase for letter in get_args(Letter)} == {pair[:2] for pair in PAIRS}
    assert len(PAIRS) == len(Phase) * len(get_args(Letter))
    assert {*PHASES, Phase.PASSIVATED} == set(Phase)


def test_every_action_is_used():
    """No action stands in the code that no message asks for."""
    assert set(Do) == {do for row in TABLE.values() for do, _ in row.values()}


def reachable(begin: Phase) -> set[Phase]:
    """Every phase that messages can lead to."""
    found, todo = set[Phase](), [begin]
    while todo:
        phase = todo.pop()
        if phase not in found:
            found.add(phase)
            todo.extend(after for _, after in TABLE[phase].values())
    return found


def test_every_phase_can_be_reached():
    """From idle, where loading a log ends, messages lead to every phase but the loading itself."""
    assert (set(Phase) - {Phase.STARTING}, {Phase.STARTING}) == (reachable(Phase.IDLE), reachable(Phase.STARTING))


def test_a_stopped_session_stays_stopped():
    """Nothing leads out of the last phase, and a session that is stopping only ever ends."""
    assert ({Phase.STOPPED}, {Phase.STOPPING, Phase.STOPPED}) == (reachable(Phase.STOPPED), reachable(Phase.STOPPING))


def test_a_task_ends_its_phase_alone():
    """While a task runs or ends only its own report frees the slot."""
    taken = (Phase.RUNNING, Phase.ABORTING, Phase.STOPPING)
    leads_out = {
        letter.__name__ for phase in taken for letter, (_, after) in TABLE[phase].items() if after not in taken
    }
    assert {"TaskDone"} == leads_out


def test_a_turn_starts_only_in_an_empty_slot():
    """Starting and firing happen in idle alone, so no second turn can start beside one that ends."""
    starts = {phase for phase, row in TABLE.items() for do, _ in row.values() if do in (Do.START, Do.FIRE)}
    assert {Phase.IDLE} == starts


def test_the_table_cannot_be_changed():
    """The table is read only."""
    with pytest.raises(TypeError):
        TABLE[Phase.IDLE] = {}  # type: ignore[index]

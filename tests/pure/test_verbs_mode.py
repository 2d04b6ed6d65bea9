"""What `set_mode` writes and answers: every combination of fold, selection, open turn and wish."""

import pytest

from callboard.actors import verbs
from callboard.actors.eventlog import EventLog
from callboard.actors.events import Event, TurnStarted
from callboard.actors.facts import PlanModeRequested, PlanModeSet
from callboard.actors.messages import ModeAnswer, SetMode
from callboard.actors.mode import MODE

from .event_samples import log_of

ON, OFF, CHOOSE_ON, CHOOSE_OFF, DROP = (
    PlanModeSet(active=True),
    PlanModeSet(active=False),
    PlanModeRequested(active=True),
    PlanModeRequested(active=False),
    PlanModeRequested(None),
)

# What the fold says, what is pending, whether a turn is open, what is asked for; and what is written and answered.
MODES: tuple[tuple[bool, bool | None, bool, bool, Event | None, str], ...] = (
    (False, None, False, False, None, "noop"),
    (False, None, False, True, ON, "committed"),
    (False, None, True, False, None, "noop"),
    (False, None, True, True, CHOOSE_ON, "queued"),
    (False, True, False, False, DROP, "cancelled"),
    (False, True, False, True, None, "noop"),
    (False, True, True, False, CHOOSE_OFF, "cancelled"),
    (False, True, True, True, None, "noop"),
    (False, False, False, False, None, "noop"),
    (False, False, False, True, ON, "committed"),
    (False, False, True, False, None, "noop"),
    (False, False, True, True, CHOOSE_ON, "queued"),
    (True, None, False, False, OFF, "committed"),
    (True, None, False, True, None, "noop"),
    (True, None, True, False, CHOOSE_OFF, "queued"),
    (True, None, True, True, None, "noop"),
    (True, True, False, False, OFF, "committed"),
    (True, True, False, True, None, "noop"),
    (True, True, True, False, CHOOSE_OFF, "queued"),
    (True, True, True, True, None, "noop"),
    (True, False, False, False, None, "noop"),
    (True, False, False, True, DROP, "cancelled"),
    (True, False, True, False, None, "noop"),
    (True, False, True, True, CHOOSE_ON, "cancelled"),
)


def mode_log(*, active: bool, pending: bool | None, turn_open: bool) -> EventLog:
    """A log in this state of the mode."""
    events: list[Event] = [PlanModeSet(active)]
    if pending is not None:
        events.append(PlanModeRequested(pending))
    if turn_open:
        events.append(TurnStarted(1))
    return log_of(*events)


@pytest.mark.parametrize(("active", "pending", "turn_open", "asked", "event", "result"), MODES)
def test_set_mode(active, pending, turn_open, asked, event, result):
    """Each state of fold, selection and turn answers each wish as the table says."""
    log = mode_log(active=active, pending=pending, turn_open=turn_open)
    written = () if event is None else (event,)
    assert (written, ModeAnswer(result)) == verbs.set_mode(log, SetMode(asked))


def test_the_table_of_modes_is_whole():
    """Every combination stands in it once."""
    assert 2 * 3 * 2 * 2 == len(MODES) == len({row[:4] for row in MODES})


@pytest.mark.parametrize(("active", "pending", "turn_open", "asked"), [row[:4] for row in MODES])
def test_a_chosen_mode_is_what_is_shown(active, pending, turn_open, asked):
    """After any answer the mode that will count next is the one that was asked for, and asking again is a noop."""
    log = mode_log(active=active, pending=pending, turn_open=turn_open)
    events, _ = verbs.set_mode(log, SetMode(asked))
    if events:
        log.append(*events)
    mode = log[MODE]
    assert asked == (mode.active if mode.pending is None else mode.pending)
    assert ((), ModeAnswer("noop")) == verbs.set_mode(log, SetMode(asked))

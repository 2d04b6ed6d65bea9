"""Plan mode, the pure part: what the model is told when, what consent is, and what an approved plan brings."""

from typing import Any

import pytest

from callboard.actors.compaction import PLAN_MODE as STILL_PLANNING
from callboard.actors.errors import ToolError, UsageError
from callboard.actors.events import (
    Event,
    MessageQueued,
    MessagesClaimed,
    NoteAdded,
    QueueParked,
    SessionForked,
    StepStarted,
    TurnEnded,
)
from callboard.actors.facts import (
    PlanApproved,
    PlanHandedOver,
    PlanModeRequested,
    PlanModeSet,
    PlanProposed,
    QuestionAnswered,
)
from callboard.actors.fold import replay
from callboard.actors.mode import MODE, Mode
from callboard.plugins.handovers import (
    HAND_OVER,
    HANDOVERS,
    PROPOSALS_MAX,
    PROPOSED,
    HandOver,
    Proposal,
    carry_out,
    leave,
    message_id,
    next_ms,
    session_of,
)
from callboard.plugins.plan_mode import (
    FEEDBACK,
    KEEP_PLANNING,
    KNOWN,
    STATED,
    SWITCHED_OFF,
    SWITCHED_ON,
    check_plan,
    consents,
    not_approved,
    notice,
    plan_mode_plugin,
)

ON, OFF = PlanModeSet(active=True), PlanModeSet(active=False)
CHOOSE_ON, CHOOSE_OFF, DROP = PlanModeRequested(active=True), PlanModeRequested(active=False), PlanModeRequested(None)
EXIT = PlanModeRequested(active=False, narrate=False)
STEP, NOTED = StepStarted(1, 1), NoteAdded(STILL_PLANNING)

# What is on the log, whether the session was read anew, and what the next step says of the mode.
NOTICES: tuple[tuple[str, tuple[Event, ...], bool, str | None], ...] = (
    ("nothing ever", (), False, None),
    ("before the first request", (ON,), False, None),
    ("before the first request, opened again", (ON,), True, None),
    ("off before the first request", (ON, OFF), False, None),
    ("on at rest", (STEP, ON), False, SWITCHED_ON),
    ("on at rest, told", (STEP, ON, STEP), False, None),
    ("on in a turn", (STEP, CHOOSE_ON), False, SWITCHED_ON),
    ("on in a turn, told", (STEP, CHOOSE_ON, ON, STEP), False, None),
    ("on and off in one turn", (STEP, CHOOSE_ON, CHOOSE_OFF), False, None),
    ("on and off at rest", (STEP, ON, OFF), False, None),
    ("off in a turn", (ON, STEP, CHOOSE_OFF), False, SWITCHED_OFF),
    ("off and on in one turn", (ON, STEP, CHOOSE_OFF, CHOOSE_ON), False, None),
    ("off at rest", (ON, STEP, OFF), False, SWITCHED_OFF),
    ("a choice taken back", (STEP, CHOOSE_ON, DROP), False, None),
    ("the exit tool", (ON, STEP, EXIT), False, None),
    ("the exit tool, committed at rest", (ON, STEP, EXIT, OFF), False, None),
    ("the exit tool, told", (ON, STEP, EXIT, OFF, STEP), False, None),
    ("on again behind the exit tool", (ON, STEP, EXIT, OFF, STEP, ON), False, SWITCHED_ON),
    ("on again before anybody was told", (ON, STEP, EXIT, CHOOSE_ON), False, None),
    ("a new off after a silent choice was dropped", (ON, STEP, EXIT, DROP, OFF), False, SWITCHED_OFF),
    ("opened again, never switched", (STEP,), True, None),
    ("opened again in Plan mode", (ON, STEP), True, STATED[True]),
    ("opened again after Plan mode", (ON, STEP, OFF, STEP), True, STATED[False]),
    ("opened again with a switch", (ON, STEP, OFF), True, SWITCHED_OFF),
    ("compacted, and noted there", (ON, STEP, NOTED), True, None),
    ("compacted, noted, and a step since", (ON, STEP, NOTED, STEP), True, STATED[True]),
)


@pytest.mark.parametrize(("case", "events", "fresh", "expected"), NOTICES)
def test_notice(case, events, fresh, expected):
    """Each switch of the user's is told once, the exit tool's never, and the mode again where it was forgotten."""
    assert (case, expected) == (case, notice(replay(KNOWN, events), replay(MODE, events), fresh=fresh))


ANSWERS: tuple[tuple[str, tuple[str, ...], str | None, bool], ...] = (
    ("answered", ("Approve",), None, True),
    ("answered", ("Approve",), "but use tabs", False),
    ("answered", ("Approve",), "", False),
    ("answered", ("Keep planning",), None, False),
    ("answered", ("Approve", "Keep planning"), None, False),
    ("answered", ("Approve", "Approve"), None, False),
    ("answered", (), "Approve", False),
    ("answered", ("approve",), None, False),
    ("answered", (), None, False),
    ("dismissed", ("Approve",), None, False),
    ("cancelled", ("Approve",), None, False),
)


@pytest.mark.parametrize(("ending", "selected", "text", "expected"), ANSWERS)
def test_consent(ending, selected, text, expected):
    """Consent is the one choice without a word beside it, and nothing else."""
    assert expected is consents(QuestionAnswered("q", ending, selected, text))


def test_feedback_is_quoted():
    """What the user wrote is in what the model reads, to the letter; without a word it reads that there was none."""
    text = "use {tabs}\nand \u2028 not spaces"
    assert FEEDBACK.format(head=KEEP_PLANNING, text=text) == not_approved(QuestionAnswered("q", "answered", (), text))
    assert text in not_approved(QuestionAnswered("q", "answered", ("Approve",), text))
    assert not_approved(QuestionAnswered("q", "answered", ("Keep planning",))).startswith(KEEP_PLANNING)


@pytest.mark.parametrize("plan", ["# A", "\n\n  # A title\n- x", "#\tA", "# A" + "\n" * 100_000, "# \u00a0x", "# # #"])
def test_a_plan_begins_with_a_heading(plan):
    """Blanks before it do not count."""
    check_plan(plan)


@pytest.mark.parametrize(
    "plan", ["", " ", "A", "#A", "## A", "#", "#\nA", "# \n\nA", "- x\n# A", "\\# A", "#" * 100_000]
)
def test_a_plan_without_a_heading_is_refused(plan):
    """The error quotes how it begins, cut."""
    with pytest.raises(ToolError) as raised:
        check_plan(plan)
    assert repr(plan.strip()[:40]) in str(raised.value)
    assert len(str(raised.value)) < 200


# The mode, whether a turn is open, whether the model has to be told; and what ends Plan mode.
LEAVING: tuple[tuple[Mode, bool, bool, tuple[Event, ...]], ...] = (
    (Mode(active=True), True, False, (EXIT,)),
    (Mode(active=True), True, True, (CHOOSE_OFF,)),
    (Mode(active=True, pending=False), True, False, (EXIT,)),
    (Mode(active=False, pending=True), True, False, (EXIT,)),
    (Mode(active=False), True, False, ()),
    (Mode(active=True), False, False, (EXIT, OFF)),
    (Mode(active=True), False, True, (OFF,)),
    (Mode(active=True, pending=False), False, False, (EXIT, OFF)),
    (Mode(active=False, pending=True), False, True, (DROP,)),
    (Mode(active=False), False, True, ()),
)


@pytest.mark.parametrize(("mode", "turn_open", "narrate", "expected"), LEAVING)
def test_leave(mode, turn_open, narrate, expected):
    """Plan mode ends with the next step of an open turn, and at once without one; then it is off, or will be."""
    assert expected == leave(mode, turn_open=turn_open, narrate=narrate)
    assert not replay(MODE, expected, mode).target


def test_carry_out():
    """Here at once, here behind a compaction, or not here at all; one message carries a plan out, under its id."""
    message = MessageQueued("handover:q", HAND_OVER.format(plan="# {P}"), "plan")
    compaction = MessageQueued("handover:q:compact", "", "plan", task="compact")
    assert (PlanApproved("q", "keep", "# {P}"), message) == carry_out("q", "# {P}", "keep")
    assert (PlanApproved("q", "compact", "# {P}"), compaction, message) == carry_out("q", "# {P}", "compact")
    assert (PlanApproved("q", "clear", "# {P}"),) == carry_out("q", "# {P}", "clear")


def ended(reason: Any, error: str | None = None) -> TurnEnded:
    """The end of a turn."""
    return TurnEnded(1, reason, error=error)


CLEAR, COMPACT, KEEP = (PlanApproved("q", how, "# P") for how in ("clear", "compact", "keep"))
STARTED = MessagesClaimed(("handover:q:compact",), ())
DUE = HandOver("q", "# P", "due")

# What is on the log, and what waits then; only `due`, `refused` and `failed` ask for something to be done.
WAITING: tuple[tuple[tuple[Event, ...], tuple[HandOver, ...]], ...] = (
    ((KEEP,), ()),
    ((CLEAR,), (DUE,)),
    ((CLEAR, CLEAR), (DUE,)),
    ((CLEAR, ended("completed"), MessagesClaimed(("handover:q",))), (DUE,)),
    ((CLEAR, PlanHandedOver("q", "new")), ()),
    ((CLEAR, PlanHandedOver("other", "new")), (DUE,)),
    ((CLEAR, PlanHandedOver("q", "")), (HandOver("q", "# P", "refused"),)),
    ((CLEAR, PlanHandedOver("q", ""), MessageQueued(message_id("q"), "x", "plan")), ()),
    ((COMPACT,), (HandOver("q", "", "queued"),)),
    ((COMPACT, ended("completed", "no")), (HandOver("q", "", "queued"),)),
    ((COMPACT, STARTED), (HandOver("q", "", "compacting"),)),
    ((COMPACT, STARTED, ended("completed")), ()),
    ((COMPACT, STARTED, ended("aborted")), ()),
    ((COMPACT, STARTED, ended("completed", "no"), QueueParked(parked=True)), (HandOver("q", "", "failed"),)),
    ((COMPACT, STARTED, ended("completed", "no"), QueueParked(parked=False)), ()),
    ((COMPACT, MessagesClaimed(("handover:q",))), ()),
    ((CLEAR, COMPACT, SessionForked("s", 9)), ()),
)


@pytest.mark.parametrize(("events", "expected"), WAITING)
def test_handovers(events, expected):
    """A plan waits until its session is there, or its compaction is over."""
    assert expected == replay(HANDOVERS, events)
    asks = any(one.state in ("due", "refused", "failed") for one in expected)
    assert (0 if asks else None) == next_ms(expected)


def test_the_last_proposals_are_known():
    """A later plan of the same turn takes the place of the earlier one; approved, it says how; old ones are let go."""
    events = [PlanProposed("1-plan", "a"), PlanProposed("2-plan", "b"), PlanProposed("1-plan", "c")]
    expected = (Proposal("2-plan", "b"), Proposal("1-plan", "c"))
    assert expected == replay(PROPOSED, events)
    taken = (Proposal("2-plan", "b", "clear"), Proposal("1-plan", "c"))
    assert taken == replay(PROPOSED, [*events, PlanApproved("2-plan", "clear", "b"), PlanApproved("9", "keep", "x")])
    forked = [*events, PlanApproved("2-plan", "clear", "b"), SessionForked("s", 9)]
    assert expected == replay(PROPOSED, forked)
    many = [PlanProposed(f"{n}-plan", "x") for n in range(100)]
    assert [f"{n}-plan" for n in range(100 - PROPOSALS_MAX, 100)] == [one.id for one in replay(PROPOSED, many)]


def test_a_plan_has_one_session():
    """The id is always the same, fit to be one whatever the plan is called, and another for another plan."""
    ids = {session_of(source, plan) for source in ("a", "b", "x" * 200) for plan in ("1.c.plan-review", "\u2028" * 500)}
    assert 6 == len(ids)
    assert session_of("a", "1.c.plan-review") in ids
    assert all(id_.isprintable() and len(id_) < 40 for id_ in ids)


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"section": ""}, "section"),
    ({"section": " \n"}, "section"),
    ({"section": 1}, "section"),
    ({"gate": "firm"}, "gate"),
    ({"gate": True}, "gate"),
    ({"execution": "later"}, "execution"),
    ({"effort": 3}, "effort"),
    ({"effort": "x" * 1000}, "effort"),
)


@pytest.mark.parametrize(("settings", "named"), WRONG)
def test_wrong_settings_are_refused(settings, named):
    """In one sentence that names the setting and quotes the value, cut."""
    with pytest.raises(UsageError, match=f"^plan mode: {named} must be .*got ") as raised:
        plan_mode_plugin(**settings)
    assert len(str(raised.value)) < 250

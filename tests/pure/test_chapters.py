"""What a story says of Plan mode, questions, approvals, reminders and goals, line by line."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from callboard.actors.envelope import Envelope
from callboard.actors.events import Event, MessageQueued, ToolCalled, ToolReturned, TurnEnded, TurnStarted
from callboard.actors.facts import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalPolicySet,
    Goal,
    GoalChanged,
    Option,
    PlanApproved,
    PlanHandedOver,
    PlanModeRequested,
    PlanModeSet,
    PlanProposed,
    PlanStep,
    PlanUpdated,
    QuestionAnswered,
    QuestionAsked,
    Reminder,
    ReminderDeleted,
    ReminderFired,
    ReminderSet,
)
from callboard.plugins.plan_mode import DISMISSED, KEEP_PLANNING
from callboard.runtime.clock import local_text
from callboard.runtime.doors.chapters import CHAPTERS, KEPT_MAX
from callboard.runtime.doors.story import Story
from callboard.runtime.doors.wording import call_text

from .event_samples import events_of

QUESTION = QuestionAsked(
    *("q", "c", 1, "ask", "Paper", "Which paper?"),
    options=(Option("matte", "no glare"), Option("glossy")),
    detail="It is for the posters.",
)
GOAL = Goal("goal-1", 1, "ship it", "active", 256)
DAILY = Reminder(
    "schedule-2", "daily", "water the plants", "09:00", 86_400_000, 1_000, zone="Europe/Berlin", title="tea"
)
DUE = local_text(86_400_000)


def told(*events: Event, width: int = 100, session: str = "r") -> list[str]:
    """The lines of a fresh story for these events."""
    story = Story("r", lambda: width, colour=False, starts=False)
    return [line.plain for n, e in enumerate(events) for line in story.take(Envelope(session, n, 0, 1, e))]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([PlanModeRequested(active=True)], ["plan mode will be on from the next step"]),
        ([PlanModeRequested(active=False)], ["plan mode will be off from the next step"]),
        ([PlanModeRequested(active=False, narrate=False)], []),
        ([PlanModeRequested(None)], ["plan mode stays as it is"]),
        ([PlanModeSet(active=True), PlanModeSet(active=False)], ["plan mode is on", "plan mode is off"]),
        (
            [PlanProposed("3-plan", "# Posters\n\n- buy paper\n- print")],
            ["• Proposed plan  3-plan", "  # Posters", "  ", "  - buy paper", "  - print"],
        ),
        ([PlanApproved("q", "keep", "# P")], ["the plan is approved: it is carried out in this session"]),
        (
            [PlanApproved("q", "compact", "# P")],
            ["the plan is approved: it is carried out in this session, after a compaction"],
        ),
        (
            [PlanApproved("q", "clear", "# P"), PlanHandedOver("q", "s2")],
            ["the plan is approved: it is carried out in a new session", "the plan was handed to session s2"],
        ),
        (
            [QUESTION],
            ["? Paper: Which paper?", "  │ It is for the posters.", "  1. matte - no glare", "  2. glossy"],
        ),
        ([QuestionAsked("q", "c", 1, "ask", "", "Go?", ())], ["? Go?"]),
        ([QuestionAnswered("q", "answered", ("matte",))], ["› matte"]),
        ([QuestionAnswered("q", "answered", ("matte",), "A3\nplease")], ["› matte: A3", "  please"]),
        ([QuestionAnswered("q", "answered", (), "linen")], ["› linen"]),
        ([QuestionAnswered("q", "dismissed")], ["the question was dismissed"]),
        ([QuestionAnswered("q", "cancelled")], ["the question was taken back: nobody waits for it any more"]),
        (
            [ApprovalAsked("a", "c", 1, "shell", {"command": "rm -r build"}, "k"), ApprovalDecided("a", "allow_once")],
            ["? May this call of shell run?", "  $ rm -r build", "allowed, this once  $ rm -r build"],
        ),
        (
            [
                ApprovalAsked("a", "c", 1, "mail", {"to": "x", "text": "y"}, "k"),
                ApprovalDecided("a", "deny", "not yet"),
            ],
            [
                "? May this call of mail run?",
                '  {"to":"x","text":"y"}',
                'denied  mail {"to":"x","text":"y"}',
                "› not yet",
            ],
        ),
        (
            [
                ApprovalDecided("a", "allow_session"),
                ApprovalDecided("b", "cancelled"),
                ApprovalDecided("c", "unavailable"),
            ],
            [
                "allowed for the rest of this session",
                "not decided: nobody waits for it any more",
                "refused: nobody is there to allow it",
            ],
        ),
        ([ApprovalPolicySet("never"), ApprovalPolicySet(None)], ["approvals: never", "approvals: as configured"]),
        (
            [ReminderSet(DAILY)],
            [f"reminder schedule-2, daily 09:00 Europe/Berlin, next at {DUE}: tea"],
        ),
        (
            [ReminderSet(Reminder("schedule-1", "after", "look", "60", 86_400_000, 1_000))],
            [f"reminder schedule-1, once at {DUE}: look"],
        ),
        (
            [ReminderSet(Reminder("schedule-1", "every", "look", "300", 86_400_000, 1_000))],
            [f"reminder schedule-1, every 300 s from {DUE}: look"],
        ),
        ([ReminderDeleted("schedule-2")], ["reminder schedule-2 was deleted"]),
        (
            [
                ReminderSet(DAILY),
                ReminderFired("schedule-2", 1_000, 5_000, 2_000),
                ReminderFired("schedule-2", 5_000, None),
            ],
            [
                f"reminder schedule-2, daily 09:00 Europe/Berlin, next at {DUE}: tea",
                "reminder schedule-2 is due: water the plants",
                "reminder schedule-2 is due: water the plants",
            ],
        ),
        (
            [ReminderFired("schedule-7", 0, None, 90_000), ReminderFired("schedule-7", 0, None, 36_000_000)],
            ["reminder schedule-7 is due, 90.0 s late", "reminder schedule-7 is due, 10 h late"],
        ),
        ([GoalChanged("create", GOAL), GoalChanged("edit", GOAL)], ["goal: ship it", "goal changed: ship it"]),
        ([GoalChanged("pause", GOAL), GoalChanged("resume", GOAL)], ["the goal is paused", "the goal goes on"]),
        ([GoalChanged("complete", GOAL), GoalChanged("clear", GOAL)], ["the goal is reached", "the goal was given up"]),
        (
            [GoalChanged("block", Goal("goal-1", 2, "ship it", "blocked", 256, "round_limit"))],
            ["the goal is blocked: round_limit"],
        ),
        ([GoalChanged("block", GOAL)], ["the goal is blocked: no reason was given"]),
    ],
)
def test_each_event_reads_like_this(events, expected):
    """Each event of these plugins is told in words of its own."""
    assert expected == told(*events)


def test_every_chapter_has_its_sample():
    """No event that is told is left out of the table above."""
    rows = test_each_event_reads_like_this.pytestmark[0].args[1]
    assert set(CHAPTERS) == {type(event) for events, _ in rows for event in events}


def queued(id_: str, text: str, source: str) -> MessageQueued:
    """A message as a plugin queues it."""
    return MessageQueued(id_, text, source)


def test_what_plugins_queue_is_not_told_twice():
    """A reminder and an approved plan are told by their events alone, a round by its number."""
    assert [] == told(queued("schedule:schedule-1:5", "[SCHEDULE REMINDER]\n...", "schedule"))
    assert ["round 3 of the goal"] == told(queued("goal:goal-1:1:3", "go on", "goal"))
    assert ["goal: ship it", "round 3 of 256 of the goal"] == told(
        GoalChanged("create", GOAL), queued("goal:goal-1:1:3", "go on", "goal")
    )
    plan = queued("handover:q", "Carry out:\n# P\n- one", "plan")
    assert ["the plan is approved: it is carried out in this session"] == told(PlanApproved("q", "keep", "# P"), plan)


def test_what_a_plan_needs_yet_is_told_after_an_approval():
    """A later plan that was not approved is no repeat of the one that was: what the user said to it is shown."""
    later = queued("answer:2", "Keep planning.", "plan")
    assert "› (plan) Keep planning." == told(PlanApproved("q", "keep", "# P"), later)[-1]


@pytest.mark.parametrize("text", [f"{KEEP_PLANNING} They said: more", DISMISSED])
def test_planning_that_goes_on_is_no_failure(text):
    """A plan that the user did not approve is not told as a call that failed; any other flaw is."""
    returned = ToolReturned("c", "failed", "failed", text, name="exit_plan_mode")
    assert ["planning goes on"] == told(returned)
    flawed = told(ToolReturned("c", "failed", "failed", "the plan must begin with a heading", name="exit_plan_mode"))
    assert ["• exit_plan_mode  failed, 0.00 s", "  the plan must begin with a heading"] == flawed


def test_a_turn_that_was_announced_starts_without_a_word():
    """A round or a reminder says that a turn starts by itself; the next one, which nothing announced, says so."""
    turns = [TurnStarted(number, start="automatic") for number in (1, 2, 3)]
    fired = (queued("schedule:schedule-1:5", "[SCHEDULE REMINDER]", "schedule"), ReminderFired("schedule-1", 5, None))
    lines = told(queued("goal:goal-1:1:1", "go on", "goal"), turns[0], *fired, turns[1], turns[2])
    assert ["round 1 of the goal", "reminder schedule-1 is due", "turn 3 starts by itself"] == lines


def test_a_plan_from_another_session_is_told_whole():
    """Where the approval was not seen the plan is shown as it came."""
    assert ["› (plan) Carry out:", "         # P"] == told(queued("handover:q", "Carry out:\n# P", "plan"))


def test_a_door_that_asks_itself_is_told_the_ends():
    """Where a prompt shows what is asked, the story tells only what became of it, with the call it was about."""
    story = Story("r", lambda: 80, colour=False, starts=False, asks=False)
    approval = ApprovalAsked("a", "c", 1, "shell", {"command": "ls"}, "k")
    events = (QUESTION, QuestionAnswered("q", "answered", ("matte",)), approval, ApprovalDecided("a", "allow_once"))
    lines = [line.plain for n, e in enumerate(events) for line in story.take(Envelope("r", n, 0, 1, e))]
    assert ["› matte", "allowed, this once  $ ls"] == lines


def test_a_cleared_goal_is_forgotten():
    """After a goal is cleared a round of another one does not show its bound."""
    events = (GoalChanged("create", GOAL), GoalChanged("clear", GOAL), queued("goal:goal-2:1:1", "go on", "goal"))
    assert ["goal: ship it", "the goal was given up", "round 1 of the goal"] == told(*events)


def test_lines_of_a_subagent_carry_its_name():
    """What a subagent asks stands behind its name, as all it does."""
    assert ["kid │ plan mode is on"] == told(PlanModeSet(active=True), session="kid")


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, []),
        (1, ["1 step of the plan is still open"]),
        (2, ["2 steps of the plan are still open"]),
        (12_000, ["12,000 steps of the plan are still open"]),
    ],
)
def test_the_end_of_a_turn_says_what_is_open(count, expected):
    """Open steps are told once, in one line, at the end of the turn; with none nothing is said."""
    assert expected == told(TurnEnded(1, "completed", open_steps=count))


def test_open_steps_stand_below_the_receipts():
    """A turn that was cut off says how, and then what is open."""
    lines = told(TurnEnded(1, "aborted", "interrupted", open_steps=2))
    assert ["turn 1 aborted (interrupted)", "2 steps of the plan are still open"] == lines


def test_a_later_plan_is_a_new_cell():
    """Each snapshot is drawn whole where it comes; nothing is taken from the one before."""
    first = PlanUpdated("why", (PlanStep("a", "in_progress"), PlanStep("b", "pending")))
    assert [
        *("• Plan (0/2 done)", "  why", "  □ a (in progress)", "  □ b"),
        *("• Plan (1/1 done)", "  ✔ a"),
        *("• Plan (0/0 done)", "  (no steps provided)"),
    ] == told(first, PlanUpdated(None, (PlanStep("a", "completed"),)), PlanUpdated(None, ()))


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("exit_plan_mode", {"plan": "# P\n- one"}, "exit_plan_mode"),
        ("request_user_input", {"questions": [{}, {}]}, "request_user_input 2"),
        ("request_user_input", {"questions": "none"}, "request_user_input"),
        ("schedule_create", {"prompt": "look\nup", "after_seconds": 5}, "schedule_create look up"),
        ("schedule_create", {"prompt": 7}, "schedule_create"),
        ("create_goal", {"objective": "ship\x1b[2J it"}, "create_goal ship\\x1b[2J it"),
        ("update_goal", {"action": "complete", "objective": ""}, "update_goal complete"),
    ],
)
def test_their_calls_in_one_line(name, arguments, expected):
    """A call of one of these tools says what it is about, whatever it was given."""
    assert expected == call_text(name, arguments)


def test_their_completed_calls_say_no_more():
    """What such a call wrote is told, so its completed end is not; one that failed is."""
    asked = ToolCalled("c", "create_goal", {"objective": "ship it"})
    assert [] == told(asked, ToolReturned("c", "completed", "completed", "{}", 0.1, "create_goal"))
    assert ["• create_goal ship it  failed, 0.10 s", "  goal exists"] == told(
        asked, ToolReturned("c", "failed", "failed", "goal exists", 0.1, "create_goal")
    )


def test_a_hidden_tail_of_arguments_is_counted():
    """Of arguments too long to show, what is left out is said: nobody approves what was not mentioned."""
    lines = told(ApprovalAsked("a", "c", 1, "shell", {"command": "x " * 5_000 + "; rm -r /"}, "k"))
    assert "  … and 6,011 more characters" == lines[-1]


def test_what_is_remembered_is_bounded():
    """Of very many reminders the oldest texts are forgotten; those still tell that they are due."""
    many = [
        ReminderSet(Reminder(f"schedule-{n}", "after", f"look {n}", "60", 86_400_000, 0)) for n in range(KEPT_MAX + 1)
    ]
    fired = [ReminderFired("schedule-0", 0, None), ReminderFired(f"schedule-{KEPT_MAX}", 0, None)]
    assert ["reminder schedule-0 is due", f"reminder schedule-{KEPT_MAX} is due: look {KEPT_MAX}"] == told(
        *many, *fired
    )[-2:]


SOME = st.sampled_from(sorted(CHAPTERS, key=lambda kind: kind.__name__)).flatmap(events_of)


@given(st.lists(SOME, max_size=4), st.integers(24, 100))
def test_no_text_moves_a_cursor_and_every_line_fits(events, width):
    """Whatever these events hold, their lines keep to the width and hold nothing that a terminal obeys."""
    for line in told(*events, width=width):
        assert cell_len(line) <= width
        assert not [char for char in line if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")]


@given(SOME)
def test_colours_change_no_text(event):
    """With colours the same words are said, in the same lines."""
    coloured = Story("r", lambda: 60, colour=True, starts=False).take(Envelope("r", 0, 0, 1, event))
    assert [line.plain for line in coloured] == told(event, width=60)

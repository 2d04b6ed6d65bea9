"""What the events of plugins count: plan mode, questions, approvals, reminders, goals."""

from collections.abc import Callable
from typing import TypeAlias

from callboard.actors.events import Event, MessagesClaimed, TurnEnded
from callboard.actors.facts import (
    ApprovalDecided,
    GoalChanged,
    PlanModeSet,
    QuestionAnswered,
    ReminderDeleted,
    ReminderFired,
    ReminderSet,
)
from callboard.metrics import labels as of
from callboard.metrics.families import Counting, Shelf, TurnId

# Upper bounds in seconds; people read a plan for minutes, and a reminder can be days late after a machine was off.
PLAN_MODE_BUCKETS_S = (10.0, 60.0, 300.0, 1800.0, 7200.0, 86_400.0)
REMINDER_BUCKETS_S = (0.1, 1.0, 5.0, 60.0, 600.0, 3600.0, 86_400.0)
ROUND_PREFIX = "goal:"  # of the ids of messages that are rounds; no sender may choose such an id
SESSIONS_MAX = 1_000  # that are remembered at once for one metric; then the oldest is forgotten

Clock: TypeAlias = Callable[[], float]


def questions(shelf: Shelf) -> dict[type[Event], Counting]:
    """What became of what the user was asked."""
    answers = shelf.counter("questions_total", "Questions to the user settled, by how.", of.ANSWER)
    approvals = shelf.counter("approvals_total", "Requests for approval settled, by the decision.", of.APPROVAL)

    def question_answered(event: QuestionAnswered, _: TurnId) -> None:
        answers[event.ending,].inc()

    def approval_decided(event: ApprovalDecided, _: TurnId) -> None:
        approvals[event.decision,].inc()

    return {QuestionAnswered: question_answered, ApprovalDecided: approval_decided}


def reminders(shelf: Shelf) -> dict[type[Event], Counting]:
    """What became of reminders; one that recurs fires many times."""
    count = shelf.counter("reminders_total", "Reminders set, deleted and fired.", of.REMINDER)
    lag = shelf.histogram("reminder_lag_seconds", "How late reminders fired.", REMINDER_BUCKETS_S)[()]

    def reminder_fired(event: ReminderFired, turn: TurnId) -> None:
        count["fired",].inc()
        if event.fired_ms:  # 0: a log that does not say when
            lag.observe(max(0, event.fired_ms - event.at_ms) / 1000, turn)

    return {
        ReminderSet: lambda _, __: count["set",].inc(),
        ReminderDeleted: lambda _, __: count["deleted",].inc(),
        ReminderFired: reminder_fired,
    }


def goals(shelf: Shelf) -> dict[type[Event], Counting]:
    """What became of goals and of their rounds: a turn that claimed a round is one, until its end."""
    changes = shelf.counter("goal_changes_total", "Goals created, changed and ended.", of.GOAL_OPERATION)
    rounds = shelf.counter("goal_rounds_total", "Turns that were rounds of a goal, by how they ended.", of.ROUND)
    running = Remembered()

    def goal_changed(event: GoalChanged, _: TurnId) -> None:
        changes[event.operation,].inc()

    def messages_claimed(event: MessagesClaimed, turn: TurnId) -> None:
        if any(id_.startswith(ROUND_PREFIX) for id_ in event.ids):
            running.keep(turn[0], 0.0)

    def turn_ended(event: TurnEnded, turn: TurnId) -> None:
        if running.take(turn[0]) is not None:
            rounds[_result(event),].inc()

    return {GoalChanged: goal_changed, MessagesClaimed: messages_claimed, TurnEnded: turn_ended}


def plan_mode(shelf: Shelf, now_s: Clock | None) -> dict[type[Event], Counting]:
    """How long sessions were in Plan mode; what began before this program, or before many others, is left out."""
    seconds = shelf.histogram(
        "plan_mode_seconds", "Time in Plan mode, of what began and ended in this program.", PLAN_MODE_BUCKETS_S
    )[()]
    since_s = Remembered()

    def plan_mode_set(event: PlanModeSet, turn: TurnId) -> None:
        if now_s is None:
            return
        if event.active:
            since_s.keep(turn[0], now_s())
        elif (began_s := since_s.take(turn[0])) is not None:
            seconds.observe(max(0.0, now_s() - began_s), turn)

    return {PlanModeSet: plan_mode_set}


class Remembered:
    """One number for each of the last `SESSIONS_MAX` sessions that something began in."""

    def __init__(self) -> None:
        self._kept: dict[str, float] = {}

    def keep(self, session: str, value: float) -> None:
        """Remember it, unless something has begun there already; the oldest may be forgotten for it."""
        if session not in self._kept and len(self._kept) >= SESSIONS_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept.setdefault(session, value)

    def take(self, session: str) -> float | None:
        """What was remembered, None without; it is forgotten."""
        return self._kept.pop(session, None) if self._kept else None


def _result(ended: TurnEnded) -> str:
    if ended.reason == "aborted":
        return ended.cause or ended.reason
    return "failed" if ended.reason == "completed" and ended.error is not None else ended.reason

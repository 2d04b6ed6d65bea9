"""chapters: what Plan mode, questions, approvals, reminders and goals add to a story, as lines; harmless throughout."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec
from rich.text import Text

from callboard.actors.events import Event, MessageQueued
from callboard.actors.facts import (
    AnswerEnding,
    ApprovalAsked,
    ApprovalDecided,
    ApprovalPolicySet,
    Decision,
    Execution,
    Goal,
    GoalChanged,
    GoalOperation,
    PlanApproved,
    PlanHandedOver,
    PlanModeRequested,
    PlanModeSet,
    PlanProposed,
    QuestionAnswered,
    QuestionAsked,
    Reminder,
    ReminderDeleted,
    ReminderFired,
    ReminderSet,
)
from callboard.plugins.handovers import message_id
from callboard.runtime.clock import local_text
from callboard.runtime.doors.board import CUT, TEXT_MAX_CHARS
from callboard.runtime.doors.wording import call_text, fit, one_line, paragraphs, seconds_text

KEPT_MAX = 1_000  # of what is remembered to tell later events by; then the oldest is forgotten
LATE_MIN_S = 60.0  # from here on a reminder says how late it is
HOURS_FROM_S = 7_200.0
HAND_OVER = message_id("")
BAR = "  │ "  # beside what a question is about, which may have lists of its own

EXECUTIONS: Mapping[Execution, str] = MappingProxyType(
    {
        "keep": "it is carried out in this session",
        "compact": "it is carried out in this session, after a compaction",
        "clear": "it is carried out in a new session",
    }
)
UNANSWERED: Mapping[AnswerEnding, str] = MappingProxyType(
    {
        "dismissed": "the question was dismissed",
        "cancelled": "the question was taken back: nobody waits for it any more",
    }
)
DECISIONS: Mapping[Decision, tuple[str, str]] = MappingProxyType(
    {
        "allow_once": ("allowed, this once", "green"),
        "allow_session": ("allowed for the rest of this session", "green"),
        "deny": ("denied", "red"),
        "cancelled": ("not decided: nobody waits for it any more", "yellow"),
        "unavailable": ("refused: nobody is there to allow it", "red"),
    }
)
GOALS: Mapping[GoalOperation, tuple[str, str]] = MappingProxyType(
    {
        "create": ("goal: {objective}", "cyan"),
        "edit": ("goal changed: {objective}", "cyan"),
        "pause": ("the goal is paused", "yellow"),
        "resume": ("the goal goes on", "cyan"),
        "complete": ("the goal is reached", "green"),
        "block": ("the goal is blocked: {reason}", "yellow"),
        "clear": ("the goal was given up", "dim"),
    }
)

T = TypeVar("T")


class Chapters:
    """Told in order with the rest of a story: what was asked, set and approved is known when its end comes.

    Without `asks` questions and approvals are told by their ends alone, for a door that puts them to people itself.
    """

    def __init__(self, *, asks: bool = True) -> None:
        self._asks = asks
        self._calls: _Kept[str] = _Kept()  # that wait for an approval
        self._reminders: _Kept[Reminder] = _Kept()
        self._goals: _Kept[Goal] = _Kept()
        self._approved: _Kept[str] = _Kept()  # sessions whose plan was shown when it was approved

    def queued(self, queued: MessageQueued, session: str, room: int) -> Iterator[Text]:
        """Input that a plugin queued for the model; what else is told of it is not told twice."""
        if queued.source == "goal":
            goal = self._goals.get(session, "")
            most = "" if goal is None else f" of {goal.rounds_max:,}"
            number = queued.id.rpartition(":")[2]
            yield fit(Text(f"round {one_line(number)}{most} of the goal", "cyan"), room)
        elif queued.source == "plan":
            shown = queued.id.startswith(HAND_OVER) and self._approved.get(session, "") is not None
            yield from () if shown else paragraphs(queued.text, room, "dim", "› (plan) ")

    def requested(self, requested: PlanModeRequested, session: str, room: int) -> Iterator[Text]:
        """A mode was chosen for the next step, or that was taken back; what comes with a plan is told by the plan."""
        if requested.active is not None and not requested.narrate:
            return
        if requested.active is None:
            yield fit(Text("plan mode stays as it is", "dim"), room)
        else:
            yield fit(Text(f"plan mode will be {'on' if requested.active else 'off'} from the next step", "cyan"), room)

    def mode(self, mode: PlanModeSet, session: str, room: int) -> Iterator[Text]:
        """Plan mode began or ended."""
        yield fit(Text(f"plan mode is {'on' if mode.active else 'off'}", "cyan"), room)

    def proposed(self, proposed: PlanProposed, session: str, room: int) -> Iterator[Text]:
        """A plan that the model wrote, as a block of its own."""
        yield fit(Text.assemble(("• ", "cyan"), ("Proposed plan", "bold"), (f"  {one_line(proposed.id)}", "dim")), room)
        yield from paragraphs(proposed.text, room, "", "  ")

    def approved(self, approved: PlanApproved, session: str, room: int) -> Iterator[Text]:
        """The user said yes; the plan itself was shown before."""
        self._approved.put(session, "", approved.id)
        yield from paragraphs(f"the plan is approved: {EXECUTIONS[approved.execution]}", room, "green", "")

    def handed_over(self, over: PlanHandedOver, session: str, room: int) -> Iterator[Text]:
        """Another session carries the plan out."""
        yield fit(Text(f"the plan was handed to session {one_line(over.session)}", "green"), room)

    def asked(self, asked: QuestionAsked, session: str, room: int) -> Iterator[Text]:
        """A question with what it is about and its choices."""
        if self._asks:
            yield from question_lines(asked, room)

    def answered(self, answered: QuestionAnswered, session: str, room: int) -> Iterator[Text]:
        """What the user answered, or why nothing."""
        if answered.ending != "answered":
            yield fit(Text(UNANSWERED[answered.ending], "dim"), room)
            return
        said = [", ".join(answered.selected)] if answered.selected else []
        said += [answered.text] if answered.text is not None else []
        yield from paragraphs(": ".join(said), room, "bold", "› ")

    def approval_asked(self, asked: ApprovalAsked, session: str, room: int) -> Iterator[Text]:
        """A call that waits for the user."""
        self._calls.put(session, asked.id, one_line(call_text(asked.tool, asked.arguments)))
        if self._asks:
            yield from approval_lines(asked, room)

    def decided(self, decided: ApprovalDecided, session: str, room: int) -> Iterator[Text]:
        """What the user decided, with what was said to a denial."""
        what = self._calls.take(session, decided.id)
        said, style = DECISIONS[decided.decision]
        yield fit(Text.assemble((said, style), "" if what is None else f"  {what}"), room)
        if decided.feedback:
            yield from paragraphs(decided.feedback, room, "bold", "› ")

    def policy(self, policy: ApprovalPolicySet, session: str, room: int) -> Iterator[Text]:
        """Which calls need an approval from here on."""
        yield fit(Text(f"approvals: {policy.policy or 'as configured'}", "cyan"), room)

    def reminder_set(self, made: ReminderSet, session: str, room: int) -> Iterator[Text]:
        """A reminder, when it is due and what it will say."""
        reminder = made.reminder
        self._reminders.put(session, reminder.id, reminder)
        head = f"reminder {one_line(reminder.id)}, {_when(reminder)}: "
        yield from paragraphs(head + one_line(reminder.title or reminder.prompt), room, "cyan", "")

    def reminder_deleted(self, deleted: ReminderDeleted, session: str, room: int) -> Iterator[Text]:
        """A reminder that will not come."""
        self._reminders.take(session, deleted.id)
        yield fit(Text(f"reminder {one_line(deleted.id)} was deleted", "dim"), room)

    def fired(self, fired: ReminderFired, session: str, room: int) -> Iterator[Text]:
        """A reminder whose time has come: what it says to the model, and how late it is where that counts."""
        known = self._reminders.get(session, fired.id)
        if fired.next_ms is None:
            self._reminders.take(session, fired.id)
        said = "" if known is None else f": {one_line(known.prompt)}"
        yield from paragraphs(f"reminder {one_line(fired.id)} is due{_late(fired)}{said}", room, "bold cyan", "")

    def goal(self, changed: GoalChanged, session: str, room: int) -> Iterator[Text]:
        """What became of the goal."""
        goal = changed.goal
        self._goals.take(session, "")
        if changed.operation != "clear":
            self._goals.put(session, "", goal)
        said, style = GOALS[changed.operation]
        reason = goal.blocked_reason or "no reason was given"
        yield from paragraphs(said.format(objective=goal.objective, reason=reason), room, style, "")


CHAPTERS: Mapping[type[Event], Callable[..., Iterator[Text]]] = MappingProxyType(
    {
        PlanModeRequested: Chapters.requested,
        PlanModeSet: Chapters.mode,
        PlanProposed: Chapters.proposed,
        PlanApproved: Chapters.approved,
        PlanHandedOver: Chapters.handed_over,
        QuestionAsked: Chapters.asked,
        QuestionAnswered: Chapters.answered,
        ApprovalAsked: Chapters.approval_asked,
        ApprovalDecided: Chapters.decided,
        ApprovalPolicySet: Chapters.policy,
        ReminderSet: Chapters.reminder_set,
        ReminderDeleted: Chapters.reminder_deleted,
        ReminderFired: Chapters.fired,
        GoalChanged: Chapters.goal,
    }
)


def question_lines(asked: QuestionAsked, room: int) -> Iterator[Text]:
    """A question: its text behind its header, what it is about, and its choices by number."""
    head = f"{one_line(asked.header)}: " if asked.header.strip() else ""
    yield from paragraphs(head + asked.question, room, "bold yellow", "? ")
    if asked.detail.strip():
        for line in paragraphs(asked.detail, max(1, room - len(BAR)), "", ""):
            yield Text.assemble((BAR, "dim"), line)
    for number, option in enumerate(asked.options, 1):
        about = f" - {one_line(option.description)}" if option.description.strip() else ""
        yield from paragraphs(one_line(option.label) + about, room, "yellow", f"  {number}. ")


def approval_lines(asked: ApprovalAsked, room: int) -> Iterator[Text]:
    """A call that waits for the user's approval, with its arguments; what is not shown of them is counted."""
    yield from paragraphs(f"May this call of {one_line(asked.tool)} run?", room, "bold yellow", "? ")
    text = _arguments(asked.arguments)
    yield from paragraphs(text[:TEXT_MAX_CHARS], room, "", "  ")
    if len(text) > TEXT_MAX_CHARS:
        yield fit(Text(f"  {CUT} and {len(text) - TEXT_MAX_CHARS:,} more characters", "bold red"), room)


def _arguments(arguments: Any) -> str:
    """What a call would do: a command as it would be run, else all arguments."""
    if isinstance(arguments, Mapping) and len(arguments) == 1 and isinstance(arguments.get("command"), str):
        return f"$ {arguments['command']}"
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments, enc_hook=str).decode()


def _when(reminder: Reminder) -> str:
    rule = one_line(f"{reminder.rule} {reminder.zone}".strip())
    match reminder.kind:
        case "after" | "at":
            return f"once at {local_text(reminder.due_ms)}"
        case "every":
            return f"every {rule} s from {local_text(reminder.due_ms)}"
    return f"{reminder.kind} {rule}, next at {local_text(reminder.due_ms)}"


def _late(fired: ReminderFired) -> str:
    late_s = (fired.fired_ms - fired.at_ms) / 1000 if fired.fired_ms else 0.0
    if late_s < LATE_MIN_S:
        return ""
    return f", {late_s / 3600:,.0f} h late" if late_s >= HOURS_FROM_S else f", {seconds_text(late_s)} late"


class _Kept(Generic[T]):
    """One value for each id of a session, of the last `KEPT_MAX` put in."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], T] = {}

    def put(self, session: str, id_: str, value: T) -> None:
        if (session, id_) not in self._values and len(self._values) >= KEPT_MAX:
            del self._values[next(iter(self._values))]
        self._values[session, id_] = value

    def get(self, session: str, id_: str) -> T | None:
        return self._values.get((session, id_))

    def take(self, session: str, id_: str) -> T | None:
        return self._values.pop((session, id_), None)

"""The events of the shipped plugins: plan, plan mode, todo, schedule, goal, ask, agents, tool search and reviews."""

from typing import Any, Literal, TypeAlias

from callboard.actors.events import Event, Usage, Value

Progress: TypeAlias = Literal["pending", "in_progress", "completed"]
ReviewEnding: TypeAlias = Literal["completed", "interrupted", "failed"]
Execution: TypeAlias = Literal["keep", "compact", "clear"]
AnswerEnding: TypeAlias = Literal["answered", "dismissed", "cancelled"]
Decision: TypeAlias = Literal["allow_once", "allow_session", "deny", "cancelled", "unavailable"]
ApprovalPolicy: TypeAlias = Literal["off", "ask", "never", "rules"]
GoalPhase: TypeAlias = Literal["active", "paused", "blocked", "complete"]
GoalOperation: TypeAlias = Literal["create", "edit", "pause", "resume", "complete", "block", "clear"]
ReminderKind: TypeAlias = Literal["after", "at", "every", "daily", "weekly", "cron"]
ChildStatus: TypeAlias = Literal["pending", "running", "interrupted", "completed", "failed", "stopped"]


class PlanStep(Value, frozen=True, forbid_unknown_fields=True, omit_defaults=False):
    """One step of a plan: what is to be done, and how far it is."""

    step: str
    status: Progress


class Todo(Value, frozen=True, forbid_unknown_fields=True, omit_defaults=False):
    """One item of the current turn's work."""

    content: str
    status: Progress


class PlanUpdated(Event, frozen=True):
    """The checklist of a longer job, whole; replaces the last one."""

    explanation: str | None
    plan: tuple[PlanStep, ...]


class PlanModeRequested(Event, frozen=True):
    """A mode was chosen while a turn runs (`active`), or the choice was taken back (None)."""

    active: bool | None
    narrate: bool = True


class PlanModeSet(Event, frozen=True):
    """Plan mode is on or off from here."""

    active: bool


class PlanProposed(Event, frozen=True):
    """The model wrote a plan in Plan mode, in a block of its own: `TURN-plan`, and its text."""

    id: str
    text: str


class PlanApproved(Event, frozen=True):
    """The user approved a plan: how it is carried out. `id` is that of the question, or of the proposal."""

    id: str
    execution: Execution
    plan: str


class PlanHandedOver(Event, frozen=True):
    """An approved plan is another session's to carry out: it was opened and has the plan as its first message."""

    id: str
    session: str


class Option(Value, frozen=True, forbid_unknown_fields=True, omit_defaults=False):
    """One of the choices of a question."""

    label: str
    description: str = ""


class QuestionAsked(Event, frozen=True):
    """The user is asked something, by the call `call` of turn `turn` for the plugin `by`; `detail` is shown with it.

    One of the options may be chosen, and free text is always possible.
    """

    id: str
    call: str
    turn: int
    by: str
    header: str
    question: str
    options: tuple[Option, ...]
    detail: str = ""


class QuestionAnswered(Event, frozen=True):
    """A question is settled: answered with a choice, a text or both; dismissed by the user; or cancelled by an end."""

    id: str
    ending: AnswerEnding
    selected: tuple[str, ...] = ()
    text: str | None = None


class ApprovalAsked(Event, frozen=True):
    """The user is asked whether a call may run; `key` says which call of which arguments, for a late grant."""

    id: str
    call: str
    turn: int
    tool: str
    arguments: Any
    key: str


class ApprovalDecided(Event, frozen=True):
    """The one end of a request for approval; `feedback` is what the user said with a denial."""

    id: str
    decision: Decision
    feedback: str | None = None


class ApprovalPolicySet(Event, frozen=True):
    """Which calls need an approval in this session, from here on; None: what the configuration says."""

    policy: ApprovalPolicy | None


class Reminder(Value, frozen=True, omit_defaults=False):
    """A stored reminder: what to say, when. `due_ms` is its next target, wall milliseconds UTC.

    `rule` is the rule's own text: seconds of `after` and `every`, an RFC 3339 time of `at`, `HH:MM` of `daily`,
    `DAYS HH:MM` of `weekly`, the five fields of `cron`. `zone` is an IANA zone where the rule is about local time.
    """

    id: str
    kind: ReminderKind
    prompt: str
    rule: str
    due_ms: int
    created_ms: int
    zone: str = ""
    title: str = ""


class ReminderSet(Event, frozen=True):
    """A reminder was created, by the call of this key (`SESSION/TURN/CALL`)."""

    reminder: Reminder
    key: str = ""


class ReminderDeleted(Event, frozen=True):
    """A reminder was deleted before its end, by the call of this key (`SESSION/TURN/CALL`)."""

    id: str
    key: str = ""


class ReminderFired(Event, frozen=True):
    """A reminder was queued as a message: for which occurrence, and when the next one is due (None: never).

    `at_ms` is the occurrence; `fired_ms` the wall time of the decision.
    """

    id: str
    at_ms: int
    next_ms: int | None
    fired_ms: int = 0


class Goal(Value, frozen=True, omit_defaults=False):
    """A goal, whole; `revision` grows with every change. Budgets count from its creation, None: without."""

    id: str
    revision: int
    objective: str
    phase: GoalPhase
    rounds_max: int
    blocked_reason: str | None = None
    token_budget: int | None = None
    seconds_budget: float | None = None


class GoalChanged(Event, frozen=True):
    """A goal was created, changed or cleared: its whole new value; of a cleared one the last, one revision later."""

    operation: GoalOperation
    goal: Goal
    at_ms: int = 0


class TodosWritten(Event, frozen=True):
    """The current turn's list, whole; replaces the last one."""

    todos: tuple[Todo, ...]


class ChildSpawned(Event, frozen=True):
    """A subagent was started: its session id, its path in the tree, its task, whether its ends are told as mail.

    The call `call` of turn `turn` waits for its first turn and answers with that. A `detached` one works on when its
    parent is interrupted. `role` as the configuration names it.
    """

    child: str
    path: str
    task: str
    mail: bool = True
    call: str = ""
    turn: int = 0
    detached: bool = False
    role: str = ""


class ChildEnded(Event, frozen=True):
    """A turn of a subagent ended: exactly one for each child and turn, never before the end.

    `used` is what it used so far, in all its turns, with all below it.
    """

    child: str
    status: ChildStatus
    text: str
    turn: int = 1
    used: Usage = Usage()


class ChildReleased(Event, frozen=True):
    """The call that waited for a subagent waits no longer: its end will be told as that of any other."""

    child: str


class ChildClosed(Event, frozen=True):
    """A subagent and all below it were ended for good; how its last turn ended stands in its ChildEnded."""

    child: str


class ToolsFound(Event, frozen=True):
    """Deferred tools were found: they are offered from the next step on."""

    names: tuple[str, ...]


class Finding(Value, frozen=True, omit_defaults=False):
    """Something a reviewer found: confidence 0 to 1, priority 0 (at once) to 3, and where it shows."""

    title: str
    body: str
    confidence: float
    priority: int
    file: str
    first_line: int
    last_line: int


class ReviewEnded(Event, frozen=True):
    """A review is over: what `child` found, and what it says of the whole; or in `explanation` why there is nothing."""

    turn: int
    child: str
    ending: ReviewEnding
    findings: tuple[Finding, ...] = ()
    explanation: str = ""


PLUGIN_EVENTS: tuple[type[Event], ...] = (
    PlanUpdated,
    PlanModeRequested,
    PlanModeSet,
    TodosWritten,
    ChildSpawned,
    ChildEnded,
    ToolsFound,
    ReviewEnded,
    PlanProposed,
    PlanApproved,
    PlanHandedOver,
    QuestionAsked,
    QuestionAnswered,
    ApprovalAsked,
    ApprovalDecided,
    ApprovalPolicySet,
    ReminderSet,
    ReminderDeleted,
    ReminderFired,
    GoalChanged,
    ChildReleased,
    ChildClosed,
)

"""What an actor is: the pure core, then the Trio actor. Imports nothing else of ours.

Read in this order:

errors      every error a caller can meet, by whose fault it is
values      the words and plain values that events are made of
events      Event and the core events
envelope    the Envelope around an event, and the kinds that every log may hold
notices     what may be heard of but is never kept
facts       the events of the shipped plugins
codec       events <-> bytes, envelopes <-> lines
model       Prompt, Reply, the Model protocol
fold        Projection, replay, and sequences that grow without copying
calls       which calls of a turn have no result yet
seen        two folds about verbs: used ids with their answers, and the user's own commands that run
mode        Plan mode as the log tells it
asked       questions and approvals that wait for the user, and what the user permits
children    what a log says of the agents its session started, and how such an agent stands
line        the messages that wait, and what is asked of them at every event
books       the built-in folds: queue, history, turn, usage, found tools; all of them together
schema      one type, two uses: decoder and JSON schema
tool        a function as a tool
catalogue   who may call which tool, and what a model is offered
hook        Hook: what hooks are asked, and what they may answer
messages    what goes into a mailbox, and the answers
forked      what a new agent is given of its parent's history
lent        what a View hands out beside the log
plugin      Plugin, Hook, View, Alarm: all that a plugin author imports
phase       phase x message -> (action, next phase): the table
childspec   restart arithmetic in OTP's words
invariants  what may follow what on a log
receipts    what is written about a call that did not simply complete; repair after a crash
recovery    how a turn that a crash left open goes on instead
intake      what a model's reply becomes before it reaches the log
claim       which queued input enters which turn and step
compaction  what a compaction keeps, and when the window is too full
budget      what tokens cost, and whether a session may use more
store       the Store protocol: what becomes durable, and when it is said
memory      MemoryStore: a store that keeps everything in lists
snapping    the states of a log in a written form, from which its next opening goes on
eventlog    EventLog: the only writer; append, fold, tell, flush
timers      one heap and one task for what is due on Trio's clock
abort       AbortWindow: ask, cancel, 100 ms
drop        ends what swallows cancellation; trio's private names live here alone
inside      whose turn it is that code runs in
stage       what the runtime lends to all its actors, and their limits
pit         a task with a nursery where foreign code runs and what it throws stays
host        foreign code in a task of its own
results     what a body came to, as the one result of its call
awaited     waits for what is appended: an answer of the user, an approval
view        the View that tools and hooks get
verdict     what hooks answered, as the one verdict of a moment
hooks       asks the hooks of one moment, and waits for what they decide
told        hooks that only listen, beside whatever comes next
cell        the calls that the body of another call makes: their gate, and who is inside
entry       one call on its way, and which may run side by side
dispatch    one batch of calls: gate, hooks, guard, body, receipt
tasks       Task: what runs in a session's slot; it hosts the work and closes the books
asking      Asking: asks the model, again where that is advised, within the budgets
compact     Compacting: makes the history small enough for its model
findings    what a reviewer is told, and how its answer is read
review      Reviewing: an agent of its own looks at what was done
turn        Regular: steps until the model asks for no more tools
ending      waits for the disk that holds the end of a turn
alarm       one heap and one task for all that comes due
mailbox     a bounded queue for one actor
waiters     who wants to hear of which end
answered    what a verb was answered under its id, so that it acts once
checks      what callers hand to the verbs: texts, ids, schemas
verbs       what each control verb writes and answers
usershell   one command of the user's own, in a turn of its own or beside one
opening     how a log begins, is read from the store, and is repaired
ending      how the last events reach the disk, within a bound
dues        when plugins want to be woken, and what they write between turns
plugged     verbs that plugins take part in: answers, approvals, commands
passivation  what keeps a resting session in memory, and what is kept of one that left it
starts      which task begins next; one line for each kind of task
slot        a session's one place, until its end is on the disk
session     Session: mailbox, phase, one running task
scripting   ScriptedModel: answers from a list, or by a function
lab         Lab: a runtime inside one Trio run, for tests
promises    what must hold of every log and every history
faults      FaultyStore: fails, stalls or dies at the appends that a test chooses
choices     Choices: what a scenario leaves to chance, written down and made smaller
seeds       seeded_run: a scenario under many seeds, in virtual time
crashes     crash_at_each_append: a story that dies at every append
testing     the kit for tests, all of it: public
"""

from callboard.actors.envelope import Envelope
from callboard.actors.errors import (
    CallboardError,
    CallOver,
    ConfigError,
    FatalToolError,
    Fenced,
    IntensityReached,
    LogError,
    MailboxFull,
    MissingExtra,
    ModelError,
    SessionClosed,
    SessionNotFound,
    ToolError,
    UsageError,
)
from callboard.actors.events import (
    AbortRequested,
    Call,
    CallReceipt,
    CellCalled,
    Compacted,
    ControlCallEnded,
    Event,
    HookFailed,
    HookWarned,
    Message,
    MessageEdited,
    MessageQueued,
    MessagesClaimed,
    MessageWithdrawn,
    ModelChosen,
    ModelFailed,
    ModelSaid,
    NoteAdded,
    Policy,
    QueueParked,
    SessionForked,
    SessionOpened,
    ShellEnded,
    ShellStarted,
    StepEnded,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnRecovered,
    TurnStarted,
    Usage,
    VerbAnswered,
)
from callboard.actors.facts import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalPolicySet,
    ChildClosed,
    ChildEnded,
    ChildReleased,
    ChildSpawned,
    Finding,
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
    ReviewEnded,
    Todo,
    TodosWritten,
    ToolsFound,
)
from callboard.actors.fold import Projection, replay
from callboard.actors.messages import (
    Accepted,
    Edited,
    Idle,
    Interrupting,
    ModeAnswer,
    Refused,
    Steered,
    Stopped,
    Told,
    Withdrawn,
)
from callboard.actors.model import Assistant, Developer, Model, Prompt, Reply, Result, User
from callboard.actors.notices import (
    Delta,
    DurabilityDelayed,
    Lagged,
    ModelRetrying,
    Notice,
    Resync,
    RuntimeLeft,
    StoreFailed,
    ToolSkipped,
)
from callboard.actors.plugin import (
    AddContext,
    Alarm,
    Allow,
    Block,
    Command,
    Concluded,
    Continue,
    Did,
    Enter,
    Failed,
    Hook,
    HookTurn,
    Partial,
    Plugin,
    Reject,
    Rewrite,
    TextFilter,
    ToolCall,
    ToolResult,
    View,
    Warn,
)
from callboard.actors.tool import Tool, tool

__all__ = [
    "AbortRequested",
    "Accepted",
    "AddContext",
    "Alarm",
    "Allow",
    "ApprovalAsked",
    "ApprovalDecided",
    "ApprovalPolicySet",
    "Assistant",
    "Block",
    "Call",
    "CallOver",
    "CallReceipt",
    "CallboardError",
    "CellCalled",
    "ChildClosed",
    "ChildEnded",
    "ChildReleased",
    "ChildSpawned",
    "Command",
    "Compacted",
    "Concluded",
    "ConfigError",
    "Continue",
    "ControlCallEnded",
    "Delta",
    "Developer",
    "Did",
    "DurabilityDelayed",
    "Edited",
    "Enter",
    "Envelope",
    "Event",
    "Failed",
    "FatalToolError",
    "Fenced",
    "Finding",
    "Goal",
    "GoalChanged",
    "Hook",
    "HookFailed",
    "HookTurn",
    "HookWarned",
    "Idle",
    "IntensityReached",
    "Interrupting",
    "Lagged",
    "LogError",
    "MailboxFull",
    "Message",
    "MessageEdited",
    "MessageQueued",
    "MessageWithdrawn",
    "MessagesClaimed",
    "MissingExtra",
    "ModeAnswer",
    "Model",
    "ModelChosen",
    "ModelError",
    "ModelFailed",
    "ModelRetrying",
    "ModelSaid",
    "NoteAdded",
    "Notice",
    "Option",
    "Partial",
    "PlanApproved",
    "PlanHandedOver",
    "PlanModeRequested",
    "PlanModeSet",
    "PlanProposed",
    "PlanStep",
    "PlanUpdated",
    "Plugin",
    "Policy",
    "Projection",
    "Prompt",
    "QuestionAnswered",
    "QuestionAsked",
    "QueueParked",
    "Refused",
    "Reject",
    "Reminder",
    "ReminderDeleted",
    "ReminderFired",
    "ReminderSet",
    "Reply",
    "Result",
    "Resync",
    "ReviewEnded",
    "Rewrite",
    "RuntimeLeft",
    "SessionClosed",
    "SessionForked",
    "SessionNotFound",
    "SessionOpened",
    "ShellEnded",
    "ShellStarted",
    "Steered",
    "StepEnded",
    "StepStarted",
    "Stopped",
    "StoreFailed",
    "TextFilter",
    "Todo",
    "TodosWritten",
    "Told",
    "Tool",
    "ToolCall",
    "ToolCalled",
    "ToolError",
    "ToolResult",
    "ToolReturned",
    "ToolSkipped",
    "ToolsFound",
    "TurnEnded",
    "TurnRecovered",
    "TurnStarted",
    "Usage",
    "UsageError",
    "User",
    "VerbAnswered",
    "View",
    "Warn",
    "Withdrawn",
    "replay",
    "tool",
]

"""goal: an objective that the session works on round by round, by itself; get_goal, create_goal, update_goal, /goal."""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from callboard.actors.books import PARKED, QUEUE, TURN
from callboard.actors.errors import ToolError, UsageError
from callboard.actors.events import Message
from callboard.actors.facts import GoalChanged, GoalOperation
from callboard.actors.messages import Refused
from callboard.actors.mode import MODE
from callboard.actors.plugin import Command, Did, Enter, Plugin, Reject, View
from callboard.actors.receipts import clean_text
from callboard.actors.tool import Tool, tool
from callboard.plugins.checklist import check_text
from callboard.plugins.goalbook import GOAL, OUT_OF_DATE, PLAN_FIRST, SOURCE, USER_FIRST, GoalBook, is_round
from callboard.plugins.goals import (
    ROUNDS_MAX,
    ROUNDS_USUAL_MAX,
    Refusal,
    Wanted,
    arming,
    at_rest,
    change,
    corrupt,
    create,
    is_armed,
    over_budget,
    refusal_of,
    round_text,
)

GET = "Read the goal of this session: its objective, phase and revision, how many rounds it had, what it has used."
CREATE = """\
Give this session a goal that it goes on working on by itself, round after round, until it is complete, blocked or out \
of rounds. Only when the user asks for that in this turn, never on your own; there is one goal at a time.\
"""
UPDATE = """\
Change the goal of this session. Name goal_id and revision as get_goal or the round tells them.
complete: the objective is reached and you have checked it. blocked: you cannot go on without the user, and \
blocked_reason says why; not in the first rounds. edit (objective or a limit), pause and resume: only when the user \
asks for it in this turn.\
"""
REPORT = """\
The goal has ended with this round. Give one last report: what was done, how it was checked, what is left open. Start \
nothing new.\
"""
BUDGET = "the {name} of the goal is used up: it is blocked, and this round ends here."
ROOT_ONLY = "/goal is for the root agent: this session is one of its subagents."
NO_OBJECTIVE = "/goal edit needs the new objective behind it, such as /goal edit Fix the last two tests."
NO_TEXT = "/goal takes text, got {kind}."
NO_GOAL = "There is no goal. /goal TEXT sets one."
CLEARED, NOTHING_CLEARED = "The goal is cleared.", "There was no goal to clear."
HINT = "[TEXT | show | pause | resume | edit TEXT | clear]"
BELONGING = "goal"  # what being armed is kept under

Action: TypeAlias = Literal["edit", "pause", "resume", "complete", "blocked"]
Rounds: TypeAlias = Annotated[int | None, msgspec.Meta(description=f"Rounds at most, 1 to {ROUNDS_MAX:,}.")]
Tokens: TypeAlias = Annotated[int | None, msgspec.Meta(description="Tokens that its rounds may use together.")]
Seconds: TypeAlias = Annotated[float | None, msgspec.Meta(description="Seconds that its rounds may take together.")]


class GetGoal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to say."""


class CreateGoal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `create_goal` takes: the objective, and limits where the user named some."""

    objective: Annotated[str, msgspec.Meta(description="What is to be reached, so that it can be checked.")]
    rounds_max: Rounds = None
    token_budget: Tokens = None
    seconds_budget: Seconds = None

    def __post_init__(self) -> None:
        """Refuse text that the log cannot hold."""
        check_text(self.objective, "`$.objective`")


class UpdateGoal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `update_goal` takes; an empty text or a 0 is the same as a field left out."""

    goal_id: Annotated[str, msgspec.Meta(description="The id of the goal.")]
    revision: Annotated[int, msgspec.Meta(description="Its revision, as you read it last.")]
    action: Action
    objective: Annotated[str | None, msgspec.Meta(description="With edit: the new objective.")] = None
    rounds_max: Rounds = None
    token_budget: Tokens = None
    seconds_budget: Seconds = None
    blocked_reason: Annotated[str | None, msgspec.Meta(description="With blocked: what you need from the user.")] = None

    def __post_init__(self) -> None:
        """Refuse text that the log cannot hold."""
        for name in ("goal_id", "objective", "blocked_reason"):
            check_text(getattr(self, name) or "", f"`$.{name}`")

    @property
    def wanted(self) -> Wanted:
        """What an edit says."""
        limits = (self.rounds_max or None, self.token_budget or None, self.seconds_budget or None)
        return Wanted(self.objective or None, *limits)


def misfit(args: UpdateGoal) -> Refusal | None:
    """An argument that does not belong to the action, or one that it lacks."""
    if args.action == "blocked" and not args.blocked_reason:
        return Refusal("invalid_update", "blocked needs blocked_reason: say what you need from the user.")
    if args.action != "blocked" and args.blocked_reason:
        return Refusal("invalid_update", f"blocked_reason does not belong to {args.action}: leave it out.")
    if args.action != "edit" and not args.wanted.empty:
        return Refusal("invalid_update", f"an objective and limits do not belong to {args.action}: leave them out.")
    return None


def snapshot(book: GoalBook, *, armed: bool) -> dict[str, Any]:
    """The goal as tools show it: None without one, else its value, what it has used, and whether it goes on."""
    goal = book.goal
    if goal is None:
        return {"goal": None}
    said = {name: value for name, value in msgspec.to_builtins(goal).items() if value is not None}
    used = {"rounds_started": book.rounds, "tokens_used": book.tokens, "seconds_used": round(book.spent_ms / 1000, 1)}
    return {"goal": {**said, **used}, "activation": "armed" if armed else "disarmed"}


def shown(book: GoalBook, *, armed: bool) -> str:
    """The goal as people read it."""
    goal = book.goal
    if goal is None:
        return NO_GOAL
    phase = f"{goal.phase} ({goal.blocked_reason})" if goal.blocked_reason else goal.phase
    if goal.phase == "active" and not armed:
        phase = "active, and waits for /goal resume"
    used = [f"{book.rounds} of {goal.rounds_max} rounds"]
    if goal.token_budget is not None:
        used.append(f"{book.tokens:,} of {goal.token_budget:,} tokens")
    if goal.seconds_budget is not None:
        used.append(f"{book.spent_ms / 1000:,.0f} of {goal.seconds_budget:,.0f} s")
    return f"Goal {goal.id}, {phase}; {', '.join(used)}: {goal.objective}"


def armed_in(view: View) -> bool:
    """Whether the goal of this session goes on by itself."""
    book = view[GOAL]
    return book.goal is not None and is_armed(book, view.belongings.get(BELONGING))


def _take(view: View, changed: GoalChanged) -> GoalBook:
    """The book as it will be, with what arms or disarms the goal done."""
    book = view[GOAL]
    if changed.operation in ("create", "resume"):
        view.belongings[BELONGING] = arming(changed, book)
    elif changed.operation != "edit":
        view.belongings.pop(BELONGING, None)
    return GOAL.apply(book, changed)


# -- tools -------------------------------------------------------------------------------------------------------------


@tool(name="get_goal", description=GET, runs_on="trio", effect="none", control=True, mutates=False)
def get_goal(args: GetGoal, view: View) -> dict[str, Any]:
    """Read the goal."""
    book = view[GOAL]
    if (refusal := corrupt(book)) is not None:
        raise ToolError(str(refusal))
    return snapshot(book, armed=armed_in(view))


@tool(name="update_goal", description=UPDATE, runs_on="trio", effect="idempotent", control=True, mutates=False)
def update_goal(args: UpdateGoal, view: View) -> dict[str, Any]:
    """Change the goal."""
    book = view[GOAL]
    operation: GoalOperation = "block" if args.action == "blocked" else args.action
    refusal = corrupt(book) or misfit(args) or refusal_of(book, operation, depth=view.depth)
    if refusal is not None:
        raise ToolError(str(refusal))
    reason = f"model_reported: {args.blocked_reason}" if args.blocked_reason else None
    named, armed = (args.goal_id, args.revision), armed_in(view)
    changed = change(book, operation, view.now_ms(), named=named, wanted=args.wanted, reason=reason, armed=armed)
    return _tell(view, changed)


def _create(rounds_max: int) -> Tool:
    @tool(name="create_goal", description=CREATE, runs_on="trio", effect="idempotent", control=True, mutates=False)
    def create_goal(args: CreateGoal, view: View) -> dict[str, Any]:
        """Give the session a goal."""
        book = view[GOAL]
        refusal = corrupt(book) or refusal_of(book, "create", depth=view.depth)
        if refusal is not None:
            raise ToolError(str(refusal))
        wanted = Wanted(args.objective, args.rounds_max, args.token_budget, args.seconds_budget)
        return _tell(view, create(book, wanted, view.now_ms(), rounds_max))

    return create_goal


def _tell(view: View, changed: GoalChanged | Refusal) -> dict[str, Any]:
    """Put the change on the log, and show the goal after it."""
    if isinstance(changed, Refusal):
        raise ToolError(str(changed))
    view.append(changed)
    book = _take(view, changed)
    return snapshot(book, armed=is_armed(book, view.belongings.get(BELONGING)))


# -- rounds ------------------------------------------------------------------------------------------------------------


def on_idle(view: View) -> Message | None:
    """The next round of an active goal that goes on by itself; or what ends that."""
    book = view[GOAL]
    if view.depth > 0 or not book.made:
        return None
    found = at_rest(book, view.belongings.get(BELONGING), view.now_ms())
    if isinstance(found, tuple):
        return Message(*found, SOURCE)
    if found is not None:
        view.append(found)
    if not armed_in(view):
        view.belongings.pop(BELONGING, None)  # or it would keep a session in memory that does nothing
    return None


async def before_step(view: View, messages: tuple[Message, ...]) -> Enter | Reject:
    """Let in the round that is due and no other; end one that has used up a budget; ask for the last report."""
    rounds = [message for message in messages if message.source == SOURCE]
    if rounds:
        refusal = _unwanted(view, rounds)
        if refusal is not None:
            others = tuple(message for message in messages if message.source != SOURCE)
            return Enter(others) if others else Reject(refusal)
    book = view[GOAL]
    if (spent := _spent(view, book)) is not None:
        return Reject(spent)
    if not book.turn.report:
        return Enter(messages)
    note = Message(f"goal-report-{view.turn}-{view[TURN].step + 1}", REPORT, "notice")
    return Enter((*messages, note))


def _unwanted(view: View, rounds: list[Message]) -> str | None:
    """Why this is not the round that is due now."""
    book, goal = view[GOAL], view[GOAL].goal
    number = book.rounds + 1
    due = len(rounds) == 1 and goal is not None and is_round(rounds[0].id, goal, number) and armed_in(view)
    if not due or goal is None or view.depth > 0 or rounds[0].text != round_text(goal, number):
        return OUT_OF_DATE
    if view[MODE].bars:
        return PLAN_FIRST
    waits = not view[PARKED] and any(one.source == "user" and one.wake for one in view[QUEUE])
    return USER_FIRST if waits else None


def _spent(view: View, book: GoalBook) -> str | None:
    """In a round without the user: the end of the budget is the end of the round."""
    goal, turn = book.goal, book.turn
    if goal is None or not turn.counts or turn.human or goal.phase != "active" or book.corrupt is not None:
        return None
    name = over_budget(book, goal, book.spent_s(view.now_ms(), view[TURN].started_ms))
    if name is None:
        return None
    changed = change(book, "block", view.now_ms(), reason="budget")
    assert isinstance(changed, GoalChanged)
    view.append(changed)
    view.belongings.pop(BELONGING, None)
    return BUDGET.format(name=name)


# -- /goal -------------------------------------------------------------------------------------------------------------


def _command(rounds_max: int) -> Command:
    def run(view: View, rest: Any) -> Did | Refused:
        if not isinstance(rest, str):
            return Refused("invalid_command", NO_TEXT.format(kind=type(rest).__name__))
        if view.depth > 0:
            return Refused("invalid_command", ROOT_ONLY)
        book, words = view[GOAL], clean_text(rest).strip()
        if (refusal := corrupt(book)) is not None:
            return Refused("invalid_command", str(refusal))
        return _do(view, book, words, rounds_max)

    return Command("goal", run, HINT)


def _do(view: View, book: GoalBook, words: str, rounds_max: int) -> Did | Refused:
    now_ms, armed, goal = view.now_ms(), armed_in(view), book.goal
    word = words.lower()
    first, *behind = words.split(maxsplit=1)[:2] or [""]
    if word in ("", "show"):
        return Did(answer=shown(book, armed=armed))
    if word == "clear":
        return _did(view, change(book, "clear", now_ms)) if goal is not None else Did(answer=NOTHING_CLEARED)
    if word == "edit":
        return Refused("invalid_command", NO_OBJECTIVE)
    if goal is None and (word in ("pause", "resume") or first.lower() == "edit"):
        return Refused("invalid_command", NO_GOAL)
    if word == "pause":
        return _did(view, change(book, "pause", now_ms))
    if word == "resume":
        return _did(view, change(book, "resume", now_ms, armed=armed))
    if first.lower() == "edit":
        wanted = Wanted("".join(behind))
        over = goal is not None and goal.phase == "complete"
        return _did(
            view, create(book, wanted, now_ms, rounds_max) if over else change(book, "edit", now_ms, wanted=wanted)
        )
    return _did(view, create(book, Wanted(words), now_ms, rounds_max))


def _did(view: View, changed: GoalChanged | Refusal) -> Did | Refused:
    if isinstance(changed, Refusal):
        return Refused("invalid_command", str(changed))
    book = _take(view, changed)
    if changed.operation == "clear":
        return Did((changed,), CLEARED)
    return Did((changed,), shown(book, armed=is_armed(book, view.belongings.get(BELONGING))))


def goal_plugin(rounds_max: int = ROUNDS_USUAL_MAX) -> Plugin:
    """The goal plugin; `rounds_max` is that of a goal that names none, 1 to 10,000, or it is a `UsageError`."""
    loose: Any = rounds_max
    if not isinstance(loose, int) or isinstance(loose, bool) or not 1 <= loose <= ROUNDS_MAX:
        raise UsageError(f"goal_plugin takes rounds_max from 1 to {ROUNDS_MAX:,}, got {loose!r:.40}.")
    return Plugin(
        "goal",
        events=(GoalChanged,),
        projections=(GOAL,),
        tools=(get_goal, _create(rounds_max), update_goal),
        before_step=before_step,
        on_idle=on_idle,
        commands=(_command(rounds_max),),
    )


GOAL_PLUGIN = goal_plugin()

"""goals: what may be done to a goal, by whom, and what its next round is: decisions as values, over the fold."""

import attrs
import msgspec

from callboard.actors.facts import Goal, GoalChanged, GoalOperation
from callboard.actors.receipts import clean_text
from callboard.plugins.goalbook import FROM, SOURCE, GoalBook, after, id_of, round_id

OBJECTIVE_MAX_CHARS = 4_000
REASON_MAX_CHARS = 2_000
ROUNDS_USUAL_MAX = 256
ROUNDS_MAX = 10_000
TOKENS_MAX = 1_000_000_000_000
SECONDS_MAX = 31_536_000.0  # a year
QUIET_MAX = 3  # rounds on end without a call of a tool or a change of any fold
TRIES_MAX = 3  # times on end that a round is queued, and let in by nobody
BLOCKED_ROUNDS_MIN = 3  # rounds before the model itself may call the goal blocked

ROUND = """\
Round {number} of at most {rounds} for the goal of this session, begun by the runtime and not by the user.
The objective, as a JSON string: {objective}
Go on with it from where the work stands: find the next thing to do, and do it. When the objective is reached, and you \
have checked that it is, call update_goal with goal_id {id}, revision {revision} and action complete. When you cannot \
go on without the user, call it with action blocked and say why in blocked_reason. Otherwise end this round when its \
piece of work is done; another follows.\
"""


@attrs.frozen
class Refusal:
    """Why nothing was changed: a code from a closed set, and a sentence that says what to do."""

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


@attrs.frozen
class Wanted:
    """What a create or an edit says; None leaves a value as it is."""

    objective: str | None = None
    rounds_max: int | None = None
    token_budget: int | None = None
    seconds_budget: float | None = None

    @property
    def empty(self) -> bool:
        """Whether it says nothing."""
        return self == Wanted()


@attrs.frozen(eq=False)
class Armed:
    """The goal goes on by itself: known to the session that armed it alone, and never kept.

    It holds until the log has one more stop than at arming, and only once the change it came with is on the log.
    """

    id: str
    revision: int
    stops: int

    def close(self) -> None:
        """Nothing is held."""


def arming(changed: GoalChanged, book: GoalBook) -> Armed:
    """What arms the goal that this change makes or resumes."""
    return Armed(changed.goal.id, changed.goal.revision, book.stops)


def is_armed(book: GoalBook, armed: object) -> bool:
    """Whether the goal goes on by itself."""
    goal = book.goal
    return (
        isinstance(armed, Armed)
        and book.corrupt is None
        and goal is not None
        and goal.phase == "active"
        and goal.id == armed.id
        and goal.revision >= armed.revision
        and book.stops == armed.stops
    )


# -- changes -----------------------------------------------------------------------------------------------------------


def corrupt(book: GoalBook) -> Refusal | None:
    """Why nothing can be done with the goal of a log that contradicts itself."""
    if book.corrupt is None:
        return None
    told = clean_text(book.corrupt)
    return Refusal("corrupt_goal_log", f"the goal of this session cannot be read: {told}; go on in a new session.")


def create(
    book: GoalBook, wanted: Wanted, now_ms: int, rounds_default: int = ROUNDS_USUAL_MAX
) -> GoalChanged | Refusal:
    """A new goal; not over one that is not finished."""
    goal = book.goal
    if (refusal := corrupt(book)) is not None:
        return refusal
    if goal is not None and goal.phase != "complete":
        return Refusal(
            "goal_already_exists",
            f"{goal.id} is {goal.phase}: complete or clear it first, or edit it.",
        )
    if (refusal := _unfit(attrs.evolve(wanted, objective=wanted.objective or ""))) is not None:
        return refusal
    assert wanted.objective is not None
    rounds = rounds_default if wanted.rounds_max is None else wanted.rounds_max
    fresh = Goal(
        *(id_of(book.made + 1), 1, clean_text(wanted.objective).strip(), "active", rounds),
        token_budget=wanted.token_budget,
        seconds_budget=wanted.seconds_budget,
    )
    return GoalChanged("create", fresh, max(now_ms, book.updated_ms))


def change(
    book: GoalBook,
    operation: GoalOperation,
    now_ms: int,
    *,
    named: tuple[str, int] | None = None,
    wanted: Wanted | None = None,
    reason: str | None = None,
    armed: bool = False,
) -> GoalChanged | Refusal:
    """Any other change; `named` is the id and the revision it is meant for, None the goal as it is."""
    goal = book.goal
    if (refusal := corrupt(book)) is not None:
        return refusal
    if goal is None or (named is not None and named[0] != goal.id):
        there = "there is none" if goal is None else f"the goal is {goal.id}"
        return Refusal("goal_not_found", f"{there}: get_goal tells how it stands.")
    if named is not None and named[1] != goal.revision:
        return Refusal(
            "stale_revision",
            f"{goal.id} is at revision {goal.revision}, not {_shown(named[1])}: read it with get_goal, decide anew.",
        )
    if (refusal := _barred(book, goal, operation, armed=armed)) is not None:
        return refusal
    at_ms = max(now_ms, book.updated_ms)
    if operation == "edit":
        edited = _edited(book, goal, wanted or Wanted())
        return edited if isinstance(edited, Refusal) else GoalChanged("edit", edited, at_ms)
    if operation == "block":
        text = clean_text(reason or "").strip()
        if not text or len(text) > REASON_MAX_CHARS:
            return Refusal(
                "invalid_block_reason", f"say why in 1 to {REASON_MAX_CHARS:,} characters, got {len(text):,}."
            )
        return GoalChanged("block", after(goal, "block", text), at_ms)
    return GoalChanged(operation, after(goal, operation), at_ms)


def _barred(book: GoalBook, goal: Goal, operation: GoalOperation, *, armed: bool) -> Refusal | None:
    """What stands against the operation in the phase that the goal is in."""
    if goal.phase not in FROM[operation]:
        return Refusal("invalid_transition", f"{operation} is not possible while {goal.id} is {goal.phase}.")
    if operation != "resume":
        return None
    if armed:
        return Refusal("invalid_transition", f"{goal.id} goes on already: there is nothing to resume.")
    if book.rounds >= goal.rounds_max:
        return Refusal(
            "invalid_transition", f"all {goal.rounds_max} rounds of {goal.id} are used: edit rounds_max first."
        )
    if (spent := over_budget(book, goal, book.spent_ms / 1000)) is not None:
        return Refusal("invalid_transition", f"{spent} of {goal.id} is used up: edit it first.")
    return None


def _edited(book: GoalBook, goal: Goal, wanted: Wanted) -> Goal | Refusal:
    if wanted.empty:
        return Refusal("invalid_edit", "an edit needs an objective or a limit.")
    if (refusal := _unfit(wanted)) is not None:
        return refusal
    if wanted.rounds_max is not None and wanted.rounds_max < book.rounds:
        return Refusal("invalid_max_rounds", f"{book.rounds} rounds have begun: rounds_max cannot be less.")
    said = {name: value for name, value in attrs.asdict(wanted).items() if value is not None}
    if wanted.objective is not None:
        said["objective"] = clean_text(wanted.objective).strip()
    return msgspec.structs.replace(after(goal, "edit"), **said)


def _unfit(wanted: Wanted) -> Refusal | None:
    """What is wrong with the values."""
    objective = wanted.objective
    if objective is not None:
        size = len(objective.strip())
        if not 0 < size <= OBJECTIVE_MAX_CHARS:
            return Refusal(
                "invalid_objective", f"an objective has 1 to {OBJECTIVE_MAX_CHARS:,} characters, got {size:,}."
            )
    rounds = wanted.rounds_max
    if rounds is not None and not 1 <= rounds <= ROUNDS_MAX:
        return Refusal("invalid_max_rounds", f"rounds_max is 1 to {ROUNDS_MAX:,}, got {_shown(rounds)}.")
    for name, budget, most in (
        ("token_budget", wanted.token_budget, TOKENS_MAX),
        ("seconds_budget", wanted.seconds_budget, SECONDS_MAX),
    ):
        if budget is not None and not 0 < budget <= most:
            return Refusal("invalid_budget", f"{name} is above 0 and at most {most:,.0f}, got {_shown(budget)}.")
    return None


def _shown(number: float) -> str:
    return f"{number:,}"[:40] if abs(number) < 10**40 else "a number with more than 40 digits"


# -- who may -----------------------------------------------------------------------------------------------------------


def refusal_of(book: GoalBook, operation: GoalOperation, *, depth: int) -> Refusal | None:
    """What the model may not do by itself: it needs the user in the turn; complete and block also in a round."""
    turn = book.turn
    if depth > 0:
        return Refusal("authority_required", "a goal belongs to the root agent: report to it instead.")
    if turn.human:
        return None
    if operation not in ("complete", "block") or not turn.number or turn.number != book.rounds:
        return Refusal(
            "authority_required",
            f"{operation} needs a message of the user in this turn: go on, or report what you would change.",
        )
    if operation == "block" and book.rounds < BLOCKED_ROUNDS_MIN:
        return Refusal(
            "block_threshold",
            f"round {book.rounds} is too early: try other ways, from round {BLOCKED_ROUNDS_MIN} on it can be blocked.",
        )
    return None


# -- rounds ------------------------------------------------------------------------------------------------------------


def over_budget(book: GoalBook, goal: Goal, spent_s: float) -> str | None:
    """The name of a budget that is used up."""
    if goal.token_budget is not None and book.tokens >= goal.token_budget:
        return "token_budget"
    if goal.seconds_budget is not None and spent_s >= goal.seconds_budget:
        return "seconds_budget"
    return None


def block_of(book: GoalBook, goal: Goal) -> str | None:
    """Why an active goal gets no further round; None when it gets one."""
    if book.refused or book.tries >= TRIES_MAX:
        return "prompt_rejected"
    if book.rounds >= goal.rounds_max:
        return "round_limit"
    if over_budget(book, goal, book.spent_ms / 1000) is not None:
        return "budget"
    return "no_progress" if book.quiet >= QUIET_MAX else None


def at_rest(book: GoalBook, armed: object, now_ms: int) -> GoalChanged | tuple[str, str] | None:
    """What an idle session does about its goal: a change, the id and text of the next round, or nothing."""
    goal = book.goal
    if book.corrupt is not None or goal is None or goal.phase != "active":
        return None
    at_ms = max(now_ms, book.updated_ms)
    if book.stopped:
        return GoalChanged("pause", after(goal, "pause"), at_ms)
    if not is_armed(book, armed) or any(source == SOURCE for _, source in book.waiting):
        return None
    reason = block_of(book, goal)
    if reason is not None:
        return GoalChanged("block", after(goal, "block", reason), at_ms)
    number = book.rounds + 1
    return round_id(goal, number, book.offers + 1), round_text(goal, number)


def round_text(goal: Goal, number: int) -> str:
    """What the model reads in a round; the objective is quoted, so that it is read as such whatever it says."""
    objective = msgspec.json.encode(goal.objective).decode()
    return ROUND.format(number=number, rounds=goal.rounds_max, objective=objective, id=goal.id, revision=goal.revision)

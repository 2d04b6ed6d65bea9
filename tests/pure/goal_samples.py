"""What tests of the goal share: a goal, the events of a round, and the fold over events."""

from callboard.actors.events import (
    Event,
    MessageQueued,
    MessagesClaimed,
    ModelSaid,
    StepEnded,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    Usage,
)
from callboard.actors.facts import (
    Goal,
    GoalChanged,
    GoalPhase,
)
from callboard.actors.fold import replay
from callboard.plugins.goalbook import (
    GOAL,
    GoalBook,
    after,
    round_id,
)

FIRST = Goal("goal-1", 1, "make it work", "active", 5)
CREATED = GoalChanged("create", FIRST, 1_000)
PHASES: dict[GoalPhase, tuple[GoalChanged, ...]] = {
    "active": (CREATED,),
    "paused": (CREATED, GoalChanged("pause", after(FIRST, "pause"))),
    "blocked": (CREATED, GoalChanged("block", after(FIRST, "block", "why"))),
    "complete": (CREATED, GoalChanged("complete", after(FIRST, "complete"))),
}


def book(*events: Event) -> GoalBook:
    """The fold over events."""
    return replay(GOAL, events)


def goal_of(state: GoalBook) -> Goal:
    """The goal that is there."""
    assert state.goal is not None
    return state.goal


def a_round(
    goal: Goal,
    number: int,
    *inside: Event,
    id: str | None = None,
    turn: int | None = None,
    end: TurnEnded | None = None,
) -> tuple[Event, ...]:
    """The events of one round."""
    id, turn = id or round_id(goal, number), turn or number
    return (
        MessageQueued(id, "go on", "goal"),
        TurnStarted(turn, start="automatic"),
        MessagesClaimed((id,)),
        StepStarted(turn, 1),
        *inside,
        StepEnded(turn, 1),
        end or TurnEnded(turn, "completed", started_ms=1_000, ended_ms=3_500),
    )


SAID = ModelSaid("hm", usage=Usage(10, output=5))
CALLED = (
    ModelSaid("", usage=Usage(10, output=5)),
    ToolCalled("c", "grep", {}),
    ToolReturned("c", "completed", None, ""),
)

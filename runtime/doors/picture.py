"""Picture: how a tree of sessions stands at this moment, kept up to date from what its readers get."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import attrs

from callboard.actors.envelope import Envelope
from callboard.actors.events import (
    Event,
    ModelSaid,
    SessionOpened,
    StepStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from callboard.actors.facts import (
    ApprovalAsked,
    ApprovalDecided,
    ChildSpawned,
    Goal,
    GoalChanged,
    PlanHandedOver,
    PlanModeRequested,
    PlanModeSet,
    PlanUpdated,
    QuestionAnswered,
    QuestionAsked,
    Todo,
    TodosWritten,
)
from callboard.actors.mode import MODE, Mode
from callboard.actors.notices import Delta, ModelRetrying
from callboard.plugins.plan import Plan
from callboard.runtime.doors.wording import call_text, one_line
from callboard.runtime.reading import Item

TAIL_MAX_CHARS = 2_000  # of text that is still growing

State: TypeAlias = str  # "idle", "working", or how the last turn ended: "completed", "failed", "interrupted" ...


@attrs.define
class Running:
    """A call that has begun: what it is about, and the wall milliseconds of its start."""

    text: str
    begun_ms: int


@attrs.define
class Agent:
    """One session: what it does now, and what it said and printed last."""

    session: str
    name: str  # "" for the root
    state: State = "idle"
    begun_ms: int = 0
    ended_ms: int = 0
    calls: dict[str, Running] = attrs.field(factory=dict)
    saying: str = ""  # streamed text of the request that is under way
    printing: str = ""  # the tail of what the running tools print
    said: str = ""  # the last text that was finished
    plan: Plan | None = None
    todos: tuple[Todo, ...] | None = None
    mode: Mode = MODE.zero
    goal: Goal | None = None
    waits: set[str] = attrs.field(factory=set)  # ids of what the user is asked

    @property
    def working(self) -> bool:
        """Whether a turn runs."""
        return self.state == "working"

    @property
    def last_line(self) -> str:
        """The last line that was printed or said, fit for a terminal."""
        for text in (self.printing, self.saying, self.said):
            lines = [line for line in text.splitlines() if line.strip()]
            if lines:
                return one_line(lines[-1])
        return ""


class Picture:
    """The agents of a tree by session id, the root first, in the order they appeared. `take` is given every item."""

    def __init__(self, root: str) -> None:
        self.agents: dict[str, Agent] = {root: Agent(root, "")}
        self._root = root

    @property
    def root(self) -> Agent:
        """The agent at the top."""
        return self.agents[self._root]

    @property
    def children(self) -> tuple[Agent, ...]:
        """The others."""
        return tuple(agent for agent in self.agents.values() if agent.name)

    def take(self, item: Item) -> None:
        """Bring the picture up to date."""
        if isinstance(item, Envelope):
            show = SHOW.get(type(item.event))
            if show is not None:
                show(self, self._agent(item.session), item.event, item.at_ms)
        elif isinstance(item, Delta):
            self._grow(self._agent(item.session), item)
        elif isinstance(item, ModelRetrying):
            self._agent(item.session).saying = ""  # it is said once more

    def _agent(self, session: str) -> Agent:
        agent = self.agents.get(session)
        if agent is None:
            agent = self.agents[session] = Agent(session, session)
        return agent

    def _grow(self, agent: Agent, delta: Delta) -> None:
        if delta.part in ("text", "plan"):
            agent.saying = (agent.saying + delta.text)[-TAIL_MAX_CHARS:]
        elif delta.part == "output" and (delta.call is None or delta.call in agent.calls):
            agent.printing = (agent.printing + delta.text)[-TAIL_MAX_CHARS:]

    def _opened(self, agent: Agent, event: SessionOpened, at_ms: int) -> None:
        if agent.session != self._root and event.parent is not None:
            agent.name = event.path.removeprefix("/root/")

    def _handed_over(self, agent: Agent, event: PlanHandedOver, at_ms: int) -> None:
        if event.session:
            self._agent(event.session).name = event.id

    def _spawned(self, agent: Agent, event: ChildSpawned, at_ms: int) -> None:
        child = self._agent(event.child)
        child.name = event.path.removeprefix("/root/")
        child.begun_ms = child.begun_ms or at_ms

    def _began(self, agent: Agent, event: TurnStarted, at_ms: int) -> None:
        agent.state, agent.begun_ms, agent.todos = "working", at_ms, None
        agent.said = agent.saying = agent.printing = ""

    def _stepped(self, agent: Agent, event: StepStarted, at_ms: int) -> None:
        agent.saying = ""

    def _said(self, agent: Agent, event: ModelSaid, at_ms: int) -> None:
        agent.saying, agent.said = "", event.text or agent.said

    def _called(self, agent: Agent, event: ToolCalled, at_ms: int) -> None:
        if not agent.calls:
            agent.printing = ""
        agent.calls[event.call] = Running(call_text(event.name, event.arguments), at_ms)

    def _returned(self, agent: Agent, event: ToolReturned, at_ms: int) -> None:
        agent.calls.pop(event.call, None)

    def _planned(self, agent: Agent, event: PlanUpdated, at_ms: int) -> None:
        agent.plan = Plan(event.explanation, event.plan)

    def _listed(self, agent: Agent, event: TodosWritten, at_ms: int) -> None:
        agent.todos = event.todos

    def _mode(self, agent: Agent, event: PlanModeRequested | PlanModeSet, at_ms: int) -> None:
        agent.mode = MODE.apply(agent.mode, event)

    def _aimed(self, agent: Agent, event: GoalChanged, at_ms: int) -> None:
        agent.goal = None if event.operation == "clear" else event.goal

    def _asked(self, agent: Agent, event: QuestionAsked | ApprovalAsked, at_ms: int) -> None:
        agent.waits.add(event.id)

    def _settled(self, agent: Agent, event: QuestionAnswered | ApprovalDecided, at_ms: int) -> None:
        agent.waits.discard(event.id)

    def _ended(self, agent: Agent, event: TurnEnded, at_ms: int) -> None:
        cut = event.reason in ("aborted", "interrupted")
        agent.state = "interrupted" if cut else "failed" if event.error is not None else event.reason
        agent.ended_ms, agent.calls, agent.saying = at_ms, {}, ""
        if event.last_message and not cut:
            agent.said, agent.printing = event.last_message, ""


SHOW: Mapping[type[Event], Callable[[Picture, Agent, Any, int], None]] = MappingProxyType(
    {
        SessionOpened: Picture._opened,
        ChildSpawned: Picture._spawned,
        PlanHandedOver: Picture._handed_over,
        TurnStarted: Picture._began,
        StepStarted: Picture._stepped,
        ModelSaid: Picture._said,
        ToolCalled: Picture._called,
        ToolReturned: Picture._returned,
        PlanUpdated: Picture._planned,
        TodosWritten: Picture._listed,
        TurnEnded: Picture._ended,
        PlanModeRequested: Picture._mode,
        PlanModeSet: Picture._mode,
        GoalChanged: Picture._aimed,
        QuestionAsked: Picture._asked,
        ApprovalAsked: Picture._asked,
        QuestionAnswered: Picture._settled,
        ApprovalDecided: Picture._settled,
    }
)

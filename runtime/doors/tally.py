"""Tally: what a tree of sessions came to, counted from its events, as one line."""

from collections import Counter

import attrs

from callboard.actors.envelope import Envelope
from callboard.actors.events import Compacted, ControlCallEnded, ModelSaid, ToolReturned, TurnEnded, Usage
from callboard.actors.facts import ChildSpawned, PlanHandedOver
from callboard.runtime.doors.wording import seconds_text


@attrs.define
class Tally:
    """Counts of one tree, whose root is the session `root`, and of the sessions that carry out its plans."""

    root: str
    turns: int = 0
    steps: int = 0
    replies: int = 0
    agents: int = 0
    refused: int = 0  # control calls that did not complete
    bad: int = 0  # turns of the root, or of who carries out its plans, that failed or were cut
    calls: Counter[str] = attrs.field(factory=Counter)  # by receipt
    usage: Usage = attrs.field(factory=Usage)
    begun_ms: int = 0
    ended_ms: int = 0
    carriers: set[str] = attrs.field(factory=set)  # sessions that plans were handed to

    def take(self, envelope: Envelope) -> None:
        """Count one event."""
        self.begun_ms = self.begun_ms or envelope.at_ms
        self.ended_ms = envelope.at_ms
        match envelope.event:
            case ModelSaid() as said:
                self.replies += bool(said.text or said.calls)
                self.usage = self.usage.plus(said.usage)
            case Compacted() as compacted:
                self.usage = self.usage.plus(compacted.usage)
            case ToolReturned() as returned:
                self.calls[returned.receipt] += 1
            case ControlCallEnded() as ended if ended.outcome != "completed":
                self.refused += 1
            case ChildSpawned():
                self.agents += 1
            case PlanHandedOver() as over if over.session:
                self.carriers.add(over.session)
            case TurnEnded() as turn if envelope.session == self.root or envelope.session in self.carriers:
                self.turns += 1
                self.steps += turn.steps
                self.bad += turn.reason != "completed" or turn.error is not None

    def calls_text(self) -> str:
        """How many calls, and how they ended unless all were completed."""
        total = self.calls.total()
        text = counted(total, "call")
        if total == self.calls["completed"]:
            return text
        return f"{text} ({', '.join(f'{count} {receipt}' for receipt, count in self.calls.most_common())})"

    def replay_line(self) -> str:
        """What a replay came to: turns, replies, calls by receipt, refused control calls, subagents."""
        refused = counted(self.refused, "refused control call")
        parts = (counted(self.turns, "turn"), f"{self.replies:,} {'reply' if self.replies == 1 else 'replies'}")
        return ", ".join((*parts, self.calls_text(), refused, counted(self.agents, "subagent")))

    def line(self) -> str:
        """Turns, steps, calls, agents, tokens and seconds."""
        parts = [counted(self.turns, "turn"), counted(self.steps, "step"), self.calls_text()]
        parts += [counted(self.agents, "agent")] if self.agents else []
        parts += [f"{self.usage.total:,} tokens"] if self.usage.total else []
        return " · ".join([*parts, seconds_text((self.ended_ms - self.begun_ms) / 1000)])


def counted(count: int, name: str) -> str:
    """`1 turn`, `2 turns`."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"

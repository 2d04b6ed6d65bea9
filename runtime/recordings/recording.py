"""The neutral value that a recorded session of any agent becomes."""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs


class RecordingError(ValueError):
    """The file cannot be read as a recording; the message says what, the value, and what to do."""


@attrs.frozen
class RecordedCall:
    """One tool call. `result` is None when none was recorded; `id` is unique in the whole recording.

    `arguments` is the JSON object, or the raw text where the recorded one is not a JSON object.
    """

    id: str
    name: str
    arguments: dict[str, Any] | str
    result: str | None = None
    failed: bool = False


@attrs.frozen
class RecordedReply:
    """One assistant message: its text (may be empty) and its calls in order; never without both.

    `usage` is the provider's own token count, its keys as recorded.
    """

    text: str
    calls: tuple[RecordedCall, ...] = ()
    usage: dict[str, Any] | None = None


@attrs.frozen
class RecordedTurn:
    """A user message (never blank) and the replies up to the next one."""

    prompt: str
    replies: tuple[RecordedReply, ...] = ()
    interrupted: bool = False


@attrs.frozen
class RecordedAgent:
    """A subagent: its kind, its task, its turns, and the id of the call that started it if that can be told."""

    id: str
    name: str
    task: str
    turns: tuple[RecordedTurn, ...]
    call: str | None = None


@attrs.frozen
class Recording:
    """A whole session. `skipped` counts, by reason, everything in the file that became no turn."""

    format: str
    session: str
    cwd: str | None
    model: str | None
    turns: tuple[RecordedTurn, ...]
    agents: tuple[RecordedAgent, ...] = ()
    skipped: Mapping[str, int] = attrs.field(factory=dict)


def calls_of(turns: Iterable[RecordedTurn]) -> tuple[RecordedCall, ...]:
    """Every call of these turns, in order."""
    return tuple(call for turn in turns for reply in turn.replies for call in reply.calls)


def summary(recording: Recording) -> str:
    """One line for people: turns, replies, calls, agents, and what was skipped and why."""
    calls = calls_of(recording.turns)
    missing = sum(call.result is None for call in calls)
    inner = sum(len(calls_of(agent.turns)) for agent in recording.agents)
    parts = (
        f"{len(recording.turns)} turns",
        f"{sum(len(turn.replies) for turn in recording.turns)} replies",
        f"{len(calls)} calls" + (f" ({missing} without result)" if missing else ""),
        f"{len(recording.agents)} agents" + (f" ({inner} calls)" if inner else ""),
    )
    line = f"{recording.format} {recording.session}: {', '.join(parts)}; {_skipped(recording.skipped)}"
    return "".join(char if char.isprintable() else "?" for char in line)


def _skipped(skipped: Mapping[str, int]) -> str:
    if not skipped:
        return "nothing skipped"
    by_count = sorted(skipped.items(), key=lambda item: (-item[1], item[0]))
    return f"skipped {sum(skipped.values())}: " + ", ".join(f"{reason} {count}" for reason, count in by_count)

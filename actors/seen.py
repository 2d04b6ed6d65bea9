"""Two folds about verbs: which ids were used and how they were answered, and the user's own commands that run."""

from typing import Any, TypeAlias

import msgspec

from callboard.actors.events import MessageQueued, SessionForked, ShellEnded, ShellStarted, Value, VerbAnswered
from callboard.actors.fold import Index, Projection, table


class Seen(Value, frozen=True):
    """Ids that senders chose, each with its answer; and how many messages were ever queued.

    `ids` has those of messages: (seq, turn), or (turn,) to what was steered into that turn. `answers` has, by
    `VERB ID`, what else was answered, and `verbs` which verb acted under an id.
    """

    ids: Index[tuple[int, int | None] | tuple[int]] = msgspec.field(default_factory=Index)
    count: int = 0
    answers: Index[Any] = msgspec.field(default_factory=Index)
    verbs: Index[str] = msgspec.field(default_factory=Index)


def _seen(state: Seen, event: MessageQueued) -> Seen:
    if not event.given:
        return Seen(state.ids, state.count + 1, state.answers, state.verbs)
    if event.source == "steer" and event.turn is not None:
        ids = state.ids.plus(event.id, (event.turn,))
    else:
        ids = state.ids.plus(event.id, (event.seq, event.turn))
    return Seen(ids, state.count + 1, state.answers, state.verbs)


def _verb_seen(state: Seen, event: VerbAnswered) -> Seen:
    answer = event.answer
    refused = isinstance(answer, dict) and answer.get("type") == "Refused"
    verbs = state.verbs if refused else state.verbs.plus(event.id, event.verb)
    return Seen(state.ids, state.count, state.answers.plus(f"{event.verb} {event.id}", answer), verbs)


def _shell_seen(state: Seen, _: ShellStarted) -> Seen:
    return Seen(state.ids, state.count + 1, state.answers, state.verbs)


def _forked(state: Seen, _: SessionForked) -> Seen:
    """The ids were used at another session; the count goes on, so that ids made from it stay the log's own."""
    return Seen(count=state.count)


SEEN: Projection[Seen] = table(
    "seen",
    Seen(),
    {MessageQueued: _seen, VerbAnswered: _verb_seen, ShellStarted: _shell_seen, SessionForked: _forked},
)


class OpenShell(Value, frozen=True):
    """A command of the user's own that runs."""

    id: str
    command: str


Shells: TypeAlias = tuple[OpenShell, ...]


def _shell_ended(state: Shells, event: ShellEnded) -> Shells:
    return tuple(one for one in state if one.id != event.id)


SHELLS: Projection[Shells] = table(
    "shells",
    (),
    {
        ShellStarted: lambda state, event: (*state, OpenShell(event.id, event.command)),
        ShellEnded: _shell_ended,
        SessionForked: lambda _, event: (),
    },
)
"""The commands of the user's own that run, oldest first."""

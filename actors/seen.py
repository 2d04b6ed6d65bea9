"""Two folds about verbs: which ids were used and how they were answered, and the user's own commands that run."""

from typing import Any, TypeAlias, TypeVar

import msgspec

from callboard.actors.events import MessageQueued, SessionForked, ShellEnded, ShellStarted, Value, VerbAnswered
from callboard.actors.fold import Index, Projection, table

T = TypeVar("T")

IDS_MAX = 2_000
"""An id is known for as long as a client could try again: for so many later ones, about twice as many as a mailbox
holds, and a client waits for the answers of more than that. One that is older is a new one. All that is known of them
is at most 4 MB of memory and 0.8 MB of each snapshot; with 10,000 it was 20 and 4, and 0.2 s to read."""


class Seen(Value, frozen=True):
    """Ids that senders chose, each with its answer; and how many messages were ever queued.

    `ids` has those of messages: (seq, turn), or (-1, turn) to what was steered into that turn. `answers` has, by
    `VERB ID`, what else was answered, and `verbs` which verb acted under an id. Each knows the newest IDS_MAX, and at
    most twice as many.
    """

    ids: Index[tuple[int, int | None]] = msgspec.field(default_factory=Index)
    count: int = 0
    answers: Index[Any] = msgspec.field(default_factory=Index)
    verbs: Index[str] = msgspec.field(default_factory=Index)


def _newest(index: Index[T], key: str, value: T) -> Index[T]:
    return (index if len(index) < 2 * IDS_MAX else index.newest(IDS_MAX)).plus(key, value)


def _seen(state: Seen, event: MessageQueued) -> Seen:
    if not event.given:
        return Seen(state.ids, state.count + 1, state.answers, state.verbs)
    seq = -1 if event.source == "steer" and event.turn is not None else event.seq
    return Seen(_newest(state.ids, event.id, (seq, event.turn)), state.count + 1, state.answers, state.verbs)


def _verb_seen(state: Seen, event: VerbAnswered) -> Seen:
    answer = event.answer
    refused = isinstance(answer, dict) and answer.get("type") == "Refused"
    verbs = state.verbs if refused else _newest(state.verbs, event.id, event.verb)
    return Seen(state.ids, state.count, _newest(state.answers, f"{event.verb} {event.id}", answer), verbs)


def _shell_seen(state: Seen, _: ShellStarted) -> Seen:
    return Seen(state.ids, state.count + 1, state.answers, state.verbs)


def _forked(state: Seen, _: SessionForked) -> Seen:
    """The ids were used at another session; the count goes on, so that ids made from it stay the log's own."""
    return Seen(count=state.count)


SEEN: Projection[Seen] = table(
    "seen",
    Seen(),
    {MessageQueued: _seen, VerbAnswered: _verb_seen, ShellStarted: _shell_seen, SessionForked: _forked},
    version=3,
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
    state=Shells,
)
"""The commands of the user's own that run, oldest first."""

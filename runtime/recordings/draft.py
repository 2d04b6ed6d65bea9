"""One conversation while it is being read: turns, replies, calls and the results that find their calls."""

from collections import deque
from typing import Any, Final

import attrs

from callboard.runtime.recordings.lines import Tally
from callboard.runtime.recordings.recording import RecordedCall, RecordedReply, RecordedTurn

CONTINUED: Final = "(continued)"
"""The prompt of a recording that opens with an assistant message."""
EMPTY: Final = "(empty)"
"""The prompt of a user message without any text."""


@attrs.define(eq=False)
class DraftCall:
    """A call that waits for its result; `known_as` is the id in the file, `id` the unique one."""

    id: str
    known_as: str
    name: str
    arguments: dict[str, Any] | str
    result: str | None = None
    failed: bool = False

    def done(self) -> RecordedCall:
        """The call as it will be handed out."""
        return RecordedCall(self.id, self.name, self.arguments, self.result, self.failed)


@attrs.define(eq=False)
class DraftReply:
    """An assistant message that may still get texts, calls and usage."""

    texts: list[str] = attrs.field(factory=list)
    calls: list[DraftCall] = attrs.field(factory=list)
    usage: dict[str, Any] | None = None

    def say(self, text: str) -> None:
        """Add a text block; blank ones say nothing."""
        if text.strip():
            self.texts.append(text)

    def done(self) -> RecordedReply | None:
        """The reply as it will be handed out, or None when it holds neither text nor calls."""
        if not self.texts and not self.calls:
            return None
        return RecordedReply("\n\n".join(self.texts), tuple(call.done() for call in self.calls), self.usage)


@attrs.define(eq=False)
class DraftTurn:
    """A prompt and its replies so far; `by_key` finds the reply that a message id belongs to."""

    prompt: str
    replies: list[DraftReply] = attrs.field(factory=list)
    interrupted: bool = False
    by_key: dict[str, DraftReply] = attrs.field(factory=dict)


class UniqueIds:
    """Hands out every id once: a second `a` becomes `a#2`, whatever else the file holds."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def take(self, wanted: str) -> str:
        """The wanted id, or the wanted id with the first free number."""
        name = wanted = wanted or "call"
        while name in self._taken:
            number = self._next.get(wanted, 2)
            self._next[wanted] = number + 1
            name = f"{wanted}#{number}"
        self._taken.add(name)
        return name


class Draft:
    """The turns of one agent, in the order of the file."""

    def __init__(self, tally: Tally, ids: UniqueIds) -> None:
        self.turns: list[DraftTurn] = []
        self._tally = tally
        self._ids = ids
        self._newest: dict[str, DraftCall] = {}
        self._waiting: dict[str, deque[DraftCall]] = {}
        self._early: dict[str, list[tuple[str, bool]]] = {}

    @property
    def turn(self) -> DraftTurn:
        """The turn that is going on; opened here when the file opens without a prompt."""
        if not self.turns:
            self.turns.append(DraftTurn(CONTINUED))
        return self.turns[-1]

    def prompt(self, text: str) -> DraftTurn:
        """A user message opens a turn."""
        self.turns.append(DraftTurn(text if text.strip() else EMPTY))
        return self.turns[-1]

    def reply(self, key: str = "") -> DraftReply:
        """The reply of this turn that is known by `key`; a new one if there is none, or no key."""
        turn = self.turn
        reply = turn.by_key.get(key) if key else None
        if reply is None:
            reply = DraftReply()
            turn.replies.append(reply)
            if key:
                turn.by_key[key] = reply
        return reply

    def call(self, reply: DraftReply, known_as: str, name: str, arguments: dict[str, Any] | str) -> DraftCall:
        """A tool call in this reply; an id that was there before gets a number."""
        call = DraftCall(self._ids.take(known_as), known_as, name or "unknown", arguments)
        reply.calls.append(call)
        self._newest[known_as] = call
        self._waiting.setdefault(known_as, deque()).append(call)
        return call

    def find(self, known_as: str) -> DraftCall | None:
        """The newest call that the file knows by this id."""
        return self._newest.get(known_as)

    def result(self, known_as: str, text: str, *, failed: bool) -> None:
        """A result goes to the oldest call of that id that has none; one that comes too early waits."""
        if waiting := self._waiting.get(known_as):
            call = waiting.popleft()
            call.result, call.failed = text, failed
        elif waiting is not None:
            self._tally.note("repeated result")
        else:
            self._early.setdefault(known_as, []).append((text, failed))

    def interrupt(self) -> None:
        """The turn that is going on was stopped by the user."""
        if self.turns:
            self.turns[-1].interrupted = True

    def drop(self, count: int) -> None:
        """Take the last turns back (a rollback); they are counted."""
        dropped = self.turns[-count:] if count > 0 else []
        del self.turns[len(self.turns) - len(dropped) :]
        if dropped:
            self._tally.note("turn rolled back", len(dropped))

    def finish(self) -> tuple[RecordedTurn, ...]:
        """The turns as they will be handed out; early results find their calls first."""
        for known_as, results in self._early.items():
            waiting = self._waiting.get(known_as, ())
            for call, (text, failed) in zip(waiting, results, strict=False):
                call.result, call.failed = text, failed
            if len(results) > len(waiting):
                self._tally.note("result without call", len(results) - len(waiting))
        return tuple(self._turn(turn) for turn in self.turns)

    def _turn(self, turn: DraftTurn) -> RecordedTurn:
        replies = [reply.done() for reply in turn.replies]
        if empty := replies.count(None):
            self._tally.note("message without text or calls", empty)
        return RecordedTurn(turn.prompt, tuple(filter(None, replies)), turn.interrupted)

"""Waiters: who wants to hear of which turn's end, of a message's turn, of the session's rest or of its stop."""

from collections.abc import Iterable
from typing import Any

from callboard.actors.books import Queue
from callboard.actors.errors import LogError
from callboard.actors.events import TurnEnded
from callboard.actors.messages import Answer, Idle, Interrupt, Letter, Refused, Reply, Stop, Stopped, Submit, Writes


class Waiters:
    """Replies by what they wait for; each is called exactly once."""

    __slots__ = ("_idle", "_messages", "_stop", "_turns")

    def __init__(self) -> None:
        self._turns: dict[int, list[Reply]] = {}
        self._messages: dict[str, list[Reply]] = {}
        self._idle: list[Reply] = []
        self._stop: list[Reply] = []

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._turns or self._messages or self._idle or self._stop)

    @property
    def stopping(self) -> bool:
        """Whether somebody waits for the session to stop."""
        return bool(self._stop)

    def for_turn(self, turn: int, reply: Reply) -> None:
        """Tell `reply` the end of this turn."""
        self._turns.setdefault(turn, []).append(reply)

    def for_message(self, id_: str, reply: Reply) -> None:
        """Tell `reply` the end of the turn that takes this message."""
        self._messages.setdefault(id_, []).append(reply)

    def knows(self, id_: str) -> bool:
        """Whether somebody waits already for the turn that takes this message."""
        return id_ in self._messages

    def taken(self, ids: Iterable[str], turn: int) -> None:
        """This turn starts with these messages: who waits for one of them waits for the turn."""
        if self._messages:
            for id_ in ids:
                for reply in self._messages.pop(id_, ()):
                    self.for_turn(turn, reply)

    def for_idle(self, reply: Reply) -> None:
        """Tell `reply` (None) when the session rests."""
        self._idle.append(reply)

    def for_stop(self, reply: Reply) -> None:
        """Tell `reply` when the session has stopped."""
        self._stop.append(reply)

    def ended(self, ended: TurnEnded, queue: Queue) -> None:
        """A turn's end is durable: tell its waiters, and those of messages that are no longer in the queue."""
        replies = self._turns.pop(ended.turn, [])
        if self._messages:
            queued = {message.id for message in queue}
            for id_ in [id_ for id_ in self._messages if id_ not in queued]:
                replies.extend(self._messages.pop(id_))
        for reply in replies:
            reply(ended)

    def withdrawn(self, id_: str, error: Exception) -> None:
        """A message left the queue and no turn will take it."""
        for reply in self._messages.pop(id_, ()):
            reply(error)

    def idle(self) -> None:
        """The session rests."""
        waiting, self._idle = self._idle, []
        for reply in waiting:
            reply(None)

    def stopped(self, error: Exception) -> None:
        """The session is over: nothing more will end."""
        waiting: list[Any] = [*self._turns.values(), *self._messages.values()]
        self._turns, self._messages = {}, {}
        for replies in waiting:
            for reply in replies:
                reply(error)
        self.idle()
        stop, self._stop = self._stop, []
        for reply in stop:
            reply(Stopped())


def turn_away(letter: Letter, error: Exception) -> None:
    """Answer a message that nobody will act on: what asks for an end has got it, everything else an error."""
    match letter:
        case Stop():
            letter.reply(Stopped())
        case Interrupt():
            letter.reply(Idle())
        case _:
            letter.reply(error)
            if isinstance(letter, Submit) and letter.ended is not None:
                letter.ended(error)


def refuse_stalled(letter: Writes, session: str) -> None:
    """Answer a verb that would write, because the store has not confirmed the end of its last turn."""
    detail = "the store does not confirm the end of the last turn"
    letter.reply(Refused("store_stalled", detail))
    if isinstance(letter, Submit) and letter.ended is not None:
        letter.ended(LogError(f"session {session!r}: {detail}."))


def settle(reply: Reply, answer: Answer, error: Exception | None) -> None:
    """Give the answer, or the error that kept it from being true."""
    reply(answer if error is None else error)

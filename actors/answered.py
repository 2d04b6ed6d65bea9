"""Answered: what a verb was answered by its id, so that the same verb sent twice acts once."""

from typing import TypeVar

from callboard.actors.messages import Answer

A = TypeVar("A", bound=Answer)

KEPT_MAX = 256  # ids of one session; the oldest is forgotten


class Answered:
    """Answers by the ids that senders chose; nothing is held before the first."""

    __slots__ = ("_answers",)

    def __init__(self) -> None:
        self._answers: dict[str, Answer] | None = None

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._answers)

    def get(self, id_: str | None) -> Answer | None:
        """The answer this id was given, None for a new one or for no id."""
        return None if id_ is None or self._answers is None else self._answers.get(id_)

    def keep(self, id_: str | None, answer: A) -> A:
        """Remember the answer, and give it back."""
        if id_ is not None:
            if self._answers is None:
                self._answers = {}
            if len(self._answers) >= KEPT_MAX:
                del self._answers[next(iter(self._answers))]
            self._answers[id_] = answer
        return answer

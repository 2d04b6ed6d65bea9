"""Answered: what a verb was answered by its id, so that the same verb sent twice acts once."""

from typing import TypeAlias, TypeVar

from callboard.actors.messages import Answer, Interrupt, Steer

A = TypeVar("A", bound=Answer)
Named: TypeAlias = Interrupt | Steer

KEPT_MAX = 256  # ids of one session; the oldest is forgotten


class Answered:
    """Answers by the kind of verb and the id that its sender chose; nothing is held before the first."""

    __slots__ = ("_answers",)

    def __init__(self) -> None:
        self._answers: dict[tuple[type[Named], str], Answer] | None = None

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._answers)

    def get(self, letter: Named) -> Answer | None:
        """The answer this verb was given by its id, None for a new one or for no id."""
        if letter.id is None or self._answers is None:
            return None
        return self._answers.get((type(letter), letter.id))

    def keep(self, letter: Named, answer: A) -> A:
        """Remember the answer, and give it back."""
        if letter.id is not None:
            if self._answers is None:
                self._answers = {}
            if len(self._answers) >= KEPT_MAX:
                del self._answers[next(iter(self._answers))]
            self._answers[type(letter), letter.id] = answer
        return answer

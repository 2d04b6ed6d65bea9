"""Choices: what a scenario leaves to chance, drawn by a seed, written down, played again, and made smaller."""

import random
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from callboard.actors.errors import UsageError
from callboard.actors.faults import FaultyStore, Kept
from callboard.actors.memory import MemoryStore
from callboard.actors.store import Store

T = TypeVar("T")
Fault: TypeAlias = Literal["fail", "stall", "tear"]
FAULTS: tuple[Fault, ...] = ("fail", "stall", "tear")
APPENDS_MAX = 60  # the last append that a drawn fault may hit
STALL_MAX_S = 10
PLAINEST: tuple[Kept, ...] = ("before", "after", "synced")
TOLD_MAX_CHARS = 40


class Choices:
    """Seeded choices. Each is a small number, 0 the plainest: the lowest integer, the first to pick, no.

    With `given` these are taken first, and then 0. `taken` is what was chosen so far, `told` the same for people.
    """

    def __init__(self, seed: int = 0, *, given: Sequence[int] | None = None, faults: Collection[Fault] = ()) -> None:
        if isinstance(faults, str) or not set(faults) <= set(FAULTS):
            raise UsageError(f"faults are some of {', '.join(FAULTS)}, in a list, got {faults!r:.80}.")
        if not all(isinstance(one, int) for one in given or ()):
            raise UsageError(f"choices are the whole numbers of a failure's note, got {given!r:.80}.")
        self._random = random.Random(seed)  # noqa: S311 - orders tests, guards nothing
        self._given = None if given is None else list(given)
        self._faults = faults
        self.taken: list[int] = []
        self.told: list[str] = []

    def _take(self, most: int, draw: Callable[[], int]) -> int:
        at = len(self.taken)
        given = 0 if self._given is None or at >= len(self._given) else self._given[at]
        found = draw() if self._given is None else max(0, min(given, most))
        self.taken.append(found)
        return found

    def _tell(self, value: T) -> T:
        self.told.append(repr(value)[:TOLD_MAX_CHARS])
        return value

    def integer(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        if not all(isinstance(one, int) for one in (low, high)):
            raise UsageError(f"integer takes two whole numbers, got {low!r:.80} and {high!r:.80}.")
        if high < low:
            raise UsageError(f"there is no number from {low} to {high}: give the lower one first.")
        return self._tell(low + self._take(high - low, lambda: self._random.randint(0, high - low)))

    def pick(self, among: Sequence[T]) -> T:
        """One of these; put the plainest first."""
        if not isinstance(among, Sequence):
            raise UsageError(f"pick takes a list, whose order is always the same, got {among!r:.80}.")
        if not among:
            raise UsageError("there is nothing to pick from: give one thing at least.")
        return self._tell(among[self._take(len(among) - 1, lambda: self._random.randrange(len(among)))])

    def chance(self, of: float = 0.5) -> bool:
        """Yes with a probability from 0 to 1."""
        given: Any = of
        if not isinstance(given, int | float) or not 0 <= given <= 1:
            raise UsageError(f"chance takes a probability from 0 to 1, got {given!r:.80}.")
        return self._tell(bool(self._take(1 if of > 0 else 0, lambda: int(self._random.random() < of))))

    def store(self, inner: Store | None = None) -> FaultyStore:
        """A store with the faults that `seeded_run(..., faults=...)` allows, at appends chosen here."""
        at: dict[Fault, int | None] = {
            fault: self.integer(1, APPENDS_MAX) for fault in FAULTS if fault in self._faults and self.chance()
        }
        kept = self.pick(PLAINEST) if at.get("tear") else PLAINEST[0]
        stall_s = self.integer(1, STALL_MAX_S) if at.get("stall") else None
        return FaultyStore(
            MemoryStore() if inner is None else inner,
            at.get("fail"),
            at.get("stall"),
            at.get("tear"),
            kept=kept,
            stall_s=stall_s,
        )


def shrunk(values: Sequence[int], fails: Callable[[list[int]], Sequence[int] | None], runs_max: int) -> list[int]:
    """The smallest list found within so many calls of `fails`, which says what was used of a list that still fails.

    Smaller is shorter, then lower. Zeros at the end count for nothing, because they are there unasked.
    """
    shrinking = _Shrinking(fails, runs_max, _plain(values))
    while shrinking.delete() or shrinking.lower():
        pass
    return shrinking.best


def _plain(values: Sequence[int]) -> list[int]:
    found = list(values)
    while found and not found[-1]:
        found.pop()
    return found


class _Shrinking:
    """The smallest list so far; each method says whether it found a smaller one."""

    def __init__(self, fails: Callable[[list[int]], Sequence[int] | None], runs_max: int, best: list[int]) -> None:
        self._fails, self._left, self.best = fails, runs_max, best
        self._tried: set[tuple[int, ...]] = {tuple(best)}

    def _try(self, values: list[int]) -> bool:
        plain = _plain(values)
        if self._left <= 0 or tuple(plain) in self._tried:
            return False
        self._left -= 1
        self._tried.add(tuple(plain))
        used = self._fails(plain)
        if used is None:
            return False
        found = _plain(used)
        if (len(found), found) >= (len(self.best), self.best):
            return False
        self.best = found
        return True

    def delete(self) -> bool:
        """Leave out parts, large ones first."""
        before, size = self.best, len(self.best)
        while size:
            start = len(self.best) - size
            while start >= 0:
                self._try(self.best[:start] + self.best[start + size :])
                start = min(start, len(self.best)) - size
            size //= 2
        return self.best is not before

    def lower(self) -> bool:
        """Make one number after the other as low as it gets."""
        before = self.best
        for at in range(len(before)):
            low = 0
            while at < len(self.best) and low < self.best[at]:
                middle = (low + self.best[at]) // 2 if low else 0
                if not self._try([*self.best[:at], middle, *self.best[at + 1 :]]):
                    low = middle + 1
        return self.best is not before

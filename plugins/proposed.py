"""proposed: takes the plan out of what a model says in Plan mode: `<proposed_plan>` alone on its line, to its end."""

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from callboard.actors.events import Event
from callboard.actors.facts import PlanProposed

OPENING = "<proposed_plan>"
CLOSING = "</proposed_plan>"

Part: TypeAlias = Literal["text", "plan"]
Piece: TypeAlias = tuple[Part, str]


def plan_id(turn: int) -> str:
    """The id of the plan that a turn proposes; of several the last is the plan."""
    return f"{turn}-plan"


class _Line:
    """The line that has begun, held back for as long as it may still be a tag and nothing else.

    Each piece is looked at once, whatever its size and the number of pieces.
    """

    __slots__ = ("_held", "_loose", "_said")

    def __init__(self) -> None:
        self._held: list[str] = []
        self._said = ""  # of what is held: without the blanks around it
        self._loose = False  # it is no tag, and what comes of it is shown at once

    def add(self, piece: str, tag: str) -> str:
        """What may be shown now that `piece` of the line has come."""
        if self._loose or not piece:
            return piece
        self._held.append(piece)
        if self._said == tag:
            fits = not piece.strip()
        else:
            said = self._said + (piece if self._said else piece.lstrip())
            fits = tag.startswith(said) or said.rstrip() == tag
            self._said = said.rstrip() if fits else ""
        if fits:
            return ""
        self._loose = True
        return self._let_go()

    def end(self, tag: str) -> tuple[bool, str]:
        """The line is over: whether it was the tag, and what of it was held back."""
        is_tag = not self._loose and self._said == tag
        rest = self._let_go()
        self._said, self._loose = "", False
        return is_tag, rest

    def _let_go(self) -> str:
        held = "".join(self._held)
        self._held.clear()
        return held


class Blocks:
    """Cuts a text, in whatever pieces it comes, into what is said and what is in blocks; without the lines of the tags.

    Code fences mean nothing to it. A tag of opening inside a block is part of the plan, one of closing outside is text,
    and a block that is open at the end is closed by it.
    """

    __slots__ = ("_line", "opened", "within")

    def __init__(self) -> None:
        self._line = _Line()
        self.within = False
        self.opened = 0  # how many blocks there were

    def feed(self, piece: str) -> Iterator[Piece]:
        """The parts that are certain, in order."""
        lines = piece.split("\n")
        for line in lines[:-1]:
            yield from self._part(self._line.add(line, self._tag))
            yield from self._over("\n")
        yield from self._part(self._line.add(lines[-1], self._tag))

    def end(self) -> Iterator[Piece]:
        """The last line, which nothing ends."""
        yield from self._over("")

    @property
    def _tag(self) -> str:
        return CLOSING if self.within else OPENING

    def _over(self, ending: str) -> Iterator[Piece]:
        is_tag, rest = self._line.end(self._tag)
        if is_tag:
            self.within = not self.within
            self.opened += self.within
        else:
            yield from self._part(rest + ending)

    def _part(self, text: str) -> Iterator[Piece]:
        if text:
            yield "plan" if self.within else "text", text


class Proposals:
    """The filter of one model request of turn `turn`: see `actors.plugin.TextFilter`."""

    __slots__ = ("_blank", "_blocks", "_turn")

    def __init__(self, turn: int) -> None:
        self._turn = turn
        self._blocks = Blocks()
        self._blank: list[str] | None = []  # what came before the first word; None once it was said

    def feed(self, piece: str) -> Sequence[Piece]:
        """Parts to show now; blanks before the first word, and what may become a tag, are held back."""
        return tuple(self._shown(self._blocks.feed(piece)))

    def end(self) -> Sequence[Piece]:
        """What was held back; blanks that nothing followed are never shown."""
        return tuple(self._shown(self._blocks.end()))

    def _shown(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        for part, text in pieces:
            if part == "plan" or self._blank is None:
                yield part, text
            elif text.strip():
                said = "".join((*self._blank, text))
                self._blank = None
                yield part, said
            else:
                self._blank.append(text)

    def read(self, text: str) -> tuple[str, Sequence[Event]]:
        """What is said beside the plan, nothing when that is blank; and the plan of the last block, if it has any."""
        said, plan = read_blocks(text)
        return said, () if plan is None or not plan.strip() else (PlanProposed(plan_id(self._turn), plan),)

    def cut(self, text: str) -> str:
        """What is said beside a plan that was cut off: that is no plan."""
        return read_blocks(text)[0]


def read_blocks(text: str) -> tuple[str, str | None]:
    """What a whole text says outside of its blocks, and what the last block holds; None without any."""
    blocks, said = Blocks(), []
    plans: list[list[str]] = []
    for feed in (blocks.feed(text), blocks.end()):
        for part, piece in feed:
            if part == "text":
                said.append(piece)
                continue
            plans.extend([] for _ in range(blocks.opened - len(plans)))
            plans[-1].append(piece)
    plans.extend([] for _ in range(blocks.opened - len(plans)))
    outside = "".join(said)
    return outside if outside.strip() else "", "".join(plans[-1]) if plans else None

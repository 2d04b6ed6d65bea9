"""prompts: a question, an approval or a proposed plan as lines for people, and what a typed line says; pure."""

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import msgspec
from rich.text import Text

from callboard.actors.facts import ApprovalAsked, QuestionAsked
from callboard.actors.messages import UserDecision
from callboard.plugins.handovers import Proposal
from callboard.runtime.doors.board import TEXT_MAX_CHARS
from callboard.runtime.doors.wording import paragraphs

Asked: TypeAlias = QuestionAsked | ApprovalAsked | Proposal
Uptake: TypeAlias = Literal["implement", "clear", "stay"]

ANSWER_HINT = "a number, a number and a text as in `1: today`, or a text of your own; Enter alone answers nothing"
APPROVE_HINT = "a number, or what should be done instead; Enter alone denies it"
CHOICES = ("allow this call", "allow {tool} for this session", "deny")
ALLOWS = frozenset({"1", "y", "yes"})
ALLOWS_TOOL = frozenset({"2", "a", "always"})
DENIES = frozenset({"", "3", "n", "no"})
IMPLEMENT_IT = "Implement this plan?"
UPTAKES = (
    "yes, here, in the default mode",
    "yes, with a cleared context: in a new session that is given the plan",
    "no, stay in Plan mode",
)
UPTAKE_HINT = "a number; Enter alone stays in Plan mode"
NO_UPTAKE = "that is none of the choices: type 1, 2 or 3."
IMPLEMENTS = frozenset({"1", "y", "yes", "implement"})
CLEARS = frozenset({"2", "c", "clear"})
STAYS = frozenset({"", "3", "n", "no", "stay"})


def lines_of(asked: Asked, room: int, who: str = "") -> list[Text]:
    """What is asked, its numbered choices, and what can be typed, in `room` cells; `who` asks, if not the root."""
    match asked:
        case QuestionAsked():
            told = _question(asked, room)
        case ApprovalAsked():
            told = _approval(asked, room)
        case Proposal():
            told = _proposal(room)
    first = paragraphs(f"{who}:", room, "bold", "? ") if who else ()
    return [*first, *told]


def _question(asked: QuestionAsked, room: int) -> Iterator[Text]:
    if asked.detail:
        yield from _whole(asked.detail, room, "", "  ")
    head = f"{asked.header} - " if asked.header.strip() else ""
    yield from _whole(f"{head}{asked.question}", room, "bold", "? ")
    for number, option in enumerate(asked.options, 1):
        more = f" - {option.description}" if option.description.strip() else ""
        yield from _whole(f"{option.label}{more}", room, "", f"  {number}. ")
    yield from paragraphs(ANSWER_HINT, room, "dim", "  ")


def _approval(asked: ApprovalAsked, room: int) -> Iterator[Text]:
    """All that the call says, not only how it begins: who allows it has to see it."""
    yield from _whole(f"{asked.tool} needs your approval:", room, "bold", "? ")
    yield from _whole(written(asked.arguments), room, "", "  ")
    for number, choice in enumerate(CHOICES, 1):
        yield from _whole(choice.format(tool=asked.tool), room, "", f"  {number}. ")
    yield from paragraphs(APPROVE_HINT, room, "dim", "  ")


def _proposal(room: int) -> Iterator[Text]:
    """The plan itself was told when it was proposed."""
    yield from paragraphs(IMPLEMENT_IT, room, "bold", "? ")
    for number, choice in enumerate(UPTAKES, 1):
        yield from paragraphs(choice, room, "", f"  {number}. ")
    yield from paragraphs(UPTAKE_HINT, room, "dim", "  ")


def _whole(text: str, room: int, style: str, mark: str) -> Iterator[Text]:
    """The text with its own lines, none of them cut at its end."""
    pieces: list[str] = []
    for line in text.splitlines() or [""]:
        pieces += [line[at : at + TEXT_MAX_CHARS] for at in range(0, max(1, len(line)), TEXT_MAX_CHARS)]
    return paragraphs("\n".join(pieces), room, style, mark)


def written(arguments: Any) -> str:
    """The arguments of a call, one to a line."""
    if isinstance(arguments, str):
        return arguments
    return msgspec.json.format(msgspec.json.encode(arguments, enc_hook=str), indent=2).decode()


def answer_in(asked: QuestionAsked, line: str) -> tuple[tuple[str, ...], str | None]:
    """The choices and the text that a line says: a number of a choice or its label, with `: TEXT` behind it, or a text.

    Nothing at all is an answer without either, which dismisses the question.
    """
    said = line.strip()
    labels = [option.label for option in asked.options]
    if said in labels:
        return (said,), None
    head, colon, rest = said.partition(":")
    number = head.strip()
    if number.isascii() and number.isdigit() and len(number) < 4 and 0 < int(number) <= len(labels):
        return (labels[int(number) - 1],), (rest.strip() or None) if colon else None
    return (), said or None


def decision_in(line: str) -> tuple[UserDecision, str | None]:
    """The decision that a line says; whatever is none of the choices denies the call, and is the feedback."""
    said = line.strip()
    word = said.lower().rstrip(".")
    if word in ALLOWS:
        return "allow_once", None
    if word in ALLOWS_TOOL:
        return "allow_session", None
    return "deny", None if word in DENIES else said


def uptake_in(line: str) -> Uptake | None:
    """What is to become of a plan, by the line; None: it says nothing of that."""
    word = line.strip().lower().rstrip(".")
    if word in IMPLEMENTS:
        return "implement"
    if word in CLEARS:
        return "clear"
    return "stay" if word in STAYS else None

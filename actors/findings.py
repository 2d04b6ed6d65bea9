"""Findings: what a reviewer is told, how its answer is read, and how people and the model read the result."""

from typing import Annotated

import msgspec

from callboard.actors.facts import Finding, ReviewEnded
from callboard.actors.receipts import clean_text

REVIEWER = """\
You review work that somebody else did. You change nothing: read, search, run what only looks, and report.

Report a finding only if its author would want to mend it once told: it is a real fault or risk, it came with the work
under review, and you can say where it shows and under which circumstances. Leave out matters of taste and what you only
guess. Check each one against the code before you report it; no finding at all is a good answer too.

For each finding: a title of one line in the imperative; a body of at most one paragraph that says what happens, when,
and why, without blame; your confidence that it is real, from 0 to 1; a priority, 0 for what must be mended at once, 1
for the next occasion, 2 for some time, 3 for nice to have; the file and the shortest range of lines that shows it.

Answer with one JSON object and nothing around it:
{"findings": [{"title": "...", "body": "...", "confidence": 0.9, "priority": 1, "file": "path", "first_line": 10,
"last_line": 12}], "explanation": "whether the work is right as a whole, in one to three sentences"}"""

# The reviewer works alone, and on what is here.
WITHHELD = (
    *("spawn_agent", "send_message", "followup_task", "wait_agent", "interrupt_agent", "list_agents", "close_agent"),
    *("report", "web_search"),
)

UNUSABLE = "The reviewer gave no answer that can be used. Ask for the review again, perhaps of a smaller part."
INTERRUPTED = "The review was interrupted before it had a result. Ask for it again to have one."

_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Priority = Annotated[int, msgspec.Meta(ge=0, le=3)]
_Line = Annotated[int, msgspec.Meta(ge=1)]


class _Finding(msgspec.Struct):
    title: Annotated[str, msgspec.Meta(min_length=1)]
    body: str
    confidence: _Share
    priority: _Priority
    file: str
    first_line: _Line
    last_line: _Line


class _Review(msgspec.Struct):
    findings: list[_Finding]
    explanation: str = ""


_read = msgspec.json.Decoder(_Review).decode


def read(text: str) -> tuple[tuple[Finding, ...], str]:
    """The findings and the explanation of a reviewer's answer.

    The whole text as JSON, else from its first brace to its last; else no findings, and all of it as the explanation.
    """
    whole = clean_text(text).strip()
    for part in (whole, whole[whole.find("{") : whole.rfind("}") + 1]):
        try:
            review = _read(part)
        except (msgspec.MsgspecError, RecursionError):
            continue
        return tuple(_kept(one) for one in review.findings), clean_text(review.explanation).strip()
    return (), whole


def _kept(one: _Finding) -> Finding:
    last = max(one.first_line, one.last_line)
    title, body, file = clean_text(one.title), clean_text(one.body), clean_text(one.file)
    return Finding(title, body, one.confidence, one.priority, file, one.first_line, last)


def result(ended: ReviewEnded) -> str:
    """All of it, as the model reads it."""
    parts = [f"{_head(one)}\n{one.body}" for one in ended.findings]
    return "\n\n".join((*parts, ended.explanation) if ended.explanation else parts)


def summary(ended: ReviewEnded) -> str:
    """What the session says about it."""
    if ended.ending != "completed":
        return ended.explanation
    count = len(ended.findings)
    head = "The review found nothing." if not count else f"The review has {count} finding{'s' if count > 1 else ''}:"
    lines = [head, *(f"- {_head(one)}" for one in ended.findings)]
    return "\n".join((*lines, ended.explanation) if ended.explanation else lines)


def _head(one: Finding) -> str:
    lines = str(one.first_line) if one.last_line == one.first_line else f"{one.first_line}-{one.last_line}"
    return f"[P{one.priority}] {one.title} ({one.file}:{lines}, confidence {one.confidence:.2g})"


def fragment(what: str, ended: ReviewEnded) -> str:
    """The message that tells the model what the user had done, and what came of it."""
    return f"<user_action>\nThe user had a review made of: {what}\nIts result:\n{result(ended)}\n</user_action>"

"""What callers hand to the verbs, checked before it becomes a message: texts, ids, schemas."""

import typing
from collections.abc import Sequence
from typing import Any

import msgspec

from callboard.actors.asked import TEXT_MAX_CHARS
from callboard.actors.errors import UsageError
from callboard.actors.messages import UserDecision
from callboard.actors.receipts import clean_text
from callboard.actors.results import describe

ID_MAX_CHARS = 200
SCHEMA_MAX_BYTES = 256 * 1024  # of a schema as JSON; every prompt of its turn carries it
DECISIONS: tuple[str, ...] = typing.get_args(UserDecision)
CHOICES_MAX = 100  # of one answer; a question takes one
OWN_PREFIXES = (  # of ids that are given here and by plugins
    *("auto:", "child:", "mail:", "schedule:", "goal:", "shell:"),
    *("answer:", "approved:", "handover:", "plan:"),
)


def check_submit(text: Any, id_: Any, text_max_chars: int, verb: str = "submit") -> str:
    """The text as it can be kept; `UsageError` for one that is empty, too long, or no text, and for a bad id."""
    checked = check_steer(text, id_, text_max_chars, verb)
    if not checked.strip():
        raise UsageError(f"{verb} got an empty text: write what the session should do.")
    return checked


def check_steer(given: Any, id_: Any, text_max_chars: int, verb: str = "steer") -> str:
    """The same for verbs that answer an empty text with a refusal."""
    if not isinstance(given, str):
        raise UsageError(f"{verb} takes text, got {type(given).__name__}.")
    if len(given) > text_max_chars:
        raise UsageError(
            f"{verb} got {len(given):,} characters: at most {text_max_chars:,}; put it into a file instead."
        )
    check_id(id_)
    if id_ is not None and id_.startswith(OWN_PREFIXES):
        raise UsageError(f"message ids that begin with {id_.split(':')[0]}: are given by the session; choose another.")
    return clean_text(given)


def check_id(id_: Any) -> None:
    """`UsageError` for an id that is neither None nor fit to be kept."""
    if id_ is not None and not (isinstance(id_, str) and 0 < len(id_) <= ID_MAX_CHARS and id_.isprintable()):
        raise UsageError(f"a message id is 1 to {ID_MAX_CHARS} printable characters, got {id_!r:.80}.")


def check_answer(question: Any, choices: Any, text: Any) -> tuple[str, ...]:
    """The choices of an answer; `UsageError` for what cannot be one, whatever the question is."""
    _check_asked("answer", "question", question)
    if isinstance(choices, str) or not isinstance(choices, Sequence):
        raise UsageError(f"answer takes a list of choices, such as ['yes'], got {choices!r:.80}.")
    if len(choices) > CHOICES_MAX or not all(isinstance(one, str) for one in choices):
        raise UsageError(f"answer takes labels as choices, at most {CHOICES_MAX}, got {list(choices[:3])!r:.80}.")
    _check_said("answer", "text", text)
    return tuple(clean_text(one[: TEXT_MAX_CHARS + 1]) for one in choices)


def check_approve(call: Any, decision: Any, feedback: Any) -> None:
    """`UsageError` for what cannot settle a request for approval."""
    _check_asked("approve", "call", call)
    if decision not in DECISIONS:
        raise UsageError(f"approve takes {', '.join(DECISIONS[:-1])} or {DECISIONS[-1]}, got {decision!r:.80}.")
    _check_said("approve", "feedback", feedback)
    if feedback is not None and decision != "deny":
        raise UsageError(f"approve takes feedback with deny alone: send it as a message instead, got {feedback!r:.80}.")


def _check_asked(verb: str, what: str, id_: Any) -> None:
    if not isinstance(id_, str) or not id_:
        raise UsageError(f"{verb} takes the id of a {what} as text, got {id_!r:.80}.")


def _check_said(verb: str, what: str, text: Any) -> None:
    if text is not None and not isinstance(text, str):
        raise UsageError(f"{verb} takes {what} as text, got {type(text).__name__}.")
    if text is not None and len(text) > TEXT_MAX_CHARS:
        raise UsageError(f"{verb} got {len(text):,} characters of {what}: at most {TEXT_MAX_CHARS:,}.")


def check_schema(schema: Any) -> Any:
    """A JSON schema as plain values, None without one; `UsageError` for what is no JSON object, or too large."""
    if schema is None:
        return None
    try:
        body = msgspec.json.encode(schema)
        plain = msgspec.json.decode(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"schema takes a JSON schema as a dict, got {type(schema).__name__}: {describe(error)}."
        ) from None
    if not isinstance(plain, dict):
        raise UsageError(f"schema takes a JSON schema as a dict, got {type(schema).__name__}.")
    if len(body) > SCHEMA_MAX_BYTES:
        raise UsageError(f"schema has {len(body):,} bytes as JSON: at most {SCHEMA_MAX_BYTES:,}.")
    return plain


def same_json(left: Any, right: Any) -> bool:
    """Whether two are the same JSON value: the order of keys does not count, but 1, 1.0 and true are three values."""
    try:
        return msgspec.json.encode(left, order="sorted") == msgspec.json.encode(right, order="sorted")
    except (TypeError, ValueError, RecursionError):
        return False

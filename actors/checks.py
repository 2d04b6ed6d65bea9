"""What callers hand to the verbs, checked before it becomes a message: texts, ids, schemas."""

from typing import Any

import msgspec

from callboard.actors.errors import UsageError
from callboard.actors.receipts import clean_text
from callboard.actors.results import describe

ID_MAX_CHARS = 200
SCHEMA_MAX_BYTES = 256 * 1024  # of a schema as JSON; every prompt of its turn carries it
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

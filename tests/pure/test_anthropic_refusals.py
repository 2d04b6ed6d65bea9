"""Refusals that only Anthropic writes: credit and limits of spending by their codes, and resets of tokens by kind."""

from typing import Any

import pytest

from callboard.runtime.models.anthropic_dialect import OPTIONS
from callboard.runtime.models.dialect import learned
from callboard.runtime.models.refusals import Asked, Refusal, judged, refusal_of

HOST = "api.anthropic.com"
ASKED = Asked(model="claude-x", host=HOST, variable="ANTHROPIC_API_KEY")
DATE = "Tue, 01 Dec 2026 10:00:00 GMT"
NO_QUOTA = f"{HOST} has no quota left for this account: add credit or raise its limit, then ask again."


def body(message: str, kind: str = "invalid_request_error", **more: Any) -> dict[str, Any]:
    """An error as it comes."""
    return {"type": "error", "error": {"type": kind, "message": message, **more}, "request_id": "req_1"}


CREDIT = "Your credit balance is too low to access the Anthropic API."
SPENT = {"details": {"error_code": "enforced_spend_limit_reached"}}
CASES: dict[str, tuple[int, dict[str, str], Any, str, bool, float | None]] = {
    "credit": (400, {}, body(CREDIT), NO_QUOTA, False, None),
    "spent": (429, {"retry-after": "7"}, body("Limit.", "rate_limit_error", **SPENT), NO_QUOTA, False, None),
    "odd details": (
        *(429, {}, body("Slow.", "rate_limit_error", details=["x"])),
        *(f"{HOST} limits how often it is asked: Slow.", True, None),
    ),
    "growing too fast": (
        429,
        {"retry-after": "7"},
        body("Slow.", "rate_limit_error", details={"error_code": "ramp_limit_exceeded"}),
        f"{HOST} limits how often it is asked: Slow.",
        True,
        7.0,
    ),
    "tokens of answers": (
        429,
        {
            "date": DATE,
            "anthropic-ratelimit-input-tokens-remaining": "5000",
            "anthropic-ratelimit-input-tokens-reset": "2026-12-01T10:00:50Z",
            "anthropic-ratelimit-output-tokens-remaining": "0",
            "anthropic-ratelimit-output-tokens-reset": "2026-12-01T10:00:09Z",
        },
        body("Slow.", "rate_limit_error"),
        f"{HOST} limits how often it is asked: Slow.",
        True,
        9.0,
    ),
}


@pytest.mark.parametrize(("status", "headers", "given", "text", "again", "after_s"), CASES.values(), ids=CASES)
def test_what_it_means(status, headers, given, text, again, after_s):
    """Spent money is not waited for, and a limit is waited for until it begins anew."""
    error = judged(refusal_of(given, status=status, headers=headers), ASKED)
    assert (text, again, after_s) == (str(error), error.retryable, error.retry_after_s)


ALL = frozenset({"adaptive", "budget", "cache", "effort", "off", "output", "schema", "thoughts"})
LEARNED: dict[str, tuple[str, frozenset[str], dict[str, Any], bool]] = {
    "one schema": ("output_config.format.schema: For 'array' type, minItems is 2", ALL, {"schema": False}, True),
    "a large schema": ("The compiled grammar is too large.", ALL, {"schema": False}, True),
    "no formats": ("output_config.format: Extra inputs are not permitted", ALL, {"schema": False}, False),
    "a schema of a tool": ("tools.0.custom.input_schema: JSON schema is invalid", ALL, {}, False),
    "always thinks": (
        "thinking.type.disabled is not supported for this model.",
        frozenset({"cache", "off"}),
        {"off": False},
        False,
    ),
    "a seal": ("messages.1.content.0: Invalid `signature` in `thinking` block", ALL, {"thoughts": False}, True),
}


@pytest.mark.parametrize(("message", "sent", "gone", "once"), LEARNED.values(), ids=LEARNED)
def test_what_is_learned_of_it(message, sent, gone, once):
    """A schema that cannot be said is about that one answer; a server without formats has none for any."""
    change = learned(OPTIONS, Refusal(status=400, type="invalid_request_error", message=message), "", sent)
    assert (gone, once) == (({}, False) if change is None else (dict(change.gone), change.once))

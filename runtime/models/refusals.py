"""What a provider's refusal means: what the user reads, whether it is asked again, and after how long."""

import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any, Final, Literal

import attrs

from callboard.actors.errors import ModelError
from callboard.actors.model import STREAM_CLOSED
from callboard.runtime.models.wire import hidden

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
CAUSES_MAX = 50  # errors looked at behind one


@attrs.frozen(kw_only=True)
class Refusal:
    """What came back instead of an answer: `status` 0 in the middle of a stream; header names in lower case."""

    status: int = 0
    code: str = ""
    type: str = ""
    message: str = ""
    headers: Mapping[str, str] = NOTHING


@attrs.frozen(kw_only=True)
class Asked:
    """Who was asked, for the sentence a user reads; `secrets` are in none."""

    model: str
    host: str
    variable: str
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)


class Refused(Exception):
    """The server answered with an error; `param` names the part of the request that it is about."""

    def __init__(self, refusal: Refusal, param: str) -> None:
        super().__init__(f"refused with {refusal.status}")
        self.refusal, self.param = refusal, param


class Unreached(Exception):
    """There was no connection, or it broke; its cause says how."""


@attrs.frozen
class Case:
    """One kind of refusal: a code or type, or words of its message under a status, or a status alone."""

    name: str
    text: str
    retryable: bool = False
    statuses: tuple[int, ...] = ()
    codes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    kind: Literal["other", "overflow"] = "other"

    def fits(self, refusal: Refusal) -> bool:
        """Whether this refusal is of this kind."""
        if refusal.code in self.codes or (refusal.type in self.codes and not (self.statuses and refusal.status)):
            return True
        if self.statuses and refusal.status not in self.statuses:
            return False
        if self.words:
            message = refusal.message.lower()
            return any(word in message for word in self.words)
        return bool(self.statuses)


OVERFLOW_WORDS: Final = (
    "context length",
    "context window",
    "context_length",
    "context size",
    "maximum context",
    "context limit",
    "prompt is too long",
    "input is too long",
    "too many input tokens",
)

# The first that fits. {said} is what the provider wrote, on one line and cut; a colon before it goes when it is empty.
CASES: Final = (
    Case(
        "overflow",
        "the conversation does not fit the window of {model}: {said}",
        statuses=(0, 400, 413, 422, 500),
        codes=("context_length_exceeded", "exceed_context_size_error"),
        words=OVERFLOW_WORDS,
        kind="overflow",
    ),
    Case(
        "quota",
        "{host} has no quota left for this account: add credit or raise its limit, then ask again.",
        codes=(
            *("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error"),
            *(
                "enforced_spend_limit_reached",
                "contract_spend_limit_reached",
                "linked_organization_spend_limit_reached",
            ),
        ),
        words=("credit balance is too low",),
    ),
    Case("payment", "{host} wants to be paid before it answers (402): add credit, then ask again.", statuses=(402,)),
    Case(
        "key",
        "{host} does not accept the key: set {variable} to a valid one.",
        statuses=(401,),
        codes=("invalid_api_key", "authentication_error"),
    ),
    Case(
        "permission",
        "{host} does not let this key use {model}: {said}",
        statuses=(403,),
        codes=("permission_error", "unsupported_country_region_territory"),
    ),
    Case(
        "model",
        "{host} has no model {model!r}: check the name, or base_url.",
        statuses=(404,),
        codes=("model_not_found", "not_found_error"),
    ),
    Case("timeout", "{host} gave up waiting (408): {said}", retryable=True, statuses=(408,)),
    Case("conflict", "{host} was changing what this needs (409): {said}", retryable=True, statuses=(409,)),
    Case(
        "large",
        "the request is larger than {host} takes: compact the session, or have tools return less.",
        statuses=(413,),
        codes=("request_too_large",),
    ),
    Case(
        "rate",
        "{host} limits how often it is asked: {said}",
        retryable=True,
        statuses=(429,),
        codes=("rate_limit_exceeded", "rate_limit_error", "tokens", "requests", "slow_down"),
    ),
    Case(
        "overloaded",
        "{host} has too much to do: {said}",
        retryable=True,
        statuses=(503, 529),
        codes=("overloaded_error", "server_overloaded", "engine_overloaded"),
    ),
    Case(
        "content",
        "{host} refused this on grounds of its content: {said}",
        codes=("content_filter", "content_policy_violation", "bio_policy", "misalignment_policy_violation"),
    ),
    Case("prompt", "{host} did not take the request: {said}", codes=("invalid_prompt", "invalid_request_error")),
    Case("request", "{host} did not take the request: {said}", statuses=(400, 422)),
    Case(
        "server",
        "{host} failed: {said}",
        retryable=True,
        statuses=tuple(range(500, 600)),
        codes=("server_error", "internal_error", "internal_server_error", "api_error", "timeout_error"),
    ),
    Case("moved", "{host} answers from another address ({status}): correct base_url.", statuses=tuple(range(300, 400))),
    Case("stream", "{host} broke off its answer: {said}", retryable=True, statuses=(0,)),
)
OTHER: Final = Case("other", "{host} refused ({status}): {said}")

# Errors on the way, from the most telling kind to the least; the first that fits any cause of it.
RESET: Final = Case("reset", STREAM_CLOSED, retryable=True)
CONNECTIONS: Final[tuple[tuple[Case, tuple[type[BaseException], ...], tuple[str, ...]], ...]] = (
    (
        Case("certificate", "the certificate of {host} is not trusted: {said}"),
        (ssl.SSLCertVerificationError,),
        (),
    ),
    (Case("tls", "no secure connection to {host}: check whether base_url is https there."), (ssl.SSLError,), ()),
    (
        Case("name", "no address is known for {host}: check base_url and the network.", retryable=True),
        (socket.gaierror,),
        (),
    ),
    (
        Case("refused", "nothing listens at {host}: check base_url, or start the server.", retryable=True),
        (ConnectionRefusedError,),
        (),
    ),
    (Case("connect", "{host} did not take a connection in time.", retryable=True), (), ("ConnectTimeout",)),
    (Case("silent", "{host} was silent for too long.", retryable=True), (TimeoutError,), ("ReadTimeout",)),
    (Case("crowded", "no connection to {host} was free in time.", retryable=True), (), ("PoolTimeout",)),
    (Case("slow", "{host} took the request too slowly.", retryable=True), (), ("WriteTimeout",)),
    (
        RESET,
        (ConnectionResetError, BrokenPipeError, EOFError),
        (
            "RemoteProtocolError",
            "ReadError",
            "WriteError",
            "CloseError",
            "DecodingError",
            "BrokenResourceError",
            "ClosedResourceError",
        ),
    ),
)
UNREACHED: Final = Case("unreached", "{host} cannot be reached: {said}", retryable=True)


def judged(refusal: Refusal, asked: Asked) -> ModelError:
    """The error for what a provider refused."""
    case = next((case for case in CASES if case.fits(refusal)), OTHER)
    text = _told(case, asked, refusal.message, refusal.status)
    wait_s = advised_s(refusal) if case.retryable else None
    return ModelError(text, retryable=case.retryable, retry_after_s=wait_s, kind=case.kind)


def unreachable(error: BaseException, asked: Asked) -> ModelError:
    """The error for a connection that could not be made, or that broke."""
    causes = tuple(_causes(error))
    for case, kinds, names in CONNECTIONS:
        for cause in causes:
            if isinstance(cause, kinds) or type(cause).__name__ in names:
                return ModelError(_told(case, asked, str(cause), 0), retryable=case.retryable)
    return ModelError(_told(UNREACHED, asked, str(causes[-1]), 0), retryable=True)


def _told(case: Case, asked: Asked, message: str, status: int) -> str:
    said = hidden(message, asked.secrets)
    text = case.text if said else case.text.replace(": {said}", ".")
    return text.format(said=said, model=asked.model, host=asked.host, variable=asked.variable, status=status)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it came from, groups opened."""
    todo, seen = [error], set[int]()
    while todo and len(seen) < CAUSES_MAX:
        one = todo.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, BaseExceptionGroup):
            todo.extend(one.exceptions)
        todo.extend(part for part in (one.__cause__, one.__context__) if part is not None)


_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_AGAIN = re.compile(r"try again in ((?:\d+(?:\.\d+)?(?:ms|h|m|s))+)")
_UNIT_S: Final[Mapping[str, float]] = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
ANTHROPIC_LIMITS: Final = ("requests", "tokens", "input-tokens", "output-tokens")
_LIMITED: Final = (("x-ratelimit-", ("requests", "tokens")), ("anthropic-ratelimit-", ANTHROPIC_LIMITS))


def advised_s(refusal: Refusal) -> float | None:
    """How long the provider asks to wait, in seconds; None when it does not say."""
    headers = refusal.headers
    advised = _number(headers.get("retry-after-ms"), 0.001)
    if advised is None:
        after = headers.get("retry-after")
        advised = _number(after, 1.0)
        advised = _until(after, headers) if advised is None else advised
    if advised is None and refusal.status == 429:
        advised = _reset_s(headers)
    if advised is None:
        again = _AGAIN.search(refusal.message)
        advised = _span_s(again[1]) if again else None
    return advised


def _reset_s(headers: Mapping[str, str]) -> float | None:
    """When the last of the limits that are used up begins anew."""
    waits = [
        _span_s(text) if (until := _until(text, headers)) is None else until
        for start, kinds in _LIMITED
        for kind in kinds
        for remaining, reset in (
            (f"{start}remaining-{kind}", f"{start}reset-{kind}"),
            (f"{start}{kind}-remaining", f"{start}{kind}-reset"),
        )
        if (text := headers.get(reset)) and headers.get(remaining, "0") in ("0", "0.0")
    ]
    return max((wait for wait in waits if wait is not None), default=None)


def _number(text: str | None, scale: float) -> float | None:
    try:
        number = float(text) if text else -1.0
    except ValueError:
        return None
    return number * scale if 0 <= number < 1e9 else None


def _span_s(text: str) -> float | None:
    """Seconds of `6m0s`, `120ms`, `1h2m3s` or a bare number."""
    parts = _SPAN.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * _UNIT_S[unit] for number, unit in parts)
    return _number(text, 1.0)


def _until(text: str | None, headers: Mapping[str, str]) -> float | None:
    """Seconds from the server's own clock to a time it names; without its clock nobody knows."""
    due, now = _instant(text), _instant(headers.get("date"))
    try:
        return None if due is None or now is None else max(0.0, (due - now).total_seconds())
    except TypeError:  # one of them names no zone
        return None


def _instant(text: str | None) -> datetime | None:
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            return read(text or "")
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
    return None


def refusal_of(error: Any, *, status: int = 0, headers: Mapping[str, str] = NOTHING) -> Refusal:
    """A refusal from the error part of a body, whatever that is; pages of HTML say nothing."""
    body = error
    while isinstance(body, Mapping) and isinstance(body.get("error"), Mapping | str):
        body = body["error"]
    if isinstance(body, Mapping):
        number = body.get("code")  # some servers write the status there, when it is too late for one
        if not status and type(number) is int and 400 <= number < 600:
            status = number
        message = body.get("message") or body.get("detail") or body.get("msg") or ""
        return Refusal(
            status=status,
            code=_word(body.get("code")) or _detailed(body.get("details")),
            type=_word(body.get("type")),
            message=message if isinstance(message, str) else repr(message)[:1000],
            headers=headers,
        )
    text = body if isinstance(body, str) else ""
    if text.lstrip()[:1] == "<":
        text = ""
    return Refusal(status=status, message=text, headers=headers)


def _detailed(details: Any) -> str:
    """The cause as one provider names it, beside a type that is wider."""
    return _word(details.get("error_code")) if isinstance(details, Mapping) else ""


def _word(value: Any) -> str:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""

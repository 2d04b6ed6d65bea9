"""A table of refusals: status, headers and body, what the user reads, whether it is asked again and when."""

import socket
import ssl
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.model import STREAM_CLOSED
from callboard.runtime.models.dialect import Learned, learned
from callboard.runtime.models.openai_dialect import OPTIONS
from callboard.runtime.models.refusals import Refusal, judged, refusal_of, unreachable

from .openai_samples import ASKED, VALUES

HOST = "api.openai.com"
DATE = "Tue, 01 Dec 2026 10:00:00 GMT"


def body(message: str = "Why.", code: Any = None, kind: Any = None) -> dict[str, Any]:
    """An error as OpenAI writes it."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


LIMITED = f"{HOST} limits how often it is asked: Why."
# status, headers, body -> what the user reads, how it goes on ("again", "again after N s", "overflow", "ends").
TABLE: dict[str, tuple[int, dict[str, str], Any, str, str]] = {
    "400": (400, {}, body("Bad x."), f"{HOST} did not take the request: Bad x.", "ends"),
    "400 window": (
        *(400, {}, body("Your input exceeds the context window of this model.", "context_length_exceeded")),
        "the conversation does not fit the window of gpt-x: Your input exceeds the context window of this model.",
        "overflow",
    ),
    "400 window, words only": (
        *(400, {}, body("This model's maximum context length is 4096 tokens.")),
        "the conversation does not fit the window of gpt-x: This model's maximum context length is 4096 tokens.",
        "overflow",
    ),
    "400 window, llama.cpp": (
        *(400, {}, body("the request exceeds the available context size", 400, "exceed_context_size_error")),
        "the conversation does not fit the window of gpt-x: the request exceeds the available context size",
        "overflow",
    ),
    "400 content": (
        *(400, {}, body("Flagged.", "content_policy_violation")),
        f"{HOST} refused this on grounds of its content: Flagged.",
        "ends",
    ),
    "401": (
        *(401, {}, body("Incorrect API key provided: sk-pl***key.", "invalid_api_key")),
        f"{HOST} does not accept the key: set OPENAI_API_KEY to a valid one.",
        "ends",
    ),
    "402": (402, {}, body(), f"{HOST} wants to be paid before it answers (402): add credit, then ask again.", "ends"),
    "403": (403, {}, body("Not here."), f"{HOST} does not let this key use gpt-x: Not here.", "ends"),
    "404 model": (
        *(404, {}, body("The model `gpt-x` does not exist", "model_not_found")),
        f"{HOST} has no model 'gpt-x': check the name, or base_url.",
        "ends",
    ),
    "404 page": (404, {}, "<html>nginx</html>", f"{HOST} has no model 'gpt-x': check the name, or base_url.", "ends"),
    "408": (408, {}, body(), f"{HOST} gave up waiting (408): Why.", "again"),
    "409": (409, {}, body(), f"{HOST} was changing what this needs (409): Why.", "again"),
    "413": (
        *(413, {}, ""),
        f"the request is larger than {HOST} takes: compact the session, or have tools return less.",
        "ends",
    ),
    "422": (
        *(422, {}, {"detail": [{"loc": ["body"], "msg": "field required"}]}),
        f"{HOST} did not take the request: [{{'loc': ['body'], 'msg': 'field required'}}]",
        "ends",
    ),
    "429": (429, {}, body(code="rate_limit_exceeded", kind="requests"), LIMITED, "again"),
    "429 retry-after": (429, {"retry-after": "7"}, body(), LIMITED, "again after 7 s"),
    "429 retry-after-ms": (429, {"retry-after-ms": "1500", "retry-after": "2"}, body(), LIMITED, "again after 1.5 s"),
    "429 date": (
        *(429, {"retry-after": "Tue, 01 Dec 2026 10:00:20 GMT", "date": DATE}, body(), LIMITED),
        "again after 20 s",
    ),
    "429 resets": (
        429,
        {
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-requests": "1m2s",
            "x-ratelimit-remaining-tokens": "10",
            "x-ratelimit-reset-tokens": "6m0s",
        },
        body(),
        LIMITED,
        "again after 62 s",
    ),
    "429 resets, the later": (
        *(429, {"x-ratelimit-reset-requests": "120ms", "x-ratelimit-reset-tokens": "1.5s"}, body(), LIMITED),
        "again after 1.5 s",
    ),
    "429 times of resets": (
        *(429, {"anthropic-ratelimit-tokens-reset": "2026-12-01T10:00:09Z", "date": DATE}, body(), LIMITED),
        "again after 9 s",
    ),
    "429 words": (
        *(429, {}, body("Please try again in 1m30.5s.")),
        f"{HOST} limits how often it is asked: Please try again in 1m30.5s.",
        "again after 90.5 s",
    ),
    "429 odd advice": (429, {"retry-after": "soon", "x-ratelimit-reset-tokens": "?"}, body(), LIMITED, "again"),
    "429 negative advice": (429, {"retry-after": "-5", "retry-after-ms": "nan"}, body(), LIMITED, "again"),
    "429 quota": (
        *(
            429,
            {"retry-after": "7"},
            body("You exceeded your current quota.", "insufficient_quota", "insufficient_quota"),
        ),
        f"{HOST} has no quota left for this account: add credit or raise its limit, then ask again.",
        "ends",
    ),
    "500": (500, {}, body(kind="server_error"), f"{HOST} failed: Why.", "again"),
    "500 empty": (500, {}, "", f"{HOST} failed.", "again"),
    "502 page": (502, {}, "<html><body>Bad Gateway</body></html>", f"{HOST} failed.", "again"),
    "503": (503, {"retry-after": "3"}, body("Busy."), f"{HOST} has too much to do: Busy.", "again after 3 s"),
    "529": (529, {}, body(kind="overloaded_error"), f"{HOST} has too much to do: Why.", "again"),
    "301": (301, {}, "", f"{HOST} answers from another address (301): correct base_url.", "ends"),
    "418": (418, {}, body(), f"{HOST} refused (418): Why.", "ends"),
    "an error that is a text": (
        400,
        {},
        {"error": "no such thing"},
        f"{HOST} did not take the request: no such thing",
        "ends",
    ),
    "a key in the words": (
        *(400, {}, body("You sent sk-planted-key,\n Bearer abc.def and sk-other-1234 as keys.")),
        f"{HOST} did not take the request: You sent [key], Bearer [key] and [key] as keys.",
        "ends",
    ),
    "a book": (400, {}, body("x" * 5000), f"{HOST} did not take the request: {'x' * 299}…", "ends"),
}


def outcome(error: Any) -> str:
    """How a session goes on after an error."""
    if error.kind == "overflow":
        return "overflow"
    if not error.retryable:
        return "ends"
    return "again" if error.retry_after_s is None else f"again after {error.retry_after_s:g} s"


@pytest.mark.parametrize(("status", "headers", "given", "text", "then"), TABLE.values(), ids=TABLE)
def test_refusals(status, headers, given, text, then):
    """One sentence with what to do, no key and no whole body; asked again where that may help, when it may help."""
    error = judged(refusal_of(given, status=status, headers=headers), ASKED)
    assert (text, then) == (str(error), outcome(error))


def behind(error: BaseException, cause: BaseException) -> BaseException:
    """An error with a cause."""
    error.__cause__ = cause
    return error


def group(*errors: Exception) -> Exception:
    """Several attempts to connect that all failed."""
    return behind(OSError("all attempts to connect failed"), ExceptionGroup("attempts", errors))  # type: ignore[return-value]


DISTRUST = ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed certificate")
CONNECTIONS: dict[str, tuple[BaseException, str, str]] = {
    "refused": (
        behind(httpx2.ConnectError("x"), ConnectionRefusedError(111, "refused")),
        f"nothing listens at {HOST}: check base_url, or start the server.",
        "again",
    ),
    "refused at every address": (
        behind(httpx2.ConnectError("x"), group(ConnectionRefusedError(111, "refused"), OSError(99, "x"))),
        f"nothing listens at {HOST}: check base_url, or start the server.",
        "again",
    ),
    "no such name": (
        behind(httpx2.ConnectError("x"), socket.gaierror(-2, "Name or service not known")),
        f"no address is known for {HOST}: check base_url and the network.",
        "again",
    ),
    "certificate": (
        behind(httpx2.ConnectError("x"), DISTRUST),
        f"the certificate of {HOST} is not trusted: {DISTRUST}",
        "ends",
    ),
    "no tls there": (
        behind(httpx2.ConnectError("x"), ssl.SSLError(1, "wrong version number")),
        f"no secure connection to {HOST}: check whether base_url is https there.",
        "ends",
    ),
    "connect timeout": (httpx2.ConnectTimeout("x"), f"{HOST} did not take a connection in time.", "again"),
    "read timeout": (httpx2.ReadTimeout("x"), f"{HOST} was silent for too long.", "again"),
    "write timeout": (httpx2.WriteTimeout("x"), f"{HOST} took the request too slowly.", "again"),
    "pool timeout": (httpx2.PoolTimeout("x"), f"no connection to {HOST} was free in time.", "again"),
    "reset": (behind(httpx2.ReadError("x"), ConnectionResetError(104, "reset")), STREAM_CLOSED, "again"),
    "cut": (httpx2.RemoteProtocolError("peer closed connection"), STREAM_CLOSED, "again"),
    "no way there": (
        behind(httpx2.ConnectError("x"), OSError(101, "Network is unreachable sk-planted-key")),
        f"{HOST} cannot be reached: [Errno 101] Network is unreachable [key]",
        "again",
    ),
}


@pytest.mark.parametrize(("error", "text", "then"), CONNECTIONS.values(), ids=CONNECTIONS)
def test_connections(error, text, then):
    """A connection that cannot be made, or that breaks, says in one sentence what to look at."""
    made = unreachable(behind(Exception("unreached"), error), ASKED)
    assert (text, then) == (str(made), outcome(made))


def test_causes_in_a_circle_end():
    """Errors that name each other as their cause are looked at once each."""
    one, two = OSError("one"), OSError("two")
    one.__cause__, two.__cause__ = two, one
    assert f"{HOST} cannot be reached: two" == str(unreachable(one, ASKED))


BODIES = st.dictionaries(st.sampled_from(["error", "message", "code", "detail"]), VALUES) | VALUES
HEADERS = st.dictionaries(
    st.sampled_from(
        ["retry-after", "retry-after-ms", "date", "x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens"]
    ),
    st.text(max_size=8) | st.sampled_from(["1s", "inf", "1e999", DATE, "0", "2026-12-01T10:00:09"]),
)


@given(status=st.integers(0, 999), headers=HEADERS, given=BODIES)
def test_any_refusal_is_a_sentence(status, headers, given):
    """Whatever comes back is one line of text, and advice is a length of time."""
    error = judged(refusal_of(given, status=status, headers=headers), ASKED)
    assert str(error).strip()
    assert "\n" not in str(error)
    assert "{" not in str(error).replace("{'", "")[:40]
    assert error.retry_after_s is None or 0 <= error.retry_after_s < 1e9


SENT = frozenset(
    {"thoughts", "encrypted", "summary", "effort", "cache_key", "usage", "tokens", "strict", "schema", "store"}
)
LEARNED: list[tuple[int, str, str, str, Learned | None]] = [
    (400, "", "stream_options", "Unknown parameter.", Learned({"usage": False}, once=False)),
    (422, "", "", "body.stream_options: extra fields not permitted", Learned({"usage": False}, once=False)),
    (
        400,
        "",
        "include",
        "Encrypted content is not supported with this model.",
        Learned({"encrypted": False}, once=False),
    ),
    (400, "", "reasoning.summary", "Your organization must be verified.", Learned({"summary": False}, once=False)),
    (400, "", "reasoning.effort", "Unsupported value: 'high'", Learned({"effort": False}, once=False)),
    (400, "", "max_completion_tokens", "Unrecognized argument", Learned({"tokens": "max_tokens"}, once=False)),
    (400, "", "", "'store' is not allowed", Learned({"store": False}, once=False)),
    (400, "", "prompt_cache_key", "Unknown", Learned({"cache_key": False}, once=False)),
    (400, "", "response_format", "json_schema is not supported", Learned({"schema": False}, once=False)),
    (400, "invalid_encrypted_content", "", "It could not be verified.", Learned({"thoughts": False}, once=True)),
    (400, "", "", "Unknown parameter: 'reasoning'.", Learned({"summary": False}, once=False)),
    (
        *(400, "invalid_function_parameters", "tools[0].parameters", "Invalid schema for function 'f': no minimum."),
        Learned({"strict": False}, once=False),
    ),
    (400, "", "text.format.schema", "Invalid schema for response_format 'answer': no.", None),
    (400, "", "messages", "Invalid value", None),
    (500, "", "stream_options", "Unknown parameter.", None),
]


@pytest.mark.parametrize(("status", "code", "param", "message", "change"), LEARNED)
def test_what_a_refusal_teaches(status, code, param, message, change):
    """An option that a server does not know is left out from then on; one that was not sent teaches nothing."""
    refusal = Refusal(status=status, code=code, message=message)
    assert change == learned(OPTIONS, refusal, param, SENT)
    assert learned(OPTIONS, refusal, param, frozenset()) is None

"""Models of providers over real connections with the real SDKs: cancelled, cut, refused, many at once, first used."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from tests.pure.openai_samples import TOOLS, Said, prompt
from tests.sse_server import Answer, Heard, Piece, SseServer, in_pieces, refusal, sse_server
from tests.wires import WIRES, Line, Spoken, Wire, serve

from callboard.actors.errors import ModelError, UsageError
from callboard.actors.model import STREAM_CLOSED, Reply, User
from callboard.runtime.models import AnthropicModel, ModelNames
from callboard.runtime.models.provider import ProviderModel
from callboard.runtime.settings import ModelConfig

from .fair import in_time, timely

KEY = "sk-planted-0123456789"
CANCELLED_MEDIAN_S = 0.01
STALL_MAX_S = 0.05
ROOT = Path(__file__).parents[2]
HELLO = Spoken(text="hello, you over there", thought="hm", calls=(("cut", {"path": "x"}),))
over_each_wire = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted keys."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, KEY)


def use(server: SseServer, wire: Wire, used: Callable[[Any], Awaitable[Any]], **more: Any) -> Any:
    """Use one model on Trio, and close it."""

    async def main() -> Any:
        config = ModelConfig(base_url=server.url + wire.base, **wire.settings, **more)
        model = ModelNames(wire.model, config).default
        assert isinstance(model, ProviderModel)
        try:
            with trio.fail_after(20):
                return await used(model)
        finally:
            await model.aclose()

    return trio.run(main)


def ask(server: SseServer, wire: Wire, **more: Any) -> Reply:
    """The answer to one prompt."""

    async def used(model: ProviderModel) -> Reply:
        return await model.reply(prompt(User("hi"), tools=TOOLS, **more), Said())

    reply: Reply = use(server, wire, used)
    return reply


def failure(server: SseServer, wire: Wire, **more: Any) -> ModelError:
    """The error of one prompt."""
    with pytest.raises(ModelError) as failed:
        ask(server, wire, **more)
    assert KEY not in str(failed.value)
    return failed.value


def hello(lines: list[Line]) -> Spoken:
    """The same answer to everything."""
    return HELLO


@over_each_wire
def test_an_answer(wire):
    """It comes back as it was said, and the key went out in the header that the provider reads."""
    with sse_server(serve(wire, hello)) as server:
        reply = ask(server, wire)
    assert (reply.text, [(one.name, json.loads(one.arguments)) for one in reply.calls]) == (
        HELLO.text,
        [("cut", {"path": "x"})],
    )
    assert reply.usage is not None
    assert (reply.usage.input, reply.usage.cached, reply.usage.output) == (120, 100, 30)
    headers = server.heard[0].headers
    assert KEY in (headers.get("x-api-key"), headers.get("authorization", "").removeprefix("Bearer "))
    assert sum(KEY in value for value in headers.values()) == 1


@over_each_wire
def test_from_cancelled_to_a_closed_stream(wire, record_property):
    """The server sees its connection closed within 10 ms (median), and the model can be asked again."""
    hangs = Answer(pieces=(wire.events(Spoken(text="much to say", hangs=True), 1), Piece(cut="hang")))
    took_s: list[float] = []

    async def used(model: ProviderModel) -> str:
        for at in range(21):
            asked = trio.CancelScope()
            cancelled_s = 0.0

            def said(piece: str, part: str = "text", /, scope: trio.CancelScope = asked) -> None:
                nonlocal cancelled_s
                if piece and not cancelled_s:
                    cancelled_s = time.perf_counter()
                    scope.cancel()

            with asked:
                await model.reply(prompt(User("hi")), said)
            assert asked.cancelled_caught
            with trio.fail_after(5):
                while not (closed_s := server.heard[at].closed_s):
                    await trio.sleep(0.0005)
            took_s.append(closed_s - cancelled_s)
        return (await model.reply(prompt(User("hi")), Said())).text

    with sse_server([*([hangs] * 21), Answer(pieces=(wire.events(HELLO, 1),))]) as server:
        assert use(server, wire, used) == HELLO.text
    record_property("cancelled_median_ms", statistics.median(took_s) * 1e3)
    assert statistics.median(took_s) < CANCELLED_MEDIAN_S


@over_each_wire
@pytest.mark.parametrize("cut", ["close", "reset"])
def test_a_stream_that_is_cut_at_any_place(wire, cut):
    """A connection that ends before the answer does gives no answer, and is worth another try."""
    body = wire.events(HELLO, 1)
    places = range(1, len(body) - 120, len(body) // 9)  # what is cut behind the reason of an end is an answer
    with sse_server([Answer(pieces=(body[:at], Piece(delay_s=0.003, cut=cut))) for at in places]) as server:
        for _ in places:
            error = failure(server, wire)
            assert (str(error), error.retryable) == (STREAM_CLOSED, True)


@over_each_wire
def test_fifty_at_once(wire):
    """Fifty answers stream side by side through one model."""
    pieces = [Piece(piece.body, 0.001) for piece in in_pieces(wire.events(HELLO, 1), 10, 100, 200)]

    async def used(model: ProviderModel) -> set[str]:
        texts = list[str]()

        async def one() -> None:
            texts.append((await model.reply(prompt(User("hi")), Said())).text)

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(one)
        return {*texts, str(len(texts))}

    with sse_server([Answer(pieces=pieces)]) as server:
        assert use(server, wire, used) == {HELLO.text, "50"}


@over_each_wire
def test_what_follows_the_end_is_nothing(wire):
    """Another answer behind the last word, in the same bytes, is not taken."""
    with sse_server([Answer(pieces=(wire.events(HELLO, 1) + wire.events(Spoken(text="again"), 1),))]) as server:
        reply = ask(server, wire)
    assert (reply.text, len(reply.calls)) == (HELLO.text, 1)


@over_each_wire
def test_what_a_server_writes_into_its_error_is_one_plain_line(wire):
    """Escapes for terminals and breaks of lines are taken out."""
    with sse_server([refusal(418, "teapot \x1b[31m\r\n\x00 short")]) as server:
        error = failure(server, wire)
    assert str(error).endswith("refused (418): teapot [31m short")


def body(message: str = "Why.", kind: str = "invalid_request_error") -> dict[str, Any]:
    """An error as Anthropic writes it."""
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


LIMIT_S = "2026-12-01T10:00:09Z"
DATE = "Tue, 01 Dec 2026 10:00:00 GMT"
# status, headers, body -> what the user reads, and how it goes on.
REFUSALS: dict[str, tuple[int, dict[str, str], Any, str, str]] = {
    "400": (400, {}, body(), "{host} did not take the request: Why.", "ends"),
    "400 window": (
        *(400, {}, body("prompt is too long: 210000 tokens > 200000 maximum")),
        "the conversation does not fit the window of claude-x: prompt is too long: 210000 tokens > 200000 maximum",
        "overflow",
    ),
    "400 window and answer": (
        *(400, {}, body("input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000")),
        (
            "the conversation does not fit the window of claude-x: "
            "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000"
        ),
        "overflow",
    ),
    "400 credit": (
        *(400, {}, body("Your credit balance is too low to access the API.", "billing_error")),
        "{host} has no quota left for this account: add credit or raise its limit, then ask again.",
        "ends",
    ),
    "401": (
        *(401, {}, body(f"invalid x-api-key {KEY}", "authentication_error")),
        "{host} does not accept the key: set ANTHROPIC_API_KEY to a valid one.",
        "ends",
    ),
    "403": (
        403,
        {},
        body("Not here.", "permission_error"),
        "{host} does not let this key use claude-x: Not here.",
        "ends",
    ),
    "404": (
        *(404, {}, body("model: claude-x", "not_found_error")),
        "{host} has no model 'claude-x': check the name, or base_url.",
        "ends",
    ),
    "413": (
        *(413, {}, body("Request exceeds the maximum size", "request_too_large")),
        "the request is larger than {host} takes: compact the session, or have tools return less.",
        "ends",
    ),
    "429": (
        *(429, {"retry_after": "7"}, body("Slow down.", "rate_limit_error")),
        "{host} limits how often it is asked: Slow down.",
        "again after 7 s",
    ),
    "429 until": (
        429,
        {
            "date": DATE,
            "anthropic_ratelimit_requests_remaining": "5",
            "anthropic_ratelimit_requests_reset": "2026-12-01T10:00:50Z",
            "anthropic_ratelimit_tokens_remaining": "0",
            "anthropic_ratelimit_tokens_reset": LIMIT_S,
        },
        body("Slow down.", "rate_limit_error"),
        "{host} limits how often it is asked: Slow down.",
        "again after 9 s",
    ),
    "500": (500, {}, body("Internal server error", "api_error"), "{host} failed: Internal server error", "again"),
    "529": (529, {}, body("Overloaded", "overloaded_error"), "{host} has too much to do: Overloaded", "again"),
    "503 page": (503, {}, "<html>", "{host} has too much to do.", "again"),
}


@pytest.mark.parametrize(("status", "headers", "given", "text", "then"), REFUSALS.values(), ids=REFUSALS)
def test_what_anthropic_refuses(status, headers, given, text, then):
    """One sentence with what to do, whether it is asked again, and when; the key that is echoed is hidden."""
    with sse_server([refusal(status, given, **headers)]) as server:
        error = failure(server, WIRES["messages"])
    host = server.url.removeprefix("http://")
    again = "" if error.retry_after_s is None else f" after {error.retry_after_s:g} s"
    how = "overflow" if error.kind == "overflow" else f"again{again}" if error.retryable else "ends"
    assert (str(error), how) == (text.format(host=host), then)
    assert len(server.heard) == 1


def unknown(heard: Heard, wire: Wire) -> Answer:
    """A server that knows neither effort, nor formats, nor thoughts that adapt, nor caches, nor long answers."""
    sent = heard.json
    marked = any("cache_control" in block for one in sent["messages"] for block in one["content"])
    for there, message in (
        (
            sent["max_tokens"] > 4096,
            f"max_tokens: {sent['max_tokens']} > 4096, which is the maximum allowed number of output tokens",
        ),
        ("effort" in sent.get("output_config", {}), "output_config.effort: Extra inputs are not permitted"),
        ("format" in sent.get("output_config", {}), "output_config.format: Extra inputs are not permitted"),
        (sent.get("thinking", {}).get("type") == "adaptive", "adaptive thinking is not supported on this model"),
        ("thinking" in sent, "thinking: Extra inputs are not permitted"),
        (marked, "messages.0.content.0.text.cache_control: Extra inputs are not permitted"),
    ):
        if there:
            return refusal(400, body(message))
    return Answer(pieces=(wire.events(HELLO, 1),))


def test_what_a_server_does_not_know_is_left_out_from_then_on():
    """Each option is tried once, and the next request goes without all that was refused."""
    wire = WIRES["messages"]

    async def used(model: ProviderModel) -> list[str]:
        asked = prompt(User("hi"), effort="high", schema={"type": "object", "properties": {"a": {"type": "null"}}})
        return [(await model.reply(asked, Said())).text for _ in range(2)]

    with sse_server(lambda heard: unknown(heard, wire)) as server:
        assert use(server, wire, used) == [HELLO.text] * 2
    assert len(server.heard) == 6 + 2
    assert server.heard[-1].json.keys() == {"model", "max_tokens", "messages", "stream", "system"}


def test_a_bound_that_was_configured_is_not_changed():
    """A number of somebody's own that is too large is told, not lowered."""
    wire = WIRES["messages"]

    async def used(model: ProviderModel) -> None:
        with pytest.raises(ModelError, match="maximum allowed number of output tokens"):
            await model.reply(prompt(User("hi")), Said())

    with sse_server(lambda heard: unknown(heard, wire)) as server:
        use(server, wire, used, output_tokens_max=5_000)


def test_an_address_may_end_in_the_version():
    """With and without /v1 the same is asked."""
    wire = WIRES["messages"]
    with sse_server(serve(wire, hello)) as server:
        for base_url in (server.url, server.url + "/v1", server.url + "/v1/"):
            model = AnthropicModel("claude-x", ModelConfig(base_url=base_url))
            assert trio.run(asked_once, model) == HELLO.text
    assert [heard.path for heard in server.heard] == ["/v1/messages"] * 3


async def asked_once(model: ProviderModel) -> str:
    """The text of one answer."""
    try:
        return (await model.reply(prompt(User("hi")), Said())).text
    finally:
        await model.aclose()


def test_a_protocol_that_is_not_spoken():
    """`api` belongs to OpenAI's models."""
    with pytest.raises(UsageError, match="api is for models of OpenAI"):
        ModelNames("anthropic:claude-x", ModelConfig(api="chat"))


@over_each_wire
@timely
def test_first_use_does_not_hold_a_started_runtime_up(wire):
    """Importing the SDK and building its types happen off the loop: none is late by more than 50 ms."""
    with sse_server(serve(wire, lambda lines: Spoken(text="hello"))) as server:
        arguments = [wire.model, server.url + wire.base, wire.settings.get("api", "")]
        in_time(lag_of(arguments), STALL_MAX_S)


def lag_of(arguments: list[str]) -> float:
    """How late the loops of a program were at most, in seconds."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.host.first_use", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return float(ran.stdout)

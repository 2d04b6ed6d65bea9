"""OpenAI models over a real connection: what refuses, what is no answer, what is learned, and what is never shown."""

import functools
import logging
import re

import msgspec
import pytest
import trio
from tests.pure.openai_samples import Said, chunk, message, prompt
from tests.sse_server import Answer, Heard, Piece, answer, refusal, sse, sse_server

from callboard.actors.errors import ModelError
from callboard.actors.events import Thought, Usage
from callboard.actors.model import STREAM_CLOSED, User
from callboard.runtime.models.openai import OpenAIModel
from callboard.runtime.settings import ModelConfig

from .openai_asked import APIS, HELLO, KEY, ask, failure, run

STRANGE: dict[str, tuple[Answer, str, bool]] = {
    "a page": (
        Answer(pieces=(b"<html>",), headers={"content-type": "text/html; charset=utf-8"}),
        "answers with text/html, not with a stream of events: check base_url.",
        False,
    ),
    "no events": (Answer(pieces=(b"hello\n\n",)), STREAM_CLOSED, True),
    "no json": (Answer(pieces=(b"data: nope\n\n",)), "cannot be understood: one event of its answer is no JSON.", True),
    "nothing": (Answer(), STREAM_CLOSED, True),
    "half a json": (
        Answer(pieces=(b"{",), headers={"content-type": "application/json"}),
        "cannot be understood: its answer is no JSON.",
        True,
    ),
    "an error in 200": (
        Answer(pieces=(b'{"error":{"message":"Boom"}}',), headers={"content-type": "application/json"}),
        "broke off its answer: Boom",
        True,
    ),
    "a redirect": (
        Answer(status=307, headers={"location": "http://127.0.0.1:9/"}, framing="length"),
        "answers from another address (307): correct base_url.",
        False,
    ),
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("given", "text", "retryable"), STRANGE.values(), ids=STRANGE)
def test_answers_that_are_none(api, given, text, retryable):
    """What is no stream of events says what it is instead."""
    with sse_server([given]) as server:
        error = failure(server, api)
    assert str(error).endswith(text)
    assert retryable == error.retryable


ENDLESS = {
    "an error on the way": Answer(pieces=(sse({"error": {"message": "Boom"}}), Piece(cut="hang"))),
    "a page": Answer(pieces=(b"<html>", Piece(cut="hang")), headers={"content-type": "text/html"}),
    "no json": Answer(pieces=(b"data: nope\n\n", Piece(cut="hang"))),
}


@pytest.mark.parametrize("given", ENDLESS.values(), ids=ENDLESS)
def test_a_failed_answer_is_not_waited_for(given):
    """What has failed closes its connection at once, however long the server goes on, and the model can be asked."""

    async def use(model: OpenAIModel) -> str:
        with pytest.raises(ModelError), trio.fail_after(2):
            await model.reply(prompt(User("hi")), Said())
        with trio.fail_after(2):
            while not server.heard[0].closed.is_set():
                await trio.sleep(0.001)
        return (await model.reply(prompt(User("hi")), Said())).text

    with sse_server([given, answer(*HELLO["responses"])]) as server:
        assert "hello" == run(server, use)


@pytest.mark.parametrize("api", APIS)
def test_a_server_that_does_not_stream(api):
    """An answer in one JSON is an answer."""
    whole = {
        "responses": {"status": "completed", "output": [message("hello")[-1]["item"]], "usage": {"input_tokens": 3}},
        "chat": {
            "choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3},
        },
    }[api]
    said = Said()
    given = Answer(pieces=(msgspec.json.encode(whole),), headers={"content-type": "application/json"}, framing="length")
    with sse_server([given]) as server:
        assert ("hello", Usage(3)) == ((reply := ask(server, api, said)).text, reply.usage)
    assert ("hello", "text") in said


def test_errors_of_the_server_as_they_come():
    """Status, headers and body together give the sentence, and how long to wait; keys that are echoed are hidden."""
    limited = {"error": {"message": f"Slow down {KEY}", "type": "requests", "code": "rate_limit_exceeded"}}
    with sse_server([refusal(429, limited, retry_after="7"), refusal(401, {"error": {"message": KEY}})]) as server:
        one = failure(server)
        two = failure(server)
    host = server.url.removeprefix("http://")
    assert (f"{host} limits how often it is asked: Slow down [key]", True, 7.0) == (
        *(str(one), one.retryable, one.retry_after_s),
    )
    assert f"{host} does not accept the key: set OPENAI_API_KEY to a valid one." == str(two)


def test_nobody_listens():
    """A closed port says so."""
    with sse_server([answer()]) as server:
        pass
    error = failure(server)
    host = server.url.removeprefix("http://")
    assert (f"nothing listens at {host}: check base_url, or start the server.", True) == (str(error), error.retryable)


def test_https_where_there_is_none():
    """A server that speaks plain http is not blamed for its certificate."""

    async def plain(stream: trio.SocketStream) -> None:
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await stream.aclose()

    async def used() -> None:
        async with trio.open_nursery() as nursery:
            (listener,) = await nursery.start(functools.partial(trio.serve_tcp, plain, 0, host="127.0.0.1"))
            port = listener.socket.getsockname()[1]
            model = OpenAIModel("gpt-x", ModelConfig(base_url=f"https://127.0.0.1:{port}/v1"))
            try:
                await model.reply(prompt(User("hi")), Said())
            except ModelError as error:
                failed.append(error)
            finally:
                await model.aclose()
                nursery.cancel_scope.cancel()

    failed: list[ModelError] = []
    trio.run(used)
    assert re.fullmatch(r"no secure connection to .*: check whether base_url is https there\.", str(failed[0]))
    assert not failed[0].retryable


def test_what_a_server_does_not_know_is_left_out_from_then_on():
    """A refused option costs one request, once, and the rest of the request stays as it was."""

    def script(heard: Heard) -> Answer:
        for name in ("stream_options", "max_tokens"):
            if name in heard.json:
                return refusal(400, {"error": {"message": f"Unrecognized request argument supplied: {name}"}})
        return answer(*HELLO["chat"])

    async def use(model: OpenAIModel) -> None:
        for _ in range(2):
            assert "hello" == (await model.reply(prompt(User("hi")), Said())).text

    with sse_server(script) as server:
        run(server, use, "chat")
    assert [True, False, False] == ["stream_options" in heard.json for heard in server.heard]


def test_encrypted_thoughts_that_are_refused_are_left_out_once():
    """Thoughts that another key encrypted are not sent again in this request, and new ones are kept."""

    def script(heard: Heard) -> Answer:
        if any(item["type"] == "reasoning" for item in heard.json["input"]):
            return refusal(
                400, {"error": {"message": "It could not be verified.", "code": "invalid_encrypted_content"}}
            )
        return answer(*HELLO["responses"])

    from callboard.actors.model import Assistant

    thought = Thought("openai", "", {"model": "gpt-x", "item": {"type": "reasoning", "encrypted_content": "e"}})
    messages = (Assistant("x", thoughts=(thought,)), User("hi"))

    async def use(model: OpenAIModel) -> None:
        for _ in range(2):
            await model.reply(prompt(*messages), Said())

    with sse_server(script) as server:
        run(server, use)
    assert [3, 2, 3, 2] == [len(heard.json["input"]) for heard in server.heard]


def test_a_server_that_refuses_everything_ends():
    """Options are left out one by one and not for ever."""
    with sse_server([refusal(400, {"error": {"message": "stream_options 'store' max_tokens strict"}})]) as server:
        assert "did not take the request" in str(failure(server, "chat"))
    assert 2 == len(server.heard)


def test_no_usage_is_said_once(caplog):
    """A server that tells no usage is named in one warning."""
    caplog.set_level(logging.WARNING, "callboard")

    async def use(model: OpenAIModel) -> list[Usage | None]:
        return [(await model.reply(prompt(User("hi")), Said())).usage for _ in range(2)]

    with sse_server([answer(chunk(content="hi"), chunk("stop"))]) as server:
        assert [None, None] == run(server, use, "chat")
    host = server.url.removeprefix("http://")
    assert [f"openai:gpt-x at {host} tells no usage: its tokens and its cost count as nothing"] == [
        record.getMessage() for record in caplog.records if record.name == "callboard"
    ]

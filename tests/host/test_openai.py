"""OpenAI models over a real connection with the real SDK: answers, cancellation, cuts, dialects, keys, first use."""

import random
import time

import pytest
import trio
from tests.pure.openai_samples import TOOLS, Said, asks, chatted, chunk, ended, function, message, prompt, reasoning
from tests.sse_server import Answer, Heard, Piece, answer, in_pieces, sse, sse_server

from callboard.actors.events import Call, Thought, Usage
from callboard.actors.model import STREAM_CLOSED, Reply, User
from callboard.runtime.models.openai import OpenAIModel

from .openai_asked import APIS, HELLO, KEY, ask, failure, run


@pytest.mark.parametrize("api", APIS)
def test_an_answer(api):
    """A prompt goes out with the key, and its answer comes back as it streams."""
    said = Said()
    with sse_server([answer(*HELLO[api])]) as server:
        reply = ask(server, api, said)
    (heard,) = server.heard
    assert ("hello", "hello") == (reply.text, "".join(piece for piece, _ in said))
    assert reply.usage is not None
    assert 50 == reply.usage.input
    path = "/v1/responses" if api == "responses" else "/v1/chat/completions"
    assert ("POST", path, f"Bearer {KEY}") == (heard.method, heard.path, heard.headers["authorization"])
    assert ("gpt-x", True) == (heard.json["model"], heard.json["stream"])


def test_a_loopback_server_needs_no_key():
    """Without a key one that is none is sent."""
    with sse_server([answer(*HELLO["responses"])]) as server:
        assert "hello" == ask(server, key="").text
    assert "Bearer none" == server.heard[0].headers["authorization"]


@pytest.mark.parametrize("api", APIS)
def test_more_in_the_body_of_each_request(api):
    """`extra_body` goes out as it is, also in place of what a request has by itself."""
    more = {"temperature": 0, "store": True, "tool_choice": {"type": "function", "name": "add"}}
    with sse_server([answer(*HELLO[api])]) as server:
        ask(server, api, extra_body=more)
    assert more == {name: server.heard[0].json[name] for name in more}


WHOLE = {
    "responses": (
        sse(
            *reasoning(0, "e", "Hm."),
            *message("hé😀", 1),
            *function("cut", '{"path":"é","limit":null}', 2, "c1"),
            *function("free", "{}", 3, "c2"),
            ended(),
            end="\r\n",
        ),
        Reply(
            "hé😀",
            [Call("cut", '{"path":"é"}', "c1"), Call("free", "{}", "c2")],
            Usage(50, 20, 9, 4),
            thoughts=[
                Thought(
                    "openai",
                    "Hm.",
                    {
                        "model": "gpt-x",
                        "item": {
                            "type": "reasoning",
                            "id": "rs_0",
                            "summary": [{"type": "summary_text", "text": "Hm."}],
                            "encrypted_content": "e",
                        },
                    },
                )
            ],
        ),
    ),
    "chat": (
        b": keepalive\n\n"
        + sse(
            chunk(content="hé😀"),
            asks((0, "c1", "cut", '{"path":')),
            asks((0, None, None, '"é"}'), (1, "c2", "free", "{}")),
            chunk("tool_calls"),
            {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
            "[DONE]",
        ),
        Reply("hé😀", [Call("cut", '{"path":"é"}', "c1"), Call("free", "{}", "c2")], Usage(3, 0, 2)),
    ),
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("framing", ["chunked", "close", "length"])
def test_every_split_gives_the_same_answer(api, framing):
    """However a server cuts its bytes, and however it frames them, the answer is the same."""
    body, expected = WHOLE[api]
    dice = random.Random(8)
    splits = [in_pieces(body), *(in_pieces(body, *dice.sample(range(len(body)), 12)) for _ in range(6))]
    if framing == "chunked":
        splits.append(in_pieces(body, *range(1, len(body))))
    with sse_server([Answer(pieces=pieces, framing=framing) for pieces in splits]) as server:

        async def use(model: OpenAIModel) -> list[Reply]:
            return [await model.reply(prompt(User("hi"), tools=TOOLS), Said()) for _ in splits]

        assert [expected] * len(splits) == run(server, use, api)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("cut", ["close", "reset"])
@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_a_stream_that_is_cut(api, cut, framing):
    """A connection that ends before the answer does gives no answer, and is worth another try."""
    body = WHOLE[api][0]
    half = body[: len(body) // 2]
    with sse_server([Answer(pieces=(half, Piece(delay_s=0.01, cut=cut)), framing=framing)]) as server:
        error = failure(server, api)
    assert (STREAM_CLOSED, True) == (str(error), error.retryable)


@pytest.mark.parametrize("api", APIS)
def test_cancelled_in_the_middle(api):
    """A cancelled answer closes its connection at once, whatever else goes on, and the model can be asked again."""
    begun = sse(*HELLO[api][:2])

    def script(heard: Heard) -> Answer:
        hangs = "hang" in heard.body.decode()
        return Answer(pieces=(begun, Piece(cut="hang"))) if hangs else answer(*HELLO[api])

    async def use(model: OpenAIModel) -> str:
        for _ in range(5):
            with trio.CancelScope() as scope:
                await model.reply(prompt(User("hang")), lambda piece, part="text": scope.cancel() if piece else None)
            assert scope.cancelled_caught
            with trio.fail_after(2):
                while not server.heard[-1].closed.is_set():
                    await trio.sleep(0.001)
        return (await model.reply(prompt(User("hi")), Said())).text

    with sse_server(script) as server:
        assert "hello" == run(server, use, api)
    assert 6 == len(server.heard)


def test_cancelled_before_the_answer_begins():
    """A request whose answer has not begun closes its connection too."""

    async def use(model: OpenAIModel) -> bool:
        scope = trio.CancelScope()

        async def asking() -> None:
            with scope:
                await model.reply(prompt(User("hi")), Said())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(asking)
            with trio.fail_after(10):
                while not server.heard:
                    await trio.sleep(0.001)
            scope.cancel()
        with trio.fail_after(2):
            while not server.heard[-1].closed.is_set():
                await trio.sleep(0.001)
        return scope.cancelled_caught

    with sse_server([Answer(pieces=(Piece(b"x", delay_s=30.0),))]) as server:
        assert run(server, use)


@pytest.mark.parametrize("api", APIS)
def test_fifty_at_once(api):
    """Fifty answers stream side by side through one model, and connections are used again."""
    pieces = [Piece(piece.body, 0.001) for piece in in_pieces(sse(*HELLO[api]), 10, 100, 200)]

    async def use(model: OpenAIModel) -> list[str]:
        texts: list[str] = []

        async def one() -> None:
            texts.append((await model.reply(prompt(User("hi")), Said())).text)

        for _ in range(2):
            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(one)
        return texts

    with sse_server([Answer(pieces=pieces)]) as server:
        assert ["hello"] * 100 == run(server, use, api)


def test_a_long_history_goes_out_whole():
    """A history of thousands of messages is sent as a short one is."""
    messages = [User(f"m{at}") for at in range(3_000)]

    async def use(model: OpenAIModel) -> str:
        return (await model.reply(prompt(*messages), Said())).text

    with sse_server([answer(*HELLO["responses"])]) as server:
        assert "hello" == run(server, use)
    assert [one.text for one in messages] == [item["content"] for item in server.heard[0].json["input"]]


def test_the_connection_is_used_again():
    """Answers one after another go over one connection, also where the last word is not the last byte."""
    chat = (*HELLO["chat"], *HELLO["chat"][-1:])

    async def use(model: OpenAIModel) -> None:
        for _ in range(5):
            await model.reply(prompt(User("hi")), Said())

    with sse_server([Answer(pieces=[Piece(sse(*chat)), Piece(b": bye\n\n", delay_s=0.005)])]) as server:
        run(server, use, "chat")
        assert [None] * 4 == [heard.closed_s for heard in server.heard[:4]]


def test_a_server_that_never_stops():
    """After the last event that counts, nobody waits for a server to end its stream."""
    pieces = (Piece(sse(*HELLO["responses"])), Piece(cut="hang"))
    with sse_server([Answer(pieces=pieces)]) as server:
        assert "hello" == ask(server).text


def test_signs_of_life():
    """Comments and pieces of arguments are signs of life."""
    said = Said()
    events = function("cut", "{}", 0, "c1")
    pieces = [Piece(one, 0.01) for one in (b": wait\n\n", b": wait\n\n", *map(sse, events), sse(ended()))]
    with sse_server([Answer(pieces=pieces)]) as server:
        ask(server, said=said)
    assert {("", "text")} == set(said)
    assert len(said) >= len(pieces)


def test_many_calls_are_taken_as_quickly_as_few():
    """Each piece finds its call without a look at all others."""
    calls = [asks((at, f"c{at}", "cut", '{"path":"x"}')) for at in range(20_000)]
    began_s = time.process_time()
    reply = chatted(*calls, chunk("stop"))
    assert len(reply.calls) == 20_000
    assert time.process_time() - began_s < 3

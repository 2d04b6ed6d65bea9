"""OpenAI models in a runtime: mistakes at once, a session over the wire, the first use, and nothing shows a key."""

import itertools
import subprocess
import sys

import pytest
import trio
from tests.pure.openai_samples import ended, function, message
from tests.sse_server import Answer, Piece, answer, refusal, sse, sse_server

from callboard.actors.errors import MissingExtra, UsageError
from callboard.actors.messages import Interrupting
from callboard.actors.notices import Delta
from callboard.runtime import open_runtime
from callboard.runtime.config import RuntimeConfig
from callboard.runtime.models import provider as module
from callboard.runtime.models.names import ModelNames
from callboard.runtime.models.openai import OpenAIModel
from callboard.runtime.settings import ModelConfig

from .openai_asked import KEY, run


def test_mistakes_are_told_when_a_model_is_made(monkeypatch):
    """A missing SDK, key or name, and an address that is none, are told at once, with what to do."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UsageError, match=r"there is no key for api\.openai\.com: set OPENAI_API_KEY, or"):
        ModelNames("openai:gpt-x")
    with pytest.raises(UsageError, match="base_url must be like"):
        OpenAIModel("gpt-x", ModelConfig(base_url="nowhere"))
    for name in (" ", "x" * 201, "a\nb"):
        with pytest.raises(UsageError, match="openai:NAME takes the name of a model"):
            OpenAIModel(name, ModelConfig())
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"model 'openai:gpt-x' needs more packages: install callboard\[openai\]\."):
        ModelNames("openai:gpt-x")


def test_nothing_shows_the_key(monkeypatch):
    """What a model looks like in a log does not hold its key."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model = OpenAIModel("gpt-x", ModelConfig(base_url="http://127.0.0.1:9/v1"))
    assert "OpenAIModel('gpt-x', 'http://127.0.0.1:9/v1/responses')" == repr(model)
    assert KEY not in str(vars(model)["_asked"])


async def test_a_session_over_the_wire():
    """A whole runtime: a tool is called, its result goes back, the model is closed with the runtime."""
    scripts = [
        answer(
            *function("update_plan", '{"plan":[{"step":"x","status":"pending"}],"explanation":null}', 0, "c1"), ended()
        ),
        answer(*message("done"), ended()),
    ]
    with sse_server(scripts) as server:
        config = RuntimeConfig(model=ModelConfig(name="openai:gpt-x", base_url=server.url + "/v1"))
        async with open_runtime(config, store="memory") as runtime:
            session = await runtime.create()
            ended_turn = await session.run("go")
        assert ("completed", None) == (ended_turn.reason, ended_turn.error)
        assert all(heard.closed.wait(5) for heard in server.heard[-1:])
    kinds = [item["type"] for item in server.heard[1].json["input"]]
    assert ["message", "function_call", "function_call_output"] == kinds
    plan = next(tool for tool in server.heard[0].json["tools"] if tool["name"] == "update_plan")
    assert plan["strict"] is True


async def test_a_stream_that_is_cut_is_asked_for_again():
    """A session asks again after a cut, and no call of the answer that was cut is run or sent."""
    call = function("update_plan", '{"plan":[],"explanation":null}', 0, "c1")
    cut = Answer(pieces=(sse(*call), Piece(delay_s=0.01, cut="close")))
    with sse_server([cut, answer(*message("done"), ended())]) as server:
        config = RuntimeConfig(model=ModelConfig(name="openai:gpt-x", base_url=server.url + "/v1"))
        async with open_runtime(config, store="memory") as runtime:
            session = await runtime.create()
            turn = await session.run("go")
    assert ("completed", None, "done", ()) == (turn.reason, turn.error, turn.last_message, turn.receipts)
    assert server.heard[0].body == server.heard[1].body


async def test_an_interrupt_in_the_middle_of_an_answer():
    """What was said is kept, the connection is closed, and the next turn tells the model what it had said."""
    half = Answer(pieces=(sse(*message("half")[:2]), Piece(cut="hang")))
    with sse_server([half, answer(*message("done"), ended())]) as server:
        config = RuntimeConfig(model=ModelConfig(name="openai:gpt-x", base_url=server.url + "/v1"))
        async with open_runtime(config, store="memory") as runtime:
            session = await runtime.create()
            await session.submit("go")
            async for item in session.events(deltas=True):
                if isinstance(item, Delta):
                    break
            answered = await session.interrupt()
            assert isinstance(answered, Interrupting)
            first = await session.wait(answered.turn)
            assert server.heard[0].closed.wait(5)
            second = await session.run("next")
    assert ("aborted", "ha", "done") == (first.reason, first.last_message, second.last_message)
    assert first.abort_s is not None
    texts = [item["content"] for item in server.heard[1].json["input"]]
    assert ("go", "ha", "next") == (texts[0], texts[1], texts[-1])


async def test_an_error_of_the_provider_ends_the_turn_and_not_the_session():
    """The sentence of the table is the turn's error, without the key, and nothing is asked again."""
    given = refusal(401, {"error": {"message": f"Incorrect API key: {KEY}", "code": "invalid_api_key"}})
    with sse_server([given, answer(*message("done"), ended())]) as server:
        config = RuntimeConfig(model=ModelConfig(name="openai:gpt-x", base_url=server.url + "/v1"))
        async with open_runtime(config, store="memory") as runtime:
            session = await runtime.create()
            first, second = await session.run("go"), await session.run("again")
    host = server.url.removeprefix("http://")
    assert f"{host} does not accept the key: set OPENAI_API_KEY to a valid one." == first.error
    assert ("done", 2) == (second.last_message, len(server.heard))


FIRST_USE = """
import sys
from callboard.runtime import open_runtime
assert "openai" not in sys.modules and "httpx2" not in sys.modules
from callboard.runtime.models.names import ModelNames
from callboard.runtime.settings import ModelConfig
ModelNames("openai:gpt-x", ModelConfig(base_url="http://127.0.0.1:9"))
assert "openai" not in sys.modules and "httpx2" not in sys.modules
"""


def test_the_sdk_is_not_imported_before_it_is_needed():
    """Importing callboard and naming a model import no SDK."""
    subprocess.run([sys.executable, "-c", FIRST_USE], check=True, timeout=60)


def test_many_first_uses_make_one_client():
    """Sessions that ask a new model at the same time share what is made, also where one is cancelled meanwhile."""

    async def use(model: OpenAIModel) -> int:
        clients = set()

        async def one(cancelled: bool) -> None:
            with trio.move_on_after(0 if cancelled else 20):
                await model.warm()
            if not cancelled:
                clients.add(id(model._client))

        async with trio.open_nursery() as nursery:
            for cancelled in itertools.islice(itertools.cycle((True, False)), 10):
                nursery.start_soon(one, cancelled)
        return len(clients)

    with sse_server([answer()]) as server:
        assert 1 == run(server, use)

"""What tests of OpenAI models over a real connection share: a key that is planted, one model, one answer, one error."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from tests.pure.openai_samples import TOOLS, Said, chunk, ended, message, prompt
from tests.sse_server import SseServer

from callboard.actors.errors import ModelError
from callboard.actors.model import Reply, User
from callboard.runtime.models.openai import OpenAIModel
from callboard.runtime.settings import ModelConfig

KEY = "sk-planted-0123456789"
HELLO = {
    "responses": (*message("hello"), ended()),
    "chat": (
        chunk(content="hel"),
        chunk(content="lo"),
        chunk("stop"),
        {"choices": [], "usage": {"prompt_tokens": 50}},
        "[DONE]",
    ),
}
APIS = ("responses", "chat")


def run(
    server: SseServer, use: Callable[[OpenAIModel], Awaitable[Any]], api: Any = "responses", key: str = KEY, **more: Any
) -> Any:
    """Use one model on Trio, with the planted key, and close it."""

    async def used() -> Any:
        model = OpenAIModel("gpt-x", ModelConfig(base_url=server.url + "/v1", api=api, **more))
        try:
            with trio.fail_after(20):
                return await use(model)
        finally:
            await model.aclose()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", key)
        return trio.run(used)


def ask(server: SseServer, api: Any = "responses", said: Said | None = None, **more: Any) -> Reply:
    """The answer to one prompt."""

    async def use(model: OpenAIModel) -> Reply:
        return await model.reply(prompt(User("hi"), tools=TOOLS), Said() if said is None else said)

    reply: Reply = run(server, use, api, **more)
    return reply


def failure(server: SseServer, api: Any = "responses") -> ModelError:
    """The error of one prompt."""
    with pytest.raises(ModelError) as failed:
        ask(server, api)
    assert KEY not in str(failed.value)
    return failed.value

"""Scripting: a model that answers from a list of replies, or by a function; pure Trio."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias

import trio

from callboard.actors.errors import UsageError
from callboard.actors.events import Usage
from callboard.actors.model import Prompt, Reply, Say

Script: TypeAlias = Sequence[Reply] | Callable[[Prompt], Reply | Awaitable[Reply]]


class ScriptedModel:
    """A model that answers from a list of replies, or by a function of the prompt (plain, or async on Trio).

    A list is told to each session from its start; used up, it answers with an empty reply. `delay_s` (Trio's clock)
    passes before each answer, while its text streams in words. `usage` is reported for replies that bring none, and
    `context_window` (tokens) is what it says it can read. Every prompt is kept in `prompts`.
    """

    provider = "scripted"

    def __init__(
        self,
        replies: Script = (),
        delay_s: float = 0.0,
        usage: Usage | None = None,
        context_window: int | None = None,
    ) -> None:
        script: Any = tuple(replies) if isinstance(replies, Iterable) else replies
        if not callable(script) and not (type(script) is tuple and all(isinstance(one, Reply) for one in script)):
            raise UsageError("ScriptedModel takes a list of Reply, or a function from Prompt to Reply.")
        self._script: Script = script
        self._delay_s, self._usage, self.context_window = delay_s, usage or Usage(), context_window
        self._told: dict[str, int] = {}
        self.prompts: list[Prompt] = []

    async def reply(self, prompt: Prompt, say: Say) -> Reply:
        """The next reply of this session's script."""
        self.prompts.append(prompt)
        reply = await self._next(prompt)
        if type(reply) is not Reply:
            return reply  # a test of what the runtime does about it
        if self._delay_s > 0:
            await self._stream(reply.text, say)
        else:
            await trio.lowlevel.checkpoint()
            if reply.text:
                say(reply.text)
        if reply.usage is None:
            return Reply(reply.text, reply.calls, self._usage, reply.truncated, reply.more)
        return reply

    async def _next(self, prompt: Prompt) -> Reply:
        if callable(self._script):
            answer = self._script(prompt)
            return await answer if inspect.isawaitable(answer) else answer
        at = self._told.get(prompt.session, 0)
        self._told[prompt.session] = at + 1
        return self._script[at] if at < len(self._script) else Reply()

    async def _stream(self, text: str, say: Say) -> None:
        words = text.split(" ") if text else []
        pause_s = self._delay_s / max(1, len(words))
        if not words:
            await trio.sleep(pause_s)
        for at, word in enumerate(words):
            await trio.sleep(pause_s)
            say(word if at == 0 else f" {word}")

"""What a model sees and answers: Prompt and its messages, Reply, and the Model protocol."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from callboard.actors.values import Call, Thought, Usage, Value


class User(Value, frozen=True, tag=True):
    """Input to the session; `source` says where it came from."""

    text: str
    source: str = "user"


class Assistant(Value, frozen=True, tag=True):
    """What the model answered, with its calls and what it thought before; `interrupted` when it was cut."""

    text: str
    calls: tuple[Call, ...] = ()
    interrupted: bool = False
    thoughts: tuple[Thought, ...] = ()


class Developer(Value, frozen=True, tag=True):
    """A note of the runtime or a plugin to the model."""

    text: str


class Result(Value, frozen=True, tag=True):
    """The one result of a call."""

    call: str
    name: str
    text: str
    failed: bool = False


PromptMessage: TypeAlias = User | Assistant | Developer | Result


class ToolSpec(Value, frozen=True):
    """A tool as the model sees it: `parameters` is a JSON schema, `parallel` says it may run beside others."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    parallel: bool = False


class Prompt(msgspec.Struct, frozen=True, gc=False):
    """One model request: who asks, in which turn and step (0 outside of steps), and all that the model reads.

    `schema`, where it is not None, is the JSON schema that the final answer of the turn has to follow. `effort` is how
    hard the model should think, in the words it has for that; None: as it does by itself.
    """

    session: str
    turn: int
    step: int
    system: str
    messages: Sequence[PromptMessage]
    tools: tuple[ToolSpec, ...] = ()
    schema: Any = None
    effort: str | None = None


class Reply(msgspec.Struct, frozen=True):
    """A whole answer; `truncated` when the provider cut it at its token limit.

    `more` keeps the turn going although nothing was called: the model has not said its last word. `thoughts` are kept
    and come back with the prompt, to be sent to the same provider again.
    """

    text: str = ""
    calls: Sequence[Call] = ()
    usage: Usage | None = None
    truncated: bool = False
    more: bool = False
    thoughts: Sequence[Thought] = ()


STREAM_CLOSED = "stream closed before response.completed"
"""The text of the `ModelError` (retryable) for an answer that was cut before its end; no call of it is kept."""


Part: TypeAlias = Literal["text", "reasoning"]


class Say(Protocol):
    """Takes a piece of what the model says, or with `"reasoning"` of what it thinks, as it streams."""

    def __call__(self, piece: str, part: Part = "text", /) -> None:
        """Show it; an empty piece is a sign of life."""
        ...


@runtime_checkable
class Model(Protocol):
    """Anything that answers prompts.

    `provider` labels metrics. `reply` runs on Trio, may call `say(piece)` for each piece of text as it streams, and
    raises `ModelError`. It is cancelled at an interrupt; what it said so far is kept. `say("")` is a sign of life.

    A model may also have `context_window`, in tokens: a session compacts before it overflows, and never by itself
    without. And `idle_timeout_s`: a request without a sign of life for so long has failed and is made again. A runtime
    calls `await model.warm()` before its first session, so that nothing is imported or built while sessions run, and
    `await model.aclose()` at its end, both on Trio, for models that have them. Who is given to several runtimes is
    closed by each of them.
    """

    @property
    def provider(self) -> str:
        """The metrics label: scripted, replay, openai, anthropic; anything else counts as other."""
        ...

    async def reply(self, prompt: Prompt, say: Say) -> Reply:
        """Answer one prompt."""
        ...

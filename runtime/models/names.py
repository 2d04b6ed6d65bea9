"""From a name to a model: openai:NAME, anthropic:NAME, scripted:NAME, replay:FILE, or a Model object that is given."""

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol, runtime_checkable

import attrs
import trio

from callboard.actors.errors import ModelError, UsageError
from callboard.actors.model import Model, Prompt, Reply, Say
from callboard.actors.results import describe
from callboard.actors.testing import ScriptedModel
from callboard.actors.tool import Tool
from callboard.runtime.models.anthropic import AnthropicModel
from callboard.runtime.models.openai import OpenAIModel
from callboard.runtime.models.replay import open_replay
from callboard.runtime.models.scripted import PACE_S, SCRIPTS
from callboard.runtime.settings import ModelConfig

LOGGER = logging.getLogger("callboard")
STANDARD: Final = ModelConfig()
CLOSE_S: Final = 2.0

PROVIDERS: Final[Mapping[str, Callable[[str, ModelConfig], Model]]] = MappingProxyType(
    {"openai": OpenAIModel, "anthropic": AnthropicModel}
)
KNOWN = "openai:NAME, anthropic:NAME, scripted:demo, replay:FILE, or a Model object"


@runtime_checkable
class Warmed(Protocol):
    """A model that has something to get ready."""

    async def warm(self) -> None:
        """(Trio) Get it ready; harmless when it is."""
        ...


@runtime_checkable
class Closed(Protocol):
    """A model that holds connections."""

    async def aclose(self) -> None:
        """(Trio) Close them."""
        ...


class Missing:
    """Stands for a model that is not known any more."""

    provider = "missing"

    def __init__(self, why: str) -> None:
        self._why = why

    async def reply(self, prompt: Prompt, say: Say) -> Reply:
        """Nothing but the error."""
        raise ModelError(self._why)


class ModelNames:
    """The models of one runtime, each made once; `default` serves sessions that name none."""

    def __init__(self, default: Model | str | None, config: ModelConfig = STANDARD) -> None:
        self._made: dict[str, Model] = {}
        self._given: list[Model] = []
        self._config = config
        self._name = default if isinstance(default, str) else None
        self._default: Model = ScriptedModel() if default is None else self._make(default)

    @property
    def default(self) -> Model:
        """The model of sessions that name none."""
        return self._default

    @property
    def default_name(self) -> str:
        """What it is called: by the name it was given, or PROVIDER:NAME, where a model object has a name."""
        if self._name is not None:
            return self._name
        name = getattr(self._default, "name", None)
        provider = str(self._default.provider)
        return f"{provider}:{name}" if isinstance(name, str) and name else provider

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that the default model brings along: a replay's."""
        tools: tuple[Tool, ...] = getattr(self._default, "tools", ())
        return tools

    @property
    def steps_max(self) -> int:
        """The steps that the default model's longest turn needs; 0 when it does not say."""
        steps: int = getattr(self._default, "steps_max", 0)
        return steps

    @property
    def agents_max(self) -> int:
        """The subagents that the default model will start; 0 when it does not say."""
        agents: int = getattr(self._default, "agents_max", 0)
        return agents

    def checked(self, name: Any) -> str | None:
        """A name that `resolve` knows, or None; `UsageError` otherwise, also for a recording that is not the default.

        A recording brings tools along, so it is the model of a whole runtime.
        """
        if name is None:
            return None
        if not isinstance(name, str):
            raise UsageError(f"model takes the name of a model here, got {name!r:.80}: pass objects to open_runtime.")
        if name.startswith("replay:") and self.resolve(name) is not self._default:
            raise UsageError(f"model {name!r:.200} is a recording: it is the model of a whole runtime.")
        self.resolve(name)
        return name

    def resolve(self, name: str | None) -> Model:
        """The model of that name; `UsageError` says which there are."""
        return self._default if name is None else self._make(name)

    def answering(self, name: str | None) -> Model:
        """The model of that name for a turn that has begun: one that is not known any more answers with an error."""
        try:
            return self.resolve(name)
        except UsageError as error:
            return Missing(str(error))

    def _make(self, model: Any) -> Model:
        if not isinstance(model, str):
            if not isinstance(model, Model) or isinstance(model, type):
                raise UsageError(f"model must be {KNOWN}; got {model!r:.80}.")
            self._given.append(model)
            return model
        made = self._made.get(model)
        if made is None:
            made = self._made[model] = _by_name(model, self._settings(model))
        return made

    def _settings(self, model: str) -> ModelConfig:
        """What is configured for it: an address and a key are for the models of one provider, and for no other's."""
        config, kind = self._config, model.partition(":")[0]
        if (self._name or config.name or "").partition(":")[0] == kind:
            return config
        return attrs.evolve(config, base_url=None, api=None, api_key_env=None, extra_body={})

    async def warm(self) -> None:
        """(Trio) Import and build what the first request would need, for all that are known so far."""
        async with trio.open_nursery() as nursery:
            for model in (*self._given, *self._made.values()):
                if isinstance(model, Warmed):
                    nursery.start_soon(_warmed, model)

    async def aclose(self) -> None:
        """(Trio) Close the connections of all, side by side, within CLOSE_S."""
        with trio.CancelScope(deadline=trio.current_time() + CLOSE_S, shield=True):
            async with trio.open_nursery() as nursery:
                for model in (*self._given, *self._made.values()):
                    if isinstance(model, Closed):
                        nursery.start_soon(_closed, model)


async def _warmed(model: Warmed) -> None:
    try:
        await model.warm()
    except Exception as error:  # its first request tells whoever waits for it
        LOGGER.warning("a model could not get ready: %s", describe(error))


async def _closed(model: Closed) -> None:
    try:
        await model.aclose()
    except Exception as error:  # the others are closed all the same
        LOGGER.warning("a model did not close cleanly: %s", describe(error))


def _by_name(name: str, config: ModelConfig) -> Model:
    kind, _, rest = name.partition(":")
    if kind == "scripted" and rest in SCRIPTS:
        return ScriptedModel(SCRIPTS[rest], delay_s=PACE_S)
    if kind == "replay" and rest:
        return open_replay(rest)
    if kind in PROVIDERS and rest:
        return PROVIDERS[kind](rest, config)
    raise UsageError(f"model {name!r:.200} is not known: use {KNOWN}.")

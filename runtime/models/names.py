"""From a name to a model: scripted:NAME, replay:FILE, or a Model object that is given."""

from callboard.actors.errors import UsageError
from callboard.actors.model import Model
from callboard.actors.testing import ScriptedModel
from callboard.actors.tool import Tool
from callboard.runtime.models.replay import open_replay
from callboard.runtime.models.scripted import SCRIPTS

KNOWN = "scripted:demo, replay:FILE, or a Model object"


class ModelNames:
    """The models of one runtime, each made once; `default` serves sessions that name none."""

    def __init__(self, default: Model | str | None) -> None:
        self._made: dict[str, Model] = {}
        self._default: Model = ScriptedModel() if default is None else self._make(default)

    @property
    def default(self) -> Model:
        """The model of sessions that name none."""
        return self._default

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

    def resolve(self, name: str | None) -> Model:
        """The model of that name; `UsageError` says which there are."""
        return self._default if name is None else self._make(name)

    def _make(self, model: Model | str) -> Model:
        if not isinstance(model, str):
            if not isinstance(model, Model):
                raise UsageError(f"model must be {KNOWN}; got {model!r:.80}.")
            return model
        made = self._made.get(model)
        if made is None:
            made = self._made[model] = _by_name(model)
        return made


def _by_name(name: str) -> Model:
    kind, _, rest = name.partition(":")
    if kind == "scripted" and rest in SCRIPTS:
        return ScriptedModel(SCRIPTS[rest])
    if kind == "replay" and rest:
        return open_replay(rest)
    raise UsageError(f"model {name!r:.200} is not known: use {KNOWN}.")

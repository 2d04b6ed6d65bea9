"""/model: says which model answers in a session, or chooses another one from the next turn on."""

from collections.abc import Callable
from typing import Any

from callboard.actors.books import OPENED, TURN
from callboard.actors.errors import UsageError
from callboard.actors.events import ModelChosen
from callboard.actors.messages import Refused
from callboard.actors.plugin import Command, Did, Plugin, View

HINT = "[NAME|default]"
MODEL_IS = "model: {name}"
MODEL_SET = "model: {name}, from {when} on"
UNCHANGED = "model: {name}, as before"
NO_NAME = "/model takes the name of a model, or default; got {rest!r:.80}."
DEFAULT_MODEL = "default"


def model_plugin(check: Callable[[Any], str | None], default: str) -> Plugin:
    """The command for a runtime whose sessions are answered by `default`; `check(name)` raises `UsageError`."""

    def run(view: View, rest: Any) -> Did | Refused:
        opened = view[OPENED]
        now = opened.model if opened is not None else None
        chosen = rest.strip() if isinstance(rest, str) else rest
        if not isinstance(chosen, str):
            return Refused("invalid_command", NO_NAME.format(rest=rest))
        if not chosen:
            return Did((), MODEL_IS.format(name=now or default))
        try:
            name = None if chosen in (DEFAULT_MODEL, default) else check(chosen)
        except UsageError as error:
            return Refused("invalid_command", str(error))
        if name == now:
            return Did((), UNCHANGED.format(name=name or default))
        when = "the next turn" if view[TURN].open else "now"
        return Did((ModelChosen(name),), MODEL_SET.format(name=name or default, when=when))

    return Plugin("model", commands=(Command("model", run, HINT),))

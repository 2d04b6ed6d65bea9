"""Shown: what people and programs see in `state()` of the folds that keep more, or less, than they should read."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from callboard.actors.books import OPENED, USAGE
from callboard.actors.children import CHILDREN, with_below
from callboard.actors.eventlog import EventLog
from callboard.actors.facts import ApprovalAsked, QuestionAsked
from callboard.actors.fold import Projection, Trail

GOAL_PARTS = ("rounds", "tokens", "spent_ms", "created_ms", "updated_ms", "corrupt")
INTERNAL = ("asked", "before")  # parts of the permissions that are kept for the fold's own sake


def state_of(log: EventLog, projections: Iterable[Projection[Any]]) -> dict[str, Any]:
    """The folds of a log by their keys, as plain values; its model, None for the runtime's own, and `tree_usage`."""
    seen = (one for one in projections if one.key not in HIDDEN)
    folds = {one.key: shown(one.key, msgspec.to_builtins(log[one], enc_hook=_plain)) for one in seen}
    opened = log[OPENED]
    spent = msgspec.to_builtins(with_below(log[USAGE], log[CHILDREN]))
    return {"model": None if opened is None else opened.model, "tree_usage": spent, **folds}


def _plain(state: object) -> object:
    """What msgspec does not know: our sequences as lists, and what a plugin keeps besides as its text."""
    return list(state) if isinstance(state, Trail) else repr(state)


def shown(key: str, state: Any) -> Any:
    """The plain values of a fold, as they are shown."""
    show = SHOWN.get(key)
    return state if show is None else show(state)


def _questions(state: Any) -> Any:
    """Every field of each, also those that an event leaves out when they are empty."""
    return [{name: one.get(name, "") for name in QuestionAsked.__struct_fields__} for one in state]


def _approvals(state: Any) -> Any:
    return [{name: one.get(name) for name in ApprovalAsked.__struct_fields__ if name != "key"} for one in state]


def _permissions(state: Any) -> Any:
    return {name: value for name, value in state.items() if name not in INTERNAL}


def _plan_mode(state: Any) -> Any:
    """How the model hears of a switch is nobody else's."""
    return {name: value for name, value in state.items() if name != "narrate"}


def _goal(state: Any) -> Any:
    """The goal and how far it is, None without one; `corrupt` says why it cannot be read."""
    if state["goal"] is None:
        return None if state["corrupt"] is None else {"corrupt": state["corrupt"]}
    return {**state["goal"], **{name: state[name] for name in GOAL_PARTS}}


def _schedule(state: Any) -> Any:
    """The reminders that are set; `flaw` says why they cannot be read."""
    return {name: state[name] for name in ("active", "flaw")}


SHOWN: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "questions": _questions,
        "approvals": _approvals,
        "permissions": _permissions,
        "plan_mode": _plan_mode,
        "goal": _goal,
        "schedule": _schedule,
    }
)

HIDDEN = frozenset(
    {"opened", "history", "turn", "seen", "todos_left", "plan_known", "handovers", "answers", "ask_parts"}
)

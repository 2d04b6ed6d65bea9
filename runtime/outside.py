"""Outside: subagents that a program starts: as a tool's, with the same checks, the same limits, the same refusals."""

from contextlib import suppress
from typing import Any, Protocol

from callboard.actors.errors import CallboardError, SessionClosed, ToolError, UsageError
from callboard.actors.messages import Interrupt, Refused
from callboard.actors.stage import SpawnRequest
from callboard.plugins.orders import turns_of
from callboard.runtime.registry import Registry
from callboard.runtime.spawn import TreeFull

FOREGROUND_DETACHED = (
    "spawn takes background=False or detach=True, not both: it would wait for an agent that is let go."
)


class Home(Protocol):
    """The sessions of the runtime, as the start of an agent needs them."""

    registry: Registry

    async def spawn(self, request: SpawnRequest) -> str:
        """Start a subagent; its id."""
        ...


def request_of(parent: str, name: str, task: str, how: dict[str, Any]) -> SpawnRequest:
    """What is asked for, checked as far as nobody has to be asked; `UsageError` for what it cannot be."""
    for key, kind, words in (
        ("role", str | None, "the name of a role, or None"),
        ("model", str | None, "the name of a model, or None"),
        ("fork_turns", str | int | None, "none, all or a number of turns"),
        ("background", bool, "True or False"),
        ("detach", bool, "True or False"),
        ("notify", bool, "True or False"),
    ):
        given = how[key]
        if not isinstance(given, kind) or (key == "fork_turns" and isinstance(given, bool)):
            raise UsageError(f"spawn takes {key}: {words}, got {given!r:.80}.")
    if how["detach"] and not how["background"]:
        raise UsageError(FOREGROUND_DETACHED)
    try:
        turns = turns_of(how["fork_turns"])
    except ToolError as error:
        raise UsageError(str(error)) from None
    role, model, notify, detached = how["role"], how["model"], how["notify"], how["detach"]
    return SpawnRequest(parent, name, task, role=role, model=model, notify=notify, turns=turns, detached=detached)


async def start(home: Home, request: SpawnRequest) -> str | Refused:
    """The id of the new agent, durable with its parent's log; `UsageError` for what no room would mend."""
    try:
        return await home.spawn(request)
    except TreeFull as full:
        return Refused("limit_reached", full.refusal.reason.removesuffix("."))
    except ToolError as error:
        raise UsageError(str(error)) from None


async def first_turn(home: Home, child: Any) -> None:
    """Wait for the first turn of an agent (its handle); whoever is cancelled takes it along."""
    over = False
    try:
        with suppress(SessionClosed):  # its end is told to its parent in any case
            await child.wait(1)
        over = True
    finally:
        if not over:
            with suppress(CallboardError):
                home.registry.tell(child.id, Interrupt(1, "parent"))

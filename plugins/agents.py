"""Subagents as tools: spawn one, wait for some, list them. Their ends are facts on this session's log."""

from typing import Annotated

import msgspec
import trio

from callboard.actors.books import CHILDREN
from callboard.actors.errors import ToolError
from callboard.actors.plugin import Plugin, View
from callboard.actors.tool import tool

WAIT_MIN_MS = 1_000
WAIT_DEFAULT_MS = 30_000
WAIT_MAX_MS = 3_600_000
TARGETS_MAX = 100
TEXT_MAX_CHARS = 4_000  # of a child's last message in the answer of a wait; its mail holds all of it
TASK_MAX_CHARS = 200  # of a task in a list
ANSWER_MAX_CHARS = 40_000  # of all those texts together: an answer that is cut in the middle is no JSON any more

SPAWN = """\
Start another agent on a task of its own. It works beside you, in a session of its own, and sees only the message you
give it. Use it for parts that do not depend on each other: start all of them first, then wait. When it has finished,
its last message reaches you as mail from its path."""
WAIT = """\
Wait until the agents you name (or all you have started) are not working any more, or the time is up. Says how each of
them stands and what it said last. Ends early when new input arrives for you."""
LIST = "List the agents you have started: path, status, task."
STEERED = "Wait interrupted by new input."
TIMED_OUT = "Wait timed out."
DONE = "Wait completed."

WORKING = frozenset({"pending", "running"})


class SpawnAgent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the new agent is called and told."""

    task_name: Annotated[str, msgspec.Meta(description="Its name: a-z, 0-9 and _; no other agent of yours has it.")]
    message: Annotated[str, msgspec.Meta(description="The whole task, with all it has to know.")]
    model: Annotated[str | None, msgspec.Meta(description="Another model than yours; leave out for the same.")] = None


class WaitAgent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whom to wait for, and how long at most."""

    targets: Annotated[
        list[str] | None, msgspec.Meta(description="Paths or names; leave out for all you have started.")
    ] = None
    timeout_ms: Annotated[int, msgspec.Meta(description=f"{WAIT_MIN_MS} to {WAIT_MAX_MS} milliseconds.")] = (
        WAIT_DEFAULT_MS
    )


class ListAgents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to say."""


class Spawned(msgspec.Struct, frozen=True):
    """Where the new agent is."""

    path: str


class Standing(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one agent stands."""

    path: str
    status: str
    text: str = ""
    task: str = ""


class Waited(msgspec.Struct, frozen=True):
    """Why the wait ended, and how the agents stand."""

    message: str
    timed_out: bool
    agents: list[Standing]


# Not parallel: of several in one answer each starts in its turn, and a wait behind them knows them all.
@tool(name="spawn_agent", description=SPAWN, effect="idempotent", mutates=False)
async def spawn_agent(args: SpawnAgent, view: View) -> Spawned:
    """Start a subagent."""
    return Spawned(await view.spawn(args.task_name, args.message, model=args.model))


@tool(name="wait_agent", description=WAIT, parallel=True, effect="none")
async def wait_agent(args: WaitAgent, view: View) -> Waited:
    """Wait for subagents."""
    if not WAIT_MIN_MS <= args.timeout_ms <= WAIT_MAX_MS:
        raise ToolError(f"timeout_ms must be {WAIT_MIN_MS} to {WAIT_MAX_MS}, got {args.timeout_ms}.")
    ids = _targets(args.targets, view)
    with trio.move_on_after(args.timeout_ms / 1000) as clock:
        await view.until(lambda: view.steered or not _working(ids, view))
    waited = [child for child in view[CHILDREN] if child.id in ids]
    text_max = min(TEXT_MAX_CHARS, ANSWER_MAX_CHARS // max(1, len(waited)))
    standing = [Standing(child.path, child.status, child.text[:text_max]) for child in waited]
    message = TIMED_OUT if clock.cancelled_caught else STEERED if _working(ids, view) else DONE
    return Waited(message, clock.cancelled_caught, standing)


@tool(name="list_agents", description=LIST, parallel=True, effect="none")
async def list_agents(args: ListAgents, view: View) -> list[Standing]:
    """List subagents."""
    children = view[CHILDREN]
    task_max = min(TASK_MAX_CHARS, ANSWER_MAX_CHARS // max(1, len(children)))
    return [Standing(child.path, child.status, task=child.task[:task_max]) for child in children]


def _targets(targets: list[str] | None, view: View) -> frozenset[str]:
    children = view[CHILDREN]
    if targets is None:
        return frozenset(child.id for child in children)
    if not targets:
        raise ToolError("targets is empty: name the agents, or leave it out to wait for all.")
    if len(targets) > TARGETS_MAX:
        raise ToolError(f"targets names {len(targets)} agents: at most {TARGETS_MAX}.")
    by_path = {child.path: child.id for child in children}
    ids: set[str] = set()
    for target in targets:
        path = target if target.startswith("/") else f"{view.path}/{target}"
        if path not in by_path:
            raise ToolError(f"there is no agent {target!r:.200}: list_agents tells which there are.")
        ids.add(by_path[path])
    return frozenset(ids)


def _working(ids: frozenset[str], view: View) -> bool:
    return any(child.id in ids and child.status in WORKING for child in view[CHILDREN])


AGENTS_PLUGIN = Plugin("agents", tools=(spawn_agent, wait_agent, list_agents))

"""Standings: how agents are named in calls, and how their standings are shown within what a model reads."""

import re
from collections.abc import Iterable, Sequence

import msgspec

from callboard.actors.errors import ToolError
from callboard.actors.lent import Agent
from callboard.actors.receipts import clean_text

ROOT = "/root"
PATH = re.compile(r"/root(/[a-z0-9_]{1,64})*")
RELATIVE = re.compile(r"[a-z0-9_]{1,64}(/[a-z0-9_]{1,64})*")
RESERVED = frozenset({"root", ".", ".."})
QUOTED_MAX_CHARS = 100
TEXTS_MAX_CHARS = (4_000, 1_000, 200, 0)  # of what one agent said, the first of these with which all of them fit
TASK_MAX_CHARS = 200
SHOWN_MAX_BYTES = 60_000  # of them all as JSON: an answer that is cut in the middle is no JSON any more

NO_PATH = "{target!r} names no agent: a path is like /root/name, or name for an agent of yours."
RESERVED_WORD = "{target!r} names no agent: root, . and .. are reserved; the first agent of all is /root."


class Standing(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one agent stands; `you` is the agent that asks."""

    path: str
    status: str
    text: str = ""
    task: str = ""
    role: str = ""
    closed: bool = False
    detached: bool = False
    you: bool = False


def quoted(text: str) -> str:
    """What a model wrote, cut so that it can be quoted to it."""
    cut = clean_text(text[:QUOTED_MAX_CHARS])
    return cut if len(text) <= QUOTED_MAX_CHARS else f"{cut}..."


def path_of(here: str, target: str) -> str:
    """The path that a target means for the agent at `here`; a `ToolError` for what is no path at all."""
    if target == ROOT:
        return target
    if RESERVED.intersection(target.removeprefix(f"{ROOT}/").split("/")):
        raise ToolError(RESERVED_WORD.format(target=quoted(target)))
    if PATH.fullmatch(target):
        return target
    if not RELATIVE.fullmatch(target):
        raise ToolError(NO_PATH.format(target=quoted(target)))
    return f"{here}/{target}"


def not_found(path: str) -> Agent:
    """What stands for an agent that never was."""
    return Agent("", quoted(path), "not_found")


def shown(agents: Iterable[Agent], here: str, *, tasks: bool) -> tuple[list[Standing], int]:
    """As many of the agents as can be read, with as much of their texts as fits, or of their tasks; how many are not.

    Those that work are never left out before others.
    """
    agents = tuple(agents)
    for text_max in TEXTS_MAX_CHARS:
        standings = [_standing(agent, here, text_max, tasks=tasks) for agent in agents]
        if _bytes(standings) <= SHOWN_MAX_BYTES:
            return standings, 0
    kept = _that_fit(sorted(range(len(agents)), key=lambda at: agents[at].status in _SETTLED), standings)
    return [standings[at] for at in sorted(kept)], len(agents) - len(kept)


_SETTLED = frozenset({"idle", "interrupted", "completed", "failed", "stopped", "not_found"})


def _that_fit(order: Iterable[int], standings: Sequence[Standing]) -> list[int]:
    kept, room = [], SHOWN_MAX_BYTES - 2
    for at in order:
        room -= _bytes(standings[at]) + 1
        if room < 0:
            break
        kept.append(at)
    return kept


def _bytes(value: Standing | list[Standing]) -> int:
    return len(msgspec.json.encode(value))


def _standing(agent: Agent, here: str, text_max: int, *, tasks: bool) -> Standing:
    return Standing(
        agent.path,
        agent.status,
        "" if tasks else agent.text[:text_max],
        agent.task[: min(TASK_MAX_CHARS, text_max)] if tasks else "",
        agent.role,
        agent.closed,
        agent.detached and tasks,
        agent.path == here,
    )

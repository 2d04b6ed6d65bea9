"""Orders: what the tools for agents take, what they answer, what they say, and what they refuse by itself."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from callboard.actors.errors import ToolError
from callboard.actors.forked import Turns
from callboard.plugins.standings import ROOT, Standing, quoted

WAIT_MIN_MS = 1_000
WAIT_DEFAULT_MS = 30_000
WAIT_MAX_MS = 3_600_000
FOREGROUND_MAX_S = 3_600.0  # after that an agent in the foreground goes on in the background
CLOSE_MAX_S = 30.0
TARGETS_MAX = 100
MESSAGE_MAX_CHARS = 100_000
TURNS_MAX = 1_000_000
ROLES_TOLD_MAX = 20
ROLE_TOLD_MAX_CHARS = 120

SPAWN = """\
Start another agent on a task of its own, in a session of its own. It sees only the message you give it, and with
fork_turns also what was said in the last turns here. By default it works beside you: start all agents for parts that do
not depend on each other first, then wait; when it has finished, its last message reaches you as mail from its path.
With background false the call waits for its answer; such calls run one after the other. An interrupt of your turn also
interrupts it, unless it was started with detach."""
ROLES = "\nRoles: {roles}."
SEND = """\
Send a message to another agent of the tree. It reads it before its next model request, and is not woken by it."""
FOLLOW_UP = """\
Give another agent of the tree more to do. If it rests this starts a turn of it, else it reads the message before its
next model request. Its answer goes to the agent that started it."""
WAIT = """\
Wait until the agents you name (or all you have started) are not working any more, or the time is up. Says how each of
them stands and what it said last. Ends early when new input arrives for you."""
INTERRUPT = """\
Stop what an agent below you is doing, and what those below it do. It keeps what it knows, and can be given more to
do."""
LIST = "List agents: path, status, task. scope: those you have started, all below you, or the whole tree."
CLOSE = "End an agent below you for good, and all below it. It takes no more messages; repeating this is harmless."
REPORT = """\
Tell the agent that started you something now, before you have finished. What you say last in your turn reaches it in
any case."""

STEERED = "Wait interrupted by new input."
TIMED_OUT = "Wait timed out."
DONE = "Wait completed."
NOBODY = "Nothing was waited for: you have started no agent."
MISSING = "Nothing was waited for: not every agent exists."
WORKS_ON = "Agent {path} works on in the background: its last message reaches you as mail."
REPORTED = "Reported to {path}."
NO_AGENT = "there is no agent {target!r}: list_agents tells which there are."
ROOT_HAS_NO_PARENT = "nobody started this agent: say what you have to say as your answer."
NOT_STARTED_BY_ANYONE = "/root is not an agent that was started: it cannot be the target of {tool}."
NOT_ONESELF = "an agent cannot be the target of its own {tool}: it would be itself."
NOT_BELOW = "{path} is not below you: {tool} is for agents that you, or agents of yours, have started."
CLOSED = "agent {path} was closed: it takes no messages. Start another one."
NO_TEXT = "message is empty: write what the agent should know or do."
LONG_TEXT = "{field} has {count:,} characters: at most {most:,}; put it into a file instead."
WRONG_TIMEOUT = "timeout_ms must be {least} to {most}, got {given}."
WRONG_TURNS = "fork_turns must be none, all or a number of turns from 1 to {most:,}, got {given!r}."
FOREGROUND_DETACHED = "background false and detach true do not go together: the call waits for the agent; choose one."

Target = Annotated[str, msgspec.Meta(description="Its path, as /root/name, or the name of one of yours.")]


class SpawnAgent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the new agent is called and told."""

    task_name: Annotated[str, msgspec.Meta(description="Its name: a-z, 0-9 and _; no other agent of yours has it.")]
    message: Annotated[str, msgspec.Meta(description="The whole task, with all it has to know.")]
    role: Annotated[str | None, msgspec.Meta(description="One of the roles, if there are any.")] = None
    model: Annotated[str | None, msgspec.Meta(description="Another model than yours; leave out for the same.")] = None
    fork_turns: Annotated[
        str | int | None,
        msgspec.Meta(description="How much of what was said here it knows: none (as when left out), all, or a number."),
    ] = None
    background: Annotated[bool, msgspec.Meta(description="False: wait for its answer here.")] = True
    detach: Annotated[bool | None, msgspec.Meta(description="True: it works on when you are interrupted.")] = None


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """To whom, and what."""

    target: Target
    message: str


class WaitAgent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whom to wait for, and how long at most."""

    targets: Annotated[
        list[str] | None, msgspec.Meta(description="Paths or names; leave out for all you have started.")
    ] = None
    timeout_ms: Annotated[int, msgspec.Meta(description=f"{WAIT_MIN_MS} to {WAIT_MAX_MS} milliseconds.")] = (
        WAIT_DEFAULT_MS
    )


class OneAgent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which agent."""

    target: Target


class ListAgents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which agents."""

    scope: Literal["children", "below", "tree"] = "children"


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the parent should know."""

    output: str


class Spawned(msgspec.Struct, frozen=True):
    """Where the new agent is."""

    path: str


class Sent(msgspec.Struct, frozen=True):
    """To whom a message went, and how that agent stands."""

    path: str
    status: str


class Did(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was done to an agent, and how it stood before; `ended` False: that is still under way."""

    path: str
    previous_status: str
    ended: bool = True


class Waited(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why the wait ended, and how the agents stand; `left_out` are too many to be shown."""

    message: str
    timed_out: bool
    agents: list[Standing]
    left_out: int = 0


class Listed(msgspec.Struct, frozen=True, omit_defaults=True):
    """How agents stand; `left_out` are too many to be shown."""

    agents: list[Standing]
    left_out: int = 0


def turns_of(given: str | int | None) -> Turns:
    """How many turns are copied, from how a model says that."""
    if given is None or given == "none":
        return 0
    if given == "all":
        return "all"
    count = int(given) if isinstance(given, int) or (given.isascii() and given.isdigit() and len(given) < 10) else 0
    if not 1 <= count <= TURNS_MAX:
        shown_as = quoted(given) if isinstance(given, str) else given
        raise ToolError(WRONG_TURNS.format(most=TURNS_MAX, given=shown_as))
    return count


def text_of(field: str, text: str) -> str:
    """What one agent tells another; a `ToolError` for nothing, and for too much."""
    if not text.strip():
        raise ToolError(NO_TEXT.replace("message", field, 1))
    if len(text) > MESSAGE_MAX_CHARS:
        raise ToolError(LONG_TEXT.format(field=field, count=len(text), most=MESSAGE_MAX_CHARS))
    return text


def check_below(tool_name: str, here: str, path: str) -> None:
    """A `ToolError` for a target that is not below the agent at `here`."""
    if path == ROOT:
        raise ToolError(NOT_STARTED_BY_ANYONE.format(tool=tool_name))
    if path == here:
        raise ToolError(NOT_ONESELF.format(tool=tool_name))
    if not path.startswith(f"{here}/"):
        raise ToolError(NOT_BELOW.format(path=quoted(path), tool=tool_name))


def told_roles(roles: Mapping[str, str]) -> str:
    """The roles as the description of a tool names them."""
    if not roles:
        return ""
    lines = [f"{name} ({_first_line(text)})" if text else name for name, text in sorted(roles.items())]
    more = ["..."] if len(lines) > ROLES_TOLD_MAX else []
    return ROLES.format(roles=", ".join((*lines[:ROLES_TOLD_MAX], *more)))


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:ROLE_TOLD_MAX_CHARS]

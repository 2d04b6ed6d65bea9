"""Agents as tools: start them, talk to them, wait for them, end them; and in such an agent, report to its parent."""

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import trio

from callboard.actors.books import QUEUE
from callboard.actors.children import CHILDREN, WORKING, Child, child_of, news_of
from callboard.actors.errors import LogError, MailboxFull, SessionClosed, SessionNotFound, ToolError
from callboard.actors.facts import ChildReleased
from callboard.actors.lent import Agent
from callboard.actors.plugin import Failed, Plugin, View
from callboard.actors.tool import Tool, tool
from callboard.plugins.orders import (
    CLOSE,
    CLOSE_MAX_S,
    CLOSED,
    DONE,
    FOLLOW_UP,
    FOREGROUND_DETACHED,
    FOREGROUND_MAX_S,
    INTERRUPT,
    LIST,
    MISSING,
    NO_AGENT,
    NOBODY,
    NOT_ONESELF,
    NOT_STARTED_BY_ANYONE,
    REPORT,
    REPORTED,
    ROOT_HAS_NO_PARENT,
    SEND,
    SPAWN,
    STEERED,
    TARGETS_MAX,
    TIMED_OUT,
    WAIT,
    WAIT_MAX_MS,
    WAIT_MIN_MS,
    WORKS_ON,
    WRONG_TIMEOUT,
    Did,
    ListAgents,
    Listed,
    Message,
    OneAgent,
    Report,
    Sent,
    SpawnAgent,
    Spawned,
    WaitAgent,
    Waited,
    check_below,
    text_of,
    told_roles,
    turns_of,
)
from callboard.plugins.standings import ROOT, not_found, path_of, quoted, shown


def news(view: View) -> bool:
    """Whether input arrived that a wait must not keep from the model: a steer, or mail that is no end of an agent."""
    return view.steered or any(
        message.source.startswith("agent:") and not message.id.startswith("child:") for message in view[QUEUE]
    )


# -- finding, and waiting ----------------------------------------------------------------------------------------------


async def _find(view: View, target: str) -> Agent:
    """The agent that is meant; a `ToolError` when there is none."""
    path = path_of(view.path, target)
    try:
        agent = await view.agents.find(path)
    except LogError as error:
        raise ToolError(str(error)) from None
    if agent is None:
        raise ToolError(NO_AGENT.format(target=quoted(target)))
    return agent


async def _waited_for(targets: list[str] | None, view: View) -> Sequence[Agent]:
    """Those whom a wait is about, each once."""
    here = view.path
    if targets is None:
        return view.agents.own()
    if not targets:
        raise ToolError("targets is empty: name the agents, or leave it out to wait for all.")
    if len(targets) > TARGETS_MAX:
        raise ToolError(f"targets names {len(targets):,} agents: at most {TARGETS_MAX}.")
    found: dict[str, Agent] = {}
    for path in dict.fromkeys(path_of(here, target) for target in targets):
        check_below("wait_agent", here, path)
        found[path] = await view.agents.find(path) or not_found(path)
    return list(found.values())


async def _settled(view: View, agents: Sequence[Agent], timeout_s: float) -> str:
    """Wait until each of these was seen at rest; why the wait ended."""
    company, waiting = view.agents, list(agents[::-1])
    if any(agent.status == "not_found" for agent in agents):
        return MISSING

    def done() -> bool:
        while waiting and company.now(waiting[-1:])[0].status not in WORKING:
            waiting.pop()
        return not waiting

    with trio.move_on_after(timeout_s) as clock:
        await company.until(lambda: done() or news(view), lambda: [agent.id for agent in waiting[-1:]])
    return DONE if done() else TIMED_OUT if clock.cancelled_caught else STEERED


async def _first_answer(view: View, id_: str) -> str | Failed:
    """The answer of an agent in the foreground, whose end the call that waits here answers with."""
    company = view.agents

    def known() -> Child:
        child = child_of(view[CHILDREN], id_)
        assert child is not None, "it was started by this call"
        return child

    try:
        with trio.move_on_after(FOREGROUND_MAX_S) as clock:
            await view.until(lambda: known().turn > 0 or news(view))
    except trio.Cancelled:
        company.interrupt(id_, turn=1)
        raise
    child = known()
    if child.turn > 0:
        text = news_of(child.path, child.status, child.text)
        return text if child.status == "completed" else Failed(text)
    view.append(ChildReleased(id_))
    return f"{TIMED_OUT if clock.cancelled_caught else STEERED} {WORKS_ON.format(path=child.path)}"


async def _send(view: View, tool_name: str, args: Message, *, trigger: bool) -> Sent:
    """Mail to one agent of the tree."""
    text, path = text_of("message", args.message), path_of(view.path, args.target)
    if path == ROOT and trigger:
        raise ToolError(NOT_STARTED_BY_ANYONE.format(tool=tool_name))
    if path == view.path:
        raise ToolError(NOT_ONESELF.format(tool=tool_name))
    agent = await _find(view, args.target)
    if agent.closed:
        raise ToolError(CLOSED.format(path=agent.path))
    await _mail(view, agent.path, text, trigger=trigger)
    return Sent(agent.path, agent.status)


async def _mail(view: View, path: str, text: str, *, trigger: bool) -> None:
    """Once, however often this call is repeated after a crash."""
    id_ = hashlib.sha256(view.key.encode("utf-8", "replace")).hexdigest()[:32]
    try:
        await view.mail(path, text, trigger=trigger, id=id_)
    except (MailboxFull, SessionClosed, SessionNotFound, LogError) as error:
        raise ToolError(str(error)) from None


# -- the tools ---------------------------------------------------------------------------------------------------------


def _spawn_tool(roles: Mapping[str, str], *, wake: bool, detach: bool) -> Tool:
    # Not parallel: of several in one answer each starts in its turn, and a wait behind them knows them all.
    @tool(name="spawn_agent", description=SPAWN + told_roles(roles), effect="idempotent", mutates=False)
    async def spawn_agent(args: SpawnAgent, view: View) -> Spawned | str | Failed:
        """Start a subagent."""
        detached = args.detach if args.detach is not None else detach and args.background
        if detached and not args.background:
            raise ToolError(FOREGROUND_DETACHED)
        path = await view.spawn(
            args.task_name,
            args.message,
            role=args.role,
            model=args.model,
            notify=wake,
            turns=turns_of(args.fork_turns),
            awaited=not args.background,
            detached=detached,
        )
        return Spawned(path) if args.background else await _first_answer(view, f"{view.session}.{args.task_name}")

    return spawn_agent


@tool(name="send_message", description=SEND, effect="idempotent", mutates=False)
async def send_message(args: Message, view: View) -> Sent:
    """Send mail that wakes nobody."""
    return await _send(view, "send_message", args, trigger=False)


@tool(name="followup_task", description=FOLLOW_UP, effect="idempotent", mutates=False)
async def followup_task(args: Message, view: View) -> Sent:
    """Send mail that starts a turn."""
    return await _send(view, "followup_task", args, trigger=True)


@tool(name="wait_agent", description=WAIT, parallel=True, effect="none")
async def wait_agent(args: WaitAgent, view: View) -> Waited:
    """Wait for subagents."""
    if not WAIT_MIN_MS <= args.timeout_ms <= WAIT_MAX_MS:
        raise ToolError(WRONG_TIMEOUT.format(least=WAIT_MIN_MS, most=WAIT_MAX_MS, given=args.timeout_ms))
    agents = await _waited_for(args.targets, view)
    message = await _settled(view, agents, args.timeout_ms / 1000) if agents else NOBODY
    standings, left_out = shown(view.agents.now(agents), view.path, tasks=False)
    return Waited(message, message == TIMED_OUT, standings, left_out)


@tool(name="interrupt_agent", description=INTERRUPT, effect="idempotent", mutates=False)
async def interrupt_agent(args: OneAgent, view: View) -> Did:
    """Interrupt a subagent."""
    check_below("interrupt_agent", view.path, path_of(view.path, args.target))
    agent = await _find(view, args.target)
    view.agents.interrupt(agent.id)
    return Did(agent.path, agent.status)


@tool(name="list_agents", description=LIST, parallel=True, effect="none")
async def list_agents(args: ListAgents, view: View) -> Listed:
    """List agents."""
    here = view.path
    agents = view.agents.own() if args.scope == "children" else await view.agents.all()
    if args.scope == "below":
        agents = tuple(agent for agent in agents if agent.path.startswith(f"{here}/"))
    return Listed(*shown(agents, here, tasks=True))


@tool(name="close_agent", description=CLOSE, effect="idempotent", mutates=False)
async def close_agent(args: OneAgent, view: View) -> Did:
    """End a subagent for good."""
    check_below("close_agent", view.path, path_of(view.path, args.target))
    agent = await _find(view, args.target)
    with trio.move_on_after(CLOSE_MAX_S) as clock:
        try:
            await view.agents.close(agent.id)
        except (SessionClosed, SessionNotFound, LogError) as error:
            raise ToolError(f"agent {agent.path} is not closed: {error}") from None
    return Did(agent.path, agent.status, ended=not clock.cancelled_caught)


def _report_tool(*, wake: bool) -> Tool:
    def refuse(view: View) -> str | None:
        return None if view.depth else ROOT_HAS_NO_PARENT

    @tool(description=REPORT, effect="idempotent", mutates=False, refuse=refuse, offered="below")
    async def report(args: Report, view: View) -> str:
        """Tell the parent something."""
        parent = view.path.rpartition("/")[0]
        await _mail(view, parent, text_of("output", args.output), trigger=wake)
        return REPORTED.format(path=parent)

    return report


NO_ROLES: Mapping[str, str] = MappingProxyType({})


def agents_plugin(
    *, roles: Mapping[str, str] = NO_ROLES, notify: Literal["wake", "queue"] = "wake", detach: bool = False
) -> Plugin:
    """The agents plugin: `roles` by name with their instructions, whether news of agents wake an idle one.

    With `detach` agents in the background work on when their parent is interrupted, unless a call says otherwise.
    """
    spawn, report = _spawn_tool(roles, wake=notify == "wake", detach=detach), _report_tool(wake=notify == "wake")
    others = (send_message, followup_task, wait_agent, interrupt_agent, list_agents, close_agent)
    return Plugin("agents", tools=(spawn, *others, report))


AGENTS_PLUGIN = agents_plugin()

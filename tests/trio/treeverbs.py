"""What people, programs and models say to whole trees of agents, by name; what it says is drawn from the seed."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from callboard.actors.errors import CallboardError, ToolError
from callboard.actors.plugin import View
from callboard.actors.stage import SpawnRequest
from callboard.actors.tool import tool
from callboard.runtime.handle import SessionHandle

from .chaos import TOOLS
from .machine import stubborn

NAMES = ("x", "y", "z")
TARGETS = (*NAMES, "/root/x/y", "/root")
SPAWNS: Any = ({}, {}, {"background": False}, {"detach": True}, {"fork_turns": "all"}, {"fork_turns": "1"})


@tool(parallel=True, effect="idempotent")
async def write(seconds: float, view: View) -> str:
    """Sends mail up or down the tree."""
    to = ("/root", f"{view.path}/x", "/root/y", "/root/x/y")[int(seconds * 4) % 4]
    try:
        await view.mail(to, "from a tool", trigger=seconds % 0.1 < 0.05, id=view.key)
    except CallboardError as error:
        raise ToolError("no mail today") from error
    return "sent"


KIT = (*TOOLS, stubborn, write)
OFTEN = ("spawn_agent",) * 5 + ("wait_agent",) * 3 + ("write",) * 2

Verb: TypeAlias = Callable[[Any, SessionHandle], Awaitable[Any]]

# A verb of a session is one line here.
VERBS: Mapping[str, Verb] = {
    "submit": lambda t, s: s.submit("a task", t.id()),
    "submit again": lambda t, s: s.submit("a task", t.id()),
    "submit more": lambda t, s: s.submit("a task", t.id()),
    "run": lambda t, s: s.run("a task"),
    "steer": lambda t, s: s.steer("left", id=t.id()),
    "submit_or_steer": lambda t, s: s.submit_or_steer("right", id=t.id()),
    "inject": lambda t, s: s.inject("by the way", id=t.id()),
    "replace": lambda t, s: s.replace("instead", id=t.id()),
    "review": lambda t, s: s.review("all of it", id=t.id()),
    "compact": lambda t, s: s.compact(id=t.id()),
    "edit": lambda t, s: s.edit(t.queued(s), "better", verb_id=t.id()),
    "withdraw": lambda t, s: s.withdraw(t.queued(s)),
    "mail": lambda t, s: t.mail(s),
    "interrupt": lambda t, s: s.interrupt(id=t.id()),
    "interrupt the running turn": lambda t, s: s.interrupt(),
    "resume_queue": lambda t, s: s.resume_queue(),
    "plan": lambda t, s: s.set_mode("plan"),
    "default": lambda t, s: s.set_mode("default"),
    "goal": lambda t, s: s.use("goal", t.choose("win", "pause", "resume", "clear")),
    "implement": lambda t, s: s.implement(f"{t.draw.randint(1, 4)}-plan", clear=t.chance(0.5)),
    "spawn": lambda t, s: t.grove.sessions.spawn(SpawnRequest(s.id, t.choose(*NAMES), "from outside")),
    "fork": lambda t, s: s.fork(session_id=f"fork{t.draw.randint(1, 2)}"),
    "open": lambda t, s: t.grove.sessions.open(s.id),
    "stop": lambda t, s: s.stop(),
    "stop once": lambda t, s: s.stop(id=t.id()),
}
# What a model's call says; of a tool that is not there it is not asked.
ARGUMENTS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "spawn_agent": lambda t: {"task_name": t.choose(*NAMES), "message": "work", **t.choose(*SPAWNS)},
    "wait_agent": lambda t: {"timeout_ms": t.choose(1000, 4000)},
    "list_agents": lambda t: {},
    "send_message": lambda t: {"target": t.choose(*TARGETS), "message": "news"},
    "followup_task": lambda t: {"target": t.choose(*TARGETS), "message": "go on"},
    "interrupt_agent": lambda t: {"target": t.choose(*TARGETS)},
    "close_agent": lambda t: {"target": t.choose(*TARGETS)},
    "report": lambda t: {"output": "so far"},
    "schedule_create": lambda t: {"prompt": "tea", t.choose("after_seconds", "every_seconds"): t.choose(1, 3, 300)},
    "schedule_list": lambda t: {},
    "schedule_delete": lambda t: {"id": f"schedule-{t.draw.randint(1, 3)}"},
    "exit_plan_mode": lambda t: {"plan": "# Win\n- at once"},
    "request_user_input": lambda t: {
        "questions": [{"id": "q", "header": "h", "question": "which?", "options": [{"label": "a"}, {"label": "b"}]}]
    },
    "create_goal": lambda t: {"objective": "win"},
    "update_goal": lambda t: {"goal_id": "goal-1", "revision": t.draw.randint(1, 3), "action": "complete"},
    "get_goal": lambda t: {},
}
UNQUEUED = ("resume_queue", "implement", "goal")  # what they answer is no number of a message
SELDOM = frozenset({"stop", "stop once", "fork", "review", "compact"})

"""plan: the checklist of a longer job, which outlives turns, restarts and forks; the tool `update_plan`."""

from typing import Annotated

import attrs
import msgspec

from callboard.actors.books import TURN
from callboard.actors.errors import ToolError
from callboard.actors.events import Event, Message, Value
from callboard.actors.facts import PlanStep, PlanUpdated
from callboard.actors.fold import Projection
from callboard.actors.mode import MODE
from callboard.actors.plugin import Enter, Plugin, View
from callboard.actors.tool import Exposure, Tool, tool
from callboard.plugins.checklist import check_text, listing

DESCRIPTION = """\
Show the plan of a longer task as a checklist that the user follows.
For a task of several steps declare the plan before you act; a task of one or two steps needs none.
Every call carries the whole list and replaces the last one. Call it each time a step starts or finishes, and when the \
plan itself changes; say why in `explanation`.
Keep one step in_progress while you work, and at most one at any time.\
"""
ENFORCED = " A plan with more than one is refused and the last plan stays."
STEPS_FIELD = "All steps, in the order they are to be done."
EXPLANATION_FIELD = "Why the plan changed, in a sentence; leave it out when nothing needs saying."
UPDATED = "Plan updated"
REFUSED_IN_PLAN_MODE = "update_plan is a TODO/checklist tool and is not allowed in Plan mode"
TOO_MANY = "invalid plan: at most one step may be in_progress (got {count})"
NOTE = """\
The plan of this session is not finished. It stood like this:
{steps}
This is a record of earlier work and not a new request. Where it still applies, go on from it and keep it current with \
update_plan.\
"""


class Plan(Value, frozen=True, omit_defaults=False):
    """The plan as it stands: the last snapshot the model sent, whole."""

    explanation: str | None
    plan: tuple[PlanStep, ...]

    @property
    def done(self) -> int:
        """How many steps are completed."""
        return sum(step.status == "completed" for step in self.plan)


def _plan(state: Plan | None, event: Event) -> Plan | None:
    return Plan(event.explanation, event.plan) if isinstance(event, PlanUpdated) else state


PLAN: Projection[Plan | None] = Projection("plan", None, _plan, on=(PlanUpdated,), state=Plan | None)
"""The plan of the session, None before the first; turns neither clear nor tick it."""


class UpdatePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `update_plan` takes: the whole plan; a null explanation is the same as none."""

    plan: Annotated[tuple[PlanStep, ...], msgspec.Meta(description=STEPS_FIELD)]
    explanation: Annotated[str | None, msgspec.Meta(description=EXPLANATION_FIELD)] = None

    def __post_init__(self) -> None:
        """Refuse text that the log cannot hold."""
        check_text(self.explanation or "", "`explanation`")
        for at, step in enumerate(self.plan):
            check_text(step.step, f"`$.plan[{at}].step`")


def open_steps(view: View) -> int:
    """How many steps of the plan are not completed; 0 without a plan."""
    plan = view[PLAN]
    return 0 if plan is None else len(plan.plan) - plan.done


async def remind(view: View, messages: tuple[Message, ...]) -> Enter:
    """At the first step after an open, a fork or a compaction, put an unfinished plan into the prompt, once."""
    plan = view[PLAN]
    if not view.fresh or plan is None or plan.done == len(plan.plan):
        return Enter(messages)
    text = NOTE.format(steps=listing((step.step, step.status) for step in plan.plan))
    return Enter((*messages, Message(f"plan-note-{view.turn}-{view[TURN].step + 1}", text, "notice")))


def _refuse(view: View) -> str | None:
    return REFUSED_IN_PLAN_MODE if view[MODE].active else None


def _tool(*, one_in_progress: bool, exposure: Exposure) -> Tool:
    @tool(runs_on="trio", effect="none", control=True, exposure=exposure, mutates=False, refuse=_refuse)
    def update_plan(arguments: UpdatePlan, view: View) -> str:
        count = sum(step.status == "in_progress" for step in arguments.plan)
        if one_in_progress and count > 1:
            raise ToolError(TOO_MANY.format(count=count))
        view.append(PlanUpdated(arguments.explanation, arguments.plan))
        return UPDATED

    return attrs.evolve(update_plan, description=DESCRIPTION + ENFORCED if one_in_progress else DESCRIPTION)


def plan_plugin(one_in_progress: bool = False, exposure: Exposure = "direct_model_only") -> Plugin:
    """The plan plugin; `one_in_progress` refuses a plan with several steps in progress instead of only asking.

    `exposure` "direct" offers the tool inside code as well.
    """
    return Plugin(
        "plan",
        events=(PlanUpdated,),
        projections=(PLAN,),
        tools=(_tool(one_in_progress=one_in_progress, exposure=exposure),),
        before_step=remind,
        open_steps=open_steps,
    )


PLAN_PLUGIN = plan_plugin()

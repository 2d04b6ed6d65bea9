"""plan_mode: look and plan before anything changes; leave it by a plan that the user approves: `exit_plan_mode`."""

import re
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from callboard.actors.asked import QUESTIONS
from callboard.actors.books import TURN
from callboard.actors.compaction import PLAN_MODE as STILL_PLANNING
from callboard.actors.errors import ToolError, UsageError
from callboard.actors.events import Event, Message, MessageQueued, NoteAdded, StepStarted, Value
from callboard.actors.facts import (
    Execution,
    Option,
    PlanApproved,
    PlanHandedOver,
    PlanModeRequested,
    PlanModeSet,
    PlanProposed,
    QuestionAnswered,
    QuestionAsked,
)
from callboard.actors.fold import Projection, table
from callboard.actors.mode import MODE, Mode
from callboard.actors.plugin import Alarm, Command, Concluded, Enter, Failed, Plugin, ToolCall, View
from callboard.actors.tool import Tool, tool
from callboard.plugins.checklist import check_text
from callboard.plugins.handovers import HANDOVERS, PROPOSED, carry_out, hand_over, implement, leave, next_ms
from callboard.plugins.proposed import Proposals

SECTION = """\
# Plan mode
Plan mode is on: you look and plan, and the user decides whether the plan is carried out.
- Change nothing: no file, no setting, no system, nothing that others see. Reading, searching and dry runs are \
welcome, and so are builds and tests that write nothing but caches.
- Find out yourself what can be found out. Ask the user about what only they can know: what they want, and which of \
several ways they prefer.
- Plan until no decision is left to whoever carries the plan out: what changes where, in which order, and how it is \
checked. Keep the plan out of todo lists and checklists.
- A request to do something is a request to plan it while this mode is on.
- When the plan is whole, call exit_plan_mode with all of it, as the only call of your message and its end. What was \
agreed in conversation is no approval.\
"""
SECTION_BELOW = """\
# Plan mode
The agent that started you, or one above it, is in Plan mode: you look and report, and change nothing: no file, no \
setting, no system, nothing that others see. Where your task asks for a change, answer with how it is to be made.\
"""
SWITCHED_ON = (
    "The user switched Plan mode on. From here on look and plan, and change nothing, until a plan was approved or the "
    "user switches it off."
)
SWITCHED_OFF = "The user switched Plan mode off. Its rules do not hold any more: you may change things again."
STATED: Final = {
    True: "Plan mode is on: look and plan, change nothing.",
    False: "Plan mode is off: its rules do not hold.",
}
DESCRIPTION = """\
Show the user your finished plan and ask whether it may be carried out. For Plan mode only.
The plan is Markdown and begins with a heading of level 1. It has to stand for itself: whoever carries it out may know \
nothing else of this conversation. Make this the only call of your message.\
"""
PLAN_FIELD = "The whole plan in Markdown, beginning with `# ` and a title."
QUESTION = "May this plan be carried out?"
APPROVE, KEEP = "Approve", "Keep planning"
OPTIONS = (
    Option(APPROVE, "Leave Plan mode and carry the plan out."),
    Option(KEEP, "Stay in Plan mode; what you write is passed on."),
)
NOT_PLANNING = "exit_plan_mode is for Plan mode, which is not on: there is nothing to leave, go on with the task."
NO_HEADING = "the plan must begin with a heading of level 1, such as `# Move the cache`; it begins with {start!r}."
NO_USER = "a subagent has no user to ask: give the plan to the agent that started you, as your answer."
KEEP_PLANNING = "The user did not approve the plan and wants you to keep planning. Plan mode stays on."
FEEDBACK = "{head} They said:\n\n{text}\n\nWork that into the plan, then present the whole plan again."
DISMISSED = "The user closed the review without an answer. Plan mode stays on: stop here and wait for the user."
GATED = (
    "plan_mode: {name} can change things, and while Plan mode is on here or in an agent above, only tools that change "
    "nothing may run (gate = hard). Look, plan, and have the plan approved first."
)

REVIEW = "plan-review"
EFFORT_MAX_CHARS = 32

Gate: TypeAlias = Literal["soft", "hard"]


# -- what the model was told, and what it has to be told


class Known(Value, frozen=True, omit_defaults=False):
    """What the model knows of the mode: `told` is the one of the last step, None before the first.

    `quiet`: the last switch is told otherwise, by the result of a call. `switched`: there was one, ever. `noted`: a
    compaction has stated the mode since the last step.
    """

    told: bool | None = None
    active: bool = False
    chosen: bool | None = None
    silent: bool = False
    quiet: bool = False
    switched: bool = False
    noted: bool = False


def _chosen(state: Known, event: PlanModeRequested) -> Known:
    return msgspec.structs.replace(state, chosen=event.active, silent=event.active is not None and not event.narrate)


def _switched(state: Known, event: PlanModeSet) -> Known:
    quiet = state.silent and state.chosen == event.active
    return Known(state.told, event.active, quiet=quiet, switched=True, noted=state.noted)


def _stepped(state: Known, _: StepStarted) -> Known:
    if state.told is state.active and not state.noted:
        return state
    return msgspec.structs.replace(state, told=state.active, noted=False)


def _noted(state: Known, event: NoteAdded) -> Known:
    return msgspec.structs.replace(state, noted=True) if event.text == STILL_PLANNING else state


KNOWN: Projection[Known] = table(
    "plan_known",
    Known(),
    {PlanModeRequested: _chosen, PlanModeSet: _switched, StepStarted: _stepped, NoteAdded: _noted},
)


def notice(known: Known, mode: Mode, *, fresh: bool) -> str | None:
    """What the next step says of the mode, None when the model knows it.

    Each switch of the user's once, none before the first request; and after a compaction, a fork or a restart the mode
    again, if it was ever another.
    """
    if known.told is None:
        return None
    if mode.target != known.told:
        quiet = known.quiet if mode.pending is None else not mode.narrate
        return None if quiet else SWITCHED_ON if mode.target else SWITCHED_OFF
    return STATED[mode.target] if fresh and known.switched and not known.noted else None


# -- leaving Plan mode


def consents(answer: QuestionAnswered) -> bool:
    """Whether an answer approves a plan: with the one choice, and without a word beside it."""
    return answer.ending == "answered" and answer.selected == (APPROVE,) and answer.text is None


def not_approved(answer: QuestionAnswered) -> str:
    """What the model reads when the user wants more planning."""
    if answer.text is None:
        return f"{KEEP_PLANNING} Ask what is missing, or improve the plan and present it again."
    return FEEDBACK.format(head=KEEP_PLANNING, text=answer.text)


def _answered(view: View, asked: QuestionAsked, answer: QuestionAnswered, execution: Execution) -> tuple[Event, ...]:
    """What an answer brings, in one write with it: after a restart no call is there any more to hear of it."""
    turn = view[TURN]
    if consents(answer):
        left = leave(view[MODE], turn_open=turn.open, narrate=False)
        return (*left, *carry_out(asked.id, asked.detail, execution))
    waited_for = turn.open and turn.number == asked.turn
    if waited_for or answer.ending != "answered":
        return ()
    return (MessageQueued(f"answer:{asked.id}", not_approved(answer), "plan"),)


class ExitPlanMode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `exit_plan_mode` takes: the plan as the user reads it."""

    plan: Annotated[str, msgspec.Meta(description=PLAN_FIELD)]

    def __post_init__(self) -> None:
        """Refuse text that the log cannot hold."""
        check_text(self.plan, "`plan`")


def check_plan(plan: str) -> None:
    """`ToolError` for a plan that does not begin with a heading of level 1."""
    text = plan.strip()
    if re.match(r"#[^\S\n]+\S", text) is None:
        raise ToolError(NO_HEADING.format(start=text[:40]))


def _refuse(view: View) -> str | None:
    return None if view[MODE].active else NOT_PLANNING


def _tool(execution: Execution) -> Tool:
    @tool(
        runs_on="trio",
        effect="idempotent",
        control=True,
        exposure="direct_model_only",
        mutates=False,
        refuse=_refuse,
        description=DESCRIPTION,
    )
    async def exit_plan_mode(arguments: ExitPlanMode, view: View) -> Concluded | Failed:
        check_plan(arguments.plan)
        if view.depth > 0:
            raise ToolError(NO_USER)
        older = [QuestionAnswered(one.id, "cancelled") for one in view[QUESTIONS] if one.by == "plan_mode"]
        if older:  # this plan takes their place, and only one may be carried out
            await view.commit(*older)
        answer = await view.ask_user(
            QUESTION, OPTIONS, by="plan_mode", id=REVIEW, header="Plan review", detail=arguments.plan.strip()
        )
        if consents(answer):
            return Concluded({"approved": True, "execution": execution})
        return Failed(not_approved(answer) if answer.ending == "answered" else DISMISSED)

    return exit_plan_mode


# -- while it is on


async def tell_mode(view: View, messages: tuple[Message, ...]) -> Enter:
    """Add the notice to what enters. It stands last: the mode is committed right behind it."""
    text = notice(view[KNOWN], view[MODE], fresh=view.fresh)
    if text is None:
        return Enter(messages)
    return Enter((*messages, Message(f"plan-mode-{view.turn}-{view[TURN].step + 1}", text, "notice")))


async def gate_hard(view: View, call: ToolCall, tool: Tool) -> str | None:
    """Why a call may not run: it can change things, and this session or one above it is planning."""
    return GATED.format(name=call.name) if tool.mutates and view.planning else None


def section_of(view: View, policy: str) -> str | None:
    """What holds for the next step: in this session's own Plan mode, or in that of one above it."""
    if view[MODE].target:
        return policy
    return SECTION_BELOW if view.depth > 0 and view.planning else None


def reads(view: View) -> Proposals | None:
    """In Plan mode a plan in a block of its own is no text."""
    return Proposals(view.turn) if view[MODE].active else None


def check_settings(section: Any, gate: Any, execution: Any, effort: Any) -> None:
    """`UsageError` for a setting that the plugin cannot have."""
    if section is not None and (not isinstance(section, str) or not section.strip()):
        raise UsageError(f"plan mode: section must be a text that says what holds in Plan mode, got {section!r:.80}.")
    if gate not in ("soft", "hard"):
        raise UsageError(f"plan mode: gate must be 'soft' or 'hard', got {gate!r:.80}.")
    if execution not in ("keep", "compact", "clear"):
        raise UsageError(f"plan mode: execution must be 'keep', 'compact' or 'clear', got {execution!r:.80}.")
    if effort is not None and (not isinstance(effort, str) or len(effort) > EFFORT_MAX_CHARS):
        raise UsageError(f"plan mode: effort must be a word of the model's, such as 'medium', got {effort!r:.80}.")


def plan_mode_plugin(
    section: str | None = None,
    gate: Gate = "soft",
    execution: Execution = "keep",
    effort: str | None = "medium",
) -> Plugin:
    """Plan mode: `section` is what the model reads while it is on, instead of ours.

    `gate` "hard" also refuses every tool that changes things, in the whole tree of agents. `execution` says where an
    approved plan is carried out: here (`keep`), here after a compaction (`compact`), or in a new session (`clear`).
    `effort` is asked of models that have one; None and an empty text ask for nothing. `UsageError` for anything else.
    """
    check_settings(section, gate, execution, effort)
    policy = SECTION if section is None else section.strip()
    return Plugin(
        "plan_mode",
        events=(PlanModeRequested, PlanModeSet, PlanProposed, PlanApproved, PlanHandedOver),
        projections=(KNOWN, PROPOSED, HANDOVERS),
        tools=(_tool(execution),),
        before_step=tell_mode,
        alarms=(Alarm(HANDOVERS, next_ms, hand_over),),
        prompt_section=lambda view: section_of(view, policy),
        commands=(Command("implement", implement, "[PLAN] [clear]"),),
        guard=gate_hard if gate == "hard" else None,
        answered=lambda view, asked, answer: _answered(view, asked, answer, execution),
        reads=reads,
        effort=lambda view: (effort or None) if view[MODE].active else None,
    )


PLAN_MODE_PLUGIN = plan_mode_plugin()

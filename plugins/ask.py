"""ask: questions that the model puts to the user, with the tool `request_user_input`; and the user's approvals."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import attrs
import msgspec

from callboard.actors.errors import ToolError
from callboard.actors.events import Event, MessageQueued, Value
from callboard.actors.facts import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalPolicy,
    ApprovalPolicySet,
    Option,
    QuestionAnswered,
    QuestionAsked,
)
from callboard.actors.fold import Projection, table
from callboard.actors.plugin import Plugin, Query, View
from callboard.actors.tool import Tool, Where, tool
from callboard.plugins.approvals import NO_RULES, Rule, check_settings, command_of, guard_of, late_approval, waits
from callboard.plugins.checklist import check_switch, check_text

DESCRIPTION = """\
Ask the user what only the user can decide, and wait for the answers.
Ask when the answer changes what you do next and neither the task nor the files say it; few questions at a time, and \
never for something you can find out yourself.
Give each question an `id` of its own, a `header` of a word or two, and options that exclude each other, the one you \
would take first. The user may choose an option, or write something else; an empty list of answers means that the user \
did not want to answer.\
"""
QUESTIONS_FIELD = "The questions; all are shown at once."
ID_FIELD = "The question's name in the result."
HEADER_FIELD = "A short title."
QUESTION_FIELD = "The question itself, one sentence."
OPTIONS_FIELD = "At least one choice; the user may always write something else instead."
LABEL_FIELD = "The choice in a few words; no two of a question are the same."
DESCRIPTION_FIELD = "What follows from this choice."

UNAVAILABLE_IN_DEFAULT_MODE = "request_user_input is unavailable in Default mode"
ROOT_ONLY = "request_user_input can only be used by the root agent: report the question to the agent above you instead"
CANCELLED = "request_user_input was cancelled before the user answered"
LATE_ANSWER = """\
Before the program stopped you asked the user: {question}
The user has now answered: {answer}{before}
Nobody waits for that call any more; go on from there.\
"""
LATE_ANSWER_BEFORE = "\nAsked together with it: {question}\nThe user had answered: {answer}"
NO_ANSWER = "(nothing: the user left it unanswered)"

NAME = "ask"
LATE = "answer:"  # before the id of a message that brings a late answer
QUESTIONS_MAX = 50  # of one call
OPTIONS_MAX = 50  # of one question
ID_MAX_CHARS = 100
HEADER_MAX_CHARS = 200
QUESTION_MAX_CHARS = 10_000
LABEL_MAX_CHARS = 500
DESCRIPTION_MAX_CHARS = 2_000


def answers_of(answer: QuestionAnswered) -> list[str]:
    """What the user said: the label chosen, the text, or both; nothing of a question that was dismissed."""
    return [*answer.selected, *(() if answer.text is None else (answer.text,))]


class Part(Value, frozen=True, omit_defaults=False):
    """A question of a call that has others open, and what the user said to it; nothing yet: empty."""

    asked: QuestionAsked
    said: tuple[str, ...] = ()


Parts: TypeAlias = tuple[Part, ...]


def _asked(state: Parts, event: QuestionAsked) -> Parts:
    return (*state, Part(event)) if event.by == NAME else state


def _answered(state: Parts, event: QuestionAnswered) -> Parts:
    """What is answered is kept as long as another question of its call is open."""
    at = next((at for at, part in enumerate(state) if part.asked.id == event.id), None)
    if at is None:
        return state
    asked, said = state[at].asked, tuple(answers_of(event))
    others = [part for part in state if _together(part.asked, asked) and part.asked.id != event.id]
    if not any(not part.said for part in others):
        return tuple(part for part in state if not _together(part.asked, asked))
    kept = (Part(asked, said),) if said else ()
    return (*state[:at], *kept, *state[at + 1 :])


def _told(state: Parts, event: MessageQueued) -> Parts:
    """A late answer brought along what was answered before it."""
    if not (state and event.id.startswith(LATE)):
        return state
    about = next((part.asked for part in state if event.id == LATE + part.asked.id), None)
    if about is None:
        return state
    return tuple(part for part in state if not (part.said and _together(part.asked, about)))


def _together(one: QuestionAsked, other: QuestionAsked) -> bool:
    return (one.turn, one.call) == (other.turn, other.call)


PARTS: Projection[Parts] = table(
    "ask_parts",
    (),
    {QuestionAsked: _asked, QuestionAnswered: _answered, MessageQueued: _told},
    state=Parts,
)
"""The questions of calls that have an open one, and the answers that the model has not read: a late one takes them."""


def late_answer(view: View, asked: QuestionAsked, answer: QuestionAnswered) -> Sequence[Event]:
    """A message that brings an answer nobody waits for to the model, with those that came before it to the same call.

    None for a question that was dismissed, unless it is the last of a call that has other answers.
    """
    if waits(view, asked):
        return ()
    others = [part for part in view[PARTS] if _together(part.asked, asked) and part.asked.id != asked.id]
    before, said = [part for part in others if part.said], answers_of(answer)
    if not said and (not before or len(before) < len(others)):
        return ()
    told = (LATE_ANSWER_BEFORE.format(question=one.asked.question, answer="; ".join(one.said)) for one in before)
    text = LATE_ANSWER.format(question=asked.question, answer="; ".join(said) or NO_ANSWER, before="".join(told))
    return (MessageQueued(f"{LATE}{asked.id}", text, "user"),)


def _bounded(text: str, where: str, chars_max: int, *, filled: bool = True) -> None:
    if filled and not text.strip():
        raise ValueError(f"{where} is empty")
    if len(text) > chars_max:
        raise ValueError(f"{where} has {len(text):,} characters: at most {chars_max:,}")
    check_text(text, where)


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One option of a question."""

    label: Annotated[str, msgspec.Meta(description=LABEL_FIELD)]
    description: Annotated[str, msgspec.Meta(description=DESCRIPTION_FIELD)] = ""


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One question."""

    id: Annotated[str, msgspec.Meta(description=ID_FIELD)]
    question: Annotated[str, msgspec.Meta(description=QUESTION_FIELD)]
    options: Annotated[tuple[Choice, ...], msgspec.Meta(description=OPTIONS_FIELD)]
    header: Annotated[str, msgspec.Meta(description=HEADER_FIELD)] = ""


class RequestUserInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `request_user_input` takes."""

    questions: Annotated[tuple[Question, ...], msgspec.Meta(description=QUESTIONS_FIELD)]

    def __post_init__(self) -> None:
        """Refuse what cannot be asked: none or too many, an id used twice, a question without a choice."""
        if not 0 < len(self.questions) <= QUESTIONS_MAX:
            raise ValueError(f"request_user_input takes 1 to {QUESTIONS_MAX} questions, got {len(self.questions)}")
        ids: set[str] = set()
        for at, one in enumerate(self.questions):
            where = f"`$.questions[{at}]"
            _bounded(one.id, f"{where}.id`", ID_MAX_CHARS)
            if one.id in ids:
                raise ValueError(f"{where}.id` {one.id!r} is used by another question: give each its own")
            ids.add(one.id)
            _bounded(one.header, f"{where}.header`", HEADER_MAX_CHARS, filled=False)
            _bounded(one.question, f"{where}.question`", QUESTION_MAX_CHARS)
            _check_options(one.options, f"{where}.options")


def _check_options(options: Sequence[Choice], where: str) -> None:
    if not 0 < len(options) <= OPTIONS_MAX:
        raise ValueError(f"{where}` has {len(options)} options: every question needs 1 to {OPTIONS_MAX}")
    for at, option in enumerate(options):
        _bounded(option.label, f"{where}[{at}].label`", LABEL_MAX_CHARS)
        _bounded(option.description, f"{where}[{at}].description`", DESCRIPTION_MAX_CHARS, filled=False)
    if len({option.label for option in options}) < len(options):
        raise ValueError(f"{where}` have the same label twice: the user could not tell them apart")


def _tool(*, default_mode: bool, children: bool) -> Tool:
    offered: Where = "everywhere" if children else "root"

    def refuse(view: View) -> str | None:
        if view.depth > 0 and not children:
            return ROOT_ONLY
        return None if default_mode or view.planning else UNAVAILABLE_IN_DEFAULT_MODE

    @tool(effect="none", control=True, exposure="direct_model_only", mutates=False, refuse=refuse, offered=offered)
    async def request_user_input(arguments: RequestUserInput, view: View) -> dict[str, Any]:
        queries = [
            Query(
                one.question,
                tuple(Option(o.label, o.description) for o in one.options),
                str(number),
                one.header.strip(),
            )
            for number, one in enumerate(arguments.questions, 1)  # not the model's ids: these can be told apart
        ]
        answers = await view.ask_users(queries, by=NAME)
        if any(answer.ending == "cancelled" for answer in answers):
            raise ToolError(CANCELLED)
        given = zip(arguments.questions, answers, strict=True)
        return {"answers": {one.id: {"answers": answers_of(answer)} for one, answer in given}}

    return attrs.evolve(request_user_input, description=DESCRIPTION)


def ask_plugin(
    default_mode: bool = False,
    policy: ApprovalPolicy = "off",
    rules: Mapping[str, Rule] = NO_RULES,
    children: bool = False,
) -> Plugin:
    """The ask plugin. `request_user_input` works in Plan mode, always with `default_mode`, and in the root agent alone.

    With `children` it works in subagents too: the question is on the log of the one that asks.
    `policy` says which calls need an approval: `off` none; `ask` those of tools that change something; `never` the
    same, but nobody is asked and the call is refused; `rules` for each tool, by its name or `*`, ask, allow or deny
    (ask where no rule is). Raises `UsageError` for any other value.
    """
    checked = check_settings(policy, rules)
    for name, given in {"default_mode": default_mode, "children": children}.items():
        check_switch(given, f"{name} of ask_plugin")
    return Plugin(
        NAME,
        events=(QuestionAsked, QuestionAnswered, ApprovalAsked, ApprovalDecided, ApprovalPolicySet),
        projections=(PARTS,),
        tools=(_tool(default_mode=default_mode, children=children),),
        commands=(command_of(policy),),
        guard=guard_of(policy, checked),
        answered=late_answer,
        approved=late_approval,
    )


ASK_PLUGIN = ask_plugin()

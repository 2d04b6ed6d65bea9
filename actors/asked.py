"""Asked: the questions and approvals that wait for the user, and what the user permits; folds and checks, pure."""

import hashlib
from typing import Any, TypeAlias

import msgspec

from callboard.actors.events import SessionForked, ToolCalled, TurnEnded, TurnStarted, Value
from callboard.actors.facts import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalPolicy,
    ApprovalPolicySet,
    PlanModeSet,
    QuestionAnswered,
    QuestionAsked,
)
from callboard.actors.fold import Projection, table

TEXT_MAX_CHARS = 100_000  # of a text in an answer; a longer one is a message

Questions: TypeAlias = tuple[QuestionAsked, ...]
Approvals: TypeAlias = tuple[ApprovalAsked, ...]


def _settled(state: Questions, event: QuestionAnswered) -> Questions:
    return tuple(one for one in state if one.id != event.id)


QUESTIONS: Projection[Questions] = table(
    "questions",
    (),
    {
        QuestionAsked: lambda state, event: (*state, event),
        QuestionAnswered: _settled,
        SessionForked: lambda _, event: (),
    },
    state=Questions,
)
"""What the user was asked and has not answered, oldest first; a restart changes nothing about it."""


def _decided(state: Approvals, event: ApprovalDecided) -> Approvals:
    return tuple(one for one in state if one.id != event.id)


APPROVALS: Projection[Approvals] = table(
    "approvals",
    (),
    {
        ApprovalAsked: lambda state, event: (*state, event),
        ApprovalDecided: _decided,
        SessionForked: lambda _, event: (),
    },
    state=Approvals,
)
"""The calls that wait for the user's approval, oldest first."""


Answers: TypeAlias = tuple[QuestionAnswered | ApprovalDecided, ...]


def _given(state: Answers, event: QuestionAnswered | ApprovalDecided) -> Answers:
    return (*state, event)


ANSWERS: Projection[Answers] = table(
    "answers",
    (),
    {
        QuestionAnswered: _given,
        ApprovalDecided: _given,
        TurnStarted: lambda state, event: () if state else state,
        SessionForked: lambda _, event: (),
    },
    state=Answers,
)
"""How what was asked has ended since the last turn began: what a call that waits reads."""


class Permissions(Value, frozen=True, omit_defaults=False):
    """What the user permits: a policy (None: the configured one), tools allowed for the session, and single calls.

    `once` has the keys of single calls that were allowed and have not begun; at the end of a turn they are forgotten.
    `before` is what was permitted when Plan mode began; at its end that is permitted again. `asked` says what the open
    requests are about.
    """

    policy: ApprovalPolicy | None = None
    tools: tuple[str, ...] = ()
    once: tuple[str, ...] = ()
    before: "Permissions | None" = None
    asked: tuple[ApprovalAsked, ...] = ()


def _asks(state: Permissions, event: ApprovalAsked) -> Permissions:
    return msgspec.structs.replace(state, asked=(*state.asked, event))


def _permits(state: Permissions, event: ApprovalDecided) -> Permissions:
    about = next((one for one in state.asked if one.id == event.id), None)
    if about is None:
        return state
    asked = tuple(one for one in state.asked if one.id != event.id)
    if event.decision == "allow_session" and about.tool not in state.tools:
        return msgspec.structs.replace(state, asked=asked, tools=(*state.tools, about.tool))
    if event.decision == "allow_once":
        return msgspec.structs.replace(state, asked=asked, once=(*state.once, about.key))
    return msgspec.structs.replace(state, asked=asked)


def _used(state: Permissions, event: ToolCalled) -> Permissions:
    """A single permission is used up by the call it was given for."""
    if not state.once:
        return state
    key = key_of(event.name, event.arguments)
    if key not in state.once:
        return state
    at = state.once.index(key)
    return msgspec.structs.replace(state, once=(*state.once[:at], *state.once[at + 1 :]))


def _unused(state: Permissions, _: TurnEnded) -> Permissions:
    """What was not used by the end of a turn is not permitted any more."""
    return msgspec.structs.replace(state, once=()) if state.once else state


def _policy_set(state: Permissions, event: ApprovalPolicySet) -> Permissions:
    return state if event.policy == state.policy else msgspec.structs.replace(state, policy=event.policy)


def _mode_set(state: Permissions, event: PlanModeSet) -> Permissions:
    if event.active:
        return state if state.before is not None else msgspec.structs.replace(state, before=_permitted(state))
    if state.before is None:
        return state
    before = state.before
    return msgspec.structs.replace(before, asked=state.asked, once=state.once)


def _forked(state: Permissions, _: SessionForked) -> Permissions:
    """What is permitted goes on being so; what was asked, and what was allowed for one call, was another session's."""
    return msgspec.structs.replace(state, once=(), asked=())


def _permitted(state: Permissions) -> Permissions:
    return Permissions(state.policy, state.tools)


PERMISSIONS: Projection[Permissions] = table(
    "permissions",
    Permissions(),
    {
        ApprovalAsked: _asks,
        ApprovalDecided: _permits,
        ToolCalled: _used,
        TurnEnded: _unused,
        ApprovalPolicySet: _policy_set,
        PlanModeSet: _mode_set,
        SessionForked: _forked,
    },
)


def key_of(tool: str, arguments: Any) -> str:
    """Which call of which arguments, in a few characters: the same for the same call made again."""
    try:
        said = msgspec.json.decode(arguments) if isinstance(arguments, str) else arguments
        body = msgspec.json.encode(said, order="deterministic")
    except (msgspec.MsgspecError, RecursionError, UnicodeError, TypeError, ValueError):
        body = repr(arguments).encode(errors="backslashreplace")
    return f"{tool}:{hashlib.sha256(body).hexdigest()[:24]}"


def flaw_of(asked: QuestionAsked, choices: tuple[str, ...], text: str | None) -> str | None:
    """What is wrong with an answer, None when it can be taken: at most one known choice, and a text that says more."""
    labels = [option.label for option in asked.options]
    for choice in choices:
        if choice not in labels:
            return f"{choice!r:.80} is none of its choices: {', '.join(labels):.500}"
    if len(choices) > 1:
        return f"it takes one choice, got {len(choices)}"
    if text is not None and not text.strip():
        return "the text is empty: leave it out"
    if text is not None and len(text) > TEXT_MAX_CHARS:
        return f"the text has {len(text):,} characters: at most {TEXT_MAX_CHARS:,} are taken"
    return None

"""Answered: what a verb was answered under the id that its sender chose, so that the same verb sent twice acts once.

Verbs that queue a message share their ids: one id is one message, whichever of them brings it again. Any other verb
under an id that was used is `Refused("id_taken")`; an id under which a verb was refused is free for other verbs.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from callboard.actors.events import VerbAnswered
from callboard.actors.messages import (
    Accepted,
    Answer,
    AnswerQuestion,
    Approve,
    Ask,
    Compact,
    Edit,
    Edited,
    Idle,
    Inject,
    Input,
    Interrupt,
    Interrupting,
    Mail,
    ModeAnswer,
    Refused,
    Replace,
    ResumeQueue,
    Review,
    SetMode,
    Shell,
    Steer,
    Steered,
    StopOnce,
    Stopped,
    Submit,
    SubmitOrSteer,
    Told,
    UseCommand,
    Withdraw,
    Withdrawn,
)
from callboard.actors.seen import Seen

Kept: TypeAlias = Accepted | Steered | Interrupting | Idle | Withdrawn | Edited | ModeAnswer | Stopped | Told | Refused

VERBS: Mapping[type[Ask], str] = MappingProxyType(
    {
        Submit: "submit",
        Steer: "steer",
        SubmitOrSteer: "submit_or_steer",
        Replace: "replace",
        Inject: "inject",
        Mail: "mail",
        Interrupt: "interrupt",
        Withdraw: "withdraw",
        Edit: "edit",
        ResumeQueue: "resume_queue",
        SetMode: "set_mode",
        StopOnce: "stop",
        Compact: "compact",
        Review: "review",
        Shell: "shell",
        AnswerQuestion: "answer",
        Approve: "approve",
        UseCommand: "command",
    }
)
"""The verbs that take an id, by their message."""


def id_of(letter: Ask) -> str | None:
    """The id that the sender gave this verb, None without one or for what is no verb."""
    if type(letter) not in VERBS:
        return None
    given: str | None = getattr(letter, "verb_id" if isinstance(letter, Withdraw | Edit) else "id", None)
    return given or None


def answered(seen: Seen, letter: Ask) -> Kept | None:
    """The answer this verb was given under its id, or that the id is taken; None for a new id, or none."""
    id_ = id_of(letter)
    if id_ is None:
        return None
    kept = seen.answers.get(f"{VERBS[type(letter)]} {id_}")
    if kept is not None:
        return msgspec.convert(kept, Kept)  # type: ignore[no-any-return]  # a union of answers
    queued = seen.ids.get(id_)
    if queued is not None and isinstance(letter, Input):
        seq, turn = queued
        return Accepted(seq, turn) if seq >= 0 else Steered(turn or 0)
    by = "a message" if queued is not None else seen.verbs.get(id_)
    return None if by is None else Refused("id_taken", f"id {id_!r} was used for {by} before: choose another")


def record(letter: Ask, answer: Answer) -> tuple[VerbAnswered, ...]:
    """The answer as the log keeps it; nothing without an id."""
    id_ = id_of(letter)
    return () if id_ is None else (VerbAnswered(id_, VERBS[type(letter)], msgspec.to_builtins(answer)),)

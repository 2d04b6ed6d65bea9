"""What a command said, read as a hook's answer; whatever it may not say is a `HookBroken`."""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from callboard.actors.errors import ToolError
from callboard.actors.hook import AddContext, Block, Continue, Rewrite, Warn
from callboard.actors.verdict import MAY_ANSWER, Moment
from callboard.runtime.hooks.events import MOMENTS

BLOCK_CODE = 2
SHOWN_MAX_CHARS = 500  # of what a failed command wrote
STOPPED = "{event} hook stopped execution"


class HookBroken(ToolError):
    """A command did not do what a hook must; its text says what, and is what the log keeps."""


class Special(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """`hookSpecificOutput`."""

    hook_event_name: str | None = None
    permission_decision: Literal["allow", "deny"] | None = None
    permission_decision_reason: str | None = None
    updated_input: dict[str, Any] | None = None
    additional_context: str | None = None


class Spoken(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What a command may write: both the form of `hookSpecificOutput` and the older one with `decision`.

    A field that nobody knows is refused, so that a misspelt refusal does not count as consent.
    """

    go_on: bool = msgspec.field(default=True, name="continue")
    stop_reason: str | None = None
    suppress_output: bool = False
    system_message: str | None = None
    decision: Literal["block"] | None = None
    reason: str | None = None
    hook_specific_output: Special | None = None


DECODE = msgspec.json.Decoder(Spoken)


def read_answer(event: str, code: int | None, output: str, errors: str) -> tuple[Any, ...]:
    """The answers of a command that ended with this code; `HookBroken` for one that failed."""
    moment = MOMENTS[event]
    if code == BLOCK_CODE:
        reason = errors.strip()
        if not reason:
            raise HookBroken(f"exit code {BLOCK_CODE} without a reason on standard error")
        return (_refusal(moment, event, reason),)
    if code != 0:
        raise HookBroken(f"exit code {code}{_shown(errors or output)}")
    if not output.strip():
        return ()
    try:
        spoken = DECODE.decode(output)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise HookBroken(f"its output is no answer: {error}{_shown(output)}") from None
    return _answers(moment, event, spoken)


def _shown(text: str) -> str:
    text = text.strip()
    return f": {text[:SHOWN_MAX_CHARS]}" if text else ""


def _refusal(moment: Moment, event: str, reason: str) -> Any:
    """What a refusal is at this moment: a reason not to go on, or, before a turn stops, one to go on."""
    if Continue in MAY_ANSWER[moment]:
        return Continue(reason)
    if Block in MAY_ANSWER[moment]:
        return Block(reason)
    raise HookBroken(f"there is nothing to block at {event}")


def _answers(moment: Moment, event: str, spoken: Spoken) -> tuple[Any, ...]:
    special = spoken.hook_specific_output or Special()
    if special.hook_event_name not in (None, event):
        raise HookBroken(f"hookEventName is {special.hook_event_name!r:.80}, not {event}")
    answers: list[Any] = [] if spoken.system_message is None else [Warn(spoken.system_message)]
    if not spoken.go_on:
        stop = spoken.stop_reason or STOPPED.format(event=event)
        return (*answers, Block(stop)) if Block in MAY_ANSWER[moment] else tuple(answers)
    for part in PARTS:
        answers.extend(part(moment, event, spoken, special))
    return tuple(answers)


def _decision(moment: Moment, event: str, spoken: Spoken, special: Special) -> tuple[Any, ...]:
    """The older form."""
    if spoken.decision is None:
        return ()
    if not (spoken.reason or "").strip():
        raise HookBroken("decision is block, but there is no reason")
    return (_refusal(moment, event, str(spoken.reason)),)


def _permission(moment: Moment, event: str, spoken: Spoken, special: Special) -> tuple[Any, ...]:
    """What PreToolUse decides."""
    decision, reason = special.permission_decision, special.permission_decision_reason
    if moment != "before_tool" and (decision, reason, special.updated_input) != (None, None, None):
        raise HookBroken(f"only PreToolUse may decide about permission or input, this is {event}")
    if decision == "deny":
        if not (reason or "").strip():
            raise HookBroken("permissionDecision is deny, but there is no permissionDecisionReason")
        return (Block(str(reason)),)
    if special.updated_input is not None:
        return (Rewrite(special.updated_input),)
    if decision == "allow":
        raise HookBroken("permissionDecision allow without updatedInput: hooks grant nothing")
    return ()


def _addition(moment: Moment, event: str, spoken: Spoken, special: Special) -> tuple[Any, ...]:
    text = special.additional_context
    if text is None:
        return ()
    if AddContext not in MAY_ANSWER[moment]:
        raise HookBroken(f"nobody reads additionalContext at {event}")
    return (AddContext(text),) if text.strip() else ()


PARTS: tuple[Callable[[Moment, str, Spoken, Special], tuple[Any, ...]], ...] = (_decision, _permission, _addition)

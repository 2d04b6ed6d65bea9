"""Runs the hooks around a tool call and says what they came to; a broken hook fails open or closed, as it declares."""

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from callboard.actors.events import HookFailed
from callboard.actors.notices import HookRan
from callboard.actors.plugin import AddContext, Allow, Block, Hook, Rewrite, ToolCall, ToolResult
from callboard.actors.receipts import clean_text
from callboard.actors.results import describe
from callboard.actors.stage import Stage


@attrs.frozen
class Verdict:
    """What the hooks of one moment decided together: any block wins, else the last rewrite."""

    block: str | None = None
    rewrite: Rewrite | None = None
    notes: tuple[str, ...] = ()
    failures: tuple[HookFailed, ...] = ()


GO_ON = Verdict()


async def before(stage: Stage, call: ToolCall) -> Verdict:
    """Ask every `before_tool` hook, in order, until one blocks."""
    verdict = GO_ON
    for hook in stage.hooks:
        if hook.before_tool is None:
            continue
        answer, failure = _call(hook.before_tool, call)
        if isinstance(answer, Awaitable):
            answer, failure = await _wait(hook, answer)
        if (answer is None or type(answer) is Allow) and failure is None:
            stage.on_notice(HookRan(hook.name, "ok"))
            continue
        match answer:
            case Block():
                status, verdict = "blocked", attrs.evolve(verdict, block=str(answer.reason))
            case Rewrite():
                status, verdict = "rewrote", attrs.evolve(verdict, rewrite=answer)
                call = attrs.evolve(call, arguments=answer.arguments)
            case Allow():
                status = "ok"
            case _:
                failure = failure or f"answered {type(answer).__name__}, not Allow, Block or Rewrite"
                status = "failed"
        verdict = _note(stage, hook, status, failure, verdict)
        if verdict.block is not None:
            break
    return verdict


async def after(stage: Stage, call: ToolCall, result: ToolResult) -> Verdict:
    """Ask every `after_tool` hook; context adds up, the first block is the feedback the model reads."""
    verdict = GO_ON
    for hook in stage.hooks:
        if hook.after_tool is None:
            continue
        answer, failure = _call(hook.after_tool, call, result)
        if isinstance(answer, Awaitable):
            answer, failure = await _wait(hook, answer)
        if answer is None:
            stage.on_notice(HookRan(hook.name, "ok"))
            continue
        match answer:
            case Block():
                status = "blocked"
                if verdict.block is None:
                    verdict = attrs.evolve(verdict, block=str(answer.reason))
            case AddContext():
                status, verdict = "context", attrs.evolve(verdict, notes=(*verdict.notes, str(answer.text)))
            case Allow():
                status = "ok"
            case _:
                failure = failure or f"answered {type(answer).__name__}, not AddContext or Block"
                status = "failed"
        verdict = _note(stage, hook, status, failure, verdict)
    return verdict


class _Broken:
    """Stands for the answer of a hook that gave none."""


_BROKEN = _Broken()


def _call(fn: Callable[..., Any], *args: Any) -> tuple[Any, str | None]:
    """What a plain hook answers, or what an async one is to be waited for."""
    try:
        return fn(*args), None
    except (Exception, SystemExit) as error:  # a hook is foreign code; what it raises is its failure
        return _BROKEN, describe(error)


async def _wait(hook: Hook, answer: Awaitable[Any]) -> tuple[Any, str | None]:
    """(Trio) Wait for an async hook within its time; only this needs a scope, which costs 15 us."""
    with trio.move_on_after(hook.timeout_s) as scope:
        try:
            return await answer, None
        except (Exception, SystemExit) as error:
            return _BROKEN, describe(error)
    assert scope.cancelled_caught
    return _BROKEN, f"took over {hook.timeout_s:g} s"


def _note(stage: Stage, hook: Hook, status: str, failure: str | None, verdict: Verdict) -> Verdict:
    stage.on_notice(HookRan(hook.name, status))
    if failure is None:
        return verdict
    blocked = hook.on_failure == "block"
    failure = clean_text(failure)
    failed = HookFailed(hook.name, failure, blocked)
    verdict = attrs.evolve(verdict, failures=(*verdict.failures, failed))
    if blocked and verdict.block is None:
        verdict = attrs.evolve(verdict, block=f"hook {hook.name} failed: {failure}")
    return verdict

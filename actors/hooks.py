"""Asks the hooks of one moment and waits for what they decide: plain ones in order, async ones side by side.

What a plain hook answers is there at once, so a step with plain hooks has no scope, no task and no nursery for them.
"""

import inspect
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import Any

import attrs
import trio

from callboard.actors.abort import AbortWindow
from callboard.actors.books import OPENED, TURN
from callboard.actors.events import NoteAdded
from callboard.actors.hook import Allow, Hook, HookTurn, Rewrite, Skip, ToolCall, ToolResult
from callboard.actors.host import Host
from callboard.actors.mode import MODE
from callboard.actors.notices import HookRan
from callboard.actors.pit import only_cancels
from callboard.actors.results import describe
from callboard.actors.stage import Stage
from callboard.actors.verdict import GO_ON, Moment, Said, Verdict, blocks, failed, join, read
from callboard.actors.view import Scene

STOPS_MAX = 8  # how often stop hooks may reopen one turn

STOPPED = (
    "<stop_hooks>\nStop hooks wanted this turn to go on more than {count} times; it ends all the same.\n</stop_hooks>"
)


def hook_turn(scene: Scene) -> HookTurn:
    """The turn that is open, as hooks see it."""
    log, turn, opened = scene.log, scene.log[TURN], scene.log[OPENED]
    path, model = ("/root", None) if opened is None else (opened.path, opened.model)
    folder, plan_mode = scene.stage.folder, log[MODE].active
    return HookTurn(log.session, path, turn.number, turn.kind, turn.start, folder, model, plan_mode)


def hook_notes(texts: Iterable[str]) -> tuple[NoteAdded, ...]:
    """What hooks add to the history, as the model reads it."""
    return tuple(NoteAdded(text, "developer", "hook") for text in texts)


async def before(stage: Stage, window: AbortWindow, call: ToolCall) -> Verdict:
    """(Trio) Whether a call may be made, and with which arguments."""
    return await _ask(stage, window, "before_tool", stage.slots.before_tool, call)


async def after(stage: Stage, window: AbortWindow, call: ToolCall, result: ToolResult) -> Verdict:
    """(Trio) What is to be added to the result of a call, or read in its place."""
    return await _ask(stage, window, "after_tool", stage.slots.after_tool, call, result)


async def starting(stage: Stage, window: AbortWindow, turn: HookTurn) -> Verdict:
    """(Trio) Whether a turn may begin, and what the model is to read besides."""
    return await _ask(stage, window, "on_turn_start", stage.slots.on_turn_start, turn)


async def stopping(stage: Stage, window: AbortWindow, turn: HookTurn, last_message: str | None) -> Verdict:
    """(Trio) Whether a turn that could end is to go on."""
    return await _ask(stage, window, "on_stop", stage.slots.on_stop, turn, last_message)


async def _ask(stage: Stage, window: AbortWindow, moment: Moment, hooks: Sequence[Hook], *args: Any) -> Verdict:
    """Plain hooks count in order, a refusal of one ends the asking where it settles everything; then all others.

    A plain hook sees the rewrites of the plain ones before it.
    """
    said: list[tuple[int, Said]] = []
    later: list[tuple[int, Hook, Awaitable[Any]]] = []
    for at, hook in enumerate(hooks):
        answer = call(moment, hook, *args)
        if answer is None or type(answer) is Allow:
            stage.on_notice(HookRan(hook.name, "ok"))
            continue
        if type(answer) is Skip:
            continue
        if isinstance(answer, Awaitable):
            later.append((at, hook, answer))
            continue
        one = answer if type(answer) is Said else read(moment, hook, answer)
        said.append((at, one))
        stage.on_notice(HookRan(hook.name, one.status))
        if moment != "after_tool" and blocks(moment, one) is not None:
            for _, _, waiting in later:
                forget(waiting)
            break
        if moment == "before_tool":
            args = (_rewritten(args[0], one),)
    else:
        if later:
            said.extend(await _wait(stage, window, moment, later))
            said.sort(key=lambda entry: entry[0])
    return join(moment, [one for _, one in said]) if said else GO_ON


def call(moment: Moment, hook: Hook, *args: Any) -> Any:
    """What a hook answers, or is to be waited for; what it raises is a failed `Said`."""
    try:
        return getattr(hook, moment)(*args)
    except (Exception, SystemExit) as error:  # a hook is foreign code; what it raises is its failure
        return failed(hook, describe(error))


def forget(answer: Awaitable[Any]) -> None:
    """It will not be waited for."""
    if inspect.iscoroutine(answer) and inspect.getcoroutinestate(answer) == inspect.CORO_CREATED:
        answer.close()


def _rewritten(seen: ToolCall, said: Said) -> ToolCall:
    rewrite = next((answer for answer in said.answers if type(answer) is Rewrite), None)
    return seen if rewrite is None else attrs.evolve(seen, arguments=rewrite.arguments)


async def _wait(
    stage: Stage, window: AbortWindow, moment: Moment, later: Sequence[tuple[int, Hook, Awaitable[Any]]]
) -> list[tuple[int, Said]]:
    """Run them side by side, each hosted like a tool: one that does not stop at its time is left behind."""
    hosts = [hosted(stage, window, hook, answer, hook.timeout_s) for _, hook, answer in later]
    try:
        for host in hosts:
            window.asked[host] = None
            host.start()
        for host in hosts:
            with trio.move_on_at(host.deadline_s + window.window_s):
                await host.wait()
            host.abandon()
    finally:
        for host, (_, _, answer) in zip(hosts, later, strict=True):
            host.desert()
            if not host.started:
                forget(answer)
    said = []
    for host, (at, hook, _) in zip(hosts, later, strict=True):
        one = judge(moment, hook, host)
        stage.on_notice(HookRan(hook.name, one.status))
        said.append((at, one))
    return said


def hosted(stage: Stage, window: AbortWindow, hook: Hook, answer: Awaitable[Any], timeout_s: float) -> Host:
    """A host for an answer that is to be waited for."""
    return Host(stage, window, partial(_same, answer), f"hook {hook.name}", timeout_s=timeout_s)


def _same(answer: Awaitable[Any]) -> Awaitable[Any]:
    return answer


def judge(moment: Moment, hook: Hook, host: Host) -> Said:
    """What an async hook came to."""
    if host.has_value:
        return read(moment, hook, host.value, host.ended_s)
    if host.error is not None and not only_cancels(host.error):
        return failed(hook, describe(host.error), host.ended_s)
    return failed(hook, f"took over {host.timeout_s:g} s", host.ended_s)

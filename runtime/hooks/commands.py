"""Runs a command as a hook: under a keeper, bounded in time and size, with all it started gone afterwards."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from callboard.actors.hook import Hook, HookTurn, Skip, ToolCall
from callboard.plugins.commands import Command
from callboard.plugins.shell import ENVIRONMENT, PLAIN_SHELL, allowed
from callboard.runtime.hooks import asks
from callboard.runtime.hooks.answers import HookBroken, read_answer
from callboard.runtime.hooks.events import MOMENTS, TOOL_EVENTS, matches
from callboard.runtime.settings import HookConfig

OUTPUT_MAX_CHARS = 1024 * 1024  # of each, output and errors; a command that writes more has failed


class Bounded:
    """Takes text up to a limit, then ends the command that wrote it."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._size = 0
        self.command: Command | None = None

    def hear(self, text: str) -> None:
        """One more piece."""
        self._size += len(text)
        if self._size <= OUTPUT_MAX_CHARS:
            self._pieces.append(text)
        elif self.command is not None:
            self.command.kill()

    @property
    def text(self) -> str:
        """All of it; `HookBroken` when it was too much."""
        if self._size > OUTPUT_MAX_CHARS:
            raise HookBroken(f"it wrote more than {OUTPUT_MAX_CHARS:,} characters")
        return "".join(self._pieces)


async def asked(event: str, command: str, folder: str, question: dict[str, Any]) -> tuple[Any, ...]:
    """(Trio) What a command answers; its own time is up to whoever waits, who may cancel this."""
    line, given = (PLAIN_SHELL, "-c", command), allowed(os.environ, ENVIRONMENT) | {"PWD": folder}
    output, errors = Bounded(), Bounded()
    running = Command.start(line, folder, given, given=asks.written(question), apart=True)
    output.command = errors.command = running
    await running.run(output.hear, errors.hear)
    ending = running.ending
    said, complained = output.text, errors.text
    if ending is None or ending.error is not None:
        raise HookBroken("it was not seen to end" if ending is None else str(ending.error))
    if ending.signal is not None:
        raise HookBroken(str(ending))
    return read_answer(event, ending.code, said, complained)


def command_hook(name: str, config: HookConfig) -> Hook:
    """The hook that a table [hooks.NAME] describes."""
    moment = MOMENTS[config.event]
    ask: Callable[..., dict[str, Any]] = getattr(asks, moment)
    run = partial(_for_call if config.event in TOOL_EVENTS else _for_turn, config, ask)
    slots: dict[str, Any] = {moment: run}
    return Hook(name, on_failure=config.on_failure, timeout_s=config.timeout_s, **slots)


def _for_call(config: HookConfig, ask: Callable[..., dict[str, Any]], call: ToolCall, *more: Any) -> Any:
    """Nothing for a tool that is not meant, so that its calls wait for no process."""
    if not matches(config.matcher, call.name):
        return Skip()
    assert call.during is not None
    return asked(config.event, config.command, call.during.folder, ask(call, *more))


def _for_turn(config: HookConfig, ask: Callable[..., dict[str, Any]], turn: HookTurn, *more: Any) -> Any:
    return asked(config.event, config.command, turn.folder, ask(turn, *more))


def command_hooks(tables: Mapping[str, HookConfig]) -> tuple[Hook, ...]:
    """The hooks of a configuration, in its order."""
    return tuple(command_hook(name, config) for name, config in tables.items())

"""The user's own commands (`!`): the runner that the runtime lends to sessions; no model, no sandbox, no approval."""

from collections.abc import Callable

import trio

from callboard.actors.abort import Signal
from callboard.actors.errors import ToolError
from callboard.actors.stage import Ran
from callboard.plugins.commands import Command, first
from callboard.plugins.shell import Setup, end


def user_shell(setup: Setup | None = None) -> "UserShellRunner":
    """A runner; `setup` says which shell, by default the user's own."""
    return UserShellRunner(setup or Setup())


class UserShellRunner:
    """A `ShellRunner`: each command under its keeper, so that nothing of it outlives its end, or the runtime's."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    async def __call__(
        self,
        command: str,
        folder: str,
        hear: Callable[[str], None],
        interrupted: Signal,
        window_s: float,
        timeout_s: float,
    ) -> Ran:
        """(Trio) See a command to its end, its timeout or the interrupt, which leaves it `window_s`."""
        try:
            running = self._setup.begin(command, folder)
        except ToolError as error:
            return Ran(error=str(error))
        return await _seen(running, hear, interrupted, window_s, trio.current_time() + timeout_s)


async def _seen(
    running: Command, hear: Callable[[str], None], interrupted: Signal, window_s: float, until_s: float
) -> Ran:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.run, hear)
        await first(running.ended.wait, interrupted.wait, until_s=until_s)
        by_itself, was_interrupted = running.ended.is_set(), interrupted.is_set()
        if not by_itself:
            await end(running, interrupted, window_s)
        nursery.cancel_scope.cancel()
    if not by_itself:
        return Ran(timed_out=not was_interrupted)
    ending = running.ending
    assert ending is not None
    return Ran(ending.code, error=ending.error or "")

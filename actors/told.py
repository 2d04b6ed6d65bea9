"""Told: hooks that only listen, run beside whatever comes next; none of them delays a turn or its end."""

from collections.abc import Awaitable
from typing import Any

import trio

from callboard.actors import hooks
from callboard.actors.abort import AbortWindow
from callboard.actors.errors import LogError
from callboard.actors.eventlog import LOGGER
from callboard.actors.hook import Allow, Hook
from callboard.actors.notices import HookRan
from callboard.actors.verdict import Moment, Said, events_of, read
from callboard.actors.view import Scene

INTERRUPT_RATIO = 0.7  # of the abort window: an async hook is cut then, which leaves it time to clean up
LAST_S = 2.0  # how long the end of a session waits for them


class Told:
    """One async hook that was told; the session owns it until it has ended, and ends it with itself."""

    def __init__(self, scene: Scene, moment: Moment, hook: Hook, answer: Awaitable[Any], bound_s: float) -> None:
        """It is cut after its own time or `bound_s`, and left behind when it does not stop."""
        stage = scene.stage
        self._scene, self._moment, self._hook, self._answer = scene, moment, hook, answer
        window = AbortWindow(stage.timers, stage.limits.abort_window_s)
        cut_s = min(hook.timeout_s, INTERRUPT_RATIO * bound_s)
        self._host = hooks.hosted(stage, window, hook, answer, cut_s)
        window.look = self._over
        scene.besides += 1
        self.name = f"hook {scene.besides}"
        scene.owned[self.name] = self
        self.ended = trio.Event()
        left_s = min(hook.timeout_s + window.window_s, bound_s)
        self._late = stage.timers.at(self._host.started_s + left_s, self._host.abandon)
        self._host.start()

    def close(self) -> None:
        """The session ends: it is cut, and what it comes to is of no interest any more."""
        self._scene.owned.pop(self.name, None)
        self._host.desert()
        if not self._host.started:
            hooks.forget(self._answer)

    def _over(self) -> None:
        self._late.cancel()
        self.ended.set()
        if self._scene.owned.pop(self.name, None) is not None:
            _note(self._scene, self._moment, hooks.judge(self._moment, self._hook, self._host))


def tell(scene: Scene, moment: Moment, listening: tuple[Hook, ...], *args: Any, bound_s: float = float("inf")) -> None:
    """Tell these hooks; plain ones have heard it when this returns, async ones run beside, at most `bound_s`."""
    for hook in listening:
        answer = hooks.call(moment, hook, *args)
        if answer is None or type(answer) is Allow:
            scene.stage.on_notice(HookRan(hook.name, "ok"))
        elif isinstance(answer, Awaitable):
            Told(scene, moment, hook, answer, bound_s)
        else:
            _note(scene, moment, answer if type(answer) is Said else read(moment, hook, answer))


def _note(scene: Scene, moment: Moment, said: Said) -> None:
    scene.stage.on_notice(HookRan(said.hook.name, said.status))
    events = tuple(events_of(moment, said))
    if events:
        try:
            scene.log.append(*events)
        except LogError as error:
            LOGGER.warning("session %s: what a hook said is not on the log: %s", scene.log.session, error)


class OnInterrupt:
    """Stands in an abort window for the hooks that are told of it, first of all, and holds nothing up."""

    def __init__(self, scene: Scene, window: AbortWindow) -> None:
        self._scene, self._window = scene, window
        window.asked[self] = None

    def ask(self) -> None:
        """The window opened."""
        self._window.asked.pop(self, None)
        scene, window = self._scene, self._window
        listening = scene.stage.slots.on_interrupt
        tell(scene, "on_interrupt", listening, hooks.hook_turn(scene), window.cause, bound_s=window.window_s)


async def finish(scene: Scene) -> None:
    """(Trio) The session ends: wait for what was told, at most `LAST_S`."""
    with trio.move_on_after(LAST_S):
        for thing in tuple(scene.owned.values()):
            if isinstance(thing, Told):
                await thing.ended.wait()

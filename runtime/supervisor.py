"""Keeps children alive: starts them, decides by childspec when one ends, restarts it, and ends all of them in order.

An idle child costs no asyncio task and no future: its end arrives in one callback, in a turn of the host loop. Whatever
takes time, a back-off or an ending, is a Trio function, because durations are slept on Trio's clock.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal

import trio

from callboard.actors.childspec import (
    ChildSpec,
    Decision,
    Exit,
    Intensity,
    Restart,
    Spec,
    Strategy,
    affected,
    backoff_s,
    on_exit,
    on_exit_of_many,
)
from callboard.actors.errors import IntensityReached, SessionClosed, UsageError
from callboard.actors.notices import ChildRestarted
from callboard.runtime.children import Child, ChildRecord, SupervisorRecord, crash_text, exit_of, log_crash
from callboard.runtime.crossing import Outcome, Spawned, Starts
from callboard.runtime.guest import ABORT_WINDOW_S
from callboard.runtime.waiting import Gate, Pending

INTENSITY = Intensity()
NEVER_AGAIN = Intensity(restarts_max=0)

_log = logging.getLogger("callboard")


class Supervisor:
    """Starts children, restarts them by their specs, and gives up when that happens too often.

    `children` are started by `run`, each time; others come by `start_child`. `ends_at_once_max` children are ended at a
    time: 1 keeps the reverse order strictly; for many that do not need each other, 256 is fast and stalls no loop.
    With `each` the children have nothing to do with each other: one that is restarted more often than `each` allows is
    given up alone, and `intensity` bounds how many are (only `one_for_one`). `on_empty` is told when the last child is
    gone. `jitter` answers numbers in 0..1. Called on the loop's thread, from asyncio or from Trio.
    """

    def __init__(
        self,
        guest: Starts,
        *,
        id: str,
        children: Iterable[ChildSpec] = (),
        strategy: Strategy = "one_for_one",
        intensity: Intensity = INTENSITY,
        each: Intensity | None = None,
        ends_at_once_max: int = 1,
        on_notice: Callable[[ChildRestarted], object] | None = None,
        on_empty: Callable[[], object] | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.id = id
        self._guest = guest
        self._first = tuple(children)
        self.strategy, self._intensity, self._each = strategy, intensity, each
        self._ends_at_once_max = ends_at_once_max
        self._on_notice, self._on_empty = on_notice, on_empty
        self._jitter = jitter
        self._restarts = 0
        self._left: dict[str, Child] = {}
        self._below: dict[str, Supervisor] = {}  # for what they have left
        self._reset()

    def _reset(self) -> None:
        self._phase: Literal["up", "ending", "over"] = "up"
        self._children: dict[str, Child] = {}
        self._past: tuple[float, ...] = ()
        self._failure: IntensityReached | None = None
        self._due: set[str] = set()  # what a running renewal will start again
        self._due_after_s = 0.0
        self._renewal: Spawned | None = None
        self._over = Gate()
        self._ran: trio.Event | None = None

    # -- what callers ask --------------------------------------------------------------------------------------------

    def start_child(self, spec: Spec) -> None:
        """Start a child at once; `SessionClosed` when the supervisor is ending, `UsageError` when the id is taken."""
        if self._phase != "up" or self._guest.ending:
            raise SessionClosed(f"Supervisor {self.id} is ending; {spec.id} was not started.")
        if spec.id in self._children:
            raise UsageError(f"Supervisor {self.id} has a child {spec.id!r} already; stop it first.")
        if spec.id in self._left:
            raise UsageError(f"{spec.id!r} was given up by supervisor {self.id} and still lives; wait until it ends.")
        if spec.below is not None:
            self._below[spec.id] = spec.below
        child = self._children[spec.id] = Child(spec, self)
        self._start(child)

    async def stop_child(self, id: str) -> bool:
        """End a child for good and say whether it has ended within its time; True when there is none.

        (asyncio or Trio) On asyncio the ending goes on when the caller is cancelled.
        """
        child = self._children.get(id)
        if child is None:
            return id not in self._left
        self._due.discard(id)
        if trio.lowlevel.in_trio_task():
            await self._end(child)
        else:
            ended = Pending()
            self._guest.spawn(partial(self._end, child), ended.reply, name=f"{self.id} ends {id}")
            await ended.get()
        return id not in self._left

    def let_go(self, id: str) -> None:
        """(the child itself, about to end) Another may take its id at once; how this one ends is nobody's concern."""
        self._due.discard(id)
        child = self._children.pop(id, None)
        if child is not None:
            child.asked = True
            self._below.pop(id, None)
            self._look_empty()

    def expects(self, id: str) -> bool:
        """Whether the end of a child is on purpose, or nobody's concern any more."""
        child = self._children.get(id)
        return child is None or child.asked or self._phase != "up" or self._guest.ending

    def children(self) -> tuple[ChildRecord, ...]:
        """The children in start order."""
        return tuple(child.record() for child in self._children.values())

    @property
    def is_up(self) -> bool:
        """Whether it starts children, and restarts them."""
        return self._phase == "up"

    def left(self) -> tuple[str, ...]:
        """Those that were given up and still live, here and below, where a name begins with its supervisor's."""
        return (*self._left, *(f"{id}/{name}" for id, below in self._below.items() for name in below.left()))

    def books(self) -> tuple[Child, ...]:
        """The children as they are kept, in start order, for those who look at many in slices."""
        return tuple(self._children.values())

    def statistics(self) -> SupervisorRecord:
        """This supervisor now; supervisors below it stand in their records' `about`."""
        return SupervisorRecord(self.id, self.strategy, self._restarts, self.children(), self.left())

    def as_child(
        self, *, restart: Restart = "permanent", shutdown_s: float | None = None, significant: bool = False
    ) -> ChildSpec:
        """The spec that makes this supervisor a child of another, with its subtree in the other's statistics.

        `shutdown_s` None gives it what its first children need one after another.
        """
        own_s = sum(spec.shutdown_s + ABORT_WINDOW_S for spec in self._first)
        return ChildSpec(
            self.id,
            self.run,
            restart,
            shutdown_s=max(5.0, own_s) if shutdown_s is None else shutdown_s,
            kind="supervisor",
            about=self.statistics,
            significant=significant,
            below=self,
        )

    async def run(self) -> None:
        """(Trio) Live as a child of another supervisor: start the first children, end all when cancelled.

        Raises IntensityReached when it gave up. May run again afterwards, with the first children alone.
        """
        if self._phase == "over":
            self._reset()
        for spec in self._first:
            self.start_child(spec)
        ran = self._ran = trio.Event()
        try:
            await ran.wait()
        except trio.Cancelled:
            self.end()
            with trio.move_on_after(self._end_bound_s(), shield=True):
                await ran.wait()
            raise
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Begin to end all children, in reverse order; nothing is started any more."""
        if self._phase == "up":
            self._phase = "ending"
            self._due.clear()
            if self._renewal is not None:
                self._renewal.cancel()
            self._guest.spawn(self._end_all, self._all_ended, name=f"{self.id} ends")

    async def shutdown(self) -> tuple[str, ...]:
        """End all children, each within its `shutdown_s`, and return the names of those that still live.

        (asyncio or Trio) The ending goes on when the caller is cancelled.
        """
        self.end()
        await self._over.wait()
        return self.left()

    async def wait(self) -> None:
        """(asyncio) Return when the supervisor has ended; raise IntensityReached when it gave up.

        A RuntimeError says that the Trio run died under it.
        """
        over, died = asyncio.ensure_future(self._over.wait()), asyncio.ensure_future(self._guest.wait())
        try:
            await asyncio.wait((over, died), return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            died.cancel()
        if self._failure is not None:
            raise self._failure
        if not self._over.opened:
            died.result()

    # -- a child ends ------------------------------------------------------------------------------------------------

    def _start(self, child: Child) -> None:
        child.phase, child.asked, child.over = "alive", False, None
        child.running = self._guest.spawn(child.spec.start, child.ended, name=child.spec.id)

    def child_ended(self, child: Child, outcome: Outcome) -> None:
        """(a child's books) It has ended; what follows is decided here."""
        if outcome.error is not None:
            log_crash(child.spec.id, self.id, outcome.error)
        if self._left.get(child.spec.id) is child:
            del self._left[child.spec.id]
            self._look_empty()
        elif child.spec.id in self._due:
            pass  # the renewal that ended it, or was about to, starts it again
        elif child.asked or self._phase != "up" or self._guest.ending:
            self._forget(child)
        else:
            self._decide(child, exit_of(outcome))

    def _decide(self, child: Child, how: Exit) -> None:
        decision, past = self._decision(child, how)
        period_s = (self._each or self._intensity).period_s
        why = f"{child.spec.id} ended ({how}), after {len(past)} restarts within {period_s:g} s"
        match decision:
            case Decision.RESTART:
                self._restart(child, backoff_s(len(past), self._jitter()))
            case Decision.FORGET:
                self._forget(child)
            case Decision.GIVE_UP:
                self._forget(child)
                _log.error("Supervisor %s gave up a child: %s: more than restarts_max allows.", self.id, why)
            case Decision.ESCALATE:
                self._forget(child)
                others = f", and {len(self._past)} others were given up" if self._each and self._past else ""
                self._give_up(f"{why}{others}: more than restarts_max allows")
        if self._on_notice is not None and how != "passivated":
            self._on_notice(ChildRestarted(child.spec.id, decision.value))

    def _decision(self, child: Child, how: Exit) -> tuple[Decision, tuple[float, ...]]:
        """What to do now, and the restarts that were counted for it."""
        restart, now_s = child.spec.restart, self._guest.now_s()
        if self._each is None:
            intensity = NEVER_AGAIN if child.spec.significant else self._intensity
            decision, self._past = on_exit(restart, how, self._past, now_s, intensity)
            return decision, self._past
        decision, child.past, self._past = on_exit_of_many(
            restart, how, child.past, self._past, now_s, self._each, self._intensity
        )
        return decision, child.past

    def _restart(self, child: Child, after_s: float) -> None:
        if self.strategy == "one_for_one":
            self._again(child, after_s)
            return
        self._due.update(affected(self.strategy, tuple(self._children), child.spec.id))
        self._due_after_s = after_s
        if self._renewal is None:
            self._renewal = self._guest.spawn(self._renew, self._renewed, name=f"{self.id} restarts")

    def _again(self, child: Child, after_s: float = 0.0) -> None:
        child.restarts += 1
        self._restarts += 1
        if after_s <= 0:
            self._start(child)
        else:
            child.phase = "waiting"
            child.running = self._guest.spawn(partial(trio.sleep, after_s), child.ended, name=f"{child.spec.id} waits")

    def backed_off(self, child: Child) -> None:
        """(a child's books) The wait before its restart is over; or it never runs again, and who waits hears that."""
        if child.asked or self._phase != "up" or self._guest.ending:
            self._forget(child)
            if self._on_notice is not None:
                self._on_notice(ChildRestarted(child.spec.id, Decision.FORGET.value))
        else:
            self._start(child)

    def _forget(self, child: Child) -> None:
        if self._children.get(child.spec.id) is child:
            del self._children[child.spec.id]
            self._look_empty()

    def _look_empty(self) -> None:
        if self._on_empty is not None and not self._children and not self._left:
            self._on_empty()

    def _give_up(self, why: str) -> None:
        self._failure = IntensityReached(f"Supervisor {self.id} gave up: {why}.")
        _log.error("%s", self._failure)
        self.end()

    async def _renew(self) -> None:
        """(Trio) End what is due, in reverse order, and start it again in order; more may become due meanwhile."""
        ready: frozenset[str] = frozenset()
        while ready != (due := frozenset(self._due)):
            for child in [c for c in reversed(self._children.values()) if c.spec.id in due]:
                if not await self._end(child):
                    self._give_up(
                        f"{child.spec.id} did not end within {child.spec.shutdown_s:g} s, to be started again"
                    )
                    return
            await trio.sleep(self._due_after_s)
            ready = due
        self._renewal = None
        self._due.clear()
        for child in [c for c in self._children.values() if c.spec.id in ready]:
            if child.spec.restart == "temporary":
                self._forget(child)
            else:
                self._again(child)

    def _renewed(self, outcome: Outcome) -> None:
        assert outcome.error is None or self._guest.ending, f"a renewal failed: {outcome.error!r}"

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _end(self, child: Child) -> bool:
        """(Trio) Ask, wait `shutdown_s`, cancel, wait one abort window, give up; says whether it has ended."""
        running = child.running
        if running is not None:
            over = child.over = trio.Event() if child.over is None else child.over
            if not child.asked:
                child.asked = True
                self._ask(child, running)
            for wait_s in (child.spec.shutdown_s, ABORT_WINDOW_S):
                with trio.move_on_after(wait_s):
                    await over.wait()
                    break
                running.cancel()
            else:
                self._left[child.spec.id] = child
                self._forget(child)
                _log.error("child %s of %s did not end in time and was left", child.spec.id, self.id)
                return False
        if child.spec.id not in self._due:
            self._forget(child)
        return True

    def _ask(self, child: Child, running: Spawned) -> None:
        if child.phase != "alive" or child.spec.stop is None:
            running.cancel()
            return
        try:
            child.spec.stop()
        except Exception as error:
            _log.error("asking child %s of %s to stop failed: %s", child.spec.id, self.id, crash_text(error))
            running.cancel()

    async def _end_all(self) -> None:
        """(Trio) The last started first, `ends_at_once_max` at a time."""
        todo = list(self._children.values())

        async def drain() -> None:
            while todo:
                await self._end(todo.pop())

        async with trio.open_nursery() as nursery:
            for _ in range(min(self._ends_at_once_max, len(todo))):
                nursery.start_soon(drain)

    def _all_ended(self, outcome: Outcome) -> None:
        self._phase = "over"
        self._over.open()
        if self._ran is not None and trio.lowlevel.in_trio_run():
            self._ran.set()
        assert outcome.error is None or self._guest.ending, f"an ending failed: {outcome.error!r}"

    def _end_bound_s(self) -> float:
        return 1.0 + sum(child.spec.shutdown_s + ABORT_WINDOW_S for child in self._children.values())

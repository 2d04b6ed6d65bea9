"""Timers: calls functions at times of Trio's clock; one heap and one task for a whole runtime.

A deadline of trio's own takes a scope, and an exception that goes through a task: for a thousand abort windows that end
at once that is a third of what their ends cost.
"""

import heapq
import itertools
import math
from collections.abc import Awaitable, Callable, Iterable

import trio

# Rounds of the scheduler between the time and a patient call. When many windows end at once, a body that was told in
# time may have had no turn since: it has it now.
LAST_ROUNDS_MAX = 3


class Timer:
    """One call that is due; `cancel` it when it is not wanted any more."""

    __slots__ = ("_timers", "fn", "patient")

    def __init__(self, timers: "Timers", fn: Callable[[], None], *, patient: bool) -> None:
        self._timers, self.patient = timers, patient
        self.fn: Callable[[], None] | None = fn

    def cancel(self) -> None:
        """Call nothing; harmless when repeated, or when it was called."""
        if self.fn is not None:
            self.fn = None
            self._timers.fewer()


class Timers:
    """`at` asks for a call, which must not raise. The task begins with the first one."""

    def __init__(self, start: Callable[[Callable[[], Awaitable[None]]], object]) -> None:
        self._start = start
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._wanted = 0
        self._scope: trio.CancelScope | None = None

    def __len__(self) -> int:
        return self._wanted

    def at(self, due_s: float, fn: Callable[[], None], *, patient: bool = False) -> Timer:
        """Call `fn` at `due_s` or soon after, in the order of times; a patient one some rounds later."""
        timer = Timer(self, fn, patient=patient)
        heapq.heappush(self._heap, (due_s, next(self._numbers), timer))
        self._wanted += 1
        if self._scope is None:
            self._scope = trio.CancelScope(deadline=due_s)
            self._start(self._run)
        elif due_s < self._scope.deadline:
            self._scope.deadline = due_s
        return timer

    def fewer(self) -> None:
        """(Timer) One is not wanted any more; the rest of a heap that nobody wants is no reason to wake up."""
        self._wanted -= 1
        if not self._wanted:
            self._heap.clear()
            if self._scope is not None:
                self._scope.deadline = math.inf

    async def _run(self) -> None:
        while True:
            assert self._scope is not None
            with self._scope:
                await trio.sleep_forever()
            await self._call_due()
            self._scope = trio.CancelScope(deadline=self._heap[0][0] if self._heap else math.inf)

    async def _call_due(self) -> None:
        """What one of them asks for comes later, however late it is: others have their turn before."""
        due, now_s = list[Timer](), trio.current_time()
        while self._heap and self._heap[0][0] <= now_s:
            due.append(heapq.heappop(self._heap)[2])
        patient = [timer for timer in due if timer.patient]
        self._call(timer for timer in due if not timer.patient)
        if patient:
            for _ in range(LAST_ROUNDS_MAX):
                await trio.lowlevel.cancel_shielded_checkpoint()
            self._call(patient)

    def _call(self, timers: Iterable[Timer]) -> None:
        for timer in timers:
            fn, timer.fn = timer.fn, None
            if fn is not None:
                self._wanted -= 1
                fn()

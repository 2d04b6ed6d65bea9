"""The one Trio run of a thread, as a guest of its asyncio loop, and the two crossings between them.

asyncio to Trio: `guest.start(fn) -> asyncio.Future`, or `guest.spawn(fn, on_end)` for many that idle. Trio to asyncio:
`await guest.ask_host(coro_fn)`. There is no third.

The guest handles no signals. With a host that took SIGINT, as `asyncio.run` and the command line do, Trio takes none
either; under a bare `run_until_complete` in the main thread Trio answers Ctrl-C itself, and gives SIGINT back after.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import trio

from callboard.actors.errors import Dropped, UsageError
from callboard.actors.inside import INSIDE
from callboard.runtime.clock import SimClock
from callboard.runtime.crossing import (
    CANCELLED,
    Outcome,
    Spawned,
    Started,
    Wait,
    answer,
    awaited,
    escaped,
    own_error,
    program_end,
)
from callboard.runtime.rounds import Rounds

T = TypeVar("T")

ABORT_WINDOW_S = 0.1  # how long a cancelled ask waits for the asyncio task that it cancelled, on Trio's clock
END_S = 10.0  # real seconds that a run may take to end, before the host goes on without it

_log = logging.getLogger("callboard")
# A RunVar lives in Trio's own run of the thread, so it finds a guest that was stranded, too.
_HERE: trio.lowlevel.RunVar["Guest"] = trio.lowlevel.RunVar("callboard guest")

STRANDED = (
    "An event loop of this thread was closed while a Callboard runtime was open in it, so Trio cannot run in this "
    "thread any more. Leave open_runtime() before the loop is closed (asyncio.run does), or use a new thread."
)
FOREIGN = "Trio already runs in this thread, started by something else. Open the runtime in a thread of its own."
OTHER_LOOP = (
    "A Callboard runtime is open in another event loop of this thread, and there is one Trio run per thread. Close it, "
    "or open this one in a new thread."
)
OWN_CLOCK = (
    "A runtime with a clock of its own shares no Trio run, and a runtime is already open in this event loop. Close the "
    "other first, or open this one in a new thread."
)
STUCK = "An earlier runtime of this thread does not end because of {}. Open this one in a new thread."


class Guest:
    """The Trio run of this thread's event loop, shared and counted by all runtimes in it.

    Everything here is called on the loop's thread, from asyncio or from Trio, except `run_soon`. `nursery` is for tasks
    that no outcome is wanted of; an error of theirs ends the run.
    """

    nursery: trio.Nursery

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: trio.abc.Clock | None) -> None:
        self.loop = loop
        self._clock = clock
        self._sim = clock if isinstance(clock, SimClock) else None
        self._users = 0
        self._ready: asyncio.Future[None] = loop.create_future()
        self.over: asyncio.Future[None] = loop.create_future()  # to be waited for, never to be cancelled
        self._died: BaseException | None = None
        self._ending = False
        self._end_by_s = math.inf  # on the loop's clock; after it nobody waits for the end any more
        self._live: set[Spawned] = set()
        self._asked: set[asyncio.Task[Any]] = set()  # asyncio itself holds tasks only weakly
        self._rounds = Rounds(loop, plain=clock is not None)

    # -- one run per thread ------------------------------------------------------------------------------------------

    @classmethod
    async def enter(cls, clock: trio.abc.Clock | None = None) -> "Guest":
        """Start this thread's guest run, or join it; each `enter` is paid with one `leave`.

        A caller with a `clock` shares with nobody. A `UsageError` says why this thread cannot have the run.
        """
        if trio.lowlevel.in_trio_task():
            raise UsageError("A runtime is opened from asyncio; inside an actor use the runtime that runs it.")
        loop = asyncio.get_running_loop()
        while (guest := _here(loop)) is not None and guest._ending:
            if left := await guest._until_over(END_S):
                raise UsageError(STUCK.format(", ".join(left)))
        if guest is None:
            guest = cls(loop, clock)
            guest._begin()
        elif clock is not None or guest._clock is not None:
            raise UsageError(OWN_CLOCK)
        await guest._join()
        return guest

    async def leave(self, bound_s: float = END_S) -> tuple[str, ...]:
        """The last one to leave ends the run and waits until every `finally` has run, at most `bound_s` real seconds.

        Returns the names of Trio tasks that have not ended by then.
        """
        assert self._users, "leave() without enter()"
        self._users -= 1
        if self._users:
            return ()
        self.end()
        self._end_by_s = self.loop.time() + bound_s
        return await self._until_over(bound_s)

    async def wait(self) -> None:
        """Return when the run has ended; raise a RuntimeError when it died of an error in Trio itself."""
        await asyncio.wait((self.over,))
        if self._died is not None:
            raise RuntimeError("The Trio run died, and every actor in it is gone.") from self._died

    def end(self) -> None:
        """Cancel everything in the run; it is over when all of it has ended."""
        self._ending = True
        if self._ready.done() and not self.over.done():
            self.nursery.cancel_scope.cancel()

    @property
    def ending(self) -> bool:
        """Whether the run is ending or over: nothing starts any more."""
        return self._ending

    def now_s(self) -> float:
        """Trio's clock, in seconds; while the run lives."""
        return trio.current_time()

    def living(self) -> tuple[str, ...]:
        """The names of the Trio tasks that live in the run."""
        return tuple(sorted(task.name for task in self.nursery.child_tasks)) if self._ready.done() else ()

    async def _join(self) -> None:
        self._users += 1
        joined = False
        try:
            await asyncio.wait((self._ready, self.over), return_when=asyncio.FIRST_COMPLETED)
            if not self._ready.done():
                raise RuntimeError("The Trio run died before it began.") from self._died
            joined = True
        finally:
            if not joined:
                await self.leave()

    def _begin(self) -> None:
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self.run_soon,
            run_sync_soon_not_threadsafe=self._rounds.soon,
            done_callback=self._finished,
            host_uses_signal_set_wakeup_fd=True,
            clock=self._clock,
        )
        _HERE.set(self)
        self._guard = self.loop.create_task(self._watch(), name="callboard guest")

    async def _main(self) -> None:
        async with trio.open_nursery() as self.nursery:
            try:
                self._ready.set_result(None)
                if self._ending:
                    self.nursery.cancel_scope.cancel()
                await trio.sleep_forever()
            finally:
                self._ending = True

    async def _watch(self) -> None:
        """The guard: whoever cancels the host's tasks, as asyncio.run does at its end, ends the guest and waits for it.

        Every cancellation asks for the same, so each is swallowed. Bounded by END_S, or by what `leave` was given.
        """
        left_s: float | None = None
        while not self.over.done() and (left_s is None or left_s > 0):
            try:
                await asyncio.wait((self.over,), timeout=left_s)
            except asyncio.CancelledError:
                self.end()
                self._end_by_s = min(self._end_by_s, self.loop.time() + END_S)
            if self._end_by_s < math.inf:
                left_s = self._end_by_s - self.loop.time()
        if not self.over.done():
            _log.error("the Trio run does not end; left behind: %s", ", ".join(self.living()))

    async def _until_over(self, bound_s: float) -> tuple[str, ...]:
        await asyncio.wait((self.over,), timeout=bound_s)
        return () if self.over.done() else self.living() or ("its own main task",)

    def _finished(self, outcome: Any) -> None:
        """(Trio) The run is over; what it still owed is resolved, also when it died."""
        self._ending = True
        error: BaseException | None = getattr(outcome, "error", None)
        gone = CANCELLED
        if error is not None and not self._raised_in_loop(error):
            self._died = error
            gone = Outcome(error=escaped("The Trio run", error))
            _log.critical("the Trio run died: %r", error, exc_info=error)
        for spawned in tuple(self._live):
            self._settle(spawned, gone)
        for task in self._asked:
            task.cancel()
        self.over.set_result(None)

    # -- asyncio to Trio ---------------------------------------------------------------------------------------------

    def start(self, fn: Callable[..., Awaitable[T]], *args: Any, name: str | None = None) -> asyncio.Future[T]:
        """Run an async Trio function and return its future.

        Cancelling the future cancels the function, and the future is done (cancelled) when the function has ended. An
        error is the future's exception. When the guest ends under it, that is `SessionClosed`.
        """
        future: Started[T] = Started(loop=self.loop)
        whole = partial(fn, *args) if args else fn
        future.spawned = self.spawn(whole, future.end, name=name or getattr(fn, "__qualname__", None))
        return future

    def spawn(
        self, fn: Callable[[], Awaitable[Any]], on_end: Callable[[Outcome], object], *, name: str | None = None
    ) -> Spawned:
        """Run an async Trio function; `on_end(outcome)` is called exactly once, in the host loop, whatever happens.

        Costs no asyncio task and no future. When the guest is ending the function is not started, and was cancelled.
        """
        spawned = Spawned(on_end, name or getattr(fn, "__qualname__", None) or type(fn).__name__)
        self._live.add(spawned)
        if self._ending:
            self._settle(spawned, CANCELLED)
        else:
            self.nursery.start_soon(self._run, spawned, fn, name=spawned.name)
        return spawned

    async def _run(self, spawned: Spawned, fn: Callable[[], Awaitable[Any]]) -> None:
        """(Trio) The one place where an actor's error becomes an outcome; nothing escapes into the shared nursery.

        `trio.Cancelled` ends here too: this is the outermost frame of the task, so nobody is left to miss it.
        KeyboardInterrupt and SystemExit mean the whole program: they are raised out of the host loop, as asyncio does
        with its own tasks, and the outcome is a RuntimeError, because the host must not meet the same one twice.
        """
        outcome = CANCELLED
        INSIDE.set(None)  # whoever spawned it does not wait for it
        try:
            with spawned.scope:
                outcome = Outcome(await fn())
        except BaseException as raised:
            error = own_error(raised)
            if isinstance(error, Exception):
                outcome = Outcome(error=error)
            elif error is not None:
                self._raised_in_loop(error)
                outcome = Outcome(error=escaped(spawned.name, error))
        self._settle(spawned, outcome)

    def _raised_in_loop(self, error: BaseException) -> bool:
        """Raise the KeyboardInterrupt or SystemExit in it out of the host loop; False when it holds none."""
        end = program_end(error)
        if end is not None:
            self.loop.call_soon(_raise, end)
        return end is not None

    def _settle(self, spawned: Spawned, outcome: Outcome) -> None:
        """Tell the end, once, in a turn of the host loop."""
        if not spawned.ended:
            spawned.ended = True
            self._live.discard(spawned)
            self._crossing_opened()
            self.loop.call_soon(self._deliver, spawned.on_end, outcome)

    def _deliver(self, on_end: Callable[[Outcome], object], outcome: Outcome) -> None:
        try:
            on_end(outcome)
        finally:
            self._crossing_closed()

    def run_soon(self, fn: Callable[[], object]) -> None:
        """Call `fn()` on the loop's thread soon; from any thread, and ignored once the loop is closed."""
        try:
            self.loop.call_soon_threadsafe(fn)
        except RuntimeError:
            if not self.loop.is_closed():
                raise

    # -- Trio to asyncio ---------------------------------------------------------------------------------------------

    async def ask_host(
        self,
        coro_fn: Callable[..., Awaitable[T]],
        *args: Any,
        bound_s: float = ABORT_WINDOW_S,
        on_left: Callable[[asyncio.Task[T]], object] | None = None,
    ) -> T:
        """(Trio) Run an asyncio coroutine function as a task of the host, and return what it returns.

        A cancelled wait cancels the task, waits until it has ended, at most `bound_s` seconds of Trio's clock, and
        raises Trio's `Cancelled`. A task that has not ended by then is left: `on_left(task)` is told, its late outcome
        dropped. A RuntimeError says that somebody else cancelled it, or that it raised what is no Exception.
        """
        task = asyncio.Task(
            awaited(coro_fn, args), loop=self.loop
        )  # no factory: an eager one would run it in Trio's turn
        self._asked.add(task)
        wait = Wait(task)
        try:
            self._crossing_opened()
            try:
                await wait.done()
            finally:
                self._crossing_closed()  # before the bounded wait: the bound is time that has to pass
        except (trio.Cancelled, Dropped):
            # A second wait, because Trio asks an abort function only once: so actors/drop.py can end this one as well.
            task.cancel()
            try:
                with trio.move_on_after(bound_s, shield=True):
                    await wait.done()
            finally:
                if not task.done() and on_left is not None:
                    on_left(task)
            raise
        finally:
            task.add_done_callback(self._forget)
        return answer(task)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._asked.discard(task)
        if not task.cancelled():
            task.exception()  # read, so that asyncio does not report what nobody waits for

    def _crossing_opened(self) -> None:
        if self._sim is not None:
            self._sim.crossing_opened()

    def _crossing_closed(self) -> None:
        if self._sim is not None:
            self._sim.crossing_closed()


def _here(loop: asyncio.AbstractEventLoop) -> Guest | None:
    """This thread's guest when it can be joined from `loop`, None without any; a UsageError when it cannot."""
    if not trio.lowlevel.in_trio_run():
        return None
    try:
        guest = _HERE.get()
    except LookupError:
        raise UsageError(FOREIGN) from None
    if guest.loop.is_closed():
        raise UsageError(STRANDED)
    if guest.loop is not loop:
        raise UsageError(OTHER_LOOP)
    return guest


def _raise(error: BaseException) -> None:
    raise error

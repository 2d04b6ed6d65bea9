"""Task: what a session runs in its slot; it hosts the work and closes the books, whatever happened on the way.

A kind of task says what its work is (`run`), what to settle before the books are closed, and what else to let go.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import trio

from callboard.actors.awaited import taken_back
from callboard.actors.books import QUEUE, TURN, USAGE
from callboard.actors.children import CHILDREN, UNSETTLED, with_below
from callboard.actors.claim import left_over
from callboard.actors.errors import Dropped, LogError
from callboard.actors.eventlog import LOGGER
from callboard.actors.events import (
    AbortRequested,
    Cause,
    Event,
    Message,
    MessagesClaimed,
    NoteAdded,
    QueueParked,
    StartKind,
    StepEnded,
    TurnEnded,
    TurnKind,
    TurnReason,
)
from callboard.actors.hooks import hook_turn
from callboard.actors.host import Host
from callboard.actors.inside import INSIDE
from callboard.actors.pit import leaves
from callboard.actors.receipts import clean_text, ending_of, marker_text
from callboard.actors.results import describe
from callboard.actors.told import OnInterrupt, tell
from callboard.actors.view import CallView, Scene


def _crash(work: Host) -> Exception:
    error = work.error
    if isinstance(error, Exception):
        return error
    crash = RuntimeError(f"{work.name} was ended from outside" if error is None else f"{work.name}: {describe(error)}")
    crash.__cause__ = error
    return crash


class _Over:
    """Stands where a turn's things were once it is over: what its work does later ends here, not on the log."""

    def __getattr__(self, name: str) -> Any:
        raise Dropped

    def __getitem__(self, key: object) -> Any:
        raise Dropped


class Task:
    """The turn that is open on the log, until it is owed nothing. Its session calls `end` once it is `over`.

    It ends by itself, or by the window of `scene`. The work is hosted like a tool's, so that a model or a plugin that
    does not stop is left behind, and the turn has no other task: its session hears by `look`.
    """

    kind: ClassVar[TurnKind] = "regular"

    def __init__(
        self,
        scene: Scene,
        start: StartKind,
        look: Callable[[], None],
        message: Message | None = None,
        *,
        recovered: bool = False,
    ) -> None:
        """`message` is what asked for a kind of task by its name; its text says what about. None: for a regular one.

        `recovered`: it goes on where a crash cut it off.
        """
        assert scene.window is not None
        self._message, self._recovered = message, recovered
        self._scene, self._stage, self._log, self._start = scene, scene.stage, scene.log, start
        self._window = scene.window
        self._turn = scene.log[TURN].number
        self._began_s = scene.stage.now_s()
        self._first_token_s: float | None = None
        self._error: str | None = None
        self._spent: str | None = None  # the budget that ended it
        self._blocked = False
        self._over: StepEnded | None = None  # goes on the log together with what follows the step
        self._work = Host(self._stage, self._window, self._hosted, f"turn {self._turn} of session {scene.log.session}")
        self._window.look = look
        if self._stage.slots.on_interrupt:
            OnInterrupt(scene, self._window)
        trees = scene.stage.trees
        self._purse = None if trees is None else trees.enter(scene.log, self.cut)
        self.prepare()
        self._work.start()

    # -- what a kind of task says of itself ------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make what the work needs; before it starts."""

    async def run(self) -> None:
        """(Trio) The work, until nothing is owed; cancelled with the window's scope."""
        raise NotImplementedError

    def settle(self, cause: Cause | None) -> None:
        """Put on the log what the work left open; called once, before the books are closed, and does not wait."""

    def let_go(self) -> None:
        """Tell what runs elsewhere for it to end; called once, when it is over or its session goes down."""

    # ---------------------------------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether nothing is waited for: the work, in a window also calls and agents below; or the window is over."""
        window = self._window
        return window.over or (self._work.ended and (window.cause is None or not (window.asked or window.below)))

    async def _hosted(self) -> None:
        """The work, and why the store refused it."""
        window = self._window
        INSIDE.set((self._log.session, self._turn))
        with window.scope:
            try:
                await self._bounded()
            except (LogError, ExceptionGroup) as error:
                if not all(isinstance(leaf, LogError) for leaf in leaves(error)):
                    raise
                self._error = clean_text(f"the store refused: {next(leaves(error))}")
        if window.scope.cancelled_caught and window.cause is None:
            raise RuntimeError(f"{self._work.name} was cancelled, and nobody asked for that")

    async def _bounded(self) -> None:
        """The work within its seconds."""
        limits = self._stage.limits
        if limits.turn_seconds_max is not None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._budget, limits.turn_seconds_max)
                await self._until_over()
                nursery.cancel_scope.cancel()
        else:
            await self._until_over()

    async def _until_over(self) -> None:
        try:
            await self.run()
        finally:
            self._window.settled = True  # without a checkpoint since it was seen that nothing is owed

    async def _budget(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.out_of(f"turn_seconds_max: the turn has run for {seconds:g} s")

    def out_of(self, budget: str) -> None:
        """A budget is used up: the turn ends itself, and its end says which."""
        if self._window.cause is None:
            self._spent = clean_text(f"out of budget: {budget}")
            self.abort("budget")

    def cut(self, budget: str) -> None:
        """A budget is used up, says somebody else: as `out_of`, also when the store takes nothing."""
        try:
            self.out_of(budget)
        except LogError as error:
            LOGGER.warning("%s: its abort is not on the log: %s", self._work.name, error)
            self._window.request("budget")

    def abort(self, cause: Cause) -> None:
        """The turn ends itself, for a budget."""
        if self._window.cause is None:
            self._log.append(AbortRequested(self._turn, cause))
            self._window.request(cause)

    def _first_token(self) -> None:
        if self._first_token_s is None:
            self._first_token_s = self._stage.now_s() - self._began_s

    def leave(self) -> None:
        """Whatever happens: its work and its tools are told to end, its views are over, its work writes no more."""
        if self._purse is not None:
            self._purse.close()
        self._window.close()
        self._work.desert()
        self.let_go()
        self._scene.epoch += 1
        over: Any = _Over()
        self._scene = self._stage = self._log = over

    def end(self) -> TurnEnded:
        """Append the turn's one TurnEnded, and leave behind what has not ended.

        An exception is a bug of ours or of a plugin and leaves the turn open for the repair.
        """
        work, window = self._work, self._window
        if window.cause is None and not work.has_value:
            raise _crash(work)
        if work.error is not None:
            LOGGER.warning("%s failed while it was being aborted: %s", work.name, describe(work.error))
        ended = self._close_books(window.cause)
        work.abandon()
        listening = self._stage.slots.on_turn_end
        if listening:
            tell(self._scene, "on_turn_end", listening, hook_turn(self._scene), ended)
        return ended

    def _close_books(self, cause: Cause | None) -> TurnEnded:
        """In one piece: results, step, marker, TurnEnded."""
        self.settle(cause)
        turn = self._log[TURN]
        closing: list[Event] = [self._over or StepEnded(self._turn, turn.step)] if turn.in_step else []
        if cause in ("interrupted", "parent") and self._stage.limits.interrupt_message:
            role = self._stage.limits.marker_role
            closing.append(NoteAdded(marker_text(role), role, "marker"))
        closing.extend(taken_back(self._log, cause))
        queue = self._log[QUEUE]
        left = left_over(queue, aborted=cause is not None) if queue else ()
        if left:
            closing.append(MessagesClaimed(tuple(message.id for message in left)))
        ended = self._ended(cause)
        closing.append(ended)
        failed = cause not in (None, "replaced") or (ended.error is not None and not self._blocked)
        if failed and len(queue) > len(left) and not turn.spoken:
            closing.append(QueueParked(parked=True))
        self._log.append(*closing)
        return ended

    def _ended(self, cause: Cause | None) -> TurnEnded:
        window, turn = self._window, self._log[TURN]
        reason: TurnReason = "aborted" if cause is not None else "blocked" if self._blocked else "completed"
        first = self._first_token_s
        return TurnEnded(
            turn=self._turn,
            reason=reason,
            cause=cause,
            last_message=turn.last_message,
            error=self._error if self._spent is None else self._spent,
            receipts=turn.receipts,
            usage=turn.usage,
            steps=turn.step,
            tool_calls=turn.tool_calls,
            started_ms=turn.started_ms,
            ended_ms=self._stage.now_ms(),
            first_token_ms=None if first is None else round(first * 1000),
            open_steps=self._open_steps(),
            live_children=self._live_children(),
            truncated=turn.truncated,
            kind=turn.kind,
            abort_s=None if cause is None else self._stage.now_s() - window.opened_s,
            ending=None if cause is None else ending_of(tuple(r.receipt for r in turn.receipts), window.told),
            tree_usage=with_below(self._log[USAGE], self._log[CHILDREN]),
        )

    def _live_children(self) -> int:
        """The agents it started that work on; of those the runtime knows more than the log."""
        children, spawner = self._log[CHILDREN], self._stage.spawner
        if spawner is not None and children:
            return spawner.working(self._log.session)
        return sum(child.status in UNSETTLED for child in children)

    def _open_steps(self) -> int:
        with CallView(self._scene) as view:
            counters = [plugin.open_steps for plugin in self._stage.plugins if plugin.open_steps is not None]
            return sum(count(view) for count in counters)

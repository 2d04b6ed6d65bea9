"""Running: steps until the model asks for no more tools, then the books, whatever happened on the way."""

from collections.abc import Callable
from typing import Any

import trio

from callboard.actors.books import CHILDREN, HISTORY, MODE, OPENED, QUEUE, TURN, Queue
from callboard.actors.claim import first_claim, goes_on, later_claim, left_over
from callboard.actors.dispatch import Batch
from callboard.actors.errors import Dropped, LogError, ModelError
from callboard.actors.eventlog import LOGGER
from callboard.actors.events import (
    AbortRequested,
    Cause,
    Event,
    MessagesClaimed,
    ModelFailed,
    ModelSaid,
    NoteAdded,
    QueueParked,
    StartKind,
    StepEnded,
    StepStarted,
    TurnEnded,
    TurnReason,
)
from callboard.actors.facts import PlanModeRequested, PlanModeSet
from callboard.actors.host import Host
from callboard.actors.intake import provider_label, take
from callboard.actors.model import Model, Prompt, Reply
from callboard.actors.notices import Delta
from callboard.actors.pit import leaves
from callboard.actors.plugin import Enter, Reject
from callboard.actors.receipts import clean_text, ending_of, marker_text
from callboard.actors.results import describe
from callboard.actors.view import CallView, Scene

RETRIES_MAX = 2
RETRY_FIRST_S = 0.5
RETRY_MAX_S = 30.0


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


class Running:
    """The turn that is open on the log, until it is owed nothing. Its session calls `end` once it is `over`.

    It ends by itself, or by the window of `scene`. The work is hosted like a tool's, so that a model or a plugin that
    does not stop is left behind, and the turn has no other task: its session hears by `look`.
    """

    def __init__(self, scene: Scene, start: StartKind, look: Callable[[], None]) -> None:
        assert scene.window is not None
        self._scene, self._stage, self._log, self._start = scene, scene.stage, scene.log, start
        self._window = scene.window
        self._turn = scene.log[TURN].number
        opened = scene.log[OPENED]
        self._path = "/root" if opened is None else opened.path
        self._system = (opened.system if opened is not None else None) or ""
        self._model_name = opened.model if opened is not None else None
        self._model: Model | None = None
        self._began_s = scene.stage.now_s()
        self._first_token_s: float | None = None
        self._said: list[str] = []  # streamed by the request that is under way
        self._ids: set[str] = set()
        self._batch: Batch | None = None
        self._error: str | None = None
        self._blocked = False
        self._model_s = 0.0
        self._unsaid: ModelSaid | None = None  # goes on the log together with the first calls it asks for
        self._over: StepEnded | None = None  # goes on the log together with what follows the step
        name = f"turn {self._turn} of session {scene.log.session}"
        self._work = Host(self._stage, self._window, self.work, name)
        self._window.look = look
        self._work.start()

    @property
    def over(self) -> bool:
        """Whether nothing is waited for: the work has ended, and in a window its calls too; or the window is over."""
        window = self._window
        return window.over or (self._work.ended and (window.cause is None or not window.asked))

    async def work(self) -> None:
        """The steps, until they are done or cancelled with the window's scope."""
        with self._window.scope:
            try:
                await self.steps()
            except (LogError, ExceptionGroup) as error:
                if not all(isinstance(leaf, LogError) for leaf in leaves(error)):
                    raise
                self._error = clean_text(f"the store refused: {next(leaves(error))}")

    async def steps(self) -> None:
        """Step after step until nothing is owed."""
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
            await self._steps()
        finally:
            self._window.settled = True  # without a checkpoint since it was seen that nothing is owed

    async def _steps(self) -> None:
        step = 0
        while step < self._stage.limits.steps_max:
            step += 1
            if not await self._enter(step):
                return
            begun_s, batch = self._stage.now_s(), None
            reply = await self._ask_model(step)
            if reply is None:
                return
            if reply.calls:
                batch = self._batch = Batch(self._scene, reply.calls, self._path, self._unsaid)
                self._unsaid = None
                self._error = await batch.run()
            self._end_step(step, begun_s, 0.0 if batch is None else batch.tools_s)
            if self._error is not None or not (reply.calls or reply.more or goes_on(self._log[QUEUE])):
                return
        self.abort("budget")
        await trio.lowlevel.checkpoint()

    async def _budget(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.abort("budget")

    def abort(self, cause: Cause) -> None:
        """The turn ends itself, for a budget."""
        if self._window.cause is None:
            self._log.append(AbortRequested(self._turn, cause))
            self._window.request(cause)

    async def _enter(self, step: int) -> bool:
        """Claim input and open the step; False when a plugin refused it or there is nothing to do."""
        queue = self._log[QUEUE]
        offered: Queue = first_claim(queue, self._start) if step == 1 else later_claim(queue)
        entering = offered
        for plugin in self._stage.gates:
            assert plugin.before_step is not None
            with CallView(self._scene) as view:
                decision = await plugin.before_step(view, entering)
            if isinstance(decision, Reject):
                self._claim(*self._still_queued(offered, entering))
                self._blocked, self._error = True, clean_text(str(decision.reason))
                return False
            assert isinstance(decision, Enter), f"before_step of {plugin.name} must answer Enter or Reject"
            entering = decision.messages
        claimed, entering = self._still_queued(offered, entering)
        if step == 1 and not entering and (offered != claimed or not self._log[HISTORY].messages):
            self._claim(claimed, entering)
            return False
        self._claim(claimed, entering, StepStarted(self._turn, step))
        self._scene.fresh = False
        return True

    def _still_queued(self, offered: Queue, entering: Queue) -> tuple[Queue, Queue]:
        """The same without what was withdrawn while the plugins were asked."""
        if not offered:
            return offered, entering
        left = self._log[QUEUE]
        gone = {message.id for message in offered if message not in left}
        if not gone:
            return offered, entering
        return (
            tuple(message for message in offered if message.id not in gone),
            tuple(message for message in entering if message.id not in gone),
        )

    def _claim(self, claimed: Queue, entering: Queue, *then: Event) -> None:
        events: list[Event] = [] if self._over is None else [self._over]
        if then:
            events.extend(self._mode_commit())
        if claimed or entering:
            ids = tuple(message.id for message in claimed)
            events.append(MessagesClaimed(ids, None if entering == claimed else entering))
        self._log.append(*events, *then)
        self._over = None

    def _mode_commit(self) -> tuple[Event, ...]:
        mode = self._log[MODE]
        if mode.pending is None:
            return ()
        return (PlanModeRequested(None) if mode.pending == mode.active else PlanModeSet(mode.pending),)

    def _prompt(self, step: int) -> Prompt:
        parts = [self._system] if self._system else []
        for plugin in self._stage.writers:
            assert plugin.prompt_section is not None
            with CallView(self._scene) as view:
                parts.append(plugin.prompt_section(view) or "")
        system = "\n\n".join(part for part in parts if part)
        messages = self._log[HISTORY].messages
        return Prompt(self._log.session, self._turn, step, system, messages, self._stage.specs)

    async def _ask_model(self, step: int) -> Reply | None:
        """One answer on the log, or None after an error that ends the turn."""
        prompt, tries, prefix = self._prompt(step), 0, f"t{self._turn}s{step}"
        while True:
            self._said, begun_s = [], self._stage.now_s()
            try:
                model = self._model = self._model or self._stage.resolve(self._model_name)
                reply = take(await model.reply(prompt, self._say), self._ids, prefix)
            except ModelError as error:
                failed = error
            except (Exception, SystemExit) as error:  # a model is foreign code; what it raises is a failed request
                failed = ModelError(describe(error))
            else:
                self._hear(reply, self._stage.now_s() - begun_s)
                return reply
            tries += 1
            again = failed.retryable and tries <= RETRIES_MAX
            self._fail(failed, self._stage.now_s() - begun_s, again=again)
            if not again:
                return None
            advised_s = failed.retry_after_s or 0.0
            await trio.sleep(min(RETRY_MAX_S, max(advised_s, RETRY_FIRST_S * 2 ** (tries - 1))))

    def _provider(self) -> str:
        return "other" if self._model is None else provider_label(self._model.provider)

    def _hear(self, reply: Reply, seconds: float) -> None:
        self._first_token()
        self._model_s = seconds
        usage, provider = reply.usage, self._provider()
        assert usage is not None
        calls = tuple(reply.calls)
        said = ModelSaid(reply.text, calls, False, usage, seconds, provider, reply.truncated)  # noqa: FBT003 - a field
        self._said = []
        if calls and not self._stage.hooks:
            self._unsaid = said  # nobody looks in between, so one write carries it and its calls
        else:
            self._log.append(said)
            self._log.nudge()

    def _fail(self, error: ModelError, seconds: float, *, again: bool) -> None:
        text = clean_text(str(error))
        if not again:
            self._keep_partial()
            self._error = text
        self._log.append(ModelFailed(text, again, seconds, self._provider()))

    def _say(self, piece: str) -> None:
        loose: Any = piece
        if not isinstance(loose, str):
            raise ModelError(f"the model said {type(loose).__name__}, not text.")
        self._first_token()
        self._said.append(piece)
        self._scene.on_delta(Delta(self._log.session, self._turn, "text", piece))

    def _first_token(self) -> None:
        if self._first_token_s is None:
            self._first_token_s = self._stage.now_s() - self._began_s

    def _keep_partial(self) -> None:
        text = clean_text("".join(self._said))
        self._said = []
        if text and self._stage.limits.keep_partial_text:
            self._log.append(ModelSaid(text, interrupted=True, provider=self._provider()))

    def _end_step(self, step: int, begun_s: float, tools_s: float) -> None:
        overhead_s = max(0.0, self._stage.now_s() - begun_s - self._model_s - tools_s)
        self._over = StepEnded(self._turn, step, overhead_s)
        self._batch = None

    def leave(self) -> None:
        """Whatever happens: its work and its tools are told to end, its views are over, its work writes no more."""
        self._window.close()
        self._work.desert()
        if self._batch is not None:
            self._batch.leave()
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
        return ended

    def _close_books(self, cause: Cause | None) -> TurnEnded:
        """In one piece: results, step, marker, TurnEnded."""
        if cause is not None or self._error is not None:
            self._keep_partial()
            if self._batch is not None:
                self._batch.close(cause)
        turn = self._log[TURN]
        closing: list[Event] = [self._over or StepEnded(self._turn, turn.step)] if turn.in_step else []
        if cause in ("interrupted", "parent") and self._stage.limits.interrupt_message:
            role = self._stage.limits.marker_role
            closing.append(NoteAdded(marker_text(role), role, "marker"))
        queue = self._log[QUEUE]
        left = left_over(queue) if cause is None else ()
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
            error=self._error,
            receipts=turn.receipts,
            usage=turn.usage,
            steps=turn.step,
            tool_calls=turn.tool_calls,
            started_ms=turn.started_ms,
            ended_ms=self._stage.now_ms(),
            first_token_ms=None if first is None else round(first * 1000),
            open_steps=self._open_steps(),
            live_children=sum(child.status in ("pending", "running") for child in self._log[CHILDREN]),
            truncated=turn.truncated,
            kind=turn.kind,
            abort_s=None if cause is None else self._stage.now_s() - window.opened_s,
            ending=None if cause is None else ending_of(tuple(r.receipt for r in turn.receipts), window.told),
        )

    def _open_steps(self) -> int:
        with CallView(self._scene) as view:
            counters = [plugin.open_steps for plugin in self._stage.plugins if plugin.open_steps is not None]
            return sum(count(view) for count in counters)

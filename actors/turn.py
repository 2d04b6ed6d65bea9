"""Regular: the ordinary turn, steps until the model asks for no more tools."""

from typing import Any

import attrs
import trio

from callboard.actors import hooks
from callboard.actors.books import FOUND, HISTORY, MODE, OPENED, QUEUE, TURN, Queue
from callboard.actors.claim import first_claim, goes_on, later_claim
from callboard.actors.dispatch import Batch
from callboard.actors.errors import ModelError
from callboard.actors.events import (
    Cause,
    Event,
    MessagesClaimed,
    ModelFailed,
    ModelSaid,
    NoteAdded,
    StepEnded,
    StepStarted,
)
from callboard.actors.facts import PlanModeRequested, PlanModeSet
from callboard.actors.hooks import hook_notes
from callboard.actors.intake import provider_label, take
from callboard.actors.model import Model, Prompt, Reply
from callboard.actors.notices import Delta
from callboard.actors.plugin import Enter, Reject
from callboard.actors.receipts import clean_text
from callboard.actors.results import describe
from callboard.actors.tasks import Task
from callboard.actors.view import CallView

RETRIES_MAX = 2
RETRY_FIRST_S = 0.5
RETRY_MAX_S = 30.0


class Regular(Task):
    """Steps: claim input, ask the model, run its calls, as long as something is owed."""

    def prepare(self) -> None:
        """Look up who answers, and under which instructions."""
        opened = self._log[OPENED]
        self._path = "/root" if opened is None else opened.path
        self._system = (opened.system if opened is not None else None) or ""
        self._model_name = opened.model if opened is not None else None
        self._model: Model | None = None
        self._said: list[str] = []  # streamed by the request that is under way
        self._ids: set[str] = set()
        self._batch: Batch | None = None
        self._model_s = 0.0
        self._notes: tuple[NoteAdded, ...] = ()  # of hooks, for the first step
        self._continued = 0  # how often stop hooks reopened the turn
        self._unsaid: ModelSaid | None = None  # goes on the log together with the first calls it asks for

    async def run(self) -> None:
        """(Trio) Step after step until nothing is owed."""
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
                batch = self._batch = Batch(self._scene, reply.calls, self._path, self._unsaid, self._ids)
                self._unsaid = None
                self._error = await batch.run()
            self._end_step(step, begun_s, 0.0 if batch is None else batch.tools_s)
            if self._error is not None:
                return
            goes = reply.calls or reply.more or goes_on(self._log[QUEUE])
            if not goes and not (self._stage.slots.on_stop and await self._reopened()):
                return
        self.abort("budget")
        await trio.lowlevel.checkpoint()

    async def _enter(self, step: int) -> bool:
        """Claim input and open the step; False when a plugin refused it or there is nothing to do."""
        queue = self._log[QUEUE]
        offered: Queue = first_claim(queue, self._start) if step == 1 else later_claim(queue)
        if step == 1 and self._stage.slots.on_turn_start and not await self._may_start(offered):
            return False
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
        self._claim(claimed, entering, *self._notes, StepStarted(self._turn, step))
        self._notes = ()
        self._scene.fresh = False
        return True

    async def _may_start(self, offered: Queue) -> bool:
        """Ask the hooks of a turn's start; a refusal records its messages."""
        turn = attrs.evolve(hooks.hook_turn(self._scene), messages=offered)
        verdict = await hooks.starting(self._stage, self._window, turn)
        self._log.append(*verdict.events)
        self._notes = hook_notes(verdict.notes)
        if verdict.block is not None:
            self._claim(*self._still_queued(offered, offered))
            self._blocked, self._error = True, verdict.block
        return verdict.block is None

    async def _reopened(self) -> bool:
        """Ask the hooks of a turn's end; whether it goes on, for them or for input that came meanwhile."""
        turn = attrs.evolve(hooks.hook_turn(self._scene), continued=self._continued)
        verdict = await hooks.stopping(self._stage, self._window, turn, self._log[TURN].last_message)
        self._log.append(*verdict.events)
        if not verdict.more:
            return goes_on(self._log[QUEUE])
        self._continued += 1
        if self._continued > hooks.STOPS_MAX:
            self._after_step(*hook_notes((hooks.STOPPED.format(count=hooks.STOPS_MAX),)))
            return False
        self._after_step(*hook_notes(verdict.more))
        return True

    def _after_step(self, *events: Event) -> None:
        self._log.append(*(events if self._over is None else (self._over, *events)))
        self._over = None

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
        return Prompt(self._log.session, self._turn, step, system, messages, self._stage.specs_for(self._log[FOUND]))

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
        if calls and not self._stage.slots.before_tool:
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

    def _keep_partial(self) -> None:
        text = clean_text("".join(self._said))
        self._said = []
        if text and self._stage.limits.keep_partial_text:
            self._log.append(ModelSaid(text, interrupted=True, provider=self._provider()))

    def _end_step(self, step: int, begun_s: float, tools_s: float) -> None:
        overhead_s = max(0.0, self._stage.now_s() - begun_s - self._model_s - tools_s)
        self._over = StepEnded(self._turn, step, overhead_s)
        self._batch = None

    def settle(self, cause: Cause | None) -> None:
        """Keep what was streamed, and give each open call its one result."""
        if cause is not None or self._error is not None:
            self._keep_partial()
            if self._batch is not None:
                self._batch.close(cause)

    def let_go(self) -> None:
        """Tell the bodies of open calls to end."""
        if self._batch is not None:
            self._batch.leave()

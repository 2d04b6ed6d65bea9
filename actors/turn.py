"""Regular: the ordinary turn, steps until the model asks for no more tools."""

from collections.abc import Iterable
from typing import Any, Literal

import attrs
import msgspec
import trio

from callboard.actors import hooks
from callboard.actors.books import FILLED, HISTORY, QUEUE, TURN, Queue
from callboard.actors.claim import first_claim, goes_on, later_claim
from callboard.actors.compact import Shrinking
from callboard.actors.compaction import filled, limit_tokens, tokens_of_text, window_of
from callboard.actors.dispatch import Batch
from callboard.actors.errors import ModelError
from callboard.actors.events import Cause, Event, MessagesClaimed, ModelSaid, NoteAdded, StepEnded, StepStarted
from callboard.actors.facts import PlanModeRequested, PlanModeSet
from callboard.actors.hooks import hook_notes
from callboard.actors.mode import MODE
from callboard.actors.model import Part, Prompt, Reply
from callboard.actors.notices import Delta
from callboard.actors.plugin import Enter, Plugin, Reject, TextFilter
from callboard.actors.receipts import clean_text
from callboard.actors.view import CallView

STILL_TOO_LARGE = "the prompt does not fit the model's window, not even after a compaction: {error}"

JSON_NOTE = (
    "The final answer of this turn has to be one JSON value that follows the schema it was asked for, and nothing "
    "else: no words around it, no code fence. Yours could not be read: {why}. Give it again."
)
NOT_JSON = "the final answer does not follow its schema: it is no JSON: {why}"


class Regular(Shrinking):
    """Steps: claim input, ask the model, run its calls, as long as something is owed."""

    def prepare(self) -> None:
        """What a turn remembers from one step to the next."""
        super().prepare()
        self._ids: set[str] = set()
        self._batch: Batch | None = None
        self._notes: tuple[NoteAdded, ...] = ()  # of hooks, for the first step
        self._continued = 0  # how often stop hooks reopened the turn
        self._schema: Any = self._log[TURN].schema  # of the final answer
        self._asked_again = False
        self._filter: TextFilter | None = None  # of what the request that is under way says
        self._unsaid: ModelSaid | None = None  # goes on the log together with the first calls it asks for
        self._limit_tokens: int | None = None  # a prompt this large is compacted first
        self._full = False  # a compaction was tried and did not make enough room

    async def run(self) -> None:
        """(Trio) Step after step until nothing is owed."""
        limits, step, bounded = self._stage.limits, 0, self._bounds()
        if self._recovered:
            step = self._log[TURN].step
            if not await self._take_up():
                return
        while step < limits.steps_max:
            step += 1
            await self._stays()  # before it claims: what it does not ask about stays in the queue
            if bounded and not await self._may_ask(step):
                return
            if not await self._enter(step) or not await self._step(step):
                return
        self.out_of(f"steps_max: the turn has made {step} steps")
        await trio.lowlevel.checkpoint()

    async def _step(self, step: int) -> bool:
        """Ask the model and run what it calls; whether anything is owed after that."""
        begun_s, self._away_s = self._stage.now_s(), 0.0
        answer = await self._ask(self._prompt(step), self._say, self._ids, f"t{self._turn}s{step}")
        reply = answer if isinstance(answer, Reply) else await self._once_more(answer, step)
        if reply is None:
            return False
        self._hear(reply)
        if reply.calls:
            self._batch = Batch(self._scene, reply.calls, self._path, self._unsaid, self._ids)
            self._unsaid = None
            if self._window.cause is not None:  # the reply was one too many, and nothing of it runs
                await trio.lowlevel.checkpoint()
                return False
        return await self._carry_out(step, begun_s, reply.text, owes=bool(reply.calls) or reply.more)

    async def _carry_out(self, step: int, begun_s: float, text: str, *, owes: bool) -> bool:
        """Run the calls of an answer and end its step; whether anything is owed after that, as it is if it `owes`."""
        batch = self._batch
        if batch is not None:
            self._error = await batch.run()
        self._end_step(step, begun_s, 0.0 if batch is None else batch.tools_s)
        if self._error is not None or (batch is not None and batch.concludes and not goes_on(self._log[QUEUE])):
            return False
        if owes or goes_on(self._log[QUEUE]):
            return True
        if self._schema is not None and (verdict := self._read_json(text)) != "fits":
            return verdict == "again"
        return bool(self._stage.slots.on_stop) and await self._reopened()

    async def _take_up(self) -> bool:
        """What a crash cut off: the calls without a result, else the request; whether anything is owed after that."""
        turn = self._log[TURN]
        self._ids.update(receipt.call for receipt in turn.receipts)
        self._ids.update(call.id for call in turn.calls.asked)
        if turn.answer is None:
            return await self._step(turn.step) if turn.in_step else True
        if not turn.in_step:
            return turn.acts or goes_on(self._log[QUEUE])
        left = turn.calls.open()
        if left:
            self._batch = Batch(self._scene, [one.call for one in left], self._path, used=self._ids)
            self._batch.resume(left)
        return await self._carry_out(turn.step, self._stage.now_s(), turn.answer, owes=turn.acts)

    def _bounds(self) -> bool:
        """Find out how much the model can read; whether that, or what may be spent, has a bound."""
        limits = self._stage.limits
        self._limit_tokens = limit_tokens(limits.compact_tokens_max, window_of(self._found(), limits.context_window))
        return self._capped or self._limit_tokens is not None

    async def _may_ask(self, step: int) -> bool:
        """Whether something is left to spend and the window has room, if need be after a compaction.

        If not, the first step's input enters history all the same: it was heard, and is not offered to another turn.
        """
        spent = self._overspent(asking=True)
        if spent is None and await self._makes_room(step):
            spent = self._overspent(asking=True)
            if spent is None:
                return True
        if step == 1:
            claimed = first_claim(self._log[QUEUE], self._start)
            self._claim(claimed, claimed)
        if spent is not None:
            self.out_of(spent)
            await trio.lowlevel.checkpoint()
        return False

    async def _makes_room(self, step: int) -> bool:
        """Compact before a step that would overflow the window; False when that failed."""
        limit = self._limit_tokens
        if limit is None or self._full or not self._log[HISTORY].messages or self._filled(step) < limit:
            return True
        if not await self._compact(step, automatic=True):
            return False
        self._full = self._filled(step) >= limit  # more of it would not help
        return True

    def _filled(self, step: int) -> int:
        """The tokens of the step's request with what it will claim."""
        log, queue = self._log, self._log[QUEUE]
        offered = first_claim(queue, self._start) if step == 1 else later_claim(queue)
        prompt = Prompt(log.session, self._turn, step, self._system, log[HISTORY].messages, self._specs())
        return filled(prompt, log[FILLED]) + sum(tokens_of_text(message.text) for message in offered)

    async def _once_more(self, error: ModelError, step: int) -> Reply | None:
        """After an error: when the prompt was too large, compact and ask once more; None when that ends the turn."""
        if error.kind != "overflow":
            return None
        self._fail(error, again=True)
        if not await self._compact(step, automatic=True):
            return None
        spent = self._overspent(asking=True)
        if spent is not None:
            self.out_of(spent)
            await trio.lowlevel.checkpoint()
            return None
        answer = await self._ask(self._prompt(step), self._say, self._ids, f"t{self._turn}s{step}")
        if isinstance(answer, Reply):
            return answer
        if answer.kind == "overflow":
            self._fail(ModelError(STILL_TOO_LARGE.format(error=answer)), again=False)
        return None

    def _read_json(self, answer: str) -> Literal["fits", "again", "failed"]:
        """Whether a final answer that should be JSON is, has to be given once more, or is the turn's error.

        Only that it is JSON is checked: the rest of the schema is the model's to follow, and the reader's to check.
        """
        try:
            msgspec.json.decode(answer)
        except (msgspec.DecodeError, RecursionError) as error:
            why = clean_text(str(error))
        else:
            return "fits"
        if self._asked_again:
            self._error = NOT_JSON.format(why=why)
            return "failed"
        self._asked_again = True
        self._after_step(NoteAdded(JSON_NOTE.format(why=why)))
        return "again"

    async def _enter(self, step: int) -> bool:
        """Claim input and open the step; False when a plugin refused it or there is nothing to do."""
        queue = self._log[QUEUE]
        offered: Queue = first_claim(queue, self._start) if step == 1 else later_claim(queue)
        if step == 1 and self._stage.slots.on_turn_start and not await self._may_start(offered):
            return False
        entering = offered
        with CallView(self._scene) as view:
            for plugin in self._stage.gates:
                assert plugin.before_step is not None
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
        """The same without what was withdrawn, and with what was edited, while the plugins were asked."""
        if not offered:
            return offered, entering
        left = self._log[QUEUE]
        if all(message in left for message in offered):
            return offered, entering
        now = {message.id: message for message in left}  # edited ones read differently, unless a plugin rewrote them
        before = {message.id: message for message in offered}
        return (
            tuple(now[message.id] for message in offered if message.id in now),
            tuple(
                now[message.id] if message == before.get(message.id) else message
                for message in entering
                if message.id in now or message.id not in before
            ),
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
        """What the model reads; and, while the plugins are asked, who reads what it says."""
        stage, parts = self._stage, [self._system] if self._system else []
        with CallView(self._scene) as view:
            for plugin in stage.writers:
                assert plugin.prompt_section is not None
                if section := plugin.prompt_section(view):
                    parts.append(section)
            effort = _first(view, stage.efforts, "effort")
            self._filter = _first(view, stage.readers, "reads")
        system = "\n\n".join(parts)
        messages = self._log[HISTORY].messages
        return Prompt(self._log.session, self._turn, step, system, messages, self._specs(), self._schema, effort)

    def _hear(self, reply: Reply) -> None:
        self._first_token()
        calls, usage, provider = tuple(reply.calls), self._cost(reply), self._provider()
        text = reply.text if self._filter is None else self._filtered(self._filter, reply.text)
        seconds, thoughts = self._model_s, tuple(reply.thoughts)
        said = ModelSaid(text, calls, False, usage, seconds, provider, reply.truncated, thoughts)  # noqa: FBT003
        self._said = []
        if calls and not (self._stage.slots.before_tool or self._capped):
            self._unsaid = said  # nobody looks in between, so one write carries it and its calls
            return
        self._log.append(said)
        self._log.nudge()
        spent = self._overspent(asking=False)
        if spent is not None:
            self.out_of(spent)

    def _say(self, piece: str, part: Part = "text", /) -> None:
        loose: Any = piece
        if not isinstance(loose, str):
            raise ModelError(f"the model said {type(loose).__name__}, not text.")
        if not piece:  # a sign of life
            return
        self._first_token()
        if part == "reasoning":
            self._show((("reasoning", piece),))
            return
        if not self._said and self._filter is not None:  # another attempt begins with another filter
            with CallView(self._scene) as view:
                self._filter = _first(view, self._stage.readers, "reads")
        self._said.append(piece)
        self._show((("text", piece),) if self._filter is None else self._filter.feed(piece))

    def _show(self, parts: Iterable[tuple[Any, str]]) -> None:
        for part, text in parts:
            self._scene.on_delta(Delta(self._log.session, self._turn, part, text))

    def _filtered(self, reader: TextFilter, text: str) -> str:
        """What of a whole answer is said to the user; what else it holds goes on the log before it."""
        self._filter = None
        self._show(reader.end())
        said, events = reader.read(text)
        self._log.append(*events)
        return said

    def _visible(self, text: str) -> str:
        """What of a text that was cut off is said to the user."""
        reader, self._filter = self._filter, None
        return text if reader is None else reader.cut(text)

    def _end_step(self, step: int, begun_s: float, tools_s: float) -> None:
        overhead_s = max(0.0, self._stage.now_s() - begun_s - self._away_s - tools_s)
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


def _first(view: CallView, plugins: Iterable[Plugin], slot: Literal["effort", "reads"]) -> Any:
    """What the first of them answers that has an answer."""
    for plugin in plugins:
        answer = getattr(plugin, slot)(view)
        if answer is not None:
            return answer
    return None

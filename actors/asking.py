"""Asking: a task that asks the model, again where the provider advises it, and knows what that costs and may cost."""

from typing import Any

import trio

from callboard.actors.books import FOUND, OPENED, USAGE
from callboard.actors.budget import overspent, priced
from callboard.actors.catalogue import untold
from callboard.actors.errors import ModelError
from callboard.actors.events import ModelFailed, ModelSaid, Usage
from callboard.actors.intake import provider_label, take
from callboard.actors.model import STREAM_CLOSED, Model, Part, Prompt, Reply, Say, ToolSpec
from callboard.actors.notices import ModelRetrying
from callboard.actors.receipts import clean_text
from callboard.actors.results import describe
from callboard.actors.tasks import Task

RETRY_FIRST_S = 0.5  # doubled with each attempt
RETRY_MAX_S = 30.0
ADVICE_MAX_S = 120.0  # a provider's minute of rate limit is waited out, its daily one is an error
STALLED = "the model streamed nothing for {seconds:g} s (idle_timeout_s)"
LEAVING_S = 0.05  # a session that is about to be stopped looks so often whether it still is
BROKEN = (ConnectionError, EOFError, trio.BrokenResourceError, trio.EndOfChannel)  # the wire, not the request


class Asking(Task):
    """What the tasks share that ask a model."""

    def prepare(self) -> None:
        """Look up who answers, under which instructions, and what may be spent."""
        opened, limits = self._log[OPENED], self._stage.limits
        self._path = "/root" if opened is None else opened.path
        self._system = (opened.system if opened is not None else None) or ""
        self._model_name = opened.model if opened is not None else None
        self._offer = self._stage.offer  # all through: another list in the middle would cost the prompt's cache
        self._untold = untold(opened, self._offer.tools)
        self._price = self._stage.price_of(self._model_name)
        self._model: Model | None = None
        self._idle_s = limits.idle_timeout_s
        own = limits.tokens_max is not None or limits.cost_usd_max is not None
        self._capped = own or (self._purse is not None and self._purse.capped)
        self._said: list[str] = []  # streamed by the request that is under way
        self._asked_s = self._model_s = 0.0  # when the last attempt began, and how long it took when it was answered
        self._away_s = 0.0  # all attempts and the waits between them, since the step began

    def _specs(self) -> tuple[ToolSpec, ...]:
        """The tools as the model sees them in this session."""
        specs, untold = self._offer.specs_for(self._log[FOUND]), self._untold
        return tuple(spec for spec in specs if spec.name not in untold) if untold else specs

    def _known(self) -> Model:
        """The session's model, looked up once a turn."""
        model = self._model
        if model is None:
            model = self._model = self._stage.resolve(self._model_name)
            if self._idle_s is None:
                own: Any = getattr(model, "idle_timeout_s", None)
                self._idle_s = own if type(own) in (int, float) and own > 0 else None
        return model

    def _found(self) -> Model | None:
        """The same, or None: then it is the request that fails."""
        try:
            return self._known()
        except Exception:  # looking up is foreign code too
            return None

    async def _stays(self) -> None:
        """(Trio) Return at once, unless the session is about to be stopped: that cancels this."""
        while self._stage.leaving(self._log.session):  # noqa: ASYNC110 - nobody is told when it is over
            await trio.sleep(LEAVING_S)

    async def _ask(self, prompt: Prompt, say: Say, used: set[str], prefix: str) -> Reply | ModelError:
        """(Trio) The answer, or the error of the last attempt; on the log by then unless the prompt was too large."""
        begun_s = self._asked_s = self._stage.now_s()
        tries = 0
        while True:
            self._said = []
            await self._stays()
            try:
                model = self._model or self._known()
                answer = await (self._watched(model, prompt, say) if self._idle_s else model.reply(prompt, say))
                reply = take(answer, used, prefix)
            except ModelError as error:
                failed = error
            except BROKEN as error:
                failed = ModelError(STREAM_CLOSED if self._said else describe(error), retryable=True)
            except (Exception, SystemExit) as error:  # a model is foreign code; what it raises is a failed request
                failed = ModelError(describe(error))
            else:
                now_s = self._stage.now_s()
                self._model_s = now_s - self._asked_s
                self._away_s += now_s - begun_s
                return reply
            tries += 1
            again = failed.retryable and tries <= self._stage.limits.retries_max and failed.kind != "overflow"
            if failed.kind != "overflow":
                self._fail(failed, again=again)
            if not again:
                self._away_s += self._stage.now_s() - begun_s
                return failed
            await self._pause(failed, tries)
            self._asked_s = self._stage.now_s()

    async def _watched(self, model: Model, prompt: Prompt, say: Say) -> Reply:
        """The answer of a model that must give a sign of life every so often."""
        idle_s = self._idle_s
        assert idle_s is not None
        with trio.CancelScope(deadline=self._stage.now_s() + idle_s) as scope:

            def heard(piece: str, part: Part = "text", /) -> None:
                scope.deadline = self._stage.now_s() + idle_s
                say(piece, part)

            return await model.reply(prompt, heard)
        raise ModelError(STALLED.format(seconds=idle_s), retryable=True)

    async def _pause(self, failed: ModelError, tries: int) -> None:
        """Wait as long as the provider advises, within a bound, and say so."""
        advised: Any = failed.retry_after_s
        advised_s = min(ADVICE_MAX_S, advised) if type(advised) in (int, float) else 0.0
        delay_s = max(advised_s, min(RETRY_MAX_S, RETRY_FIRST_S * 2 ** (tries - 1)))
        attempts_max = self._stage.limits.retries_max + 1
        session, error = self._log.session, clean_text(str(failed))
        self._scene.on_delta(ModelRetrying(session, self._turn, tries, attempts_max, delay_s, error))
        self._log.nudge()
        await trio.sleep(delay_s)

    def _fail(self, error: ModelError, *, again: bool) -> None:
        """A request failed; the last attempt ends the turn with its error."""
        text = clean_text(str(error))
        if not again:
            self._keep_partial()
            self._error = text
        self._log.append(ModelFailed(text, again, self._stage.now_s() - self._asked_s, self._provider()))

    def _provider(self) -> str:
        return "other" if self._model is None else provider_label(self._model.provider)

    def _keep_partial(self) -> None:
        text = clean_text(self._visible("".join(self._said)))
        self._said = []
        if text and self._stage.limits.keep_partial_text:
            self._log.append(ModelSaid(text, interrupted=True, provider=self._provider()))

    def _visible(self, text: str) -> str:
        """What of a text that was cut off is said to the user."""
        return text

    def _cost(self, reply: Reply) -> Usage:
        """What a reply used, with its price; the tree pays it."""
        assert reply.usage is not None
        usage = reply.usage if self._price is None else priced(reply.usage, self._price)
        if self._purse is not None:
            self._purse.pay(usage)
        return usage

    def _overspent(self, *, asking: bool) -> str | None:
        """Which budget of the session or of its tree is used up, None while there is some left."""
        if not self._capped:
            return None
        limits, purse = self._stage.limits, self._purse
        own = overspent(self._log[USAGE], limits.tokens_max, limits.cost_usd_max, asking=asking)
        return own if own is not None or purse is None else purse.over(asking=asking)

"""Compacting: makes the history of a session small enough for its model, as a turn of its own or before a step."""

from typing import ClassVar

import trio

from callboard.actors import compaction
from callboard.actors.asking import Asking
from callboard.actors.books import HISTORY
from callboard.actors.errors import ModelError
from callboard.actors.events import Compacted, Event, NoteAdded, TurnKind
from callboard.actors.mode import MODE
from callboard.actors.model import Part, Prompt, Reply

DROPS_MAX = 16  # times that the request is made smaller; each drops twice as many messages as the one before
FAILED = "compaction failed: {error}"


class Shrinking(Asking):
    """A task that can make its session's history smaller."""

    async def _compact(self, step: int, *, automatic: bool) -> bool:
        """(Trio) Replace the history; False after an error, which is on the log and ends the turn."""
        if self._over is not None:
            self._log.append(self._over)
            self._over = None
        if not self._log[HISTORY].messages:
            return True
        self._log.nudge()
        messages = whole = compaction.request(self._log[HISTORY].messages)
        for tries in range(DROPS_MAX + 1):
            prompt = Prompt(self._log.session, self._turn, step, self._system, messages)
            answer = await self._ask(prompt, _hush, set(), "")
            if isinstance(answer, Reply):
                self._shrink(answer, len(whole) - len(messages), automatic=automatic)
                return True
            if answer.kind != "overflow":
                break
            last = len(messages) == 1 or tries == DROPS_MAX
            self._fail(answer, again=not last)
            if last:
                break
            messages = compaction.without_oldest(messages, 2**tries)
        self._error = FAILED.format(error=self._error)
        return False

    def _shrink(self, reply: Reply, dropped: int, *, automatic: bool) -> None:
        """What the user said lately and the summary; then the mode once more, which the history no longer tells."""
        log = self._log
        kept = compaction.recent(log[HISTORY].messages, self._path)
        summary = reply.text.strip() or compaction.NO_SUMMARY
        usage, provider = self._cost(reply), self._provider()
        events: list[Event] = [
            Compacted(summary, compaction.PREFIX, kept, usage, self._model_s, provider, dropped, automatic)
        ]
        if log[MODE].active and log[MODE].target:
            events.append(NoteAdded(compaction.PLAN_MODE))
        log.append(*events)
        log.nudge()
        self._scene.fresh = True


class Compacting(Shrinking):
    """The turn that a user asks for: one compaction and no step. It takes no input, so it cannot be steered."""

    kind: ClassVar[TurnKind] = "compact"

    async def run(self) -> None:
        """(Trio) Compact, if there is anything left to spend."""
        spent = self._overspent(asking=True)
        if spent is None and await self._compact(0, automatic=False):
            spent = self._overspent(asking=False)
        if spent is not None:
            self.out_of(spent)
        await trio.lowlevel.checkpoint()


def _hush(piece: str, part: Part = "text", /) -> None:
    """A summary is no answer to anybody: readers see it when it is whole."""
    if not isinstance(piece, str):
        raise ModelError(f"the model said {type(piece).__name__}, not text.")

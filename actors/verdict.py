"""What the hooks of one moment decided together, from what each of them answered."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import attrs

from callboard.actors.events import Event, HookFailed, HookWarned
from callboard.actors.hook import AddContext, Allow, Block, Continue, Hook, Rewrite, Skip, Warn
from callboard.actors.receipts import clean_text
from callboard.actors.results import describe

Moment: TypeAlias = Literal["before_tool", "after_tool", "on_turn_start", "on_turn_end", "on_interrupt", "on_stop"]

MAY_ANSWER: Mapping[Moment, tuple[type, ...]] = MappingProxyType(
    {
        "before_tool": (Block, Rewrite, AddContext),
        "after_tool": (Block, AddContext),
        "on_turn_start": (Block, AddContext),
        "on_turn_end": (),
        "on_interrupt": (),
        "on_stop": (Continue,),
    }
)
STATUS_OF = ((Block, "blocked"), (Continue, "continued"), (Rewrite, "rewrote"), (AddContext, "context"))


@attrs.frozen
class Said:
    """What one hook answered, or how it failed; `at_s` is when it had."""

    hook: Hook
    answers: tuple[Any, ...] = ()
    failure: str | None = None
    at_s: float = 0.0

    @property
    def status(self) -> str:
        """The one word that metrics count it by."""
        if self.failure is not None:
            return "failed"
        given = {type(answer) for answer in self.answers}
        return next((status for kind, status in STATUS_OF if kind in given), "ok")

    def texts(self, kind: type[AddContext] | type[Continue] | type[Warn]) -> Iterable[str]:
        """The texts of its answers of one kind."""
        return (answer.text for answer in self.answers if type(answer) is kind)


@attrs.frozen
class Verdict:
    """Any block wins, else the rewrite of the hook that finished last; texts add up in hook order."""

    block: str | None = None
    rewrite: Rewrite | None = None
    notes: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()


GO_ON = Verdict()


def read(moment: Moment, hook: Hook, answer: Any, at_s: float = 0.0) -> Said:
    """What a hook's answer says at this moment; what must not be answered then is a failure."""
    given = answer if type(answer) is tuple else (answer,)
    allowed = MAY_ANSWER[moment]
    answers = []
    for one in given:
        if one is None or type(one) in (Allow, Skip):
            continue
        if type(one) is not Warn and type(one) not in allowed:
            names = ", ".join(kind.__name__ for kind in (*allowed, Allow, Warn))
            return failed(hook, f"answered {type(one).__name__}, not one of {names}", at_s)
        try:
            answers.append(_plain(one))
        except Exception as error:  # a value of the hook's own class may raise anything while it is looked at
            return failed(hook, f"answered {type(one).__name__} without a text: {describe(error)}", at_s)
    return Said(hook, tuple(answers), None, at_s)


def failed(hook: Hook, failure: str, at_s: float = 0.0) -> Said:
    """The hook gave no answer."""
    return Said(hook, (), clean_text(failure), at_s)


def _plain(answer: Any) -> Any:
    if type(answer) is Rewrite:
        return answer
    if type(answer) is Block:
        return Block(clean_text(str(answer.reason)))
    return type(answer)(clean_text(str(answer.text)))


def blocks(moment: Moment, said: Said) -> str | None:
    """Why this hook refuses, if it does; a broken one may be configured to."""
    if said.failure is not None:
        closed = said.hook.on_failure == "block" and Block in MAY_ANSWER[moment]
        return f"hook {said.hook.name} failed: {said.failure}" if closed else None
    return next((answer.reason for answer in said.answers if type(answer) is Block), None)


def join(moment: Moment, said: Sequence[Said]) -> Verdict:
    """The verdict of all hooks; `said` is in hook order."""
    reasons = [reason for one in said if (reason := blocks(moment, one)) is not None]
    block = None if not reasons else "\n".join(reasons) if moment == "after_tool" else reasons[0]
    rewrites = [(one.at_s, at, a) for at, one in enumerate(said) for a in one.answers if type(a) is Rewrite]
    last = max(rewrites, key=lambda entry: entry[:2])[2] if rewrites and block is None else None
    notes = tuple(text for one in said for text in one.texts(AddContext))
    more = tuple(text for one in said for text in one.texts(Continue))
    return Verdict(block, last, notes, more, tuple(event for one in said for event in events_of(moment, one)))


def events_of(moment: Moment, said: Said) -> Iterable[Event]:
    """What of it goes on the log by itself."""
    if said.failure is not None:
        yield HookFailed(said.hook.name, said.failure, blocks(moment, said) is not None)
    for text in said.texts(Warn):
        yield HookWarned(said.hook.name, text)

"""Which calls of a turn have no result yet, as values that a fold can keep."""

from typing import Any

import msgspec
from msgspec.structs import replace

from callboard.actors.events import Call, Effect, Value


class OpenCall(Value, frozen=True):
    """A call without its result; `started` once its ToolCalled is on the log, `repeatable` as its effect says.

    `cell` is the call whose body made it; None for what the model asked for. `nesting` once its own body made one.
    """

    call: Call
    started: bool = False
    repeatable: bool = False
    cell: str | None = None
    nesting: bool = False


class Calls(Value, frozen=True):
    """The calls of a batch, from the answer that asked for them until the last of them has its result.

    `places` numbers them by id and is never changed; `started`, `repeatable`, `returned` and `nesting` (its body made
    calls of its own) have one bit for each. So each event of a call costs the same in a batch of one and of a thousand.
    A call that a hook rewrote stands here with the arguments that its body got.
    """

    asked: tuple[Call, ...] = ()
    places: dict[str, int] = msgspec.field(default_factory=dict)
    started: int = 0
    repeatable: int = 0
    returned: int = 0
    nesting: int = 0

    def __bool__(self) -> bool:
        """Whether a call has no result yet."""
        return bool(self.asked)

    def ask(self, calls: tuple[Call, ...]) -> "Calls":
        """More calls, behind these."""
        asked = self.asked + calls
        places = {call.id: at for at, call in enumerate(asked)}
        return Calls(asked, places, self.started, self.repeatable, self.returned, self.nesting)

    def start(self, id: str, effect: Effect, arguments: Any) -> "Calls":
        """The call's handler runs next, with these arguments."""
        at = self.places.get(id)
        if at is None:
            return self
        bit, asked, call = 1 << at, self.asked, self.asked[at]
        if not _same(call.arguments, arguments):
            asked = (*asked[:at], replace(call, arguments=arguments, flaw=""), *asked[at + 1 :])
        repeatable = self.repeatable if effect == "once" else self.repeatable | bit
        return Calls(asked, self.places, self.started | bit, repeatable, self.returned, self.nesting)

    def nest(self, id: str) -> "Calls":
        """The body of the call makes a call of its own."""
        at = self.places.get(id)
        return self if at is None or self.nesting >> at & 1 else replace(self, nesting=self.nesting | 1 << at)

    def finish(self, id: str) -> "Calls":
        """The call has its result; after the last one nothing is kept."""
        at = self.places.get(id)
        if at is None:
            return self
        returned = self.returned | 1 << at
        if returned.bit_count() == len(self.asked):
            return NO_CALLS
        return Calls(self.asked, self.places, self.started, self.repeatable, returned, self.nesting)

    def is_open(self, id: str) -> bool:
        """Whether the call was asked for and has no result."""
        at = self.places.get(id)
        return at is not None and not self.returned >> at & 1

    def is_started(self, id: str) -> bool:
        """Whether the call's handler was about to run."""
        at = self.places.get(id)
        return at is not None and bool(self.started >> at & 1)

    def open(self) -> tuple[OpenCall, ...]:
        """The calls without a result, in the order they were asked for."""
        return tuple(
            OpenCall(
                call,
                bool(self.started >> at & 1),
                bool(self.repeatable >> at & 1),
                nesting=bool(self.nesting >> at & 1),
            )
            for at, call in enumerate(self.asked)
            if not self.returned >> at & 1
        )


def _same(asked: Any, given: Any) -> bool:
    """Whether a body gets what was asked for, as the log writes it."""
    if asked is given:
        return True
    if isinstance(asked, str) or isinstance(given, str):
        return type(asked) is type(given) and bool(asked == given)
    return msgspec.json.encode(asked) == msgspec.json.encode(given)


NO_CALLS = Calls()

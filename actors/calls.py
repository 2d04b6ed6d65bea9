"""Which calls of a turn have no result yet, as values that a fold can keep."""

import msgspec

from callboard.actors.events import Call, Effect, Value


class OpenCall(Value, frozen=True):
    """A call without its result; `started` once its ToolCalled is on the log, `repeatable` as its effect says.

    `cell` is the call whose body made it; None for what the model asked for.
    """

    call: Call
    started: bool = False
    repeatable: bool = False
    cell: str | None = None


class Calls(Value, frozen=True):
    """The calls of a batch, from the answer that asked for them until the last of them has its result.

    `places` numbers them by id and is never changed; `started`, `repeatable` and `returned` have one bit for each. So
    each event of a call costs the same in a batch of one and of a thousand.
    """

    asked: tuple[Call, ...] = ()
    places: dict[str, int] = msgspec.field(default_factory=dict)
    started: int = 0
    repeatable: int = 0
    returned: int = 0

    def __bool__(self) -> bool:
        """Whether a call has no result yet."""
        return bool(self.asked)

    def ask(self, calls: tuple[Call, ...]) -> "Calls":
        """More calls, behind these."""
        asked = self.asked + calls
        places = {call.id: at for at, call in enumerate(asked)}
        return Calls(asked, places, self.started, self.repeatable, self.returned)

    def start(self, id: str, effect: Effect) -> "Calls":
        """The call's handler runs next."""
        at = self.places.get(id)
        if at is None:
            return self
        bit = 1 << at
        repeatable = self.repeatable if effect == "once" else self.repeatable | bit
        return Calls(self.asked, self.places, self.started | bit, repeatable, self.returned)

    def restarted(self) -> "Calls":
        """None of those runs any more that have no result and may be repeated."""
        again = self.repeatable & ~self.returned
        return Calls(self.asked, self.places, self.started & ~again, self.repeatable & ~again, self.returned)

    def finish(self, id: str) -> "Calls":
        """The call has its result; after the last one nothing is kept."""
        at = self.places.get(id)
        if at is None:
            return self
        returned = self.returned | 1 << at
        if returned.bit_count() == len(self.asked):
            return NO_CALLS
        return Calls(self.asked, self.places, self.started, self.repeatable, returned)

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
            OpenCall(call, bool(self.started >> at & 1), bool(self.repeatable >> at & 1))
            for at, call in enumerate(self.asked)
            if not self.returned >> at & 1
        )


NO_CALLS = Calls()

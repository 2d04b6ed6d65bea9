"""Vitals: what a runtime's health is told from: how late the loops were lately, the store, and who was given up."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

from callboard.actors.notices import ChildRestarted, DurabilityDelayed, Flushed, LoopLagged, Notice, StoreFailed

LATELY_MAX = 120  # lags that are kept of each loop: the last minute
DELAYED_MAX = 1_000  # sessions that wait for the disk, as far as they are kept
STUCK_S = 1.0  # a turn that is being aborted for longer is stuck: its window is a tenth of that
LATE_S = 1.0  # a loop that is late by more is a problem of its own
NAMED_MAX = 5

StoreState: TypeAlias = Literal["ok", "delayed", "failing"]


class Vitals:
    """Fed with every notice of a runtime; keeps a bounded piece of the past."""

    def __init__(self) -> None:
        self._lags: dict[str, deque[float]] = {name: deque(maxlen=LATELY_MAX) for name in ("asyncio", "trio")}
        self._failing: str | None = None
        self.delayed: dict[str, None] = {}  # sessions whose last end waited for the disk, oldest first
        self.given_up = 0

    def take(self, notice: Notice) -> None:
        """What happened."""
        match notice:
            case LoopLagged():
                self._lags[notice.loop].append(notice.seconds)
            case Flushed():
                self._failing = None
            case StoreFailed():
                self._failing = notice.error
            case DurabilityDelayed():
                self.delayed[notice.session] = None
                if len(self.delayed) > DELAYED_MAX:
                    del self.delayed[next(iter(self.delayed))]
            case ChildRestarted():
                self.given_up += notice.decision in ("give_up", "escalate")
            case _:
                pass

    def delayed_are(self, waiting: Iterable[str]) -> None:
        """Of the sessions whose end waited for the disk only these do still."""
        if self.delayed:
            still = set(waiting)
            self.delayed = {session: None for session in self.delayed if session in still}

    def lag_p99_s(self) -> dict[str, float]:
        """How late each loop woke, at worst but for one time in a hundred, of the last minute."""
        return {name: percentile(sorted(lags), 99) for name, lags in self._lags.items()}

    def store(self) -> dict[str, Any]:
        """The state of the store, and what it says."""
        state: StoreState = "failing" if self._failing is not None else "delayed" if self.delayed else "ok"
        return {"state": state, "error": self._failing}


def percentile(ordered: list[float], percent: int) -> float:
    """The nearest rank; 0 of nothing."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else 0.0


def health_of(
    vitals: Vitals,
    phase: str,
    *,
    gave_up: bool = False,
    stuck: Sequence[str] = (),
    abandoned: int = 0,
    parked: int = 0,
    left: Sequence[str] = (),
) -> dict[str, Any]:
    """Plain data for a health check; `ok` says that there is no problem, and `problems` are sentences for people."""
    lags, store = vitals.lag_p99_s(), vitals.store()
    problems = [] if phase == "open" else [f"the runtime is {phase}"]
    if gave_up:
        problems.append("the supervisors gave up: no session starts any more")
    if store["state"] != "ok":
        problems.append(f"the store is {store['state']}" + (f": {store['error']}" if store["error"] else ""))
    if stuck:
        who = "1 session does" if len(stuck) == 1 else f"{len(stuck)} sessions do"
        problems.append(f"{who} not come out of an abort: {', '.join(stuck[:NAMED_MAX])}")
    problems += [f"the {name} loop is late by {lag_s:.1f} s" for name, lag_s in lags.items() if lag_s > LATE_S]
    return {
        "ok": not problems,
        "problems": problems,
        "phase": phase,
        "lag_p99_s": lags,
        "store": store,
        "stuck": list(stuck),
        "given_up": vitals.given_up,
        "abandoned": abandoned,
        "parked": parked,
        "left": list(left),
    }

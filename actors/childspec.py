"""Restart arithmetic in OTP's words: ChildSpec, Intensity, and the pure decisions about a child that ended."""

import enum
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import attrs

Restart: TypeAlias = Literal["permanent", "transient", "temporary"]
Strategy: TypeAlias = Literal["one_for_one", "rest_for_one", "one_for_all"]
Exit: TypeAlias = Literal["normal", "shutdown", "passivated", "crashed"]

BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 2.0


@attrs.frozen
class ChildSpec:
    """How a supervisor starts one child, when it restarts it, and how many seconds its shutdown may take.

    `significant` is a child that nothing can stand in for: where another would be started again, its supervisor gives
    up.

    `start` is an async function without arguments, on Trio, that runs for as long as the child lives. It may end with
    an `Exit` as its value to say how it ended; any other value is a normal end, an error a crash.

    `stop` asks the child politely to end and does not wait; without one its scope is cancelled. What still lives after
    `shutdown_s` is cancelled, and then abandoned. `about` answers what statistics show of the child, and
    `below` is the supervisor that it is, for those who look further down.
    """

    id: str
    start: Callable[[], Awaitable[Any]]
    restart: Restart = "permanent"
    shutdown_s: float = 5.0
    kind: Literal["actor", "supervisor"] = "actor"
    stop: Callable[[], object] | None = None
    about: Callable[[], Any] | None = None
    significant: bool = False
    below: Any = None


class Spec(Protocol):
    """What a supervisor asks of a child's spec: a `ChildSpec`, or any object that answers the same."""

    @property
    def id(self) -> str:
        """Its name, one for each child."""
        ...

    @property
    def start(self) -> Callable[[], Awaitable[Any]]:
        """(Trio) Lives as long as the child."""
        ...

    @property
    def restart(self) -> Restart:
        """When it is started again."""
        ...

    @property
    def shutdown_s(self) -> float:
        """How long it may take to end."""
        ...

    @property
    def kind(self) -> Literal["actor", "supervisor"]:
        """What it is, for statistics."""
        ...

    @property
    def stop(self) -> Callable[[], object] | None:
        """Asks it to end."""
        ...

    @property
    def about(self) -> Callable[[], Any] | None:
        """What statistics show of it."""
        ...

    @property
    def significant(self) -> bool:
        """Whether its supervisor gives up where another child would be started again."""
        ...

    @property
    def below(self) -> Any:
        """The supervisor that it is, None for any other child."""
        ...


@attrs.frozen
class Intensity:
    """At most `restarts_max` restarts within any `period_s` seconds (Elixir's defaults: 3 in 5 s)."""

    restarts_max: int = 3
    period_s: float = 5.0


class Decision(enum.Enum):
    """What to do about a child that ended."""

    RESTART = "restart"
    FORGET = "forget"
    GIVE_UP = "give_up"  # this child alone, see `on_exit_of_many`
    ESCALATE = "escalate"


# restart type x exit -> is it started again? "shutdown" and "passivated" are ends on purpose, never counted.
RESTARTS: tuple[tuple[Restart, Exit, bool], ...] = (
    ("permanent", "normal", True),
    ("permanent", "crashed", True),
    ("permanent", "shutdown", True),
    ("permanent", "passivated", False),
    ("transient", "normal", False),
    ("transient", "crashed", True),
    ("transient", "shutdown", False),
    ("transient", "passivated", False),
    ("temporary", "normal", False),
    ("temporary", "crashed", False),
    ("temporary", "shutdown", False),
    ("temporary", "passivated", False),
)
_AGAIN = frozenset((restart, how) for restart, how, again in RESTARTS if again)


def on_exit(
    restart: Restart, how: Exit, past: Sequence[float], now_s: float, intensity: Intensity
) -> tuple[Decision, tuple[float, ...]]:
    """The decision, and the restarts to remember (seconds, oldest first).

    `past` are the earlier restarts of the same supervisor. A restart that would be one too many within the period
    escalates, and is not remembered.
    """
    recent = tuple(at for at in past if now_s - at < intensity.period_s)
    if (restart, how) not in _AGAIN:
        return Decision.FORGET, recent
    if len(recent) >= intensity.restarts_max:
        return Decision.ESCALATE, recent
    return Decision.RESTART, (*recent, now_s)


def on_exit_of_many(
    restart: Restart,
    how: Exit,
    own: Sequence[float],
    given_up: Sequence[float],
    now_s: float,
    each: Intensity,
    all_: Intensity,
) -> tuple[Decision, tuple[float, ...], tuple[float, ...]]:
    """The decision about one of many that have nothing to do with each other, its own restarts, and who was given up.

    As if each child had a supervisor of its own in between: a child restarted too often within `each` is given up, and
    only what is given up counts against `all_`. So one bad child ends alone, and a fault that many have escalates.
    """
    recent = tuple(at for at in given_up if now_s - at < all_.period_s)
    decision, own = on_exit(restart, how, own, now_s, each)
    if decision is not Decision.ESCALATE:
        return decision, own, recent
    if len(recent) >= all_.restarts_max:
        return Decision.ESCALATE, own, recent
    return Decision.GIVE_UP, own, (*recent, now_s)


def affected(strategy: Strategy, ids: Sequence[str], ended: str) -> tuple[str, ...]:
    """The children to end and start again with `ended`, in start order; they are ended in reverse order.

    A temporary one among them is ended and not started again.
    """
    at = ids.index(ended)
    match strategy:
        case "one_for_one":
            return (ended,)
        case "rest_for_one":
            return tuple(ids[at:])
        case "one_for_all":
            return tuple(ids)


def backoff_s(restarts: int, jitter: float) -> float:
    """Seconds to wait before restart number `restarts` (from 1) in the period; `jitter` in 0..1 spreads it by half.

    The first restart waits nothing, as in OTP; later ones double from BACKOFF_FIRST_S up to BACKOFF_MAX_S.
    """
    if restarts <= 1:
        return 0.0
    full = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(restarts - 2, 30))
    return full * (0.5 + 0.5 * jitter)
